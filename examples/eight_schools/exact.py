"""The exact evidence and posterior of the eight schools, by one-dimensional quadrature.

Given tau, the school effects integrate out: y_j ~ N(mu, sigma_j² + tau²). Then mu ~ N(0, 5²)
integrates out too. An integral over log tau remains. Its integrand is smooth and decays at both
ends, so the trapezoidal rule converges exponentially fast.

Run `python exact.py` to print the numbers in truth.json on three grids.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
LOG_2PI = np.log(2 * np.pi)
LOG_TAU = (-34.0, 24.0)  # outside, the half-Cauchy density is negligible
MU_VARIANCE, TAU_SCALE = 25.0, 5.0


def log_joint(log_tau: np.ndarray, y: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, ...]:
    """log p(y, log tau) and E[mu | y, tau], each with the shape of `log_tau`."""
    tau = np.exp(log_tau)
    precision = 1 / (np.square(sigma) + np.square(tau)[:, None])
    # mu given y and tau has a normal prior and normal observations.
    variance = 1 / (1 / MU_VARIANCE + precision.sum(axis=1))
    mean = variance * (precision @ y)
    log_likelihood = 0.5 * (
        np.log(precision).sum(axis=1)
        - y.size * LOG_2PI
        - precision @ np.square(y)
        + np.square(mean) / variance
        + np.log(variance / MU_VARIANCE)
    )
    log_prior = np.log(2 / np.pi / TAU_SCALE) - np.log1p(np.square(tau / TAU_SCALE)) + log_tau
    return log_likelihood + log_prior, mean


def exact_answer(data: dict, points: int) -> dict:
    """log Z, the posterior means of mu and theta, and that of log tau, on a grid of `points`.

    The posterior of tau has a heavy tail, so the mean of log tau is the better one to compare.
    """
    y, sigma = np.array(data["y"], float), np.array(data["sigma"], float)
    log_tau = np.linspace(*LOG_TAU, points)
    log_density, mu = log_joint(log_tau, y, sigma)
    weight = np.exp(log_density - log_density.max())
    log_z = log_density.max() + np.log(weight.sum() * (log_tau[1] - log_tau[0]))
    weight /= weight.sum()
    shrink = np.square(sigma) / (np.square(sigma) + np.exp(2 * log_tau)[:, None])
    theta = shrink * mu[:, None] + (1 - shrink) * y
    return {
        "log_z": float(log_z),
        "mu": float(weight @ mu),
        "theta": (weight @ theta).tolist(),
        "log_tau": float(weight @ log_tau),
    }


if __name__ == "__main__":
    schools = json.loads((HERE / "eight_schools.data.json").read_text(encoding="utf-8"))
    for grid in (500, 1000, 4000):
        print(grid, json.dumps(exact_answer(schools, grid)))
