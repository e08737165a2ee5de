"""Tours: the stretches of a chain between regenerations, and errors from them.

Where a chain draws x afresh from the base, all that follows is independent of all before: a
regeneration. The stretch up to the next one is a tour. Tours are independent and identically
distributed (Mykland, Tierney & Yu 1995), so the spread of their totals gives errors without any
autocorrelation time. A chain that stays in one mode is one tour, however long.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stanct.arrays import Array


@dataclass(frozen=True)
class Tours:
    """The tours of all chains.

    Attributes
    ----------
    number : shape (chains, draws)
        To which tour a draw belongs, from 0. The first and last tour of a chain are cut by its
        ends.
    """

    number: Array = field(repr=False)

    @classmethod
    def after(cls, regenerated: Array) -> Tours:
        """The tours that begin after each draw from which x is drawn afresh.

        Parameters
        ----------
        regenerated : shape (chains, draws)
            Whether the next draw is independent of all up to this one.
        """
        begins = np.ones(regenerated.shape, bool)  # each chain begins a tour
        begins[:, 1:] = regenerated[:, :-1]
        return cls(begins.ravel().cumsum().reshape(begins.shape) - 1)

    def at(self, rows: Array) -> Tours:
        """The tours of some of the draws of each chain, without tours that have none of them."""
        number = self.number[:, rows]
        return Tours(np.unique(number, return_inverse=True)[1].reshape(number.shape))

    @property
    def count(self) -> int:
        """Number of tours."""
        return int(self.number[-1, -1]) + 1

    @property
    def lengths(self) -> Array:
        """Draws of each tour, shape (tours,)."""
        return np.bincount(self.number.ravel())

    def totals(self, values: Array) -> Array:
        """Sums of values over each tour, shape (tours,), for `values` of shape (chains, draws)."""
        return np.bincount(self.number.ravel(), values.ravel())

    def reached(self, values: Array, level: float) -> int:
        """Number of tours in which a value, shape (chains, draws), exceeds a level."""
        return int((np.bincount(self.number.ravel(), (values > level).ravel()) > 0).sum())

    def error(self, contributions: Array) -> float:
        """Standard error of the mean of contributions, shape (chains, draws), of mean zero.

        The mean is a ratio of two totals over tours, that of the contributions and that of the
        draws. With tour totals A and lengths B, its error is the delta method's,
        √(T / (T − 1) · Σ (A − r B)²) / Σ B with r = Σ A / Σ B. It is infinite for one tour.
        """
        totals, lengths = self.totals(contributions), self.lengths
        if totals.size < 2:
            return np.inf
        excess = totals - lengths * (totals.sum() / lengths.sum())
        scale = totals.size / (totals.size - 1)
        return float(np.sqrt(scale * np.square(excess).sum()) / lengths.sum())
