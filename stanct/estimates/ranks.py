"""R-hat and effective sizes of weighted draws, from ranks (Vehtari et al. 2021)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size

TAILS = (0.05, 0.95)


class Mixing(NamedTuple):
    """How well the chains moved through one scalar.

    Attributes
    ----------
    bulk
        Independent draws of the density that would tell the mean of the ranks as precisely.
    tail
        Those that would tell the 5 % or the 95 % quantile, whichever is known less well.
    r_hat
        Rank-normalised split R-hat; NaN for a constant. 1 means that the chains agree.
    """

    bulk: float
    tail: float
    r_hat: float


def mixing(values: Array, weights: Array, copies: int = 1) -> Mixing:
    """Effective sizes and R-hat of one scalar. Of equal weights they are those of ArviZ.

    Parameters
    ----------
    values : shape (chains, draws)
    weights : shape (chains, draws)
        With the mean 1.
    copies
        As in `stanct.estimates.averages.expectation`.
    """
    share, order = _shares(values, weights)
    if not values.size or np.ptp(values) == 0 or not np.isfinite(values).all():
        return Mixing(float(values.size), float(values.size), float("nan"))
    normal = ndtri(share)
    # The first values at which so much of the weight is reached. Half of the weight of the largest
    # value lies above its share, which may be below the tail's.
    places = np.searchsorted(share.ravel()[order], TAILS).clip(max=values.size - 1)
    ends = values.ravel()[order][places]
    tails = [_size((values <= end).astype(float), weights, copies) for end in ends]
    middle = values.ravel()[order][np.searchsorted(share.ravel()[order], 0.5)]
    folded = ndtri(_shares(np.abs(values - middle), weights)[0])
    r_hat = max(_r_hat(normal, weights), _r_hat(folded, weights))
    return Mixing(_size(normal, weights, copies), min(tails), r_hat)


def _shares(values: Array, weights: Array) -> tuple[Array, Array]:
    """The share of all weight below each value and half of that at it, and the sorted order."""
    flat = values.ravel()
    order = flat.argsort(kind="stable")
    _, first, same = np.unique(flat[order], return_index=True, return_inverse=True)
    at = np.add.reduceat(weights.ravel()[order], first)
    share = np.empty(flat.size)
    share[order] = ((at.cumsum() - at / 2) / at.sum())[same]
    least = 1e-12  # values of no weight stay finite
    return np.clip(share, least, 1 - least).reshape(values.shape), order


def _size(values: Array, weights: Array, copies: int) -> float:
    off = values - np.average(values, weights=weights)
    variance = float(np.average(np.square(off), weights=weights))
    parts = (weights * off).reshape(len(values), -1, copies).mean(axis=2)
    spread = float(parts.var())
    return variance * effective_size(parts) / spread if spread > 0 else float(values.size)


def _r_hat(values: Array, weights: Array) -> float:
    half = values.shape[1] // 2
    if half < 2:
        return float("nan")
    rows = values[:, : 2 * half].reshape(-1, half)
    shares = weights[:, : 2 * half].reshape(-1, half)
    told = shares.sum(axis=1) > 0
    rows, shares = rows[told], shares[told] / shares[told].sum(axis=1, keepdims=True)
    means = (shares * rows).sum(axis=1, keepdims=True)
    within = (shares * np.square(rows - means)).sum(axis=1).mean() * half / (half - 1)
    if len(rows) < 2 or within == 0:
        return float("nan")
    return float(np.sqrt((half - 1) / half + means.var(ddof=1) / within))
