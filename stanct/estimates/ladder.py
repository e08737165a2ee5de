"""Estimates from parallel tempering: log Z rung by rung, by three methods, and the barrier.

Let ℓ = −(β_{k+1} − β_k) δ be the log ratio of the densities of two neighbouring rungs. The ratio of
their normalisers z_{k+1} / z_k is

    forward    mean of e^ℓ over the draws of rung k            (stepping stones up)
    backward   1 / mean of e^{−ℓ} over the draws of rung k + 1  (stepping stones down)
    bridge     Bennett's (1976) acceptance ratio, which uses both and has the least error.

The logs of these ratios add up to log Z. Errors come from the sum over rungs within each scan, so
that the correlation of neighbouring rungs counts. They are computed along the chain and between
independent ladders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Curve, Evidence
from stanct.estimates.tail import Tail
from stanct.path.bridge import bridge_log_z

WAYS = ("bridge", "forward", "backward")


@dataclass(frozen=True)
class LadderEstimator:
    """Estimates from δ = φ − ψ on every rung of several independent ladders, (chains, scans, K).

    δ is +inf only on rung 0, where the target may vanish. The ladder runs from 0 to 1.
    """

    betas: Array
    delta: Array

    def _sides(self, delta: Array, k: int) -> tuple[Array, Array]:
        """ℓ at the draws of rungs k and k + 1."""
        width = self.betas[k + 1] - self.betas[k]
        return -width * delta[..., k], -width * delta[..., k + 1]

    def _log_ratios(self, delta: Array, k: int, way: str) -> float:
        """log z_{k+1} − log z_k from δ of shape (..., K)."""
        up, down = (side.ravel() for side in self._sides(delta, k))
        if way == "forward":
            return float(log_sum_exp(up) - np.log(up.size))
        if way == "backward":
            # Draws of rung k + 1 cover only the part of rung k where the target does not vanish.
            inside = np.isfinite(up).mean() if k == 0 else 1.0
            return float(np.log(inside) + np.log(down.size) - log_sum_exp(-down))
        return bridge_log_z(down, up)

    def _steps(self, delta: Array, way: str) -> Array:
        return np.array([self._log_ratios(delta, k, way) for k in range(self.betas.size - 1)])

    @cached_property
    def steps(self) -> dict[str, Array]:
        """log z_{k+1} − log z_k by each method, shape (K − 1,)."""
        return {way: self._steps(self.delta, way) for way in WAYS}

    def _influences(self, way: str) -> Array:
        """First-order contribution of each scan to each step, shape (chains, scans, K − 1)."""
        result = np.empty((*self.delta.shape[:2], self.betas.size - 1))
        for k, step in enumerate(self.steps[way]):
            up, down = (side - step for side in self._sides(self.delta, k))
            if way == "forward":
                result[..., k] = np.exp(up) - 1
            elif way == "backward":
                inside = np.isfinite(up) if k == 0 else np.ones_like(up)
                share = inside.mean()
                result[..., k] = inside / share - np.exp(-down) / share
            else:
                rises, falls = _logistic(up), _logistic(-down)
                slope = (rises * (1 - rises)).mean() + (falls * (1 - falls)).mean()
                # Without overlap, no draw tells how far the rungs are apart.
                result[..., k] = (rises - falls) / slope if slope else np.inf
        return result

    def within_errors(self, way: str) -> tuple[Array, float]:
        """Standard errors of log z above rung 0, shape (K − 1,), and the last effective size."""
        sums = np.cumsum(self._influences(way), axis=-1)
        errors, size = np.full(sums.shape[-1], np.inf), 0.0
        for k in range(errors.size):
            size = effective_size(sums[..., k]) if np.isfinite(sums[..., k]).all() else 0.0
            errors[k] = sums[..., k].std() / np.sqrt(size) if size else np.inf
        return errors, size

    def chain_log_z(self, way: str = "bridge") -> Array:
        """log Z from each ladder alone, shape (chains,)."""
        return np.array([self._steps(delta, way).sum() for delta in self.delta])

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z by bridges from the first scans of each ladder alone, shape (chains, ends)."""
        return np.array(
            [[self._steps(delta[:n], "bridge").sum() for n in ends] for delta in self.delta]
        )

    def evidence(self, method: str, way: str = "bridge") -> Evidence:
        """log Z with its error, the larger of the within-ladder and the between-ladder error."""
        within, size = self.within_errors(way)
        return Evidence.from_chains(
            float(self.steps[way].sum()), self.chain_log_z(way), f"{method}, {way}",
            within=within[-1], size=size, tail=self._tail(way),
        )  # fmt: skip

    def _tail(self, way: str) -> Tail:
        """The heaviest tail of the terms of any step; those of bridges are at most 1."""
        found = []
        for k, step in enumerate(self.steps[way]):
            up, down = (side - step for side in self._sides(self.delta, k))
            down = -down
            if way == "bridge":
                up, down = (-np.logaddexp(0.0, -terms) for terms in (up, down))
            found += [Tail.of(up)] * (way != "backward") + [Tail.of(down)] * (way != "forward")
        return max(found, key=lambda tail: (tail.is_heavy, tail.shape))

    def curve(self) -> Curve:
        """log z at the rungs, by bridges, with within-ladder errors."""
        log_z = np.concatenate([[0.0], np.cumsum(self.steps["bridge"])])
        return Curve(self.betas, log_z, np.concatenate([[0.0], self.within_errors("bridge")[0]]))


def equal_rejection(betas: Array, rejection: Array, rungs: int) -> tuple[Array, float]:
    """A ladder of so many rungs with equal rejection between all neighbours, and the barrier Λ.

    Λ(β), the sum of rejection rates up to β, hardly depends on the ladder on which it was measured
    (Syed et al. 2022). Its inverse therefore places the rungs. `rejection`, shape (K − 1,), is the
    mean rejection probability of each pair of `betas`, shape (K,).
    """
    # A pair that never rejects must still take up some length, or its rungs would coincide.
    rates = np.maximum(rejection, 1e-3)
    barrier = np.concatenate([[0.0], np.cumsum(rates)])
    new = np.interp(np.linspace(0, barrier[-1], rungs), barrier, betas)
    return new, float(rejection.sum())


def _logistic(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))
