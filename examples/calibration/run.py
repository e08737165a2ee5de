"""Are the error bars honest? Repeat joint continuous tempering where the exact answer is known.

Each repetition has a seed of its own. For log Z and one posterior mean of each target the table
shows the root mean square error, what the runs reported as their standard error, and how many of
the errors lie within 1.96 of those: 95 % if the error bars are right.

    python run.py                                  # three small targets, 100 repetitions each
    python run.py --targets radon --repeats 20     # 92 parameters, minutes
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

import stanct

ROOT = Path(__file__).resolve().parents[2]
SHORT_RUN = {"chains": 4, "draws": 500, "warmup": 300, "bootstrap": 1}


@dataclass(frozen=True)
class Target:
    """A program with its exact answer, and the scalar whose posterior mean is checked too.

    Attributes
    ----------
    folder
        Below the repository's root; holds the program, its data and truth.json.
    label
        What the scalar is called in the table.
    of_draws, of_truth
        Take the scalar from the run's variables, and its mean from truth.json's `mean`.
    settings
        Of `TemperedModel.sample`.
    """

    folder: str
    label: str
    of_draws: Callable
    of_truth: Callable
    settings: dict[str, int] = field(default_factory=lambda: SHORT_RUN)


def first(name: str) -> tuple[str, Callable, Callable]:
    """The first element of a vector: its label, from the draws, from the truth."""
    return f"{name}[1]", lambda draws: draws[name][..., 0], lambda mean: mean[name][0]


TARGETS = {
    "gaussian": Target("stan_models/gaussian", *first("slope")),
    "skewed": Target("stan_models/skewed", *first("rate")),
    "two_modes": Target("stan_models/two_modes", *first("x")),
    "radon": Target(
        "examples/radon", *first("beta"), settings={"chains": 4, "draws": 2500, "bootstrap": 1}
    ),
}


def repeat(target: Target, seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Run a target once for each seed.

    Returns
    -------
    dict
        Name to an array over the runs: errors and standard errors of both quantities, gradients,
        seconds, and whether a diagnostic failed.
    """
    folder = ROOT / target.folder
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    model = stanct.temper(folder / f"{folder.name}.stan")
    data = folder / f"{folder.name}.data.json"
    rows = []
    for seed in tqdm(seeds, desc=folder.name, unit="run", leave=False):
        started = time.perf_counter()
        run = model.sample(
            data if data.exists() else None, seed=int(seed), progress=False, **target.settings
        )
        mean = run.expect(target.of_draws)
        rows.append(
            {
                "log_z_error": run.evidence.log_z - truth["log_z"],
                "log_z_std_error": run.evidence.std_error,
                "mean_error": float(mean.value) - target.of_truth(truth["mean"]),
                "mean_std_error": float(mean.std_error),
                "gradients": run.gradients,
                "seconds": time.perf_counter() - started,
                "warned": bool(run.warnings),
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def report(name: str, target: Target, runs: dict[str, np.ndarray], within: float) -> None:
    """Print the two lines of a target."""
    for key, label in (("log_z", "log Z"), ("mean", target.label)):
        error, std_error = runs[f"{key}_error"], runs[f"{key}_std_error"]
        covered = np.mean(np.abs(error) <= within * std_error)
        print(
            f"{name:<10} {label:<9} {np.sqrt(np.mean(error**2)):8.4f} {error.mean():+8.4f} "
            f"{std_error.mean():8.4f} {std_error.max():8.4f} {covered:7.0%}   "
            f"{runs['gradients'].mean():11,.0f} {runs['seconds'].mean():7.2f} "
            f"{runs['warned'].mean():7.0%}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Coverage of stanct's error bars.")
    parser.add_argument("--repeats", type=int, default=100, help="runs of each target")
    parser.add_argument("--seed", type=int, default=1, help="of all seeds")
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=["gaussian", "skewed", "two_modes"]
    )
    parser.add_argument(
        "--within", type=float, default=1.96, help="standard errors that count as covered"
    )
    options = parser.parse_args()
    print(
        f"{'target':<10} {'quantity':<9} {'RMSE':>8} {'bias':>8} {'mean SE':>8} {'max SE':>8} "
        f"{f'≤{options.within:g} SE':>7}   {'gradients':>11} {'seconds':>7} {'warned':>7}"
    )
    spawned = np.random.SeedSequence(options.seed).spawn(len(TARGETS))
    streams = dict(zip(TARGETS, spawned, strict=True))
    for name in options.targets:
        seeds = streams[name].generate_state(options.repeats)
        report(name, TARGETS[name], repeat(TARGETS[name], seeds), options.within)
