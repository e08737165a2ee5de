"""The bias of a path whose inverse temperature is a function of the tempering variable.

With v(x) a log density, the joint density of x and t in [0, 1] is ∝ r(x) exp(β(t) v(x) − b(t)). On
the path from the prior, v is the log likelihood, r the prior and β(t) = t. In the extended
Hamiltonian, v is log p(z), r is 1, t is |ξ|, and β falls from 1 on a plateau at t = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.path.bias import log_integrals


@dataclass(frozen=True)
class CoupledBias:
    """β(t) and b(t), linear between knots.

    `knots` are t from 0 to 1; `beta` and `value` are β and b there, which begins with 0.
    `log_density` is, up to a constant, that of t which the bias is to bring about. All have shape
    (K,).
    """

    knots: Array
    beta: Array
    value: Array
    log_density: Array

    @classmethod
    def on_path(cls, beta: Array, log_z: Array) -> Self:
        """The bias with which β = t spends equal times between knots, with log z at them."""
        gaps = np.diff(beta)
        near = np.concatenate([gaps[:1], (gaps[:-1] + gaps[1:]) / 2, gaps[-1:]])
        return cls(beta, beta, np.zeros(beta.size), -np.log(near)).following(log_z)

    @classmethod
    def of_gaussian(
        cls, dimension: int, log_z: float, plateau: float, least: float, *, count: int = 33
    ) -> Self:
        """A plateau, a share of t, and a smooth step down to β = `least`; b is that of a Gaussian.

        `log_z` is a guess at the log integral of p(z), whose covariance is about the identity.
        """
        knots = np.concatenate([[0.0], np.linspace(plateau, 1, count - 1)])
        s = (knots[1:] - plateau) / (1 - plateau)
        beta = np.append(1.0, 1 - (1 - least) * s**2 * (3 - 2 * s))
        log_c = beta * log_z + dimension / 2 * ((1 - beta) * np.log(2 * np.pi) - np.log(beta))
        return cls(knots, beta, log_c - log_c[0], np.zeros(count))

    def log_mass(self, v: Array) -> Array:
        """log ∫ exp(β(t) v − b(t)) dt for v of any shape."""
        f = self.beta * np.asarray(v, float)[..., None] - self.value
        return log_sum_exp(log_integrals(self.knots, f), axis=-1)

    def beta_at(self, t: Array) -> Array:
        """β at places t of any shape."""
        return np.interp(t, self.knots, self.beta)

    def refined(self, v: Array) -> Self:
        """The bias that brings about the density of t, by the v of draws under this one."""
        flat = v.ravel()
        log_mass = self.log_mass(flat)
        return self.following(np.array([log_sum_exp(b * flat - log_mass) for b in self.beta]))

    def following(self, log_c: Array) -> Self:
        """The bias that brings about the density of t, where log c(t) is known at the knots."""
        value = log_c - self.log_density
        return replace(self, value=value - value[0])
