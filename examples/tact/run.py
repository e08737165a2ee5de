"""TACT-HMC on three synthetic targets with noisy gradients, and what each of its parts is for.

The script repeats section 5.1 of Luo, Wang, Yang, Zhu & Wang (2018) with their tempering settings.
The targets are a mixture of three Gaussians on the line and two densities in the plane. They are
our own, because the paper shows its targets only in pictures. Energies and gradients have Gaussian
noise that no sampler knows of, and every chain starts in the same mode.

    python run.py [--seed 1] [--quick] [--out .]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

import stanct
from stanct.estimates.mixing import effective_size
from stanct.runs.tact import LAMBDA, THERMOSTAT, XI_THERMOSTAT

HERE = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#999999"  # Okabe & Ito's palette
COLOURS = {"tact": BLUE, "no_tempering": ORANGE, "no_thermostat": GREEN}
NAMES = {
    "tact": "TACT-HMC",
    "no_tempering": "no tempering",
    "no_thermostat": "no thermostat",
    "sghmc": "SGHMC",
    "sgnht": "SGNHT",
}
LONG = {"no_tempering": "no tempering (SGNHT)"}
RANGE, BINS = (-9.0, 9.0), {1: 72, 2: 36}
TARGETS = {"three": np.array([0.0]), "needles": np.array([0.5, -4.0]), "rings": np.array([-1.6, 0])}
# `noise` holds standard deviations: that of the energy and that of each component of its gradient.
TACT = stanct.TACT(step=0.1, tempering_step=0.05, friction=0.1, noise=(3.0, 6.0))
# Without tempering TACT-HMC is SGNHT.
VARIANTS = {
    "tact": TACT,
    "no_tempering": replace(TACT, tempering=False),
    "no_thermostat": replace(TACT, thermostat=None),
    "sghmc": replace(TACT, tempering=False, thermostat=None),
}
TRACE = 600  # looks in the last panel


def sample(name: str, variant: str, options: argparse.Namespace) -> stanct.TactRun:
    """Run one variant, with all chains starting in one mode."""
    model = stanct.temper(HERE / f"{name}.stan")
    start = TARGETS[name]
    return model.sample(
        method=replace(VARIANTS[variant], start=start),
        base=stanct.GaussianBase(np.zeros(start.size), np.eye(start.size)),
        chains=4,
        draws=25_000 if not options.quick else 800 if name == "three" else 200,
        warmup=300 if options.quick else 2000,
        seed=options.seed,
        progress=False,
    )


def truth(name: str) -> np.ndarray:
    """The exact probability of every bin of the histogram, summed on a fine grid."""
    density = stanct.temper(HERE / f"{name}.stan").density()
    dimension = density.dimension
    fine = BINS[dimension] * (40 if dimension == 1 else 6)
    edges = np.linspace(*RANGE, fine + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    points = np.stack(np.meshgrid(*[centres] * dimension, indexing="ij"), -1)
    mass = np.exp(density.log_densities(points.reshape(-1, dimension))).reshape([fine] * dimension)
    for axis in range(dimension):
        mass = np.add.reduceat(mass, np.arange(0, fine, fine // BINS[dimension]), axis=axis)
    return mass / mass.sum()


def histogram(run: stanct.TactRun) -> np.ndarray:
    """The share of the draws in every bin."""
    dimension = run.z.shape[-1]
    draws = np.clip(run.z.reshape(-1, dimension), *RANGE)
    counts, _ = np.histogramdd(draws, BINS[dimension], [RANGE] * dimension)
    return counts / counts.sum()


def autocorrelation(values: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelation of a (chains, draws) array, shape (lags,).

    Each chain is centred on its own mean.
    """
    centred = values - values.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * centred.shape[1])) ** 2
    found = np.fft.irfft(spectrum.mean(axis=0))[:lags]
    return found / found[0]


def figure_one(runs: Mapping[str, stanct.TactRun], exact: np.ndarray) -> Figure:
    """The line: histograms, thermostats, autocorrelations and one chain's temperature."""
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    panels = figure.subplots(2, 3)
    edges = np.linspace(*RANGE, BINS[1] + 1)
    width = edges[1] - edges[0]
    for variant, axes in zip(("tact", "no_tempering", "no_thermostat"), panels[0], strict=True):
        axes.stairs(
            histogram(runs[variant]) / width, edges, fill=True, color=COLOURS[variant], alpha=0.6
        )
        axes.stairs(exact / width, edges, color="black", lw=1, label="exact")
        axes.set(xlim=RANGE, xlabel="x", ylabel="density", title=NAMES[variant])
        axes.legend(frameon=False, loc="upper right")
    top = max(axes.get_ylim()[1] for axes in panels[0][::2])
    for axes in panels[0][::2]:
        axes.set_ylim(0, top)
    run = runs["tact"]
    for column, colour, label, wanted in (
        (THERMOSTAT, BLUE, "of x", run.thermostat_means[0]),
        (XI_THERMOSTAT, ORANGE, "of ξ", run.thermostat_means[1]),
    ):
        step = TACT.step if column == THERMOSTAT else TACT.tempering_step
        grid = np.linspace(wanted - 4 * step, wanted + 4 * step, 200)
        axes = panels[1, 0]
        axes.hist(run.trace[..., column].ravel(), 80, density=True, color=colour, alpha=0.5,
                  label=f"thermostat {label}")  # fmt: skip
        axes.plot(grid, norm.pdf(grid, wanted, step), color=colour, lw=1.5)
    panels[1, 0].set(xlabel="thermostat", ylabel="density", title="thermostats and equation (6)")
    panels[1, 0].legend(frameon=False, fontsize=8)
    autocorrelation_panel(panels[1, 1], runs)
    temperature = 1 / run.trace[0, :TRACE, LAMBDA]
    panels[1, 2].plot(temperature, color=GREY, lw=0.7)
    cold = np.flatnonzero(temperature == 1)
    panels[1, 2].plot(cold, temperature[cold], ".", color=BLUE, ms=3, label="collected")
    panels[1, 2].set(
        xlim=(0, TRACE), ylim=(0, 11), xlabel="look", ylabel="temperature", title="one chain"
    )
    panels[1, 2].legend(loc="upper right", frameon=False, fontsize=8)
    return figure


