"""Base densities: normalised Gaussians fitted to the target, and the guess log ζ at log Z.

Local fits, one a mode, are weighted by their evidence and joined by matching moments:
m = Σ π_i m_i, Σ = Σ π_i (Σ_i + (m_i − m)(m_i − m)ᵀ), log ζ = log Σ exp ℓ_i  ([GS] 25).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from stanct.arrays import Array, log_sum_exp
from stanct.errors import SamplingError

LOG_2PI = float(np.log(2 * np.pi))

# Fits whose means differ by less than this many standard deviations in every coordinate are one
# mode; two fits of one mode must not count its evidence twice.
SAME_MODE = 2.0


@dataclass(frozen=True)
class GaussianBase:
    """The base N(m, L Lᵀ) on the unconstrained space; x = m + L z with z whitened.

    Attributes
    ----------
    mean : shape (D,)
    scale : shape (D, D)
        L, lower triangular with a positive diagonal.
    """

    mean: Array = field(repr=False)
    scale: Array = field(repr=False)

    def __post_init__(self) -> None:
        mean, scale = np.asarray(self.mean, float), np.asarray(self.scale, float)
        if mean.ndim != 1 or scale.shape != (mean.size, mean.size):
            raise SamplingError(
                f"A base of mean shape {mean.shape} needs a square scale of that size, "
                f"not {scale.shape}."
            )
        if not (np.isfinite(mean).all() and np.isfinite(scale).all()):
            raise SamplingError("The base's mean and scale must be finite.")
        if np.any(np.triu(scale, 1)) or np.any(np.diag(scale) <= 0):
            raise SamplingError(
                "The base's scale must be lower triangular with a positive diagonal.",
                remedy="Pass numpy.linalg.cholesky(covariance).",
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def from_covariance(cls, mean: Array, covariance: Array) -> GaussianBase:
        """The base with this mean, shape (D,), and covariance, shape (D, D)."""
        covariance = np.asarray(covariance, float)
        try:
            scale = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise SamplingError(
                "The covariance of the base is not positive definite.",
                remedy="Pass a base of your own, or base='laplace'.",
            ) from None
        return cls(np.asarray(mean, float), scale)

    @property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        return self.mean.size

    @property
    def covariance(self) -> Array:
        """L Lᵀ, shape (D, D)."""
        return self.scale @ self.scale.T

    @property
    def log_det_scale(self) -> float:
        """log det L."""
        return float(np.log(np.diag(self.scale)).sum())

    def unwhiten(self, z: Array) -> Array:
        """x = m + L z for z of shape (..., D)."""
        return self.mean + z @ self.scale.T

    def whiten(self, x: Array) -> Array:
        """z = L⁻¹ (x − m) for x of shape (..., D)."""
        flat = np.reshape(x - self.mean, (-1, self.dimension))
        z = solve_triangular(self.scale, flat.T, lower=True, check_finite=False).T
        return z.reshape(np.shape(x))

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Whitened draws, shape (count, D)."""
        return rng.standard_normal((count, self.dimension))

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D)."""
        return standard_log_density(self.whiten(x)) - self.log_det_scale

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return standard_log_density(z) - (log_density + self.log_det_scale)


def standard_log_density(z: Array) -> Array:
    """log N(z; 0, I) over the last axis."""
    return -0.5 * (np.square(z).sum(-1) + z.shape[-1] * LOG_2PI)


@dataclass(frozen=True)
class LocalFit:
    """A Gaussian fit to one mode of the target.

    Attributes
    ----------
    mean, covariance : shapes (D,) and (D, D)
    log_evidence
        ℓ, an estimate of or a lower bound on the log mass of the mode.
    points : shape (n, D)
        Unconstrained points drawn from the fit or from the mode.
    """

    mean: Array = field(repr=False)
    covariance: Array = field(repr=False)
    log_evidence: float
    points: Array = field(repr=False)


def moment_match(fits: Sequence[LocalFit]) -> tuple[GaussianBase, float]:
    """Join local fits into one Gaussian base; returns it with log ζ  ([GS] 25)."""
    evidence = np.array([fit.log_evidence for fit in fits])
    log_zeta = float(log_sum_exp(evidence))
    weights = np.exp(evidence - log_zeta)
    mean = np.einsum("i,id->d", weights, [fit.mean for fit in fits])
    offsets = np.array([fit.mean - mean for fit in fits])
    covariance = np.einsum("i,ide->de", weights, [fit.covariance for fit in fits])
    covariance += (offsets * weights[:, None]).T @ offsets
    return GaussianBase.from_covariance(mean, covariance), log_zeta


def distinct_modes(fits: Sequence[LocalFit]) -> list[list[int]]:
    """Group fits that describe the same mode, best evidence first."""
    groups: list[list[int]] = []
    for i in sorted(range(len(fits)), key=lambda i: -fits[i].log_evidence):
        for group in groups:
            if any(_distance(fits[i], fits[j]) < SAME_MODE for j in group):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _distance(one: LocalFit, other: LocalFit) -> float:
    """Largest difference of the means in any coordinate, in pooled standard deviations."""
    variance = 0.5 * (np.diag(one.covariance) + np.diag(other.covariance))
    return float(np.max(np.abs(one.mean - other.mean) / np.sqrt(variance)))


def gaussian_moments(points: Array, *, weights: Array | None = None) -> tuple[Array, Array]:
    """Mean and covariance of weighted points, the correlations shrunk for the sample's size.

    With n effective points the correlations are multiplied by n / (n + D): without it the base of a
    hundred dimensions would be far too narrow in some directions and wide in others.

    Parameters
    ----------
    points : shape (n, D)
    weights : shape (n,)
        Non-negative; equal by default.
    """
    count, dimension = points.shape
    share = np.full(count, 1 / count) if weights is None else weights / weights.sum()
    size = 1 / np.square(share).sum()
    mean = share @ points
    centred = points - mean
    covariance = (centred * share[:, None]).T @ centred * (size / max(size - 1, 1e-9))
    kept = size / (size + dimension)
    variance = np.diag(covariance).copy()
    # A coordinate that never moved says nothing about its scale: keep it proper.
    variance[variance < 1e-20] = 1e-20
    covariance = kept * covariance
    np.fill_diagonal(covariance, variance)
    return mean, covariance


def bridge_log_evidence(
    log_density_at_draws: Array, log_q_at_draws: Array, log_density_at_q: Array, log_q_at_q: Array
) -> float:
    """Meng & Wong's (1996) optimal bridge between draws of a density and of a normalised q.

    All arguments are natural logs of shapes (n,), (n,), (m,), (m,); −inf is allowed in the third.
    Returns the log normalising constant of the density.
    """
    ratio_draws, ratio_q = log_density_at_draws - log_q_at_draws, log_density_at_q - log_q_at_q
    share = ratio_draws.size / (ratio_draws.size + ratio_q.size)
    log_share, log_rest = np.log(share), np.log1p(-share)
    log_z = float(np.median(ratio_draws))
    for _ in range(1000):
        top = log_sum_exp(ratio_q - np.logaddexp(log_share + ratio_q, log_rest + log_z))
        bottom = log_sum_exp(-np.logaddexp(log_share + ratio_draws, log_rest + log_z))
        new = float(top - np.log(ratio_q.size) - bottom + np.log(ratio_draws.size))
        if not np.isfinite(new):
            return log_z
        if abs(new - log_z) < 1e-8:
            return new
        log_z = new
    return log_z


def hessian(gradient_at: Callable[[Array], Array], point: Array) -> Array:
    """Symmetric matrix of second derivatives from central differences of a gradient function."""
    dimension = point.size
    result = np.empty((dimension, dimension))
    for k in range(dimension):
        offset = np.zeros(dimension)
        offset[k] = 1e-4 * max(1.0, abs(point[k]))
        result[k] = (gradient_at(point + offset) - gradient_at(point - offset)) / (2 * offset[k])
    return 0.5 * (result + result.T)


def positive_covariance(precision: Array) -> Array:
    """Inverse of a precision matrix whose smallest eigenvalues are lifted to be positive."""
    values, vectors = np.linalg.eigh(precision)
    floor = max(values.max() * 1e-8, 1e-8)
    return (vectors / np.maximum(values, floor)) @ vectors.T
