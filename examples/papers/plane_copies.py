"""Pseudo-extended MCMC with fixed β by compiled HMC, on mixtures in the plane.

The instrument is the paper's own, the power γ^β of the unnormalised target ([PE] 6), and not
stanct's path from a base. With all β fixed the density of the copies is proper:

    log π(x₁, …, x_N) = log Σ_i γ(x_i)^{1 − β} + β Σ_i log γ(x_i).

Copy i counts by its share of the sum. Each trajectory of HMC has one to twenty steps. The step size
is tuned to an acceptance of .8 in the warm-up.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LONGEST, TARGET = 20, 0.8


@njit
def log_gamma(x, gradient, log_height, centre, half_precision):
    """Log γ at a point of the plane, with its gradient."""
    top = -np.inf
    for k in range(log_height.size):
        square = (x[0] - centre[k, 0]) ** 2 + (x[1] - centre[k, 1]) ** 2
        top = max(top, log_height[k] - half_precision[k] * square)
    total = across = up = 0.0
    for k in range(log_height.size):
        a, b = x[0] - centre[k, 0], x[1] - centre[k, 1]
        exponent = log_height[k] - half_precision[k] * (a * a + b * b) - top
        if exponent > -40.0:
            share = np.exp(exponent)
            total += share
            across -= share * 2 * half_precision[k] * a
            up -= share * 2 * half_precision[k] * b
    gradient[0], gradient[1] = across / total, up / total
    return top + np.log(total)


@njit
def copies_density(x, gradient, level, beta, mixture):
    """The log density of N copies, its gradient, and log γ of each in `level`."""
    top = -np.inf
    for i in range(level.size):
        level[i] = log_gamma(x[i], gradient[i], *mixture)
        top = max(top, (1 - beta) * level[i])
    total = 0.0
    for i in range(level.size):
        total += np.exp((1 - beta) * level[i] - top)
    value = top + np.log(total)
    for i in range(level.size):
        value += beta * level[i]
        share = np.exp((1 - beta) * level[i] - top) / total
        for axis in range(2):
            gradient[i, axis] *= beta + (1 - beta) * share
    return value


@njit
def copies_hmc(seed, copies, beta, sizes, mixture):
    """Moments of N copies that start in the unit square.

    Parameters
    ----------
    sizes
        Draws and warm-up.

    Returns
    -------
    moments : shape (4,)
        Weighted means of x₁, x₂, x₁² and x₂² over copies and draws.
    gradients
        Gradients of log γ.
    """
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator
    draws, warmup = sizes
    x = np.random.random((copies, 2))  # noqa: NPY002
    gradient, level, new_level = np.empty((copies, 2)), np.empty(copies), np.empty(copies)
    new_gradient, y = np.empty((copies, 2)), np.empty((copies, 2))
    value = copies_density(x, gradient, level, beta, mixture)
    moments, log_step, spent = np.zeros(4), np.log(0.05), copies
    for n in range(-warmup, draws):
        step = np.exp(log_step) * (0.8 + 0.4 * np.random.random())  # noqa: NPY002
        p = np.random.standard_normal((copies, 2))  # noqa: NPY002
        before = value - 0.5 * np.sum(p * p)
        y[:], new_gradient[:] = x, gradient
        found = value
        steps = np.random.randint(1, LONGEST + 1)  # noqa: NPY002
        for _ in range(steps):
            p += 0.5 * step * new_gradient
            y += step * p
            found = copies_density(y, new_gradient, new_level, beta, mixture)
            p += 0.5 * step * new_gradient
        spent += steps * copies
        chance = np.exp(min(0.0, found - 0.5 * np.sum(p * p) - before))
        if not chance >= 0.0:
            chance = 0.0
        if np.random.random() < chance:  # noqa: NPY002
            x[:], gradient[:], level[:], value = y, new_gradient, new_level, found
        if n < 0:
            log_step += (chance - TARGET) / (warmup + n + 10.0) ** 0.6
            continue
        share = np.exp((1 - beta) * (level - level.max()))
        share /= share.sum()
        for i in range(copies):
            for axis in range(2):
                moments[axis] += share[i] * x[i, axis]
                moments[2 + axis] += share[i] * x[i, axis] ** 2
    return moments / draws, spent
