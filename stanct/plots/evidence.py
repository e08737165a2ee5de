"""Plots of log Z: the free-energy curve and its convergence."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from stanct.common.arrays import Array
from stanct.estimates.path import Curve
from stanct.estimates.thermodynamic import THERMODYNAMIC
from stanct.plots.canvas import (
    LETTERS,
    MAIN,
    QUIET,
    SECOND,
    THIRD,
    chain_colour,
    drawing,
    interval,
    legend,
    plain,
    reference,
    whole_numbers,
)
from stanct.plots.material import HasCurves, HasRunningLogZ
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.ladder import LadderRun

GRID = np.array([0, 0.01, 0.03, *np.linspace(0.06, 1, 18)])
"""β of the free-energy curve, closer where it bends."""

POINTS = 12
"""Number of running estimates of each chain."""


def free_energy(run: HasCurves, axes: Axes | None = None) -> Axes:
    """Plot the free-energy curve of a run by every estimator, with 95 % bands.

    The plot shows log z(β) − β log Z, the difference of log z(β) from a straight line. This makes
    errors visible that are small compared with log Z.
    """
    axes = _curve_axes(axes)
    log_z = run.bare_evidence.log_z
    styles = ((MAIN, "-", 1.6), (SECOND, "--", 1.4))
    named = run.curves(GRID).items()
    for (label, curve), (colour, dash, width) in zip(named, styles, strict=False):
        _above_line(axes, curve, log_z, colour, dash=dash, width=width, label=label)
    other = run.extra_estimates().get(THERMODYNAMIC)
    if other is not None:
        axes.errorbar(
            1, other.log_z - log_z, 1.96 * other.std_error, fmt="D", ms=4, color=THIRD, lw=1.2,
            label=THERMODYNAMIC, clip_on=False,
        )  # fmt: skip
    legend(axes, 3)
    return axes


def _curve_axes(axes: Axes | None) -> Axes:
    axes = drawing(axes, "inverse temperature β", "log z(β) − β log Z")
    axes.set_xlim(0, 1)
    axes.yaxis.set_major_formatter(plain)
    return axes


def _above_line(
    axes: Axes, curve: Curve, log_z: float, colour: str, *, dash: str, width: float, label: str
) -> None:
    """Draw a free-energy curve with its band, minus the straight line to log Z."""
    height = curve.log_z - curve.beta * log_z
    interval(axes, curve.beta, height, curve.std_error, colour, dash=dash, width=width, label=label)


def running_ends(run: HasRunningLogZ) -> Array:
    """Return the numbers of draws at which `running_log_z` evaluates each chain."""
    first = min(max(8, run.draws // POINTS), run.draws)
    return np.unique(np.linspace(first, run.draws, POINTS).astype(int))


def running_log_z(run: HasRunningLogZ, axes: Axes | None = None) -> Axes:
    """Plot log Z of each chain against its cost so far, with the reported 95 % interval."""
    ends = running_ends(run)
    spent, unit = run.running_cost(ends.tolist())
    axes = drawing(axes, f"{unit} of each chain after its warm-up", "log Z")
    values = run.running_log_z(ends.tolist())
    low, high = run.bare_evidence.interval
    if np.isfinite(high - low):
        axes.axhspan(low, high, color=QUIET, alpha=0.2, lw=0, label="reported 95 % interval")
    reference(axes, run.bare_evidence.log_z)
    for chain, (x, y) in enumerate(zip(spent, values, strict=True)):
        axes.plot(x, y, "-", color=chain_colour(chain), lw=1.2, label=f"chain {chain + 1}")
    # The first few estimates can be far off and must not set the scale.
    late = values[:, values.shape[1] // 6 :]
    reported = np.array([run.bare_evidence.log_z, low, high])
    finite = np.concatenate([late[np.isfinite(late)], reported[np.isfinite(reported)]])
    margin = 0.08 * np.ptp(finite) + 1e-9
    axes.set_ylim(finite.min() - margin, finite.max() + margin)
    axes.yaxis.set_major_formatter(plain)
    axes.xaxis.set_major_formatter(lambda value, _: _thousands(value))
    if run.chains <= 8:
        legend(axes, 3)
    return axes


def _thousands(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if abs(value) >= 1e4 else f"{value:g}"


def stepping_stones(run: LadderRun, axes: Axes | None = None) -> Axes:
    """Plot log z at the rungs by stepping stones, up and down, minus the bridge estimate.

    The band is the 95 % interval of the bridge estimate.
    """
    axes = drawing(axes, "rung (0 is the base)", "log z less the bridge's")
    steps = run.estimator.steps
    curve = run.curve()
    rungs = np.arange(curve.beta.size)
    band = 1.96 * curve.std_error
    axes.fill_between(rungs, -band, band, color=QUIET, alpha=0.2, lw=0, label="bridge, 95 %")
    for way, colour, mark, label in (
        ("forward", MAIN, "^", "up"), ("backward", SECOND, "v", "down")
    ):  # fmt: skip
        gap = np.concatenate([[0.0], np.cumsum(steps[way] - steps["bridge"])])
        axes.plot(rungs, gap, f"-{mark}", color=colour, lw=1.1, ms=4, label=label)
    whole_numbers(axes.xaxis)
    axes.tick_params(labelsize=LETTERS - 1)
    legend(axes, 3)
    return axes


def cooling_and_heating(run: AdiabaticRun, axes: Axes | None = None) -> Axes:
    """Plot log z(β) − β log Z by cooling and by heating, and where trajectories stopped."""
    axes = _curve_axes(axes)
    log_z = run.bare_evidence.log_z
    ways = ((run.curve(), MAIN, "-", "cooling"), (run.heated_curve(), SECOND, "--", "heating"))
    for (curve, colour, dash, label), stops in zip(ways, run.stops, strict=True):
        _above_line(axes, curve, log_z, colour, dash=dash, width=1.5, label=label)
        if stops.size:
            axes.plot(
                stops, np.full(stops.size, 0.03), "|", color=colour, ms=9, clip_on=False,
                transform=axes.get_xaxis_transform(), label=f"{stops.size} stopped, {label}",
            )  # fmt: skip
    legend(axes, 2)
    return axes


def expected_delta(run: AdiabaticRun, axes: Axes | None = None) -> Axes:
    """Plot the E_β[δ] found by cooling and by heating, minus the learned E_β[δ] of the flow."""
    axes = drawing(axes, "inverse temperature β", "mean δ less the learned one")
    reference(axes, 0, "learned")
    for (label, (mean, error)), colour, mark in zip(
        delta_means(run).items(), (MAIN, SECOND), "ov", strict=True
    ):
        axes.errorbar(
            run.betas, mean - run.means, 1.96 * error,
            fmt=mark, ms=4, lw=1.1, color=colour, label=label,
        )  # fmt: skip
    axes.set_xlim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(plain)
    legend(axes, 3)
    return axes


def delta_means(run: AdiabaticRun) -> dict[str, tuple[Array, Array]]:
    """Return the weighted mean of δ at each node and its error, shapes (K,), for both directions.

    The keys are ``"cooling"`` and ``"heating"``.
    """
    found = {}
    for label, delta, log_weights in (
        ("cooling", run.delta, run.node_log_weights),
        ("heating", run.heated_delta, run.heated_log_weights),
    ):
        nodes = run.betas.size
        delta, log_weights = delta.reshape(-1, nodes), log_weights.reshape(-1, nodes)
        share = np.exp(log_weights - log_weights.max(axis=0))
        share /= share.sum(axis=0)
        arrived = np.where(share > 0, delta, 0.0)
        mean = (share * arrived).sum(axis=0)
        gap = np.where(share > 0, delta - mean, 0.0)
        found[label] = mean, np.sqrt(np.square(share * gap).sum(axis=0))
    return found
