"""Eight schools, centred and non-centred: two programs with one evidence.

The centred program has a funnel, in which plain NUTS gets stuck. The script samples both programs
by joint tempering and by pseudo-extended MCMC. It compares log Z and posterior means with
quadrature. The picture shows how far down the funnel each sampler went.

    python run.py [--quick] [--seed 1] [--out eight_schools.png]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from exact import log_joint
from matplotlib.figure import Figure
from scipy.integrate import trapezoid

import stanct
from stanct.engines.embedded import Nuts, run_nuts

HERE = Path(__file__).resolve().parent
PROGRAMS = {"centred": "centred", "non-centred": "non_centred"}
METHODS = {"joint": stanct.Joint(), "PE, N = 3": stanct.PseudoExtended(copies=3)}
BLUE = "#0072b2"  # Okabe & Ito's palette
SHOWN = (-4, 4)  # range of log tau in the panels


def plain_nuts(model: stanct.TemperedModel, data: dict, draws: int, seed: int) -> np.ndarray:
    """Draws of tau from four ordinary chains, shape (4 × draws,)."""
    target = model.target(data)
    starts = np.random.default_rng(seed).uniform(-1, 1, size=(4, target.density.dimension))
    block, _ = run_nuts(
        target.density_recipe,
        starts,
        seed=seed,
        warmup=500,
        draws=draws,
        nuts=Nuts(),
    )
    return block.variables["tau"].ravel()


def table(runs: dict[tuple[str, str], stanct.Run], truth: dict) -> None:
    """Print log Z and two means of every run, and how many standard errors each is off."""
    print(
        f"{'program':<12} {'method':<10} {'log Z':>20} {'mean log tau':>20} {'mean theta[1]':>20}"
    )
    exact = (truth["log_z"], truth["mean_log"]["tau"], truth["mean"]["theta"][0])
    print(f"{'exact':<23} {exact[0]:20.4f} {exact[1]:20.4f} {exact[2]:20.4f}")
    for (program, method), run in runs.items():
        log_tau = run.expect(lambda draws: np.log(draws["tau"]))
        first = run.expect(lambda draws: draws["theta"][..., 0])
        found = [(run.evidence.log_z, run.evidence.std_error)]
        found += [(float(mean.value), float(mean.std_error)) for mean in (log_tau, first)]
        cells = " ".join(
            f"{value:8.3f} ± {error:5.3f} {(value - true) / error:+4.1f}"
            for (value, error), true in zip(found, exact, strict=True)
        )
        print(f"{program:<12} {method:<10} {cells}")


def compare(runs: dict[tuple[str, str], stanct.Run]) -> None:
    """Print the difference between the two programs' evidences, which must be zero."""
    for method in METHODS:
        one, other = (runs[program, method].evidence for program in PROGRAMS)
        error = np.hypot(one.std_error, other.std_error)
        gap = one.log_z - other.log_z
        print(f"{method}: the two evidences differ by {gap:+.4f} ± {error:.4f}")


def draw(columns: dict[str, dict[str, tuple]], data: dict) -> Figure:
    """Histograms of log tau, one row for each program, with the exact density as a line."""
    grid = np.linspace(*SHOWN, 401)
    log_density, _ = log_joint(grid, np.array(data["y"], float), np.array(data["sigma"], float))
    density = np.exp(log_density - log_density.max())
    density /= trapezoid(density, grid)
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(len(columns), len(METHODS) + 1, sharex=True, sharey=True)
    for row, (program, samples) in zip(panels, columns.items(), strict=True):
        for axes, (method, (tau, weights)) in zip(row, samples.items(), strict=True):
            axes.hist(
                np.log(tau), bins=48, range=SHOWN, weights=weights, density=True, color=BLUE,
                alpha=0.5,
            )  # fmt: skip
            axes.plot(grid, density, color="black", lw=1.2)
            axes.set(xlim=SHOWN)
            if program == "centred":
                axes.set_title(method, fontsize=10)
            else:
                axes.set_xlabel("log τ")
        row[0].set_ylabel(f"{program}\ndensity")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Two programs with one evidence.")
    parser.add_argument("--quick", action="store_true", help="a fifth of the draws")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("eight_schools.png"), help="the picture")
    options = parser.parse_args()
    draws = 500 if options.quick else 2500
    data = json.loads((HERE / "eight_schools.data.json").read_text(encoding="utf-8"))
    truth = json.loads((HERE / "truth.json").read_text(encoding="utf-8"))

    runs: dict[tuple[str, str], stanct.Run] = {}
    columns: dict[str, dict[str, tuple]] = {}
    for program, file in PROGRAMS.items():
        model = stanct.temper(HERE / f"{file}.stan")
        columns[program] = {"plain NUTS": (plain_nuts(model, data, draws, options.seed), None)}
        for name, method in METHODS.items():
            run = model.sample(data, method, draws=draws, seed=options.seed)
            runs[program, name] = run
            weights = np.exp(run.target_log_weights - run.target_log_weights.max()).ravel()
            columns[program][name] = (run.variables["tau"].ravel(), weights)
    table(runs, truth)
    compare(runs)
    draw(columns, data).savefig(options.out, dpi=150)
    print(f"The picture is in {options.out}.")
