"""Two modes twelve standard deviations apart, by plain NUTS and by continuous tempering.

The script repeats section 7.1 of Graham & Storkey (2017) with the program bimodal.stan and the
paper's base. It draws the four panels of their Figure 1.

    python run.py [--seed 1] [--out bimodal.png]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy.integrate import trapezoid
from scipy.stats import norm

import stanct
from stanct.engines.embedded import Nuts, run_nuts

HERE = Path(__file__).resolve().parent
CHAINS, DRAWS = 4, 2500

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#bbbbbb"  # Okabe & Ito's palette
TRAJECTORY = 40  # draws that the first panel joins by lines
TRACE = 1000  # draws in the last panel
X = np.linspace(-40, 40, 801)
SHOWN = (-24, 24)  # range of x in the panels


def target_density(x: np.ndarray) -> np.ndarray:
    """The mixture of bimodal.stan."""
    return 0.6 * norm.pdf(x, -8, 1) + 0.4 * norm.pdf(x, 8, 2)


def joint_panel(axes: Axes, run: stanct.TemperedRun, base_density: np.ndarray) -> None:
    """p(x, β) and the draws of one chain; a line joins those around the first change of mode."""
    beta = np.linspace(0, 1, 201)[:, None]
    density = target_density(X) ** beta * base_density ** (1 - beta)
    # The square root makes the low density near β = 0 visible, which is where the chain crosses.
    axes.pcolormesh(X, beta[:, 0], np.sqrt(density), cmap="Greys", vmax=0.8)
    x, betas = run.variables["x"][0], run.beta[0]
    axes.plot(x[:TRACE], betas[:TRACE], ".", color=BLUE, ms=3, mew=0, label="draws")
    # The place where the chain first goes from one mode to the other.
    in_mode = np.flatnonzero(np.abs(x) > 5)
    crossing = in_mode[np.argmax(np.diff(np.signbit(x[in_mode])))]
    shown = slice(max(0, crossing - TRAJECTORY // 2), crossing + TRAJECTORY // 2)
    axes.plot(
        x[shown],
        betas[shown],
        ".-",
        color=ORANGE,
        lw=0.8,
        ms=4,
        label=f"{TRAJECTORY} successive draws",
    )
    axes.set(xlim=SHOWN, ylim=(0, 1), xlabel="x", ylabel="inverse temperature β")
    legend_above(axes)


def beta_panel(axes: Axes, run: stanct.TemperedRun, base_density: np.ndarray) -> None:
    """Histogram of β, with its exact density: z(β) by quadrature, normalised."""
    beta = np.linspace(0, 1, 101)
    path = target_density(X) ** beta[:, None] * base_density ** (1 - beta[:, None])
    z = trapezoid(path, X)
    axes.hist(
        run.beta.ravel(), bins=25, range=(0, 1), density=True, color=BLUE, alpha=0.5, label="draws"
    )
    axes.plot(beta, z / trapezoid(z, beta), color="black", lw=1.2, label="exact")
    axes.set(xlim=(0, 1), xlabel="inverse temperature β", ylabel="density")
    legend_above(axes)


def density_panel(axes: Axes, run: stanct.TemperedRun, base_density: np.ndarray) -> None:
    """The base, the target, and the draws weighted to the target."""
    weights = np.exp(run.log_weights()).ravel()
    axes.hist(
        run.variables["x"].ravel(),
        bins=96,
        range=SHOWN,
        weights=weights,
        density=True,
        color=BLUE,
        alpha=0.5,
        label="weighted draws",
    )
    axes.plot(X, target_density(X), color="black", lw=1.2, label="target")
    axes.plot(X, base_density, "--", color=ORANGE, lw=1.5, label="base")
    axes.set(xlim=SHOWN, xlabel="x", ylabel="density")
    legend_above(axes)


def trace_panel(figure: Figure, axes: Axes, run: stanct.TemperedRun) -> None:
    """x over the iterations of one chain, with β as the colour."""
    x, beta = run.variables["x"][0, :TRACE], run.beta[0, :TRACE]
    points = np.column_stack([np.arange(TRACE), x])
    lines = np.stack([points[:-1], points[1:]], axis=1)
    axes.add_collection(LineCollection(lines, colors=GREY, linewidths=0.3))
    dots = axes.scatter(*points.T, c=beta, cmap="viridis_r", vmin=0, vmax=1, s=5, zorder=2)
    figure.colorbar(dots, ax=axes, label="inverse temperature β", pad=0.02)
    axes.set(xlim=(0, TRACE), ylim=SHOWN, xlabel="iteration", ylabel="x")


def legend_above(axes: Axes) -> None:
    """Put the legend beside the title, where it hides no data."""
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.01, 0.99),
        ncols=3,
        frameon=False,
        fontsize=8,
        handlelength=1.4,
        columnspacing=1.2,
    )


def draw(run: stanct.TemperedRun) -> Figure:
    """The four panels."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(2, 2)
    base_density = np.exp(run.base.log_density(X[:, None]))
    joint_panel(panels[0, 0], run, base_density)
    beta_panel(panels[0, 1], run, base_density)
    density_panel(panels[1, 0], run, base_density)
    trace_panel(figure, panels[1, 1], run)
    titles = (
        "joint density",
        "marginal of β",
        "densities of x",
        "x along one chain",
    )
    for letter, axes, title in zip("abcd", panels.flat, titles, strict=True):
        axes.set_title(f"({letter}) {title}", loc="left", fontsize=10)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plain NUTS and tempering on two isolated modes.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("bimodal.png"), help="the picture")
    options = parser.parse_args()
    truth = json.loads((HERE / "truth.json").read_text(encoding="utf-8"))
    model = stanct.temper(HERE / "bimodal.stan")

    starts = np.array([[-8.0], [-8.0], [8.0], [8.0]])
    block, _ = run_nuts(
        model.target().density_recipe,
        starts,
        seed=options.seed,
        warmup=500,
        draws=DRAWS,
        nuts=Nuts(),
    )
    # A chain can still change modes while its warm-up tries long steps. After that it is stuck.
    print(f"Plain NUTS, {DRAWS} draws per chain: share of the draws with x < 0 (exact: 0.6)")
    for start, chain in zip(starts[:, 0], block.variables["x"], strict=True):
        print(f"  started at {start:+.0f}: {np.mean(chain < 0):.3f}")

    # The paper's base is a Gaussian with the target's own mean and standard deviation.
    base = stanct.GaussianBase(truth["mean"]["x"] * np.ones(1), truth["sd"]["x"] * np.eye(1))
    run = model.sample(
        method=stanct.Joint(bootstrap=0),  # no round refits the base
        chains=CHAINS,
        draws=DRAWS,
        seed=options.seed,
        base=base,
        log_zeta=0.0,
    )
    print(f"\nContinuous tempering, {DRAWS} draws per chain: share of the weight with x < 0")
    for chain, log_weights in zip(run.variables["x"], run.log_weights(), strict=True):
        print(f"  {np.average(chain < 0, weights=np.exp(log_weights)):.3f}")
    left, mean = run.expect(lambda draws: draws["x"] < 0), run.expect("x")
    print(f"  all chains together {left.value:.4f} ± {left.std_error:.4f}, exact 0.6")
    print(f"mean of x: {mean.value:.3f} ± {mean.std_error:.3f}, exact {truth['mean']['x']:g}")
    print(f"{run.evidence}\nexact: {truth['log_z']:g}")

    draw(run).savefig(options.out, dpi=160)
    print(f"The picture is in {options.out}.")
