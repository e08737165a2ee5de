"""The joint and the pseudo-extended density with their gradients."""

from __future__ import annotations

import math

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, inlined, shared, summed
from stanct.kernels.densities import Extended
from stanct.kernels.evaluation import HALF_LOG_2PI, OK, Scratch, evaluated


@inlined
def interpolated(knots: Array, values: Array, place: float) -> tuple[float, float]:
    """Return the value and the slope of a piecewise-linear function."""
    k, beyond = 0, knots.size - 1
    while beyond - k > 1:
        middle = (k + beyond) // 2
        if place > knots[middle]:
            k = middle
        else:
            beyond = middle
    slope = (values[k + 1] - values[k]) / (knots[k + 1] - knots[k])
    return values[k] + slope * (place - knots[k]), slope


# Of a small program's gradient, a call between libraries would take a tenth.
_evaluated = evaluated.inlined


@compiled
def evaluate_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch
) -> float:
    """Return the log density of w; put its gradient and the δ of the copies into the arrays.

    `delta` has shape (N,). The log density is
    L = Σ_i (log q_i − β_i δ_i + path(β_i) + log s_i + log(1 − s_i)), where s_i = logistic(u_i)
    and β_i = low + (high − low) s_i. With hand-overs the term log Σ_i w_i / N is added, where
    log w_i = −(1 − β_i) δ_i − b(1) + b(β_i). Without a base q_i = 1.

    The gradient follows from ∇v by the chain rule. With r_i = w_i / Σ_j w_j,
    ∂L/∂δ_i = −β_i − r_i (1 − β_i) and ∂L/∂β_i = −δ_i + path′ + r_i (δ_i + b′).
    """
    return evaluated_extended(borrowed(extended), w, gradient, delta, borrowed(scratch))


@shared()
def evaluated_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch
) -> float:
    """Shared form of `evaluate_extended` for borrowed records."""
    problem, handover, fixed = extended.problem, extended.handover, extended.fixed
    knots, bias, path, room = extended.knots, extended.value, extended.path, extended.room
    dimension, copies, estimated = problem.mean.size, delta.size, fixed.size == 0
    low, high, from_base = extended.low, extended.high, extended.from_base
    controls = copies * dimension
    total, top, share = 0.0, -np.inf, 0.0
    for i in range(copies):
        first = i * dimension
        z, slope = w[first : first + dimension], gradient[first : first + dimension]
        fraction, left, beta, rest = (
            _between(low, high, w[controls + i])
            if estimated
            else (0.0, 0.0, fixed[i], 1 - fixed[i])
        )
        status = _evaluated(problem, z, slope, scratch.value, scratch)
        log_base = -0.5 * _squared(z) - dimension * HALF_LOG_2PI if from_base else 0.0
        delta[i] = log_base - scratch.value[0]
        height, slope_of_path = interpolated(knots, path, beta)
        total += log_base + height
        if estimated:
            u = abs(w[controls + i])
            larger = fraction if fraction > left else left
            total -= u - 2 * math.log(larger)  # of both fractions of the range
            gradient[controls + i] = slope_of_path
        if beta > 0:  # at β = 0 the target does not count, even where it vanishes
            total -= beta * delta[i]
        if handover:
            room[i] = interpolated(knots, bias, beta)[0] - bias[-1]
            if rest > 0:
                room[i] -= rest * delta[i]
            if room[i] > top:
                top = room[i]
        elif status != OK:
            return -np.inf
    if handover:
        for i in range(copies):
            room[i] = math.exp(room[i] - top)
            share += room[i]
        total += top + math.log(share / copies)
    if not math.isfinite(total):
        return -np.inf
    for i in range(copies):
        first = i * dimension
        fraction, left, beta, rest = (
            _between(low, high, w[controls + i])
            if estimated
            else (0.0, 0.0, fixed[i], 1 - fixed[i])
        )
        weight = room[i] / share if handover else 0.0
        pull = beta + weight * rest  # −∂L/∂δ
        z, slope = w[first : first + dimension], gradient[first : first + dimension]
        towards_base = 1 - pull if from_base else 0.0
        for j in range(dimension):  # slices, because the compiler does not vectorise offsets
            slope[j] = pull * slope[j] - towards_base * z[j]
        if estimated:
            by_beta = gradient[controls + i] - delta[i]
            if handover:
                by_beta += weight * (delta[i] + interpolated(knots, bias, beta)[1])
            gradient[controls + i] = by_beta * (high - low) * fraction * left + left - fraction
    return total


@inlined
def _between(low: float, high: float, u: float) -> tuple[float, float, float, float]:
    """Return logistic(u), 1 − logistic(u), β and 1 − β of a control."""
    small = math.exp(-abs(u))
    large = 1 / (1 + small)
    fraction, left = (large, small * large) if u > 0 else (small * large, large)
    return fraction, left, low + (high - low) * fraction, (1 - high) + (high - low) * left


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
    """Evaluate an extended density `times` times, for timing."""
    extended, scratch = borrowed(extended), borrowed(scratch)
    for _ in range(times):
        evaluated_extended(extended, w, gradient, delta, scratch)
