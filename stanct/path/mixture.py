"""Other bases than one dense Gaussian: low rank for many dimensions, mixtures where it is sampled.

Every base has whitened coordinates, x = m + L z, in which samplers move. A mixture is whitened by
its overall moments, and its density in z is a mixture again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from stanct.arrays import Array, log_sum_exp
from stanct.errors import SamplingError
from stanct.path.gaussian import LOG_2PI, GaussianBase, LocalFit, moment_match, standard_log_density

# A component that stands for what no fit has seen: its share, and its covariance relative to the
# fits' overall one.
DEFENSIVE_SHARE, DEFENSIVE_WIDTH = 0.2, 2.0


@dataclass(frozen=True)
class LowRankBase:
    """The base N(m, L Lᵀ) with L = diag(d) (I + U diag(s − 1) Uᵀ), for thousands of dimensions.

    Products with L cost O(D r), and it takes D (r + 2) numbers.

    Attributes
    ----------
    mean, diagonal : shape (D,)
        m and d > 0.
    vectors : shape (D, r)
        U, orthonormal columns.
    stretch : shape (r,)
        s > 0, the standard deviations of (x − m) / d along U.
    """

    mean: Array = field(repr=False)
    diagonal: Array = field(repr=False)
    vectors: Array = field(repr=False)
    stretch: Array = field(repr=False)

    def __post_init__(self) -> None:
        names = ("mean", "diagonal", "vectors", "stretch")
        mean, diagonal, vectors, stretch = arrays = [
            np.asarray(getattr(self, name), float) for name in names
        ]
        shapes = (mean.ndim == 1, diagonal.shape == mean.shape)
        if not all(shapes) or vectors.shape != (mean.size, stretch.size) or stretch.ndim != 1:
            raise SamplingError(
                f"A low-rank base of mean shape {mean.shape} needs a diagonal of that shape, "
                f"vectors (D, r) and a stretch (r,), not {diagonal.shape}, {vectors.shape} and "
                f"{stretch.shape}."
            )
        if not all(np.isfinite(array).all() for array in arrays):
            raise SamplingError("The numbers of a low-rank base must be finite.")
        if np.any(diagonal <= 0) or np.any(stretch <= 0):
            raise SamplingError("The diagonal and the stretch of a base must be positive.")
        if not np.allclose(vectors.T @ vectors, np.eye(stretch.size), atol=1e-8):
            raise SamplingError(
                "The vectors of a low-rank base must be orthonormal.",
                remedy="Pass the columns of numpy.linalg.qr(vectors)[0].",
            )
        for name, array in zip(names, arrays, strict=True):
            object.__setattr__(self, name, array)

    @classmethod
    def from_points(
        cls, points: Array, *, weights: Array | None = None, rank: int = 50
    ) -> LowRankBase:
        """The base with the variances of points and the correlations that stand out of the noise.

        Points are standardised. The correlation matrix of n effective uncorrelated points has no
        eigenvalue above (1 + √(D/n))² (Marchenko & Pastur 1967); the directions of those above, at
        most `rank`, keep the variance that noise would have raised to what was seen, the rest one.

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
        centred = (points - mean) * np.sqrt(share * size / max(size - 1, 1e-9))[:, None]
        variance = np.square(centred).sum(axis=0)
        variance[variance < 1e-20] = 1e-20
        diagonal = np.sqrt(variance)
        _, singular, rows = np.linalg.svd(centred / diagonal, full_matrices=False)
        values, ratio = singular**2, dimension / size
        kept = min(int((values > (1 + np.sqrt(ratio)) ** 2).sum()), rank)
        # Inverse of what noise makes of a spike ℓ: λ = ℓ (1 + γ / (ℓ − 1)) (Baik & Silverstein).
        half = 0.5 * (values[:kept] + 1 - ratio)
        spikes = half + np.sqrt(np.maximum(half**2 - values[:kept], 0))
        vectors = rows[:kept].T
        # What the spikes take from the total of each coordinate's variance stays in its diagonal.
        excess = np.square(vectors) @ (spikes - 1)
        return cls(mean, diagonal / np.sqrt(1 + excess), vectors, np.sqrt(spikes))

    @property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        return self.mean.size

    @property
    def log_det_scale(self) -> float:
        """log det L."""
        return float(np.log(self.diagonal).sum() + np.log(self.stretch).sum())

    @property
    def covariance(self) -> Array:
        """L Lᵀ, shape (D, D)."""
        inner = (self.vectors * (self.stretch**2 - 1)) @ self.vectors.T + np.eye(self.dimension)
        return self.diagonal[:, None] * inner * self.diagonal

    def dense(self) -> GaussianBase:
        """The same Gaussian with a triangular scale, in other whitened coordinates."""
        return GaussianBase.from_covariance(self.mean, self.covariance)

    def unwhiten(self, z: Array) -> Array:
        """x = m + L z for z of shape (..., D)."""
        return self.mean + self.diagonal * self._stretched(z, self.stretch)

    def whiten(self, x: Array) -> Array:
        """z = L⁻¹ (x − m) for x of shape (..., D)."""
        return self._stretched((x - self.mean) / self.diagonal, 1 / self.stretch)

    def _stretched(self, y: Array, stretch: Array) -> Array:
        return y + ((y @ self.vectors) * (stretch - 1)) @ self.vectors.T

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Whitened draws, shape (count, D)."""
        return rng.standard_normal((count, self.dimension))

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D)."""
        return standard_log_density(self.whiten(x)) - self.log_det_scale

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return standard_log_density(z) - (log_density + self.log_det_scale)


