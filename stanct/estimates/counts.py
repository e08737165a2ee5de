"""log Z from how often a tempered chain was at each end of a ladder ([GS] 8)."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Evidence, between_error
from stanct.estimates.tours import Tours
from stanct.path.bias import LadderBias

COUNTS = "visits of the ends"
"""Name of the estimate from counts among the extra estimates of a run."""


def count_evidence(beta: Array, bias: LadderBias, tours: Tours | None, method: str) -> Evidence:
    """log Z = b_N − b_0 + log(n_N / n_0), with n the draws at the highest and at the lowest rung.

    It uses less of the draws than the Rao–Blackwell estimator ([GS] 9), which averages the
    probability of a rung in place of its visits, and its error is larger. `beta`, shape (chains,
    draws), are the visited rungs, and `tours` those between draws at the lowest one. If an end was
    never visited, the estimate is infinite or NaN, with an infinite error.
    """
    top, low = (beta == 1.0).astype(float), (beta == 0.0).astype(float)
    offset = bias.log_zeta
    with np.errstate(divide="ignore", invalid="ignore"):
        log_z = offset + np.log(top.mean()) - np.log(low.mean())
        by_chain = offset + np.log(top.mean(axis=1)) - np.log(low.mean(axis=1))
    within = between = np.inf
    size = 0.0
    if np.isfinite(log_z):
        influence = top / top.mean() - low / low.mean()
        size = effective_size(influence)
        within = float(influence.std() / np.sqrt(size))
        if tours is not None:
            within = max(within, tours.error(influence))
        between = float(between_error(influence.mean(axis=1)))
    return Evidence.from_chains(
        log_z, by_chain, f"{method}, {COUNTS}", within=within, between=between, size=size,
        rounded=False,
    )  # fmt: skip
