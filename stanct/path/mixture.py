"""A mixture of Gaussians as base, for methods that redraw from their base.

A mixture is whitened by its overall moments. Its density in z is again a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np
from scipy.linalg import solve_triangular

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.gaussian import LOG_2PI, GaussianBase, mixture_moments
from stanct.path.whitened import Whitened

# The largest deviation of the sum of weights from one, which rounding explains.
UNITY = 1e-9
# Draws in a row to which each component contributes its share.
BATCH = 50


class MixtureComponents(NamedTuple):
    """The density Σ_k π_k N(m_k, L_k L_kᵀ) of a mixture in whitened coordinates.

    `weights` π have sum 1, `places` m shape (K, D), and lower triangular `roots` L (K, D, D).
    """

    weights: Array
    places: Array
    roots: Array
    log_det_roots: Array


@dataclass(frozen=True)
class MixtureBase(Whitened[GaussianBase]):
    """The base Σ_k π_k N(m_k, L_k L_kᵀ), for samplers that draw from their base.

    Moves at a fixed β cross no better between its components than between the target's modes.
    `whitening` has its mean and covariance. `weights`, shape (K,), have sum 1. `places`, (K, D),
    and lower triangular `roots`, (K, D, D), are in whitened coordinates.
    """

    whitening: GaussianBase = field(repr=False)
    weights: Array
    places: Array = field(repr=False)
    roots: Array = field(repr=False)

    def __post_init__(self) -> None:
        weights, places, roots = (
            np.asarray(getattr(self, name), float) for name in ("weights", "places", "roots")
        )
        count, width = weights.size, self.whitening.dimension
        shapes = (weights.shape, places.shape, roots.shape)
        if not count or shapes != ((count,), (count, width), (count, width, width)):
            raise SamplingError(
                f"A mixture of K components in {width} dimensions needs weights (K,), places "
                f"(K, {width}) and roots (K, {width}, {width}), not {', '.join(map(str, shapes))}."
            )
        if not all(np.isfinite(array).all() for array in (weights, places, roots)):
            raise SamplingError("The weights, places and roots of a mixture must be finite.")
        if np.any(weights <= 0) or abs(weights.sum() - 1) > UNITY:
            raise SamplingError(
                "The weights of a mixture must be positive, of sum 1.",
                remedy="MixtureBase.of takes weights of any sum.",
            )
        if np.any(np.triu(roots, 1)) or np.any(np.diagonal(roots, axis1=1, axis2=2) <= 0):
            raise SamplingError(
                "The roots of a mixture must be lower triangular with positive diagonals."
            )

    @classmethod
    def of(
        cls, weights: Sequence[float] | Array, components: Sequence[GaussianBase]
    ) -> MixtureBase:
        """The mixture of Gaussians with these weights, which need not sum to one.

        Raises `SamplingError` unless there are as many positive weights as components of one
        dimension.
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
        mean, covariance, _ = mixture_moments(
            np.log(share), [one.mean for one in components], [one.covariance for one in components]
        )
        whitening = GaussianBase.from_covariance(mean, covariance)
        places = np.array([whitening.whiten(one.mean) for one in components])
        roots = np.array(
            [solve_triangular(whitening.scale, one.scale, lower=True) for one in components]
        )
        return cls(whitening, share, places, np.tril(roots))

    @property
    def batch(self) -> int:
        """Draws in a row that are balanced over the components; 1 of a single one."""
        return BATCH if self.weights.size > 1 else 1

    @property
    def components(self) -> MixtureComponents:
        return MixtureComponents(self.weights, self.places, self.roots, self.log_det_roots)

    @cached_property
    def inverses(self) -> Array:
        """Inverses of `roots`, lower triangular, shape (K, D, D)."""
        eye = np.eye(self.dimension)
        return np.array([solve_triangular(root, eye, lower=True) for root in self.roots])

    @property
    def log_det_roots(self) -> Array:
        """Log determinants of `roots`, shape (K,)."""
        return np.log(np.diagonal(self.roots, axis1=1, axis2=2)).sum(axis=1)

    @property
    def parts(self) -> list[GaussianBase]:
        """The K Gaussians in unconstrained coordinates."""
        m, lower = self.whitening.mean, self.whitening.scale
        return [
            GaussianBase(m + lower @ place, lower @ root)
            for place, root in zip(self.places, self.roots, strict=True)
        ]

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Whitened draws, shape (count, D), in batches of which each component has its share.

        Batches of `batch` draws are independent of each other. Of those inside of one, in random
        order, as many come from a component as its weight says, to less than one (systematic
        sampling). Errors of averages follow from the spread of the batches' totals, and errors
        that take draws as independent are too large.
        """
        shape = -(-count // BATCH), BATCH
        order = rng.permuted(np.broadcast_to(np.arange(BATCH), shape), axis=1)
        places = ((order + rng.random((shape[0], 1))) / BATCH).ravel()[:count]
        ends = self.weights.cumsum() / self.weights.sum()
        k = np.minimum(np.searchsorted(ends, places), ends.size - 1)
        noise = rng.standard_normal((count, self.dimension))
        return self.places[k] + np.einsum("nij,nj->ni", self.roots[k], noise)

    def terms(self, flat: Array) -> Array:
        """log π_k N(z; m_k, L_k L_kᵀ) at points of shape (n, D), shape (K, n)."""
        terms = np.empty((self.weights.size, len(flat)))
        for k, inverse in enumerate(self.inverses):
            noise = (flat - self.places[k]) @ inverse.T
            terms[k] = -0.5 * np.einsum("ij,ij->i", noise, noise)
        log_height = np.log(self.weights) - self.log_det_roots - 0.5 * self.dimension * LOG_2PI
        return terms + log_height[:, None]

    def _log_density_whitened(self, z: Array) -> Array:
        terms = self.terms(np.reshape(z, (-1, self.dimension)))
        return np.asarray(log_sum_exp(terms, axis=0)).reshape(np.shape(z)[:-1])

    def standardised(self, z: Array) -> Array:
        """Points that are standard normal if z, shape (..., D), is drawn from the base.

        Each z is whitened by a component at random, with posterior probabilities, always in the
        same way.
        """
        flat = np.reshape(z, (-1, self.dimension))
        terms = self.terms(flat)
        # The largest term with Gumbel noise is a draw from the probabilities.
        k = np.argmax(terms + np.random.default_rng(0).gumbel(size=terms.shape), axis=0)
        points = np.empty_like(flat)
        for component, root in enumerate(self.roots):
            chosen = k == component
            offset = flat[chosen] - self.places[component]
            points[chosen] = solve_triangular(root, offset.T, lower=True).T
        return points.reshape(np.shape(z))

    def log_density(self, x: Array) -> Array:
        return self._log_density_whitened(self.whiten(x)) - self.log_det_scale

    def delta(self, z: Array, log_density: Array) -> Array:
        return self._log_density_whitened(z) - (log_density + self.log_det_scale)

    def dense(self) -> NoReturn:
        """Raise `SamplingError`, because a mixture is not Gaussian."""
        raise SamplingError(
            "A mixture base has no dense Gaussian form.", remedy="Pass a GaussianBase."
        )

    def refitted(
        self, z: Array, weights: Array | None = None, *, least_shrinkage: float
    ) -> NoReturn:
        """Raise `SamplingError`, because draws do not reveal their component."""
        del z, weights, least_shrinkage
        raise SamplingError("A mixture base is not refitted.", remedy="Pass bootstrap=0.")

    def arrays(self) -> dict[str, Array]:
        own = {f"base_{name}": getattr(self, name) for name in ("weights", "places", "roots")}
        return self.whitening.arrays() | own
