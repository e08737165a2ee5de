"""Draws of a fit in the unconstrained space of a program."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.engines.embedded import DrawBlock
from stanct.runs.foreign import ROUNDING, Fit, read_fit
from stanct.targets.program_target import ProgramTarget


@dataclass(frozen=True)
class Unconstrained:
    """Draws of a fit in the unconstrained space of a program, shape (chains, draws, D).

    `lp` has the rows that are left, and `lost` is the share that was not inverted or cut. The
    others are those of `ForeignFit`, and whether the fit has an ``lp__``.
    """

    x: Array = field(repr=False)
    lp: Array | None = field(repr=False)
    lost: float
    origin: str
    divergent: float | None
    numbered: bool
    has_lp: bool


def unconstrained(target: ProgramTarget, fit: Fit, rng: np.random.Generator) -> Unconstrained:
    """Read a fit of a program and transform its draws; random are lengths of unit vectors.

    Raises `StanctError` if it cannot be read, lacks a parameter, or is outside of the support.
    """
    found = read_fit(fit, target.parameter_shapes)
    types = {d.name: d.type for d in target.program.parameters}
    mended = {name: _mended(types[name], values) for name, values in found.variables.items()}
    block = DrawBlock(mended, {})
    chains, draws = next(iter(mended.values())).shape[:2]
    if chains * draws == 0:
        raise StanctError(
            f"There is no draw in {found.origin}.", remedy="Pass a fit with hundreds of draws."
        )
    parts = [target.unconstrained_rows(block, chain, rng) for chain in range(chains)]
    shortest = min(len(part) for part, _ in parts)
    if shortest < draws / 2:
        raise StanctError(
            f"Most draws of {found.origin} are outside the support of the program's parameters"
            f"{_why_outside(target, mended)}.",
            remedy="Is this a fit of this program, with these data, written with enough digits?",
        )
    x = np.array([part[:shortest] for part, _ in parts])
    lost = 1 - (1 - found.lost) * sum(len(part) for part, _ in parts) / (chains * draws)
    # A unit vector has lost its length, of which Stan's lp__ has a term.
    has_lengths = "unit_vector" in types.values()
    lp = None if has_lengths else found.lp
    if lp is not None:
        lp = np.array([own[rows[:shortest]] for own, (_, rows) in zip(lp, parts, strict=True)])
    return Unconstrained(
        x, lp, lost, found.origin, found.divergent, found.numbered, found.lp is not None
    )


def sampled(target: ProgramTarget, fit: Fit, rng: np.random.Generator) -> Unconstrained:
    """The draws of `unconstrained`; raises `StanctError` unless parameters and chains vary."""
    found = unconstrained(target, fit, rng)
    chains, _, dimension = found.x.shape
    still = np.flatnonzero(np.ptp(found.x.reshape(-1, dimension), axis=0) == 0)
    if still.size:
        names = ", ".join(f"`{target.density.unconstrained_names[i]}`" for i in still[:5])
        raise StanctError(
            f"All draws of {names} in {found.origin} are the same.",
            remedy="A parameter varies. What was fixed in the fit must be data of the program.",
        )
    for one, other in itertools.combinations(range(chains), 2):
        if np.array_equal(found.x[one], found.x[other]):
            raise StanctError(
                f"The chains {one + 1} and {other + 1} of {found.origin} have the same draws.",
                remedy="Pass each chain once. Does the folder hold a fit twice?",
            )
    return found


def _why_outside(target: ProgramTarget, variables: Mapping[str, Array]) -> str:
    try:
        target.density.unconstrain({name: values[0, 0] for name, values in variables.items()})
    except ValueError as cause:
        return f": {str(cause).strip().rstrip('.')}"
    return ""


def _mended(kind: str, values: Array) -> Array:
    """Draws that fulfil the constraint of a type again, where only rounding broke it."""
    if kind == "simplex":
        fixed = values / values.sum(axis=-1, keepdims=True)
    elif kind in ("unit_vector", "cholesky_factor_corr"):
        fixed = values / np.linalg.norm(values, axis=-1, keepdims=True)
    elif kind == "sum_to_zero_vector":
        fixed = values - values.mean(axis=-1, keepdims=True)
    elif kind in ("corr_matrix", "cov_matrix"):
        fixed = (values + values.swapaxes(-1, -2)) / 2
        if kind == "corr_matrix":
            fixed[..., range(fixed.shape[-1]), range(fixed.shape[-1])] = 1.0
    else:
        return values
    is_near = np.isfinite(fixed).all() and np.abs(fixed - values).max(initial=0) < ROUNDING
    return fixed if is_near else values
