"""Bridge sampling: the evidence from draws of a density and of a normal that is fitted to them.

Half of the draws fit the normal and the other half estimate, then the halves swap roles. Warp-III
(Meng & Schilling 2002) mirrors the whitened density at its centre, which leaves log Z as it is and
takes away the skewness that a normal cannot have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import fdtri, stdtrit

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Evidence, between_error
from stanct.estimates.tail import Tail, pareto_k
from stanct.path.bridge import bridge_log_z, bridge_terms, log_mean
from stanct.path.gaussian import GaussianBase, gaussian_moments

# Unconstrained points, shape (n, D), to log densities with all constants, shape (n,).
LogDensities = Callable[[Array], Array]

# With more draws than this for each dimension, the sample covariance needs no shrinking.
ENOUGH_PER_DIMENSION = 2
# Each chain is cut into this many blocks, which reshuffled halves draw at random.
BLOCKS = 10
# What draws explain of differences that follow them, and the chance that rounding seems to do so.
EXPLAINED, BY_CHANCE = 0.2, 1e-6


class BridgeEvidence(Evidence):
    """log Z of a bridge, whose last error is that of the normal and of the choice of halves."""

    part_names = ("within chains", "between chains", "normal and halves")


@dataclass(frozen=True)
class Bridge:
    """Meng & Wong's (1996) optimal bridge between draws of p and of a normalised q.

    With s₁ the share of p's effective draws, Z solves Z = mean_q[f_q] / mean_p[f_p], where
    f_q = r / (s₁ r + s₀ Z), f_p = 1 / (s₁ r + s₀ Z) and r = p/q. Both are bounded. log r has shape
    (chains, draws) at draws of p, and (base draws,) at those of q, where it is −inf if p vanishes.
    """

    log_ratio: Array
    base_log_ratio: Array

    @cached_property
    def share(self) -> float:
        """s₁, by effective number of draws."""
        size = effective_size(self.log_ratio, method="bulk")
        return size / (size + self.base_log_ratio.size)

    @cached_property
    def log_z(self) -> float:
        """The estimate of log Z; NaN if p vanishes at all draws of q."""
        return self._solved(self.log_ratio)

    def _solved(self, log_ratio: Array) -> float:
        if not (np.isfinite(self.base_log_ratio).any() and np.isfinite(log_ratio).all()):
            return np.nan
        return bridge_log_z(log_ratio.ravel(), self.base_log_ratio, share=self.share)

    def _log_f(self) -> Array:
        return bridge_terms(self.log_ratio, self.log_z, self.share)

    def _log_f_base(self) -> Array:
        return self.base_log_ratio + bridge_terms(self.base_log_ratio, self.log_z, self.share)

    @cached_property
    def chain_log_z(self) -> Array:
        """The estimate from each chain alone, with all base draws, shape (chains,)."""
        return np.array([self._solved(chain[None]) for chain in self.log_ratio])

    @cached_property
    def errors(self) -> tuple[float, float, float]:
        """Standard errors of log Ẑ by draws and base draws, and effective number of draws.

        The squares are var(f) / (mean(f)² n) of both sides, with the effective n of the
        autocorrelated f_p (Frühwirth-Schnatter 2004).
        """
        if not np.isfinite(self.log_z):
            return np.inf, np.inf, 0.0
        own, base = _relative(self._log_f()), _relative(self._log_f_base())
        size = effective_size(own)
        return float(own.std() / np.sqrt(size)), float(base.std() / np.sqrt(base.size)), size

    @cached_property
    def pareto_k(self) -> tuple[float, float]:
        """Tail shapes of f_p over the draws and of f_q over the base draws.

        Both are bounded, so the variances exist. A shape above 0.7 says that these draws are too
        few to know them (Micaletto & Vehtari 2025, arXiv 2508.14487).
        """
        if not np.isfinite(self.log_z):
            return np.inf, np.inf
        log_base = self._log_f_base()
        return pareto_k(self._log_f()), pareto_k(log_base[np.isfinite(log_base)])

    @cached_property
    def even_share(self) -> float:
        """Kish's effective share of the draws behind f, the smaller of both sides."""
        if not np.isfinite(self.log_z):
            return 0.0
        sides = self._log_f(), self._log_f_base()
        return min(float(1 / np.square(_relative(log_f)).mean()) for log_f in sides)


