"""When to stop: after so many draws, or as soon as the error of log Z is small enough.

Stopping at the first small error would favour errors that are too small by chance. Therefore the
error, which is already the larger of the within-chain and the between-chain one, must be small
enough at two successive looks with at least a tenth more draws between them, and the checks of
mixing and weights must pass; looks are few, because the next one is made half of the way to where
the error is expected to arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

# Draws of each chain before the first look, and by which factor the next look may lie further on.
FIRST_LOOK = 200
LEAST_GROWTH, MOST_GROWTH = 1.1, 2.0

# The error of few chains jumps: when one first meets a rare place it doubles. Only over a range of
# draws as wide as this does its slope in log n, −½ by rights, tell that it does not fall: chains
# disagree, or weights have no variance. Simulated: of 160 runs with heavy tails (Student's t of 2.2
# and 3 degrees) one stopped so by mistake, of 60 with chains that disagree by 0.4 sd all did.
LONG, STALLED = 32, -0.15

MAX_DRAWS_FACTOR = 20


@dataclass
class Precision:
    """Decides, look by look, how many draws to make.

    Parameters
    ----------
    target_se
        Standard error of log Z to reach; None for exactly `draws`.
    draws
        Draws of each chain without a target.
    most
        Largest number of draws of each chain with a target; 20 × `draws` by default.

    Attributes
    ----------
    reason
        Why there are no more draws: ``"draws"``, ``"reached"``, ``"limit"``, ``"warnings"`` (small
        enough at the limit, but not to be believed), ``"stalled"``, or empty while there are.
    looks
        Draws of each chain and standard error at each look.
    """

    target_se: float | None
    draws: int
    most: int | None = None
    reason: str = ""
    looks: list[tuple[int, float]] = field(default_factory=list)

    @property
    def limit(self) -> int:
        """Draws of each chain that are never exceeded."""
        if self.target_se is None:
            return self.draws
        return MAX_DRAWS_FACTOR * self.draws if self.most is None else self.most

    @property
    def first(self) -> int:
        """Draws of each chain before the first look."""
        return self.draws if self.target_se is None else min(FIRST_LOOK, self.limit)

    def more(self, draws: int, std_error: float, failed: Sequence[str]) -> int:
        """How many more draws each chain makes, 0 when it is time to stop.

        Parameters
        ----------
        draws
            Draws of each chain so far.
        std_error
            Of log Z from all of them; NaN or ∞ where there is none yet.
        failed
            Names of the failed checks.
        """
        if self.target_se is None:
            self.reason = "draws"
            return 0
        self.looks.append((draws, std_error))
        small = [error <= self.target_se for _, error in self.looks[-2:]]
        if small == [True, True] and not failed:
            self.reason = "reached"
        elif draws >= self.limit:
            self.reason = "warnings" if std_error <= self.target_se else "limit"
        elif self._stalled():
            self.reason = "stalled"
        if self.reason:
            return 0
        # Half of the way there by ratio: the errors on which the expectation rests are noisy, and
        # what is drawn beyond the target is not wanted.
        halfway = 0.0 if small[-1] else math.sqrt(draws * self.expected)
        wanted = min(max(halfway, LEAST_GROWTH * draws), MOST_GROWTH * draws)
        return min(math.ceil(wanted), self.limit) - draws

    @property
    def expected(self) -> float:
        """Draws of each chain at which the error should arrive, by its 1/√n law.

        The middle one of the last three errors, each brought to one draw, stands for it: a single
        one that is large by chance would send the next look too far.
        """
        if self.target_se is None or not self.looks:
            return float(self.limit)
        known = [n * e**2 for n, e in self.looks[-3:] if math.isfinite(e)]
        if not known:
            return float(self.limit)
        return max(self.looks[-1][0], median(known) / self.target_se**2)

    def _stalled(self) -> bool:
        """Whether the error is not falling as 1/√n over the last range of `LONG` × the draws."""
        last, error = self.looks[-1]
        if error <= (self.target_se or 0) or last < LONG * self.looks[0][0]:
            return False
        # Rounding up of the next look must not cost the first of the range.
        recent = np.array([look for look in self.looks if look[0] >= 0.99 * last / LONG])
        recent = recent[np.isfinite(recent[:, 1])]
        if len(recent) < 2:
            return True
        draws, errors = np.log(recent).T
        draws = draws - draws.mean()
        return bool(draws @ errors / (draws @ draws) > STALLED)

    def record(self) -> dict[str, Any]:
        """For provenance: reason, looks, and what was wanted; JSON values only."""
        return {
            "reason": self.reason,
            "target_se": self.target_se,
            "max_draws": self.limit,
            "looks": [[n, e if math.isfinite(e) else None] for n, e in self.looks],
        }
