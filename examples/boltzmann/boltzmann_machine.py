"""Boltzmann machines and their relaxations ([GS] Graham & Storkey 2017, appendix B).

A Boltzmann machine is P(s) = exp(½ sᵀ W s + bᵀ s) / Z_B over s ∈ {−1, +1}^B. Let D be a diagonal
that makes W + D positive semi-definite, and Q Qᵀ = W + D. The continuous relaxation

    −φ(x) = −½ xᵀx + Σ_i log cosh(q_iᵀ x + b_i),   x | s ~ N(Qᵀ s, I)

has the normaliser log Z = log Z_B + ½ Tr D + ½ D_x log 2π − B log 2 and the moments
E[x] = Qᵀ E[s], E[x xᵀ] = Qᵀ E[s sᵀ] Q + I. This multimodal density on R^{D_x} has exact answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from stanct.bases.fits import FittedBase
from stanct.bases.local import LocalFit, best_of_each_mode, moment_match
from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.path.gaussian import LOG_2PI

# Exact sums visit 2^B states: about 20 seconds for B = 30, and four times as long for B + 2.
MOST_UNITS = 34
# States of one half that are summed at once with all states of the other half.
ROWS = 256
# Eigenvalues of W + D below this share of the largest are zero up to errors of the barrier.
VANISHING = 1e-6


@dataclass(frozen=True)
class Moments:
    """Exact log normaliser, mean and covariance of a Boltzmann machine or of its relaxation.

    Attributes
    ----------
    log_z
        Natural log.
    mean : shape (n,)
    covariance : shape (n, n)
    """

    log_z: float
    mean: Array = field(repr=False)
    covariance: Array = field(repr=False)


@dataclass(frozen=True)
class BoltzmannMachine:
    """A Boltzmann machine over B signs, with its relaxation.

    Attributes
    ----------
    weights : shape (B, B)
        W, symmetric with a zero diagonal.
    biases : shape (B,)
        The biases b.

    Raises
    ------
    StanctError
        Shapes disagree, or weights are not finite, symmetric and zero on the diagonal.
    """

    weights: Array = field(repr=False)
    biases: Array = field(repr=False)

    def __post_init__(self) -> None:
        weights, biases = np.asarray(self.weights, float), np.asarray(self.biases, float)
        if biases.ndim != 1 or biases.size < 2 or weights.shape != (biases.size, biases.size):
            raise StanctError(
                f"Weights of shape {weights.shape} and biases of shape {biases.shape} are no "
                "Boltzmann machine.",
                remedy="Pass weights of shape (B, B) and biases of shape (B,), B at least 2.",
            )
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise StanctError("The weights and biases of a Boltzmann machine must be finite.")
        if not np.allclose(weights, weights.T, atol=1e-10) or np.any(np.diag(weights)):
            raise StanctError(
                "The weights of a Boltzmann machine must be symmetric with a zero diagonal.",
                remedy="A diagonal only adds the constant ½ Tr W to the energy: leave it out.",
            )
        object.__setattr__(self, "weights", 0.5 * (weights + weights.T))
        object.__setattr__(self, "biases", biases)

    @classmethod
    def random(
        cls,
        units: int,
        rng: np.random.Generator,
        *,
        scale: float = 6.0,
        steepness: float = 2.0,
        bias_sd: float = 0.1,
    ) -> BoltzmannMachine:
        """A random machine with the frustrated, low-rank-like weights of [GS] appendix B.

        The eigenvalues of W + a diagonal are s₁ tanh(s₂ η) with η standard normal, and its
        eigenvectors are uniform over rotations. s₁ is `scale` and s₂ is `steepness`. Large s₁ gives
        well separated modes.
        """
        if units < 2:
            raise StanctError(f"A Boltzmann machine needs two or more units, not {units}.")
        axes, triangle = np.linalg.qr(rng.standard_normal((units, units)))
        axes *= np.sign(np.diag(triangle))
        values = scale * np.tanh(steepness * rng.standard_normal(units))
        weights = (axes * values) @ axes.T
        np.fill_diagonal(weights, 0.0)
        return cls(0.5 * (weights + weights.T), bias_sd * rng.standard_normal(units))

    @property
    def units(self) -> int:
        """B, the number of units."""
        return self.biases.size

    @cached_property
    def diagonal(self) -> Array:
        """D, shape (B,), which minimises the top eigenvalue of a semi-definite W + D ([GS] 46).

        D is found by Newton's method on the barrier t − μ log det(t I − W − D) − μ log det(W + D),
        whose distance from the optimum is 2 μ B.
        """
        eigenvalues = np.linalg.eigvalsh(self.weights)
        room = max(float(np.ptp(eigenvalues)), 1.0)
        # The unknowns are D and the bound t on the top eigenvalue.
        point = np.append(np.full(self.units, room - eigenvalues[0]), 3 * room)
        barrier = room
        while barrier > 1e-11 * room:
            barrier *= 0.2
            for _ in range(100):
                value, gradient, curvature = self._barrier(point, barrier)
                step = -np.linalg.solve(curvature, gradient)
                decrement = float(-gradient @ step)
                if decrement < 1e-6 * barrier:
                    break
                length = 1.0
                while length > 1e-12 and not (
                    self._barrier(point + length * step, barrier)[0]
                    <= value - 0.1 * length * decrement
                ):
                    length *= 0.5
                point = point + length * step
        return point[:-1]

    def _barrier(self, point: Array, barrier: float) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian of the barrier; +inf where a matrix is not definite."""
        lower = self.weights + np.diag(point[:-1])
        upper = point[-1] * np.eye(self.units) - lower
        try:
            logs = [np.log(np.diag(np.linalg.cholesky(m))).sum() for m in (lower, upper)]
        except np.linalg.LinAlgError:
            return np.inf, point, np.eye(point.size)
        up, low = np.linalg.inv(upper), np.linalg.inv(lower)
        gradient = np.append(np.diag(up) - np.diag(low), -np.trace(up)) * barrier
        gradient[-1] += 1
        curvature = np.zeros((point.size, point.size))
        curvature[:-1, :-1] = up**2 + low**2
        curvature[:-1, -1] = curvature[-1, :-1] = -np.square(up).sum(axis=1)
        curvature[-1, -1] = np.square(up).sum()
        return float(point[-1] - 2 * barrier * sum(logs)), gradient, barrier * curvature

    @cached_property
    def factor(self) -> Array:
        """Q, shape (B, D_x), with Q Qᵀ = W + D, without directions in which W + D vanishes."""
        values, axes = np.linalg.eigh(self.weights + np.diag(self.diagonal))
        kept = values > VANISHING * values[-1]
        return axes[:, kept] * np.sqrt(values[kept])

    @property
    def dimension(self) -> int:
        """D_x, the number of coordinates of the relaxation."""
        return self.factor.shape[1]

    @property
    def log_ratio(self) -> float:
        """log Z − log Z_B."""
        trace = float(np.square(self.factor).sum())
        return 0.5 * trace + 0.5 * self.dimension * LOG_2PI - self.units * np.log(2)

    def stan_data(self) -> dict[str, Any]:
        """Data of ``stan_models/boltzmann``, in its plain and its GLM form."""
        return {"B": self.units, "D": self.dimension, "Q": self.factor, "b": self.biases}

    def log_density_gradient(self, x: Array) -> tuple[float, Array]:
        """−φ and its gradient at x of shape (D_x,)."""
        y = self.factor @ x + self.biases
        value = -0.5 * float(x @ x) + float(_log_cosh(y).sum())
        return value, self.factor.T @ np.tanh(y) - x

    def exact(self) -> Moments:
        """The machine's own log Z_B, E[s] and Cov[s] by a sum over all 2^B states.

        The units are split in halves a and b. exp(A_i + B_j + a_iᵀ W_ab b_j) is summed by blocks of
        states a_i against all b_j, so memory grows only with 2^(B/2).

        Raises
        ------
        StanctError
            There are more than `MOST_UNITS` units.
        """
        if self.units > MOST_UNITS:
            raise StanctError(
                f"2^{self.units} states are too many: soon such a sum would take days.",
                remedy=f"Use {MOST_UNITS} units or fewer.",
            )
        half = self.units // 2
        first, last = slice(None, half), slice(half, None)
        a, b = _signs(half), _signs(self.units - half)
        energy_a, energy_b = self._energy(a, first), self._energy(b, last)
        coupling = self.weights[first, last] @ b.T
        top = self._high_energy()
        total, sum_b = 0.0, np.zeros(len(b))
        second = np.zeros((self.units, self.units))
        mean = np.zeros(self.units)
        for start in range(0, len(a), ROWS):
            rows = a[start : start + ROWS]
            block = rows @ coupling
            block += energy_a[start : start + ROWS, None] - top
            block += energy_b
            np.exp(block, out=block)
            by_row = block.sum(axis=1)
            total += by_row.sum()
            sum_b += block.sum(axis=0)
            mean[first] += by_row @ rows
            second[first, first] += (rows * by_row[:, None]).T @ rows
            second[first, last] += rows.T @ (block @ b)
        mean[last] = sum_b @ b
        second[last, last] = (b * sum_b[:, None]).T @ b
        second[last, first] = second[first, last].T
        mean, second = mean / total, second / total
        return Moments(float(top + np.log(total)), mean, second - np.outer(mean, mean))

    def _energy(self, signs: Array, part: slice) -> Array:
        """½ sᵀ W s + bᵀ s for states of the units in `part` alone, shape (states,)."""
        within = 0.5 * np.einsum("ij,ij->i", signs @ self.weights[part, part], signs)
        return within + signs @ self.biases[part]

    def _high_energy(self) -> float:
        """The largest energy found by a local search, by which the sums are scaled."""
        rng = np.random.default_rng(0)
        best = -np.inf
        for _ in range(50):
            s = rng.choice([-1.0, 1.0], self.units)
            for _ in range(self.units):
                gain = -2 * s * (self.weights @ s + self.biases)
                flip = int(gain.argmax())
                if gain[flip] <= 0:
                    break
                s[flip] = -s[flip]
            best = max(best, 0.5 * s @ self.weights @ s + self.biases @ s)
        return float(best)

    def relaxed(self, of_signs: Moments) -> Moments:
        """Exact moments of the relaxation from those of the machine."""
        q = self.factor
        return Moments(
            of_signs.log_z + self.log_ratio,
            q.T @ of_signs.mean,
            q.T @ of_signs.covariance @ q + np.eye(self.dimension),
        )

    def mean_field(self, rng: np.random.Generator, *, starts: int = 50) -> FittedBase:
        """The Gaussian base of [GS] 7.2, with the moments of the mixture of mean-field fits."""
        return FittedBase(*moment_match(self.mean_field_fits(rng, starts=starts)))

    def mean_field_fits(
        self, rng: np.random.Generator, *, starts: int = 50
    ) -> tuple[LocalFit, ...]:
        """Mean-field fits, one for each distinct mode, best first.

        Fixed points m_i = tanh(b_i + Σ_j W_ij m_j) are found from random starts. Each is a
        factorised Q(s) with a lower bound on log Z_B, and gives a local Gaussian
        N(Qᵀ m, Qᵀ diag(1 − m²) Q + I).
        """
        fits = []
        for _ in range(starts):
            mean = np.tanh(rng.standard_normal(self.units))
            for _ in range(1000):
                before = mean.copy()
                for i, row in enumerate(self.weights):
                    mean[i] = np.tanh(self.biases[i] + row @ mean)
                if np.abs(mean - before).max() < 1e-10:
                    break
            fits.append(self._mean_field_fit(mean))
        return best_of_each_mode(fits)

    def _mean_field_fit(self, mean: Array) -> LocalFit:
        up, down = 0.5 * (1 + mean), 0.5 * (1 - mean)
        entropy = -float(_x_log_x(up).sum() + _x_log_x(down).sum())
        bound = 0.5 * mean @ self.weights @ mean + self.biases @ mean + entropy
        place = self.factor.T @ mean
        covariance = (self.factor.T * (1 - mean**2)) @ self.factor + np.eye(self.dimension)
        return LocalFit(place, covariance, float(bound + self.log_ratio), place[None])


def _signs(units: int) -> Array:
    """All states of this many units, shape (2^units, units), with entries −1 and +1."""
    states = np.arange(2**units, dtype=np.int64)[:, None]
    return 2.0 * ((states >> np.arange(units)) & 1) - 1.0


def _log_cosh(y: Array) -> Array:
    size = np.abs(y)
    return size + np.log1p(np.exp(-2 * size)) - np.log(2)


def _x_log_x(x: Array) -> Array:
    return np.where(x > 0, x * np.log(np.maximum(x, 1e-300)), 0.0)
