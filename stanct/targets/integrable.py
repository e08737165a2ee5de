"""Finds lines along which a density does not fall off, so that its integral has no end.

If the integral along lines of one direction is infinite for points of positive probability, the
integral over the whole space is infinite too (Tonelli). Lines through a few draws of a posterior
tell it: each is followed outwards, and every doubling of the distance must hold less mass. What is
straight depends on the coordinates. Chains in a cone of ordered cutpoints drift along lines of the
cutpoints, and products that alone are known are kept along lines of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.stan.densities import Densities
from stanct.stan.held import held as held_by_priors
from stanct.stan.program import Program
from stanct.targets.density import Density

# Distances from a draw in standard deviations, two for each doubling.
DISTANCES = np.geomspace(2.0**-4, 2.0**20, 49)
# So many doublings at the end of a line must each hold at least this share of the mass of the one
# before.
DOUBLINGS, KEEPS = 5, 0.97
# Before a line is followed, and far beyond it: from one of these distances to the next the mass of
# a doubling must not be lower by so many nats.
LOOKS, DROP = (12, 20, 28, 36, 44), 1.0
# Where exp(x) and exp(2 x) overflow, and where they underflow to zero. A line that ends there would
# go on with more digits; any other end is that of the support.
LIMITS, NEAR, HALVINGS = np.array([709.78, -745.13, 354.89, -372.57]), 0.5, 30
# Parts of such a line between which a parabola tells how it would go on, so far that no number is
# denormal.
PARTS = np.array([13, 14, 15]) / 16
# Where log densities differ by more nats at places that differ in their last digits, numbers end as
# well. How far before that a logarithm still has some.
NOISE, LAST_DIGITS, BEFORE = 1.0, 1e-14 * np.arange(-2, 3), np.array([24.0, 16.0, 8.0])
# A log density of this size has four digits after the point.
HUGE = 1e12
# Draws that lines go through, dimensions in which they do, and the least effective number of draws.
THROUGH, MOST_DIMENSIONS, FEWEST = 4, 300, 10
# Directions that are no axis: in how many dimensions, how large a part of the changes of a gradient
# may be along them, gradients for each dimension, how many of them the others are compared with,
# and the longest step: longer ones are not exact.
MOST_CURVED, FLAT, GRADIENTS, CENTRES, LONGEST = 100, 1e-8, 4, 3, 1e3
# Distances between which the mass must fall beyond the end of a line, if it ever does. There the
# last digits of a direction lead off a narrow ridge, which one with so many digits may keep. Beyond
# the first few distances a fall off a ridge is told by another one with these last digits changed,
# which falls otherwise by more than this share.
FARTHER, ROUNDED, DIGITS, FAINT = 2.0 ** np.array([30, 37, 44, 100, 330]), 2, 12, 1e-6
# A step of a logarithm is no longer, so that there are enough doublings before its end.
LARGEST = 4.0
# Where draws have come to the end of a line, it is followed from so many deviations before them.
BACK = 256.0
# A coordinate moves along a line if it moves this far relative to the one that moves most.
SHARED = 0.3
# Rays go to so many of the draws that are farthest from the middle, none of them nearly along
# another. Chains in a cone without an end drift along it.
RAYS, ALIKE = 4, 0.99


# Types and constraints of parameters whose unconstrained coordinates are logarithms.
_BOUNDS = ({"lower"}, {"upper"})
_ORDERED = {"ordered": 2, "positive_ordered": 1}


def logarithms(program: Program, names: Sequence[str]) -> list[int]:
    """Places of coordinates that are logarithms of a distance to a bound or the next cutpoint.

    Names are those of the unconstrained coordinates, such as ``"tau"`` or ``"c.2"``.
    """
    first = {
        one.name: 0 if one.constraints.keys() in _BOUNDS else _ORDERED.get(one.type, math.inf)
        for one in program.parameters
    }
    parts = [name.split(".") for name in names]
    return [
        k
        for k, (name, *index) in enumerate(parts)
        if ":" not in names[k]  # an element of a tuple
        and first[name] <= int((index or "0")[-1])
    ]


def logits(program: Program, names: Sequence[str]) -> list[int]:
    """Places of coordinates that are logits, of parameters with two bounds."""
    both = {one.name for one in program.parameters if one.constraints.keys() == {"lower", "upper"}}
    return [place for place, name in enumerate(names) if name.partition(".")[0] in both]


def held_places(program: Program, names: Sequence[str]) -> list[int]:
    """Places of coordinates of parameters with a proper prior of their own."""
    own = held_by_priors(Densities(program))
    return [place for place, name in enumerate(names) if name.partition(".")[0] in own]


class Endless(NamedTuple):
    """Names of the coordinates along which an integral has no end, and what was computed."""

    along: tuple[str, ...] = ()
    gradients: int = 0
    evaluations: int = 0


@dataclass(frozen=True)
class _Space:
    """Coordinates w of a density's space, in which lines go through draws.

    They are e^x where `opened`, log|x| where `closed`, which changes no signs, and else x, shape
    (D,). Those in `exponents` are logarithms, whose numbers end near 700. The density of w has the
    Jacobian of the map.
    """

    density: Density
    opened: Array = field(repr=False)
    closed: Array = field(repr=False)
    exponents: Array = field(repr=False)

    @property
    def is_mapped(self) -> bool:
        """Whether the coordinates are others than x."""
        return bool(self.opened.any() or self.closed.any())

    def of(self, x: Array) -> Array:
        """The points x in these coordinates, shape (n, D)."""
        w = x.copy()
        w[:, self.opened] = np.exp(x[:, self.opened])
        w[:, self.closed] = np.log(np.abs(x[:, self.closed]))
        return w

    def slopes(self, x: Array, gradients: Array) -> Array:
        """Gradients with respect to w of its log density, at points x with those of x's."""
        rates, added = np.ones_like(x), np.zeros_like(x)
        rates[:, self.opened] = np.exp(-x[:, self.opened])
        rates[:, self.closed] = x[:, self.closed]
        added[:, self.opened] = -rates[:, self.opened]
        added[:, self.closed] = 1.0
        return gradients * rates + added

    def log_densities(self, w: Array, start: Array, least: float = -HUGE) -> Array:
        """Log densities at w, shape (n, D), on lines through draws x.

        They are −inf outside, and below the least: there they have too few digits to tell whether
        mass falls.
        """
        x, opened = w.copy(), w[:, self.opened]
        inside = (opened > 0).all(axis=1)
        x[:, self.opened] = np.log(np.where(opened > 0, opened, 1.0))
        x[:, self.closed] = np.copysign(np.exp(w[:, self.closed]), start[..., self.closed])
        values = self.density.log_densities(x)
        values += w[:, self.closed].sum(axis=1) - x[:, self.opened].sum(axis=1)
        return np.where(inside & (least < values) & (values < HUGE), values, -np.inf)


