"""The joint and the pseudo-extended density with their gradient."""

from __future__ import annotations

import numpy as np

from stanct.arrays import Array
from stanct.kernels.compiling import borrowed, compiled, inlined, summed
from stanct.kernels.densities import Extended
from stanct.kernels.evaluation import HALF_LOG_2PI, OK, Scratch, evaluated


@inlined
def interpolated(knots: Array, values: Array, place: float) -> tuple[float, float]:
    """Value and slope of a piecewise-linear function."""
    k = 0
    while k < knots.size - 2 and place > knots[k + 1]:
        k += 1
    slope = (values[k + 1] - values[k]) / (knots[k + 1] - knots[k])
    return values[k] + slope * (place - knots[k]), slope


@compiled
def evaluate_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch
) -> float:
    """The log density of w; its gradient and the copies' δ, shape (N,), go into the arrays.

    By the chain rule over ∇v: L = Σ_i (log q_i − β_i δ_i + path(β_i) + log β_i + log(1 − β_i)), and
    with hand-overs log Σ_i w_i / N more, log w_i = −(1 − β_i) δ_i − b(1) + b(β_i). With r_i the
    share of w_i, ∂L/∂δ_i = −β_i − r_i (1 − β_i) and ∂L/∂β_i = −δ_i + path′ + r_i (δ_i + b′).
    """
    return evaluated_extended(borrowed(extended), w, gradient, delta, borrowed(scratch))


@inlined
def evaluated_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch
) -> float:
    """`evaluate_extended` as a part of its caller, for borrowed records."""
    problem, handover, fixed = extended.problem, extended.handover, extended.fixed
    knots, bias, path, room = extended.knots, extended.value, extended.path, extended.room
    dimension, copies, estimated = problem.mean.size, delta.size, fixed.size == 0
    controls = copies * dimension
    total, top, share = 0.0, -np.inf, 0.0
    for i in range(copies):
        first = i * dimension
        z, slope = w[first : first + dimension], gradient[first : first + dimension]
        beta, rest = _tempering(w, controls + i) if estimated else (fixed[i], 1 - fixed[i])
        if estimated:
            u = abs(w[controls + i])
            total -= u + 2 * np.log1p(np.exp(-u))
        status = evaluated(problem, z, slope, scratch.value, scratch)
        log_base = -0.5 * _squared(z) - dimension * HALF_LOG_2PI
        delta[i] = log_base - scratch.value[0]
        total += log_base + interpolated(knots, path, beta)[0]
        if beta > 0:  # at β = 0 the target does not matter, even where it vanishes
            total -= beta * delta[i]
        if handover:
            room[i] = interpolated(knots, bias, beta)[0] - bias[-1]
            if rest > 0:
                room[i] -= rest * delta[i]
            top = max(top, room[i])
        elif status != OK:
            return -np.inf
    if handover:
        for i in range(copies):
            room[i] = np.exp(room[i] - top)
            share += room[i]
        total += top + np.log(share / copies)
    if not np.isfinite(total):
        return -np.inf
    for i in range(copies):
        first = i * dimension
        beta, rest = _tempering(w, controls + i) if estimated else (fixed[i], 1 - fixed[i])
        weight = room[i] / share if handover else 0.0
        pull = beta + weight * rest  # −∂L/∂δ
        z, slope = w[first : first + dimension], gradient[first : first + dimension]
        for j in range(dimension):  # not by offsets, which the compiler turns into no vectors
            slope[j] = pull * slope[j] - (1 - pull) * z[j]
        if estimated:
            by_beta = interpolated(knots, path, beta)[1] - delta[i]
            if handover:
                by_beta += weight * (delta[i] + interpolated(knots, bias, beta)[1])
            gradient[controls + i] = by_beta * beta * rest + rest - beta
    return total


@inlined
def _tempering(w: Array, i: int) -> tuple[float, float]:
    """β and 1 − β of a control u, which is w[i]."""
    return 1 / (1 + np.exp(-w[i])), 1 / (1 + np.exp(w[i]))


@summed
def _squared(vector: Array) -> float:
    total = 0.0
    for i in range(vector.size):
        total += vector[i] * vector[i]
    return total


@compiled
def repeat_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch, times: int
) -> None:
    """Evaluate an extended density as often, to be timed."""
    extended, scratch = borrowed(extended), borrowed(scratch)
    for _ in range(times):
        evaluated_extended(extended, w, gradient, delta, scratch)
