"""Stan's NUTS on the joint and the pseudo-extended density, with optional halving of steps.

Trajectories are multinomial (Betancourt 2017, appendix A). Steps are halved where the energy varies
strongly, see `halve`. An energy error above `DIVERGENCE` ends a trajectory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, inlined, part, summed
from stanct.engines.embedded import STATISTICS
from stanct.kernels.densities import Extended
from stanct.kernels.evaluation import Scratch, normals
from stanct.kernels.extended import evaluate_extended, evaluated_extended
from stanct.kernels.hmc import DIVERGENCE
from stanct.kernels.inversion import BetaLaw, draw_beta

# Columns of `Subtrees`' vectors and scalars.
FIRST, LAST, TOTAL, POINT, GRADIENT = range(5)
LOG_DENSITY, ENERGY, DELTA = range(3)

# Rows of `Subtrees`: the trajectory, followed by its two ends; the start of a step; the way back
# from its end; parts. numba compiles a function again for each literal Python integer, but only
# once for all NumPy integers.
_NUMBERS: list[int] = list(np.array([0, 3, 4, 5]))
STATE, BEGIN, BACK, PARTS = _NUMBERS

# Counts along a trajectory. LOG_RATIO is for steps backwards; the next place is for steps forwards.
STEPS, GRADIENTS, ACCEPTED, DIVERGENT, LOG_RATIO = range(5)

# A step of NUTS is halved with probability min(1, (r / TOLERANCE)²), where r is the range of the
# energy over the step. The halves are halved again likewise, at most HALVINGS times in all.
TOLERANCE, HALVINGS = 1.0, 8


# 1 − β is at least this, where β rounds to 1.
ROUNDED = 1e-17


class Subtrees(NamedTuple):
    """Parts of a NUTS trajectory, one in each row.

    `vectors`, shape (rows, 5, dimension): momenta at a part's beginning and end, and the sum of
    all; the point drawn from it, and the gradient there. `scalars`, (rows, 2 + N): log density and
    energy of that point, and δ of its copies. `log_weight`: log of the summed weights exp(−energy
    error) of the part's points, where no step was halved. A part of a `level` has 2^level points.
    `counts`, (6,), are those along the trajectory.
    """

    vectors: Array
    scalars: Array
    log_weight: Array
    level: Array
    counts: Array


class NutsOut(NamedTuple):
    """Output of a block of NUTS draws: w, δ, and statistics in the order of `STATISTICS`."""

    w: Array
    delta: Array
    statistics: Array


class Orbit(NamedTuple):
    """The density, metric and working memory of a NUTS chain, updated in place.

    `inverse` is the diagonal of the inverse metric; the chain's point is in row `STATE` of `trees`.
    """

    extended: Extended
    inverse: Array
    trees: Subtrees
    scratch: Scratch


class Doubling(NamedTuple):
    """Settings of one doubling of a trajectory, at its end if `forward`, or at its beginning.

    The step size is negative backwards, and `start` is the energy at the trajectory's first point.
    """

    depth: int
    forward: bool
    step: float
    start: float
    halving: bool


def make_subtrees(max_depth: int, dimension: int, copies: int) -> Subtrees:
    """Allocate a trajectory, its ends, a step, and the parts of the last doubling."""
    rows = max_depth + 6
    return Subtrees(
        np.zeros((rows, 5, dimension)),
        np.zeros((rows, 2 + copies)),
        np.zeros(rows),
        np.zeros(rows, np.int64),
        np.zeros(LOG_RATIO + 2),
    )


def make_nuts_out(draws: int, dimension: int, copies: int) -> NutsOut:
    """Allocate the output of a block of draws."""
    return NutsOut(
        np.zeros((draws, dimension)), np.zeros((draws, copies)), np.zeros((draws, len(STATISTICS)))
    )


@summed
def _goes_on(inverse: Array, a: Array, b: Array) -> bool:
    """Return whether two successive parts, joined, make no U-turn.

    This is Stan's generalised criterion (Betancourt 2017, appendix A.4.2): the velocities at both
    ends point along the sum of all momenta between them. It is also checked for each part joined
    with the nearest point of the other. The parts are rows of `Subtrees.vectors`.
    """
    one = two = three = four = five = six = 0.0
    for i in range(inverse.size):
        whole = inverse[i] * (a[TOTAL, i] + b[TOTAL, i])
        beyond_a = inverse[i] * (a[TOTAL, i] + b[FIRST, i])
        beyond_b = inverse[i] * (b[TOTAL, i] + a[LAST, i])
        one += a[FIRST, i] * whole
        two += b[LAST, i] * whole
        three += a[FIRST, i] * beyond_a
        four += b[FIRST, i] * beyond_a
        five += a[LAST, i] * beyond_b
        six += b[LAST, i] * beyond_b
    return one > 0 and two > 0 and three > 0 and four > 0 and five > 0 and six > 0


@part
def _copy_point(vectors: Array, scalars: Array, row: int, to: int) -> None:
    """Copy the drawn point of one part, with its gradient, energy and δ, to another part."""
    for i in range(vectors.shape[2]):
        vectors[to, POINT, i] = vectors[row, POINT, i]
        vectors[to, GRADIENT, i] = vectors[row, GRADIENT, i]
    for i in range(scalars.shape[1]):
        scalars[to, i] = scalars[row, i]


@inlined
def _log_add(a: float, b: float) -> float:
    top, low = (a, b) if a > b else (b, a)
    return top if top == -np.inf else top + math.log1p(math.exp(low - top))


@inlined
def draw_momentum(momentum: Array, inverse: Array, rng: np.random.Generator) -> float:
    """Draw a momentum for a diagonal inverse metric and return its kinetic energy."""
    kinetic = normals(momentum, rng)
    for i in range(momentum.size):
        momentum[i] /= math.sqrt(inverse[i])
    return kinetic


@part
def _drift(w: Array, momentum: Array, gradient: Array, step: float, inverse: Array) -> None:
    """Take the first part of a leapfrog step, up to the new point."""
    for i in range(w.size):
        momentum[i] += 0.5 * step * gradient[i]
        w[i] += step * inverse[i] * momentum[i]


@part
def _kick(momentum: Array, gradient: Array, step: float, inverse: Array) -> float:
    """Take the rest of a leapfrog step and return the kinetic energy."""
    kinetic = 0.0
    for i in range(momentum.size):
        momentum[i] += 0.5 * step * gradient[i]
        kinetic += 0.5 * inverse[i] * momentum[i] * momentum[i]
    return kinetic


@part
def _copy_phase(vectors: Array, row: int, to: int) -> None:
    """Copy a point with its gradient and momentum."""
    for i in range(vectors.shape[2]):
        vectors[to, POINT, i] = vectors[row, POINT, i]
        vectors[to, GRADIENT, i] = vectors[row, GRADIENT, i]
        vectors[to, LAST, i] = vectors[row, LAST, i]


@inlined
def _again(span: float) -> float:
    """Return the probability that a step is halved if the energy's range over it is `span`."""
    size = span / TOLERANCE
    return size * size if abs(size) < 1 else 1.0


