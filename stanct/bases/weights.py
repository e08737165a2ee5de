"""Weights of a mixture that bring it nearer to a target, by weighted points."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array, log_sum_exp

ITERATIONS = 30
# Logs of smaller weights are cut.
TINY = 1e-300


def maximised(weights: Array, log_parts: Array, share: Array) -> Array:
    """The weights that maximise the mean log density of a mixture over a target.

    They follow by expectation maximisation from other weights (Cappé et al. 2008).

    Parameters
    ----------
    weights : shape (K,)
        Of sum one.
    log_parts : shape (K, n)
        Log densities of the mixture's parts at n points.
    share : shape (n,)
        Importance weights of the points for the target, of sum one.
    """
    for _ in range(ITERATIONS):
        weights = belonging(weights, log_parts) @ share
    return weights


def belonging(weights: Array, log_parts: Array) -> Array:
    """Probabilities with which points belong to the parts of a mixture, shape (K, n).

    The parameters are those of `maximised`.
    """
    belongs = np.log(np.maximum(weights, TINY))[:, None] + log_parts
    return np.exp(belongs - log_sum_exp(belongs, axis=0))
