"""Bases in two stages: a mixture for a few coordinates, and a density of all others given them.

Given their scales and correlations, the effects of a hierarchy, the states of a random walk, and
the coefficients of a regression often are Gaussian. Effects whose data are of other kinds often are
independent. A density of the few outer coordinates θ, times that Gaussian or that product, then
nearly is the target, necks included, however narrow they are. This is the nested Laplace
approximation of Rue, Martino & Chopin (2009), as a proposal that is corrected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.path.conditional import Conditionals, Slices
from stanct.path.curvature import Colouring
from stanct.path.gaussian import GaussianBase
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.path.narrowed import Frame, narrowed
from stanct.path.profiles import FINE, Profiles, profiles
from stanct.path.whitened import DrawnOnly

# Elements of the arrays that a batch of profiles has, about, at each node.
_BATCH = 2000
# Whitened places at which profiles are found are multiples of this.
_ROUNDED = 2.0**-20


class Valued(NamedTuple):
    """Whitened draws of a base, shape (count, D), log q(x) at them, and the gradients spent."""

    z: Array
    log_density: Array
    gradients: int


@dataclass(frozen=True, kw_only=True)
class NestedBase(DrawnOnly[GaussianBase | LowRankBase], ABC):
    """The base q(θ) q(x | θ) of k outer coordinates θ and n inner ones x.

    Attributes
    ----------
    whitening
        A Gaussian with about the moments of the base, in whose coordinates its draws are.
    marginal
        q, a mixture in k dimensions.
    outer : shape (k,)
        Numbers of the outer coordinates among all D.
    gradients
        How many gradients a draw costs on average.
    lend
        Lends the density of the target. A base that was read from a file has none.
    """

    whitening: GaussianBase | LowRankBase = field(repr=False)
    marginal: MixtureBase
    outer: Array
    gradients: float
    lend: Callable[[], AbstractContextManager[Any]] | None = field(
        default=None, repr=False, compare=False
    )

    @abstractmethod
    def _made(self, slices: Slices, theta: Array, noise: Array) -> tuple[Array, Array]:
        """Inner coordinates from normal noise, shape (count, n), and log q of them given θ."""

    @abstractmethod
    def _log_given(self, slices: Slices, theta: Array, inner: Array) -> Array:
        """log q(x | θ), shape (count,), for shapes (count, k) and (count, n)."""

    @property
    @abstractmethod
    def _own_arrays(self) -> dict[str, Array]:
        """What else the base is made of, by name."""

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Independent whitened draws, shape (count, D)."""
        return self.valued(rng, count).z

    def valued(self, rng: np.random.Generator, count: int) -> Valued:
        """Independent draws with the density of the base."""
        theta = self.marginal.unwhiten(self.marginal.draw(rng, count))
        noise = rng.standard_normal((count, self.dimension - self.outer.size))
        with self._slices() as slices:
            inner, log_given = self._made(slices, theta, noise)
            x = slices.joined(theta, inner)
            log_q = self.marginal.log_density(theta) + log_given
            return Valued(self.whiten(x), log_q, slices.spent)

    def standardised(self, z: Array) -> Array:
        """The outer coordinates of points, standard normal if z, (..., D), is from the base."""
        theta = self.unwhiten(z)[..., self.outer]
        return self.marginal.standardised(self.marginal.whiten(theta))

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D)."""
        flat = np.reshape(x, (-1, self.dimension))
        theta = flat[:, self.outer]
        with self._slices() as slices:
            log_given = self._log_given(slices, theta, np.delete(flat, self.outer, axis=1))
        return (self.marginal.log_density(theta) + log_given).reshape(np.shape(x)[:-1])

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return self.log_density(self.unwhiten(z)) - log_density

    def arrays(self) -> dict[str, Array]:
        """The arrays of the base by the names under which a run stores them."""
        own = {"outer": self.outer, "gradients": np.asarray(self.gradients), **self._own_arrays}
        nested = {f"nested_{name}": array for name, array in own.items()}
        marginal = {f"outer_{name}": array for name, array in self.marginal.arrays().items()}
        return self.whitening.arrays() | nested | marginal

    @contextmanager
    def _slices(self) -> Iterator[Slices]:
        if self.lend is None:
            raise SamplingError(
                "A nested base that was read from a file has no program to draw with.",
                remedy="Call `run.extend`, or fit the base again.",
            )
        outer = np.zeros(self.dimension, bool)
        outer[self.outer] = True
        with self.lend() as density:
            yield Slices(density.log_density_gradients, outer)


@dataclass(frozen=True, kw_only=True)
class NestedGaussian(NestedBase):
    """The base q(θ) N(x; m(θ), C(θ)).

    m(θ) and C(θ) are found anew at each θ, by Newton's method from the nearest of some known
    places. It costs as many gradients as the inner coordinates have colours, and two, where they
    are Gaussian.

    Attributes
    ----------
    places, means, spreads : shapes (K, k), (K, n) and (K, n)
        Known places: θ, and the mean and standard deviations of the Gaussian there.
    colours, shares : shapes (n,) and (n, n)
        Of the `Colouring` of second derivatives.
    """

    places: Array = field(repr=False)
    means: Array = field(repr=False)
    spreads: Array = field(repr=False)
    colours: Array = field(repr=False)
    shares: Array = field(repr=False)

    def _made(self, slices: Slices, theta: Array, noise: Array) -> tuple[Array, Array]:
        inner, log_q = np.empty_like(noise), np.empty(len(noise))
        for batch, given in self._given(slices, theta):
            inner[batch] = given.drawn(noise[batch])
            log_q[batch] = given.log_density(noise[batch])
        return inner, log_q

    def _log_given(self, slices: Slices, theta: Array, inner: Array) -> Array:
        log_q = np.empty(len(inner))
        for batch, given in self._given(slices, theta):
            log_q[batch] = given.log_density(given.noise(inner[batch]))
        return log_q

    @property
    def _own_arrays(self) -> dict[str, Array]:
        names = ("places", "means", "spreads", "colours", "shares")
        return {name: getattr(self, name) for name in names}

    def _given(self, slices: Slices, theta: Array) -> Iterator[tuple[slice, Conditionals]]:
        """The Gaussians of the inner coordinates at each θ, some θ at a time."""
        known, points = self.marginal.whiten(self.places), self.marginal.whiten(theta)
        near = np.square(points[:, None] - known).sum(axis=-1).argmin(axis=1)
        colouring = Colouring(self.colours, self.shares)
        return slices.gaussians(theta, self.means[near], self.spreads[near], colouring)


@dataclass(frozen=True, kw_only=True)
class NestedLowRank(NestedBase):
    """The base q(θ) N(x; m(θ), L(θ) L(θ)ᵀ) of hundreds of coordinates x.

    m(θ) and L(θ) are found anew at each θ; see `stanct.path.narrowed`. It costs a gradient for each
    of r directions, and a few more.

    Attributes
    ----------
    centre, diagonal, vectors : shapes (n,), (n,) and (n, r)
        The frame of all Gaussians.
    """

    centre: Array = field(repr=False)
    diagonal: Array = field(repr=False)
    vectors: Array = field(repr=False)

    def _made(self, slices: Slices, theta: Array, noise: Array) -> tuple[Array, Array]:
        inner, log_q = np.empty_like(noise), np.empty(len(noise))
        for n, given in enumerate(self._gaussians(slices, theta)):
            inner[n] = given.unwhiten(noise[n])
            log_q[n] = given.log_density(inner[n])
        return inner, log_q

    def _log_given(self, slices: Slices, theta: Array, inner: Array) -> Array:
        given = zip(self._gaussians(slices, theta), inner, strict=True)
        return np.array([one.log_density(x) for one, x in given])

    @property
    def _own_arrays(self) -> dict[str, Array]:
        return self._frame._asdict()

    @property
    def _frame(self) -> Frame:
        return Frame(self.centre, self.diagonal, self.vectors)

    def _gaussians(self, slices: Slices, theta: Array) -> Iterator[LowRankBase]:
        return (narrowed(slices, point, self._frame).gaussian for point in theta)


@dataclass(frozen=True, kw_only=True)
class NestedProduct(NestedBase):
    """The base q(θ) Π q(x_i | θ) of inner coordinates that are independent given θ.

    Their densities are found anew at each θ; see `stanct.path.profiles`. θ is rounded for them. A
    mesh can change where θ changes by nothing but rounding, and with it log q by some hundredths.

    Attributes
    ----------
    centre, unit : shape (n,)
        Where the densities are searched, and the unit of the first mesh.
    """

    centre: Array = field(repr=False)
    unit: Array = field(repr=False)

    def _made(self, slices: Slices, theta: Array, noise: Array) -> tuple[Array, Array]:
        inner, log_q = np.empty_like(noise), np.empty(len(noise))
        for batch, found in self._given(slices, theta):
            inner[batch] = found.drawn(ndtr(noise[batch]))
            log_q[batch] = found.log_density(inner[batch])
        return inner, log_q

    def _log_given(self, slices: Slices, theta: Array, inner: Array) -> Array:
        log_q = np.empty(len(inner))
        for batch, found in self._given(slices, theta):
            log_q[batch] = found.log_density(inner[batch])
        return log_q

    def _given(self, slices: Slices, theta: Array) -> Iterator[tuple[slice, Profiles]]:
        at = np.round(self.marginal.whiten(theta) / _ROUNDED) * _ROUNDED
        return given_in_batches(slices, self.marginal.unwhiten(at), self.centre, self.unit)

    @property
    def _own_arrays(self) -> dict[str, Array]:
        return {"centre": self.centre, "unit": self.unit}


def given_in_batches(
    slices: Slices, theta: Array, centre: Array, unit: Array, *, fine: float = FINE
) -> Iterator[tuple[slice, Profiles]]:
    """The densities of independent inner coordinates at each θ, shape (count, k), some θ at a time.

    The others are those of `profiles`.
    """
    size = max(_BATCH // centre.size, 1)
    for start in range(0, len(theta), size):
        batch = slice(start, start + size)
        yield batch, profiles(slices.slopes, theta[batch], centre, unit, fine=fine)
