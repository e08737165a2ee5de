"""The optimal bridge between draws of a density and of a normalised one (Meng & Wong 1996)."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.roots import root_between


def bridge_log_z(log_ratio: Array, base_log_ratio: Array, *, share: float | None = None) -> float:
    """Log of the normalising constant of a density p, from draws of p and of a normalised q.

    `log_ratio` is log p − log q at draws of p, and `base_log_ratio` at draws of q; −inf where p
    vanishes. `share` is that of p's draws among the effective ones, by default among all. Where p
    vanishes at all draws of q, it is the median of the log ratios at draws of p.
    """
    inside = base_log_ratio[np.isfinite(base_log_ratio)]
    if not inside.size:
        return float(np.median(log_ratio))
    count = log_ratio.size + base_log_ratio.size
    first = log_ratio.size / count if share is None else share

    def excess(log_z: float) -> float:
        top = log_mean(base_log_ratio + bridge_terms(base_log_ratio, log_z, first))
        return top - log_mean(bridge_terms(log_ratio, log_z, first)) - log_z

    known = np.concatenate([log_ratio[np.isfinite(log_ratio)], inside])
    spare = 60 + np.log(count)
    return root_between(excess, known.min() - spare, known.max() + spare, tolerance=1e-10)


def bridge_terms(log_ratio: Array, log_z: float, share: float) -> Array:
    """log 1 / (s₁ r + s₀ Z), with s₁ the share of p's draws and r = p/q."""
    return -np.logaddexp(np.log(share) + log_ratio, np.log1p(-share) + log_z)


def log_mean(log_values: Array) -> float:
    """Log of the mean of exponentials."""
    return float(log_sum_exp(log_values.ravel())) - np.log(log_values.size)
