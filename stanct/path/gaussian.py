"""The dense Gaussian base, and densities and moments of Gaussians."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError

LOG_2PI = float(np.log(2 * np.pi))


class ScaleFactors(NamedTuple):
    """The scale L of whitened coordinates in the form used by compiled code.

    `lower`, shape (D, D), is L, or of shape (0, 0) where L = diag(d) (I + U diag(s − 1) Uᵀ) with
    `diagonal` d, orthonormal `vectors` U, shape (D, r), and `stretch` s.
    """

    lower: Array
    diagonal: Array
    vectors: Array
    stretch: Array


class Normal:
    """What Gaussian bases have in common: whitened coordinates that are standard normal."""

    mean: Array

    @property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        return self.mean.size

    @property
    @abstractmethod
    def log_det_scale(self) -> float:
        """log det L."""

    @property
    def is_gaussian(self) -> bool:
        """Always true."""
        return True

    @property
    def components(self) -> None:
        """None, because the base is not a mixture."""
        return None

    @abstractmethod
    def whiten(self, x: Array) -> Array:
        """z = L⁻¹ (x − m) for x of shape (..., D)."""

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Whitened draws, shape (count, D)."""
        return rng.standard_normal((count, self.dimension))

    def standardised(self, z: Array) -> Array:
        """z itself, which is standard normal if drawn from the base, shape (..., D)."""
        return z

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D)."""
        return standard_log_density(self.whiten(x)) - self.log_det_scale

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return standard_log_density(z) - (log_density + self.log_det_scale)


@dataclass(frozen=True)
class GaussianBase(Normal):
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
                remedy="Write parameters in units in which their scales are closer to each other.",
            ) from None
        return cls(np.asarray(mean, float), scale)

    @property
    def spread(self) -> Array:
        """Standard deviations of x, shape (D,)."""
        return np.sqrt(np.square(self.scale).sum(axis=1))

    @property
    def covariance(self) -> Array:
        """L Lᵀ, shape (D, D)."""
        return self.scale @ self.scale.T

    @property
    def log_det_scale(self) -> float:
        """log det L."""
        return float(np.log(np.diag(self.scale)).sum())

    @property
    def scale_factors(self) -> ScaleFactors:
        """L for compiled code. A diagonal L is passed as such, so that a product costs O(D)."""
        no_vectors, no_stretch = np.zeros((self.dimension, 0)), np.zeros(0)
        if np.count_nonzero(self.scale) == self.dimension:
            # Make a copy, which is writable like every other array passed to kernels.
            diagonal = np.diag(self.scale).copy()
            return ScaleFactors(np.zeros((0, 0)), diagonal, no_vectors, no_stretch)
        return ScaleFactors(self.scale, np.zeros(self.dimension), no_vectors, no_stretch)

    def unwhiten(self, z: Array) -> Array:
        """x = m + L z for z of shape (..., D)."""
        return self.mean + z @ self.scale.T

    def whiten(self, x: Array) -> Array:
        """z = L⁻¹ (x − m) for x of shape (..., D)."""
        flat = np.reshape(x - self.mean, (-1, self.dimension))
        z = solve_triangular(self.scale, flat.T, lower=True, check_finite=False).T
        return z.reshape(np.shape(x))

    def dense(self) -> GaussianBase:
        """The base itself."""
        return self

    def refitted(
        self, z: Array, weights: Array | None = None, *, least_shrinkage: float
    ) -> GaussianBase:
        """The Gaussian with the moments of whitened draws; see `Base.refitted`.

        Eigenvalues of the draws' covariance in whitened coordinates are raised to at least
        `least_shrinkage`.
        """
        shift, covariance = gaussian_moments(z, weights=weights)
        variances, axes = np.linalg.eigh(covariance)
        scale = self.scale @ (axes * np.sqrt(np.maximum(variances, least_shrinkage)))
        return GaussianBase.from_covariance(self.unwhiten(shift), scale @ scale.T)

    def arrays(self) -> dict[str, Array]:
        """The arrays of the base by the names under which a run stores them."""
        return {"base_mean": self.mean, "base_scale": self.scale}


def standard_log_density(z: Array) -> Array:
    """log N(z; 0, I) over the last axis."""
    return -0.5 * (np.square(z).sum(-1) + z.shape[-1] * LOG_2PI)


def mixture_moments(
    log_weights: Sequence[float] | Array,
    means: Sequence[Array] | Array,
    covariances: Sequence[Array] | Array,
) -> tuple[Array, Array, float]:
    """Mean, covariance and log total weight of K weighted densities ([GS] 25).

    m = Σ π_i m_i and Σ = Σ π_i (Σ_i + (m_i − m)(m_i − m)ᵀ), with π_i ∝ exp(ℓ_i).
    """
    log_weights = np.asarray(log_weights, float)
    log_total = float(log_sum_exp(log_weights))
    weights = np.exp(log_weights - log_total)
    mean = np.einsum("i,id->d", weights, means)
    offsets = np.array([one - mean for one in means])
    covariance = np.einsum("i,ide->de", weights, covariances)
    covariance += (offsets * weights[:, None]).T @ offsets
    return mean, covariance, log_total


def gaussian_moments(points: Array, *, weights: Array | None = None) -> tuple[Array, Array]:
    """Mean and covariance of weighted points, shape (count, D).

    For n effective points, correlations are shrunk by n / (n + D). Without that, a base of a
    hundred dimensions would be far too narrow in some directions and too wide in others.
    """
    count, dimension = points.shape
    share = np.full(count, 1 / count) if weights is None else weights / weights.sum()
    size = 1 / np.square(share).sum()
    mean = share @ points
    centred = points - mean
    covariance = (centred * share[:, None]).T @ centred * (size / max(size - 1, 1e-9))
    kept = size / (size + dimension)
    variance = np.diag(covariance).copy()
    # A coordinate that never moved has unknown scale; keep its variance positive.
    variance[variance < 1e-20] = 1e-20
    covariance = kept * covariance
    np.fill_diagonal(covariance, variance)
    return mean, covariance
