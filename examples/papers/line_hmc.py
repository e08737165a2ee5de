"""HMC of fixed length on two modes of the line, and on their extension by u.

The setting is that of Graham & Storkey (2017), section 7.1: β = logistic(u), log ζ = log Z = 0, no
atom. stanct moves by NUTS; the paper's Figure 1 has HMC.
"""

from __future__ import annotations

import numpy as np
from numba import njit

WEIGHTS, MEANS, SDS = (0.6, 0.4), (-8.0, 8.0), (1.0, 2.0)
BASE_MEAN, BASE_SD = -1.6, 7.97747  # of the target
STEPS, STEP = 20, 1.0  # of the authors' notebook


@njit(cache=True)
def _energy(x, u, tempered, slope):
    """Potential energy of (x, u) and δ = φ − ψ; the gradient goes into `slope`. Without u, φ."""
    terms = np.empty(2)
    for k in range(2):
        away = (x - MEANS[k]) / SDS[k]
        terms[k] = np.log(WEIGHTS[k] / SDS[k]) - 0.5 * away * away
    top = np.logaddexp(terms[0], terms[1])
    push = 0.0
    for k in range(2):
        push += np.exp(terms[k] - top) * (x - MEANS[k]) / SDS[k] ** 2
    from_base = (x - BASE_MEAN) / BASE_SD
    psi = 0.5 * from_base * from_base + np.log(BASE_SD)
    if not tempered:
        slope[0], slope[1] = push, 0.0
        return -top, -top - psi
    beta = 1 / (1 + np.exp(-u))
    delta = -top - psi
    slope[0] = beta * push + (1 - beta) * from_base / BASE_SD
    slope[1] = beta * (1 - beta) * delta - (1 - 2 * beta)
    # −log |dβ/du| = −log β − log(1 − β)
    return psi + beta * delta + u + 2 * np.log1p(np.exp(-u)), delta


@njit(cache=True)
def chain(seed, x, u, draws, tempered):
    """x, u and δ after each move, arrays of shape (draws,), and the share of moves accepted."""
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator
    here, slope, kept, accepted = np.array([x, u]), np.empty(2), np.empty((3, draws)), 0
    moving = np.array([1.0, 1.0 if tempered else 0.0])
    energy, delta = _energy(x, u, tempered, slope)
    new_slope = slope.copy()
    for n in range(draws):
        p = np.random.standard_normal(2) * moving  # noqa: NPY002
        before = energy + 0.5 * np.dot(p, p)
        w, after, new = here.copy(), energy, delta
        new_slope[:] = slope
        for _ in range(STEPS):
            p -= 0.5 * STEP * new_slope
            w += STEP * p
            after, new = _energy(w[0], w[1], tempered, new_slope)
            p -= 0.5 * STEP * new_slope
        if np.log(np.random.random()) < before - after - 0.5 * np.dot(p, p):  # noqa: NPY002
            here, energy, delta = w, after, new
            slope[:] = new_slope
            accepted += 1
        kept[0, n], kept[1, n], kept[2, n] = here[0], here[1], delta
    return kept[0], kept[1], kept[2], accepted / draws


@njit(cache=True)
def trajectories(seed, start, count, steps, step):
    """Leapfrog trajectories of (x, u) from one point, shape (count, steps + 1, 2)."""
    np.random.seed(seed)  # noqa: NPY002
    slope, path = np.empty(2), np.empty((count, steps + 1, 2))
    for k in range(count):
        w, p = start.copy(), np.random.standard_normal(2)  # noqa: NPY002
        _energy(w[0], w[1], True, slope)
        path[k, 0] = w
        for n in range(steps):
            p -= 0.5 * step * slope
            w += step * p
            _energy(w[0], w[1], True, slope)
            p -= 0.5 * step * slope
            path[k, n + 1] = w
    return path
