"""Figure 2 of Graham & Storkey (2017): errors of six methods on Boltzmann machine relaxations.

All runs on a system share one base: the moment-matched mixture of mean-field fits of the paper's
section 7.2, or with `--base scouts` the base that stanct finds by itself. The script prints root
mean square errors of log Z, of the means and of the covariances. They are relative to the errors of
that base, so 1 is what is known before sampling. The gradients include warm-up.

Each finished run is added to a CSV file at once. A run that the file already has is not repeated.

    python run.py --quick        # one small generated system, seconds
    python run.py                # the five published systems, see README.md
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rows import appending, rows_of
from systems import COUNT, PROGRAM, System, generated, published
from tqdm import tqdm

import stanct
from stanct.bases.fits import FittedBase, fit_base
from stanct.engines.embedded import Nuts, run_nuts

MEASURES = {"log_z": "log Z", "mean": "E[x]", "covariance": "Cov[x]"}
COLUMNS = (
    "base", "system", "repeat", "method", "length", "gradients", "cpu_seconds", *MEASURES
)  # fmt: skip
# Okabe & Ito's palette.
COLOURS = {
    "hmc": "#999999",
    "simulated_tempering": "#e69f00",
    "ais": "#56b4e9",
    "parallel_tempering": "#009e73",
    "gibbs": "#0072b2",
    "joint": "#d55e00",
}
LENGTHS = (1, 3, 10)
CHAINS = 4


# No method refits the base.
CHAIN_METHODS = {
    "simulated_tempering": (stanct.SimulatedTempering(bootstrap=0), 300),
    "parallel_tempering": (stanct.ParallelTempering(bootstrap=0), 200),
    "gibbs": (stanct.Gibbs(bootstrap=0), 300),
    "joint": (stanct.Joint(bootstrap=0), 300),
}


def chosen(name: str, length: int) -> tuple[stanct.Method, dict[str, int]]:
    """A method and its number of draws; methods of equal length cost about the same."""
    if name == "ais":
        return stanct.AIS(temperatures=50 * length), {"draws": 32}
    method, draws = CHAIN_METHODS[name]
    return method, {"draws": draws * length, "warmup": 150 + 50 * length}


def moments(x: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and covariance of draws of shape (chains, draws, D)."""
    weights = np.exp(log_weights - log_weights.max()).ravel()
    weights /= weights.sum()
    flat = x.reshape(weights.size, -1)
    mean = weights @ flat
    return mean, (flat - mean).T @ ((flat - mean) * weights[:, None])


