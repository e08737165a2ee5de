"""Effective sizes and R̂ of chains, also under weights.

They are those of Vehtari et al. (2021), with the numbers that ArviZ gives. ArviZ's own functions
load xarray and most of SciPy, which takes as long as a small run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from stanct.common.arrays import Array

# Fewer draws of half a chain have no autocorrelations that could be told.
_FEWEST = 4
# Quantiles whose precision is that of the tails.
TAILS = (0.05, 0.95)


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


def r_hat(values: Array, weights: Array | None = None) -> float:
    """Rank-normalised split R̂ of a (chains, draws) array; NaN for a constant.

    It is the larger one of the values' own and of their distances from the median. The halves of a
    single chain count as chains, and are split again. `weights` has the shape of the values; by
    default all draws weigh the same.
    """
    values = np.asarray(values, float)
    weights = np.ones_like(values) if weights is None else weights
    if len(values) == 1:
        values, weights = _halves(values), _halves(weights)
    if values.shape[1] < _FEWEST or not _varies(values):
        return float("nan")
    halves, weights = _halves(values), _halves(weights)
    told = weights.sum(axis=1) > 0
    halves, weights = halves[told], weights[told]
    folded = np.abs(halves - _median(halves, weights))
    return max(_ratio(_normal_scores(one, weights), weights) for one in (halves, folded))


class Mixing(NamedTuple):
    """How well the chains moved through one scalar.

    `bulk` and `tail` are the independent draws of the density that would tell the mean of the
    ranks, or the 5 % or 95 % quantile that is known less well, as precisely. `r_hat` is
    rank-normalised split R̂: 1 means that the chains agree; NaN for a constant.
    """

    bulk: float
    tail: float
    r_hat: float


def mixing(
    values: Array,
    weights: Array,
    copies: int = 1,
    size_of: Callable[[Array], float] = effective_size,
) -> Mixing:
    """Effective sizes and R̂ of one scalar under weights. Of equal weights they are ArviZ's.

    `values` and `weights`, of mean 1, have shape (chains, draws); for `copies` see
    `stanct.estimates.averages.expectation`. `size_of` tells effective sizes, of arrays of shape
    (chains, draws).
    """
    size = float(values.size)
    if not values.size or not _varies(values) or not np.isfinite(values).all():
        return Mixing(size, size, float("nan"))
    order = values.ravel().argsort(kind="stable")
    reached = weights.ravel()[order].cumsum() / weights.sum()
    # The first values at which so much of the weight is reached.
    ends = values.ravel()[order][np.searchsorted(reached, TAILS).clip(max=values.size - 1)]
    scores = _normal_scores(values, weights), *((values <= end).astype(float) for end in ends)
    bulk, *tails = (_weighted_size(one, weights, copies, size_of) for one in scores)
    return Mixing(bulk, min(tails), r_hat(values, weights))


def _varies(values: Array) -> bool:
    """Whether values differ, and none is NaN."""
    return bool(values.min() < values.max())


def _halves(values: Array) -> Array:
    """Both halves of each chain as chains; the draw in the middle of an odd number is left out."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _median(values: Array, weights: Array) -> float:
    """The weighted median: where half of the weight is reached, in the middle of a gap there."""
    order = values.ravel().argsort(kind="stable")
    order = order[weights.ravel()[order] > 0]
    reached = weights.ravel()[order].cumsum() / weights.sum()
    k = int(np.searchsorted(reached, 0.5).clip(max=order.size - 1))
    beyond = k + 1 if reached[k] == 0.5 and k + 1 < order.size else k
    return float(values.ravel()[order][[k, beyond]].mean())


def _normal_scores(values: Array, weights: Array | None = None) -> Array:
    """Normal quantiles at the ranks of values (Blom 1958); equal values share their mean rank.

    A weighted rank is the share of all weight below a value, and of half of that at it, times the
    number of values, plus a half.
    """
    weights = np.ones_like(values) if weights is None else weights
    _, places = np.unique(values, return_inverse=True)
    at = np.bincount(places.ravel(), weights.ravel())
    ranks = (at.cumsum() - at / 2) / at.sum() * values.size + 0.5
    return ndtri((ranks - 0.375) / (values.size + 0.25))[places.ravel()].reshape(values.shape)


def _ratio(values: Array, weights: Array) -> float:
    """√(variance of all draws / variance within chains), under weights."""
    draws = values.shape[1]
    shares = weights / weights.sum(axis=1, keepdims=True)
    means = (shares * values).sum(axis=1, keepdims=True)
    within = (shares * np.square(values - means)).sum(axis=1).mean() * draws / (draws - 1)
    if len(values) < 2 or within == 0:
        return float("nan")
    return float(np.sqrt((draws - 1) / draws + means.var(ddof=1) / within))


def _weighted_size(
    values: Array, weights: Array, copies: int, size_of: Callable[[Array], float]
) -> float:
    """Independent draws that would tell the mean of the values as precisely."""
    off = values - np.average(values, weights=weights)
    variance = float(np.average(np.square(off), weights=weights))
    parts = (weights * off).reshape(len(values), -1, copies).mean(axis=2)
    spread = float(parts.var())
    return variance * size_of(parts) / spread if spread > 0 else float(values.size)


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


def resampled(x: Array) -> float:
    """Share of the visits of chains, shape (chains, draws, D), to points where one has been.

    It is 0 where numbers have so few digits that they come again by themselves: there a coordinate
    has fewer values than there are points, or none that nearly touch.
    """
    flat = x.reshape(-1, x.shape[-1])
    places = len(np.unique(flat, axis=0))
    for values in map(np.unique, flat.T):
        touching = values.size > 1 and np.diff(values).min() < 0.01 * np.ptp(values) / places
        if not touching or values.size < 0.99 * places:
            return 0.0
    visits = len(x) + int((x[:, 1:] != x[:, :-1]).any(axis=-1).sum())
    return 1 - places / visits
