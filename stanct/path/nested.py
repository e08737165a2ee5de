"""A base in two stages: a mixture for a few coordinates, and a Gaussian of all others given them.

Given their scales and correlations, the effects of a hierarchy, the states of a random walk, and
the coefficients of a regression often are Gaussian. A density of the few outer coordinates θ, times
that Gaussian, then nearly is the target, necks included, however narrow they are. This is the
nested Laplace approximation of Rue, Martino & Chopin (2009), as a proposal that is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.path.conditional import Conditional, Slices
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase
from stanct.path.whitened import Whitened

_REMEDY = "Use the method 'independence', or another base."


class Valued(NamedTuple):
    """Draws of a base, with its density.

    Attributes
    ----------
    z : shape (count, D)
        Whitened draws.
    log_density : shape (count,)
        log q(x) at them.
    gradients
        Gradients spent.
    """

    z: Array
    log_density: Array
    gradients: int


@dataclass(frozen=True)
class NestedBase(Whitened):
    """The base q(θ) N(x; m(θ), L(θ) L(θ)ᵀ) of outer coordinates θ and inner ones x.

    m(θ) and L(θ) are found anew at each θ, by Newton's method from the nearest of some known
    places. It costs some n gradients, for n inner coordinates.

    Attributes
    ----------
    whitening
        A Gaussian with about the moments of the base, in whose coordinates its draws are.
    marginal
        q, a mixture in k dimensions.
    outer : shape (k,)
        Numbers of the outer coordinates among all D.
    places, means, roots : shapes (K, k), (K, n) and (K, n, n)
        Known places: θ, and the mean and root of the Gaussian there.
    gradients
        How many gradients a draw costs on average.
    lend
        Lends the density of the target. A base that was read from a file has none.
    """

    whitening: GaussianBase = field(repr=False)
    marginal: MixtureBase
    outer: Array
    places: Array = field(repr=False)
    means: Array = field(repr=False)
    roots: Array = field(repr=False)
    gradients: float
    lend: Callable[[], AbstractContextManager[Any]] | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def components(self) -> NoReturn:
        """Raise `SamplingError`: compiled code does not know this density."""
        raise SamplingError("This method cannot use a nested base.", remedy=_REMEDY)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Independent whitened draws, shape (count, D)."""
        return self.valued(rng, count).z

    def valued(self, rng: np.random.Generator, count: int) -> Valued:
        """Independent draws with the density of the base."""
        theta = self.marginal.unwhiten(self.marginal.draw(rng, count))
        noise = rng.standard_normal((count, self.means.shape[1]))
        x, log_q = np.empty((count, self.dimension)), self.marginal.log_density(theta)
        spent = 0
        for n, (slices, given) in enumerate(self._conditionals(theta)):
            x[n] = slices.joined(theta[n], (given.mean + given.root @ noise[n])[None])[0]
            log_q[n] += given.log_density(noise[n])
            spent = slices.spent
        return Valued(self.whiten(x), log_q, spent)

    def standardised(self, z: Array) -> Array:
        """The outer coordinates of points, standard normal if z is drawn from the base.

        Parameters
        ----------
        z : shape (..., D)

        Returns
        -------
        Array
            Shape (..., k).
        """
        theta = self.unwhiten(z)[..., self.outer]
        return self.marginal.standardised(self.marginal.whiten(theta))

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D)."""
        flat = np.reshape(x, (-1, self.dimension))
        theta = flat[:, self.outer]
        inner = np.delete(flat, self.outer, axis=1)
        log_q = self.marginal.log_density(theta)
        for n, (_, given) in enumerate(self._conditionals(theta)):
            log_q[n] += given.log_density(given.noise(inner[n]))
        return log_q.reshape(np.shape(x)[:-1])

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return self.log_density(self.unwhiten(z)) - log_density

    def dense(self) -> NoReturn:
        """Raise `SamplingError`, because the base is not Gaussian."""
        raise SamplingError("A nested base has no dense Gaussian form.", remedy=_REMEDY)

    def refitted(
        self, z: Array, weights: Array | None = None, *, least_shrinkage: float
    ) -> NoReturn:
        """Raise `SamplingError`, because draws alone do not tell its conditional Gaussians."""
        del z, weights, least_shrinkage
        raise SamplingError("A nested base is not refitted.", remedy=_REMEDY)

    def arrays(self) -> dict[str, Array]:
        """The arrays of the base by the names under which a run stores them."""
        names = ("outer", "places", "means", "roots", "gradients")
        own = {f"nested_{name}": np.asarray(getattr(self, name)) for name in names}
        marginal = {f"outer_{name}": array for name, array in self.marginal.arrays().items()}
        return self.whitening.arrays() | own | marginal

    def _conditionals(self, theta: Array) -> Iterator[tuple[Slices, Conditional]]:
        """The Gaussian of the inner coordinates at each θ, for `theta` of shape (count, k)."""
        if self.lend is None:
            raise SamplingError(
                "A nested base that was read from a file has no program to draw with.",
                remedy="Call `run.extend`, or fit the base again.",
            )
        outer = np.zeros(self.dimension, bool)
        outer[self.outer] = True
        with self.lend() as density:
            slices = Slices(density.log_density_gradients, outer)
            for point, nearest in zip(theta, self._nearest(theta), strict=True):
                yield slices, slices.at(point, self._known(int(nearest)))

    def _nearest(self, theta: Array) -> Array:
        """The number of the known place that is nearest to each θ, shape (count,)."""
        known, points = self.marginal.whiten(self.places), self.marginal.whiten(theta)
        return np.square(points[:, None] - known).sum(axis=-1).argmin(axis=1)

    def _known(self, number: int) -> Conditional:
        log_det = float(self._log_det_roots[number])
        return Conditional(self.means[number], self.roots[number], log_det, -np.inf)

    @cached_property
    def _log_det_roots(self) -> Array:
        return np.linalg.slogdet(self.roots)[1]
