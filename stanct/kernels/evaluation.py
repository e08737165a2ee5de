"""The density and the base at a point in whitened coordinates.

At a fixed β the log density of z, with x = m + L z, is up to a constant

    log π_β(z) = β v(z) + (1 − β) log q(z),   v(z) = −φ(m + L z) + log det L.

q is the standard normal or a mixture of normals. The density is a C function with the signature of
BridgeStan's ``bs_log_density_gradient``: that of a Stan program, or the callback of a
`FunctionDensity`. The loops themselves do not return to the interpreter.

Numerical failures are counted and never raised. A point that Stan rejects and a value that is not
finite are *rejections*.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, inlined, shared, summed
from stanct.kernels.densities import Problem

OK, REJECTED, DIVERGED = 0, 1, 2

HALF_LOG_2PI = float(0.5 * np.log(2 * np.pi))

# Components of a mixture so many nats below another one are lost in rounding.
NOTHING = 40.0


class State(NamedTuple):
    """Position of a chain, updated in place.

    Attributes
    ----------
    z, gradient : shape (D,)
        Whitened position and ∇v there.
    value : shape (1,)
        v(z); −inf where the target vanishes.
    """

    z: Array
    gradient: Array
    value: Array


class Scratch(NamedTuple):
    """Working memory for one trajectory, so that the loops allocate nothing.

    `log_base` holds log q at the two ends of a trajectory.
    """

    x: Array
    x_gradient: Array
    z: Array
    momentum: Array
    gradient: Array
    value: Array
    base_gradient: Array
    offset: Array
    centred: Array
    log_base: Array


def make_scratch(dimension: int) -> Scratch:
    """Allocate working memory for trajectories in D dimensions."""
    one, two, three, four, five, six, seven, eight = np.zeros((8, dimension))
    value, log_base = np.zeros(1), np.zeros(2)
    return Scratch(one, two, three, four, five, value, six, seven, eight, log_base)


def make_state(problem: Problem, z: Array) -> State:
    """Make the state at a whitened point, shape (D,), with its value and gradient."""
    state = State(np.array(z, float), np.zeros(z.size), np.full(1, -np.inf))
    evaluate(problem, state.z, state.gradient, state.value, make_scratch(z.size))
    return state


@shared()
def normals(out: Array, rng: np.random.Generator) -> float:
    """Fill an array with standard normals; return half their squared length."""
    half = 0.0
    for i in range(out.size):
        normal = rng.standard_normal()
        out[i] = normal
        half += 0.5 * normal * normal
    return half


@summed
def triangular(lower: Array, vector: Array, out: Array) -> None:
    """Add lower · vector to `out`, four rows at a time."""
    i = 0
    while i + 4 <= vector.size:
        one = two = three = four = 0.0
        for j in range(i + 4):  # entries above the diagonal are zero
            v = vector[j]
            one += lower[i, j] * v
            two += lower[i + 1, j] * v
            three += lower[i + 2, j] * v
            four += lower[i + 3, j] * v
        out[i] += one
        out[i + 1] += two
        out[i + 2] += three
        out[i + 3] += four
        i += 4
    while i < vector.size:
        one = 0.0
        for j in range(i + 1):
            one += lower[i, j] * vector[j]
        out[i] += one
        i += 1


@summed
def transposed(lower: Array, vector: Array, out: Array) -> None:
    """Add lowerᵀ · vector to `out`, four rows of `lower` at a time."""
    i = 0
    while i + 4 <= vector.size:
        one, two, three, four = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for j in range(i + 4):
            out[j] += (
                lower[i, j] * one
                + lower[i + 1, j] * two
                + lower[i + 2, j] * three
                + lower[i + 3, j] * four
            )
        i += 4
    while i < vector.size:
        one = vector[i]
        for j in range(i + 1):
            out[j] += lower[i, j] * one
        i += 1


@compiled
def evaluate(problem: Problem, z: Array, gradient: Array, value: Array, scratch: Scratch) -> int:
    """Put v(z) and ∇v(z) into `value` and `gradient`; return OK, REJECTED or DIVERGED."""
    return evaluated(borrowed(problem), z, gradient, value, borrowed(scratch))


@shared()
def evaluated(problem: Problem, z: Array, gradient: Array, value: Array, scratch: Scratch) -> int:
    """Shared form of `evaluate` for borrowed records."""
    dimension, x, inner = z.size, scratch.x, scratch.x_gradient
    mean, lower, diagonal = problem.mean, problem.lower, problem.diagonal
    if lower.size > 0:
        for i in range(dimension):
            x[i] = mean[i]
        triangular(lower, z, x)
    elif problem.stretch.size == 0:
        for i in range(dimension):
            x[i] = mean[i] + diagonal[i] * z[i]
    else:
        # `inner` is free until the call below fills it.
        for i in range(dimension):
            inner[i] = z[i]
        _low_rank(problem.factors, problem.stretch, inner)
        for i in range(dimension):
            x[i] = mean[i] + diagonal[i] * inner[i]
    code = problem.call(
        problem.handle, True, True, x.ctypes.data, value.ctypes.data, inner.ctypes.data,
        np.uintp(0),
    )  # fmt: skip
    if code != 0 or not math.isfinite(value[0]):
        value[0] = -np.inf
        for i in range(dimension):
            gradient[i] = 0.0
        # A trajectory that ran off to infinity is not the program's fault.
        return REJECTED if math.isfinite(_total(z)) else DIVERGED
    value[0] += problem.added
    if lower.size > 0:
        for i in range(dimension):
            gradient[i] = 0.0
        transposed(lower, inner, gradient)
    else:
        for i in range(dimension):
            gradient[i] = diagonal[i] * inner[i]
        _low_rank(problem.factors, problem.stretch, gradient)
    return OK


@inlined
def _total(vector: Array) -> float:
    total = 0.0
    for i in range(vector.size):
        total += vector[i]
    return total


@summed
def _low_rank(factors: Array, stretch: Array, vector: Array) -> None:
    """Multiply a vector in place by I + Σ_j stretch_j u_j u_jᵀ, orthonormal u_j, in O(D r)."""
    for j in range(stretch.size):
        along = 0.0
        for i in range(vector.size):
            along += factors[j, i] * vector[i]
        along *= stretch[j]
        for i in range(vector.size):
            vector[i] += along * factors[j, i]


@summed
def _standardised(inverse: Array, centred: Array, offset: Array, most: float) -> float:
    """Put inverse · centred into `offset`; return its squared length, −1 once that is > `most`."""
    square, i = 0.0, 0
    while i + 4 <= centred.size:
        one = two = three = four = 0.0
        for j in range(i + 4):  # entries above the diagonal are zero
            v = centred[j]
            one += inverse[i, j] * v
            two += inverse[i + 1, j] * v
            three += inverse[i + 2, j] * v
            four += inverse[i + 3, j] * v
        offset[i] = one
        offset[i + 1] = two
        offset[i + 2] = three
        offset[i + 3] = four
        square += one * one + two * two + three * three + four * four
        if square > most:
            return -1.0
        i += 4
    while i < centred.size:
        one = 0.0
        for j in range(i + 1):
            one += inverse[i, j] * centred[j]
        offset[i] = one
        square += one * one
        i += 1
    return -1.0 if square > most else square


@shared(reordered=True)
def base_terms(problem: Problem, z: Array, scratch: Scratch) -> float:
    """Return log q(z) of the base; put its gradient into `scratch.base_gradient`."""
    gradient, offset, centred = scratch.base_gradient, scratch.offset, scratch.centred
    parts = problem.components
    if parts.share.size == 0:
        total = 0.0
        for i in range(z.size):
            gradient[i] = -z[i]
            total += z[i] * z[i]
        return -0.5 * total - z.size * HALF_LOG_2PI
    top, total = -np.inf, 0.0
    for i in range(z.size):
        gradient[i] = 0.0
    for k in range(parts.share.size):
        for i in range(z.size):
            centred[i] = z[i] - parts.place[k, i]
        square = _standardised(
            parts.inverse[k], centred, offset, 2 * (parts.log_weight[k] - top + NOTHING)
        )
        if square < 0:
            continue
        term = parts.log_weight[k] - 0.5 * square
        # A running log-sum-exp: the sum so far is rescaled when a larger term arrives.
        if term > top:
            scale = math.exp(top - term)
            total *= scale
            for i in range(z.size):
                gradient[i] *= scale
            top = term
        weight = math.exp(term - top)
        total += weight
        for i in range(z.size):
            offset[i] *= -weight
        transposed(parts.inverse[k], offset, gradient)
    for i in range(z.size):
        gradient[i] /= total
    return top + math.log(total) - z.size * HALF_LOG_2PI


@compiled
def log_tempered(value: float, log_base: float, beta: float) -> float:
    """Return log π_β; at β = 0 the target does not count, even where it vanishes."""
    return (1 - beta) * log_base + (beta * value if beta > 0 else 0.0)


@compiled
def delta_of(problem: Problem, value: float, z: Array, scratch: Scratch) -> float:
    """Return δ = φ − ψ at a whitened point from v."""
    return base_terms(problem, z, scratch) - value


@compiled
def repeat_density(
    call: Any, handle: int, points: Array, value: Array, gradient: Array, times: int
) -> None:
    """Evaluate a density `times` times at each of the points, shape (n, D), for timing."""
    for _ in range(times):
        for k in range(len(points)):
            call(
                handle, True, True, points[k].ctypes.data, value.ctypes.data,
                gradient.ctypes.data, np.uintp(0),
            )  # fmt: skip
