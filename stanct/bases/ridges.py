"""Follows ridges: curves along which mass lies where a Gaussian has few draws.

Arms of a banana, necks of a hierarchy, and the place of a component that no observation belongs to
hold a few percent of the mass or less. Chains go there seldom, and a mean that depends on such a
place is then wrong by many of its errors. The ridges themselves are easy to follow. One coordinate
is moved away from a mode, step by step. At each step Newton's method takes all other coordinates to
the top of their slice, whose curvature gives its mass (Tierney & Kadane 1986). Where the target is
much denser than the Gaussians of all modes, a Gaussian along the ridge and across it joins the
base.

Ridges cost some D gradients a place, and are followed from up to `MOST_STARTS` places in up to
`MOST_DIMENSIONS` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stanct.bases.local import LocalFit
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.conditional import Newton, Slices
from stanct.path.curvature import Colouring, Gradients
from stanct.path.gaussian import GaussianBase

MOST_STARTS, MOST_DIMENSIONS = 12, 30
# No axis is begun after so many gradients.
MOST_GRADIENTS = 20_000
# The first step in standard deviations of the mode, the factor by which steps grow where the mass
# changes slowly, and by which they shrink where it changes fast or Newton's method does not arrive.
FIRST, GROWTH, SHRINKS, SHORTEST = 0.6, 1.6, 0.5, 0.1
# Changes of the log mass from one place to the next that are slow, and fast, in nats.
SLOW, FAST = 0.5, 3.0
# A side ends where its mass is lower by so many nats than at its largest, or after so many places.
NEGLIGIBLE, MOST_PLACES = 13.0, 40
# Parts need no exact tops.
NEWTON = Newton(exact=0.01, longest=3.0)
# Parts join where draws of the base would have a larger log weight than the first number. A ridge
# is worth its parts if these places hold this much mass, each times its squared
# distance in units of `AT` standard deviations where that is more than one. So is a place if it
# holds this much.
HEAVY, WORTH, AT, WORTH_OF_PLACE = 1.5, 3e-3, 3.0, 1e-5
# The weight of a part, relative to its mass, and the least. All parts together have no more than
# the other parts of the base.
GENEROUS, LEAST = 1.5, 0.002
# The most parts, and the most numbers in all their roots, which each gradient of the base reads.
MOST_PARTS, FEWEST_PARTS, MOST_NUMBERS = 40, 8, 8000


@dataclass(frozen=True)
class Ridges:
    """Gaussians along the ridges of a target.

    Attributes
    ----------
    along
        Names of the unconstrained coordinates along which ridges were found.
    parts
        The Gaussians, each with its weight relative to 1 for all other parts of a base.
    gradients
        Gradients spent.
    """

    along: tuple[str, ...] = ()
    parts: tuple[tuple[float, GaussianBase], ...] = field(default=(), repr=False)
    gradients: int = 0


class _Top(NamedTuple):
    """The top of a slice.

    Attributes
    ----------
    point : shape (D,)
    log_density
        Log density of the target there.
    covariance : shape (D, D)
        Inverse curvature of the slice, zero along the axis.
    log_mass
        Log of the slice's mass by Laplace's method.
    """

    point: Array
    log_density: float
    covariance: Array
    log_mass: float


class _Place(NamedTuple):
    """A place on a ridge, in the target's own coordinates.

    Attributes
    ----------
    axis
        The coordinate along which the ridge was followed.
    part
        A Gaussian that is as long as the step to the next place, and as wide as the slice.
    log_density
        Log density of the target at its mean.
    mass
        The mass from this place halfway to both neighbours, relative to all known mass.
    distance
        Distance from the mode along the axis, in standard deviations.
    """

    axis: int
    part: GaussianBase
    log_density: float
    mass: float
    distance: float


def find_ridges(
    gradients: Gradients,
    names: Sequence[str],
    fits: Sequence[LocalFit],
    *,
    peaks: Sequence[LocalFit] = (),
    beside: Sequence[tuple[float, GaussianBase]] = (),
    effort: float = 1.0,
) -> Ridges:
    """Follow the ridges from the modes of a target, and cover those that hold mass.

    Parameters
    ----------
    gradients
        Log densities and their gradients at unconstrained points of shape (n, D).
    names
        Names of the D unconstrained coordinates.
    fits
        All modes that are known, best first, with their masses.
    peaks
        Places where ascents ended, best first, from which ridges are followed too. A fit may
        enclose several.
    beside
        Further parts of the base, each with its weight relative to 1 for all modes together.
    effort
        Share of `MOST_GRADIENTS` that may be spent.
    """
    if len(names) > MOST_DIMENSIONS or len(names) < 2:
        return Ridges()
    total = float(log_sum_exp(np.array([fit.log_evidence for fit in fits])))
    places: list[_Place] = []
    spent = 0
    for fit in [*fits, *peaks][:MOST_STARTS]:
        slices = _Slices(gradients, fit)
        for axis in range(len(names)):
            if spent + slices.spent < effort * MOST_GRADIENTS:
                places += slices.places(axis, total)
        spent += slices.spent
    parts = [
        (fit.log_evidence - total, GaussianBase.from_covariance(fit.mean, fit.covariance))
        for fit in fits
    ] + [(float(np.log(weight)), part) for weight, part in beside]
    places = [place for place in places if place.mass > WORTH_OF_PLACE]
    if not places:
        return Ridges(gradients=spent)
    points = np.array([place.part.mean for place in places])
    log_target = np.array([place.log_density for place in places]) - total
    log_base = log_sum_exp(np.array([w + part.log_density(points) for w, part in parts]), axis=0)
    mass = np.array([place.mass for place in places])
    distance = np.array([place.distance for place in places])
    missing = np.where(log_target - log_base > HEAVY, mass, 0.0)
    along = np.array([place.axis for place in places])
    matters = missing * np.maximum(np.square(distance / AT), 1.0)
    if matters.sum() < WORTH:
        return Ridges(gradients=spent)
    chosen = _chosen(places, log_target, np.asarray(log_base), missing)
    weights = _weights(places, chosen, missing)
    return Ridges(
        tuple(names[int(axis)] for axis in np.unique(along[missing > 0])),
        tuple((float(w), places[k].part) for w, k in zip(weights, chosen, strict=True)),
        spent,
    )


def _chosen(
    places: Sequence[_Place], log_target: Array, log_base: Array, missing: Array
) -> list[int]:
    """Places whose Gaussians explain all, always the one that misses most of the mass next."""
    points = np.array([place.part.mean for place in places])
    most = int(np.clip(MOST_NUMBERS / points.shape[1] ** 2, FEWEST_PARTS, MOST_PARTS))
    chosen: list[int] = []
    while len(chosen) < most:
        left = np.where(log_target - log_base > HEAVY, missing, 0.0)
        left[chosen] = 0.0
        best = int(np.argmax(left))
        if not left[best] > 0:
            break
        chosen.append(best)
        weight = np.log(max(GENEROUS * places[best].mass, LEAST))
        log_base = np.logaddexp(log_base, weight + places[best].part.log_density(points))
    return chosen


def _weights(places: Sequence[_Place], chosen: Sequence[int], missing: Array) -> Array:
    """Weights of the chosen places: their mass, and that of places that lie nearest to them."""
    points = np.array([place.part.mean for place in places])
    near = np.argmax([places[k].part.log_density(points) for k in chosen], axis=0)
    weights = np.maximum(GENEROUS * np.bincount(near, missing, len(chosen)), LEAST)
    return weights / max(weights.sum(), 1.0)


class _Slices:
    """Slices through a target at fixed values of one coordinate, around a mode."""

    def __init__(self, gradients: Gradients, fit: LocalFit) -> None:
        self._gradients, self._mean = gradients, fit.mean
        self._spread = np.sqrt(np.diag(fit.covariance))
        self.spent = 0

    def places(self, axis: int, total: float) -> list[_Place]:
        """The places along one axis, none if the mode's own slice has no top.

        Parameters
        ----------
        total
            Log of all known mass.
        """
        middle = self._top(self._mean, axis)
        if middle is None:
            return []
        below, above = self._side(middle, axis, -1), self._side(middle, axis, 1)
        tops = [*below[::-1], middle, *above]
        if len(tops) < 2:
            return []
        steps = np.gradient([top.point for top in tops], axis=0)
        return [
            _Place(
                axis,
                part,
                top.log_density,
                float(np.exp(min(top.log_mass - total + np.log(abs(step[axis])), 0.0))),
                float(abs(top.point - self._mean)[axis] / self._spread[axis]),
            )
            for top, step in zip(tops, steps, strict=True)
            if (part := _part(top, step)) is not None
        ]

    def _side(self, middle: _Top, axis: int, sign: int) -> list[_Top]:
        """Tops on one side of the mode, nearest first."""
        found: list[_Top] = []
        tangent = np.eye(self._mean.size)[axis]
        last, largest, step = middle, middle.log_mass, FIRST
        while len(found) < MOST_PLACES:
            top = self._top(last.point + sign * step * self._spread[axis] * tangent, axis)
            if top is None or (abs(top.log_mass - last.log_mass) > FAST and step > SHORTEST):
                step *= SHRINKS
                if step < SHORTEST and top is None:
                    break
                continue
            found.append(top)
            largest = max(largest, top.log_mass)
            if largest - top.log_mass - np.log(step) > NEGLIGIBLE:
                break
            if abs(top.log_mass - last.log_mass) < SLOW:
                step *= GROWTH
            moved = top.point - last.point
            last, tangent = top, moved / moved[axis]
        return found

    def _top(self, point: Array, axis: int) -> _Top | None:
        """The top of the slice through a point by Newton's method; None if it does not arrive."""
        outer = np.arange(point.size) == axis
        slices = Slices(self._gradients, outer)
        spread, dense = self._spread[~outer], Colouring.dense(point.size - 1)
        ((_, given),) = slices.gaussians(
            point[outer][None], point[~outer][None], spread[None], dense, NEWTON
        )
        self.spent += slices.spent
        if not given.is_top[0]:
            return None
        (top,) = slices.joined(point[outer], given.mean)
        covariance, root = np.zeros((point.size, point.size)), np.linalg.inv(given.factor[0])
        covariance[np.ix_(~outer, ~outer)] = root.T @ root
        return _Top(top, float(given.log_top[0]), covariance, float(given.log_mass[0]))


def _part(top: _Top, step: Array) -> GaussianBase | None:
    """A Gaussian along and across a ridge; None where it is flat up to rounding."""
    try:
        return GaussianBase.from_covariance(top.point, top.covariance + np.outer(step, step))
    except SamplingError:
        return None