def autocorrelation_panel(axes: Axes, runs: Mapping[str, stanct.TactRun]) -> None:
    """Autocorrelation of x for TACT-HMC and for two of its relatives."""
    for variant, colour in (("tact", BLUE), ("sgnht", ORANGE), ("sghmc", GREEN)):
        lags = 200
        axes.plot(
            autocorrelation(runs[variant].z[..., 0], lags), color=colour, label=NAMES[variant]
        )
    axes.axhline(0, color=GREY, lw=0.7)
    axes.set(xlabel="lag in draws", ylabel="autocorrelation of x", title="autocorrelation")
    axes.legend(frameon=False, fontsize=8)


def figure_two(
    runs: Mapping[str, Mapping[str, stanct.TactRun]], exact: Mapping[str, np.ndarray]
) -> Figure:
    """The plane: the exact density and the histograms, one row for each target."""
    figure = Figure(figsize=(11, 5.8), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True, sharey=True)
    for row, name in zip(panels, runs, strict=True):
        found = {"exact": exact[name]}
        found |= {NAMES[variant]: histogram(run) for variant, run in runs[name].items()}
        for axes, (title, image) in zip(row, found.items(), strict=True):
            axes.imshow(
                np.sqrt(image.T), origin="lower", extent=(*RANGE, *RANGE), cmap="Blues", vmin=0,
                vmax=np.sqrt(exact[name].max()) * 1.2, interpolation="nearest",
            )  # fmt: skip
            axes.set_title(title)
        row[0].set_ylabel(f"{name}\n$x_2$")
    for axes in panels[-1]:
        axes.set_xlabel("$x_1$")
    return figure


def report(name: str, runs: Mapping[str, stanct.TactRun], exact: np.ndarray) -> None:
    """Print one line for each variant.

    It has the distance between histogram and truth, how many times TACT-HMC's that is, the
    effective sample size and the cost.
    """
    print(f"\n{name}: total variation from the truth, effective share of the draws, gradients")
    distances = {
        variant: 0.5 * np.abs(histogram(run) - exact).sum() for variant, run in runs.items()
    }
    for variant, run in runs.items():
        size = effective_size(run.z[..., 0]) / run.energy.size
        name = LONG.get(variant, NAMES[variant])
        times = f"({distances[variant] / distances['tact']:4.1f} ×)"
        warned = f"  [{', '.join(run.warnings)}]" if run.warnings else ""
        print(
            f"  {name:22s} {distances[variant]:.4f} {times}   {size:6.1%}   "
            f"{run.gradients:>9d}{warned}"
        )


def report_thermostats(run: stanct.TactRun) -> None:
    """Print means and standard deviations of the thermostats, and those of equation (6)."""
    print("\nthree: mean and sd of TACT-HMC's thermostats, with those of equation (6) in brackets")
    for label, column, step in (
        ("x", THERMOSTAT, TACT.step),
        ("ξ", XI_THERMOSTAT, TACT.tempering_step),
    ):
        found, wanted = run.trace[..., column], run.thermostat_means[column - THERMOSTAT]
        error = found.std() / np.sqrt(effective_size(found))
        print(
            f"  {label}  {found.mean():.4f} ± {error:.4f} ({wanted:.4f})   "
            f"{found.std():.4f} ({step:.4f})"
        )
    print(f"  time at temperature 1: {run.plateau_share:.1%} (20.0%)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="TACT-HMC and its ablations under noise.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few draws, seconds")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the pictures")
    options = parser.parse_args()
    exact = {name: truth(name) for name in TARGETS}
    line = {variant: sample("three", variant, options) for variant in VARIANTS}
    report("three", line, exact["three"])
    report_thermostats(line["tact"])
    plane = {}
    for name in ("needles", "rings"):
        plane[name] = {
            variant: sample(name, variant, options)
            for variant in ("tact", "no_tempering", "no_thermostat")
        }
        report(name, plane[name], exact[name])
    figure_one({**line, "sgnht": line["no_tempering"]}, exact["three"]).savefig(
        options.out / "line.png", dpi=110
    )
    figure_two(plane, exact).savefig(options.out / "plane.png", dpi=110)
    print(f"\nThe pictures are line.png and plane.png in {options.out.resolve()}.")