def _relative(log_values: Array) -> Array:
    values = np.exp(log_values - log_values.max())
    return values / values.mean()


def fitted_normal(points: Array) -> GaussianBase:
    """The normal with the moments of points, shape (n, D)."""
    count, dimension = points.shape
    mean, covariance = gaussian_moments(points)
    if count > ENOUGH_PER_DIMENSION * dimension:
        # Shrunk correlations would make the normal too wide along ridges.
        floor = 1e-12 * np.diag(np.diag(covariance))
        covariance = np.atleast_2d(np.cov(points, rowvar=False)) + floor
    return GaussianBase.from_covariance(mean, covariance)


def bridges(
    fitting: Array, estimating: Array, log_density: Array, densities: LogDensities, z: Array
) -> tuple[Bridge, Bridge]:
    """The plain bridge and Warp-III from two sets of draws of one density.

    Warp-III bridges ½ p(m + L z) + ½ p(m − L z) to the standard normal. Unconstrained draws
    `fitting`, shape (n, D), fit the normal, and those `estimating`, shape (chains, draws, D),
    estimate, with their log densities. z, shape (base draws, D), are standard normal draws.
    """
    q = fitted_normal(fitting)
    own = q.whiten(estimating)
    flat = own.reshape(-1, own.shape[-1])
    mirrored = densities(q.unwhiten(-flat)).reshape(log_density.shape)
    up, down = densities(q.unwhiten(z)), densities(q.unwhiten(-z))
    plain = Bridge(-q.delta(own, log_density), -q.delta(z, up))
    warped = Bridge(
        -q.delta(own, np.logaddexp(log_density, mirrored) - np.log(2)),
        -q.delta(z, np.logaddexp(up, down) - np.log(2)),
    )
    return plain, warped


def score_error(z: Array, gradients: Array) -> tuple[float, float]:
    """How far draws are from Stein's identities, in standard errors, and what is allowed.

    E[∂_j log p] = 0, E[z_i ∂_j log p] = −δ_ij, and E[f ∂_j log p + ∂_j f] = 0 with the squares and
    products z_i² and z_i z_j for f, hold for draws z of p, whatever p is, and fail for those of an
    approximation (Stein 1972). They, and the mean of those of the second kind on the diagonal, are
    compared by means of `BLOCKS` stretches of each chain. One of ten thousand right fits is farther
    off than the second number. Draws and gradients have shape (chains, draws, D).
    """
    chains, draws, dimension = z.shape
    length = draws // BLOCKS
    if not length:
        return 0.0, np.inf
    ends = BLOCKS * length
    parts = (chains * BLOCKS, length, dimension)
    z, gradients = z[:, :ends].reshape(parts), gradients[:, :ends].reshape(parts)
    means = np.einsum("bli,blj->bij", z, gradients) / length + np.eye(dimension)
    diagonal = np.trace(means, axis1=1, axis2=2) / dimension
    middle = z.mean(axis=1)
    squares = np.einsum("bli,blj->bij", z**2, gradients) / length + 2 * _diagonals(middle)
    products = np.einsum("bli,blj,blj->bij", z, z, gradients) / length + middle[:, :, None]
    products += _diagonals(middle)
    tested = np.concatenate(
        [gradients.mean(axis=1), diagonal[:, None]]
        + [one.reshape(len(one), -1) for one in (means, squares, products)],
        axis=1,
    )
    error = tested.std(axis=0, ddof=1) / np.sqrt(len(tested))
    scores = np.abs(tested.mean(axis=0)) / np.maximum(error, 1e-300)
    limit = -float(stdtrit(len(tested) - 1, 0.00005 / tested.shape[1]))
    return float(scores.max()), limit


