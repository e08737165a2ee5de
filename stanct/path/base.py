"""The protocol of a base, which samplers, kernels and runs use for every kind of base."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from stanct.common.arrays import Array, part_of
from stanct.path.gaussian import GaussianBase, ScaleFactors
from stanct.path.grids import GridsBase
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase, MixtureComponents
from stanct.path.nested import NestedBase, NestedGaussian, NestedLowRank, NestedProduct
from stanct.path.product import ProductBase


class Base(Protocol):
    """A normalised density q = exp(−ψ) at β = 0, with whitened coordinates x = m + L z.

    Samplers move in z, where Gaussian bases are standard normal. δ = φ − ψ is the same in x and in
    z.
    """

    @property
    def mean(self) -> Array:
        """m, the mean of x, shape (D,)."""
        ...

    @property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        ...

    @property
    def spread(self) -> Array:
        """Standard deviations of x, shape (D,)."""
        ...

    @property
    def covariance(self) -> Array:
        """Covariance of x, shape (D, D)."""
        ...

    @property
    def log_det_scale(self) -> float:
        """log det L, natural log."""
        ...

    @property
    def is_gaussian(self) -> bool:
        """Whether z is standard normal; if not, `components` gives its density."""
        ...

    @property
    def scale_factors(self) -> ScaleFactors:
        """L in the form that compiled code uses."""
        ...

    @property
    def components(self) -> MixtureComponents | None:
        """The mixture density of z; None for a Gaussian base."""
        ...

    def unwhiten(self, z: Array) -> Array:
        """x = m + L z for z of shape (..., D)."""
        ...

    def whiten(self, x: Array) -> Array:
        """z = L⁻¹ (x − m) for x of shape (..., D)."""
        ...

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Independent whitened draws, shape (count, D)."""
        ...

    def standardised(self, z: Array) -> Array:
        """Points that are standard normal if z, shape (..., D), is drawn from the base."""
        ...

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, natural log, for unconstrained x of shape (..., D)."""
        ...

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        ...

    def dense(self) -> GaussianBase:
        """The same density with a lower triangular scale, as generated programs need.

        Its whitened coordinates may differ. Raises `SamplingError` if the base is a mixture.
        """
        ...

    def refitted(self, z: Array, weights: Array | None = None, *, least_shrinkage: float) -> Base:
        """The base of the same kind with the moments of whitened draws z, shape (n, D).

        `weights`, shape (n,), are equal by default. A dense base shrinks no variance by more than
        the factor `least_shrinkage`. Raises `SamplingError` if the base is a mixture.
        """
        ...

    def arrays(self) -> dict[str, Array]:
        """The arrays of the base by name, from which `base_from_arrays` restores it."""
        ...


@dataclass(frozen=True)
class Drawn:
    """Whitened draws z of a base, shape (count, D), of which δ is wanted, with log q if known."""

    base: Base
    z: Array
    log_q: Array | None = None

    @classmethod
    def of(cls, base: Base, rng: np.random.Generator, count: int) -> Drawn:
        """So many draws of a base."""
        if isinstance(base, NestedBase):
            made = base.valued(rng, count)
            return cls(base, made.z, made.log_density)
        return cls(base, base.draw(rng, count))

    @property
    def x(self) -> Array:
        """The draws, unconstrained, shape (count, D)."""
        return self.base.unwhiten(self.z)

    def delta(self, log_density: Array) -> Array:
        """δ = φ − ψ from log densities −φ(x), shape (count,)."""
        if self.log_q is None:
            return self.base.delta(self.z, log_density)
        return self.log_q - log_density


def lent(base: Base, borrow: Callable[[], AbstractContextManager[Any]]) -> Base:
    """The base with a density of the target, if it is one that needs it."""
    return replace(base, lend=borrow) if isinstance(base, NestedBase) else base


def gradients_per_draw(base: Base) -> float:
    """How many gradients of the target a draw of a base costs, on average."""
    return base.gradients if isinstance(base, NestedBase) else 0.0


def batch_of(base: Base) -> int:
    """How many draws in a row are balanced (`MixtureBase.draw`); 1 where all are independent."""
    mixed = base.marginal if isinstance(base, NestedBase) else base
    return mixed.batch if isinstance(mixed, MixtureBase) else 1


def base_from_arrays(arrays: Mapping[str, Array]) -> Base:
    """Restore a base of any kind from its arrays; raises `KeyError` if one is missing."""
    whitening: GaussianBase | LowRankBase
    if "base_stretch" in arrays:
        names = ("mean", "diagonal", "vectors", "stretch")
        whitening = LowRankBase(*(arrays[f"base_{name}"] for name in names))
    else:
        whitening = GaussianBase(arrays["base_mean"], arrays["base_scale"])
    for start, product in (("product_", ProductBase), ("grid_", GridsBase)):
        if f"{start}nodes" in arrays:
            assert isinstance(whitening, GaussianBase)
            return product(whitening=whitening, **part_of(arrays, start))
    if "nested_outer" in arrays:
        marginal = base_from_arrays(part_of(arrays, "outer_"))
        assert isinstance(marginal, MixtureBase)
        own = part_of(arrays, "nested_")
        gradients = float(own.pop("gradients"))
        kinds = NestedGaussian, NestedLowRank, NestedProduct
        (kind,) = (one for one in kinds if set(one.own) == own.keys() - {"outer"})
        parts: dict[str, Any] = {"whitening": whitening, "marginal": marginal, **own}
        return kind(gradients=gradients, **parts)
    if isinstance(whitening, LowRankBase) or "base_weights" not in arrays:
        return whitening
    names = ("weights", "places", "roots")
    return MixtureBase(whitening, *(arrays[f"base_{name}"] for name in names))