def errors(system: System, log_z: float, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Root mean square errors of the three measures, NaN for log Z if `log_z` is NaN."""
    truth = system.truth
    pairs = ((log_z, truth.log_z), (mean, truth.mean), (covariance, truth.covariance))
    return np.array([np.sqrt(np.mean(np.square(a - b))) for a, b in pairs])


def sampled(
    model: stanct.TemperedModel,
    system: System,
    base: FittedBase,
    name: str,
    length: int,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Errors and gradients of one run of the method called `name`."""
    data = system.machine.stan_data()
    if name == "hmc":
        target = model.target(data)
        rng = np.random.default_rng(seed)
        starts = base.base.unwhiten(base.base.draw(rng, CHAINS))
        block, gradients = run_nuts(
            target.density_recipe, starts, seed=seed, warmup=200, draws=300 * length, nuts=Nuts()
        )
        x = block.variables["x"]
        return errors(system, np.nan, *moments(x, np.zeros(x.shape[:2]))), gradients
    method, length_of_chains = chosen(name, length)
    run = model.sample(
        data,
        method,
        engine="embedded",
        chains=CHAINS,
        seed=seed,
        base=base.base,
        log_zeta=base.log_zeta,
        progress=False,
        **length_of_chains,
    )
    found = moments(run.variables["x"], run.target_log_weights)
    return errors(system, run.evidence.log_z, *found), run.gradients


def first_base(
    model: stanct.TemperedModel, system: System, kind: str, seed: np.random.SeedSequence
) -> FittedBase:
    """The base that all methods share."""
    if kind == "mean-field":
        return system.machine.mean_field(np.random.default_rng(seed))
    target = model.target(system.machine.stan_data())
    return fit_base(target, "pilot", chains=CHAINS, seed=seed, nuts=Nuts())


def run_all(systems: list[System], options: argparse.Namespace) -> None:
    """Do the runs that the file lacks."""
    model = stanct.temper(PROGRAM)
    done = {(r["base"], r["system"], int(r["repeat"]), r["method"], int(r["length"]))
            for r in rows_of(options.out)}  # fmt: skip
    wanted = [(method, length) for length in options.lengths for method in COLOURS]
    seeds = np.random.SeedSequence(options.seed).spawn(options.repeats)
    with appending(options.out, COLUMNS) as add:
        bar = tqdm(total=options.repeats * len(systems) * len(wanted), unit="run", disable=None)
        for repeat, repeat_seed in enumerate(seeds):
            for system, child in zip(systems, repeat_seed.spawn(len(systems)), strict=True):
                base_seed, run_seed = child.spawn(2)
                own = run_seed.generate_state(len(wanted)) % 2**30
                base = first_base(model, system, options.base, base_seed)
                scale = errors(system, base.log_zeta, base.base.mean, base.base.covariance)
                for (method, length), seed in zip(wanted, own, strict=True):
                    bar.update()
                    if (options.base, system.name, repeat, method, length) in done:
                        continue
                    started = time.process_time()
                    found, gradients = sampled(model, system, base, method, length, int(seed))
                    row = (options.base, system.name, repeat, method, length, gradients,
                           f"{time.process_time() - started:.2f}",
                           *(f"{value:.5f}" for value in found / scale))  # fmt: skip
                    add(dict(zip(COLUMNS, row, strict=True)))


def averages(rows: list[dict[str, str]]) -> dict[str, np.ndarray]:
    """Each method's gradients and three relative errors at each length, shape (lengths, 4).

    The errors are root mean squares over repetitions, averaged over systems.
    """
    lines = {}
    for method in COLOURS:
        line = []
        for length in sorted({int(row["length"]) for row in rows}):
            own = [r for r in rows if r["method"] == method and int(r["length"]) == length]
            if not own:
                continue
            names = sorted({row["system"] for row in own})
            table = [
                [
                    np.sqrt(np.mean([float(r[key]) ** 2 for r in own if r["system"] == name]))
                    for key in MEASURES
                ]
                for name in names
            ]
            line.append([np.mean([float(r["gradients"]) for r in own]), *np.mean(table, axis=0)])
        if line:
            lines[method] = np.array(line)
    return lines


def picture(lines: dict[str, np.ndarray]) -> Figure:
    """Relative errors against gradients, one panel for each measure."""
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True)
    for column, (axes, label) in enumerate(zip(panels, MEASURES.values(), strict=True), start=1):
        for method, line in lines.items():
            if np.isfinite(line[:, column]).all():
                axes.loglog(line[:, 0], line[:, column], "o-", ms=4, color=COLOURS[method],
                            label=method.replace("_", " "))  # fmt: skip
        axes.axhline(1.0, color="black", lw=0.6, ls=":")
        axes.set(title=label, xlabel="gradients")
    panels[0].set_ylabel("RMSE relative to the base's")
    panels[1].legend(fontsize=7, frameon=False)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Figure 2 of Graham & Storkey (2017).")
    parser.add_argument("--repeats", type=int, default=3, help="runs on each system")
    parser.add_argument("--systems", type=int, default=COUNT, help="published systems, 1 to 5")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=list(LENGTHS), help="lengths of the runs"
    )
    parser.add_argument("--base", choices=("mean-field", "scouts"), default="mean-field")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("figure2.csv"), help="file of all runs")
    parser.add_argument("--picture", type=Path, default=Path("figure2.png"), help="the picture")
    parser.add_argument("--quick", action="store_true", help="one small system, short runs")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.lengths = 1, [1]
    run_all(
        [generated(8, 1)] if options.quick else [published(k) for k in range(options.systems)],
        options,
    )
    lines = averages([row for row in rows_of(options.out) if row["base"] == options.base])
    print(f"{'':<20} {'gradients':>10} " + " ".join(f"{label:>7}" for label in MEASURES.values()))
    for method, line in lines.items():
        for gradients, *relative in line:
            print(f"{method:<20} {gradients:10,.0f} " + " ".join(f"{r:7.3f}" for r in relative))
    picture(lines).savefig(options.picture, dpi=150)
    print(f"The picture is in {options.picture}.")
