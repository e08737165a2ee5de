"""A base of independent coordinates, each with a density of its own.

Wells on many lines have thousands of modes together, and two each. Where no coordinate tells
anything of another, their densities are followed one by one, however many modes they make together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from stanct.common.arrays import Array
from stanct.path.gaussian import GaussianBase
from stanct.path.profiles import Profiles
from stanct.path.whitened import DrawnOnly

# Quantiles of each coordinate of which its mean and variance are made.
_QUANTILES = 2000
_NAMES = ("nodes", "log_tops", "rates", "upto")


@dataclass(frozen=True, kw_only=True)
class ProductBase(DrawnOnly[GaussianBase]):
    """The base Π q_i(x_i), with densities that are exponential in pieces.

    `whitening` has the means and variances; the other arrays are as in `Profiles`, of one place.
    """

    whitening: GaussianBase = field(repr=False)
    nodes: Array = field(repr=False)
    log_tops: Array = field(repr=False)
    rates: Array = field(repr=False)
    upto: Array = field(repr=False)

    @classmethod
    def of(cls, found: Profiles) -> ProductBase:
        """The base of the densities at one place."""
        at = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        x = found.drawn(np.repeat(at[:, None], found.nodes.shape[1], axis=1))
        whitening = GaussianBase(x.mean(axis=0), np.diag(x.std(axis=0)))
        return cls(whitening=whitening, **{name: getattr(found, name) for name in _NAMES})

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        return self.whiten(self._profiles.drawn(rng.random((count, self.dimension))))

    def standardised(self, z: Array) -> Array:
        """Points, (..., D), that are standard normal, nearly in a piece, for z of the base."""
        x, total = self.unwhiten(z), self.upto[0, :, -1:]
        below = self.upto[0, :, :-1] / total
        columns = zip(np.moveaxis(x, -1, 0), self.nodes[0], below, strict=True)
        return ndtri(np.stack([np.interp(*column) for column in columns], axis=-1))

    def log_density(self, x: Array) -> Array:
        return self._profiles.log_density(x)

    def delta(self, z: Array, log_density: Array) -> Array:
        return self.log_density(self.unwhiten(z)) - log_density

    def arrays(self) -> dict[str, Array]:
        return self.whitening.arrays() | {f"product_{name}": getattr(self, name) for name in _NAMES}

    @property
    def _profiles(self) -> Profiles:
        return Profiles(self.nodes, self.log_tops, self.rates, self.upto, np.zeros(1))
