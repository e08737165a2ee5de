"""Checks of runs along a path: round trips, mixing, weights, tours, and the base that they meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from stanct.common.arrays import Array, forget
from stanct.estimates.mixing import effective_size, r_hat
from stanct.estimates.path import Evidence, PathEstimator
from stanct.estimates.tours import FEWEST_TOURS
from stanct.runs.diagnostics import (
    DECLARE,
    MORE,
    MOST_HOLES,
    Check,
    agreement,
    refit,
    support_check,
    weights_check,
)
from stanct.runs.verdicts import least, most

# A round trip goes from β below the first bound to β above the second and back.
LOW_BETA, HIGH_BETA = 0.1, 0.9
# The base check looks at covariances in so many dimensions, and beyond at variances alone.
MOST_PAIRED = 400
BATCHES_PER_CHAIN = 10
LEAST_TRIPS = 5
# Independent uniform draws of β make a round trip in 20 draws on average, and chains that move well
# need about as many. With this many draws, such a chain makes far more trips than required.
ENOUGH_DRAWS = 400
# So few may well make no trip.
FEW_DRAWS = 50


def round_trips(beta: Array) -> Array:
    """Base → target → base round trips of each chain, shape (chains,), for β of (chains, draws)."""
    counts = np.zeros(beta.shape[0], int)
    for c, chain in enumerate(beta):
        ends = np.where(chain < LOW_BETA, -1, np.where(chain > HIGH_BETA, 1, 0))
        ends = ends[ends != 0]
        arrivals = np.flatnonzero(np.diff(ends) < 0)
        counts[c] = arrivals.size - (1 if ends.size and ends[0] == 1 and arrivals.size else 0)
    return counts


@dataclass(frozen=True)
class BaseCheck:
    """z-scores of the w₀-weighted mean and covariance of z against 0 and I ([GS] after 22).

    Beyond `MOST_PAIRED` dimensions, only of variances. One correct run in a thousand exceeds
    `limit`.
    """

    mean: Array
    covariance: Array
    limit: float

    @property
    def worst(self) -> float:
        """The largest |z|."""
        return float(max(np.abs(self.mean).max(), np.abs(self.covariance).max()))


def base_check(z: Array, log_weights_base: Array) -> BaseCheck:
    """Compare draws z, (chains, draws, D), reweighted to β = 0, with the normal, by batch means."""
    chains, draws, dimension = z.shape
    length = draws // BATCHES_PER_CHAIN
    if length == 0:
        length, batches = 1, draws
    else:
        batches = BATCHES_PER_CHAIN
    weights = np.exp(log_weights_base - log_weights_base.max())[:, : batches * length]
    weights = (weights / weights.mean()).reshape(chains * batches, length)
    count, paired = chains * batches, dimension <= MOST_PAIRED
    mean = np.empty((count, dimension))
    excess = np.empty((count, dimension, dimension) if paired else (count, dimension))
    for batch, weight in enumerate(weights):
        first = batch % batches * length
        points = np.array(z[batch // batches, first : first + length])
        forget(z)
        weighted = weight[:, None] * points
        mean[batch] = weighted.mean(axis=0)
        if paired:
            excess[batch] = weighted.T @ points / length - weight.mean() * np.eye(dimension)
        else:
            excess[batch] = np.einsum("ld,ld->d", weighted, points) / length - weight.mean()
    tests = dimension * (dimension + 3) / 2 if paired else 2.0 * dimension
    if count < 2:
        return BaseCheck(mean[0], excess[0], 0.0)  # no error can be estimated

    def score(batch_means: Array) -> Array:
        spread = batch_means.std(axis=0, ddof=1) / np.sqrt(count)
        return batch_means.mean(axis=0) / np.maximum(spread, 1e-300)

    limit = -float(stdtrit(count - 1, 0.0005 / tests))
    return BaseCheck(score(mean), score(excess), limit)


def path_checks(
    estimator: PathEstimator,
    evidence: Evidence,
    z: Array,
    beta: Array,
    settings: Mapping[str, Any],
    *,
    kept: Array | None = None,
    rao_blackwell: Evidence | None = None,
) -> tuple[Check, ...]:
    """Check mixing, weights and base, and with `rao_blackwell` the agreement of both estimators.

    Remedies refer to the method's `settings`. `z` has the draws at the positions `kept`.
    """
    log_weights_base = estimator.log_weights(0.0)
    if kept is not None:
        log_weights_base = log_weights_base[:, kept]
    base = base_check(z, log_weights_base)
    trips = int(round_trips(beta).min())
    more = MORE if trips >= LEAST_TRIPS else _trips_remedy(trips, beta.shape[1], settings)
    other = rao_blackwell or evidence
    gap = abs(evidence.log_z - other.log_z)
    gap_error = float(np.hypot(evidence.std_error, other.std_error))
    support = support_check(estimator.base_delta)
    # Where the target vanishes there are no draws, however long the chains are.
    remedy = DECLARE if support.value > MOST_HOLES else more
    dominate = f"A few draws dominate: {refit(settings)}"
    return (
        *mixing_checks(beta, evidence, settings),
        weights_check("pareto_k", evidence.tail, "The weights at β = 1", dominate),
        most(
            "base", base.worst, base.limit,
            f"Draws reweighted to the base miss its mean or covariance by {base.worst:.1f} "
            f"standard errors (limit {base.limit:.1f}).",
            f"The chain does not explore the base's end. {remedy}",
        ),
        Check(
            "estimators", *agreement(gap, gap_error),
            f"Bridge and Rao–Blackwell estimates of log Z differ by {gap:.3g}.",
            remedy,
        ),
        support,
    )  # fmt: skip


def _trips_remedy(trips: int, draws: int, settings: Mapping[str, Any]) -> str:
    """The remedy for few trips: longer chains, or without any trip another base."""
    if trips or draws < FEW_DRAWS:
        return f"{MORE} If that does not help, {refit(settings)}"
    remedy = refit(settings).capitalize()
    if draws < ENOUGH_DRAWS:
        remedy += (
            f" Run longer chains as well (draws={ENOUGH_DRAWS}): {draws} draws are few for "
            f"{LEAST_TRIPS} trips of every chain."
        )
    return remedy


def mixing_checks(beta: Array, evidence: Evidence, settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check that the chains moved between base and target.

    Chains that stay where they began may look well mixed: R-hat and sizes are then left out.
    """
    trips = int(round_trips(beta).min())
    went = {0: "never went", 1: "went once"}.get(trips, f"went {trips} times")
    yield least(
        "round_trips", trips, LEAST_TRIPS,
        f"The slowest chain {went} from base to target and back.",
        _trips_remedy(trips, beta.shape[1], settings),
    )  # fmt: skip
    if trips == 0:
        return
    rate = r_hat(beta)
    moving = effective_size(beta, method="bulk")
    yield Check(
        "r_hat", rate, 1.05, not rate > 1.05,
        f"Split R-hat of β is {rate:.3f}: chains {'dis' if rate > 1.05 else ''}agree on it.",
        MORE,
    )  # fmt: skip
    yield least(
        "effective_size", min(evidence.effective_size, moving), 100,
        f"log Z rests on {evidence.effective_size:.0f} effective draws, β on {moving:.0f}.",
        MORE,
    )  # fmt: skip


def tours_check(estimator: PathEstimator) -> Iterator[Check]:
    """Check that more than one stretch of the chains tells the error of log Z."""
    number = estimator.effective_tours
    if number is None:
        return
    yield least(
        "few_tours", number, FEWEST_TOURS,
        f"The error of log Z rests on {number:.1f} effective tours, the stretches between draws "
        "of the base.",
        f"A region was visited in hardly more than one of them. {MORE}",
    )  # fmt: skip
