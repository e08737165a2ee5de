"""Averages and summaries of weighted draws, the same for every kind of run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from stanct.common.arrays import MOST_AT_ONCE, Array, columns, is_mapped
from stanct.common.errors import StanctError
from stanct.estimates.averages import Expectation, expectation, weighted_quantile
from stanct.estimates.mixing import mixing
from stanct.estimates.naming import Names, label, listed, place_of, places_of, variable
from stanct.estimates.tours import Tours, effective_draws

if TYPE_CHECKING:
    import pandas as pd

# An effective size of n draws has at least the relative variance of this over n. No larger share of
# a smallest one is taken for noise.
NOISE, MOST_NOISE = 6.0, 0.3

Quantity = str | Callable[[Mapping[str, Array]], Array]


def expect(
    variables: Mapping[str, Array],
    log_weights: Array,
    quantity: Quantity,
    beta: float = 1.0,
    copies: int = 1,
    *,
    tours: Tours | None = None,
) -> Expectation:
    """Weighted average of a variable or of a function of all variables ([GS] 21, 22).

    `variables` have shape (chains, draws, ...), and `log_weights` (chains, draws). For `quantity`
    and what is raised see `Run.expect`, and for the others `expectation`.
    """
    if not callable(quantity):
        values = variable(variables, quantity)
        parts = [
            expectation(part, log_weights, beta, copies, tours=tours) for part in _parts(values)
        ]
        return _together(parts, values.shape[2:])
    values = np.asarray(quantity(variables), float)
    if values.shape[:2] != log_weights.shape:
        raise StanctError(
            f"The function returned shape {values.shape}; it must begin with "
            f"{log_weights.shape}, chains and draws.",
            remedy="Keep the first two axes, e.g. lambda v: v['alpha'].max(axis=-1).",
        )
    return expectation(values, log_weights, beta, copies, tours=tours)


def summary(
    variables: Mapping[str, Array],
    log_weights: Array,
    names: Names = None,
    beta: float = 1.0,
    copies: int = 1,
    *,
    tours: Tours | None = None,
    prob: float = 0.9,
    inside: Mapping[int, Array] | None = None,
) -> pd.DataFrame:
    """Weighted mean, its standard error, sd, quantiles, effective sizes and R-hat of every scalar.

    The quantiles are the median and the ends of the central interval that has the probability
    `prob`. A constant has a standard error and an sd of 0. The other arguments are those of
    `expect`. `inside` says which draws each mode has, by its number, shape (chains, draws). Each
    mode then has rows of its own, NaN where it has none.
    """
    import pandas as pd

    if inside is not None:
        parts = {
            mode: summary(
                variables,
                np.where(its, log_weights, -np.inf),
                names,
                beta,
                copies,
                tours=tours,
                prob=prob,
            )
            for mode, its in inside.items()
            if its.any()
        }
        none = next(iter(parts.values())) * np.nan
        together = pd.concat({mode: parts.get(mode, none) for mode in inside})
        return together.rename_axis(index=["mode", "name"])
    found = scalars(variables, log_weights, names, beta, copies, tours=tours, prob=prob)
    return pd.DataFrame.from_dict(found, orient="index")


def scalars(
    variables: Mapping[str, Array],
    log_weights: Array,
    names: Names = None,
    beta: float = 1.0,
    copies: int = 1,
    *,
    tours: Tours | None = None,
    prob: float = 0.9,
) -> dict[str, dict[str, Any]]:
    """The rows of `summary` by name; a command that prints few need not wait for pandas."""
    if not 0 < prob < 1:
        raise StanctError(
            f"prob={prob} is no probability between 0 and 1.",
            remedy="For the ends of the 95 % interval pass prob=0.95.",
        )
    levels = {f"q{100 * q:.6g}": q for q in ((1 - prob) / 2, 0.5, (1 + prob) / 2)}
    rows: dict[str, dict[str, Any]] = {}
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.mean()
    for name in variables if names is None else listed(names):
        values = variable(variables, name)
        base, first = place_of(variables, name)
        shape = values.shape[2:]
        found = [
            (
                *_moments(part, log_weights, beta, copies, tours),
                weighted_quantile(part, log_weights, np.array([*levels.values()])),
            )
            for part in _parts(values)
        ]
        moved = [
            mixing(part[..., k], weights, copies, partial(effective_draws, tours=tours))
            for part in _parts(values)
            for k in range(part.shape[-1])
        ]
        mean = _together([part for part, _, _ in found], shape)
        variance = np.concatenate([part for _, part, _ in found]).reshape(shape)
        quantiles = np.concatenate([part for _, _, part in found], axis=1).reshape(3, *shape)
        for index, mixed in zip(np.ndindex(shape), moved, strict=True):
            sd = np.sqrt(variance[index])
            # Averages of a constant differ from it by rounding.
            constant = quantiles[(0, *index)] == quantiles[(-1, *index)] and sd < 1e-14 * abs(
                mean.value[index]
            )
            rows[label(base, (*first, *index))] = {
                "mean": quantiles[(0, *index)] if constant else mean.value[index],
                "std_error": 0.0 if constant else mean.std_error[index],
                "sd": 0.0 if constant else sd,
                **{level: quantiles[(k, *index)] for k, level in enumerate(levels)},
                "ess_bulk": mixed.bulk,
                "ess_tail": mixed.tail,
                "r_hat": mixed.r_hat,
            }
    return rows


def _parts(values: Array) -> Iterator[Array]:
    """The scalars of a variable as columns, (chains, draws, columns); of a file some at a time."""
    count = max(1, math.prod(values.shape[2:]))
    flat = values.reshape(*values.shape[:2], math.prod(values.shape[2:]))
    step = max(1, MOST_AT_ONCE // (values.shape[0] * values.shape[1]))
    if not is_mapped(values):
        step = count
    for first in range(0, count, step):
        yield columns(flat, first, step)


def _together(parts: Sequence[Expectation], shape: tuple[int, ...]) -> Expectation:
    """The averages of all scalars of a variable, from those of its parts."""
    value, error, size = (
        np.concatenate([getattr(part, name) for part in parts]).reshape(shape)
        for name in ("value", "std_error", "effective_size")
    )
    return replace(parts[0], value=value, std_error=error, effective_size=size)


def least_effective(values: Array, log_weights: Array, tours: Tours | None = None) -> float:
    """Independent draws of the density whose mean would be as precise, for the worst scalar.

    `values` have shape (chains, draws, ...), and `log_weights` (chains, draws). The least of many
    noisy sizes is low by chance, which is taken off. `tours` are those of the draws.
    """
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.mean()
    least, told = np.inf, 0
    for part in _parts(values):
        off = part - np.einsum("cd,cdk->k", weights, part) / weights.size
        variance = np.einsum("cd,cdk->k", weights, np.square(off)) / weights.size
        off *= weights[..., None]
        for k in np.flatnonzero(variance > 0):
            size = effective_draws(off[..., k], tours)
            least = min(least, float(variance[k] * size / off[..., k].var()))
            told += 1
    # Of so many normal numbers, the smallest is expected there (Blom 1958).
    smallest = -float(ndtri(0.625 / (told + 0.25))) if told > 1 else 0.0
    return least / (1 - min(math.sqrt(NOISE / log_weights.size) * smallest, MOST_NOISE))


def _moments(
    values: Array, log_weights: Array, beta: float, copies: int, tours: Tours | None
) -> tuple[Expectation, Array]:
    """Average and variance of columns."""
    mean = expectation(values, log_weights, beta, copies, tours=tours)
    return mean, expectation(np.square(values - mean.value), log_weights, beta).value


def resampled_rows(log_weights: Array, draws: int | None, seed: int | None) -> Array:
    """Positions of equally weighted draws, by systematic resampling within each chain.

    From `log_weights` of shape (chains, all draws), they have shape (chains, draws), by default a
    quarter. Copies of a draw are adjacent.
    """
    chains, kept = log_weights.shape
    count = max(1, kept // 4) if draws is None else draws
    rng = np.random.default_rng(seed)
    picked = np.empty((chains, count), int)
    for chain, row in enumerate(log_weights):
        cumulative = np.exp(row - row.max()).cumsum()
        comb = (np.arange(count) + rng.random()) / count * cumulative[-1]
        picked[chain] = np.minimum(np.searchsorted(cumulative, comb), kept - 1)
    return picked


def rows_of(variables: Mapping[str, Array], picked: Array) -> dict[str, Array]:
    """The picked draws, shape (chains, draws), of variables of shape (chains, all draws, ...)."""
    chains = np.arange(len(picked))[:, None]
    return {name: values[chains, picked] for name, values in variables.items()}


def frame(
    variables: Mapping[str, Array],
    names: Names = None,
    beside: Mapping[str, Array] = MappingProxyType({}),
) -> pd.DataFrame:
    """Draws as a DataFrame: one row for each draw, one column for each scalar.

    `variables` have shape (chains, draws, ...). Of them, `names` are taken; all by default. Numbers
    `beside` them, shape (chains, draws), come before.
    """
    import pandas as pd

    chains, draws = next(iter(variables.values())).shape[:2]
    columns: dict[str, Array] = {
        "chain__": np.repeat(np.arange(1, chains + 1), draws),
        "iter__": np.tile(np.arange(1, draws + 1), chains),
        "draw__": np.arange(1, chains * draws + 1),
        **{name: values.ravel() for name, values in beside.items()},
    }
    for name, index in places_of(variables, list(variables) if names is None else names):
        columns[label(name, index)] = variables[name][(..., *index)].ravel()
    return pd.DataFrame(columns)