@part
def small_steps(
    orbit: Orbit, row: int, step: float, count: int, energy: float, enough: float
) -> tuple[float, float, float, int]:
    """Take leapfrog steps in place until the energy's range reaches `enough` or is not finite.

    Returned are log density and energy at the last point, the range, and the gradients spent.
    """
    orbit = borrowed(orbit)
    extended, inverse, trees = orbit.extended, orbit.inverse, orbit.trees
    w, gradient = trees.vectors[row, POINT], trees.vectors[row, GRADIENT]
    momenta, delta = trees.vectors[row, LAST], trees.scalars[row, DELTA:]
    low = high = energy
    log_density, taken = -np.inf, 0
    while taken < count and high - low < enough:
        _drift(w, momenta, gradient, step, inverse)
        log_density = evaluated_extended(extended, w, gradient, delta, orbit.scratch)
        energy = _kick(momenta, gradient, step, inverse) - log_density
        taken += 1
        if not math.isfinite(energy):
            return -np.inf, np.inf, np.inf, taken
        if energy < low:
            low = energy
        elif energy > high:
            high = energy
    return log_density, energy, high - low, taken


@part
def halve(
    orbit: Orbit, end: int, step: float, before: float, span: float, rng: np.random.Generator
) -> tuple[float, float, float, int]:
    """Repeat a step from row `BEGIN` as 2, 4, … small steps until a number of them is accepted.

    As in WALNUTS (Bou-Rabee, Carpenter, Kleppe & Liu 2025), the number of small steps must also be
    chosen on the way back. The weights of all points beyond the step change by the ratio of the two
    probabilities. The probability of halving grows smoothly with the energy's range, because with a
    threshold the ratio would often be zero.

    `before` is the energy at the beginning, and `span` its range over the whole step. Returned are
    log density and energy at the end, the log of the ratio, and the gradients spent. The energy is
    +inf where the density vanishes, which smaller steps do not change.
    """
    vectors = orbit.trees.vectors
    gradients, halvings = 0, 0
    log_ratio = -math.log(_again(span))
    while True:
        halvings += 1
        count = 1 << halvings
        last = halvings == HALVINGS
        _copy_phase(vectors, BEGIN, end)
        log_density, energy, span, taken = small_steps(
            orbit, end, step / count, count, before, np.inf if last else TOLERANCE
        )
        gradients += taken
        if energy == np.inf:
            return log_density, energy, 0.0, gradients
        if last or rng.random() >= _again(span):
            break
        log_ratio -= math.log(_again(span))
    for other in range(halvings):
        count = 1 << other
        _copy_phase(vectors, end, BACK)
        _, _, span, taken = small_steps(orbit, BACK, -step / count, count, energy, TOLERANCE)
        gradients += taken
        # If the density vanishes on the way back, this number cannot be chosen there.
        log_ratio += math.log(_again(span)) if span < np.inf else -np.inf
    return log_density, energy, log_ratio, gradients


