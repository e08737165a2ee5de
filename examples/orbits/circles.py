"""K2-24 with circular orbits: data, the likelihood in NumPy, and exact evidences by quadrature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri

HERE = Path(__file__).resolve().parent
SHORTEST, LONGEST = 2.0, 100.0
AMPLITUDE, OFFSET, JITTER = 5.0, 20.0, 5.0
Array = np.ndarray


class Circles:
    """32 velocities of K2-24 (Petigura et al. 2016) and so many planets on circles."""

    program = HERE / "circles.stan"

    def __init__(self, planets: int) -> None:
        t, self.v, self.s = np.loadtxt(HERE / "k2-24.csv", delimiter=",", skiprows=1).T
        self.t, self.planets = t - t.mean(), planets

    def stan_data(self) -> dict[str, Any]:
        return {"n": self.t.size, "planets": self.planets, "day": self.t, "velocity": self.v,
                "error": self.s}  # fmt: skip

    @property
    def names(self) -> list[str]:
        return [
            "gamma",
            "jitter",
            *(f"{x}{p}" for p in range(self.planets) for x in ("lnP", *"ab")),
        ]

    def from_cube(self, u: Array) -> Array:
        """Offset, jitter, and log P and both amplitudes of each planet."""
        x = np.empty_like(u)
        x[..., 0] = OFFSET * ndtri(u[..., 0])
        x[..., 1] = -JITTER * np.log1p(-u[..., 1])
        x[..., 2::3] = np.log(SHORTEST) + np.log(LONGEST / SHORTEST) * u[..., 2::3]
        x[..., 3::3] = AMPLITUDE * ndtri(u[..., 3::3])
        x[..., 4::3] = AMPLITUDE * ndtri(u[..., 4::3])
        return x

    def log_likelihood(self, x: Array) -> Array:
        rest = self.v - x[:, :1]
        for log_p, a, b in zip(x.T[2::3], x.T[3::3], x.T[4::3], strict=True):
            angle = 2 * np.pi * self.t / np.exp(log_p)[:, None]
            rest = rest - a[:, None] * np.sin(angle) - b[:, None] * np.cos(angle)
        variance = np.square(self.s) + np.square(x[:, 1:2])
        return -0.5 * (np.square(rest) / variance + np.log(2 * np.pi * variance)).sum(axis=1)

    def exact(self, count: int = 1001, nodes: int = 32) -> float:
        """log Z by sums over frequencies and jitter; the rest is Gaussian."""
        at, weight = np.polynomial.legendre.leggauss(nodes)
        jitters = 8 * (at + 1)
        log_w = np.log(8 * weight / JITTER) - jitters / JITTER
        return float(
            logsumexp([w + self._given(j, count) for j, w in zip(jitters, log_w, strict=True)])
        )

    def _given(self, jitter: float, count: int) -> float:
        size = self.t.size
        variance = np.square(self.s) + jitter**2
        lower = np.linalg.cholesky(np.diag(variance) + OFFSET**2)
        own = np.linalg.solve(lower, self.v)
        base = -0.5 * own @ own - np.log(np.diag(lower)).sum() - 0.5 * size * np.log(2 * np.pi)
        if not self.planets:
            return float(base)
        f = np.linspace(1 / LONGEST, 1 / SHORTEST, count)
        x = 2 * np.pi * np.outer(self.t, f)
        waves = AMPLITUDE * np.stack([np.sin(x), np.cos(x)], axis=-1).reshape(size, -1)
        white = np.linalg.solve(lower, waves)
        inner = (white.T @ white).reshape(count, 2, count, 2).transpose(0, 2, 1, 3)
        pull = (white.T @ own).reshape(count, 2)
        log_w = np.log((f[1] - f[0]) / f / np.log(LONGEST / SHORTEST))
        log_w[[0, -1]] -= np.log(2)
        each = inner[np.arange(count), np.arange(count)] + np.eye(2)
        if self.planets == 1:
            return float(base + logsumexp(_gained(each, pull) + log_w))
        found = []
        for i in range(count):  # of two planets, that of the lower frequency
            rest = slice(i, None)
            first = np.broadcast_to(each[i], each[rest].shape)
            above = np.concatenate([first, inner[i, rest]], axis=-1)
            below = np.concatenate([np.swapaxes(inner[i, rest], 1, 2), each[rest]], axis=-1)
            both = np.concatenate([np.broadcast_to(pull[i], pull[rest].shape), pull[rest]], axis=-1)
            gained = _gained(np.concatenate([above, below], axis=-2), both) + log_w[rest]
            gained[1:] += np.log(2)
            found.append(logsumexp(gained) + log_w[i])
        return float(base + logsumexp(found))


def _gained(inner: Array, pull: Array) -> Array:
    """log of what integrating over amplitudes adds, for matrices (m, k, k) and slopes (m, k)."""
    best = np.linalg.solve(inner, pull[..., None])[..., 0]
    return 0.5 * (pull * best).sum(axis=-1) - 0.5 * np.linalg.slogdet(inner)[1]
