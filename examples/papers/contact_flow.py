"""The contact Hamiltonian flow of Betancourt (2014), Algorithm 1, on the line.

The contact coordinate is γ, with β = 1 / (1 + exp(−γ)) as in his equation (2), and the kinetic
energy is p² / 2m. A path has a base potential V_B and a difference ΔV: π_β ∝ exp(−V_B − β ΔV).
The flow needs E_β[ΔV]: from quadrature, or at each step from Hamiltonian Monte Carlo that begins at
the current position, as in the paper's section III.C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ladders import FAILURES, LOG_CHOOSE, PRIOR, SUCCESSES
from ladders import log_z as exact_log_z
from ladders import mean_delta as exact_mean
from numba import njit
from scipy.special import betaln, expit, log_expit, logit, logsumexp

STEP = 0.01  # the paper's ε, of the flow and of Hamiltonian Monte Carlo
STARTS, PATIENCE = 24, 6000  # of the Beta–Binomial, and steps of each
FIRST, LAST = 1e-5, 1 - 1e-3  # where trajectories begin and end, for β = 0 and β = 1


@dataclass(frozen=True)
class Path:
    """Potentials on the line with their slopes, and what is known along the path.

    Attributes
    ----------
    base, delta
        V_B and ΔV with their slopes, of an array of positions.
    mean, log_z
        E_β[ΔV] and log Z(β), of an array of β.
    """

    base: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    delta: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    mean: Callable[[np.ndarray], np.ndarray]
    log_z: Callable[[np.ndarray], np.ndarray]

    def potential(self, q: np.ndarray, beta: np.ndarray | float) -> np.ndarray:
        """V_B + β ΔV."""
        return self.base(q)[0] + beta * self.delta(q)[0]


def _prior(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = PRIOR
    value = betaln(a, b) - a * log_expit(y) - b * log_expit(-y)
    return value, b * expit(y) - a * expit(-y)


def _binomial(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value = -LOG_CHOOSE - SUCCESSES * log_expit(y) - FAILURES * log_expit(-y)
    return value, FAILURES * expit(y) - SUCCESSES * expit(-y)


# The Beta–Binomial of section III in y = logit θ.
BETA_BINOMIAL = Path(_prior, _binomial, exact_mean, exact_log_z)


def starts(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact draws of the prior of y = logit θ, and momenta of unit mass, shapes (STARTS,)."""
    rng = np.random.default_rng(seed)
    return logit(rng.beta(*PRIOR, size=STARTS)), rng.standard_normal(STARTS)