def energy_lost(orbit: Orbit, step: float, rng: np.random.Generator) -> float:
    """Return the energy lost in one step from row `STATE` with a fresh momentum; −∞ on failure.

    It takes one gradient, and is seldom wanted. It is therefore not compiled.
    """
    inverse, state = orbit.inverse, orbit.trees.vectors[STATE]
    normal = rng.standard_normal(inverse.size)
    before = 0.5 * normal @ normal - orbit.trees.scalars[STATE, LOG_DENSITY]
    momentum = normal / np.sqrt(inverse) + 0.5 * step * state[GRADIENT]
    w, gradient = state[POINT] + step * inverse * momentum, np.empty(inverse.size)
    delta = np.empty(orbit.extended.room.size)
    log_density = evaluate_extended(orbit.extended, w, gradient, delta, orbit.scratch)
    momentum += 0.5 * step * gradient
    with np.errstate(over="ignore", invalid="ignore"):
        energy = 0.5 * (inverse * momentum) @ momentum - log_density
    return float(before - energy) if np.isfinite(energy) else -np.inf


@inlined
def _begin(trees: Subtrees, inverse: Array, rng: np.random.Generator) -> float:
    """Draw a momentum, make the point of row `STATE` a trajectory, and return its energy."""
    vectors, scalars = trees.vectors, trees.scalars
    energy = draw_momentum(vectors[STATE, TOTAL], inverse, rng) - scalars[STATE, LOG_DENSITY]
    scalars[STATE, ENERGY] = energy
    trees.log_weight[STATE] = 0.0
    for i in range(vectors.shape[2]):
        momentum = vectors[STATE, TOTAL, i]
        vectors[STATE, FIRST, i] = vectors[STATE, LAST, i] = momentum
        vectors[STATE + 1, LAST, i] = vectors[STATE + 2, LAST, i] = momentum
    for end in (STATE + 1, STATE + 2):
        _copy_point(vectors, scalars, STATE, end)
    return energy


@inlined
def _append(trees: Subtrees, end: int, top: int, log_weight: float) -> None:
    """Make the point at an end of the trajectory a part of level 0."""
    vectors = trees.vectors
    trees.log_weight[top], trees.level[top] = log_weight, 0
    for i in range(vectors.shape[2]):
        momentum = vectors[end, LAST, i]
        vectors[top, FIRST, i] = vectors[top, LAST, i] = momentum
        vectors[top, TOTAL, i] = momentum
    _copy_point(vectors, trees.scalars, end, top)