def follow_parameters(gaps: Array, z: Array) -> bool:
    """Whether differences, shape (n,), are a function of whitened draws, shape (n, D).

    Rounding is none. Another prior or other data are one, however small: the F test of a regression
    on each coordinate and its square tells them apart.
    """
    count, dimension = z.shape
    terms = np.hstack([z, z**2]) if 20 * dimension < count else (z**2).sum(axis=1)[:, None]
    free = count - 1 - terms.shape[1]
    centred = gaps - np.median(gaps)
    far = 5 * np.median(np.abs(centred))
    if free < 1 or not far > 0:
        return False
    y, x = np.clip(centred, -far, far), np.column_stack([np.ones(count), terms])
    left = y - x @ np.linalg.lstsq(x, y)[0]
    share = 1 - float(left @ left / ((y - y.mean()) @ (y - y.mean())))
    ratio = share / max(1 - share, 1e-300) * free / terms.shape[1]
    return share > EXPLAINED and ratio > fdtri(terms.shape[1], free, 1 - BY_CHANCE)


def _diagonals(rows: Array) -> Array:
    """Diagonal matrices, shape (n, D, D), of rows of shape (n, D)."""
    return rows[:, :, None] * np.eye(rows.shape[1])


def halves(draws: int) -> tuple[Array, Array]:
    """Positions of the first and of the second half of a chain, of equal length."""
    half = draws // 2
    return np.arange(half), np.arange(half, 2 * half)


def reshuffled_halves(draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Two halves of a chain that are made of random blocks, in the order of the chain."""
    length = max(draws // BLOCKS, 1)
    blocks = rng.permutation(draws // length)
    first = np.sort(blocks[: blocks.size // 2])
    second = np.sort(blocks[blocks.size // 2 : 2 * (blocks.size // 2)])
    inside = np.arange(length)
    return tuple((some[:, None] * length + inside).ravel() for some in (first, second))  # type: ignore[return-value]


def by_importance(pair: Sequence[Bridge]) -> tuple[float, float] | None:
    """log Z and its error from draws of the normals alone, with no draw of the fit.

    None where the weights have a heavy tail.
    """
    if any(Tail.of(one.base_log_ratio).is_heavy for one in pair):
        return None
    errors = [
        _relative(one.base_log_ratio).std() / np.sqrt(one.base_log_ratio.size) for one in pair
    ]
    log_z = np.mean([log_mean(one.base_log_ratio) for one in pair])
    return float(log_z), float(np.hypot(*errors) / len(pair))


def swapped_log_z(pair: Sequence[Bridge]) -> float:
    """The average of log Z over bridges whose halves have swapped roles."""
    return float(np.mean([one.log_z for one in pair]))


def swapped_evidence(pair: Sequence[Bridge], method: str, spread: float = 0.0) -> BridgeEvidence:
    """log Z from bridges whose halves have swapped roles, with its error.

    The errors of the draws are added and not combined in quadrature. Where the target is nearly
    normal, both bridges err by the product of what the two halves miss, and by the same amount. The
    error is no smaller than `spread`, the standard deviation over reshuffled halves.
    """
    errors = np.array([one.errors for one in pair])
    base = float(np.sqrt(np.square(errors[:, 1]).sum()) / len(pair))
    by_chain = np.mean([one.chain_log_z for one in pair], axis=0)
    within, between = float(errors[:, 0].mean()), float(between_error(by_chain))
    return BridgeEvidence(
        log_z=swapped_log_z(pair),
        std_error=float(np.fmax(np.hypot(np.fmax(within, between), base), spread)),
        method=method,
        within_error=within,
        between_error=between,
        effective_size=float(errors[:, 2].sum()),
        pareto_k=max(k for one in pair for k in one.pareto_k),
        chain_log_z=tuple(float(value) for value in by_chain),
        weight_share=min(one.even_share for one in pair),
    )
