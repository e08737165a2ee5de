"""How narrow a spike inside a mode may be before a scan of that mode misses it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import chndtr, gammaincinv

from stanct.common.roots import root_between

# A spike of this resolution is missed with this probability.
MISSED = 0.05
# Between these ratios of the widths lies what a scan can tell: in one dimension it sees everything.
LEAST_RATIO, LARGEST_RATIO = 1.5, 1e4
# Quantiles of the distance of the spike from the middle of the mode.
QUANTILES = (np.arange(20) + 0.5) / 20


def chance_of_a_miss(
    ratio: float, dimension: int, widths: Sequence[float], draws: Sequence[float]
) -> float:
    """Return the probability that no draw of a scan falls into a spike inside a Gaussian mode.

    The mode is a standard normal in D dimensions. The spike has its mass and shape, is `ratio`
    times narrower, and lies where a draw of the mode lies. Its density exceeds that of the mode
    within a ball, into which each draw falls with a noncentral χ² probability.

    Parameters
    ----------
    widths, draws
        Standard deviations of the normals from which the scan draws, in those of the mode, and the
        number of draws from each.
    """
    square = ratio**2
    distances = 2 * gammaincinv(dimension / 2, QUANTILES)  # squared, of the centre of the spike
    centre = (square / (square - 1)) ** 2 * distances
    excess = 2 * dimension * np.log(ratio) + square / (square - 1) * distances
    radius = excess / (square - 1)  # squared
    hits = sum(
        n * chndtr(radius / sd**2, dimension, centre / sd**2)
        for sd, n in zip(widths, draws, strict=True)
    )
    return float(np.mean(np.exp(-hits)))


def finest_ratio(dimension: int, widths: Sequence[float], draws: Sequence[float]) -> float:
    """Return the largest ratio of widths at which a scan misses a spike in one of twenty cases.

    A spike is missed less often than that if it is wider. Parameters as in `chance_of_a_miss`.
    The result is 1 if no ratio of at least 1.5 is found that often, and at most 10,000.
    """

    def surplus(log_ratio: float) -> float:
        return chance_of_a_miss(float(np.exp(log_ratio)), dimension, widths, draws) - MISSED

    low, high = np.log(LEAST_RATIO), np.log(LARGEST_RATIO)
    if surplus(low) > 0:
        return 1.0
    if surplus(high) <= 0:
        return LARGEST_RATIO
    return float(np.exp(root_between(surplus, low, high, tolerance=1e-3)))
