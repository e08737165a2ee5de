"""The course of the path: log z(β), and the speed of the path at each β."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit

from stanct.common.arrays import Array, log_sum_exp
from stanct.path.bias import Bias, tempered

# The time at β is proportional to this power of the path's speed. With power 1, equal steps of the
# path take about equal times. With a slightly larger power, successive draws are less alike.
POWER = 1.3
# A linear bias is kept while log z(β) stays within this many nats of it. The chain then still
# passes the least likely β, and the kinks of a table would shorten the steps of NUTS.
MOST_DIP = 5.0
# Bounds on the weight of an atom, which a bias far from the course would exceed.
WEIGHTS = 1e-12, 1 - 1e-6


@dataclass(frozen=True)
class Course:
    """An estimate of log z(β) on a grid of β from 0 to 1, shape (points,), with log z(0) = 0 up to
    its error, and of the speed of the path.

    The speed is the mean absolute deviation of δ at β, as measured by the rejections of parallel
    tempering (Syed et al. 2022). Unlike the standard deviation, it tolerates a heavy-tailed δ under
    the base.
    """

    beta: Array
    log_z: Array
    speed: Array

    @classmethod
    def weighted(cls, beta: Array, log_weight: Array, delta: Array) -> Course:
        """The course from log weights and δ of draws of the base, both of shape (draws,)."""
        # Where δ is infinite, the target vanishes, and draws have zero weight at any β > 0.
        log_weight, delta = log_weight[np.isfinite(delta)], delta[np.isfinite(delta)]
        log_z, speed = np.empty(beta.size), np.empty(beta.size)
        for k, b in enumerate(beta):
            log_terms = log_weight + tempered(b, delta)
            log_z[k] = log_sum_exp(log_terms)
            weights = np.exp(log_terms - log_z[k])
            speed[k] = weights @ np.abs(delta - weights @ delta)
        return cls(beta, log_z, speed)

    def log_density(self, uniform: float) -> Array:
        """Log of a density of β: a share is uniform, the rest ∝ the speed to the power `POWER`.

        Modes of a sharp mixture meet only at β of a few per cent, where the path is fast.
        """
        stay = self.speed**POWER
        whole = np.trapezoid(stay, self.beta)
        if whole == 0:  # δ is constant
            return np.zeros(self.beta.size)
        return np.log(uniform + (1 - uniform) * stay / whole)

    def bias(self, uniform: float = 1.0, *, tolerance: float = 0.3) -> Bias:
        """b = log z − log g, under which β has the density g of `log_density`, flat by default."""
        log_g = self.log_density(uniform) if uniform < 1 else 0.0
        return Bias.from_curve(self.beta, self.log_z - log_g, tolerance=tolerance)

    def coarse_bias(self, uniform: float = 1.0) -> Bias:
        """The linear bias where it suffices, and otherwise that of `bias`."""
        log_zeta = float(self.log_z[-1])
        dip = np.max(np.abs(self.log_z - self.beta * log_zeta))
        return Bias.linear(log_zeta) if uniform == 1 and dip <= MOST_DIP else self.bias(uniform)

    def sharing(self, bias: Bias, share: float) -> Bias:
        """A bias with an atom at β = 0 that takes a share of the draws if this is the course.

        With C = ∫ z(β) exp(−b(β)) dβ, an atom of weight p₀ takes the share p₀ / (p₀ + (1 − p₀) C).
        """
        if not share:
            return replace(bias, atom=0.0)
        log_terms = self.log_z - self.log_z[0] - bias(self.beta)
        most = log_terms.max()
        log_rest = most + np.log(np.trapezoid(np.exp(log_terms - most), self.beta))
        return replace(bias, atom=float(np.clip(expit(logit(share) + log_rest), *WEIGHTS)))


def beta_grid(points: int = 401) -> Array:
    """A grid from 0 to 1, uniform in logit(β): log z(β) is steepest near the ends."""
    logits = np.linspace(-12.0, 12.0, points - 2)
    return np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-logits)), [1.0]])
