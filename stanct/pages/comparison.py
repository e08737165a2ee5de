"""The page of a comparison: which model the data support, and how strongly."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from stanct.pages.page import (
    Cell,
    HtmlPage,
    Picture,
    Row,
    Table,
    cell,
    number,
    picture,
    render_page,
    with_error,
)
from stanct.plots.canvas import CHAIN_COLOURS, INK, LETTERS, MAIN, drawing
from stanct.runs.bayes_factor import HALF_WIDTH
from stanct.runs.comparison import Comparison
from stanct.runs.verdicts import failures

NONE = "none"
LEAST_FIXED = 1e-3
"""Smaller probabilities are shown by their significant digits."""


def comparison_page(found: Comparison) -> HtmlPage:
    """Return a comparison as one self-contained HTML page."""
    known = not found.without_factor(*found.names)
    return render_page(
        "comparison.html.jinja",
        found=found,
        verdict=found.verdict,
        best=[(found.names[i], probability_words(found, i)) for i in found.order if known],
        pictures=[_evidence_picture(found), *([_probability_picture(found)] if known else [])],
        models=_model_table(found),
        factors=_factor_table(found),
        runs=_run_table(found),
        failed={
            name: checks
            for name, run in zip(found.names, found.runs, strict=True)
            if (checks := [c for c in failures(run.diagnostics) if c.name not in found.alike])
        },
    )


def probability_words(found: Comparison, model: int) -> str:
    """Return a model's posterior probability with its 95 % interval as text."""
    low, high = found.probability_interval[model]
    value = found.probability[model]
    if value < LEAST_FIXED or high == low:
        return f"{number(value, 3)} ({number(low, 3)} to {number(high, 3)})"
    # Two digits of half the interval, so that its ends differ from the value.
    places = max(3, 1 - math.floor(math.log10((high - low) / 2)))
    return f"{value:.{places}f} ({low:.{places}f} to {high:.{places}f})"


def _model_table(found: Comparison) -> Table:
    best = found.reference
    rows = []
    known = not found.without_factor(*found.names)
    for i in found.order:
        factor = found.bayes_factor(found.names[i], best)
        over = "0" if found.names[i] == best else with_error(factor.log, factor.std_error)
        if found.names[i] != best and found.without_factor(*factor.models):
            over = NONE
        probability = probability_words(found, i) if known else NONE
        cells = (
            Cell(with_error(found.log_z[i], found.std_error[i]), float(found.log_z[i])),
            Cell(over, factor.log),
            cell(found.prior[i], 3),
            Cell(probability, float(found.probability[i])),
            *_loo_cells(found, found.names[i]),
            Cell(", ".join(found.warnings_of(found.names[i])) or "none"),
        )
        rows.append(Row(found.names[i], cells))
    columns = (
        "model",
        "log Z",
        "log Bayes factor",
        "prior",
        "probability",
        *(() if found.by_loo is None else ("elpd (LOO)", "stacking")),
        "warnings",
    )
    caption = f"Models, the largest evidence first; Bayes factors are over {best}"
    return Table(caption, columns, tuple(rows))


def _loo_cells(found: Comparison, name: str) -> tuple[Cell, ...]:
    """Cells of a model's leave-one-out, if there is one."""
    if found.by_loo is None:
        return ()
    row = found.table.loc[name]
    elpd, error = float(row["elpd_loo"]), float(row["elpd_loo_error"])
    weight = float(row["stacking_weight"])
    return Cell(with_error(elpd, error), elpd), Cell(f"{weight:.3f}", weight)


def _factor_table(found: Comparison) -> Table:
    rows = []
    for i in found.order:
        cells = []
        for j in found.order:
            factor = found.bayes_factor(found.names[i], found.names[j])
            text = "–" if i == j else factor.in_words.removeprefix("BF ")
            if i != j and found.without_factor(*factor.models):
                text = NONE
            cells.append(Cell(text, factor.log))
        rows.append(Row(found.names[i], tuple(cells)))
    names = tuple(found.names[i] for i in found.order)
    caption = "Bayes factor of the row's model over the column's, with its 95 % interval"
    return Table(caption, ("", *names), tuple(rows))


def _run_table(found: Comparison) -> Table:
    rows = []
    for i in found.order:
        run = found.runs[i]
        words = (
            run.provenance["program"],
            run.method,
            run.provenance["data_sha256"][:12],
            run.settings["seed"],
        )
        spent = Cell(f"{run.gradients:,}".replace(",", " "), run.gradients)
        cells = (*(Cell(str(word)) for word in words), spent)
        rows.append(Row(found.names[i], cells))
    columns = ("model", "program", "method", "SHA-256 of the data", "seed", "gradients")
    return Table("Where each evidence comes from", columns, tuple(rows))


def _whiskers(
    found: Comparison, centre: np.ndarray, low: np.ndarray, high: np.ndarray, label: str
) -> Axes:
    """Draw a dot with a 95 % interval for each model, the best on top."""
    axes = drawing(None, label)
    order = found.order
    places = np.arange(len(order))[::-1]
    for place, i in zip(places, order, strict=True):
        axes.plot([low[i], high[i]], [place, place], color=MAIN, lw=2)
        axes.plot(centre[i], place, "o", color=CHAIN_COLOURS[0], ms=6)
    axes.set_yticks(places, [found.names[i] for i in order], fontsize=LETTERS, color=INK)
    axes.set_ylim(-0.6, len(order) - 0.4)
    return axes


def _evidence_picture(found: Comparison) -> Picture:
    best = found.order[0]
    centre = found.log_z - found.log_z[best]
    low, high = centre - HALF_WIDTH * found.std_error, centre + HALF_WIDTH * found.std_error
    axes = _whiskers(found, centre, low, high, "log Z less that of the best")
    caption = (
        "Log evidence of each model with its 95 % interval, both counted from the estimate of "
        f"{found.names[best]}. Kass & Raftery's words change at differences of 1, 3 and 5."
    )
    return picture(axes, "Evidence", caption, "evidence")


def _probability_picture(found: Comparison) -> Picture:
    low, high = found.probability_interval.T
    axes = _whiskers(found, found.probability, low, high, "posterior probability")
    axes.set_xlim(-0.02, 1.02)
    caption = (
        "Posterior probability of each model with the 95 % interval that follows from the errors "
        "of the evidences; prior probabilities are in the table."
    )
    return picture(axes, "Probability", caption, "probability")
