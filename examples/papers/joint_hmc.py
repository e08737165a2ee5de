"""Joint continuous tempering by HMC of fixed length, as in Graham & Storkey (2017), section 5.

stanct moves by NUTS. The paper's Figure 2 has HMC, whose step and length were tuned by hand on one
system. Here the target is a Boltzmann machine's relaxation, in coordinates in which the base is
standard normal. The bias is linear with slope log ζ, and β = 0 has no atom.
"""

from __future__ import annotations

import numpy as np
from common import BoltzmannMachine
from numba import njit

from stanct.path.bias import Bias
from stanct.path.gaussian import LOG_2PI, GaussianBase

# The step of the coordinates, how many times it u's is, and steps of a trajectory, from trials on
# the first system.
STEP, CONTROL, STEPS = 0.1, 4.0, 20
CHAINS = 4


@njit(cache=True)
def _energy(w, factor, biases, mean, scale, constant, slope):
    """Potential energy of w = (z, u) and δ = φ + log ζ − ψ; the gradient goes into `slope`.

    `constant` is log ζ less the constant of ψ = ½|z|² + constant.
    """
    size, z, u = mean.size, w[:-1], w[-1]
    x = mean + scale @ z
    y = factor @ x + biases
    phi, push = 0.5 * np.dot(x, x), np.empty(y.size)
    for i in range(y.size):
        # log cosh y = |y| + log(1 + exp(−2|y|)) − log 2
        small = np.exp(-2 * abs(y[i]))
        phi -= abs(y[i]) + np.log1p(small) - np.log(2.0)
        push[i] = np.sign(y[i]) * (1 - small) / (1 + small)
    square = 0.5 * np.dot(z, z)
    delta, beta = phi - square + constant, 1 / (1 + np.exp(-u))
    slope[:size] = beta * (scale.T @ (x - factor.T @ push)) + (1 - beta) * z
    slope[size] = beta * (1 - beta) * delta - (1 - 2 * beta)
    # −log |dβ/du| = −log β − log(1 − β)
    return beta * delta + square + u + 2 * np.log1p(np.exp(-u)), delta


@njit(cache=True)
def _chain(seed, start, moves, factor, biases, mean, scale, constant):
    """z and δ after each move of HMC, shapes (moves, D) and (moves,)."""
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator
    here, slope, new_slope = start.copy(), np.empty(start.size), np.empty(start.size)
    step = np.full(start.size, STEP)
    step[-1] *= CONTROL
    energy, delta = _energy(here, factor, biases, mean, scale, constant, slope)
    places, deltas = np.empty((moves, mean.size)), np.empty(moves)
    for k in range(moves):
        p = np.random.standard_normal(start.size)  # noqa: NPY002
        before = energy + 0.5 * np.dot(p, p)
        w, new, after = here.copy(), delta, energy
        new_slope[:] = slope
        for _ in range(STEPS):
            p -= 0.5 * step * new_slope
            w += step * p
            after, new = _energy(w, factor, biases, mean, scale, constant, new_slope)
            p -= 0.5 * step * new_slope
        if np.log(np.random.random()) < before - after - 0.5 * np.dot(p, p):  # noqa: NPY002
            here, energy, delta = w, after, new
            slope[:] = new_slope
        places[k], deltas[k] = here[:-1], delta
    return places, deltas


def joint_by_hmc(
    machine: BoltzmannMachine, base: GaussianBase, log_zeta: float, moves: int, seed: int
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Draws of x, their log weights at β = 1, log Z, and gradients.

    Chains begin at draws of the base, and a sixth of their moves is left out.

    Returns
    -------
    x, log_weights : shapes (chains, draws, D) and (chains, draws)
    log_z, gradients
    """
    rng, left_out = np.random.default_rng(seed), moves // 6
    constant = log_zeta - 0.5 * base.dimension * LOG_2PI - base.log_det_scale
    places, deltas = [], []
    for _ in range(CHAINS):
        start = np.append(base.draw(rng, 1)[0], rng.logistic())
        z, delta = _chain(
            int(rng.integers(2**31)), start, moves, np.ascontiguousarray(machine.factor),
            machine.biases, base.mean, np.ascontiguousarray(base.scale), constant,
        )  # fmt: skip
        places.append(base.unwhiten(z[left_out:]))
        deltas.append(delta[left_out:])
    law = Bias.linear(0.0)  # log ζ is in δ
    at_base, at_target = (law.log_weights(np.array(deltas), beta) for beta in (0.0, 1.0))
    log_z = log_zeta + np.logaddexp.reduce(at_target.ravel()) - np.logaddexp.reduce(at_base.ravel())
    return np.array(places), at_target, float(log_z), CHAINS * (moves * STEPS + 1)
