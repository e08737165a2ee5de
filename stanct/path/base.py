"""The protocol of a base, which samplers, kernels and runs use for every kind of base."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from stanct.arrays import Array
from stanct.path.gaussian import GaussianBase, ScaleFactors
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase, MixtureComponents


class Base(Protocol):
    """A normalised density q = exp(−ψ) at β = 0, with whitened coordinates x = m + L z.

    Samplers move in z. There, `GaussianBase` and `LowRankBase` are standard normal, and
    `MixtureBase` is a mixture. δ = φ − ψ is the same in x and in z.
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

        Its whitened coordinates may differ.

        Raises
        ------
        SamplingError
            The base is a mixture.
        """
        ...

    def refitted(self, z: Array, weights: Array | None = None, *, least_shrinkage: float) -> Base:
        """The base of the same kind with the moments of draws.

        Parameters
        ----------
        z : shape (n, D)
            Whitened draws.
        weights : shape (n,)
            Non-negative; equal by default.
        least_shrinkage
            Smallest factor by which a dense base may shrink the variance in any direction.

        Raises
        ------
        SamplingError
            The base is a mixture.
        """
        ...

    def arrays(self) -> dict[str, Array]:
        """The arrays of the base by name, from which `base_from_arrays` restores it."""
        ...


def base_from_arrays(arrays: Mapping[str, Array]) -> Base:
    """Restore a base of any kind from its arrays.

    Raises
    ------
    KeyError
        An array is missing.
    """
    if "base_stretch" in arrays:
        names = ("mean", "diagonal", "vectors", "stretch")
        return LowRankBase(*(arrays[f"base_{name}"] for name in names))
    whitening = GaussianBase(arrays["base_mean"], arrays["base_scale"])
    if "base_weights" not in arrays:
        return whitening
    names = ("weights", "places", "roots")
    return MixtureBase(whitening, *(arrays[f"base_{name}"] for name in names))
