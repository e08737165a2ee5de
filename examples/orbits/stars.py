"""The evidence challenge of Nelson et al. (2020), with exact evidences of one planet or none.

Its priors: log P is uniform, and so are log(1 + K) to K = 999 and log(1 + jitter) to 99, in m/s.
e has a Rayleigh distribution of scale .2 below 1, angles are uniform, and the offset lies within
1,000 m/s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.special import logsumexp

HERE = Path(__file__).resolve().parent
OFFSET, AMPLITUDE, JITTER, ECCENTRICITY = 1000.0, np.log(1000.0), np.log(100.0), 0.2
# The period windows of the challenge's second analysis, for two planets.
WINDOWS = {
    1: ((39.8107, 44.6684), (11.4815, 12.8825)),
    2: ((15.4882, 16.2181), (14.7911, 17.0608)),
    3: ((81.2831, 107.152), (38.0189, 42.658)),
    4: ((138.038, 204.174), (15.1356, 16.5959)),
    5: ((29.5121, 32.3594), (10.7152, 11.4815)),
    6: ((79.4328, 141.254), (31.6228, 50.1187)),
}
Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Star:
    """Velocities, the covariance of their noise without jitter, and bounds of the periods."""

    t: Array = field(repr=False)
    v: Array = field(repr=False)
    noise: Array = field(repr=False)
    bounds: tuple[tuple[float, float], ...]

    program = HERE / "kepler.stan"

    def stan_data(self) -> dict[str, Any]:
        shortest, longest = np.reshape(self.bounds, (-1, 2)).T
        return {"n": self.t.size, "planets": len(self.bounds), "t": self.t, "v": self.v,
                "noise": self.noise, "shortest": shortest, "longest": longest}  # fmt: skip

    @cached_property
    def _eigen(self) -> tuple[Array, Array]:
        return np.linalg.eigh(self.noise)

    def exact(self, fine: float = 1.0) -> float:
        """log Z of none or of one planet by quadrature.

        The offset and, for given period, shape and phase, the Cartesian components of the amplitude
        are Gaussian. What is left are sums over frequency, eccentricity, phase and jitter, and over
        the components in polar coordinates.
        """
        grid = _Grid(self, fine)
        if not self.bounds:
            return grid.without()
        low, high = self.bounds[0]
        step = 1 / (np.ptp(self.t) * 10)
        wide = np.linspace(1 / high, 1 / low, int((1 / low - 1 / high) / step) + 2)
        coarse = np.array([grid.given(f, 4, 8) for f in wide])
        kept = wide[coarse > coarse.max() - 12]
        parts, width = 2, wide[1] - wide[0]
        at = (kept[:, None] + width * ((np.arange(parts) + 0.5) / parts - 0.5)).ravel()
        at = at[(at > wide[0]) & (at < wide[-1])]
        log_m = np.array([grid.given(f, round(8 * fine), round(24 * fine)) for f in at])
        area = np.log(width / parts) - np.log(np.log(high / low))
        return float(logsumexp(log_m - np.log(at)) + area)


def kepler(longitude: Array, h: Array, k: Array) -> Array:
    """Velocity over semi-amplitude, as in the Stan program."""
    at = longitude + k * np.sin(longitude) - h * np.cos(longitude)
    for _ in range(3):
        c, d = np.cos(at), np.sin(at)
        bend, slope = k * d - h * c, 1 - k * c - h * d
        off = (at - bend - longitude) / slope
        at = at - off / (1 - 0.5 * off * bend / slope)
    c, d = np.cos(at), np.sin(at)
    flat = h / (1 + np.sqrt(1 - np.square(h) - np.square(k)))
    return k + (c - k + flat * (k * d - h * c)) / (1 - k * c - h * d)


@cache
def _amplitudes() -> _Amplitudes:
    return _Amplitudes()


class _Grid:
    """Nodes of jitter and of the amplitude's direction, and sums over the observations."""

    # Places that lie so many nats below the best add nothing.
    DEPTH = 14.0

    def __init__(self, star: Star, fine: float) -> None:
        self._star = star
        values, self._axes = star._eigen
        count = round(32 * fine)
        jitter, self._log_jitter = _nodes((0.0, 1.5, 3.0, JITTER), (count, count, 8))
        variance = values[:, None] + np.square(np.expm1(jitter))
        self._precise = 1 / variance  # (n, J)
        self._one, v = self._axes.sum(axis=0), star.v @ self._axes
        self._ones = np.square(self._one) @ self._precise
        self._v = v - self._one * (v.sum() / v.size)
        self._left = self._v * self._one @ self._precise
        # What is left of C, and of the amplitudes where there are none.
        self._base = -0.5 * np.log(2 * np.pi * variance).sum(axis=0) - np.log(2 * OFFSET)
        self._base += 0.5 * np.log(2 * np.pi / self._ones) - np.log(JITTER) + self._log_jitter
        self._base -= 0.5 * (np.square(self._v) @ self._precise - self._left**2 / self._ones)
        turn = 2 * np.pi * (np.arange(round(90 * fine)) + 0.5) / round(90 * fine)
        self._turns = np.stack([np.cos(turn), np.sin(turn)])
        self._top = -np.inf

    def without(self) -> float:
        return float(logsumexp(self._base))

    def given(self, f: float, shapes: int, phases: int) -> float:
        """log of the mean likelihood over all but the frequency."""
        star, precise = self._star, self._precise
        e, log_w = _nodes((0.0, 0.45, 1.0), (shapes, max(shapes // 2, 2)))
        log_w += np.log(e / ECCENTRICITY**2) - 0.5 * np.square(e / ECCENTRICITY)
        log_w -= np.log1p(-np.exp(-12.5))
        m = 2 * np.pi * (np.arange(phases) + 0.5) / phases
        x = 2 * np.pi * f * (star.t - star.t.mean()) + m[:, None]
        # An orbit with its pericentre at 0, and one at a right angle to it.
        c, d = _shapes(np.broadcast_to(x, (e.size, *x.shape)), e[:, None, None])
        columns = [(one @ self._axes).reshape(-1, star.t.size) for one in (c, d)]
        sums = [(one * self._one) @ precise for one in columns]
        pull = [
            (one * self._v) @ precise - s * self._left / self._ones
            for one, s in zip(columns, sums, strict=True)
        ]
        square = [
            (columns[i] * columns[j]) @ precise - sums[i] * sums[j] / self._ones
            for i, j in ((0, 0), (0, 1), (1, 1))
        ]
        outer = self._base + np.repeat(log_w - np.log(phases), phases)[:, None]
        # The most that any amplitude reaches.
        det = np.maximum(square[0] * square[2] - square[1] ** 2, 1e-300)
        most = outer + 0.5 * (
            square[2] * pull[0] ** 2 - 2 * square[1] * pull[0] * pull[1] + square[0] * pull[1] ** 2
        ) / det  # fmt: skip
        self._top = max(self._top, float(most.max()) - 8)
        seen = most > self._top - self.DEPTH
        if not seen.any():
            return -np.inf
        x, y = self._turns
        along, across, xx, xy, yy = (one[seen][:, None] for one in (*pull, *square))
        size = xx * x * x + 2 * xy * x * y + yy * y * y
        over_amplitude = _amplitudes()(size, along * x + across * y)
        return float(logsumexp(over_amplitude + outer[seen][:, None]) - np.log(x.size))


class _Amplitudes:
    """log of the mean of exp(-a K² / 2 + b K) over the prior of K, from a table."""

    def __init__(self) -> None:
        root, z = np.exp(np.linspace(-5, 4, 91)), np.linspace(-60, 60, 481)
        at, log_w = _nodes((0.0, 2.0, 4.0, AMPLITUDE), (160, 160, 60))
        k = np.expm1(at)
        exponent = np.multiply.outer(np.square(root), -0.5 * k * k)[:, None]
        exponent = exponent + np.multiply.outer(np.multiply.outer(root, z), k)
        log_mean = logsumexp(exponent + log_w - np.log(AMPLITUDE), axis=-1)
        self._spline = RectBivariateSpline(np.log(root), z, log_mean)

    def __call__(self, a: Array, b: Array) -> Array:
        root = np.sqrt(a)
        return self._spline.ev(np.log(root), b / root)


def _shapes(mean: Array, e: Array) -> tuple[Array, Array]:
    """cos of the true anomaly plus e, and minus its sine, from the mean anomaly."""
    zero = np.zeros_like(e)
    longitude = kepler(mean, zero, e)  # with the pericentre at 0
    return longitude, kepler(mean + np.pi / 2, e, zero)


def _nodes(ends: tuple[float, ...], counts: tuple[int, ...]) -> tuple[Array, Array]:
    """Gauss-Legendre nodes in each interval, and logs of their weights."""
    parts = []
    for low, high, count in zip(ends, ends[1:], counts, strict=False):
        at, weight = np.polynomial.legendre.leggauss(count)
        parts.append((low + (high - low) * (at + 1) / 2, np.log(weight * (high - low) / 2)))
    places, log_weights = zip(*parts, strict=True)
    return np.concatenate(places), np.concatenate(log_weights)


def challenge(number: int, planets: int) -> Star:
    """A data set of the challenge: 200 velocities, with correlated noise of known kernel."""
    t, v, s = np.loadtxt(HERE / "challenge" / f"rvs_{number:04d}.txt").T
    apart = np.subtract.outer(t, t)
    kernel = 3 * np.exp(-2 * np.sin(np.pi * apart / 20) ** 2 - 0.5 * np.square(apart / 50))
    return Star(t, v, kernel + np.diag(np.square(s)), WINDOWS[number][:planets])