@dataclass(frozen=True)
class MixtureBase:
    """The base Σ_k π_k N(m_k, L_k L_kᵀ), for samplers that draw from their base.

    Moves at a fixed β do not cross between its components any better than between the target's
    modes, so simulated and parallel tempering and annealing take it, which draw afresh at β = 0.

    Attributes
    ----------
    whitening
        The Gaussian with the mixture's mean and covariance, whose coordinates samplers move in.
    weights : shape (K,)
        π_k > 0, of sum 1.
    places, roots : shapes (K, D) and (K, D, D)
        Means, and lower triangular roots of the covariances, in whitened coordinates.
    """

    whitening: GaussianBase = field(repr=False)
    weights: Array
    places: Array = field(repr=False)
    roots: Array = field(repr=False)

    @classmethod
    def of(
        cls, weights: Sequence[float] | Array, components: Sequence[GaussianBase]
    ) -> MixtureBase:
        """The mixture of Gaussians with these weights, which need not sum to one.

        Raises
        ------
        SamplingError
            No component, a weight that is not positive, or other numbers of weights or dimensions.
        """
        share = np.asarray(weights, float)
        dimensions = {component.dimension for component in components}
        if share.shape != (len(components),) or len(dimensions) != 1:
            raise SamplingError(
                f"A mixture needs one weight for each component, all of one dimension, not "
                f"{share.size} weights and {len(components)} components of dimensions "
                f"{sorted(dimensions)}."
            )
        if not (np.isfinite(share).all() and np.all(share > 0)):
            raise SamplingError("The weights of a mixture must be positive and finite.")
        share = share / share.sum()
        nothing = np.zeros((0, components[0].dimension))
        whitening, _ = moment_match(
            [
                LocalFit(one.mean, one.covariance, float(np.log(weight)), nothing)
                for one, weight in zip(components, share, strict=True)
            ]
        )
        places = np.array([whitening.whiten(one.mean) for one in components])
        roots = np.array(
            [solve_triangular(whitening.scale, one.scale, lower=True) for one in components]
        )
        return cls(whitening, share, places, np.tril(roots))

    @classmethod
    def defensive(
        cls,
        fits: Sequence[LocalFit],
        *,
        share: float = DEFENSIVE_SHARE,
        width: float = DEFENSIVE_WIDTH,
    ) -> MixtureBase:
        """The mixture of local fits by their evidence, with a wide Gaussian for what they missed.

        Parameters
        ----------
        fits
            One a mode.
        share
            Weight of the wide component; with 0 it is left out.
        width
            Its covariance relative to the overall one of the fits.

        Raises
        ------
        SamplingError
            A share outside [0, 1) or a width that is not positive.
        """
        if not (0 <= share < 1 and width > 0):
            raise SamplingError(
                f"A defensive component needs a share in [0, 1) and a positive width, not "
                f"{share!r} and {width!r}."
            )
        log_evidence = np.array([fit.log_evidence for fit in fits])
        weights = (1 - share) * np.exp(log_evidence - log_sum_exp(log_evidence))
        components = [GaussianBase.from_covariance(fit.mean, fit.covariance) for fit in fits]
        # A component that would be drawn once in a million runs only costs time.
        kept = weights > 1e-9
        components = [one for one, keep in zip(components, kept, strict=True) if keep]
        weights = weights[kept]
        if share > 0:
            overall, _ = moment_match(fits)
            components.append(GaussianBase(overall.mean, np.sqrt(width) * overall.scale))
            weights = np.append(weights, share)
        return cls.of(weights, components)

    @property
    def mean(self) -> Array:
        """m, the overall mean, shape (D,)."""
        return self.whitening.mean

    @property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        return self.whitening.dimension

    @property
    def covariance(self) -> Array:
        """Overall, shape (D, D)."""
        return self.whitening.covariance

    @property
    def log_det_scale(self) -> float:
        """log det L of the whitening."""
        return self.whitening.log_det_scale

    @property
    def log_det_roots(self) -> Array:
        """Log determinants of `roots`, shape (K,)."""
        return np.log(np.diagonal(self.roots, axis1=1, axis2=2)).sum(axis=1)

    def unwhiten(self, z: Array) -> Array:
        """x = m + L z for z of shape (..., D)."""
        return self.whitening.unwhiten(z)

    def whiten(self, x: Array) -> Array:
        """z = L⁻¹ (x − m) for x of shape (..., D)."""
        return self.whitening.whiten(x)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Whitened draws, shape (count, D)."""
        k = rng.choice(self.weights.size, size=count, p=self.weights)
        noise = rng.standard_normal((count, self.dimension))
        return self.places[k] + np.einsum("nij,nj->ni", self.roots[k], noise)

    def _log_density_whitened(self, z: Array) -> Array:
        flat = np.reshape(z, (-1, self.dimension))
        terms = []
        for k, root in enumerate(self.roots):
            noise = solve_triangular(root, (flat - self.places[k]).T, lower=True)
            terms.append(np.log(self.weights[k]) - 0.5 * np.square(noise).sum(axis=0))
        terms = np.array(terms) - self.log_det_roots[:, None] - 0.5 * self.dimension * LOG_2PI
        return np.asarray(log_sum_exp(terms, axis=0)).reshape(np.shape(z)[:-1])

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D)."""
        return self._log_density_whitened(self.whiten(x)) - self.log_det_scale

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return self._log_density_whitened(z) - (log_density + self.log_det_scale)


AnyBase = GaussianBase | LowRankBase | MixtureBase


def base_arrays(base: AnyBase) -> dict[str, Array]:
    """The numbers of a base by name, from which `base_from_arrays` makes it again."""
    if isinstance(base, LowRankBase):
        names = ("mean", "diagonal", "vectors", "stretch")
        return {f"base_{name}": getattr(base, name) for name in names}
    if isinstance(base, MixtureBase):
        own = {f"base_{name}": getattr(base, name) for name in ("weights", "places", "roots")}
        return base_arrays(base.whitening) | own
    return {"base_mean": base.mean, "base_scale": base.scale}


def base_from_arrays(arrays: dict[str, Array]) -> AnyBase:
    """The base whose numbers these are; raises KeyError where some are missing."""
    if "base_stretch" in arrays:
        names = ("mean", "diagonal", "vectors", "stretch")
        return LowRankBase(*(arrays[f"base_{name}"] for name in names))
    whitening = GaussianBase(arrays["base_mean"], arrays["base_scale"])
    if "base_weights" not in arrays:
        return whitening
    return MixtureBase(
        whitening, arrays["base_weights"], arrays["base_places"], arrays["base_roots"]
    )
