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
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.path.conditional import Conditionals, Slices
from stanct.path.curvature import Colouring
from stanct.path.gaussian import GaussianBase
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.path.profiles import FINE, Profiles, profiles
from stanct.path.smooth import Smooth, Smoothed
from stanct.path.whitened import DrawnOnly

# Elements of the arrays that a batch of profiles has, about, at each node.
_BATCH = 2000
# Whitened places at which profiles are found are multiples of this.
_ROUNDED = 2.0**-20
# How many nats log densities may be off where a product only guides a mixture.
_ROUGH = 2.0


Given = Conditionals | Profiles | Smoothed
"""Densities of the n inner coordinates, given the outer ones at m places."""


class Valued(NamedTuple):
    """Whitened draws of a base, shape (count, D), log q(x) at them, and the gradients spent."""

    z: Array
    log_density: Array
    gradients: int


@dataclass(frozen=True, kw_only=True)
class NestedBase(DrawnOnly[GaussianBase | LowRankBase], ABC):
    """The base q(θ) q(x | θ) of k outer coordinates θ and n inner ones x.

    Draws are in the coordinates of `whitening`, a Gaussian with about its moments. `marginal` is
    q(θ), of the coordinates numbered `outer`. A draw costs so many `gradients` on average, of the
    density that `lend` lends; a base that was read from a file has none.
    """

    whitening: GaussianBase | LowRankBase = field(repr=False)
    marginal: MixtureBase
    outer: Array
    gradients: float
    lend: Callable[[], AbstractContextManager[Any]] | None = field(
        default=None, repr=False, compare=False
    )

    own: ClassVar[tuple[str, ...]]
    """Names of the arrays that the base has besides."""

    @abstractmethod
    def given(
        self, slices: Slices, theta: Array, *, rough: bool = False
    ) -> Iterator[tuple[slice, Given]]:
        """The densities of the inner coordinates at each θ, shape (count, k), some θ at a time.

        With `rough`, their masses, which then only guide a mixture, may be off by some nats.
        """

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        return self.valued(rng, count).z

    def valued(self, rng: np.random.Generator, count: int) -> Valued:
        """Independent draws with the density of the base."""
        theta = self.marginal.unwhiten(self.marginal.draw(rng, count))
        noise = rng.standard_normal((count, self.dimension - self.outer.size))
        inner, log_q = np.empty_like(noise), self.marginal.log_density(theta)
        with self._slices() as slices:
            for batch, given in self.given(slices, theta):
                inner[batch], log_given = given.made(noise[batch])
                log_q[batch] += log_given
            x = slices.joined(theta, inner)
            return Valued(self.whiten(x), log_q, slices.spent)

    def standardised(self, z: Array) -> Array:
        """The outer coordinates of points, standard normal if z, (..., D), is from the base."""
        theta = self.unwhiten(z)[..., self.outer]
        return self.marginal.standardised(self.marginal.whiten(theta))

    def log_density(self, x: Array) -> Array:
        flat = np.reshape(x, (-1, self.dimension))
        theta, inner = flat[:, self.outer], np.delete(flat, self.outer, axis=1)
        log_q = self.marginal.log_density(theta)
        with self._slices() as slices:
            for batch, given in self.given(slices, theta):
                log_q[batch] += given.log_density(inner[batch])
        return log_q.reshape(np.shape(x)[:-1])

    def delta(self, z: Array, log_density: Array) -> Array:
        return self.log_density(self.unwhiten(z)) - log_density

    def arrays(self) -> dict[str, Array]:
        names = ("outer", "gradients", *self.own)
        nested = {f"nested_{name}": np.asarray(getattr(self, name)) for name in names}
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
    """The base q(θ) N(x; m(θ), C(θ)), by Newton's method from one `centre` at each θ.

    It costs as many gradients as the inner coordinates have colours, and two, where they are
    Gaussian. `unit` has standard deviations, and `colours` and `shares` are those of the
    `Colouring`.
    """

    own = "centre", "unit", "colours", "shares"
    centre: Array = field(repr=False)
    unit: Array = field(repr=False)
    colours: Array = field(repr=False)
    shares: Array = field(repr=False)

    def given(
        self, slices: Slices, theta: Array, *, rough: bool = False
    ) -> Iterator[tuple[slice, Conditionals]]:
        del rough
        centre, unit = (np.tile(one, (len(theta), 1)) for one in (self.centre, self.unit))
        return slices.gaussians(theta, centre, unit, Colouring(self.colours, self.shares))


@dataclass(frozen=True, kw_only=True)
class NestedLowRank(NestedBase):
    """The base q(θ) N(x; m(θ), L(θ) L(θ)ᵀ) of hundreds of coordinates x, which are `Smooth` in θ.

    A draw costs no gradient. The arrays are those of `Smooth`.
    """

    own = Smooth._fields
    centre: Array = field(repr=False)
    diagonal: Array = field(repr=False)
    directions: Array = field(repr=False)
    middle: Array = field(repr=False)
    unit: Array = field(repr=False)
    nodes: Array = field(repr=False)
    spline: Array = field(repr=False)
    offsets: Array = field(repr=False)
    logs: Array = field(repr=False)

    def given(
        self, slices: Slices, theta: Array, *, rough: bool = False
    ) -> Iterator[tuple[slice, Smoothed]]:
        smooth = Smooth(**{name: getattr(self, name) for name in self.own})
        return smooth.massed(slices, theta) if rough else smooth.at(theta)


@dataclass(frozen=True, kw_only=True)
class NestedProduct(NestedBase):
    """The base q(θ) Π q(x_i | θ) of inner coordinates that are independent given θ, by `profiles`.

    A mesh of `unit` around `centre` is the first. θ is rounded for it, because meshes change with
    θ.
    """

    own = "centre", "unit"
    centre: Array = field(repr=False)
    unit: Array = field(repr=False)

    def given(
        self, slices: Slices, theta: Array, *, rough: bool = False
    ) -> Iterator[tuple[slice, Profiles]]:
        at = np.round(self.marginal.whiten(theta) / _ROUNDED) * _ROUNDED
        at, fine = self.marginal.unwhiten(at), _ROUGH if rough else FINE
        size = max(_BATCH // self.centre.size, 1)
        for start in range(0, len(at), size):
            batch = slice(start, start + size)
            yield batch, profiles(slices.slopes, at[batch], self.centre, self.unit, fine=fine)
