"""The one rule for the tail of weights, which every check and every text follows.

A Pareto k above 0.7 says that the error of a weighted average is unreliable (Vehtari et al. 2024).
Where weights hardly vary, their largest ones may still have such a shape, and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stanct.common.arrays import Array, even_share
from stanct.estimates.arviz_bridge import pareto_k

# Above this shape, the tail is heavy.
MOST_SHAPE = 0.7
# With a larger effective share of the draws, weights hardly vary and their tail is irrelevant.
EVEN_WEIGHTS = 0.5


@dataclass(frozen=True)
class Tail:
    """The tail of weights.

    Attributes
    ----------
    shape
        Pareto k.
    share
        Kish's effective share of the draws, (Σ w)² / (n Σ w²), from 0 to 1.
    """

    shape: float
    share: float

    @classmethod
    def of(cls, log_weights: Array) -> Tail:
        """The tail of log weights of any shape; −inf is a weight of zero."""
        finite = log_weights[np.isfinite(log_weights)]
        return cls(pareto_k(finite), even_share(log_weights))

    @property
    def is_heavy(self) -> bool:
        """Whether a few draws decide, so that the error is unreliable."""
        return not (self.shape <= MOST_SHAPE or self.share > EVEN_WEIGHTS)

    @property
    def in_words(self) -> str:
        """The shape, and why it does not matter where it is large and not heavy.

        It is "" where the shape is unknown, or the weights are equal and have no tail.
        """
        if np.isnan(self.shape) or self.shape == -np.inf:  # all weights are equal
            return ""
        why = " of even weights" if self.shape > MOST_SHAPE and not self.is_heavy else ""
        return f"Pareto k {self.shape:.2f}{why}"
