"""Tests which variables have more than one mode, by the excess mass of weighted draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.averages import weighted_quantile
from stanct.estimates.naming import label

# Number of weighted quantiles of a distribution, and of levels for its excess mass.
CELLS, LEVELS = 400, 60

# √n times the dip of n uniform draws, the worst unimodal case, exceeds this once in a thousand
# (simulated; for large n, see Hartigan & Hartigan 1985).
DIP_LIMIT = 0.65


@dataclass(frozen=True)
class Modality:
    """The dip statistic of one scalar, ``variables[variable][..., *index]``.

    The dip is half the excess mass of two modes over one; 0 for a unimodal distribution. The score
    is √n · dip, with n the effective number of draws. Above `DIP_LIMIT`, one mode is implausible.
    """

    variable: str
    index: tuple[int, ...]
    dip: float
    score: float

    @property
    def label(self) -> str:
        """Name of the scalar as in the summary, with indices from 1."""
        return label(self.variable, self.index)

    @property
    def is_multimodal(self) -> bool:
        """Whether the test rejects a single mode."""
        return self.score > DIP_LIMIT


def excess_mass_dip(quantiles: Array) -> Array:
    """Hartigan's dip from equally spaced quantiles, shape (cells + 1, scalars) to (scalars,).

    Let E_k(λ) be the largest sum of (mass − λ · length) over k disjoint intervals. The dip is half
    of max_λ (E_2 − E_1) (Müller & Sawitzki 1991).
    """
    width = np.diff(quantiles, axis=0)
    cells = width.shape[0]
    width = width / np.maximum(quantiles[-1] - quantiles[0], 1e-300)
    densities = 1 / (cells * np.maximum(width, 1e-12))
    best = np.zeros(quantiles.shape[1])
    # Quantiles of the densities suit smooth ones, and geometric levels reach into empty gaps.
    common = np.quantile(densities, np.linspace(0, 1, LEVELS)[:-1], axis=0)
    steps = np.geomspace(densities.min(axis=0), common[-1], LEVELS)
    for level in np.concatenate([common, steps]):
        gains = np.concatenate([np.zeros((1, best.size)), 1 / cells - level * width])
        walk = np.cumsum(gains, axis=0)
        left = np.maximum.accumulate(walk - np.minimum.accumulate(walk, axis=0), axis=0)
        highest = np.maximum.accumulate(walk[::-1], axis=0)[::-1]
        right = np.maximum.accumulate((highest - walk)[::-1], axis=0)[::-1]
        best = np.maximum(best, (left + right).max(axis=0) - left[-1])
    return best / 2


def modalities(
    variables: Mapping[str, Array],
    log_weights: Array,
    effective_sizes: Mapping[str, Array],
    names: Sequence[str],
) -> list[Modality]:
    """Test every scalar of the named variables, and order them by decreasing score.

    `variables` have shape (chains, draws, ...), `log_weights` (chains, draws), and
    `effective_sizes` are one for each scalar, shape (...).
    """
    found = []
    for name in names:
        values = np.asarray(variables[name], float)
        shape = values.shape[2:]
        grid = weighted_quantile(values, log_weights, np.linspace(0, 1, CELLS + 1))
        dips = excess_mass_dip(grid.reshape(CELLS + 1, -1))
        scores = dips * np.sqrt(np.ravel(effective_sizes[name]))
        for place, index in enumerate(np.ndindex(shape)):
            found.append(Modality(name, index, float(dips[place]), float(scores[place])))
    return sorted(found, key=lambda one: -one.score)
