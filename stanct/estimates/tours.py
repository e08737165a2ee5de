"""Tours: the stretches of a chain between regenerations, and errors from them.

Where a chain draws x afresh from the base, all that follows is independent of all before: a
regeneration. The stretch up to the next one is a tour. Tours are independent and identically
distributed (Mykland, Tierney & Yu 1995), so the spread of their totals gives errors without any
autocorrelation time. A chain that stays in one mode is one tour, however long.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from stanct.common.arrays import Array

# The two-sided 95 % limit of a standard normal, which readers of a standard error apply to it.
NORMAL_LIMIT = 1.959964
# With fewer effective tours, one stretch of a chain makes up an error.
FEWEST_TOURS = 1.5
# With fewer effective tours the error of log Z is itself too uncertain. It is too small, above all,
# where no tour has seen the depth of a neck, and log Z is too low there.
ENOUGH_TOURS = 6.0


@dataclass(frozen=True)
class Tours:
    """The tours of all chains: to which one each draw belongs, shape (chains, draws), from 0.

    The first and last tour of a chain are cut by its ends.
    """

    number: Array = field(repr=False)

    @classmethod
    def after(cls, regenerated: Array) -> Tours:
        """The tours that begin after draws, shape (chains, draws), from which x is drawn afresh."""
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
        if self.count < 2:
            return np.inf
        squares = np.square(self._excess(contributions))
        scale = squares.size / (squares.size - 1)
        return float(np.sqrt(scale * squares.sum()) / self.number.size)

    def _excess(self, contributions: Array) -> Array:
        """A − r B of each tour, shape (tours,)."""
        totals, lengths = self.totals(contributions), self.lengths
        return totals - lengths * (totals.sum() / lengths.sum())

    def effective(self, contributions: Array) -> float:
        """Effective number of tours behind `error`, (Σ v)² / Σ v² with v = (A − r B)².

        It is the number of tours over their kurtosis: 1 where one tour makes up all of the error,
        and a third of the tours where their totals are normal.
        """
        return effective_number(np.square(self._excess(contributions)))

    def widened(self, contributions: Array, error: float) -> float:
        """The larger of another standard error of the mean and that of the tours, widened.

        See `student_factor`.
        """
        larger = max(error, self.error(contributions))
        return larger * student_factor(self.effective(contributions))


def effective_number(squares: Array) -> float:
    """Effective number of independent squares in their sum, (Σ v)² / Σ v², shape (n,)."""
    most = squares.max()
    if not 0 < most < np.inf:
        return float(squares.size)
    shares = squares / most
    return float(shares.sum() ** 2 / (shares @ shares))


def student_factor(number: float) -> float:
    """The factor that widens an error whose variance is a sum of so many effective squares.

    A variance that a few large squares make up is itself uncertain, and too small where the largest
    ones have not been seen. As with Student's t, ± 1.96 widened errors have the coverage of 95 %
    that they would have with the true variance. The degrees of freedom are the effective number,
    half of those of Satterthwaite (1946), because the kurtosis of few draws is too low, too.
    """
    return float(stdtrit(max(number, 1.0), 0.975)) / NORMAL_LIMIT
