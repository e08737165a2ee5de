"""Errors of log Z with default settings, where modes hide and where they do not.

Every run fits its own base. Its gradients are those of pilots, scouts, adaptation and sampling
together. The errors are differences from exact answers. RMSE is averaged over the five systems of
30 units. "≤ 2 SE" is the share of runs within two reported standard errors, and "or warned" also
counts the runs with a named warning.

Each finished run is added to a CSV file at once. A run that the file already has is not repeated.

    python table.py                               # two methods, 5 seeds a system, about 10 minutes
    python table.py --methods gibbs --seeds 20
    python table.py --quick                       # one small generated system, seconds
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rows import appending, rows_of
from systems import COUNT, PROGRAM, System, generated, published
from tqdm import tqdm

import stanct

METHODS = ("parallel_tempering", "gibbs", "simulated_tempering", "ais", "joint")
COLUMNS = (
    "method", "target", "seed", "error", "std_error", "gradients", "cpu_seconds",
    "lowest_acceptance", "highest_acceptance", "warnings",
)  # fmt: skip
RADON = PROGRAM.parents[2] / "examples" / "radon"

# Other packages on a relaxation of 26 dimensions, measured once with one thread: RMSE of log Z,
# gradients and CPU seconds.
PEERS = (
    ("BlackJAX adaptive SMC", 0.28, 1.7e6, 0.8),
    ("plain AIS", 0.29, 1.25e6, 2.2),
    ("plain AIS, longer", 0.14, 5e6, 8.7),
    ("PyMC sample_smc", 1.4, None, 8.6),
    ("dynesty", 0.52, None, 3.7),
)


def acceptance(run: stanct.Run) -> tuple[float, float]:
    """The smallest and the largest mean acceptance in any tenth of β or on any rung."""
    if isinstance(run, stanct.LadderRun):
        bins = run.acceptance
    elif isinstance(run, stanct.TemperedRun) and run.method == "joint":
        beta, accepted = run.beta.ravel(), run.statistics["accept_stat__"].ravel()
        tenth = np.minimum((10 * beta).astype(int), 9)
        bins = [accepted[tenth == k].mean() for k in np.unique(tenth)]
    else:
        bins = [value for value in run.provenance["acceptance"]["acceptance"] if value is not None]
    return float(np.min(bins)), float(np.max(bins))


def measured(
    target: str, log_z: float, run: stanct.Run, cpu: float, seed: int
) -> dict[str, object]:
    """The row of a run."""
    low, high = acceptance(run)
    return {
        "method": run.method,
        "target": target,
        "seed": seed,
        "error": f"{run.bare_evidence.log_z - log_z:.5f}",
        "std_error": f"{run.bare_evidence.std_error:.5f}",
        "gradients": run.gradients,
        "cpu_seconds": f"{cpu:.2f}",
        "lowest_acceptance": f"{low:.3f}",
        "highest_acceptance": f"{high:.3f}",
        "warnings": " ".join(run.warnings),
    }


def targets(
    systems: list[System], radon: bool
) -> Iterator[tuple[str, stanct.TemperedModel, dict, float]]:
    """Name, model, data and exact log Z of each target."""
    model = stanct.temper(PROGRAM)
    for system in systems:
        yield system.name, model, system.machine.stan_data(), system.truth.log_z
    if radon:
        data = json.loads((RADON / "radon.data.json").read_text(encoding="utf-8"))
        truth = json.loads((RADON / "truth.json").read_text(encoding="utf-8"))
        yield "radon", stanct.temper(RADON / "radon.stan"), data, truth["log_z"]


def run_all(options: argparse.Namespace, systems: list[System]) -> None:
    """Do the runs that the file lacks, seed by seed."""
    done = {(row["method"], row["target"], row["seed"]) for row in rows_of(options.out)}
    jobs = [
        (method, name, model, data, log_z, seed)
        for seed in range(1, options.seeds + 1)
        for name, model, data, log_z in targets(systems, options.radon)
        for method in options.methods
        if (method, name, str(seed)) not in done
    ]
    with appending(options.out, COLUMNS) as add:
        for method, name, model, data, log_z, seed in tqdm(jobs, unit="run", disable=None):
            started = time.process_time()
            run = model.sample(data, method, seed=seed, engine="embedded", progress=False)
            cpu = time.process_time() - started
            add(measured(name, log_z, run, cpu, seed))


def line(name: str, rows: list[dict[str, str]]) -> str:
    """The table's line for these runs."""
    error, size = (np.array([float(row[key]) for row in rows]) for key in ("error", "std_error"))
    of = np.array([row["target"] for row in rows])
    rmse = np.mean([np.sqrt(np.mean(error[of == one] ** 2)) for one in np.unique(of)])
    covered = np.abs(error) <= 2 * size
    warned = np.array([bool(row["warnings"]) for row in rows])
    low, high = (
        [float(row[key]) for row in rows] for key in ("lowest_acceptance", "highest_acceptance")
    )
    gradients, cpu = (
        np.mean([float(r[key]) for r in rows]) for key in ("gradients", "cpu_seconds")
    )
    return (
        f"{name:<28} {len(rows):4d} {rmse:7.3f} {error.mean():+7.3f} {size.mean():7.3f} "
        f"{covered.mean():8.0%} {(covered | warned).mean():9.0%} {gradients / 1e6:9.2f} {cpu:6.1f}"
        f"   {np.min(low):.2f} – {np.max(high):.2f}"
    )


def report(rows: list[dict[str, str]]) -> None:
    """Print the table of all rows, with the other packages below."""
    print(
        f"{'':<28} {'runs':>4} {'RMSE':>7} {'bias':>7} {'SE':>7} {'≤ 2 SE':>8} {'or warned':>9} "
        f"{'10⁶ grad.':>9} {'CPU s':>6}   acceptance"
    )
    for place, wanted in (("Boltzmann", False), ("radon", True)):
        for method in METHODS:
            own = [r for r in rows if r["method"] == method and (r["target"] == "radon") == wanted]
            if own:
                print(line(f"{method}, {place}", own))
    for name, rmse, gradients, cpu in PEERS:
        spent = f"{gradients / 1e6:9.2f}" if gradients else f"{'':9}"
        print(f"{name:<28} {'':4} {rmse:7.2f} {'':42} {spent} {cpu:6.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Errors of log Z with default settings.")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS[:2])
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method on each target")
    parser.add_argument("--radon", action="store_true", help="also run on the radon posterior")
    parser.add_argument("--out", type=Path, default=Path("table.csv"), help="file of all runs")
    parser.add_argument("--quick", action="store_true", help="one small system, one seed")
    options = parser.parse_args()
    if options.quick:
        options.seeds = 1
    run_all(options, [generated(8, 1)] if options.quick else [published(k) for k in range(COUNT)])
    report(rows_of(options.out))
