"""Axes, colours and labels shared by all plots."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stanct.common.arrays import Array

# Okabe & Ito's hues, with a lightness that stands out on white and on black alike.
CHAIN_COLOURS = (
    "#2f7fd1", "#d5731c", "#1a9468", "#b65fa3", "#7d7f2a", "#c8564f", "#3c93a8", "#8a73d6",
)  # fmt: skip
MAIN, SECOND, THIRD = CHAIN_COLOURS[:3]

# Colours of text, minor text and thin lines; `stanct.pages.page` replaces them by a page's own.
INK, QUIET, RULE = "#1b1f28", "#566073", "#d9dde6"

SIZE = (5.0, 3.1)
"""Inches: nine-point letters keep their size on a phone and grow a little on a desktop."""
LETTERS = 9.0


def chain_colour(chain: int) -> str:
    """Return the colour of a chain in all plots and tables."""
    return CHAIN_COLOURS[chain % len(CHAIN_COLOURS)]


def drawing(axes: Axes | None, x: str = "", y: str = "") -> Axes:
    """Return styled axes with labels; those of a new figure if `axes` is None."""
    if axes is None:
        axes = Figure(figsize=SIZE, layout="constrained").add_subplot()
    axes.set_facecolor("none")
    axes.set_xlabel(x, fontsize=LETTERS, color=INK)
    axes.set_ylabel(y, fontsize=LETTERS, color=INK)
    axes.tick_params(labelsize=LETTERS - 1, colors=QUIET, width=0.6, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set(color=QUIET, linewidth=0.6)
    axes.grid(True, color=RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    return axes


def interval(
    axes: Axes,
    x: Array,
    y: Array,
    error: Array,
    colour: str,
    *,
    dash: str = "-",
    width: float = 1.5,
    label: str = "",
) -> None:
    """Draw a line of estimates with a band of 95 % intervals; `error` holds standard errors."""
    band = 1.96 * error
    axes.fill_between(x, y - band, y + band, color=colour, alpha=0.22, linewidth=0)
    axes.plot(x, y, dash, color=colour, lw=width, label=label)


def reference(axes: Axes, height: float, label: str = "") -> None:
    """Draw a thin dashed reference line across the axes."""
    axes.axhline(height, color=INK, lw=0.8, ls="--", label=label or None)


def whole_numbers(axis: Axis) -> None:
    """Put ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(integer=True))


def plain(value: float, _place: float = 0) -> str:
    """Format a tick's number in full, so that no offset is needed above the axis."""
    return f"{value:.8g}".replace("-", "−")


def short(label: str, most: int) -> str:
    """Return a label of so many characters at most, which Matplotlib takes for no formula."""
    if len(label) > most:
        label = f"{label[: most - 9]}…{label[-8:]}"
    return label.replace("$", r"\$")


def legend(axes: Axes, columns: int = 2) -> None:
    """Draw a legend above the axes, clear of the data, in row order."""
    handles, labels = axes.get_legend_handles_labels()
    # Matplotlib fills columns first.
    order = [i for column in range(columns) for i in range(column, len(handles), columns)]
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=LETTERS - 1,
        labelcolor=INK,
        handlelength=1.4,
        columnspacing=1.2,
        borderaxespad=0.1,
    )
