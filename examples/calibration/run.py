"""Are the error bars honest? Repeated runs of a sampler where the exact answer is known.

Each repetition has its own seed. The table has two lines for each target, one for log Z and one for
a posterior mean. A line shows the root mean square error, the standard error that the runs
reported, and the share of errors within 1.96 standard errors. That share is 95 % if the error bars
are right.

    python run.py                                  # joint CT, three targets, 100 repetitions each
    python run.py --methods gibbs ais --targets two_modes funnel wide
    python run.py --targets radon --repeats 20     # 92 parameters, minutes
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal
from tqdm import tqdm

import stanct

ROOT = Path(__file__).resolve().parents[2]
# Short runs: the method, and the length of its chains.
SHORT: dict[str, tuple[stanct.Method, dict[str, int]]] = {
    "joint": (stanct.Joint(), {"draws": 500, "warmup": 300}),
    "gibbs": (stanct.Gibbs(), {"draws": 500, "warmup": 300}),
    "simulated_tempering": (stanct.SimulatedTempering(), {"draws": 500, "warmup": 300}),
    "parallel_tempering": (stanct.ParallelTempering(), {"draws": 500}),
    "ais": (stanct.AIS(temperatures=100), {"draws": 64}),
}


@dataclass(frozen=True)
class Target:
    """A program with its exact answers.

    Attributes
    ----------
    model, data
        The program and its data.
    log_z, mean
        The exact log Z, and the exact posterior mean of a scalar.
    label, scalar
        The scalar's name in the table, and the function that takes it from a run's variables.
    short
        Whether the runs are those of `SHORT`. Otherwise they have each method's defaults.
    """

    model: stanct.TemperedModel
    data: Mapping[str, Any] | None
    log_z: float
    mean: float
    label: str
    scalar: Callable[[Mapping[str, np.ndarray]], np.ndarray]
    short: bool = True


def shipped(folder: str, name: str, *, short: bool = True) -> Target:
    """A folder with program, data and truth.json. The scalar is the first element of `name`."""
    path = ROOT / folder
    data = path / f"{path.name}.data.json"
    truth = json.loads((path / "truth.json").read_text(encoding="utf-8"))
    return Target(
        stanct.temper(path / f"{path.name}.stan"),
        json.loads(data.read_text(encoding="utf-8")) if data.exists() else None,
        truth["log_z"],
        float(np.ravel(truth["mean"][name])[0]),
        name,
        lambda draws: draws[name].reshape(*draws[name].shape[:2], -1)[..., 0],
        short,
    )


def wide() -> Target:
    """The regression in `stan_models/gaussian`, with 100 slopes."""
    rng = np.random.default_rng(1)
    design, noise = rng.normal(size=(150, 100)), 2.0
    y = design @ rng.normal(size=100) + noise * rng.normal(size=150)
    covariance = design @ design.T + noise**2 * np.eye(150)
    return Target(
        stanct.temper(ROOT / "stan_models/gaussian/gaussian.stan"),
        {"N": 150, "K": 100, "design": design, "y": y, "noise": noise, "prior_scale": 1.0},
        float(multivariate_normal(cov=covariance).logpdf(y)),
        float(design[:, 0] @ np.linalg.solve(covariance, y)),
        "slope",
        lambda draws: draws["slope"][..., 0],
    )


TARGETS: dict[str, Callable[[], Target]] = {
    "gaussian": lambda: shipped("stan_models/gaussian", "slope"),
    "skewed": lambda: shipped("stan_models/skewed", "rate"),
    "two_modes": lambda: shipped("stan_models/two_modes", "x"),
    "funnel": lambda: shipped("stan_models/funnel", "log_variance"),
    "wide": wide,
    "radon": lambda: shipped("examples/radon", "beta", short=False),
}


def repeat(target: Target, method: str, seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Run a target once for each seed.

    Returns
    -------
    dict
        Arrays over the runs by name: errors and standard errors of both quantities, gradients,
        seconds, and whether a diagnostic failed.
    """
    rows = []
    chosen, length = SHORT[method] if target.short else (method, {})
    for seed in tqdm(seeds, desc=method, unit="run", leave=False, disable=None):
        started = time.perf_counter()
        run = target.model.sample(
            target.data, chosen, seed=int(seed), engine="embedded", progress=False, **length
        )  # fmt: skip
        mean = run.expect(target.scalar)
        rows.append(
            {
                "log_z_error": run.evidence.log_z - target.log_z,
                "log_z_std_error": run.evidence.std_error,
                "mean_error": float(mean.value) - target.mean,
                "mean_std_error": float(mean.std_error),
                "gradients": run.gradients,
                "seconds": time.perf_counter() - started,
                "warned": bool(run.warnings),
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def report(heading: str, label: str, runs: dict[str, np.ndarray], within: float) -> None:
    """Print the two lines of a method on a target."""
    for key, quantity in (("log_z", "log Z"), ("mean", label)):
        error, std_error = runs[f"{key}_error"], runs[f"{key}_std_error"]
        covered = np.mean(np.abs(error) <= within * std_error)
        print(
            f"{heading:<30} {quantity:<12} {np.sqrt(np.mean(error**2)):8.4f} {error.mean():+8.4f} "
            f"{std_error.mean():8.4f} {std_error.max():8.4f} {covered:7.0%}   "
            f"{runs['gradients'].mean():11,.0f} {runs['seconds'].mean():7.2f} "
            f"{runs['warned'].mean():7.0%}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Coverage of stanct's error bars.")
    parser.add_argument("--repeats", type=int, default=100, help="runs of a method on a target")
    parser.add_argument("--seed", type=int, default=1, help="seed of all seeds")
    parser.add_argument("--methods", nargs="+", choices=SHORT, default=["joint"])
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=["gaussian", "skewed", "two_modes"]
    )
    parser.add_argument(
        "--within", type=float, default=1.96, help="standard errors that count as covered"
    )
    options = parser.parse_args()
    print(
        f"{'':<30} {'quantity':<12} {'RMSE':>8} {'bias':>8} {'mean SE':>8} {'max SE':>8} "
        f"{f'≤{options.within:g} SE':>7}   {'gradients':>11} {'seconds':>7} {'warned':>7}"
    )
    spawned = np.random.SeedSequence(options.seed).spawn(len(TARGETS))
    streams = dict(zip(TARGETS, spawned, strict=True))
    for name in options.targets:
        target, seeds = TARGETS[name](), streams[name].generate_state(options.repeats)
        for method in options.methods:
            runs = repeat(target, method, seeds)
            report(f"{name}, {method}", target.label, runs, options.within)
