"""The stopping rule: a fixed number of draws, or a small enough error of log Z.

Stopping at the first small error would favour errors that are too small by chance. Therefore the
error must be small enough at two successive looks, with at least a tenth more draws at the second.
The error is already the larger of the within-chain and the between-chain error. The checks of
mixing and weights must also pass. Looks are few, because each one lies halfway, by ratio, to the
number of draws at which the error is expected to reach the target.

The default, of which nobody asked for a number of draws or an error, stops by the same rule once it
has enough: the error is small, and means rest on many effective draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stanct.estimates.tours import ENOUGH_TOURS

# Draws of each chain before the first look, and bounds on their growth from look to look.
FIRST_LOOK = 200
LEAST_GROWTH, MOST_GROWTH = 1.1, 2.0

# The error of a few chains jumps: it doubles when one first meets a rare region. Only over a range
# of draws of ratio `LONG` does the slope in log n, ideally −½, show that the error does not fall.
# Then chains disagree, or weights have no finite variance. In simulations with heavy tails
# (Student's t of 2.2 and 3 degrees), one of 160 runs stopped by mistake. Of 60 runs with chains
# that disagree by 0.4 sd, all stopped.
LONG, STALLED = 32, -0.15

MAX_DRAWS_FACTOR = 20
# Before it has this many times the draws that are enough if all count, the default does not look.
LEAST_DRAWS = 1.25


@dataclass(frozen=True)
class Enough:
    """What is enough where nobody asked for a number of draws or an error.

    An error of log Z, independent draws that the means are worth, and effective tours behind the
    error.
    """

    std_error: float
    effective: int
    tours: float = ENOUGH_TOURS

    def precision(self, chains: int, most: int) -> Precision:
        """The stopping rule of chains with so many draws each at most."""
        begin = max(FIRST_LOOK, math.ceil(LEAST_DRAWS * self.effective / chains))
        return Precision(
            self.std_error, most, most, begin=begin, effective=self.effective, tours=self.tours
        )


@dataclass
class Precision:
    """Decides at each look how many more draws to make.

    `target_se` is the standard error of log Z to reach, None for exactly `draws` of each chain, and
    `most` the largest number with one, by default 20 × `draws`. Draws come in multiples of `unit`,
    the first look after `begin`, and further ones after a `growth` at least, which is larger where
    every look costs a warm-up. With `effective` draws on which means must rest, the aim is that of
    `Enough`, and `tours` must be behind the error.

    `looks` has draws and standard error of each, and `reason` why the run stopped: ``"draws"``,
    ``"reached"``, ``"limit"``, ``"warnings"`` (small enough at the limit but not reliable),
    ``"stalled"``, ``"interrupted"`` or ``"max_seconds"``; empty while it continues.
    """

    target_se: float | None
    draws: int
    most: int | None = None
    unit: int = 1
    begin: int = FIRST_LOOK
    growth: float = LEAST_GROWTH
    effective: int = 0
    tours: float = ENOUGH_TOURS
    reason: str = ""
    looks: list[tuple[int, float]] = field(default_factory=list)
    # How many times the error is too large at each look, or the errors of means are.
    _excess: list[float] = field(default_factory=list)

    def by(self, unit: int) -> Precision:
        """The rule for draws in multiples of a unit, with the first look no later."""
        return replace(self, unit=unit, begin=max(self.begin // unit, 1) * unit)

    @property
    def limit(self) -> int:
        """Largest number of draws of each chain."""
        if self.target_se is None:
            return self.draws
        most = MAX_DRAWS_FACTOR * self.draws if self.most is None else self.most
        return max(self.unit, most // self.unit * self.unit)

    @property
    def first(self) -> int:
        """Draws of each chain before the first look."""
        return self.draws if self.target_se is None else min(self._whole(self.begin), self.limit)

    def _next(self, draws: float, expected: float) -> float:
        """Draws at the next look, halfway by ratio: the expectation rests on noisy errors."""
        wanted = max(math.sqrt(draws * expected), self.growth * draws)
        return min(wanted, MOST_GROWTH * draws)

    def _too_large(self, std_error: float, effective: float) -> float:
        """How many times the error is larger than it may be, or those of means are."""
        of_means = math.sqrt(self.effective / max(effective, 1.0))
        return max(std_error / (self.target_se or math.inf), of_means)

    def _whole(self, draws: float) -> int:
        """The least multiple of `unit` that is not smaller."""
        return math.ceil(draws / self.unit) * self.unit

    def more(
        self, draws: int, std_error: float, failed: Sequence[str], effective: float = math.inf
    ) -> int:
        """How many more draws each chain makes, 0 to stop; an unknown error is NaN or ∞."""
        if self.target_se is None:
            self.reason = "draws"
            return 0
        self.looks.append((draws, std_error))
        self._excess.append(self._too_large(std_error, effective))
        small = [excess <= 1 for excess in self._excess[-2:]]
        if small == [True, True] and not failed:
            self.reason = "reached"
        elif draws >= self.limit:
            self.reason = "warnings" if std_error <= self.target_se else "limit"
        elif self._stalled():
            self.reason = "stalled"
        if self.reason:
            return 0
        # A small error whose checks fail takes twice the draws, and not many looks.
        expected = self.expected if not small[-1] else 2 * draws if failed else 0.0
        return min(self._whole(self._next(draws, expected)), self.limit) - draws

    @property
    def expected(self) -> float:
        """Draws at which the error should reach the target: by 1/√n, from three looks."""
        if self.target_se is None or not self.looks:
            return float(self.limit)
        recent = zip(self.looks[-3:], self._excess[-3:], strict=True)
        known = [n * excess**2 for (n, _), excess in recent if math.isfinite(excess)]
        if not known:
            return float(self.limit)
        return max(self.looks[-1][0], float(np.median(known)))

    def _stalled(self) -> bool:
        """Whether the error fails to fall as 1/√n while the draws grow by the factor `LONG`."""
        last, error = self.looks[-1]
        if error <= (self.target_se or 0) or last < LONG * self.looks[0][0]:
            return False
        # Looks are rounded up; the tolerance keeps the first look of the range.
        recent = np.array([look for look in self.looks if look[0] >= 0.99 * last / LONG])
        recent = recent[np.isfinite(recent[:, 1])]
        if len(recent) < 2:
            return True
        draws, errors = np.log(recent).T
        draws = draws - draws.mean()
        return bool(draws @ errors / (draws @ draws) > STALLED)

    def record(self) -> dict[str, Any]:
        """Reason, looks and aims for provenance, JSON values only."""
        return {
            "reason": self.reason,
            "target_se": self.target_se,
            "max_draws": self.limit,
            "effective": self.effective or None,
            "looks": [[n, e if math.isfinite(e) else None] for n, e in self.looks],
        }
