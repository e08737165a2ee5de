"""Plots of the weights and of the base."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy.stats import norm

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates.averages import weighted_quantile
from stanct.plots.canvas import INK, MAIN, QUIET, SECOND, drawing, legend, short
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.runs.tempered import TemperedRun

FEW = 25
"""Fewer scores than this are shown as dots, more as a histogram."""
LEAST = -6
"""Power of ten, relative to the mean, below which weights are not told apart."""
WORST = 8
"""Number of coordinates in `base_against_posterior`."""
LONGEST = 22
"""Largest number of characters in the label of a coordinate."""
MOST_SHOWN = 2**24
"""Of runs with more numbers than this, pictures of all coordinates show some of the draws."""


def weight_histogram(run: EvidenceRun, axes: Axes | None = None) -> Axes:
    """Plot a histogram of the weights at β = 1 over their mean, with the Pareto k of their tail."""
    axes = drawing(axes, "weight over mean weight", "draws")
    relative = relative_weights(run)
    relative = np.log10(relative[relative > 0])
    # Weights that do not count share the first bin.
    shown = np.maximum(relative, LEAST)
    axes.hist(
        shown,
        bins=50,
        color=MAIN,
        alpha=0.75,
        label=f"draws, Pareto k = {run.evidence.pareto_k:.2f}".replace("-", "−"),
    )
    axes.axvline(0, color=INK, lw=0.8, ls="--", label="mean weight")
    # Nearly equal weights differ only in a late digit.
    digits = 3 if np.ptp(shown) > 0.1 else 3 - int(np.floor(np.log10(max(np.ptp(shown), 1e-6))))
    axes.xaxis.set_major_formatter(lambda power, _: _power(power, digits))
    axes.xaxis.set_major_locator(MaxNLocator(6 if digits < 5 else 4, integer=np.ptp(shown) > 2))
    axes.set_yscale("symlog", linthresh=10)
    legend(axes)
    return axes


def _power(power: float, digits: int) -> str:
    at_most = "≤ " if power == LEAST else ""
    return f"{10**power:.{digits}g}" if -4 <= power <= 3 else f"{at_most}1e{power:g}"


def relative_weights(run: Run) -> Array:
    """Return the weights at β = 1 over their mean as a flat array."""
    log_weights = run.target_log_weights.ravel()
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.mean()


def base_scores(run: TemperedRun, axes: Axes | None = None) -> Axes:
    """Plot z-scores of the moments of a run's draws reweighted to the base.

    The reweighted draws must have mean 0 and covariance I.
    """
    axes = drawing(axes, "z-score", "density")
    found = run.at_base
    covariance = found.covariance
    if covariance.ndim == 2:
        covariance = covariance[np.tril_indices(found.mean.size)]
    reach = max(1.1 * found.limit, min(1.05 * found.worst, 4 * found.limit))
    edges = np.linspace(-reach, reach, 41)
    for scores, colour, label in (
        (covariance, MAIN, f"covariance ({covariance.size})"),
        (found.mean, SECOND, f"mean ({found.mean.size})"),
    ):
        scores = np.clip(scores, -reach, reach)
        if scores.size < FEW:
            axes.plot(scores, np.zeros(scores.size), "o", color=colour, ms=6, label=label)
        else:
            heights, _ = np.histogram(scores, edges, density=True)
            axes.stairs(heights, edges, color=colour, lw=1.3, fill=False, label=label)
    grid = np.linspace(-reach, reach, 201)
    axes.plot(grid, norm.pdf(grid), color=INK, lw=0.9, ls="--", label="if right")
    for limit in (-found.limit, found.limit):
        axes.axvline(limit, color=QUIET, lw=0.9, ls=":")
    legend(axes, 3)
    return axes


def coordinate_names(run: Run) -> list[str]:
    """Return a name for each of the D unconstrained coordinates.

    Scalars and vectors keep their names. Components of arrays with more indices are numbered. If
    transforms change the number of coordinates, all coordinates are only numbered.
    """
    names = []
    for name in run.provenance.get("parameters", ()):
        shape = np.shape(run.variables.get(name, np.zeros((1, 1))))[2:]
        if len(shape) > 1:
            names += [f"{name} (component {i + 1})" for i in range(int(np.prod(shape)))]
        else:
            names += [f"{name}[{i + 1}]" for i in range(shape[0])] if shape else [name]
    dimension = run.z.shape[-1]
    return names if len(names) == dimension else [f"coordinate {i + 1}" for i in range(dimension)]


def base_misfit(run: Run) -> tuple[Array, Array]:
    """Compare the target's marginals with those of the base.

    Returned are the coordinates, shape (D,), by decreasing Kullback–Leibler divergence between
    Gaussians with the mean and the variance of the target and of the base, and weighted 2.5, 25,
    50, 75 and 97.5 % quantiles of (x − m) / sd in that order, shape (5, D).
    """
    if run.base is None:
        raise StanctError(
            "The run has no base: it moved in the target's own coordinates.",
            remedy="Look in run.shows for the pictures that fit this run.",
        )
    scale = run.base.spread
    step = -(-run.z.size // MOST_SHOWN)
    values = (run.base.unwhiten(np.array(run.z[:, ::step])) - run.base.mean) / scale
    log_weights = run.target_log_weights[:, ::step]
    share = np.exp(log_weights - log_weights.max())
    share /= share.sum()
    mean = np.einsum("cd,cdk->k", share, values)
    variance = np.einsum("cd,cdk->k", share, np.square(values - mean))
    misfit = np.square(mean) + variance - 1 - np.log(np.maximum(variance, 1e-300))
    chances = norm.cdf([-1.959964, -0.6744898, 0, 0.6744898, 1.959964])
    return np.argsort(-misfit), weighted_quantile(values, log_weights, chances)


def base_against_posterior(run: Run, axes: Axes | None = None) -> Axes:
    """Plot the marginals of the target and of the base, where the base fits worst.

    Lines are weighted 95 and 50 % intervals of the target in units of the base's standard
    deviation. Grey bands are the intervals of the base. A run without a base raises `StanctError`.
    """
    axes = drawing(axes, "base standard deviations from the base's mean")
    order, quantiles = base_misfit(run)
    shown = order[:WORST]
    names = coordinate_names(run)
    for inner, opacity in ((1.959964, 0.14), (0.6744898, 0.2)):
        axes.axvspan(-inner, inner, color=QUIET, alpha=opacity, lw=0)
    rows = np.arange(shown.size)[::-1]
    low, quarter, middle, upper, high = quantiles[:, shown]
    axes.hlines(rows, low, high, color=MAIN, lw=1.2)
    axes.hlines(rows, quarter, upper, color=MAIN, lw=4)
    axes.plot(middle, rows, "o", ms=5, color=MAIN, markeredgecolor=INK, markeredgewidth=0.5)
    axes.set_yticks(rows, [short(names[i], LONGEST) for i in shown])
    axes.set_ylim(-0.7, shown.size - 0.3)
    return axes