@inlined
def _merge(trees: Subtrees, inverse: Array, top: int, rng: np.random.Generator) -> bool:
    """Merge two successive parts; return whether the merged part makes no U-turn."""
    log_weight = trees.log_weight
    goes_on = _join(trees.vectors, inverse, top, top + 1)
    trees.level[top] += 1
    both = _log_add(log_weight[top], log_weight[top + 1])
    if rng.random() < math.exp(log_weight[top + 1] - both):
        _copy_point(trees.vectors, trees.scalars, top + 1, top)
    log_weight[top] = both
    return goes_on


@inlined
def _double(orbit: Orbit, doubling: Doubling, counts: Array, rng: np.random.Generator) -> bool:
    """Make the part in row `PARTS` that doubles a trajectory; return False if it must end.

    A point is a part of level 0. Two successive parts of one level merge into a part of the next.
    """
    inverse, trees, step = orbit.inverse, orbit.trees, doubling.step
    side = 1 if doubling.forward else 0
    end, top = STATE + 1 + side, PARTS - 1
    w, gradient = trees.vectors[end, POINT], trees.vectors[end, GRADIENT]
    momenta, delta = trees.vectors[end, LAST], trees.scalars[end, DELTA:]
    while top != PARTS or trees.level[PARTS] < doubling.depth:
        before = trees.scalars[end, ENERGY]
        _copy_phase(trees.vectors, end, BEGIN)
        _drift(w, momenta, gradient, step, inverse)
        log_density = evaluated_extended(orbit.extended, w, gradient, delta, orbit.scratch)
        energy = _kick(momenta, gradient, step, inverse) - log_density
        counts[STEPS] += 1
        counts[GRADIENTS] += 1
        span = energy - before
        if doubling.halving and math.isfinite(energy) and rng.random() < _again(span):
            log_density, energy, more, taken = halve(orbit, end, step, before, span, rng)
            counts[GRADIENTS] += taken
            counts[LOG_RATIO + side] += more
        error, log_ratio = energy - doubling.start, counts[LOG_RATIO + side]
        # A NaN in the gradient shows only here.
        if not error <= DIVERGENCE:
            counts[DIVERGENT] = 1
            return False
        if log_ratio == -np.inf:
            return False
        counts[ACCEPTED] += 1.0 if error <= 0 else math.exp(-error)
        trees.scalars[end, LOG_DENSITY], trees.scalars[end, ENERGY] = log_density, energy
        top += 1
        _append(trees, end, top, log_ratio - error)
        while top > PARTS and trees.level[top] == trees.level[top - 1]:
            top -= 1
            if not _merge(trees, inverse, top, rng):
                return False
    return True


@inlined
def _lengthen(trees: Subtrees, inverse: Array, forward: bool, rng: np.random.Generator) -> bool:
    """Join the part made by `_double` to the trajectory and draw a point; False after a U-turn.

    The draw is biased towards the newer half (Betancourt 2017, appendix A.3.2).
    """
    vectors, log_weight = trees.vectors, trees.log_weight
    gain = log_weight[PARTS] - log_weight[STATE]
    if gain >= 0 or rng.random() < math.exp(gain):
        _copy_point(vectors, trees.scalars, PARTS, STATE)
    log_weight[STATE] = _log_add(log_weight[STATE], log_weight[PARTS])
    # Backwards, the new part follows the trajectory if the trajectory is read from its other end.
    if not forward:
        _turn(vectors[STATE])
    goes_on = _join(vectors, inverse, STATE, PARTS)
    if not forward:
        _turn(vectors[STATE])
    return goes_on


