"""Follows ridges: curves along which mass lies where a Gaussian has few draws.

Arms of a banana, necks of a hierarchy, and the place of a component that no observation belongs to
hold a few percent of the mass or less. Chains go there seldom, and a mean that depends on such a
place is then wrong by many of its errors. The ridges themselves are easy to follow. One coordinate
is moved away from a mode, step by step. At each step Newton's method takes all other coordinates to
the top of their slice, whose curvature gives its mass (Tierney & Kadane 1986). Where the target is
much denser than the Gaussians of all modes, a Gaussian along the ridge and across it joins the
base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from stanct.bases.local import LocalFit
from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.score import NEGLIGIBLE
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError, as_written
from stanct.common.settings import Real, Whole
from stanct.path.conditional import Newton, Slices
from stanct.path.curvature import Colouring, Gradients
from stanct.path.gaussian import GaussianBase
from stanct.work.interrupts import heard

# Parts need no exact tops.
NEWTON = Newton(exact=0.01, longest=3.0)
# A side ends where a shorter step would still lead to no top.
SHORTEST = 0.1
# A place that holds less mass gets no part.
LEAST_MASS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Ridges(Maker):
    """Gaussians along ridges of mass that the modes do not explain.

    They cost some D gradients a place.

    Attributes
    ----------
    share
        Share of the purse that it may take. No axis is begun afterwards.
    most_starts, most_dimensions
        Modes from which ridges are followed, and parameters, at most.
    first, growth
        The first step, in standard deviations of the mode, and the factor by which steps grow where
        the mass changes slowly. They are halved where it changes fast, or where Newton's method
        does not arrive.
    slow, fast
        Changes of the log mass from one place to the next, in nats.
    most_places
        Places on one side of a mode, at most. It ends before where its mass is negligible.
    heavy
        Parts join where draws of the base would have larger log weights.
    worth, at
        A ridge is worth its parts if these places hold so much mass, each times its squared
        distance in units of `at` standard deviations where that is more than one.
    generous, least
        The weight of a part, relative to its mass, and the least.
    most_parts, most_numbers
        Parts at most, and numbers in all their roots, which each gradient of the base reads.
    """

    name: ClassVar[str] = "ridges"
    judged: ClassVar[bool] = False

    share: Annotated[float, Real(0, 1)] = 0.02 / 3
    most_starts: Annotated[int, Whole(1)] = 12
    most_dimensions: Annotated[int, Whole(2)] = 30
    first: Annotated[float, Real(0)] = 0.6
    growth: Annotated[float, Real(1)] = 1.6
    slow: Annotated[float, Real(0)] = 0.5
    fast: Annotated[float, Real(0)] = 3.0
    most_places: Annotated[int, Whole(1)] = 40
    heavy: Annotated[float, Real(0)] = 1.5
    worth: Annotated[float, Real(0)] = 3e-3
    at: Annotated[float, Real(0)] = 3.0
    generous: Annotated[float, Real(0)] = 1.5
    least: Annotated[float, Real(0, 1)] = 0.002
    most_parts: Annotated[int, Whole(1)] = 40
    most_numbers: Annotated[int, Whole(1)] = 8000

    def applies(self, state: State) -> bool:
        return state.is_settled and not (state.in_two_stages or state.search.whole)

    def make(self, state: State) -> Proposal:
        density = state.target.density
        look = partial(
            find_ridges,
            density.log_density_gradients,
            density.unconstrained_names,
            state.fits,
            peaks=state.measured.peaks,
            beside=state.parts,
            most=state.purse.may_spend(self.share),
            rules=self,
        )
        return heard(look)


class _Top(NamedTuple):
    """The top of a slice, its log density and log mass by Laplace's method, and the inverse
    curvature of the slice, which is zero along the axis.
    """

    point: Array
    log_density: float
    covariance: Array
    log_mass: float


class _Place(NamedTuple):
    """A place on a ridge along an axis: a Gaussian as long as the step to the next place and as
    wide as the slice, the log density at its mean, the mass halfway to both neighbours relative to
    all known mass, and the distance from the mode along the axis, in standard deviations.
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
    most: float = np.inf,
    rules: Ridges | None = None,
) -> Proposal:
    """Follow the ridges from the modes of a target, and cover those that hold mass.

    Parameters
    ----------
    fits
        All modes that are known, best first, with their masses.
    peaks
        Places where ascents ended, best first, from which ridges are followed too. A fit may
        enclose several.
    beside
        Further parts of the base, each with its weight relative to 1 for all modes together.
    """
    rules = rules or Ridges()
    if not 2 <= len(names) <= rules.most_dimensions:
        return Proposal()
    total = float(log_sum_exp(np.array([fit.log_evidence for fit in fits])))
    places: list[_Place] = []
    spent = 0
    for fit in [*fits, *peaks][: rules.most_starts]:
        slices = _Slices(gradients, fit, rules)
        for axis in range(len(names)):
            if spent + slices.spent < most:
                places += slices.places(axis, total)
        spent += slices.spent
    places = [place for place in places if place.mass > LEAST_MASS]
    if not places:
        return Proposal(gradients=spent)
    parts = [(np.exp(fit.log_evidence - total), fit.gaussian) for fit in fits] + [*beside]
    points = np.array([place.part.mean for place in places])
    log_target = np.array([place.log_density for place in places]) - total
    terms = [np.log(weight) + part.log_density(points) for weight, part in parts]
    lacking = log_target - log_sum_exp(np.array(terms), axis=0)
    missing = np.where(lacking > rules.heavy, [place.mass for place in places], 0.0)
    distance = np.array([place.distance for place in places])
    if missing @ np.maximum(np.square(distance / rules.at), 1.0) < rules.worth:
        return Proposal(gradients=spent)
    along = np.array([place.axis for place in places])
    found = tuple(as_written(names[int(axis)]) for axis in np.unique(along[missing > 0]))
    return Proposal(
        parts=_parts(places, log_target, log_target - lacking, missing, rules),
        reweigh=True,
        known={"ridges": found},
        gradients=spent,
        said=f"mass beside the modes along {', '.join(found)}",
    )


