"""Plots of the weighted posterior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from stanct.common.arrays import Array
from stanct.estimates import weighted
from stanct.estimates.modality import Modality, modalities
from stanct.plots.canvas import INK, LETTERS, MAIN, chain_colour, drawing
from stanct.runs.run import Run

SHOWN = 3
"""Number of scalars in a pair plot."""
POINTS = 1600
"""Number of equally weighted draws in each panel of a pair plot."""
LONGEST = 24
"""Largest number of characters in the label of a scalar."""

LARGEST, LEAST = 1e150, 1e-12
"""Sizes from which on values are not drawn, and the smallest width of a histogram around zero."""


def most_multimodal(run: Run, names: Sequence[str] | None = None) -> list[Modality]:
    """Sort the scalars of a run by how multimodal their weighted draws look, the most so first.

    See `stanct.estimates.modality`.

    Parameters
    ----------
    names
        Variables to test; the program's parameters by default.
    """
    if names is None:
        names = [n for n in run.provenance.get("parameters", ()) if n in run.variables]
    variables, log_weights = run.rows
    names = list(names) or list(variables)
    # One effective size for the whole run, because one for each scalar would take seconds.
    share = np.exp(log_weights - log_weights.max())
    size = float(share.sum() ** 2 / np.square(share).sum())
    sizes = {name: np.full(np.shape(variables[name])[2:], size) for name in names}
    return modalities(variables, log_weights, sizes, names)


def pair(
    run: Run,
    axes: Axes | None = None,
    *,
    names: Sequence[tuple[str, tuple[int, ...]]] | None = None,
) -> Axes:
    """Plot weighted draws of a few scalars against each other, coloured by chain.

    The panels off the diagonal show draws resampled by weight. The diagonal shows histograms of
    these draws, marked where the dip test (`stanct.estimates.modality`) finds more than one mode.

    Parameters
    ----------
    axes
        Axes to be divided into panels.
    names
        Scalars as variable and index, e.g. ``[("mu", ()), ("theta", (0,))]``; by default the most
        multimodal ones.
    """
    found = most_multimodal(run, None if names is None else sorted({name for name, _ in names}))
    if names is None:
        names = [(m.variable, m.index) for m in found[:SHOWN]]
    torn = {(m.variable, m.index) for m in found if m.is_multimodal}
    axes = drawing(axes)
    axes.axis("off")
    count = max(1, min(POINTS // run.chains, run.draws))
    rows = weighted.resampled_rows(run.target_log_weights, count, seed=0)
    picked = weighted.rows_of({name: run.variables[name] for name, _ in names}, rows)
    columns = [np.asarray(picked[name][(..., *index)], float) for name, index in names]
    labels = [_label(name, index) for name, index in names]
    count = len(columns)
    if not count:
        axes.text(0.5, 0.5, "no scalars", ha="center", va="center", color=INK)
        return axes
    gap = 0.06
    side = (1 - gap * (count - 1)) / count
    for row in range(count):
        for column in range(row + 1):
            place = (column * (side + gap), (count - 1 - row) * (side + gap), side, side)
            panel = drawing(axes.inset_axes(place))
            panel.tick_params(labelsize=LETTERS - 2)
            panel.locator_params(nbins=4)
            if row == column:
                _histogram(panel, columns[row])
                if names[row] in torn:
                    panel.set_title("more than one mode", fontsize=LETTERS - 1.5, color=INK)
            else:
                _cloud(panel, columns[column], columns[row])
            _label_edges(panel, labels, row, column)
    return axes


def _label(name: str, index: tuple[int, ...]) -> str:
    label = Modality(name, index, 0.0, 0.0).label
    # A longer label would leave no room for the panels.
    if len(label) > LONGEST:
        label = f"{label[: LONGEST - 9]}…{label[-8:]}"
    return label.replace("$", r"\$")


def _label_edges(panel: Axes, labels: list[str], row: int, column: int) -> None:
    last = len(labels) - 1
    if row == last:
        panel.set_xlabel(labels[column], fontsize=LETTERS, color=INK)
    else:
        panel.tick_params(labelbottom=False)
    if column == 0 and row > 0:
        panel.set_ylabel(labels[row], fontsize=LETTERS, color=INK)
    elif column > 0:
        panel.tick_params(labelleft=False)


def _histogram(panel: Axes, values: Array) -> None:
    drawn = values[drawable(values)]
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    if not drawn.size:
        panel.text(0.5, 0.5, "no finite draws", ha="center", va="center", color=INK,
                   fontsize=LETTERS - 2, transform=panel.transAxes)  # fmt: skip
        return
    low, high = float(drawn.min()), float(drawn.max())
    # Bins narrower than the distance of neighbouring numbers cannot be drawn.
    least = max(1e-6 * abs(low + high), LEAST)
    if high - low < least:
        low, high = low - least, high + least
    panel.hist(drawn, bins=40, range=(low, high), color=MAIN, alpha=0.75)


def _cloud(panel: Axes, x: Array, y: Array) -> None:
    colours = np.repeat([chain_colour(c) for c in range(x.shape[0])], x.shape[1])
    order = np.random.default_rng(0).permutation(x.size)
    order = order[(drawable(x) & drawable(y)).ravel()[order]]
    panel.scatter(
        x.ravel()[order], y.ravel()[order], s=3, c=colours[order], alpha=0.5, lw=0, rasterized=True
    )


def drawable(values: Array) -> Array:
    """Which of the values an axis can show: those that are finite, and whose squares are."""
    return np.abs(np.asarray(values, float)) < LARGEST
