"""Betancourt's Beta–Binomial on a path from its prior, with annealing and tempering on it.

At inverse temperature β the rate θ is Beta(a + βk, b + β(n − k)), so that everything along the path
has a closed form. Chains move y = logit θ by random-walk Metropolis. Its scale at each β is 2.4
standard deviations of y, which is known as well.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit
from scipy.optimize import brentq
from scipy.special import betaln, digamma, polygamma

PRIOR, TRIALS, SUCCESSES = (9.0, 0.75), 550, 115
FAILURES = TRIALS - SUCCESSES
LOG_CHOOSE = -float(np.log(TRIALS + 1) + betaln(SUCCESSES + 1, FAILURES + 1))
SCALE = 2.4  # of the random walk, in standard deviations


def shapes(beta: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The two parameters of the Beta distribution at β."""
    return PRIOR[0] + np.multiply(beta, SUCCESSES), PRIOR[1] + np.multiply(beta, FAILURES)


def log_z(beta: np.ndarray | float) -> np.ndarray:
    """log ∫ p(θ) p(k | θ)^β dθ."""
    a, b = shapes(beta)
    return np.asarray(betaln(a, b) - betaln(*PRIOR) + np.multiply(beta, LOG_CHOOSE))


def mean_delta(beta: np.ndarray | float) -> np.ndarray:
    """E_β[ΔV] = −d log z / dβ, the mean of minus the log likelihood."""
    a, b = shapes(beta)
    top = digamma(a + b)
    return -np.asarray(SUCCESSES * (digamma(a) - top) + FAILURES * (digamma(b) - top) + LOG_CHOOSE)


def mean_rate(beta: np.ndarray | float) -> np.ndarray:
    """E_β[θ]."""
    a, b = shapes(beta)
    return np.asarray(a / (a + b))


def deviation(beta: np.ndarray | float) -> np.ndarray:
    """The standard deviation of logit θ."""
    a, b = shapes(beta)
    return np.sqrt(polygamma(1, a) + polygamma(1, b))


def divergence(start: float, end: float) -> float:
    """KL(π_start ‖ π_end), that of neighbours in an exponential family."""
    return float(log_z(end) - log_z(start) + (end - start) * mean_delta(start))


def _excess(start: float, wanted: float, end: float) -> float:
    return divergence(start, end) - wanted


def equal_divergence(rungs: int) -> np.ndarray:
    """The ladder from 0 to 1 with the same KL(π_i ‖ π_{i+1}) between all neighbours."""

    def ladder(each: float) -> list[float]:
        betas = [0.0]
        while len(betas) < rungs and divergence(betas[-1], 1.0) > each:
            gap = functools.partial(_excess, betas[-1], each)
            betas.append(float(brentq(gap, betas[-1], 1.0, full_output=False)))  # pyright: ignore[reportArgumentType]
        return betas

    low, high = 1e-3, divergence(0.0, 1.0)
    while high - low > 1e-10 * high:
        each = 0.5 * (low + high)
        low, high = (each, high) if len(ladder(each)) >= rungs else (low, each)
    return np.array([*ladder(high), 1.0])


# By their numbers of intervals.
LADDERS = {
    "25 even": np.linspace(0, 1, 26),
    "100 even": np.linspace(0, 1, 101),
    "25 of equal KL": equal_divergence(26),
}
WARMUP = 25  # transitions at β = 0 before the first jump


@njit
def _move(y: float, beta: float, scale: float, moves: int) -> float:
    """Random-walk Metropolis on y = logit θ, whose density is the Beta's with its Jacobian."""
    a, b = PRIOR[0] + beta * SUCCESSES, PRIOR[1] + beta * FAILURES
    here = -a * np.log1p(np.exp(-y)) - b * np.log1p(np.exp(y))
    for _ in range(moves):
        new = y + scale * np.random.standard_normal()  # noqa: NPY002 - numba's own generator
        there = -a * np.log1p(np.exp(-new)) - b * np.log1p(np.exp(new))
        if np.log(np.random.random()) < there - here:  # noqa: NPY002
            y, here = new, there
    return y


@njit
def _anneal(seed, start, betas, scales, moves):
    np.random.seed(seed)  # noqa: NPY002
    path = np.empty((start.size, betas.size))
    for particle in range(start.size):
        y = start[particle]
        path[particle, 0] = y
        for rung in range(1, betas.size):
            y = _move(y, betas[rung], scales[rung], moves)
            path[particle, rung] = y
    return path


@njit
def _temper(seed, start, betas, scales, bias, size):
    np.random.seed(seed)  # noqa: NPY002
    y, rung, accepted = start, 0, 0
    sweeps, moves = size
    values, rungs = np.empty(sweeps), np.empty(sweeps, np.int64)
    for sweep in range(sweeps):
        y = _move(y, betas[rung], scales[rung], moves)
        other = rung + (1 if np.random.random() < 0.5 else -1)  # noqa: NPY002
        if 0 <= other < betas.size:
            log_likelihood = (
                LOG_CHOOSE - SUCCESSES * np.log1p(np.exp(-y)) - FAILURES * np.log1p(np.exp(y))
            )
            gain = (betas[other] - betas[rung]) * log_likelihood - bias[other] + bias[rung]
            if np.log(np.random.random()) < gain:  # noqa: NPY002
                rung, accepted = other, accepted + 1
        values[sweep], rungs[sweep] = y, rung
    return values, rungs, accepted


@njit
def _warmed(seed: int, y: float, scale: float) -> float:
    np.random.seed(seed + 1)  # noqa: NPY002
    return _move(y, 0.0, scale, WARMUP)


def anneal(ladder: str, particles: int, moves: int, seed: int) -> np.ndarray:
    """Simulated annealing from exact draws of the prior: θ at each rung, shape (particles, rungs).

    Every particle makes `moves` moves at each rung. There are no weights.
    """
    betas = LADDERS[ladder]
    theta = np.random.default_rng(seed).beta(*PRIOR, size=particles)
    start = np.log(theta) - np.log1p(-np.minimum(theta, 1 - 1e-12))
    path = _anneal(seed, start, betas, SCALE * deviation(betas), moves)
    return 1 / (1 + np.exp(-path))


def temper(ladder: str, sweeps: int, moves: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Simulated tempering with jumps to neighbours, and with the exact log z as its bias.

    The chain begins with 25 transitions at β = 0.

    Returns
    -------
    theta, rung : shape (sweeps,)
        After each sweep of `moves` moves and one proposed jump.
    accepted
        Share of the jumps that were accepted.
    """
    betas = LADDERS[ladder]
    scales = SCALE * deviation(betas)
    middle = float(digamma(PRIOR[0]) - digamma(PRIOR[1]))
    start = _warmed(seed, middle, scales[0])
    values, rungs, accepted = _temper(seed, start, betas, scales, log_z(betas), (sweeps, moves))
    return 1 / (1 + np.exp(-values)), rungs, accepted / sweeps


def trips(rungs: np.ndarray, top: int) -> int:
    """Round trips from the lowest rung to the highest and back."""
    ends = rungs[(rungs == 0) | (rungs == top)]
    return int(np.count_nonzero(np.diff(ends) < 0))