def two_modes(weight: float, centre: float, sd: float, base_sd: float) -> Path:
    """From one normal density to two of unequal weight at ±centre, with quadrature along it."""
    grid = np.linspace(-8 * base_sd, 8 * base_sd, 6001)
    gammas = logit(
        np.concatenate([np.geomspace(1e-7, 0.5, 300), 1 - np.geomspace(0.49, 1e-7, 300)])
    )

    def base(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 0.5 * (q / base_sd) ** 2 + np.log(base_sd * np.sqrt(2 * np.pi)), q / base_sd**2

    def delta(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = np.log(weight) - 0.5 * ((q + centre) / sd) ** 2
        right = np.log1p(-weight) - 0.5 * ((q - centre) / sd) ** 2
        both = np.logaddexp(left, right)
        share = np.exp(left - both)
        slope = (share * (q + centre) + (1 - share) * (q - centre)) / sd**2
        value, pull = base(q)
        return np.log(sd * np.sqrt(2 * np.pi)) - both - value, slope - pull

    v, d = base(grid)[0], delta(grid)[0]
    logs = np.array([-v - b * d for b in expit(gammas)])
    total = np.asarray(logsumexp(logs, axis=1))
    means = (np.exp(logs - total[:, None]) * d).sum(axis=1)
    logs_z = total + np.log(grid[1] - grid[0])
    return Path(
        base, delta,
        lambda b: np.interp(logit(b), gammas, means), lambda b: np.interp(logit(b), gammas, logs_z),
    )  # fmt: skip


@dataclass(frozen=True)
class Course:
    """Trajectories at all steps, each array of shape (steps, trajectories).

    Attributes
    ----------
    q, p, beta
        Positions, momenta and inverse temperatures. A trajectory that has arrived stays there.
    log_z
        −(T + V_B + β ΔV + H₀), which is log Z(β) along the flow; equation (4).
    arrived
        Shape (trajectories,): whether the trajectory came to the other end.
    """

    q: np.ndarray
    p: np.ndarray
    beta: np.ndarray
    log_z: np.ndarray
    arrived: np.ndarray


def flow(
    path: Path, q: np.ndarray, p: np.ndarray, steps: int, *, heating: bool = False,
    mass: float = 1.0,
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Course:  # fmt: skip
    """Follow the flow from β = 0 to β = 1, or back.

    Parameters
    ----------
    q, p : shape (trajectories,)
    mean
        E_β[ΔV] as a function of β and of the positions; without it, the path's own.
    """
    q, p = q.copy(), p.copy()
    sign = -1.0 if heating else 1.0
    start, end = (LAST, FIRST) if heating else (FIRST, LAST)
    gamma = np.full(q.size, logit(start))
    expected = mean or (lambda beta, _: path.mean(beta))
    arrived = np.zeros(q.size, bool)
    level = 0.5 * p**2 / mass + path.potential(q, start) + path.log_z(np.array(start))  # −H₀
    kept = [(q.copy(), p.copy(), expit(gamma))]
    for _ in range(steps):
        before = q, p, gamma
        q, gamma = q + 0.5 * STEP * p / mass, gamma + 0.5 * sign * STEP * p**2 / mass
        p = p - 0.5 * STEP * path.base(q)[1]
        # The exact flow of β ΔV + log Z(β): a constant force and a linear friction.
        beta = expit(gamma)
        value, slope = path.delta(q)
        friction = sign * beta * (1 - beta) * (value - expected(beta, q))
        p = p * np.exp(-STEP * friction) - beta * slope * _shrunk(friction)
        p = p - 0.5 * STEP * path.base(q)[1]
        q, gamma = q + 0.5 * STEP * p / mass, gamma + 0.5 * sign * STEP * p**2 / mass
        q, p, gamma = (np.where(arrived, a, b) for a, b in zip(before, (q, p, gamma), strict=True))
        arrived = arrived | (sign * (expit(gamma) - end) >= 0)
        kept.append((q, p, expit(gamma)))
        if arrived.all():
            break
    positions, momenta, betas = (np.array(each) for each in zip(*kept, strict=True))
    along = level - 0.5 * momenta**2 / mass - path.potential(positions, betas)
    return Course(positions, momenta, betas, along, arrived)


def _shrunk(friction: np.ndarray) -> np.ndarray:
    """∫ exp(−friction t) dt over a step."""
    small = np.abs(friction) < 1e-9
    return np.where(small, STEP, -np.expm1(-STEP * friction) / np.where(small, 1.0, friction))


@njit
def _hmc_mean(y: float, beta: float, draws: int, seed: int) -> float:
    """The mean of ΔV over a chain of HMC on logit θ from y, with times from U(0, 2π)."""
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator
    a, b = PRIOR[0] + beta * SUCCESSES, PRIOR[1] + beta * FAILURES
    total = 0.0
    for _ in range(draws):
        new, p = y, np.random.standard_normal()  # noqa: NPY002
        steps = int(2 * np.pi * np.random.random() / STEP) + 1  # noqa: NPY002
        start = 0.5 * p * p + (a + b) * np.log1p(np.exp(-new)) + b * new
        rate = 1 / (1 + np.exp(-new))
        for _ in range(steps):
            p -= 0.5 * STEP * ((a + b) * rate - a)
            new += STEP * p
            rate = 1 / (1 + np.exp(-new))
            p -= 0.5 * STEP * ((a + b) * rate - a)
        end = 0.5 * p * p + (a + b) * np.log1p(np.exp(-new)) + b * new
        if np.log(np.random.random()) < start - end:  # noqa: NPY002
            y = new
        total += (SUCCESSES + FAILURES) * np.log1p(np.exp(-y)) + FAILURES * y - LOG_CHOOSE
    return total / draws


def hmc_mean(draws: int, seed: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """E_β[ΔV] of the Beta–Binomial by that many draws of HMC at each step."""
    rng = np.random.default_rng(seed)

    def estimate(beta: np.ndarray, y: np.ndarray) -> np.ndarray:
        own = rng.integers(2**31, size=y.size)
        return np.array(
            [_hmc_mean(a, b, draws, int(s)) for a, b, s in zip(y, beta, own, strict=True)]
        )

    return estimate
