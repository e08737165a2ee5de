"""Finds scales whose marginal density does not fall off, by the mass of slices far away.

Lines and rays cannot tell of a scale that other parameters follow: as τ goes to 0, so do effects
with the prior normal(0, τ), and every straight line leaves them. Given τ, they are nearly Gaussian.
The others are therefore moved to the top of the slice of each τ, and its curvature gives the mass.
Where those others have no such top, as loadings and factors whose products alone are known, one
vector of parameters follows, and the rest stays at a draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.path.conditional import Newton, Slices
from stanct.path.curvature import STEP, Colouring, Gradients

# How far the log of a scale goes both ways from its middle, each with the share of the mass before
# it that is kept where there is no end. Those far away are for priors on wide scales.
CLOSE, NEAR = {8.0: 0.0, 11.0: 0.97, 14.0: 0.999, 17.0: 0.9995}, 17.0
DISTANCES = CLOSE | {32.0: 0.5, 64.0: 0.5, 128.0: 0.5}
# A logit goes less far, because p rounds to 1. A mean with the prior normal(0, 1e11) and the
# precision (1 − p)² has its end before that. So does the log of a distance from the middle.
SHORT = CLOSE | {20.0: 0.99, 23.0: 0.98, 26.0: 0.85}
# It goes so in small steps first, because all that follows it moves at the beginning.
AWAY = dict.fromkeys((1.0, 2.0, 3.0, 4.0, 6.0), 0.0) | SHORT
# The slices of a logit begin between these.
INSIDE = 5.0
# A distance far away whose slice has so many nats less than the middle ends there.
LEAST = 50.0
# The farthest logarithm, whose square is still a number. Slices go there where their mass has
# changed by so many nats since `NEAR`.
FARTHEST, STEADY = 350.0, 1e-3
# No further vector follows after so many gradients.
MOST_GRADIENTS = 5_000
# In how many dimensions, and draws that tell which coordinates are coupled.
MOST_DIMENSIONS, PLACES = 300, 3
# Where log densities a step apart differ by more nats, they have too few digits to tell a mass.
ROUNDED = 1e-4
# Where what follows a scale has deviations smaller than this share of itself, digits are short.
# Before they end, mass must rise by so many nats for each logarithm, and all the same but for this,
# at these distances from there.
SHORTEST, RISE, EVEN, BEFORE = 1e-10, 0.5, 0.1, (8.0, 6.0, 4.0, 2.0)
# A slice may be far from the one before.
NEWTON = Newton(curvatures=25)
# Where it finds widths so many times larger than those that it began with, it begins again.
WIDER = 3.0
# What follows a scale is much wider far away if its deviation has grown so many times.
GROWN = 1e3

# The top of a slice, and a root of its covariance.
_Place = tuple[Array, Array]


class Kinds(NamedTuple):
    """Coordinates beside scales, or of which more is known.

    `logits` are those of what has two bounds, as a correlation of which a mean loses its precision
    when it goes to 1. `flat` are coordinates without a bound and a prior, as that mean. `free` are
    the scales without a prior, whose mass may rise until digits end, as where all data are equal.
    `held` are coordinates with a proper prior, however wide: mass ends where they alone go far.
    """

    logits: Sequence[int] = ()
    flat: Sequence[int] = ()
    free: Sequence[int] = ()
    held: Sequence[int] = ()


def endless_scales(
    gradients: Gradients, x: Array, scales: Sequence[int], kinds: Kinds | None = None
) -> tuple[list[int], int]:
    """The coordinates along which slices keep their mass for ever, and the gradients spent.

    Gradients come with log densities, in the unconstrained space of the draws x, shape (n, D). The
    scales are coordinates that are logarithms of scales. None of `kinds` begins after some
    gradients.
    """
    logits, flat, free, held = kinds or Kinds()
    if not (scales or logits or flat) or not 1 < x.shape[1] <= MOST_DIMENSIONS:
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
        second = dense.second_derivatives(counted, places, counted(places)[1], units)
        coupled = np.logical_or.reduce(second != 0)
        proper = np.isin(np.arange(middle.size), held)
        ground = _Ground(counted, middle, deviations, coupled, proper)
        found = [k for k in scales if _Scale(ground, k, k in free).have_no_end(DISTANCES, (-1, 1))]
        for k in logits:
            inside = middle.copy()  # draws may be far out, from where mass rises to the middle
            inside[k] = np.clip(middle[k], -INSIDE, INSIDE)
            scale = _Scale(ground._replace(middle=inside), k)
            found += [k] * scale.have_no_end(SHORT, (-1, 1))
        for k in flat:
            for unit in (-deviations[k], deviations[k]):
                if spent < MOST_GRADIENTS and k not in found:
                    far = _stretched(counted, middle[k], unit, k)
                    origin = np.where(np.arange(middle.size) == k, 0.0, middle)
                    scale = _Scale(ground._replace(gradients=far, middle=origin), k)
                    found += [k] * scale.have_no_end(AWAY, (1,))
    return found, spent


def _stretched(gradients: Gradients, middle: float, unit: float, axis: int) -> Gradients:
    """Gradients of the density of t instead of x = middle + unit eᵗ on one axis."""

    def stretched(points: Array) -> tuple[Array, Array]:
        places = points.copy()
        away = unit * np.exp(points[:, axis])
        places[:, axis] = middle + away
        values, slopes = gradients(places)
        slopes = slopes.copy()
        slopes[:, axis] = slopes[:, axis] * away + 1.0
        return values + points[:, axis], slopes

    return stretched


def endless_beside_one(
    gradients: Gradients, x: Array, scales: Sequence[int], vectors: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    """The scales along which slices keep their mass while one vector follows, and the gradients.

    All else stays at the first of the draws. `vectors` has the coordinates of each vector.
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


