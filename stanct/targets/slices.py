"""Finds scales whose marginal density does not fall off, by the mass of slices far away.

Lines and rays cannot tell of a scale that other parameters follow: as τ goes to 0, so do effects
with the prior normal(0, τ), and every straight line leaves them. Given τ, they are nearly Gaussian.
The others are therefore moved to the top of the slice of each τ, and its curvature gives the mass.
Where those others have no such top, as loadings and factors whose products alone are known, one
vector of parameters follows, and the rest stays at a draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stanct.common.arrays import Array
from stanct.path.curvature import Colouring, Gradients

# How far the log of a scale goes both ways from its middle, each with the share of the mass before
# it that is kept where there is no end. Those far away are for priors on wide scales.
DISTANCES = {8.0: 0.0, 11.0: 0.97, 14.0: 0.999, 17.0: 0.9995, 32.0: 0.5, 64.0: 0.5, 128.0: 0.5}
NEAR = 17.0
# The farthest logarithm, whose square is still a number. Slices go there where their mass has
# changed by so many nats since `NEAR`.
FARTHEST, STEADY = 350.0, 1e-3
# In how many dimensions; Newton steps in a slice, and when one is so small that it was the last.
MOST_DIMENSIONS, STEPS, SMALL = 300, 25, 1e-3
# No further vector follows after so many gradients.
MOST_GRADIENTS = 5_000
# The step of differences, in deviations, and draws that tell which coordinates are coupled.
DIFFERENCE, PLACES = 1e-3, 3
# Where log densities a step apart differ by more nats, they have too few digits to tell a mass.
ROUNDED = 1e-4


def endless_scales(gradients: Gradients, x: Array, scales: Sequence[int]) -> tuple[list[int], int]:
    """The scales along which slices keep their mass for ever, and the gradients spent.

    Parameters
    ----------
    gradients
        Log densities and their gradients at points, in the unconstrained space.
    x : shape (n, D)
        Unconstrained draws.
    scales
        Coordinates that are logarithms of scales.
    """
    if not scales or not 1 < x.shape[1] <= MOST_DIMENSIONS:
        return [], 0
    spent = 0

    def counted(points: Array) -> tuple[Array, Array]:
        nonlocal spent
        spent += len(points)
        return gradients(points)

    middle = np.median(x, axis=0)
    deviations = np.median(np.abs(x - middle), axis=0)
    if not deviations.all():
        return [], 0
    with np.errstate(all="ignore"):
        places = x[:: -(-len(x) // PLACES)]
        units = np.broadcast_to(deviations, places.shape)
        dense = Colouring.dense(x.shape[1])
        second = dense.second_derivatives(counted, places, counted(places)[1], units, DIFFERENCE)
        coupled = np.logical_or.reduce(second != 0)
        found = [k for k in scales if _Slices(counted, deviations, coupled, k).have_no_end(middle)]
    return found, spent


def endless_beside_one(
    gradients: Gradients, x: Array, scales: Sequence[int], vectors: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    """The scales along which slices keep their mass while one vector follows, and the gradients.

    Parameters
    ----------
    gradients, x, scales
        As in `endless_scales`. All else stays at the first of the draws.
    vectors
        Coordinates of each vector of parameters.
    """
    found, spent = [], 0
    for scale in scales:
        for vector in vectors:
            useless = len(vector) < 2 or scale in vector or scale in found
            if useless or spent > MOST_GRADIENTS:
                continue
            moved = [*vector, scale]

            def among(points: Array, moved: list[int] = moved) -> tuple[Array, Array]:
                places = np.repeat(x[:1], len(points), axis=0)
                places[:, moved] = points
                values, slopes = gradients(places)
                return values, slopes[:, moved]

            endless, cost = endless_scales(among, x[:, moved], [len(vector)])
            found += [scale] * len(endless)
            spent += cost
    return found, spent


class _Slices:
    """The slices of one scale."""

    def __init__(self, gradients: Gradients, deviations: Array, coupled: Array, scale: int) -> None:
        self._gradients = gradients
        self._scale = scale
        self._rest = np.delete(np.arange(deviations.size), scale)
        self._deviations = deviations[self._rest]
        self._colouring = Colouring.of(coupled[np.ix_(self._rest, self._rest)])

    def have_no_end(self, middle: Array) -> bool:
        """Whether they keep their mass on one side of the middle."""
        inside, _ = self._slice(middle[self._rest], middle[self._scale])
        return any(self._go_on(inside, middle[self._scale], side) for side in (-1.0, 1.0))

    def _go_on(self, inside: Array, middle: float, side: float) -> bool:
        last = near = -math.inf
        for distance, share in DISTANCES.items():
            inside, mass = self._slice(inside, middle + side * distance)
            if math.isnan(mass):  # too few digits so far away
                return distance > NEAR
            if mass == -math.inf or (share and mass < last + math.log(share)):
                return False
            last = mass
            near = mass if distance <= NEAR else near
        # Mass that still changes, as under gamma(0.001, 0.001), may have its end farther away.
        far = last if abs(last - near) < STEADY else self._slice(inside, side * FARTHEST)[1]
        return math.isnan(far) or far >= last

    def _slice(self, inside: Array, at: float) -> tuple[Array, float]:
        """The top of a slice, and its log mass by the curvature there; NaN without one."""
        units = self._deviations

        def gradients(points: Array) -> tuple[Array, Array]:
            values, slopes = self._gradients(np.insert(points, self._scale, at, axis=1))
            return values, slopes[:, self._rest]

        for _ in range(STEPS):
            values, slopes = gradients(inside[None])
            if values[0] == -np.inf:
                return inside, -math.inf
            curvature = -self._colouring.second_derivatives(
                gradients, inside[None], slopes, units[None], DIFFERENCE
            )[0]
            lengths = 1 / np.sqrt(np.diag(curvature))  # in units
            if not np.isfinite(lengths).all():
                return inside, math.nan
            try:
                factor = cho_factor(lengths[:, None] * curvature * lengths, lower=True)
            except (LinAlgError, ValueError):
                return inside, math.nan
            units = units * lengths
            move = cho_solve(factor, units * slopes[0])
            if np.abs(move).max() < SMALL:
                step = DIFFERENCE * units * np.array([[1.0], [-1.0]])
                if not (np.abs(gradients(inside + step)[0] - values) < ROUNDED).all():
                    return inside, math.nan
                log_determinant = 2 * np.log(np.diag(factor[0])).sum()
                return inside, float(values[0] + np.log(units).sum() - log_determinant / 2)
            inside = inside + move * units
        return inside, math.nan
