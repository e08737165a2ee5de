"""The Gaussian base with a diagonal plus low-rank scale, for thousands of dimensions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.path.gaussian import GaussianBase, Normal, ScaleFactors

# The least variance, relative to that of independent coordinates, of a direction worth its cost.
REPEATED = 1.5
# Steps of the factor analysis, and the least share of a variance that its directions leave over.
SWEEPS, LEAST_OWN = 20, 1e-3
# Steps of subspace iteration in each sweep, and the largest matrix whose eigenvalues are all found.
TURNS, MOST_WHOLE = 2, 600


@dataclass(frozen=True)
class LowRankBase(Normal):
    """The base N(m, L Lᵀ) with L = diag(d) (I + U diag(s − 1) Uᵀ), for thousands of dimensions.

    `mean` m and `diagonal` d > 0 have shape (D,). `vectors` U, shape (D, r), are orthonormal.
    `stretch` s > 0 has the standard deviations of (x − m) / d along U. Products with L cost O(D r).
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
        """The base with the variances of points and the correlations that exceed the noise.

        Points, shape (n, D), of which those of a chain follow each other, are standardised. The
        correlation matrix of n effective uncorrelated points has no eigenvalue above (1 + √(D/n))²
        (Marchenko & Pastur 1967). At most `rank` directions with larger eigenvalues keep a
        variance, from which the inflation by noise is removed. All other directions have the
        variance that factor analysis leaves to each coordinate. Chains that are not yet stationary
        have larger eigenvalues by chance. Directions of the first half of the points must therefore
        show in the second, too.
        """
        share = np.full(len(points), 1 / len(points)) if weights is None else weights / sum(weights)
        size = 1 / np.square(share).sum()
        mean = share @ points
        centred = (points - mean) * np.sqrt(share * size / max(size - 1, 1e-9))[:, None]
        variance = np.maximum(np.square(centred).sum(axis=0), 1e-20)
        diagonal = np.sqrt(variance)
        spikes, vectors = _spikes(centred / diagonal, size, rank)
        if spikes.size:
            kept = _repeated(points, share, mean, diagonal, spikes.size)
            spikes, vectors = spikes[:kept], vectors[:, :kept]
        # Alternate between directions and the variances that these leave over (factor analysis).
        for _ in range(SWEEPS if spikes.size else 0):
            explained = np.square(diagonal) * (np.square(vectors) @ (spikes - 1))
            diagonal = np.sqrt(np.maximum(variance - explained, LEAST_OWN * variance))
            spikes, vectors = _spikes(centred / diagonal, size, spikes.size, vectors)
        explained = np.square(vectors) @ (spikes - 1)
        return cls(mean, np.sqrt(variance / (1 + explained)), vectors, np.sqrt(spikes))

    def narrowed(self, points: Array, scores: Array, *, rank: int = 50) -> LowRankBase:
        """The base with the directions in which the target is narrower than its coordinates.

        Along them the gradient varies most (Bales et al. 2019): in whitened coordinates of a base
        that is the target, gradients have the covariance I. At most `rank` directions count whose
        eigenvalues exceed noise, and which both halves of the draws show. `scores` are gradients at
        `points`, (n, D).
        """
        scores = (y := scores * self.diagonal) + (y @ self.vectors * (self.stretch - 1)) @ (
            self.vectors.T
        )
        centred = scores - scores.mean(axis=0)
        size = float(len(scores))
        spikes, vectors = _spikes(centred / np.sqrt(size), size, rank)
        if not spikes.size:
            return self
        share, none = np.full(len(scores), 1 / size), np.zeros(self.dimension)
        kept = _repeated(centred, share, none, np.ones(self.dimension), spikes.size)
        return self._with_narrow(vectors[:, :kept], self.whiten(points), share)

    def _with_narrow(self, directions: Array, z: Array, share: Array) -> LowRankBase:
        """The base with the variances of draws along orthonormal directions of z, shape (D, r).

        The whitened draws z, shape (n, D), have weights `share`, of sum 1.
        """
        if not directions.shape[1]:
            return self
        along = z @ directions
        along = along - share @ along
        values, turned = np.linalg.eigh((along * share[:, None]).T @ along)
        narrow = values < 1 / REPEATED
        if not narrow.any():
            return self
        vectors, shrink = directions @ turned[:, narrow], np.sqrt(np.maximum(values[narrow], 1e-12))
        # A Aᵀ with A = (I + U (s − 1) Uᵀ) (I + V (t − 1) Vᵀ) differs from I in the span of both.
        span = np.linalg.qr(np.concatenate([self.vectors, vectors], axis=1))[0]
        inner = span + (self.vectors * (self.stretch - 1)) @ (self.vectors.T @ span)
        inner = inner + (vectors * (shrink - 1)) @ (vectors.T @ inner)
        values, turned = np.linalg.eigh(_gram(inner))
        return LowRankBase(self.mean, self.diagonal, span @ turned, np.sqrt(values))

    @property
    def log_det_scale(self) -> float:
        return float(np.log(self.diagonal).sum() + np.log(self.stretch).sum())

    @property
    def scale_factors(self) -> ScaleFactors:
        return ScaleFactors(np.zeros((0, 0)), self.diagonal, self.vectors, self.stretch)

    @property
    def spread(self) -> Array:
        return self.diagonal * np.sqrt(1 + np.square(self.vectors) @ (self.stretch**2 - 1))

    @property
    def covariance(self) -> Array:
        inner = (self.vectors * (self.stretch**2 - 1)) @ self.vectors.T + np.eye(self.dimension)
        return self.diagonal[:, None] * inner * self.diagonal

    def dense(self) -> GaussianBase:
        """The same Gaussian with a triangular scale, in other whitened coordinates."""
        return GaussianBase.from_covariance(self.mean, self.covariance)

    def unwhiten(self, z: Array) -> Array:
        return self.mean + self.diagonal * self._stretched(z, self.stretch)

    def whiten(self, x: Array) -> Array:
        return self._stretched((x - self.mean) / self.diagonal, 1 / self.stretch)

    def _stretched(self, y: Array, stretch: Array) -> Array:
        return y + ((y @ self.vectors) * (stretch - 1)) @ self.vectors.T

    def refitted(
        self, z: Array, weights: Array | None = None, *, least_shrinkage: float
    ) -> LowRankBase:
        """The base from `from_points` on whitened draws; `least_shrinkage` has no effect.

        Functions of x along which this base is narrow are those of the new one, too.
        """
        del least_shrinkage
        x = self.unwhiten(z)
        new = LowRankBase.from_points(x, weights=weights)
        narrow = self.vectors[:, self.stretch < 1] / self.diagonal[:, None]
        if not narrow.shape[1]:
            return new
        share = np.full(len(z), 1 / len(z)) if weights is None else weights / sum(weights)
        functions = narrow * new.diagonal[:, None]
        functions = functions + (new.vectors * (new.stretch - 1)) @ (new.vectors.T @ functions)
        return new._with_narrow(np.linalg.qr(functions)[0], new.whiten(x), share)

    def arrays(self) -> dict[str, Array]:
        names = ("mean", "diagonal", "vectors", "stretch")
        return {f"base_{name}": getattr(self, name) for name in names}


