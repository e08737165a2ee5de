"""Two paths to one evidence: from the prior, and from a fitted base.

The program raises its likelihood to a power, which is part of the data. At power 0 it is the prior,
at power 1 the posterior, and the evidence at every power is known in closed form. The script runs
joint continuous tempering at four powers.

The run at power 1 also estimates the whole curve from its own Gaussian base to the posterior. The
program has one parameter, so the script checks that curve by quadrature.

    python run.py [--seed 1]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

import stanct
from stanct.targets.density import Density

HERE = Path(__file__).resolve().parent


def path_by_quadrature(density: Density, run: stanct.TemperedRun) -> np.ndarray:
    """log z(β) = log ∫ exp(−β φ − (1 − β) ψ) dx for the run's base, at β = 0.1, 0.2, …, 1."""
    # The grid is wide because the target's tails are exponential.
    z = np.linspace(-25, 25, 5001)[:, None]
    x = run.base.unwhiten(z)
    delta = run.base.delta(z, density.log_densities(x))
    log_base = run.base.log_density(x) + np.log(x[1, 0] - x[0, 0])
    return np.array([logsumexp(log_base - beta * delta) for beta in np.linspace(0.1, 1, 10)])


def line(label: float, estimate: float, std_error: float, exact: float) -> str:
    """One row of a table."""
    score = (estimate - exact) / std_error
    return f"{label:7g} {estimate:12.6f} ± {std_error:.6f} {exact:12.6f} {score:+6.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Beta–binomial: log z along two paths.")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data = json.loads((HERE / "beta_binomial.data.json").read_text(encoding="utf-8"))
    truth = json.loads((HERE / "truth.json").read_text(encoding="utf-8"))
    model = stanct.temper(HERE / "beta_binomial.stan")

    print("From the prior to the posterior: log z(power), one run for each power")
    print(f"{'power':>7} {'estimate':>12}   {'SE':<8} {'exact':>12} {'z':>6}")
    for power, exact in truth["log_z_of_power"].items():
        data["power"] = float(power)
        run = model.sample(data, seed=options.seed, progress=False)
        print(line(float(power), run.evidence.log_z, run.evidence.std_error, exact))

    # The last run has power 1.
    print("\nFrom the fitted base to the posterior: log z(β), all from the last run")
    print(f"{'β':>7} {'estimate':>12}   {'SE':<8} {'quadrature':>12} {'z':>6}")
    curve = run.curve(np.linspace(0.1, 1, 10))
    exact_curve = path_by_quadrature(model.density(data), run)
    for point in zip(curve.beta, curve.log_z, curve.std_error, exact_curve, strict=True):
        print(line(*point))

    theta, mean = run.expect("theta"), truth["mean"]["theta"]
    print(f"\nposterior mean of theta: {theta}, exact {mean:.6g}")
