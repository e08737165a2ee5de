"""log Z from the mean of independent importance weights, with errors."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.estimates.path import Evidence
from stanct.estimates.tail import Tail

BOOTSTRAPS = 500


class MeanWeightEvidence(Evidence):
    """log Z of a mean weight, whose two errors are no parts of chains."""

    part_names = ("by the delta method", "by bootstrap", "of rounding")


def mean_weight_evidence(
    log_weights: Array, island: int, seed: int, method: str
) -> MeanWeightEvidence:
    """log Z from the mean weight, with errors over islands by delta method and bootstrap.

    Log weights, shape (chains, draws), of −inf count as weights of zero. `island` is the number of
    consecutive particles that depend on each other.
    """
    by_island = np.asarray(log_sum_exp(log_weights.reshape(-1, island), axis=1)) - np.log(island)
    means = np.exp(by_island - by_island.max())
    count = means.size
    delta = float(means.std(ddof=1) / means.mean() / np.sqrt(count))
    picks = np.random.default_rng(seed).integers(count, size=(BOOTSTRAPS, count))
    bootstrap = float(np.log(means[picks].mean(axis=1)).std(ddof=1))
    weights = np.exp(log_weights - log_weights.max())
    by_chain = log_sum_exp(log_weights, axis=1) - np.log(log_weights.shape[1])
    return MeanWeightEvidence.from_chains(
        log_sum_exp(log_weights) - np.log(log_weights.size), by_chain,
        f"{method}, importance weights", within=delta, between=bootstrap,
        size=float(weights.sum() ** 2 / np.square(weights).sum()), tail=Tail.of(log_weights),
    )  # fmt: skip


def log_mean_weight(log_weights: Array) -> tuple[Array, Array]:
    """Log of the mean weight of each column, and its standard error by the delta method.

    Log weights, shape (draws, columns), of −inf count as weights of zero. A column without any
    weight has an infinite error. Both results have shape (columns,).
    """
    count = len(log_weights)
    log_mean = np.asarray(log_sum_exp(log_weights, axis=0)) - np.log(count)
    some = np.isfinite(log_mean)
    relative = np.exp(log_weights - np.where(some, log_mean, 0.0))
    return log_mean, np.where(some, relative.std(axis=0, ddof=1) / np.sqrt(count), np.inf)
