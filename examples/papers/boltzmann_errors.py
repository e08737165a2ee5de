"""Figure 2 of Graham & Storkey (2017): its rows, its picture and its words, from finished runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, RED, panels, short_numbers, titled
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

METHODS = {
    "hmc": QUIET, "ais": RED, "simulated_tempering": ORANGE, "parallel_tempering": GREEN,
    "gibbs": BLUE, "joint": PURPLE,
}  # fmt: skip
# Methods in the paper's form: a linear bias with slope log ζ, and no atom at β = 0.
LADDER = "simulated tempering, 1,001 rungs"
GIBBS, JOINT = "gibbs, linear, no atom", "joint, linear, no atom"
HMC = "joint by HMC, linear, no atom"
FORMS = {LADDER: INK, GIBBS: "#56b4e9", JOINT: "#cc79a7", HMC: "#8c564b"}
MEASURES = {"log_z": "log Z", "mean": "E[x]", "covariance": "Cov[x]"}
# Errors of log Z, E[x] and Cov[x] at the ends of the lines in the picture of Graham (2017), and of
# AIS with 10,000 temperatures, read off its axes.
THESIS = {
    "simulated tempering": (0.21, 0.28, 0.26), "Gibbs": (0.16, 0.26, 0.24),
    "joint": (0.13, 0.21, 0.23), "AIS": (0.62, 0.67, 0.74),
}  # fmt: skip


def spoken(method: str) -> str:
    """A method in words."""
    return method.replace("_", " ")


def mean_errors(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean errors and costs of each method at each length, over systems and repetitions."""
    rows = []
    for method in (*METHODS, *FORMS):
        for length in sorted({r["length"] for r in found if r["method"] == method}):
            mine = [r for r in found if r["method"] == method and r["length"] == length]
            values = np.array([[r[key] for key in MEASURES] for r in mine], float)
            error = (
                values.std(axis=0, ddof=1) / np.sqrt(len(mine)) if len(mine) > 1 else 0 * values[0]
            )
            cost = np.mean([[r["gradients"], r["cpu"]] for r in mine], axis=0)
            rows.append({"method": method, "length": length, "runs": len(mine),
                         "gradients": cost[0], "CPU s": cost[1]}
                        | dict(zip(MEASURES, values.mean(axis=0), strict=True))
                        | {f"{k} SE": e for k, e in zip(MEASURES, error, strict=True)})  # fmt: skip
    return rows


def errors_by_cost(rows: Sequence[dict[str, Any]]) -> Figure:
    """Three errors against gradients and against processor seconds."""
    figure, axes = panels(2, 3, (10.5, 6.0), sharey="col")
    for (column, (key, label)), (row, cost) in itertools.product(
        enumerate(MEASURES.items()), enumerate(("gradients", "CPU s"))
    ):
        one = axes[row, column]
        for method, colour in (METHODS | FORMS).items():
            line = [r for r in rows if r["method"] == method and np.isfinite(r[key])]
            x, y, e = (np.array([r[k] for r in line]) for k in (cost, key, f"{key} SE"))
            one.errorbar(x, y, 3 * e, fmt="o-", ms=3.5, lw=1.2, color=colour, elinewidth=0.7,
                         label=spoken(method))  # fmt: skip
        one.set(xscale="log", yscale="log")
        one.axhline(1, color=INK, lw=0.6, ls=":")
        short_numbers(one)
        low, high = one.get_xlim()
        if row == 0 and high > 30 * low:  # decades alone: 1, 2 and 5 of three of them do not fit
            one.xaxis.set_major_locator(LogLocator(numticks=12))
        titled(one, label if not row else "", cost,
               "mean error relative to the base's" if not column else "")  # fmt: skip
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def longest_runs(rows: Sequence[dict[str, Any]], runs: int, systems: int) -> str:
    """The errors of each method's longest runs in words."""
    longest = {r["method"]: r for r in rows}
    return (
        f"{counted(runs, 'repetition')} in all, on {counted(systems, 'system')}. Mean errors of "
        "log Z, E[x] and Cov[x] of the longest runs, relative to the base's: "
        + "; ".join(f"{spoken(m)} {r['log_z']:.2f}, {r['mean']:.2f}, "
                    f"{r['covariance']:.2f} ({r['gradients'] / 1e6:.1f} M gradients)"
                    for m, r in longest.items()).replace("nan", "none")
        + ". Above 1 an estimate is farther from the truth than the base. Bars are three standard "
        "errors over systems and repetitions."
    )  # fmt: skip


