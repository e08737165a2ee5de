"""The optimal bridge between draws of a density and of a normalised one (Meng & Wong 1996)."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array, log_sum_exp


def bridge_log_evidence(
    log_density_at_draws: Array, log_q_at_draws: Array, log_density_at_q: Array, log_q_at_q: Array
) -> float:
    """Meng & Wong's (1996) optimal bridge between draws of a density and of a normalised q.

    All arguments are natural logs, of shapes (n,), (n,), (m,) and (m,). The third may contain −inf.
    The function returns the log normalising constant of the density.
    """
    ratio_draws, ratio_q = log_density_at_draws - log_q_at_draws, log_density_at_q - log_q_at_q
    share = ratio_draws.size / (ratio_draws.size + ratio_q.size)
    log_share, log_rest = np.log(share), np.log1p(-share)
    log_z = float(np.median(ratio_draws))
    for _ in range(1000):
        top = log_sum_exp(ratio_q - np.logaddexp(log_share + ratio_q, log_rest + log_z))
        bottom = log_sum_exp(-np.logaddexp(log_share + ratio_draws, log_rest + log_z))
        new = float(top - np.log(ratio_q.size) - bottom + np.log(ratio_draws.size))
        if not np.isfinite(new):
            return log_z
        if abs(new - log_z) < 1e-8:
            return new
        log_z = new
    return log_z
