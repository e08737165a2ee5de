"""Tours: the stretches of a chain between regenerations, and errors from them.

Where a chain draws x afresh from the base, all that follows is independent of all before: a
regeneration. The stretch up to the next one is a tour. Tours are independent and identically
distributed (Mykland, Tierney & Yu 1995), so the spread of their totals gives errors without any
autocorrelation time. A chain that stays in one mode is one tour, however long.

Independent draws of a mixture come in batches that are balanced over its components
(`stanct.path.mixture`). Draws inside of one make up for each other, which neither tours nor
autocorrelations tell. Batches are independent, and the spread of their totals has the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size
from stanct.path.bias import AnyBias, regenerates

# The two-sided 95 % limit of a standard normal, which readers of a standard error apply to it.
NORMAL_LIMIT = 1.959964
# With fewer effective tours, one stretch of a chain makes up an error.
FEWEST_TOURS = 1.5
# With fewer effective tours the error of log Z is itself too uncertain. It is too small, above all,
# where no tour has seen the depth of a neck, and log Z is too low there.
ENOUGH_TOURS = 6.0
# The spread of fewer batches of each chain tells no error.
FEWEST_BATCHES = 2


@dataclass(frozen=True)
class Tours:
    """The tours of all chains: to which one each draw belongs, shape (chains, draws), from 0.

    The first and last tour of a chain are cut by its ends. `batch` is the number of the balanced
    batch of each draw of a chain, shape (draws,), from 0; None where draws do not come in batches.
    """

    number: Array = field(repr=False)
    batch: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, beta: Array, bias: AnyBias, batch: int = 1) -> Tours | None:
        """The tours of draws at β, shape (chains, draws), that come in batches of so many.

        None where chains do not regenerate.
        """
        if not regenerates(bias):
            return None
        own = cls.after(beta == 0)
        return own if batch == 1 else cls(own.number, batches(beta.shape[1], batch))

    @classmethod
    def after(cls, regenerated: Array) -> Tours:
        """The tours that begin after draws, shape (chains, draws), from which x is drawn afresh."""
        begins = np.ones(regenerated.shape, bool)  # each chain begins a tour
        begins[:, 1:] = regenerated[:, :-1]
        return cls(begins.ravel().cumsum().reshape(begins.shape) - 1)

    def at(self, rows: Array) -> Tours:
        """The tours of some of the draws of each chain, without tours that have none of them."""
        number, batch = self.number[:, rows], self.batch
        own = np.unique(number, return_inverse=True)[1].reshape(number.shape)
        return Tours(own, None if batch is None else np.unique(batch[rows], return_inverse=True)[1])

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

        See `student_factor`. The error of balanced batches replaces a larger one.
        """
        larger = max(error, self.error(contributions))
        widened = larger * student_factor(self.effective(contributions))
        return min(widened, batched_error(contributions, self.batch))


def effective_draws(contributions: Array, tours: Tours | None = None) -> float:
    """Effective number of draws behind the mean of contributions, shape (chains, draws).

    Draws of a balanced batch that make up for each other may count for more than one each; for all
    at most the square of their number, because shares are told to one draw.
    """
    size = effective_size(contributions)
    error = batched_error(contributions, None if tours is None else tours.batch)
    spread, most = float(contributions.std()), float(contributions.size) ** 2
    if spread == 0 or error == np.inf:
        return size
    return max(size, min((spread / error) ** 2, most) if error > 0 else most)


def batches(draws: int, length: int) -> Array | None:
    """The number of the batch of each of so many draws, shape (draws,); None for hardly any."""
    return np.arange(draws) // length if draws >= FEWEST_BATCHES * length else None


def batched_error(contributions: Array, batch: Array | None) -> float:
    """Standard error of the mean of contributions, shape (chains, draws), in balanced batches.

    It is that of a ratio of totals, as in `Tours.error`, and widened as there. A draw that is
    repeated may begin in the batch before, so that successive totals may be alike. It is infinite
    without batches, or where fewer than `FEWEST_TOURS` make it up.
    """
    if batch is None:
        return np.inf
    lengths = np.bincount(batch)
    totals = np.array([np.bincount(batch, chain) for chain in contributions])
    excess = totals - lengths * contributions.mean()
    squares = np.square(excess)
    alike = max(float((excess[:, :-1] * excess[:, 1:]).sum()), 0.0)
    scale = squares.size / (squares.size - 1)
    error = math.sqrt(scale * (float(squares.sum()) + 2 * alike)) / contributions.size
    number = effective_number(squares.ravel())
    return error * student_factor(number) if number >= FEWEST_TOURS else np.inf


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
