"""States of an autoregression, seen with noise: a target with necks, and its log Z."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array, log_sum_exp

# Necks where either scale goes to zero.
STATES = """
data { int T; vector[T] y; }
parameters { real<lower=-1, upper=1> phi; real<lower=0> sg; real<lower=0> tau; vector[T] x; }
model {
  target += exponential_lpdf(sg | 1);
  target += exponential_lpdf(tau | 1);
  target += uniform_lpdf(phi | -1, 1);
  target += normal_lpdf(x[1] | 0, sg / sqrt(1 - square(phi)));
  target += normal_lpdf(x[2:T] | phi * x[1:(T - 1)], sg);
  target += normal_lpdf(y | x, tau);
}
"""
# The same without the necks: 56 % of the mass for `states(3, 12)`.
WALLED = STATES.replace(
    "model {",
    """model {
  target += log_inv_logit(10 * (log(sg) + 1.3)) + log_inv_logit(10 * (log(tau) + 1.3));""",
)


def log_z_of_states(y: Array) -> float:
    """Log Z of `STATES` by the Kalman filter and a sum over a grid of the three parameters."""
    axes = np.linspace(-7, 7, 70), np.linspace(-12, 3, 90), np.linspace(-12, 3, 90)
    u, log_q, log_r = np.meshgrid(*axes, indexing="ij")
    phi, q, r = np.tanh(u), np.exp(2 * log_q), np.exp(2 * log_r)
    found = -np.log(2) - 2 * np.log(np.cosh(u))
    found += log_q - np.exp(log_q) + log_r - np.exp(log_r)
    mean, variance = np.zeros_like(u), q * np.cosh(u) ** 2
    for value in y:
        total = variance + r
        found -= 0.5 * ((value - mean) ** 2 / total + np.log(2 * np.pi * total))
        mean = phi * (mean + variance / total * (value - mean))
        variance = phi**2 * (variance * r / total) + q
    steps = [np.log(axis[1] - axis[0]) for axis in axes]
    return float(log_sum_exp(found.ravel()) + sum(steps))


def states(seed: int, count: int) -> Array:
    rng = np.random.default_rng(seed)
    x = np.empty(count)
    x[0] = rng.normal()
    for t in range(1, count):
        x[t] = 0.6 * x[t - 1] + 0.5 * rng.normal()
    return x + 0.4 * rng.normal(size=count)
