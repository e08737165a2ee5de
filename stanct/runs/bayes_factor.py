"""`BayesFactor`: the evidence of one model over that of another, with its error, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from stanct.estimates.digits import decimals, shown

# Kass & Raftery (1995, section 3.2), in natural logs of a Bayes factor of 3, 20 and 150.
STRENGTHS = (
    (math.log(3), "not worth more than a bare mention"),
    (math.log(20), "positive"),
    (math.log(150), "strong"),
    (math.inf, "very strong"),
)
LARGEST_LOG = 709.0  # of a number
HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors


@dataclass(frozen=True)
class BayesFactor:
    """Evidence of one model over that of another, on the log scale.

    Attributes
    ----------
    log
        log Z of the first model minus log Z of the second.
    std_error
        Standard error of `log`, from both independent runs.
    models
        What the two models are called.
    """

    log: float
    std_error: float
    models: tuple[str, str] = field(default=("the first", "the second"), compare=False)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `log`."""
        return self.log - HALF_WIDTH * self.std_error, self.log + HALF_WIDTH * self.std_error

    @property
    def strength(self) -> str:
        """Kass & Raftery's (1995) words for the more cautious end of the interval."""
        return next(words for limit, words in STRENGTHS if self._surely < limit)

    @property
    def _surely(self) -> float:
        """The end of the interval that is nearer to no evidence, without its sign."""
        low, high = self.interval
        return 0.0 if low < 0 < high else min(abs(low), abs(high))

    @property
    def value(self) -> float:
        """The Bayes factor itself; infinite beyond what a number holds."""
        return _exp(self.log)

    @property
    def value_interval(self) -> tuple[float, float]:
        """The 95 % interval of `value`."""
        low, high = self.interval
        return _exp(low), _exp(high)

    @property
    def in_words(self) -> str:
        """The factor with its interval: ``BF 12.3 (numerical 95 %: 8.1 to 18.7)``."""
        # As many digits as tell the ends apart.
        digits = 3 - min(max(math.floor(math.log10(self.std_error or 1)) + 2, -3), 0)
        value, low, high = (_factor(log, digits) for log in (self.log, *self.interval))
        return f"BF {value} (numerical 95 %: {low} to {high})"

    def record(self) -> dict[str, Any]:
        """The factor with its 95 % interval as JSON values."""
        low, high = self.value_interval
        first, second = self.models
        return {
            "of": first,
            "over": second,
            "log": self.log,
            "std_error": self.std_error,
            "value": self.value,
            "low": low,
            "high": high,
        }

    def __repr__(self) -> str:
        places = decimals(self.std_error)
        error = shown(self.std_error, places)
        said = f"{self.in_words}, log BF {self.log:.{places}f} ± {error}: evidence {self.strength}"
        better = self.models[0 if self.log > 0 else 1]
        return f"{said}, for {better}" if self._surely >= STRENGTHS[0][0] else said


def _exp(log: float) -> float:
    return math.exp(log) if log < LARGEST_LOG else math.inf


def _factor(log: float, digits: int) -> str:
    """A factor of this log in so many digits; a power of ten where it is very large or small."""
    if abs(log) < math.log(1e4):
        return f"{math.exp(log):.{digits}g}" if log < math.log(1000) else f"{math.exp(log):.0f}"
    power = math.floor(log / math.log(10))
    return f"{math.exp(log - power * math.log(10)):.{digits - 1}f}e{power}"