def endless_of(
    program: Program, density: Density, x: Array, log_weights: Array, *, by_gradients: bool = True
) -> Endless:
    """`endless`, with what the program tells of its coordinates."""
    names = density.unconstrained_names
    return endless(
        density, names, x, log_weights, logs=logarithms(program, names),
        held=held_places(program, names), by_gradients=by_gradients,
    )  # fmt: skip


def endless(
    density: Density,
    names: Sequence[str],
    x: Array,
    log_weights: Array,
    *,
    logs: Sequence[int] = (),
    held: Sequence[int] = (),
    by_gradients: bool = True,
) -> Endless:
    """Find along which lines a density's integral has no end.

    Unconstrained draws x have shape (n, D), and log weights at the target. Coordinates in `logs`
    are logarithms of what the user wrote. Those that are `held` have a proper prior: lines along
    which they alone go far have an end beyond all distances, however wide it is. Lines may also go
    where gradients say that the density is flat.
    """
    weighty = np.isfinite(log_weights)
    if not weighty.any() or x.shape[1] > MOST_DIMENSIONS:
        return Endless()
    x, weights = x[weighty], np.exp(log_weights[weighty] - log_weights[weighty].max())
    rounded, evaluations = _ends_in_rounding(
        density, x[np.argmax(weights)], [axis for axis in logs if axis not in held]
    )
    if rounded or not np.ptp(x, axis=0).any():
        return Endless(tuple(names[axis] for axis in rounded), 0, evaluations)
    weights /= weights.sum()
    few = np.square(weights).sum() * FEWEST > 1  # and have no width
    wide = np.full(len(x), 1 / len(x)) if few else weights
    places = np.searchsorted(np.cumsum(weights), (np.arange(THROUGH) + 0.5) / THROUGH)
    starts = x[np.minimum(places, len(x) - 1)]
    curved = by_gradients and 1 < x.shape[1] <= MOST_CURVED
    count = GRADIENTS * x.shape[1] if curved else 0
    rows = _farthest(x)[: len(x) // 2][:: 1 + len(x) // 2 // max(count, 1)][:count]
    gradients = density.log_density_gradients(rows)[1]
    found = np.zeros(x.shape[1], bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for space in _spaces(density, x, logs):
            w = space.of(x)
            flat = _flattest(space.slopes(rows, gradients), w, wide)
            deviations = _deviations(w, wide)
            if not space.is_mapped:  # axes are the same lines in all spaces
                flat = np.concatenate([np.diag(deviations), flat])
            lines = np.concatenate([flat, -flat]), deviations
            # Rays name whatever moves along them, and so come last.
            for steps, units in (lines, _rays(w[weights > 0])):
                if not found.any():
                    found, more = _without_end(space, starts, steps, units, held)
                    evaluations += more
    along = tuple(names[int(axis)] for axis in np.flatnonzero(found))
    return Endless(along, len(rows), evaluations)


def _deviations(w: Array, weights: Array) -> Array:
    return np.sqrt(weights @ np.square(w - weights @ w))


def _spaces(density: Density, x: Array, logs: Sequence[int]) -> list[_Space]:
    """The spaces in which to follow lines, that of x first."""
    none = np.zeros(x.shape[1], bool)
    opened = none.copy()
    opened[list(logs)] = True
    closed = ~opened & (x != 0).all(axis=0)
    # A scale of which draws have all sizes has no steps of its own.
    narrow = opened & (np.median(np.abs(x - np.median(x, axis=0)), axis=0) <= LARGEST)
    several = x.shape[1] > 1
    maps = [(none, none), *[(narrow, none)] * bool(narrow.any()), *[(none, closed)] * several]
    return [_Space(density, o, c, (opened & ~o) | c) for o, c in maps]


def _farthest(x: Array) -> Array:
    """Draws, those that are farthest from the middle first."""
    middle = np.median(x, axis=0)
    deviations = np.median(np.abs(x - middle), axis=0)
    scaled = (x - middle) / np.where(deviations > 0, deviations, 1.0)
    return x[np.argsort(-np.linalg.norm(scaled, axis=1), kind="stable")]


def _without_end(
    space: _Space, starts: Array, steps: Array, units: Array, held: Sequence[int]
) -> tuple[Array, int]:
    """Which coordinates move along lines without an end, shape (D,), and the log densities spent.

    Lines go through draws x, shape (m, D). `steps`, shape (k, D), has a deviation along each line,
    and `units`, shape (D,), those in which coordinates move.
    """
    blamed = np.zeros(starts.shape[1], bool)
    # Priors end what goes out, but not what goes towards a bound, where densities may be infinite.
    proper = np.isin(np.arange(blamed.size), held)
    farthest = np.abs(steps[:, space.exponents]).max(axis=1, initial=LARGEST, keepdims=True)
    steps = steps * LARGEST / farthest
    lines = [(start, step) for start in starts for step in steps if step.any()]
    if not lines:
        return blamed, 0
    x, along = (np.array(some) for some in zip(*lines, strict=True))
    w, looks, spent = space.of(x), DISTANCES[list(LOOKS)], 0
    mass = np.full((len(lines), len(looks)), -np.inf)
    for back in (0.0, BACK):
        short = np.flatnonzero(np.isfinite(mass).sum(axis=1) < 2)
        w[short] -= back * along[short]
        moved = w[short, None] + looks[:, None] * along[short, None]
        repeated = np.repeat(x[short], len(looks), axis=0)
        seen = space.log_densities(moved.reshape(repeated.shape), repeated)
        mass[short] = seen.reshape(len(short), len(looks)) + np.log(looks)
        spent += seen.size
    for line in np.flatnonzero([_may_go_on(one) for one in mass]):
        moves = np.abs(along[line]) / units
        moved = moves >= SHARED * moves.max()
        if (proper & (~space.exponents | (along[line] > 0)))[moved].all():
            continue
        spent += len(DISTANCES)
        if _has_no_end(partial(space.log_densities, start=x[line]), w[line], along[line]):
            blamed |= moved
    return blamed, spent


def _may_go_on(mass: Array) -> bool:
    """Whether the mass of doublings does not fall between the last two looks that have some."""
    seen = mass[np.isfinite(mass)]
    return len(seen) > 1 and bool(seen[-1] > seen[-2] - DROP)


def _rays(x: Array) -> tuple[Array, Array]:
    """Steps of a deviation towards the farthest draws, and the deviations of the coordinates."""
    middle = np.median(x, axis=0)
    deviations = np.median(np.abs(x - middle), axis=0)
    if x.shape[1] < 2 or not (deviations > 0).all():
        return np.empty((0, x.shape[1])), np.ones(x.shape[1])
    # Far away, the middle itself is a direction inside the cone.
    rays = np.concatenate([middle[None], _farthest(x)[: 10 * RAYS] - middle]) / deviations
    # What drifts leaves all else behind, which stays where it is on the first of each two.
    moves = np.abs(rays) >= SHARED * np.abs(rays).max(axis=1, keepdims=True)
    both = np.stack([np.where(moves, rays, 0.0), rays], axis=1).reshape(-1, x.shape[1])
    return _apart(both, 2 * RAYS) * deviations, deviations


def _apart(vectors: Array, most: int) -> Array:
    """The first unit vectors of which none are nearly alike, shape (n, D)."""
    found: list[Array] = []
    for vector in vectors[vectors.any(axis=1)]:
        unit = vector / np.linalg.norm(vector)
        if all(unit @ other < ALIKE for other in found):
            found.append(unit)
    return np.array(found[:most]).reshape(-1, vectors.shape[1])


def _flattest(slopes: Array, w: Array, weights: Array) -> Array:
    """Steps of a deviation along which gradients, shape (m, D), do not differ, shape (n, D).

    Where parameters enter a density by their sums and differences alone, all gradients are
    orthogonal to the same directions. Along others the density is that of an exponential, and has
    no end on one side. Far from the middle both may be so where draws drift.
    """
    deviations = _deviations(w, weights)
    if len(slopes) <= 2 * w.shape[1]:
        return np.empty((0, w.shape[1]))
    scaled = slopes * deviations
    away = np.abs(scaled - np.median(scaled, axis=0)).sum(axis=1)
    # Some draws are where the density is not yet flat, and the first may be one of them.
    several = [_null_space(scaled - scaled[k]) for k in np.argsort(away, kind="stable")[:CENTRES]]
    flat = max(several, key=len)
    flat = np.where(np.abs(flat) < 10.0**-DIGITS, 0.0, flat)  # an axis stays one far away
    if len(flat) > 1:  # draws drift along some of the directions between these
        scaled = (w - weights @ w) / np.where(deviations > 0, deviations, 1.0) @ flat.T
        farthest = np.argsort(-np.linalg.norm(scaled, axis=1), kind="stable")
        flat = _apart(scaled[farthest[: 10 * RAYS]] @ flat, RAYS)
    found = flat * deviations
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found * np.minimum(_deviations(w @ found.T, weights), LONGEST)[:, None]


def _null_space(changes: Array) -> Array:
    """Orthonormal vectors along which most changes have no part, shape (k, D)."""
    dimension = changes.shape[1]
    lengths = np.linalg.norm(changes, axis=1)
    sound = np.isfinite(lengths) & (lengths > 0)
    if sound.sum() < 2 * dimension:
        return np.empty((0, dimension))
    changes = changes[sound] / lengths[sound, None]
    vectors = np.linalg.svd(changes, full_matrices=False)[2]
    least = np.argsort(np.abs(changes @ vectors[-1]), kind="stable")[: -(-len(changes) // 2)]
    _, values, vectors = np.linalg.svd(changes[least], full_matrices=False)
    return vectors[values < FLAT * values[0]]


def _has_no_end(log_densities: Callable[..., Array], start: Array, step: Array) -> bool:
    """Whether the mass along a line does not fall off."""
    found = log_densities(start + DISTANCES[:, None] * step)
    finite = np.isfinite(found)
    end = len(finite) if finite.all() else int(np.argmin(finite))
    if end <= 2 * DOUBLINGS:
        return False
    mass = (found + np.log(DISTANCES))[:end]
    last = mass[-2 * DOUBLINGS - 1 :]
    if not (last[2:] - last[:-2] > np.log(KEEPS)).all():
        return False
    if end == len(finite):
        return not _ends_far_away(log_densities, start, step, float(mass[-1]))
    inside, outside = DISTANCES[end - 1], DISTANCES[end]
    span = np.sort((start + np.array([[inside], [outside]]) * step)[..., None], axis=0)
    if not ((span[0] - NEAR < LIMITS) & (span[1] + NEAR > LIMITS))[step != 0].any():
        return False  # the end of the support, without a look at where it is
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if np.isfinite(log_densities((start + middle * step)[None])[0]):
            inside = middle
        else:
            outside = middle
    # The coordinate whose numbers end there.
    ends = (step != 0) & (np.abs((start + inside * step)[:, None] - LIMITS) < NEAR).any(axis=1)
    if not ends.any():
        return False
    # With more digits it might fall off, as a Gaussian does on whose slope the line ends.
    places = start + inside * PARTS[:, None] * step
    values = log_densities(places)
    own = inside * (PARTS - PARTS[0])[:, None] * np.where(ends, step, 0.0)
    alone = log_densities(np.concatenate([places[0] + own, places[-1:] - own[-1:]]))
    # Where the others add their own change to that of the coordinate, they have axes of their own.
    if abs(alone[-1] - alone[0] - values[-1] + alone[-2]) < -np.log(KEEPS):
        values = alone[:-1]
    return _is_power(values) or _would_go_on(values, 2**DOUBLINGS / (PARTS[1] - PARTS[0]))


def _would_go_on(values: Array, steps: float) -> bool:
    """Whether a parabola through three values, a step apart, is as high so many steps later."""
    first, second, third = values
    bend = min(third - 2 * second + first, 0.0)
    return bool(steps * (third - second) + steps**2 * bend / 2 >= np.log(KEEPS))


def _is_power(values: Array) -> bool:
    """Whether values at those parts of a line fall as no more than 1 / distance, from any place.

    Then the slope is −p / distance with p ≤ 1, and 1 / slope tells p. It is constant where density
    falls exponentially.
    """
    slopes = np.diff(values) / np.diff(PARTS)
    if not (slopes < 0).all():
        return False
    return bool(np.diff(-1 / slopes)[0] > KEEPS * np.diff(PARTS)[0])


def _ends_in_rounding(density: Density, x: Array, logs: Sequence[int]) -> tuple[list[int], int]:
    """Logarithms along which a density rises until it has no digits, and what it cost.

    Draws collect there, as for the degrees of freedom of Student's t under a flat prior: at 10¹⁴ of
    them its log density is a difference of two numbers of the size of 10¹⁶.
    """
    found, count = [], LAST_DIGITS.size
    for axis in logs:
        places = np.repeat(x[None], count + BEFORE.size, axis=0)
        places[:count, axis] *= 1 + LAST_DIGITS
        places[count:, axis] -= BEFORE
        values = density.log_densities(places)
        with np.errstate(invalid="ignore"):
            goes_on = _would_go_on(values[count:], 2**DOUBLINGS)
            if np.ptp(values[:count]) > NOISE and goes_on:
                found.append(axis)
    return found, len(logs) * (count + BEFORE.size)


def _ends_far_away(
    log_densities: Callable[..., Array], start: Array, step: Array, mass: float
) -> bool:
    """Whether the mass falls off beyond all distances of lines, as by a very wide prior.

    Draws may have come but a small part of the way. Where exp overflows, nothing is told. A fall to
    a number with few digits is one if it is larger than they are.
    """
    length = np.abs(step).max()
    changed = step * (1 + 10.0**-DIGITS * np.cos(np.arange(step.size)))
    found, rounded, beside = (
        log_densities(start + FARTHER[:, None] * one, least=-np.inf)
        for one in (step, np.round(step / length, DIGITS) * length, changed)
    )
    highest = np.log(FARTHER) + np.maximum(found, rounded)
    sound = np.isfinite(highest)
    seen = np.array([mass, *highest[sound]])
    falls = seen[:-1] - seen[1:]
    near = FARTHER[sound] <= FARTHER[ROUNDED - 1]
    is_own = near | (np.abs(beside - found)[sound] < FAINT * falls)
    few_digits = np.maximum(1.0, np.abs(seen[1:]) / HUGE)
    return bool((is_own & (falls > DROP * few_digits)).any())
