"""The one rule for the tail of weights, which every check and every text follows.

A Pareto k above 0.7 says that the error of a weighted average is unreliable (Vehtari et al. 2024).
Where weights hardly vary, their largest ones may still have such a shape, and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stanct.common.arrays import Array, even_share, log_sum_exp

# Above this shape, the tail is heavy.
MOST_SHAPE = 0.7
# With a larger effective share of the draws, weights hardly vary and their tail is irrelevant.
EVEN_WEIGHTS = 0.5
# A tail is a fifth of few weights, and has five at least. Of many it is this times their root.
FEWEST_WEIGHTS, FEW_WEIGHTS, OF_ROOT = 25, 225, 3
# The prior of the shape counts for so many weights, and has this mean.
PRIOR_WEIGHTS, PRIOR_SHAPE = 10, 0.5


@dataclass(frozen=True)
class Tail:
    """The tail of weights: its shape, Pareto k, and Kish's effective share of the draws.

    The share is (Σ w)² / (n Σ w²), from 0 to 1.
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


NO_TAIL = Tail(float("nan"), float("nan"))
"""Of what has no weights."""


def pareto_k(log_weights: Array) -> float:
    """Shape k of the generalised Pareto tail of importance weights, as ArviZ gives it.

    Above `MOST_SHAPE`, weighted averages have no reliable error. It is infinite for fewer than
    `FEWEST_WEIGHTS` weights, and −infinite where the largest are equal up to rounding.
    """
    log_weights = np.sort(np.asarray(log_weights, float), axis=None)
    count = log_weights.size
    if count < FEWEST_WEIGHTS:
        return float("inf")
    if np.ptp(log_weights[-max(count // 100, 5) :]) < 1e-12:
        return float("-inf")
    tail = int(OF_ROOT * np.sqrt(count)) if count > FEW_WEIGHTS else count // 5
    largest = np.exp(log_weights[-tail - 1 :] - log_weights[-1])
    with np.errstate(all="ignore"):
        return _shape(largest[1:] - largest[0])


def _shape(excess: Array) -> float:
    """Shape of a generalised Pareto distribution by Zhang and Stephens (2009), and a weak prior.

    `excess`, shape (n,), are values above the start of the tail, in ascending order.
    """
    count = excess.size
    grid = 30 + int(np.sqrt(count))
    rates = 1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    rates = rates / (3 * excess[int(count / 4 + 0.5) - 1]) + 1 / excess[-1]
    shapes = np.log1p(-rates[:, None] * excess).mean(axis=1)
    log_likelihood = count * (np.log(-rates / shapes) - shapes - 1)
    likelihood = np.exp(log_likelihood - log_sum_exp(log_likelihood))
    likely = likelihood >= 10 * np.finfo(float).eps  # none where a quarter of the excesses are 0
    rate = (rates[likely] * (likelihood[likely] / likelihood[likely].sum())).sum()
    shape = np.log1p(-rate * excess).mean()
    return float((count * shape + PRIOR_WEIGHTS * PRIOR_SHAPE) / (count + PRIOR_WEIGHTS))