def _spikes(
    standard: Array, size: float, most: int, near: Array | None = None
) -> tuple[Array, Array]:
    """Variances above those of noise, largest first, and their directions, shape (D, r).

    `standard`, shape (n, D), are centred points over their noise, with the roots of their weights.
    `TURNS` steps of subspace iteration improve directions that are `near`.
    """
    if near is None:
        values, vectors = _leading(standard, most)
    else:
        for _ in range(TURNS):
            near = np.linalg.qr(standard.T @ (standard @ near))[0]
        values, turned = np.linalg.eigh(_gram(standard @ near))
        values, vectors = values[::-1], (near @ turned)[:, ::-1]
    ratio = standard.shape[1] / size
    kept = min(int((values > (1 + np.sqrt(ratio)) ** 2).sum()), most)
    values, vectors = values[:kept], vectors[:, :kept]
    # Invert the effect of noise on a spike ℓ: λ = ℓ (1 + γ / (ℓ − 1)) (Baik & Silverstein 2006).
    half = 0.5 * (values + 1 - ratio)
    return half + np.sqrt(np.maximum(half**2 - values, 0)), vectors


def _gram(rows: Array) -> Array:
    return rows.T @ rows


def _leading(rows: Array, most: int) -> tuple[Array, Array]:
    """The largest eigenvalues of rowsᵀ rows, largest first, and their vectors, shape (D, most)."""
    few = min(rows.shape)
    if few > MOST_WHOLE and most < few // 4:
        start = np.ones(few)  # a fixed start: the same points give the same base
        from scipy.sparse.linalg import svds  # takes .1 s to load

        _, values, other = cast(tuple[Array, Array, Array], svds(rows, k=most, v0=start))
        order = np.argsort(-values)
        return np.square(values[order]), other[order].T
    wide = rows.shape[1] > len(rows)
    values, vectors = np.linalg.eigh(_gram(rows.T if wide else rows))
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    if wide:
        vectors = rows.T @ vectors / np.sqrt(np.maximum(values, 1e-300))
    return values, vectors


def _repeated(points: Array, share: Array, mean: Array, diagonal: Array, most: int) -> int:
    """Leading directions of the first half of points along which the second varies, too."""
    middle = len(points) // 2
    standard = (points - mean) / diagonal
    root = np.sqrt(share)[:, None]
    rows = _leading(standard[:middle] * root[:middle], most)[1].T
    other = share[middle:] / max(share[middle:].sum(), 1e-300)
    variance = other @ np.square(standard[middle:] @ rows.T)
    chance = np.flatnonzero(variance <= REPEATED)
    return int(chance[0]) if chance.size else len(rows)
