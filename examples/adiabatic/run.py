"""Betancourt's Beta–Binomial by annealing, tempering on three ladders, and adiabatic Monte Carlo.

The script repeats section III and the experiment of Betancourt (2014), with a prior near one and a
posterior near a fifth. The rate is a quantile of its prior, θ = F⁻¹(Φ(x)), so the prior of x is
standard normal. This prior is the base of every path. The script prints log Z(β) along the
adiabatic flow beside quadrature, and the posterior mean that each method finds. The picture shows
how each method moves between prior and posterior.

    python run.py [--quick] [--seed 1] [--out adiabatic.png]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.special import betaincinv, betaln, log_expit, ndtr
from scipy.stats import beta as beta_distribution

import stanct
from stanct.runs.path_checks import round_trips

PRIOR, TRIALS, SUCCESSES = (9, 0.75), 550, 115
CONJUGATE = (PRIOR[0] + SUCCESSES, PRIOR[1] + TRIALS - SUCCESSES)
HALF_LOG_2PI, LOG_BETA = 0.5 * math.log(2 * math.pi), float(betaln(*PRIOR))
LOG_CHOOSE = -math.log(TRIALS + 1) - float(betaln(SUCCESSES + 1, TRIALS - SUCCESSES + 1))
BETAS = np.append(np.geomspace(0.001, 0.1, 8), np.linspace(0.175, 1, 12))
LADDERS = {
    "coarse": stanct.SimulatedTempering(ladder="sigmoidal", rungs=4),
    "fine": stanct.SimulatedTempering(ladder="sigmoidal", rungs=200),
    "tuned": stanct.SimulatedTempering(),
}
BLUE = "#0072b2"  # Okabe & Ito's palette


def rate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """θ and 1 − θ, each to full precision."""
    a, b = PRIOR
    return betaincinv(a, b, ndtr(x)), betaincinv(b, a, ndtr(-x))


def log_posterior(x: np.ndarray) -> tuple[float, np.ndarray]:
    """log p(x, k) and its gradient, shape (1,).

    Plain Python numbers are faster here than arrays.
    """
    (a, b), u = PRIOR, float(x[0])
    theta = float(betaincinv(a, b, ndtr(u)))
    rest = 1 - theta if theta < 0.5 else float(betaincinv(b, a, ndtr(-u)))
    theta = theta if theta < 0.5 else 1 - rest
    log_theta, log_rest = math.log(theta), math.log(rest)
    log_normal = -0.5 * u * u - HALF_LOG_2PI
    log_likelihood = LOG_CHOOSE + SUCCESSES * log_theta + (TRIALS - SUCCESSES) * log_rest
    slope = math.exp(log_normal - (a - 1) * log_theta - (b - 1) * log_rest + LOG_BETA)  # dθ/dx
    pull = (SUCCESSES / theta - (TRIALS - SUCCESSES) / rest) * slope
    return log_normal + log_likelihood, np.array([pull - u])


def exact_log_z(power: float) -> float:
    """log ∫ p(θ) p(k | θ)^power dθ by quadrature over logit θ."""

    def log_density(u: float) -> float:
        log_theta, log_rest = log_expit(u), log_expit(-u)
        log_prior = PRIOR[0] * log_theta + PRIOR[1] * log_rest - LOG_BETA
        log_likelihood = SUCCESSES * log_theta + (TRIALS - SUCCESSES) * log_rest
        return float(log_prior + power * (LOG_CHOOSE + log_likelihood))

    grid = np.linspace(-12, 40, 4001)
    values = np.array([log_density(u) for u in grid])
    top, mode = np.max(values), grid[np.argmax(values)]
    total = quad(
        lambda u: np.exp(log_density(u) - top),
        -12,
        40,
        points=[mode - 1, mode, mode + 1],
        limit=500,
    )[0]
    return float(top + np.log(total))


def curve_table(run: stanct.AdiabaticRun) -> None:
    """Print log Z at twenty β: by quadrature, by the flow itself, and by the weighted draws."""
    nodes, flow, weighted = run.betas, run.flow_curve(), run.curve()
    print("  beta       exact    flow            weighted")
    worst = 0.0
    for power in BETAS:
        exact = exact_log_z(power)
        cells = []
        for curve in (flow, weighted):
            value = _between(power, nodes, curve.log_z, run.means)
            error = float(np.interp(power, nodes, curve.std_error))
            cells.append(f"{value:10.4f} ({value - exact:+.4f} ± {error:.4f})")
        worst = max(worst, abs(_between(power, nodes, flow.log_z, run.means) - exact))
        print(f"{power:6.4f} {exact:11.4f} {'  '.join(cells)}")
    print(f"The flow's curve is within {worst:.4f} of the exact one.")


def _between(power: float, nodes: np.ndarray, log_z: np.ndarray, means: np.ndarray) -> float:
    """log z between nodes, where E_β[δ] = −d log z / dβ is taken as linear."""
    k = int(np.clip(np.searchsorted(nodes, power) - 1, 0, nodes.size - 2))
    width, along = nodes[k + 1] - nodes[k], power - nodes[k]
    slope = (means[k + 1] - means[k]) / width
    # What the trapezium misses is spread evenly, so that the curve agrees with both nodes.
    missed = log_z[k + 1] - log_z[k] + 0.5 * width * (means[k] + means[k + 1])
    return float(log_z[k] - along * (means[k] + 0.5 * slope * along) + missed * along / width)


def posterior(axes: Axes) -> None:
    """Draw the exact posterior density of θ as a line."""
    theta = np.linspace(0.12, 0.3, 300)
    axes.plot(theta, beta_distribution.pdf(theta, *CONJUGATE), color="black", lw=1)


def draw(runs: dict[str, stanct.Run]) -> Figure:
    """How each method moves between prior and posterior, and below that where it arrives."""
    figure = Figure(figsize=(2.7 * len(runs), 5), layout="constrained")
    upper, lower = figure.subplots(2, len(runs))
    for axes, (name, run) in zip(upper, runs.items(), strict=True):
        axes.set_title(name, fontsize=10)
        if isinstance(run, stanct.TemperedRun):
            axes.plot(run.beta[0, :500], color=BLUE, lw=0.5)
            axes.set(xlabel="draw of the first chain", ylim=(-0.03, 1.03))
        elif isinstance(run, stanct.AdiabaticRun):
            paths = run.kinetic[0, :12].T
            axes.plot(run.betas, paths, color=BLUE, lw=0.6)
            # Trajectories spend most of their time at small β, where δ spreads most.
            axes.set_xscale("symlog", linthresh=0.001)
            axes.set_xticks([0, 0.001, 0.01, 0.1, 1], ["0", ".001", ".01", ".1", "1"])
            axes.set(xlabel="β of twelve trajectories", ylabel="kinetic energy")
        else:
            axes.plot(run.betas, color=BLUE)  # pyright: ignore[reportAttributeAccessIssue]
            axes.set(xlabel="step of the schedule", ylim=(-0.03, 1.03))
    upper[0].set_ylabel("β")
    for axes, (name, run) in zip(lower, runs.items(), strict=True):
        theta, log_weights = rate(run.variables["x"])[0].ravel(), run.target_log_weights.ravel()
        if name == "annealing":
            log_weights = np.zeros(theta.size)  # simulated annealing has no weights
        weights = np.exp(log_weights - log_weights.max())
        axes.hist(theta, bins=60, range=(0.12, 0.3), weights=weights, density=True, color=BLUE,
                  alpha=0.5)  # fmt: skip
        posterior(axes)
        axes.set(xlabel="θ", yticks=[])
    return figure


def mean_table(runs: dict[str, stanct.Run]) -> None:
    """Print the posterior mean of θ and log Z by each method."""
    mean = beta_distribution(*CONJUGATE).mean()
    print(f"\n{'':<20}mean of theta           log Z              gradients  round trips")
    print(f"{'exact':<20}{mean:.5f}               {exact_log_z(1.0):9.4f}")
    for name, run in runs.items():
        if name == "annealing":
            theta = rate(run.variables["x"])[0]
            value, error = theta.mean(), theta.std() / np.sqrt(theta.size)
        else:
            found = run.expect(lambda v: rate(v["x"])[0][..., 0])
            value, error = float(found.value), float(found.std_error)
        evidence = run.evidence
        log_z = "" if name == "annealing" else f"{evidence.log_z:9.4f} ± {evidence.std_error:.4f}"
        trips = f"{round_trips(run.beta).sum():8d}" if isinstance(run, stanct.TemperedRun) else ""
        print(
            f"{name:<20}{value:.5f} ± {error:.5f} {(value - mean) / error:+6.1f} {log_z:>20} "
            f"{run.gradients:>9,} {trips}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Annealing, tempering and adiabatic Monte Carlo.")
    parser.add_argument("--quick", action="store_true", help="few draws, seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("adiabatic.png"), help="the picture")
    options = parser.parse_args()
    target = stanct.FunctionTarget(stanct.FunctionDensity(log_posterior, 1), "beta_binomial")
    prior = stanct.GaussianBase(np.zeros(1), np.eye(1))
    common = {"base": prior, "seed": options.seed, "progress": False}

    runs: dict[str, stanct.Run] = {}
    # Annealing ignores the weights, so a schedule that is too fast shows in its mean.
    runs["annealing"] = stanct.sample(
        target, stanct.AIS(temperatures=20), draws=64 if options.quick else 512, **common
    )
    for name, method in LADDERS.items():
        runs[f"tempering, {name}"] = stanct.sample(
            target, method, draws=250 if options.quick else 2500,
            warmup=250 if options.quick else 500, **common,
        )  # fmt: skip
    runs["adiabatic"] = flow = stanct.sample(
        target, stanct.Adiabatic(duration=10.0 if options.quick else 80.0),
        draws=32 if options.quick else 128, warmup=16 if options.quick else 256, **common,
    )  # fmt: skip
    curve_table(flow)
    mean_table(runs)
    draw(runs).savefig(options.out, dpi=150)
    print(f"The picture is in {options.out}.")
