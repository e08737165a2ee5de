"""Weights of a mixture that bring it nearer to a target, by weighted points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.path.mixture import MixtureBase

ITERATIONS = 30
# Logs of smaller weights are cut.
TINY = 1e-300
# Draws of the mixture from which its weights are estimated, the share of them whose weights are cut
# to the smallest of these, and the share of the weights before.
SAMPLE, CUT, KEPT = (1000, 1000), 0.01, 0.3
# No log weight that counts is lower.
LOWEST = -1e300


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


def reweighted(
    base: MixtureBase, log_densities: Callable[[Array], Array], rng: np.random.Generator
) -> MixtureBase:
    """The mixture with weights that bring it nearer to the target, by its own draws.

    The weights maximise the mean log density of the mixture over the target, which importance
    weights of the draws estimate. No part loses more than 1 − `KEPT` of its weight, because draws
    may have missed where it is needed.
    """
    for count in SAMPLE:
        z = base.draw(rng, count)
        each = base.terms(z)
        log_weights = -base.delta(z, log_densities(base.unwhiten(z)))
        share = np.exp(log_weights - log_weights.max(initial=LOWEST))
        share = np.minimum(share, np.quantile(share, 1 - CUT))
        if not share.sum() > 0:  # hardly a draw is inside the support
            return base
        share /= share.sum()
        weights = maximised(base.weights, each - np.log(base.weights)[:, None], share)
        base = MixtureBase.of((1 - KEPT) * weights + KEPT * base.weights, base.parts)
    return base
