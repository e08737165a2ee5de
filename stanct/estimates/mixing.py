"""Effective sizes and R̂ of chains.

They are those of Vehtari et al. (2021), with the numbers that ArviZ gives. ArviZ's own functions
load xarray and most of SciPy, which takes as long as a small run.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import ndtri

from stanct.common.arrays import Array

# Fewer draws of half a chain have no autocorrelations that could be told.
_FEWEST = 4


def effective_size(values: Array, *, method: Literal["mean", "bulk"] = "mean") -> float:
    """Effective sample size of a (chains, draws) array; the number of values for a constant.

    `method` is ``"mean"`` for the average of the values, or ``"bulk"`` for the rank-normalised
    size, which shows how well the chain moves.
    """
    values = np.asarray(values, float)
    if values.size < 8 or values.shape[1] < _FEWEST or not _varies(values):
        return float(values.size)
    halves = _halves(values)
    size = _size(_normal_scores(halves) if method == "bulk" else halves)
    return size if np.isfinite(size) else float(values.size)


def r_hat(values: Array) -> float:
    """Rank-normalised split R̂ of a (chains, draws) array; NaN for a constant.

    It is the larger one of the values' own and of their distances from the median. The halves of a
    single chain count as chains, and are split again.
    """
    values = np.asarray(values, float)
    if len(values) == 1:
        values = _halves(values)
    if values.shape[1] < _FEWEST or not _varies(values):
        return float("nan")
    halves = _halves(values)
    folded = np.abs(halves - np.median(halves))
    return float(max(_ratio(_normal_scores(halves)), _ratio(_normal_scores(folded))))


def _varies(values: Array) -> bool:
    """Whether values differ, and none is NaN."""
    return bool(values.min() < values.max())


def _halves(values: Array) -> Array:
    """Both halves of each chain as chains; the draw in the middle of an odd number is left out."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _normal_scores(values: Array) -> Array:
    """Normal quantiles at the ranks of values (Blom 1958); equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ndtri((ranks - 0.375) / (values.size + 0.25))[places].reshape(values.shape)


def _ratio(values: Array) -> float:
    """√(variance of all draws / variance within chains)."""
    draws = values.shape[1]
    between = draws * values.mean(axis=1).var(ddof=1)
    within = values.var(axis=1, ddof=1).mean()
    return float(np.sqrt((between / within + draws - 1) / draws))


def _size(values: Array) -> float:
    """Draws over their autocorrelation time, by Geyer's initial monotone sequence."""
    chains, draws = values.shape
    if np.ptp(values) < np.finfo(float).resolution:
        return float(values.size)
    covariances = _autocovariances(values)
    within = covariances[0] * draws / (draws - 1)
    total = covariances[0] + (values.mean(axis=1).var(ddof=1) if chains > 1 else 0.0)
    correlations = 1 - (within - covariances) / total
    correlations[0] = 1.0
    # Sums of pairs are positive and fall, but for noise. The first that is not ends the sequence.
    pairs = (
        correlations[: draws // 2 * 2].reshape(-1, 2).sum(axis=1)[: max((draws - 3) // 2, 0) + 1]
    )
    negative = pairs[:-1] <= 0
    end = int(negative.argmax()) if negative.any() else len(pairs) - 1
    last = correlations[2 * end]
    if pairs[end] < 0:
        last = max(last, 0.0)
    time = -1 + 2 * np.minimum.accumulate(pairs[:end]).sum() + last
    return values.size / max(time, 1 / np.log10(values.size))


def _autocovariances(values: Array) -> Array:
    """Mean autocovariance of chains at each lag, shape (draws,)."""
    draws = values.shape[1]
    centred = values - values.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=1 << (2 * draws - 1).bit_length())
    power = (spectrum * spectrum.conj()).real.mean(axis=0)
    return np.fft.irfft(power)[:draws] / draws
