"""The exact log evidence and posterior means of radon.stan, by three-dimensional quadrature.

Given the three scales, the model is linear and Gaussian. The county effects integrate out county by
county, then the mean and the slopes as one three-dimensional Gaussian. An integral over
(log sigma_alpha, log sigma_beta, log epsilon) remains. Its integrand is smooth and decays at both
ends, so the trapezoidal rule converges exponentially fast.

Run `python exact.py` to print the numbers in truth.json on three grids.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
LOG_2PI = np.log(2 * np.pi)

# Outside these ranges the integrand is negligible. The half-Cauchy densities are flat at zero, so
# towards small sigma_alpha and sigma_beta it falls only in proportion to the scale.
LOG_SIGMA_ALPHA = (-18.0, 1.5)
LOG_SIGMA_BETA = (-18.0, 14.0)
LOG_EPSILON = (-0.6, 0.1)


def exact_moments(data: dict, points: tuple[int, int, int]) -> dict[str, float]:
    """Integrate over a grid of the three log scales.

    Parameters
    ----------
    data
        The data block of radon.stan.
    points
        Grid points for log sigma_alpha, log sigma_beta and log epsilon.

    Returns
    -------
    dict
        The log evidence and the posterior means of mu_alpha, the slopes beta, and the scales.
    """
    y = np.array(data["log_radon"], dtype=float)
    design = np.column_stack([np.ones_like(y), data["floor_measure"], data["log_uranium"]])
    county = np.array(data["county"]) - 1
    number = np.bincount(county).astype(float)
    design_sum = np.stack([np.bincount(county, column) for column in design.T], axis=1)  # (J, 3)
    y_sum = np.bincount(county, y)

    ranges = (LOG_SIGMA_ALPHA, LOG_SIGMA_BETA, LOG_EPSILON)
    grids = [np.linspace(*ends, count) for ends, count in zip(ranges, points, strict=True)]
    sigma_alpha, sigma_beta, epsilons = (np.exp(grid) for grid in grids)
    # A priori mu_alpha is independent of the slopes, which share mu_beta.
    prior = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    prior = prior + np.square(sigma_beta)[:, None, None] * np.diag([0.0, 1.0, 1.0])
    log_scales_prior = log_half_cauchy(sigma_alpha)[:, None] + log_half_cauchy(sigma_beta)

    log_integrand = np.empty((epsilons.size, sigma_alpha.size, sigma_beta.size))
    coefficients = np.empty((*log_integrand.shape, 3))
    for k, epsilon in enumerate(epsilons):
        # y_j | b ~ N(X_j b, epsilon² I + sigma_alpha² 11'), b = (mu_alpha, beta); its precision is
        # (I - shrink_j 11') / epsilon² by Sherman and Morrison.
        shrink = 1 / (number + (epsilon / sigma_alpha[:, None]) ** 2)  # (alpha, J)
        gram = design.T @ design - np.einsum("aj,jp,jq->apq", shrink, design_sum, design_sum)
        cross = design.T @ y - np.einsum("aj,jp,j->ap", shrink, design_sum, y_sum)
        square = y @ y - shrink @ y_sum**2
        log_det = 2 * y.size * np.log(epsilon) - np.log1p(-shrink * number).sum(axis=1)

        # One product avoids the inverse of the prior, which blows up where sigma_beta vanishes.
        balance = np.eye(3) + prior @ gram[:, None] / epsilon**2  # (alpha, beta, 3, 3)
        prior_cross = np.einsum("bpq,aq->abp", prior, cross) / epsilon**2
        mean = np.linalg.solve(balance, prior_cross[..., None])[..., 0]
        quadratic = (square[:, None] - np.einsum("ap,abp->ab", cross, mean)) / epsilon**2
        log_det = log_det[:, None] + np.linalg.slogdet(balance)[1]
        log_prior = log_scales_prior + log_half_cauchy(epsilon)
        log_integrand[k] = log_prior - 0.5 * (y.size * LOG_2PI + log_det + quadratic)
        coefficients[k] = mean

    peak = log_integrand.max()
    weight = np.exp(log_integrand - peak)
    total = weight.sum()
    cell = np.prod([grid[1] - grid[0] for grid in grids])
    weight /= total
    mu_alpha, beta_1, beta_2 = np.einsum("eab,eabp->p", weight, coefficients)
    return {
        "log_z": float(peak + np.log(total * cell)),
        "mu_alpha": float(mu_alpha),
        "beta[1]": float(beta_1),
        "beta[2]": float(beta_2),
        "sigma_alpha": float(weight.sum(axis=(0, 2)) @ sigma_alpha),
        "epsilon": float(weight.sum(axis=(1, 2)) @ epsilons),
        "log(sigma_beta)": float(weight.sum(axis=(0, 1)) @ grids[1]),
    }


def log_half_cauchy(scale: np.ndarray) -> np.ndarray:
    """Log density of log(scale) under half-Cauchy(2.5), with the logarithm's Jacobian."""
    return np.log(2 / np.pi / 2.5) - np.log1p(np.square(scale / 2.5)) + np.log(scale)


if __name__ == "__main__":
    radon = json.loads((HERE / "radon.data.json").read_text(encoding="utf-8"))
    for grid in ((160, 120, 60), (200, 150, 80), (250, 190, 100)):
        print(grid, json.dumps(exact_moments(radon, grid)))