class _Ground(NamedTuple):
    """Where the slices of all scales begin.

    `middle` and `deviations` have shape (D,). `coupled`, shape (D, D), says which coordinates have
    second derivatives, and `held`, shape (D,), which have a proper prior.
    """

    gradients: Gradients
    middle: Array
    deviations: Array
    coupled: Array
    held: Array


class _Scale:
    """The slices of one scale."""

    def __init__(self, ground: _Ground, scale: int, is_free: bool = False) -> None:
        middle, held = ground.middle, ground.held
        self._gradients, self._outer = ground.gradients, np.arange(middle.size) == scale
        inner = ~self._outer
        first = middle[inner], np.diag(ground.deviations[inner])
        self._middle, self._first = middle[scale], first
        self._held, self._is_held, self._is_free = held[inner], bool(held[scale]), is_free
        self._colouring = Colouring.of(ground.coupled[np.ix_(inner, inner)])

    def have_no_end(self, way: Mapping[float, float], sides: Sequence[int]) -> bool:
        """Whether they keep their mass on one side of the middle, where one has a top."""
        place, mass = self._slice(self._first, self._middle)
        return mass > -math.inf and any(self._go_on(place, mass, side, way) for side in sides)

    def _go_on(self, place: _Place, middle: float, side: int, way: Mapping[float, float]) -> bool:
        last, near, reached, first = middle, -math.inf, 0.0, place
        for distance, share in way.items():
            place, mass = self._slice(place, self._middle + side * distance)
            if math.isnan(mass):  # too few digits so far away
                if distance > NEAR:  # under a prior, a rise may end where digits do not reach
                    goes_on = self._is_free or last < middle + RISE * reached
                    return goes_on and not self._is_ended_by_priors(first, place, side, way)
                return self._rises_to_last_digits(place, side, reached)
            reached = distance
            if mass == -math.inf or (share and mass < last + math.log(share)):
                return False
            if way is not DISTANCES and mass < middle - LEAST:
                return False
            last = mass
            near = mass if distance <= NEAR else near
        if self._is_ended_by_priors(first, place, side, way):
            return False
        if way is not DISTANCES:
            return True
        # Mass that still changes, as under gamma(0.001, 0.001), may have its end farther away.
        far = last if abs(last - near) < STEADY else self._slice(place, side * FARTHEST)[1]
        return math.isnan(far) or far >= last

    def _is_ended_by_priors(
        self, first: _Place, last: _Place, side: int, way: Mapping[float, float]
    ) -> bool:
        """Whether all that goes far on the way has a proper prior, which ends it in the end."""
        before, after = (np.linalg.norm(root, axis=1) for _, root in (first, last))
        grown = after > GROWN * before
        goes_far = [*self._held[grown], *[self._is_held] * (side > 0 and way is DISTANCES)]
        return bool(goes_far) and all(goes_far)

    def _rises_to_last_digits(self, place: _Place, side: int, reached: float) -> bool:
        """Whether mass rises evenly until what follows has no digits, as around a point."""
        top, root = place
        spread = np.linalg.norm(root, axis=1)
        if not (self._is_free and (spread < SHORTEST * np.abs(top)).any()):
            return False
        masses, place = [], self._first
        for before in BEFORE:
            place, mass = self._slice(place, self._middle + side * (reached - before))
            masses.append(mass)
        slopes = np.diff(masses) / -np.diff(BEFORE)
        return bool(slopes.min() > RISE and np.ptp(slopes) < EVEN)

    def _slice(self, start: _Place, at: float) -> tuple[_Place, float]:
        """Top and root of a slice, and its log mass by the curvature there; NaN without a top.

        `start` has those of another slice. What follows a scale has other widths at each.
        """
        place, mass, widest = self._step(start, at)
        # Steps of widths much smaller than these see rounding.
        if widest > WIDER:
            place, mass, _ = self._step(place, at)
        return (start if math.isnan(mass) else place), mass

    def _step(self, start: _Place, at: float) -> tuple[_Place, float, float]:
        """The slice, and how much wider than the one to begin from it is, where it has a top."""
        before, root = start
        units = np.linalg.norm(root, axis=0)
        axes = root / units
        slices, begin = Slices(self._along(axes), self._outer), np.linalg.solve(axes, before)
        ((_, given),) = slices.gaussians(
            np.array([[at]]), begin[None], units[None], self._colouring, NEWTON
        )
        (top,), (spread,), (log_top,) = given.mean, given.spread, given.log_top
        if log_top == -math.inf:
            return start, -math.inf, 0.0
        beside = top + STEP * spread * np.array([[1.0], [-1.0]])
        values, _ = slices.slopes(np.array([at]), beside)
        if not given.is_top[0]:
            return start, math.nan, 0.0
        # Where few of them are coupled, axes stay what they are.
        is_dense = self._colouring.colours.max() == top.size - 1
        turned = np.linalg.inv(given.factor[0]).T if is_dense else np.diag(spread)
        mass = float(given.log_mass[0] + np.linalg.slogdet(axes)[1])
        known = (np.abs(values - log_top) < ROUNDED).all()
        wider = float((spread / units).max())
        return (axes @ top, axes @ turned), mass if known else math.nan, wider

    def _along(self, axes: Array) -> Gradients:
        """Gradients where what follows is these axes times other coordinates."""
        inner = ~self._outer

        def along(points: Array) -> tuple[Array, Array]:
            places = points.copy()
            places[:, inner] = points[:, inner] @ axes.T
            values, slopes = self._gradients(places)
            slopes = slopes.copy()
            slopes[:, inner] = slopes[:, inner] @ axes
            return values, slopes

        return along
