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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stanct.bases.local import LocalFit
from stanct.bases.weights import maximised
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.gaussian import LOG_2PI, GaussianBase
from stanct.path.mixture import MixtureBase

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
# Newton's method: iterations; the expected gain, in nats, below which it has arrived; the longest
# step, in the larger one of the mode's and the slice's standard deviations; halvings of a step; and
# the gain, relative to the one before, above which the curvature is taken anew.
MOST_STEPS, ARRIVED, LONGEST, HALVINGS, SLOWER = 8, 0.02, 3.0, 5, 0.25
# Points at which second derivatives are differences of gradients, in standard deviations, and the
# smallest one at a top.
DIFFERENCE, FLATTEST = 1e-3, 1e-5
# A place is unexplained where the target is so many nats above the base. A ridge is worth its parts
# if its unexplained places hold this much mass, each times its squared distance in units of `AT`
# standard deviations where that is more than one. So is a place if it holds this much.
UNEXPLAINED, WORTH, AT, WORTH_OF_PLACE = 1.5, 3e-3, 3.0, 1e-5
# The weight of a part, relative to its mass, and the least. All parts together have no more than
# the other parts of the base.
GENEROUS, LEAST = 1.5, 0.002
# The most parts, and the most numbers in all their roots, which each gradient of the base reads.
MOST_PARTS, FEWEST_PARTS, MOST_NUMBERS = 40, 8, 8000

# Draws of the mixture from which its weights are estimated, the share of them whose weights are cut
# to the smallest of these, and the share of the weights before.
SAMPLE, CUT, KEPT = (1000, 1000), 0.01, 0.3
# No log weight that counts is lower.
LOWEST = -1e300

# Log densities at points of shape (n, D), and their gradients.
Gradients = Callable[[Array], tuple[Array, Array]]


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
    """The top of a slice, in standard deviations of the mode.

    Attributes
    ----------
    point : shape (D,)
    log_density
        Log density of the target there.
    covariance : shape (D, D)
        Inverse curvature of the slice, zero along the axis.
    tangent : shape (D,)
        How the top moves with the coordinate, which itself moves by one.
    log_mass
        Log of the slice's mass by Laplace's method, in units of the mode's standard deviations.
    """

    point: Array
    log_density: float
    covariance: Array
    tangent: Array
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
    missing = np.where(log_target - log_base > UNEXPLAINED, mass, 0.0)
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
        left = np.where(log_target - log_base > UNEXPLAINED, missing, 0.0)
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


def reweighted(
    base: MixtureBase, log_densities: Callable[[Array], Array], rng: np.random.Generator
) -> MixtureBase:
    """The mixture with weights that bring it nearer to the target, by its own draws.

    The weights maximise the mean log density of the mixture over the target, which importance
    weights of the draws estimate. No part loses more than 1 − `KEPT` of its
    weight, because draws may have missed where it is needed.

    Parameters
    ----------
    log_densities
        Log densities of the target at unconstrained points of shape (n, D).
    """
    for count in SAMPLE:
        z = base.draw(rng, count)
        each = base.terms(z)
        log_weights = -base.delta(z, log_densities(base.unwhiten(z)))
        share = np.exp(log_weights - log_weights.max(initial=LOWEST))
        share = np.minimum(share, np.quantile(share, 1 - CUT))
        if not share.sum() > 0:  # hardly a draw is inside the support
            return base
        share /= share.sum()
        weights = maximised(base.weights, each - np.log(base.weights)[:, None], share)
        base = MixtureBase.of((1 - KEPT) * weights + KEPT * base.weights, base.parts)
    return base


