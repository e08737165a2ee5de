"""Plots of the weighted posterior."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates import weighted
from stanct.estimates.modality import Modality, modalities
from stanct.estimates.naming import Names, by_interest, listed, places_of
from stanct.plots.canvas import (
    INK,
    LETTERS,
    MAIN,
    SECOND,
    SIZE,
    chain_colour,
    drawing,
    legend,
    short,
)
from stanct.runs.run import Run

SHOWN = 3
"""Number of scalars in a pair plot."""
MOST_SHOWN = 5
"""Most scalars in a pair plot for which names were given."""
MOST_MODES = 16
"""Number of modes in a picture of them, the heaviest by draws or pilots."""
POINTS = 1600
"""Number of equally weighted draws in each panel of a pair plot."""
LONGEST = 24
"""Largest number of characters in the label of a scalar."""

LARGEST, LEAST = 1e150, 1e-12
"""Sizes from which on values are not drawn, and the smallest width of a histogram around zero."""


def shown_scalars(run: Run, names: Names = None) -> list[Modality]:
    """The scalars of a pair plot, with the dip test of each (`stanct.estimates.modality`).

    Parameters
    ----------
    names
        Variables or scalars. By default, those of the program's parameters that have more than one
        mode, the most multimodal first, and then those that a reader asks for first.
    """
    variables, log_weights = run.rows
    own = run.provenance.get("parameters", ())
    order = by_interest(variables, own)
    chosen = [n for n in order if n in own] or order if names is None else listed(names)
    places = places_of(variables, chosen)
    tested = list(dict.fromkeys(name for name, _ in places))
    # One effective size for the whole run, because one for each scalar would take seconds.
    share = np.exp(log_weights - log_weights.max())
    size = float(share.sum() ** 2 / np.square(share).sum())
    sizes = {name: np.full(np.shape(variables[name])[2:], size) for name in tested}
    tests = {(m.variable, m.index): m for m in modalities(variables, log_weights, sizes, tested)}
    if names is not None:
        return [tests[place] for place in places]
    torn = [m for m in tests.values() if m.is_multimodal]
    rest = [tests[place] for place in places if not tests[place].is_multimodal]
    return [*torn, *rest][:SHOWN]


def pair(run: Run, axes: Axes | None = None, *, names: Names = None) -> Axes:
    """Plot weighted draws of a few scalars against each other, coloured by chain.

    The panels off the diagonal show draws resampled by weight. The diagonal shows histograms of
    these draws, marked where the dip test (`stanct.estimates.modality`) finds several humps.

    Parameters
    ----------
    axes
        Axes to be divided into panels.
    names
        As in `shown_scalars`.
    """
    found = shown_scalars(run, names)[:MOST_SHOWN]
    if axes is None and len(found) > SHOWN:  # numbers of narrower panels would overlap
        side = SIZE[0] / SHOWN * len(found)
        axes = Figure(figsize=(side, 0.8 * side), layout="constrained").add_subplot()
    axes = drawing(axes)
    axes.axis("off")
    count = max(1, min(POINTS // run.chains, run.draws))
    rows = weighted.resampled_rows(run.target_log_weights, count, seed=0)
    picked = weighted.rows_of({m.variable: run.variables[m.variable] for m in found}, rows)
    columns = [np.asarray(picked[m.variable][(..., *m.index)], float) for m in found]
    labels = [short(m.label, LONGEST) for m in found]
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
            panel.locator_params("y", nbins=4)
            panel.locator_params("x", nbins=2)  # numbers lie side by side
            if row == column:
                _histogram(panel, columns[row])
                if found[row].is_multimodal:
                    panel.set_title("several humps", fontsize=LETTERS - 1.5, color=INK)
            else:
                _cloud(panel, columns[column], columns[row])
            _label_edges(panel, labels, row, column)
    return axes


def modes(run: Run, axes: Axes | None = None) -> Axes:
    """Plot the weight of each mode that pilots found, with its 95 % interval.

    Diamonds are the rough weights by the pilots alone. Of many modes, the heaviest are drawn.
    """
    axes = drawing(axes, "share of the probability (%)")
    if run.mode_columns is None:
        raise StanctError("The run's base was not fitted by pilots, so its modes are not known.")
    heaviest = np.fmax(run.mode_columns["weight"], run.mode_columns["pilot_weight"])
    shown = np.argsort(-heaviest, kind="stable")[:MOST_MODES]
    if len(shown) < len(heaviest):
        axes.set_xlabel(f"{axes.get_xlabel()}; {len(shown)} heaviest of {len(heaviest)} modes")
    rows = np.arange(len(shown))[::-1]
    weight, error, pilots = (
        100 * run.mode_columns[name][shown] for name in ("weight", "std_error", "pilot_weight")
    )
    bars = 1.96 * np.nan_to_num(error)
    axes.errorbar(weight, rows, xerr=bars, fmt="o", ms=5, lw=1.5, color=MAIN, label="draws, 95 %")
    axes.plot(pilots, rows, "D", ms=5, mfc="none", color=SECOND, label="pilots, rough")
    axes.set_yticks(rows, [f"mode {mode + 1}" for mode in shown])
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlim(0, 1.05 * max(np.max(weight + bars), np.max(pilots)))
    legend(axes, 2)
    return axes


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
