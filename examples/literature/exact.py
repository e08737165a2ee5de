"""Exact log Z of the targets: closed forms, quadratures and transfer matrices."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp

Array: TypeAlias = NDArray[Any]
LOG_2PI = float(np.log(2 * np.pi))


def _integral(function: Any, low: float, high: float, *points: float) -> float:
    return quad(function, low, high, epsabs=0, epsrel=1e-12, limit=500, points=points or None)[0]


def _sphere(d: int) -> float:
    """The log of the surface of the unit ball in d dimensions."""
    return float(np.log(2) + d / 2 * np.log(np.pi) - gammaln(d / 2))


def wells(count: int) -> float:
    """Pairs of a double well and a normal."""
    one = _integral(lambda x: np.exp(0.5 * x + 6 * x * x - x**4 - 12), -4, 4, 0)
    return float(count * (np.log(one) + 12 + 0.5 * LOG_2PI))


def brownian(at: Array, y: Array) -> float:
    """A walk seen with noise: quadrature over the logarithms of both scales."""
    values, vectors = np.linalg.eigh(np.minimum(at[:, None], at))
    squares = (vectors.T @ y) ** 2
    grid = np.linspace(-9, 3, 481)
    walk, noise = grid[:, None, None], grid[None, :, None]
    variance = np.exp(2 * walk) * values + np.exp(2 * noise)
    log_p = -0.5 * (squares / variance + np.log(variance) + LOG_2PI).sum(axis=-1)
    log_p = log_p + stats.norm.logpdf(grid, 0, 2)[:, None] + stats.norm.logpdf(grid, 0, 2)
    return float(logsumexp(log_p) + 2 * np.log(grid[1] - grid[0]))


def rings() -> float:
    end = 4.5 * np.pi
    inside = _integral(lambda r: r * (np.cos(r) + 1.001), 0, end)
    return float(np.log(2 * np.pi * (inside + end + 1)))


def chain(length: int, a: float, beta: float) -> float:
    """A chain in a double well that is zero at both ends, by its transfer matrix."""
    ds = 1 / (length + 1)
    grid = np.linspace(-2.6, 2.6, 1201)
    width, pull = grid[1] - grid[0], beta * a / (2 * ds)
    kernel = np.exp(-pull * (grid[:, None] - grid) ** 2) * width
    well = np.exp(-beta * ds / (4 * a) * (1 - grid**2) ** 2)
    state, log_z = np.exp(-pull * grid**2) * well, 0.0
    for _ in range(length - 1):
        state = (kernel @ state) * well
        log_z += np.log(state.max())
        state /= state.max()
    return float(log_z + np.log((state * np.exp(-pull * grid**2)).sum() * width))


def eggbox() -> float:
    wave = np.cos((np.arange(4000) + 0.5) / 4000 * 5 * np.pi)
    return float(logsumexp((2 + np.outer(wave, wave)) ** 5) - 2 * np.log(4000))


def shells(d: int) -> float:
    """Two shells in a cube of side 12, whose overlaps with its faces are negligible."""
    one = _integral(lambda r: r ** (d - 1) * stats.norm.pdf(r, 2, 0.1), 1, 3.5, 2)
    return float(np.log(2 * one) + _sphere(d) - d * np.log(12))


def thin_shell(d: int) -> float:
    one = _integral(
        lambda r: r ** (d - 1) * np.exp(-0.5 * ((r * r - 0.16) / 0.004) ** 2), 0.3, 0.5, 0.4
    )
    return float(np.log(one) + _sphere(d))


def loggamma(d: int) -> float:
    """Products of log gamma and normal densities on the unit cube."""

    def gamma(m: float) -> float:
        return float(np.exp(-np.exp(-m * 30)) - np.exp(-np.exp((1 - m) * 30)))

    def normal(m: float) -> float:
        return float(special.ndtr((1 - m) * 30) - special.ndtr(-m * 30))

    first = np.log((gamma(1 / 3) + gamma(2 / 3)) * (normal(1 / 3) + normal(2 / 3)) / 4)
    gammas = max((d + 2) // 2 - 2, 0)
    return float(first + gammas * np.log(gamma(2 / 3)) + (d - 2 - gammas) * np.log(normal(2 / 3)))


def rosenbrock(d: int) -> float:
    """The mean over a cube of side 10, from the last coordinate to the first."""
    grid = np.linspace(-5, 5, 3001)
    weights = np.full(len(grid), grid[1] - grid[0])
    weights[[0, -1]] /= 2
    kernel = np.exp(-100 * (grid - grid[:, None] ** 2) ** 2) * weights
    state, log_z = np.ones(len(grid)), 0.0
    for _ in range(d - 1):
        state = np.exp(-((1 - grid) ** 2)) * (kernel @ state)
        log_z += np.log(state.max())
        state /= state.max()
    return float(log_z + np.log(weights @ state) - d * np.log(10))


def asymmetric() -> float:
    scales = 0.1 / (4 * np.arange(1, 21) - 3)
    inside = 2 * special.ndtr(0.5 / scales) - 1
    return float(np.log(np.sqrt(2 * np.pi) * scales * inside).sum())


def slab(d: int) -> float:
    """A spike of mass 100 and a slab of sd 1/10, cut at ±1/2."""
    return float(np.log(100 + (2 * special.ndtr(5) - 1) ** d))


def product(n: int, y: int) -> float:
    """Trials whose probability is a product of two uniform ones."""
    return float(-np.log(n + 1) + np.log(special.digamma(n + 2) - special.digamma(y + 1)))


def period(t: Array, y: Array, points: int = 100_000) -> float:
    """A circle with normal amplitudes and offset, by the mid-point rule over log P."""
    prior, log_p = np.array([3.0, 3.0, 10.0]), []
    for part in np.array_split(np.log(1000) * (np.arange(points) + 0.5) / points, 20):
        phase = 2 * np.pi * t / np.exp(part)[:, None]
        columns = np.stack([np.cos(phase), np.sin(phase), np.ones_like(phase)], axis=-1) * prior
        gram = columns.swapaxes(1, 2) @ columns + np.eye(3)
        seen = columns.swapaxes(1, 2) @ y
        fitted = (seen * np.linalg.solve(gram, seen[..., None])[..., 0]).sum(axis=-1)
        log_p.append(0.5 * fitted - 0.5 * np.linalg.slogdet(gram)[1])
    log_mean = logsumexp(np.concatenate(log_p)) - np.log(points)
    return float(log_mean - 0.5 * y @ y - 0.5 * len(y) * LOG_2PI)


def cross() -> float:
    """Two pairs of arms; given x, y is normal."""

    def given(x: float) -> float:
        return float(np.exp(-0.005 * x * x) * np.sqrt(2 * np.pi / (x * x + 0.01)))

    return float(np.log(2 * (_integral(given, 0, 1, 0.01, 0.1) + _integral(given, 1, 100, 10))))
