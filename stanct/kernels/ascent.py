"""Ascents to a mode by L-BFGS (Nocedal 1980), one gradient after another.

Steps are those of z, x = start + R z. The line search backtracks. Where the density is not concave
along a step, the memory is dropped, and the next step follows the gradient and is longer. Each
gradient leaves the ascent in a state from which a later call goes on.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import compiled, part, summed

# Steps that are remembered.
MEMORY = 8
# An ascent ends where no element of the gradient is larger, or where a step gains less, relative to
# the log density.
FLAT, LEAST_GAIN = 1e-5, 1e-10
# A step is taken if it gains this share of what the slope promises. It is shortened to between
# these shares, so often at most.
GAIN, SHORTEST, LONGEST, SHORTENED = 1e-4, 0.1, 0.5, 25
# Smaller squares of changes are as good as zero.
TINY = 1e-300
# Where the slope along a step falls by less than this share, the step was far too short: the memory
# is dropped, and the next step follows the gradient and is so many times as long.
CURVED, GROWTH = 0.01, 4.0

# Rows of an ascent's vectors: the best place z so far and the gradient there, the next step, a
# place along it, the gradient there, the same place as x, and the gradient in x. Steps and changes
# of the gradient along them follow.
Z, SLOPE, STEP, TRIAL, SLOPE_THERE, PLACE, GRADIENT, MOVES = range(8)
CHANGES = MOVES + MEMORY
# An ascent's numbers: log densities of the best place and of the trial, the largest elements of
# their gradients, the fraction of the step to try, its length, what the slope promises of it, how
# often it was shortened, how many steps are remembered, gradients, and the inverse curvature along
# the last step. Inner products of steps and changes, and working memory follow.
VALUE, VALUE_THERE, STEEPEST, STEEPEST_THERE, FRACTION, LENGTH, PROMISED, TRIES = range(8)
KNOWN, SPENT, SCALE, PRODUCTS = range(8, 12)
SHARES = PRODUCTS + MEMORY

# numba would compile a function for each literal False or True.
_PLAIN, _TRANSPOSED = np.array([False, True])


class Hill(NamedTuple):
    """What an ascent climbs: a density, see `Density.address`, in z with x = start + R z.

    `root`, shape (D, D) or (1, D), is R or its diagonal.
    """

    call: Any
    handle: int
    start: Array
    root: Array
    longest: float


def make_ascent(dimension: int) -> tuple[Array, Array]:
    """Return the vectors and numbers of an ascent at z = 0 that knows no gradient yet."""
    numbers = np.zeros(SHARES + MEMORY)
    numbers[VALUE] = -np.inf
    return np.zeros((CHANGES + MEMORY, dimension)), numbers


@compiled
def ascend(hill: Hill, vectors: Array, numbers: Array, gradients: int) -> bool:
    """Go on with an ascent for so many gradients at most; return whether it has ended.

    Where the start is rejected it ends at once, with a value of −inf. Arrays are updated in place.
    """
    for _ in range(gradients):
        numbers[SPENT] += 1
        inside = _look(hill, vectors, numbers)
        gain = numbers[VALUE_THERE] - numbers[VALUE] if inside else -np.inf
        if gain >= 0 and gain >= GAIN * numbers[FRACTION] * numbers[PROMISED]:
            _learn(vectors, numbers)
            little = gain <= LEAST_GAIN or gain <= LEAST_GAIN * abs(numbers[VALUE])
            if numbers[STEEPEST] < FLAT or (little and numbers[KNOWN] > 0):
                return True
            _turn(vectors, numbers, hill.longest)
        elif numbers[TRIES] < SHORTENED and numbers[SPENT] > 1:
            _shorten(numbers, gain)
        elif numbers[KNOWN] == 0:
            return True
        else:
            numbers[KNOWN] = 0
            _turn(vectors, numbers, hill.longest)
    return False


@part
def _look(hill: Hill, vectors: Array, numbers: Array) -> bool:
    """Evaluate the density along the step; return whether it and its gradient are finite."""
    start = hill.start
    for i in range(start.size):
        vectors[TRIAL, i] = vectors[Z, i] + numbers[FRACTION] * vectors[STEP, i]
        vectors[PLACE, i] = start[i]
        vectors[SLOPE_THERE, i] = 0.0
    _through(hill.root, vectors[TRIAL], vectors[PLACE], _PLAIN)
    failed = hill.call(
        hill.handle, True, True, vectors[PLACE].ctypes.data, numbers[VALUE_THERE:].ctypes.data,
        vectors[GRADIENT].ctypes.data, np.uintp(0),
    )  # fmt: skip
    _through(hill.root, vectors[GRADIENT], vectors[SLOPE_THERE], _TRANSPOSED)
    steepest = 0.0
    for i in range(start.size):
        if not math.isfinite(vectors[SLOPE_THERE, i]):
            return False
        if abs(vectors[SLOPE_THERE, i]) > steepest:
            steepest = abs(vectors[SLOPE_THERE, i])
    numbers[STEEPEST_THERE] = steepest
    return failed == 0 and math.isfinite(numbers[VALUE_THERE])


@summed
def _through(root: Array, vector: Array, out: Array, transposed: bool) -> None:
    """Add R · vector, or Rᵀ · vector, to `out`."""
    if len(root) == 1 < len(out):
        for i in range(out.size):
            out[i] += root[0, i] * vector[i]
    elif transposed:
        for i in range(out.size):
            for j in range(out.size):
                out[j] += root[i, j] * vector[i]
    else:
        for i in range(out.size):
            total = 0.0
            for j in range(out.size):
                total += root[i, j] * vector[j]
            out[i] += total


@summed
def _dot(one: Array, other: Array) -> float:
    total = 0.0
    for i in range(one.size):
        total += one[i] * other[i]
    return total


@part
def _learn(vectors: Array, numbers: Array) -> None:
    """Take the trial as the best place, and remember the step."""
    k = np.int64(numbers[KNOWN]) % MEMORY
    for i in range(vectors.shape[1]):
        slope = vectors[SLOPE_THERE, i]
        vectors[MOVES + k, i] = vectors[TRIAL, i] - vectors[Z, i]
        vectors[CHANGES + k, i] = vectors[SLOPE, i] - slope
        vectors[Z, i], vectors[SLOPE, i] = vectors[TRIAL, i], slope
    numbers[VALUE], numbers[STEEPEST] = numbers[VALUE_THERE], numbers[STEEPEST_THERE]
    numbers[LENGTH] *= numbers[FRACTION]
    change = vectors[CHANGES + k]
    product = _dot(vectors[MOVES + k], change)
    scale = product / (_dot(change, change) + TINY)
    if scale > 0 and product > CURVED * numbers[FRACTION] * numbers[PROMISED]:
        numbers[PRODUCTS + k], numbers[SCALE] = product, scale
        numbers[KNOWN] += 1
    else:
        numbers[KNOWN] = 0
        numbers[LENGTH] *= GROWTH


@part
def _shorten(numbers: Array, gain: float) -> None:
    """Try a shorter step: to the top of the parabola, if there is one."""
    promised = numbers[FRACTION] * numbers[PROMISED]
    top = 0.5 * promised / (promised - gain) if promised > gain else LONGEST
    if top > LONGEST:
        top = LONGEST
    numbers[FRACTION] *= top if top > SHORTEST else SHORTEST
    numbers[TRIES] += 1


@part
def _turn(vectors: Array, numbers: Array, longest: float) -> None:
    """Choose the next step by the two loops of L-BFGS, or along the gradient without a memory."""
    step, known = vectors[STEP], np.int64(numbers[KNOWN])
    kept = known if known < MEMORY else MEMORY
    for i in range(step.size):
        step[i] = vectors[SLOPE, i]
    for back in range(kept):
        k = (known - 1 - back) % MEMORY
        share = _dot(vectors[MOVES + k], step) / numbers[PRODUCTS + k]
        numbers[SHARES + k] = share
        _add(-share, vectors[CHANGES + k], step)
    scale = numbers[SCALE]
    if known == 0:
        length = numbers[LENGTH] if numbers[LENGTH] > 1.0 else 1.0
        scale = length / numbers[STEEPEST] if length < numbers[STEEPEST] else 1.0
    for i in range(step.size):
        step[i] *= scale
    for forward in range(known - kept, known):
        k = forward % MEMORY
        share = numbers[SHARES + k] - _dot(vectors[CHANGES + k], step) / numbers[PRODUCTS + k]
        _add(share, vectors[MOVES + k], step)
    numbers[LENGTH] = math.sqrt(_dot(step, step))
    numbers[FRACTION] = longest / numbers[LENGTH] if numbers[LENGTH] > longest else 1.0
    numbers[PROMISED] = _dot(vectors[SLOPE], step)
    numbers[TRIES] = 0


@part
def _add(share: float, one: Array, out: Array) -> None:
    """Add a multiple of a vector to another one."""
    for i in range(out.size):
        out[i] += share * one[i]