class _Slices:
    """Slices through a target at fixed values of one coordinate, around a mode.

    Points are in standard deviations of the mode's Gaussian, from its mean.
    """

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
        middle = self._top(np.zeros(self._mean.size), axis)
        if middle is None:
            return []
        below, above = self._side(middle, axis, -1), self._side(middle, axis, 1)
        tops = [*below[::-1], middle, *above]
        if len(tops) < 2:
            return []
        steps = np.abs(np.gradient([top.point[axis] for top in tops]))
        unit = float(np.log(self._spread).sum()) - total
        return [
            _Place(
                axis,
                part,
                top.log_density,
                float(np.exp(min(top.log_mass + unit + np.log(step), 0.0))),
                abs(float(top.point[axis])),
            )
            for top, step in zip(tops, steps, strict=True)
            if (part := self._part(top, step)) is not None
        ]

    def _part(self, top: _Top, step: float) -> GaussianBase | None:
        """A Gaussian along and across a ridge; None where it is flat up to rounding."""
        covariance = top.covariance + step**2 * np.outer(top.tangent, top.tangent)
        scale = np.outer(self._spread, self._spread)
        try:
            return GaussianBase.from_covariance(
                self._mean + self._spread * top.point, covariance * scale
            )
        except SamplingError:
            return None

    def _side(self, middle: _Top, axis: int, sign: int) -> list[_Top]:
        """Tops on one side of the mode, nearest first."""
        found: list[_Top] = []
        last, largest, step = middle, middle.log_mass, FIRST
        while len(found) < MOST_PLACES:
            top = self._top(last.point + sign * step * last.tangent, axis)
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
            last = top
        return found

    def _top(self, point: Array, axis: int) -> _Top | None:
        """The top of the slice through a point by Newton's method; None if it does not arrive."""
        rest = np.arange(point.size) != axis
        value, slope = self._at(point)
        precision: Array | None = None
        before = np.inf
        for _ in range(MOST_STEPS):
            if precision is None:
                precision = self._precision(point, slope)
            if not (np.isfinite(value) and np.all(np.isfinite(precision))):
                return None
            across = precision[np.ix_(rest, rest)]
            values, vectors = np.linalg.eigh(across)
            covariance = (vectors / np.maximum(np.abs(values), FLATTEST)) @ vectors.T
            step = covariance @ slope[rest]
            gain = float(slope[rest] @ step)
            if gain < ARRIVED:
                return _top_of(point, axis, value, precision) if values[0] > FLATTEST else None
            widest = max(1.0, float(np.sqrt(covariance.diagonal().max())))
            fraction = min(1.0, LONGEST * widest / float(np.abs(step).max()))
            for _ in range(HALVINGS):
                further = point.copy()
                further[rest] += fraction * step
                reached, slope_there = self._at(further)
                if reached > value:
                    break
                fraction /= 2
            else:
                return None
            point, value, slope = further, reached, slope_there
            if gain > SLOWER * before:
                precision = None
            before = gain
        return None

    def _at(self, point: Array) -> tuple[float, Array]:
        values, slopes = self._all_at(point[None])
        return float(values[0]), slopes[0]

    def _all_at(self, points: Array) -> tuple[Array, Array]:
        self.spent += len(points)
        values, gradients = self._gradients(self._mean + self._spread * points)
        return values, self._spread * gradients

    def _precision(self, point: Array, slope: Array) -> Array:
        """Minus the second derivatives, from forward differences, shape (D, D)."""
        _, beside = self._all_at(point + DIFFERENCE * np.eye(point.size))
        with np.errstate(invalid="ignore"):  # where gradients are infinite
            rows = (slope - beside) / DIFFERENCE
        return 0.5 * (rows + rows.T)


def _top_of(point: Array, axis: int, value: float, precision: Array) -> _Top:
    rest = np.arange(point.size) != axis
    across = np.linalg.inv(precision[np.ix_(rest, rest)])
    covariance = np.zeros_like(precision)
    covariance[np.ix_(rest, rest)] = across
    tangent = np.zeros(point.size)
    tangent[axis] = 1.0
    tangent[rest] = -across @ precision[rest, axis]
    log_mass = value + 0.5 * (rest.sum() * LOG_2PI + np.linalg.slogdet(across)[1])
    return _Top(point, value, covariance, tangent, float(log_mass))
