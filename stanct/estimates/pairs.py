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
from stanct.estimates.path import Evidence
from stanct.estimates.tail import Tail


@dataclass(frozen=True)
class PairEstimator:
    """Estimates log Z from log weights, natural logs of shape (chains, draws).

    They are those `above` for the target, and `below` for a density of known integral.
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
        tails = [Tail.of(self.above), Tail.of(self.below)]
        return Evidence.from_chains(
            self.log_z, self.chain_log_z, f"{method}, Rao–Blackwell",
            within=float(self.influence.std() / np.sqrt(size)), size=size,
            tail=max(tails, key=lambda one: (one.is_heavy, one.shape)),
        )  # fmt: skip
