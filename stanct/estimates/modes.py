"""Which draws belong to which mode that a search found, and the weights of the modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stanct.common.arrays import MOST_AT_ONCE, Array, forget, log_sum_exp
from stanct.estimates.averages import expectation
from stanct.estimates.path import Evidence
from stanct.estimates.tours import Tours

# Draws without which no mean is left out, and how much less weight lies around one that is.
FEWEST, EMPTY = 100, 0.02


def mode_shares(
    survey: Mapping[str, Any], z: Array, unwhiten: Callable[[Array], Array], log_weights: Array
) -> Array:
    """The share of each draw that belongs to each Gaussian, shape (chains, draws, K).

    A draw belongs to them in proportion to the pilots' Gaussians, with independent coordinates,
    times their evidences. Draws far from all belong to the nearest. z, shape (chains,
    draws, D), are whitened draws, and their log weights at β = 1 are −∞ where they do not count and
    may have no finite place. `survey` is the record of `Survey` in a run's provenance.
    """
    place, spread = np.array(survey["place"]), np.array(survey["spread"])
    pilots = np.array(survey["log_evidence"])
    logs = np.empty((*log_weights.shape, pilots.size))
    step = max(1, MOST_AT_ONCE // (z.shape[0] * z.shape[2]))
    for row in range(0, z.shape[1], step):
        x = unwhiten(np.ascontiguousarray(z[:, row : row + step]))
        forget(z)
        counts = np.isfinite(log_weights[:, row : row + step])
        x = np.where(counts[..., None], x, place[0])
        for k in range(pilots.size):
            away = np.square((x - place[k]) / spread[k]).sum(axis=-1)
            logs[:, row : row + step, k] = pilots[k] - np.log(spread[k]).sum() - 0.5 * away
    return np.exp(logs - np.asarray(log_sum_exp(logs, axis=-1))[..., None])


def modes_of(survey: Mapping[str, Any]) -> Array:
    """The mode, from 0, of each of a survey's Gaussians, shape (K,): heaviest mode first.

    Wide mass around a mode counts with it.
    """
    pilots = np.array(survey["log_evidence"])
    # Runs that an earlier version saved do not tell whose wide mass it is.
    _, own = np.unique(survey.get("owner") or np.arange(pilots.size), return_inverse=True)
    if own.max() + 1 == pilots.size:
        return own
    order = np.argsort(-_joined(pilots, own), kind="stable")
    return order.argsort()[own]


def masses_of(survey: Mapping[str, Any]) -> Array:
    """Log masses of the modes by their pilots, shape (modes,), natural logs."""
    return _joined(np.array(survey["log_evidence"]), modes_of(survey))


def _joined(log_masses: Array, mode: Array) -> Array:
    total = np.full(mode.max() + 1, -np.inf)
    np.logaddexp.at(total, mode, log_masses)
    return total


def likeliest(survey: Mapping[str, Any], share: Array) -> Array:
    """The mode, from 0, to which each draw most likely belongs, by its shares of Gaussians."""
    mode = modes_of(survey)
    if mode.max() + 1 == mode.size:
        return share.argmax(axis=-1)
    return (share @ (mode[:, None] == np.arange(mode.max() + 1))).argmax(axis=-1)


def mode_columns(
    share: Array,
    pilots: Array,
    log_weights: Array,
    evidence: Evidence | None,
    copies: int = 1,
    *,
    tours: Tours | None = None,
) -> dict[str, Array]:
    """Weights and local evidences of modes, in their order.

    A mode has its share of each draw, shape (chains, draws, modes), and a log mass by the pilots,
    shape (modes,). The last arguments are `expectation`'s.

    The columns of a table with a row for each mode are `weight` and its `std_error`; `log_z`, the
    log of its mass, and its `log_z_std_error`, both NaN without `evidence`; `pilot_log_z`, the
    pilots' estimate; `pilot_weight`, its share of all modes' mass, or of the run's if that is more
    by two standard errors; and `chains`, the number of chains with at least a tenth of the mode's
    weight.
    """
    found = expectation(share, log_weights, 1.0, copies, tours=tours)
    weights = np.exp(log_weights - log_weights.max())
    total = np.maximum(weights.sum(axis=1), 1e-300)[:, None]
    by_chain = np.einsum("cd,cdk->ck", weights, share) / total
    value = np.maximum(found.value, 1e-300)
    relative = found.std_error / value
    # Of many modes, pilots may know some that hold little of all mass.
    log_z, error = (np.nan, np.nan) if evidence is None else (evidence.log_z, evidence.std_error)
    mass = float(np.fmax(log_sum_exp(pilots), log_z - 2 * error))
    return {
        "weight": found.value,
        "std_error": found.std_error,
        "log_z": log_z + np.log(value),
        "log_z_std_error": np.hypot(error, relative),
        "pilot_log_z": pilots,
        "pilot_weight": np.exp(pilots - mass),
        "chains": (by_chain > 0.1 * found.value).sum(axis=0),
    }


def means_by_mode(values: Array, log_weights: Array, inside: Mapping[int, Array]) -> Array:
    """Weighted mean of each mode's draws, shape (modes,); NaN where hardly any draw lies there.

    `values`, `log_weights` and which draws are `inside` each mode have shape (chains, draws).
    """
    means = np.full(len(inside), np.nan)
    for place, its in enumerate(inside.values()):
        if its.any():
            weights = np.exp(log_weights[its] - log_weights[its].max())
            mean = np.average(values[its], weights=weights)
            if not _is_between(values[its], weights, mean):
                means[place] = mean
    return means


def _is_between(values: Array, weights: Array, mean: float) -> bool:
    """Whether draws lie far from their mean, shape (n,), in peaks on both sides of it.

    There is then much less weight around the mean than around the best place, in windows as wide as
    half of what the middle half of the draws takes. Of few draws it is not told, nor of whole
    numbers.
    """
    if np.square(weights.sum()) < FEWEST * np.square(weights).sum() or not np.isfinite(mean):
        return False
    order = values.argsort()
    x, mass = values[order], np.concatenate([[0.0], weights[order].cumsum()])
    quarter, upper = x[np.searchsorted(mass[1:], np.array([0.25, 0.75]) * mass[-1])]
    width = (upper - quarter) / 2
    if not width > 0 or np.all(x == np.round(x)):
        return False
    best = (mass[np.searchsorted(x, x + width, "right")] - mass[:-1]).max()
    low, high = np.searchsorted(x, [mean - width / 2, mean + width / 2])
    return bool(mass[high] - mass[low] < EMPTY * best)
