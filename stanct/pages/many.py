"""The page of many data sets: their evidences, and which of them to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

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
from stanct.plots.canvas import CHAIN_COLOURS, MAIN, drawing, short, whole_numbers

# Data sets whose names stand on an axis, and the length of a name there.
MOST_NAMED, LONGEST = 24, 16
# Rows of the table of all data sets.
MOST_ROWS = 2000


def many_page(table: pd.DataFrame, label: str, seed: int) -> HtmlPage:
    """Return the results of many data sets, `Many.table`, as one self-contained HTML page."""
    lacking = (table["error"] != "").to_numpy(bool)
    done, failed = table.loc[~lacking], table.loc[(table["failed"] != "").to_numpy(bool) | lacking]
    facts = [
        ("data sets", number(len(table))),
        ("without a failed check", number(len(table) - len(failed))),
        ("without a result", number(len(table) - len(done))),
        ("gradients", f"{int(np.nansum(done['gradients'])):,}".replace(",", " ")),
        ("seconds of all runs", number(float(np.nansum(done["seconds"])), 3)),
        ("seed", str(seed)),
    ]
    known = done.loc[np.isfinite(done["log_z"].to_numpy(float))]
    return render_page(
        "many.html.jinja",
        label=Path(label).name,
        facts=facts,
        pictures=[_evidences(known), _errors(known)] if len(known) else [],
        failed=_rows("Data sets to look at", failed),
        everything=_rows("All data sets" if len(table) <= MOST_ROWS else
                         f"The first {MOST_ROWS} data sets", table),
    )  # fmt: skip


def _rows(caption: str, table: pd.DataFrame) -> Table:
    rows = []
    shown = table.head(MOST_ROWS)
    for name, row in zip(shown.index, shown.to_dict("records"), strict=True):
        log_z, error = float(row["log_z"]), float(row["std_error"])
        rows.append(
            Row(
                str(name),
                (
                    Cell(with_error(log_z, error), log_z),
                    Cell(str(row["method"]) if row["error"] == "" else "–"),
                    cell(float(row["gradients"]), 3),
                    cell(float(row["seconds"]), 3),
                    Cell(str(row["error"] or row["failed"] or "none")),
                ),
            )
        )
    columns = ("data set", "log Z", "method", "gradients", "seconds", "failed checks")
    return Table(caption, columns, tuple(rows))


def _evidences(done: pd.DataFrame) -> Picture:
    axes = drawing(None, "data sets, by log Z", "log Z")
    ordered = done.sort_values("log_z")
    places = np.arange(len(ordered))
    log_z, error = ordered["log_z"].to_numpy(float), ordered["std_error"].to_numpy(float)
    bars = 1.96 * np.where(np.isfinite(error), error, 0.0)
    axes.errorbar(places, log_z, bars, fmt=".", ms=3, lw=0.8, color=MAIN)
    bad = (ordered["failed"] != "").to_numpy()
    axes.plot(places[bad], log_z[bad], "o", ms=4, color=CHAIN_COLOURS[1])
    if len(ordered) <= MOST_NAMED:
        names = [short(str(name), LONGEST) for name in ordered.index]
        axes.set_xticks(places, names, rotation=60, ha="right")
    else:
        whole_numbers(axes.xaxis)
    return picture(
        axes, "Evidence", "log Z of each data set with its 95 % interval. Large dots mark data "
        "sets with a failed check.", "many-z",
    )  # fmt: skip


def _errors(done: pd.DataFrame) -> Picture:
    axes = drawing(None, "standard error of log Z", "data sets")
    error = done["std_error"].to_numpy(float)
    error = error[np.isfinite(error) & (error > 0)]
    if error.size and error.max() > 10 * error.min():
        edges = np.geomspace(error.min(), error.max(), 31)
        axes.set_xscale("log")
        axes.hist(error, edges, color=MAIN)
    else:
        axes.hist(error, 10, color=MAIN)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    whole_numbers(axes.yaxis)
    return picture(axes, "Errors", "How large the standard errors of log Z are.", "many-errors")
