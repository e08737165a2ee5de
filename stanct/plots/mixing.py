"""Plots of mixing: β along the chains, swaps in a ladder, thermostats."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from stanct.common.arrays import Array
from stanct.plots.canvas import (
    INK,
    LETTERS,
    MAIN,
    QUIET,
    SECOND,
    chain_colour,
    drawing,
    legend,
    reference,
    whole_numbers,
)
from stanct.plots.material import HasBeta, HasSchedule, HasTrips
from stanct.runs.copies import CopyRun, hand_overs
from stanct.runs.ladder import LadderRun
from stanct.runs.tact import LAMBDA, THERMOSTAT, XI, XI_THERMOSTAT, TactRun

BINS = 20
MOST_LANES = 8
# Different β of a ladder. Chains that move freely have more.
MOST_RUNGS = 60


def beta_occupancy(run: HasBeta, axes: Axes | None = None) -> Axes:
    """Plot how often each chain was at each β; the dashed line is the uniform distribution.

    On a ladder there is a point for each rung.
    """
    axes = drawing(axes, "inverse temperature β", "share of the draws (%)")
    rungs, rung = np.unique(run.beta, return_inverse=True)
    if rungs.size <= MOST_RUNGS:
        for chain, row in enumerate(rung.reshape(run.beta.shape)):
            share = 100 * np.bincount(row, minlength=rungs.size) / row.size
            axes.plot(rungs, share, "o-", color=chain_colour(chain), ms=4, lw=0.8,
                      label=f"chain {chain + 1}")  # fmt: skip
        return _finished(axes, len(run.beta), 100 / rungs.size)
    return _occupancy(axes, run.beta, 1.0)


def _occupancy(axes: Axes, values: Array, top: float) -> Axes:
    """Plot how often each chain, a row of values, was in equal bins from 0 to `top`."""
    edges = np.linspace(0, top, BINS + 1)
    for chain, row in enumerate(values):
        share = 100 * np.histogram(row, edges)[0] / row.size
        axes.stairs(
            share,
            edges,
            color=chain_colour(chain),
            lw=1.2,
            label=f"chain {chain + 1}",
            baseline=None,
        )
    axes.set_xlim(0, top)
    return _finished(axes, len(values), 100 / BINS)


def _finished(axes: Axes, chains: int, uniform: float) -> Axes:
    """Add what all pictures of shares, in percent, have."""
    reference(axes, uniform, "uniform")
    axes.set_ylim(bottom=0)
    if chains <= MOST_LANES:
        legend(axes, 3)
    return axes


def beta_trace(run: HasTrips, axes: Axes | None = None) -> Axes:
    """Plot β over the iterations in a lane for each chain, with its number of round trips.

    The β of the run must have shape (chains, draws).
    """
    axes = drawing(axes, "iteration", "β from 0 to 1 in each lane")
    return _lanes(axes, run.beta, _counted(run.chain_counts()["round trips"], "trip"))


def copy_trace(run: CopyRun, axes: Axes | None = None) -> Axes:
    """Plot which copy has the largest weight over the iterations, in a lane for each chain."""
    axes = drawing(axes, "iteration", f"heaviest copy, 1 to {run.copies}")
    heaviest = run.copy_log_weights.argmax(axis=2) / (run.copies - 1)
    return _lanes(axes, heaviest, _counted(hand_overs(run.copy_log_weights), "change"))


def temperature_trace(run: TactRun, axes: Axes | None = None) -> Axes:
    """Plot λ = 1 / T over the looks of a thermostatted run, in a lane for each chain."""
    axes = drawing(axes, "look", "λ = 1/T from 0 to 1 in each lane")
    return _lanes(axes, run.trace[..., LAMBDA], _counted(run.trips, "trip"))


def control_occupancy(run: TactRun, axes: Axes | None = None) -> Axes:
    """Plot how often each chain was at each |ξ|; the grey band is the plateau, where T = 1."""
    axes = drawing(axes, "tempering variable |ξ|", "share of the looks (%)")
    coupling = run.method_settings["coupling"]
    axes.axvspan(0, coupling["plateau"], color=QUIET, alpha=0.2, lw=0, label="T = 1")
    return _occupancy(axes, np.abs(run.trace[..., XI]), coupling["wall"])


def thermostats(run: TactRun, axes: Axes | None = None) -> Axes:
    """Plot running means of the thermostats, and the means expected from friction and noise."""
    axes = drawing(axes, "look", "running mean of the thermostat")
    looks = np.arange(1, run.trace.shape[1] + 1)
    late = slice(looks.size // 20, None)
    for column, colour, name in (
        (THERMOSTAT, MAIN, "z of θ"), (XI_THERMOSTAT, SECOND, "z of ξ")
    ):  # fmt: skip
        if column == XI_THERMOSTAT and not run.method_settings["tempering"]:
            continue
        means = np.cumsum(run.trace[..., column], axis=1) / looks
        axes.plot(looks[late], means.T[late], color=colour, lw=1.0)
        expected = run.thermostat_means[column - THERMOSTAT]
        if np.isfinite(expected):
            axes.axhline(expected, color=colour, lw=1.2, ls="--", label=f"{name}, expected")
    legend(axes, 2)
    return axes


def _counted(counts: Array, word: str) -> list[str]:
    return [f"{count} {word}{'' if count == 1 else 's'}" for count in counts]


def _lanes(axes: Axes, values: Array, words: list[str]) -> Axes:
    """Plot values from 0 to 1, shape (chains, draws), in lanes with a text at the right of each."""
    lanes, draws = min(len(values), MOST_LANES), values.shape[1]
    height = 1.3
    for chain in range(lanes):
        bottom = (lanes - 1 - chain) * height
        axes.plot(bottom + values[chain], color=chain_colour(chain), lw=0.5, rasterized=draws > 400)
        axes.text(
            1.01, bottom + 0.5, words[chain],
            transform=axes.get_yaxis_transform(), fontsize=LETTERS - 1, color=INK, va="center",
        )  # fmt: skip
    bottoms = np.arange(lanes) * height
    axes.set_yticks(bottoms + 0.5, [f"chain {lanes - i}" for i in range(lanes)])
    axes.grid(False)
    axes.set_xlim(0, draws)
    for bottom in bottoms:
        for level in (bottom, bottom + 1):
            axes.axhline(level, color=QUIET, lw=0.3, zorder=1)
    axes.set_ylim(-0.1, bottoms[-1] + 1.1)
    return axes


def swap_rejection(run: LadderRun, axes: Axes | None = None) -> Axes:
    """Plot the share of rejected swaps for each pair of neighbouring rungs and each ladder."""
    axes = drawing(axes, "pair of rungs (1 begins at the base)", "rejected swaps (%)")
    pairs = np.arange(1, run.betas.size)
    axes.bar(pairs, 100 * run.rejection.mean(axis=0), width=0.8, color=QUIET, alpha=0.3)
    for chain, rates in enumerate(run.rejection):
        axes.plot(
            pairs, 100 * rates, "o", ms=3.5, color=chain_colour(chain), label=f"ladder {chain + 1}"
        )
    axes.set_ylim(0, 100)
    whole_numbers(axes.xaxis)
    if run.chains <= MOST_LANES:
        legend(axes, 4)
    return axes


def schedule(run: HasSchedule, axes: Axes | None = None) -> Axes:
    """Plot the inverse temperatures of a ladder or an annealing schedule by number."""
    axes = drawing(axes, "step from base to target", "inverse temperature β")
    dots = "o-" if run.betas.size <= 40 else "-"
    axes.plot(run.betas, dots, color=MAIN, ms=3, lw=1.3)
    axes.set_ylim(-0.02, 1.02)
    whole_numbers(axes.xaxis)
    return axes
