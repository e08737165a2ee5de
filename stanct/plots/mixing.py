"""Pictures of movement: β over the chains' time, and swaps along a ladder."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stanct.plots.canvas import (
    INK,
    LETTERS,
    MAIN,
    QUIET,
    chain_colour,
    drawing,
    legend,
    whole_numbers,
)
from stanct.runs.diagnostics import HIGH_BETA, LOW_BETA, round_trips

BINS = 20
MOST_LANES = 8


def beta_occupancy(run: Any, axes: Axes | None = None) -> Axes:
    """How often each chain was at each β; the dashed line is equal time everywhere.

    Parameters
    ----------
    run
        One with `beta`, shape (chains, draws).
    axes
        Where to draw; new axes of a new figure by default.
    """
    axes = drawing(axes, "inverse temperature β", "share of the draws (%)")
    edges = np.linspace(0, 1, BINS + 1)
    for chain, beta in enumerate(run.beta):
        share = 100 * np.histogram(beta, edges)[0] / beta.size
        axes.stairs(
            share,
            edges,
            color=chain_colour(chain),
            lw=1.2,
            label=f"chain {chain + 1}",
            baseline=None,
        )
    axes.axhline(100 / BINS, color=INK, lw=0.8, ls="--", label="uniform")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    if run.chains <= MOST_LANES:
        legend(axes, 3)
    return axes


def beta_trace(run: Any, axes: Axes | None = None) -> Axes:
    """β over the iterations, a lane for each chain, with its number of round trips.

    Parameters
    ----------
    run
        One with `beta`, shape (chains, draws).
    axes
        Where to draw; new axes of a new figure by default.
    """
    axes = drawing(axes, "iteration", "β from 0 to 1 in each lane")
    lanes = min(run.chains, MOST_LANES)
    trips = round_trips(run.beta)
    height = 1.3
    for chain in range(lanes):
        bottom = (lanes - 1 - chain) * height
        axes.plot(
            bottom + run.beta[chain], color=chain_colour(chain), lw=0.5, rasterized=run.draws > 400
        )
        word = "trip" if trips[chain] == 1 else "trips"
        axes.text(
            1.01, bottom + 0.5, f"{trips[chain]} {word}",
            transform=axes.get_yaxis_transform(), fontsize=LETTERS - 1, color=INK, va="center",
        )  # fmt: skip
    bottoms = np.arange(lanes) * height
    axes.set_yticks(bottoms + 0.5, [f"chain {lanes - i}" for i in range(lanes)])
    axes.grid(False)
    axes.set_xlim(0, run.draws)
    for bottom in bottoms:
        for level in (bottom, bottom + 1):
            axes.axhline(level, color=QUIET, lw=0.3, zorder=1)
    axes.set_ylim(-0.1, bottoms[-1] + 1.1)
    return axes


def swap_rejection(run: Any, axes: Axes | None = None) -> Axes:
    """Share of rejected swaps of each pair of neighbouring rungs, and of each ladder.

    Parameters
    ----------
    run
        A `LadderRun`.
    axes
        Where to draw; new axes of a new figure by default.
    """
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


def schedule(run: Any, axes: Axes | None = None) -> Axes:
    """The inverse temperatures of a ladder or an annealing schedule, by number.

    Parameters
    ----------
    run
        One with `betas`.
    axes
        Where to draw; new axes of a new figure by default.
    """
    axes = drawing(axes, "step from base to target", "inverse temperature β")
    dots = "o-" if run.betas.size <= 40 else "-"
    axes.plot(run.betas, dots, color=MAIN, ms=3, lw=1.3)
    axes.set_ylim(-0.02, 1.02)
    whole_numbers(axes.xaxis)
    return axes


def end_shares(run: Any) -> tuple[float, float]:
    """Shares of the draws near the base and near the target, as round trips count them."""
    return float(np.mean(run.beta < LOW_BETA)), float(np.mean(run.beta > HIGH_BETA))