def counted(count: int, what: str) -> str:
    """A number and what it counts, "1 system" or "10 systems"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def beside_the_paper(rows: Sequence[dict[str, Any]]) -> str:
    """What the paper has, and which methods are ahead of which others here."""
    ends = ", ".join(
        f"{' / '.join(f'{value:.2f}' for value in values)} ({name})"
        for name, values in THESIS.items()
    )
    return (
        " In the paper both continuous methods are ahead of AIS and of simulated tempering, for "
        "equal run times. The first author's thesis has the same experiment: joint is slightly "
        "ahead of Gibbs there for log Z and E[x], and its lines end at errors of log Z, E[x] and "
        f"Cov[x] of {ends}. Here, by two standard errors and at about equal numbers of gradients, "
        + beside_others(rows, "gradients")
        + ". In about equal processor times, "
        + beside_others(rows, "CPU s")
        + ". Simulated tempering with 1,001 rungs is that of the authors' notebook. It draws its "
        "rung from all of them, as Gibbs draws β, and does not learn a pseudo-prior. The other has "
        "fewer rungs, and learns one. Our AIS has 32 particles, and that of the notebook 500 with "
        "a single step at each temperature. The base is that of the notebook, which has no other."
        + in_their_forms(rows)
    )


def in_their_forms(rows: Sequence[dict[str, Any]]) -> str:
    """Joint beside Gibbs with a linear bias and without an atom, as the paper has them."""
    last = {r["method"]: r for r in rows}
    if not {GIBBS, JOINT, HMC} <= last.keys():
        return ""
    gibbs, told = last[GIBBS], []
    for name, how in ((JOINT, "by NUTS"), (HMC, "by HMC of 20 steps")):
        joint = last[name]
        gaps = ", ".join(
            f"{joint[key] - gibbs[key]:+.2f} ± "
            f"{np.hypot(joint[f'{key} SE'], gibbs[f'{key} SE']):.2f} ({label})"
            for key, label in MEASURES.items()
        )
        told.append(f"{gaps} {how}, at {joint['gradients'] / 1e6:.2f} M gradients")
    return (
        " With a linear bias and no atom, as in the paper, the errors of joint less those of "
        f"Gibbs, which takes {gibbs['gradients'] / 1e6:.2f}, are {'; and '.join(told)}."
    )


def beside_others(rows: Sequence[dict[str, Any]], cost: str) -> str:
    """Which methods of these rows are ahead of which others at about equal cost.

    Of two methods, the longest runs are compared that both can afford. A method is ahead, or
    behind, if its mean error differs by more than two standard errors.
    """
    told = []
    names = ("Gibbs", "joint", "parallel tempering", "simulated tempering", LADDER, "AIS")
    for ours, theirs in itertools.combinations(names, 2):
        pair = [[r for r in rows if spoken(r["method"]) == name.lower()] for name in (ours, theirs)]
        if not all(pair):
            continue
        budget = min(max(r[cost] for r in one) for one in pair)
        first, second = (min(one, key=lambda r: abs(np.log(r[cost] / budget))) for one in pair)
        for place, sign in (("ahead of", 1), ("behind", -1)):
            labels = [label for key, label in MEASURES.items() if sign * (second[key] - first[key])
                      > 2 * np.hypot(first[f"{key} SE"], second[f"{key} SE"])]  # fmt: skip
            if labels:
                told.append(f"{ours} is {place} {theirs} for {' and '.join(labels)}")
    return "; ".join(told) or "no method is ahead of another in any of the three"
