"""Stan's warm-up: step sizes by dual averaging, and a diagonal metric in doubling windows.

The algorithm and its defaults are those of Stan's reference manual, "HMC algorithm parameters". For
dual averaging see Hoffman and Gelman (2014), section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stanct.common.arrays import Array
from stanct.common.errors import EngineError

# Iterations before the first window of the metric, of that window, and after the last one.
FIRST, WINDOW, LAST = 75, 25, 50

# Dual averaging: γ, which shrinks towards ten times the initial step size; t₀, which damps early
# iterations; κ, which sets how fast they are forgotten.
GAMMA, DAMPING, FORGETTING = 0.05, 10, 0.75

# Acceptance of one leapfrog step at the first step size.
WANTED = 0.8


class DualAveraging:
    """Learns the step size at which the acceptance statistic has a target mean, in (0, 1)."""

    def __init__(self, step: float, target: float) -> None:
        self._target = target
        self.restart(step)

    def restart(self, step: float) -> None:
        """Discard what was learned and begin at a step size."""
        self.step = step
        self._centre, self._error, self._mean, self._count = math.log(10 * step), 0.0, 0.0, 0

    def learn(self, acceptance: float) -> None:
        """Update `step` by the acceptance statistic of a transition that used it."""
        self._count += 1
        share = 1 / (self._count + DAMPING)
        self._error += share * (self._target - min(acceptance, 1.0) - self._error)
        log_step = self._centre - self._error * math.sqrt(self._count) / GAMMA
        self._mean += self._count**-FORGETTING * (log_step - self._mean)
        self.step = math.exp(log_step)

    @property
    def learned(self) -> float:
        """Average step size, to be used after warm-up."""
        return math.exp(self._mean)


def windows(iterations: int) -> list[range]:
    """Windows of 150 iterations or more whose draws set the metric, each twice the last."""
    end, start, size, found = iterations - LAST, FIRST, WINDOW, []
    while start < end:
        # If the next window would not fit, this one takes its iterations.
        stop = start + size if start + 3 * size <= end else end
        found.append(range(start, stop))
        start, size = stop, 2 * size
    return found


def inverse_metric(draws: Array) -> Array:
    """Return the variances of draws, shape (n, dimension), shrunk towards 0.001 as Stan does."""
    n = len(draws)
    return (n * draws.var(axis=0, ddof=1) + 5e-3) / (n + 5)


def first_step(energy_lost: Callable[[float], float], step: float) -> float:
    """Double or halve a step size until the acceptance of one leapfrog step crosses `WANTED`.

    `energy_lost` tells the energy lost by a step size; −∞ if it fails. Raises `EngineError` if none
    does.
    """
    threshold = math.log(WANTED)
    longer = energy_lost(step) > threshold
    while (energy_lost(step) > threshold) == longer:
        step *= 2 if longer else 0.5
        if not 1e-300 < step < 1e7:
            raise EngineError(
                f"NUTS could not start: from 1 to {step:.0e} no step size makes the acceptance "
                f"of a leapfrog step cross {WANTED}.",
                remedy="Check that the density is proper and its gradient finite near the base.",
            )
    return step
