"""log Z from two log weights of each draw, as the headers of generated programs state it.

log Z = log mean(exp(above)) − log mean(exp(below)), where `above` are the log weights of the draws
for the target, and `below` those for a density of known integral.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Evidence, between_error, with_rounding
from stanct.estimates.tail import Tail


@dataclass(frozen=True)
class PairEstimator:
    """Estimates log Z from log weights.

    Attributes
    ----------
    above, below : shape (chains, draws)
        Log weights for the target and for a density of known integral, natural log.
    """

    above: Array
    below: Array

    @property
    def log_z(self) -> float:
        """The estimate from all draws."""
        return float(log_sum_exp(self.above) - log_sum_exp(self.below))

    @cached_property
    def chain_log_z(self) -> Array:
        """The estimates from each chain alone, shape (chains,)."""
        return log_sum_exp(self.above, axis=1) - log_sum_exp(self.below, axis=1)

    @cached_property
    def influence(self) -> Array:
        """First-order contribution of each draw, shape (chains, draws)."""
        parts = (np.exp(logs - logs.max()) for logs in (self.above, self.below))
        above, below = (part / part.mean() for part in parts)
        return above - below

    def running_log_z(self, ends: Array) -> Array:
        """log Z from the first draws of each chain alone, shape (chains, ends)."""
        above, below = (np.logaddexp.accumulate(a, axis=1) for a in (self.above, self.below))
        return (above - below)[:, np.asarray(ends) - 1]

    def evidence(self, method: str) -> Evidence:
        """log Z with its error, labelled with the sampler's name."""
        size = effective_size(self.influence)
        within = float(self.influence.std() / np.sqrt(size))
        between = float(between_error(self.chain_log_z))
        tails = [Tail.of(self.above), Tail.of(self.below)]
        tail = max(tails, key=lambda one: (one.is_heavy, one.shape))
        return Evidence(
            log_z=self.log_z,
            std_error=with_rounding(float(np.fmax(within, between)), self.log_z),
            method=f"{method}, Rao–Blackwell",
            within_error=within,
            between_error=between,
            effective_size=size,
            pareto_k=tail.shape,
            chain_log_z=tuple(float(value) for value in self.chain_log_z),
            weight_share=tail.share,
        )