@compiled
def nuts_draws(
    orbit: Orbit, step: float, max_depth: int, halving: bool, rng: np.random.Generator, out: NutsOut
) -> None:
    """Fill `out` with draws of Stan's NUTS, continuing from the point of row `STATE`.

    Row `STATE` of the trees is the whole trajectory as one part. The next two rows hold the points
    at its ends with their momenta. The rows from `PARTS` on hold the parts of a doubling. With
    `halving`, steps are halved where the energy varies strongly. If the density has an atom at
    β = 0, where u = −∞, each draw ends with a draw of β given z, and z is drawn afresh at the atom.
    """
    orbit, rng, out = borrowed(orbit), borrowed(rng), borrowed(out)
    trees, inverse, extended = orbit.trees, orbit.inverse, orbit.extended
    vectors, scalars = trees.vectors, trees.scalars
    control, atom = vectors.shape[2] - 1, extended.atom
    law, counts = BetaLaw(extended.knots, extended.value, atom, extended.masses), trees.counts
    for n in range(out.w.shape[0]):
        depth, valid = 0, True
        for k in range(counts.size):
            counts[k] = 0.0
        if atom > 0 and vectors[STATE, POINT, control] == -np.inf:
            _refresh(orbit, rng)
            counts[STEPS] = counts[GRADIENTS] = counts[ACCEPTED] = 1
            start, valid = 0.0, False
        else:
            start = _begin(trees, inverse, rng)
        while valid and depth < max_depth:
            forward = rng.random() > 0.5
            signed = step if forward else -step
            if not _double(orbit, Doubling(depth, forward, signed, start, halving), counts, rng):
                break
            depth += 1
            valid = _lengthen(trees, inverse, forward, rng)
        if atom > 0:
            beta = draw_beta(scalars[STATE, DELTA], law, rng.random(), rng.random())
            counts[GRADIENTS] += _go_to(orbit, beta)
        statistics = out.statistics[n]
        statistics[0] = scalars[STATE, LOG_DENSITY]
        statistics[1] = counts[ACCEPTED] / counts[STEPS]
        statistics[2] = step
        statistics[3] = depth
        statistics[4] = counts[GRADIENTS]
        statistics[5] = counts[DIVERGENT]
        statistics[6] = scalars[STATE, ENERGY]
        for i in range(vectors.shape[2]):
            out.w[n, i] = vectors[STATE, POINT, i]
        for i in range(out.delta.shape[1]):
            out.delta[n, i] = scalars[STATE, DELTA + i]


@part
def _refresh(orbit: Orbit, rng: np.random.Generator) -> None:
    """Draw z of row `STATE` from the base; only its δ is of use."""
    vectors, scalars = orbit.trees.vectors, orbit.trees.scalars
    w = vectors[STATE, POINT]
    normals(w[:-1], rng)
    w[w.size - 1] = 0.0
    evaluated_extended(
        orbit.extended, w, vectors[STATE, GRADIENT], scalars[STATE, DELTA:], orbit.scratch
    )
    scalars[STATE, LOG_DENSITY] = scalars[STATE, ENERGY] = 0.0


@part
def _go_to(orbit: Orbit, beta: float) -> int:
    """Move row `STATE` to another β at the same z; return the gradients spent."""
    vectors, scalars = orbit.trees.vectors, orbit.trees.scalars
    w = vectors[STATE, POINT]
    if beta == 0.0:
        w[w.size - 1] = -np.inf
        return 0
    left = 1 - beta if beta < 1 else ROUNDED
    w[w.size - 1] = math.log(beta) - math.log(left)
    scalars[STATE, LOG_DENSITY] = evaluated_extended(
        orbit.extended, w, vectors[STATE, GRADIENT], scalars[STATE, DELTA:], orbit.scratch
    )
    return 1


@part
def _join(vectors: Array, inverse: Array, a: int, b: int) -> bool:
    """Append part b to part a; return whether the whole makes no U-turn."""
    goes_on = _goes_on(inverse, vectors[a], vectors[b])
    for i in range(inverse.size):
        vectors[a, LAST, i] = vectors[b, LAST, i]
        vectors[a, TOTAL, i] += vectors[b, TOTAL, i]
    return goes_on


@part
def _turn(part: Array) -> None:
    """Exchange the momenta at the ends of a part."""
    for i in range(part.shape[1]):
        part[FIRST, i], part[LAST, i] = part[LAST, i], part[FIRST, i]
