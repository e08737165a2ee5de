"""The page of a calibration: ranks, posterior probabilities of models, and the tests of both."""

from __future__ import annotations

import numpy as np
from scipy.stats import kstwo

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
)
from stanct.plots.canvas import CHAIN_COLOURS, INK, QUIET, drawing
from stanct.runs.calibration import Calibration

MOST_CURVES, BINS = 12, 5


def calibration_page(found: Calibration) -> HtmlPage:
    """Return a calibration as one self-contained HTML page."""
    pictures = [_rank_picture(found)] if found.ranks.shape[1] else []
    if len(found.prior) > 1:
        pictures.append(_probability_picture(found))
    lines = [
        Row(
            str(name),
            (
                cell(row["data_sets"]),
                cell(row["statistic"], 3),
                cell(row["p_value"], 2),
                Cell("yes" if row["passed"] else "no"),
            ),
        )
        for name, row in zip(found.tests.index, found.tests.to_dict("records"), strict=True)
    ]
    tests = Table("Tests", ("test", "data sets", "statistic", "p", "passed"), tuple(lines))
    facts = [
        ("data sets made", number(len(found.made_by))),
        ("data sets with a result", number(found.counted)),
    ]
    facts += [
        (f"made by {name}", number(int((found.made_by == name).sum()))) for name in found.prior
    ]
    facts.append(("runs with a failed check", number(found.unreliable)))
    if found.counted:  # a Kolmogorov–Smirnov test at 5 %
        least = float(kstwo.ppf(0.95, found.counted))
        facts.append(("shares of ranks are seen to be wrong if by more than", f"{least:.0%}"))
    if found.failed:
        title = "Tests failed"
    else:
        title = "All tests passed" if found.passed else found.verdict.capitalize()
    return render_page(
        "calibration.html.jinja",
        found=found,
        title=title,
        facts=facts,
        pictures=pictures,
        tests=tests,
    )


def _rank_picture(found: Calibration) -> Picture:
    axes = drawing(None, "share of the posterior below the true value", "ECDF less uniform")
    counts = []
    for k, (_, column) in enumerate(found.ranks.items()):
        values = np.sort(column.dropna().to_numpy(float))
        counts.append(values.size)
        if k < MOST_CURVES and values.size:
            # Both sides of every step, between the ends 0 and 1.
            at = np.concatenate([[0.0], np.repeat(values, 2), [1.0]])
            below = np.repeat(np.arange(values.size + 1) / values.size, 2)
            axes.plot(at, below - at, lw=1, color=CHAIN_COLOURS[k % len(CHAIN_COLOURS)])
    band = float(kstwo.ppf(0.95, max(min(counts), 1)))
    axes.axhspan(-band, band, color=QUIET, alpha=0.15, lw=0)
    axes.axhline(0, color=QUIET, lw=0.6)
    return picture(
        axes, "Ranks", "Each line is the empirical distribution of one scalar's ranks less the "
        "uniform one. A single right line leaves the band in one of twenty calibrations.", "ranks",
    )  # fmt: skip


def _probability_picture(found: Calibration) -> Picture:
    axes = drawing(None, "posterior probability of a model", "share of data sets that it made")
    axes.plot([0, 1], [0, 1], color=QUIET, lw=0.8)
    edges = np.linspace(0, 1, BINS + 1)
    for k, (name, column) in enumerate(found.probabilities.items()):
        p = column.dropna()
        made = (found.made_by[p.index] == name).to_numpy(float)
        values = p.to_numpy(float)
        at = np.clip(np.digitize(values, edges) - 1, 0, BINS - 1)
        for b in range(BINS):
            here = at == b
            if here.any():
                share, middle = made[here].mean(), values[here].mean()
                error = 1.96 * np.sqrt(max(middle * (1 - middle), 1e-12) / here.sum())
                axes.errorbar(
                    middle, share, error, fmt="o", ms=4, lw=1,
                    color=CHAIN_COLOURS[k % len(CHAIN_COLOURS)],
                    label=str(name) if b == at.min() else None,
                )  # fmt: skip
    axes.set_ylim(-0.05, 1.05)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return picture(
        axes, "Probabilities of models", "Right probabilities lie on the line. Bars are 95 % "
        "intervals of the share that right probabilities would give.", "probabilities",
    )  # fmt: skip
