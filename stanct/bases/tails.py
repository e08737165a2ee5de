"""Finds heavy tails, where a Gaussian base would leave mass out of reach.

A Gaussian has no draw ten standard deviations out. A chain gets there from the centre in rare, long
excursions, and most runs have none: log Z is then too low, and no chain tells. The density along a
few lines tells at once. Where it falls about like a power, wide Gaussians along these lines join
the base, so that its draws lie in the tails as well.

Tails of single parameters show on lines along the axes, whose draws need one wide coordinate each.
Tails of all parameters together, as of a multivariate t density, show on lines in any direction,
where the volume at a distance r counts as r^(D−1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from stanct.bases.local import LocalFit
from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.pilots import log_mass
from stanct.bases.score import NEGLIGIBLE, unexplained
from stanct.bases.starts import reach_of
from stanct.common.arrays import Array
from stanct.common.errors import as_written
from stanct.path.gaussian import GaussianBase
from stanct.targets.protocols import SampledDensity

# Distances from the centre in standard deviations, and the shells of tails between them.
DISTANCES = np.concatenate([np.linspace(0.25, 4, 16), np.geomspace(4.5, 4e5, 50)])
EDGES = 3.0 * 4.0 ** np.arange(9)
# Tails are heavy if the shells beyond the first hold this much. A t density with ν = 5 has it; a
# Gaussian, and a density that falls exponentially, have not.
HEAVY = 1e-4
# A shell gets a component if it holds this much. Its standard deviation is this many times the
# shell's inner edge, and its weight this many times the shell's mass, and never less than `LEAST`.
WORTH, WIDTH, GENEROUS, LEAST = 1e-5, 1.6, 1.5, 0.005
# Before a line is followed: no tail holds `HEAVY` whose density at this distance is negligible.
LOOK = 12.0
# Lines in directions that are no axis.
DIRECTIONS = 12
ALL = "all directions"


@dataclass(frozen=True, kw_only=True)
class Tails(Maker):
    """Wide Gaussians where the density falls like a power."""

    name: ClassVar[str] = "tails"
    judged: ClassVar[bool] = False

    def make(self, state: State) -> Proposal:
        density = state.target.density
        return find_tails(
            density, density.unconstrained_names, state.fits, state.seeds.tails,
            reach=reach_of(state.target),
        )  # fmt: skip


def find_tails(
    density: SampledDensity,
    names: Sequence[str],
    fits: Sequence[LocalFit],
    seed: np.random.SeedSequence,
    *,
    reach: float = math.inf,
) -> Proposal:
    """Look for heavy tails of a density around the best of its modes, which are given best first.

    The proposal is along the unconstrained coordinates whose tails are heavy, and `ALL` for tails
    in every direction. Farther than `reach` from the best mode, in any coordinate, the density
    counts as nothing.
    """
    base = fits[0].gaussian
    lines = _Lines(density, base.mean, fits, reach)
    dimension, covariance = base.dimension, base.covariance
    inverse = solve_triangular(base.scale, np.eye(dimension), lower=True)
    # Of coordinate i, given all others.
    deviation = 1 / np.sqrt(np.square(inverse).sum(axis=0))
    found: list[tuple[str, Array, Array]] = []
    for i, name in enumerate(names):
        step = np.zeros(dimension)
        step[i] = deviation[i]
        if lines.may_be_heavy(step):
            found.append((name, lines.shells(step[None]), np.outer(step, step)))
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((DIRECTIONS, dimension))
    directions *= np.sqrt(dimension) / np.linalg.norm(directions, axis=1, keepdims=True)
    steps = directions @ base.scale.T
    if dimension > 1 and any(lines.may_be_heavy(step, dimension) for step in steps):
        found.append((ALL, lines.shells(steps, dimension), covariance))
    heavy = [one for one in found if one[1][1:].sum() > HEAVY]
    wide = [
        (
            max(GENEROUS * float(mass), LEAST),
            GaussianBase.from_covariance(base.mean, covariance + (WIDTH * edge) ** 2 * spread),
        )
        for _, shells, spread in heavy
        for edge, mass in zip(EDGES, shells, strict=True)
        if mass > WORTH
    ]
    along = tuple(as_written(name) for name, _, _ in heavy)
    return Proposal(
        parts=tuple(wide),
        known={"tails": along},
        evaluations=lines.evaluations,
        said=f"tails are heavy along {', '.join(along)}" if along else "",
    )


class _Lines:
    """The density along lines through a centre, where no mode explains it."""

    def __init__(
        self, density: SampledDensity, centre: Array, modes: Sequence[LocalFit], reach: float
    ) -> None:
        self._density, self._centre, self._modes, self._reach = density, centre, modes, reach
        self.evaluations = 1
        self._top = density.log_densities(centre[None])[0]

    def may_be_heavy(self, step: Array, volume: int = 1) -> bool:
        """Whether the density is high enough far out, and that is within reach; steps are one
        standard deviation long.
        """
        if LOOK * np.abs(step).max() > self._reach:
            return False
        far = self._at(np.array([-LOOK, LOOK])[:, None] * step)
        return bool(far.max() + (volume - 1) * np.log(LOOK) > self._top - NEGLIGIBLE)

    def shells(self, steps: Array, volume: int = 1) -> Array:
        """The share of the mass that lies in each shell along lines, whose steps, shape (n, D), are
        one standard deviation long. They stand for a space of so many dimensions (`volume`).
        """
        places = np.concatenate([DISTANCES, -DISTANCES])[None, :, None] * steps[:, None, :]
        offsets = places.reshape(-1, steps.shape[1])
        values = self._at(offsets)
        explained = ~unexplained(values, log_mass(self._modes, self._centre + offsets))
        values = values.reshape(-1, DISTANCES.size) + (volume - 1) * np.log(DISTANCES)
        # What lies before a mode farther out is a saddle, and no tail.
        known = explained.reshape(values.shape) & (values > values.max() - NEGLIGIBLE)
        before = np.flip(np.logical_or.accumulate(np.flip(known, axis=1), axis=1), axis=1)
        beyond = ~(explained.reshape(values.shape) | before)
        heights = np.exp(values - values.max())
        middle = np.sqrt(DISTANCES[1:] * DISTANCES[:-1])
        shells = np.searchsorted(EDGES, middle, side="right")
        total = _trapezia(heights.mean(axis=0)).sum()
        tail = _trapezia((heights * beyond).mean(axis=0))
        return np.bincount(shells, tail, EDGES.size + 1)[1:] / total

    def _at(self, offsets: Array) -> Array:
        near = np.abs(offsets).max(axis=1) <= self._reach
        found = np.full(len(offsets), -np.inf)
        found[near] = self._density.log_densities(self._centre + offsets[near])
        self.evaluations += int(near.sum())
        return np.where(np.isnan(found), -np.inf, found)


def _trapezia(heights: Array) -> Array:
    return 0.5 * (heights[1:] + heights[:-1]) * np.diff(DISTANCES)