def _parts(
    places: Sequence[_Place], log_target: Array, log_base: Array, missing: Array, rules: Ridges
) -> tuple[tuple[float, GaussianBase], ...]:
    """Gaussians that explain all places, always the one that misses most of the mass next.

    Each has its mass and that of places nearest to it. All together have no more than 1.
    """
    points = np.array([place.part.mean for place in places])
    most = min(max(rules.most_numbers // points.shape[1] ** 2, 1), rules.most_parts)
    chosen: list[int] = []
    while len(chosen) < most:
        left = np.where(log_target - log_base > rules.heavy, missing, 0.0)
        left[chosen] = 0.0
        best = int(np.argmax(left))
        if not left[best] > 0:
            break
        chosen.append(best)
        weight = np.log(max(rules.generous * places[best].mass, rules.least))
        log_base = np.logaddexp(log_base, weight + places[best].part.log_density(points))
    near = np.argmax([places[k].part.log_density(points) for k in chosen], axis=0)
    mass = rules.generous * np.bincount(near, missing, len(chosen))
    weights = np.maximum(mass, rules.least)
    weights /= max(weights.sum(), 1.0)
    return tuple((float(w), places[k].part) for w, k in zip(weights, chosen, strict=True))


class _Slices:
    """Slices through a target at fixed values of one coordinate, around a mode."""

    def __init__(self, gradients: Gradients, fit: LocalFit, rules: Ridges) -> None:
        self._gradients, self._mean, self._rules = gradients, fit.mean, rules
        self._spread = np.sqrt(np.diag(fit.covariance))
        self.spent = 0

    def places(self, axis: int, total: float) -> list[_Place]:
        """The places along one axis, none if the mode's own slice has no top. `total` is the log of
        all known mass.
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
        tangent, rules = np.eye(self._mean.size)[axis], self._rules
        last, largest, step = middle, middle.log_mass, rules.first
        while len(found) < rules.most_places:
            top = self._top(last.point + sign * step * self._spread[axis] * tangent, axis)
            if top is None or (abs(top.log_mass - last.log_mass) > rules.fast and step > SHORTEST):
                step /= 2
                if step < SHORTEST and top is None:
                    break
                continue
            found.append(top)
            largest = max(largest, top.log_mass)
            if largest - top.log_mass - np.log(step) > NEGLIGIBLE:
                break
            if abs(top.log_mass - last.log_mass) < rules.slow:
                step *= rules.growth
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
