"""What bases that are not Gaussian have in common: coordinates in which samplers move."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.path.gaussian import GaussianBase, ScaleFactors
from stanct.path.low_rank import LowRankBase

Coordinates = TypeVar("Coordinates", bound=GaussianBase | LowRankBase)


class Whitened(Generic[Coordinates]):
    """A base whose draws are whitened by a Gaussian with about its moments, where samplers move."""

    whitening: Coordinates

    @property
    def mean(self) -> Array:
        """m, the mean of the whitening, shape (D,)."""
        return self.whitening.mean

    @property
    def dimension(self) -> int:
        return self.whitening.dimension

    @property
    def spread(self) -> Array:
        """Standard deviations of the whitening, shape (D,)."""
        return self.whitening.spread

    @property
    def covariance(self) -> Array:
        """Covariance of the whitening, shape (D, D)."""
        return self.whitening.covariance

    @property
    def log_det_scale(self) -> float:
        """log det L of the whitening."""
        return self.whitening.log_det_scale

    @property
    def scale_factors(self) -> ScaleFactors:
        """L of the whitening for compiled code."""
        return self.whitening.scale_factors

    @property
    def is_gaussian(self) -> bool:
        return False

    def unwhiten(self, z: Array) -> Array:
        return self.whitening.unwhiten(z)

    def whiten(self, x: Array) -> Array:
        return self.whitening.whiten(x)


class DrawnOnly(Whitened[Coordinates]):
    """A base of which only independent draws and their densities are had."""

    @property
    def components(self) -> NoReturn:
        """Raise `SamplingError`: compiled code does not know this density."""
        self._refuse("cannot be used by this method")

    def dense(self) -> NoReturn:
        """Raise `SamplingError`, because the base is not Gaussian."""
        self._refuse("has no dense Gaussian form")

    def refitted(
        self, z: Array, weights: Array | None = None, *, least_shrinkage: float
    ) -> NoReturn:
        """Raise `SamplingError`, because draws alone do not tell the density."""
        del z, weights, least_shrinkage
        self._refuse("is not refitted")

    def _refuse(self, why: str) -> NoReturn:
        raise SamplingError(
            f"A {type(self).__name__} {why}.",
            remedy="Use the method 'independence', or another base.",
        )
