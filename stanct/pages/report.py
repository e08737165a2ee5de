"""The report of a run: one page that shows whether to believe the number."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stanct.estimates.path import Evidence
from stanct.pages.page import HtmlPage, Row, Table, cell, number, render_page, stan_html, with_error
from stanct.pages.panels import evidence_of, has_chains_of_beta, pictures
from stanct.plots.canvas import chain_colour
from stanct.runs.diagnostics import Check, failures, round_trips
from stanct.runs.run import Run
from stanct.samplers import METHODS
from stanct.samplers._tact_settings import Coupling, Hills

MOST_ROWS = 1000
"""Of the summary: a page of more would be slow to open."""

_SECTIONS = (
    ("evidence", "Evidence"),
    ("mixing", "Did the chains move?"),
    ("weights", "Weights and base"),
    ("posterior", "Posterior"),
)
_ESTIMATES = (
    ("rao_blackwell_evidence", "Rao–Blackwell, tempered chains alone"),
    ("thermodynamic_evidence", "thermodynamic integration"),
    ("forward_evidence", "stepping stones up"),
    ("backward_evidence", "stepping stones down"),
)
_COLUMNS = {
    "mean": "mean",
    "std_error": "std. error",
    "sd": "sd",
    "q5": "5 %",
    "q50": "median",
    "q95": "95 %",
    "effective_size": "effective size",
}


def report_page(run: Run) -> HtmlPage:
    """The report of a run as the text of one HTML page.

    Every panel is shown that fits the run; a kind of run that the panels do not know still has its
    checks, its summary and its provenance.
    """
    evidence = evidence_of(run)
    sections = [
        {"id": name, "title": title, "pictures": pictures(run, name), "tables": []}
        for name, title in _SECTIONS
    ]
    tables: dict[str, list[Table]] = {section["id"]: section["tables"] for section in sections}
    if evidence is not None:
        tables["evidence"].append(_estimate_table(run, evidence))
    tables["mixing"].append(_chain_table(run, evidence))
    return render_page(
        "report.html.jinja",
        run=run,
        program_name=Path(run.provenance["program"]).name,
        data_words=_data_words(run),
        evidence=evidence,
        answer=_answer(evidence),
        checks=[*failures(run.diagnostics), *(c for c in run.diagnostics if c.passed)],
        verdict=verdict(run.diagnostics),
        remedies=remedies(run.diagnostics),
        facts=_facts(run, evidence),
        sections=[s for s in sections if s["pictures"] or s["tables"] or s["id"] == "posterior"],
        summary=_summary_table(run),
        number=number,
        limit=_limit,
        programs={kind: stan_html(code) for kind, code in run.programs.items()},
        origin=_origin(run),
        settings=run.provenance["settings"],
        versions=run.provenance["versions"],
        command=command_line(run),
        python=python_lines(run),
    )


def verdict(checks: tuple[Check, ...]) -> str:
    """Whether to believe the run's number, in words."""
    failed = sum(not check.passed for check in checks)
    if not failed:
        return f"Reliable: all {len(checks)} checks passed."
    what = "1 check" if failed == 1 else f"{failed} checks"
    return f"Not to be trusted: {what} of {len(checks)} failed."


def remedies(checks: tuple[Check, ...]) -> list[str]:
    """What to do about the checks that failed, each once, the first thing first."""
    return list(dict.fromkeys(check.remedy for check in failures(checks)))


def _answer(evidence: Evidence | None) -> dict[str, str]:
    if evidence is None:
        return {}
    low, high = evidence.interval
    places = _places(evidence.std_error)
    return {
        "log_z": with_error(evidence.log_z, evidence.std_error),
        "low": _fixed(low, places),
        "high": _fixed(high, places),
    }


def _places(error: float) -> int:
    known = math.isfinite(error) and error > 0
    return max(0, min(1 - math.floor(math.log10(error)), 10)) if known else 4


def _fixed(value: float, places: int) -> str:
    if not math.isfinite(value):
        return number(value)
    return f"{value:.{places}f}".replace("-", "−")


def _limit(value: float) -> str:
    return number(value) if value == round(value) else f"{value:.3g}".replace("-", "−")


def _facts(run: Run, evidence: Evidence | None) -> list[tuple[str, str]]:
    facts = [
        ("Method", run.method),
        ("Draws", f"{run.chains} × {run.draws}"),
        ("Gradients", f"{run.gradients:,}".replace(",", " ")),
        ("Time", f"{run.provenance['seconds']:.1f} s"),
    ]
    if evidence is not None:
        facts += [
            ("Effective size of log Z", f"{evidence.effective_size:.0f}"),
            ("Pareto k of the weights", number(evidence.pareto_k, 2)),
        ]
    if hasattr(run, "barrier"):
        facts.append(("Barrier Λ", number(run.barrier, 3)))  # pyright: ignore[reportAttributeAccessIssue]
    return facts


def _estimate_table(run: Run, evidence: Evidence) -> Table:
    """Every estimate of log Z that the run has, the reported one first."""
    named = [(f"{evidence.method} (reported)", evidence)]
    named += [(label, getattr(run, name)) for name, label in _ESTIMATES if hasattr(run, name)]
    rows = tuple(
        Row(
            label,
            (
                cell(e.log_z, 7),
                cell(e.std_error, 2),
                cell(e.within_error, 2),
                cell(e.between_error, 2),
                cell(e.effective_size, 4),
            ),
        )
        for label, e in named
    )
    columns = (
        "estimator", "log Z", "std. error", "within chains", "between chains", "effective size"
    )  # fmt: skip
    return Table("Estimates of log Z", columns, rows)


def _chain_table(run: Any, evidence: Evidence | None) -> Table:
    """What each chain says and did."""
    columns, values = ["chain"], []
    if evidence is not None and len(evidence.chain_log_z) == run.chains:
        columns.append("log Z alone")
        values.append([cell(v, 7) for v in evidence.chain_log_z])
    counted = {
        "round trips": round_trips(run.beta) if has_chains_of_beta(run) else None,
        "round trips of a ladder": getattr(run, "round_trips", None),
        "trips to high temperature": getattr(run, "trips", None),
    }
    for label, counts in counted.items():
        if counts is not None and np.shape(counts) == (run.chains,):
            columns.append(label.removesuffix(" of a ladder"))
            values.append([cell(v, 6) for v in counts])
    for name, label in (("n_leapfrog__", "gradients"), ("divergent__", "divergences")):
        if name in getattr(run, "statistics", {}):
            columns.append(label)
            values.append([cell(v, 7) for v in run.statistics[name].sum(axis=1)])
    columns.append("draws")
    values.append([cell(run.draws, 7)] * run.chains)
    rows = tuple(
        Row(f"chain {c + 1}", tuple(column[c] for column in values), chain_colour(c))
        for c in range(run.chains)
    )
    return Table("By chain, after warm-up", tuple(columns), rows)


def _summary_table(run: Run) -> Table:
    frame: pd.DataFrame = run.summary()
    shown = frame.iloc[:MOST_ROWS]
    rows = tuple(
        Row(str(name), tuple(cell(float(row[c])) for c in _COLUMNS if c in shown))
        for name, row in shown.iterrows()
    )
    more = f"; the first {len(shown)} of {len(frame)}" if len(frame) > len(shown) else ""
    caption = f"Posterior summary, weighted to the program's density{more}"
    columns = ("parameter", *(label for name, label in _COLUMNS.items() if name in shown))
    return Table(caption, columns, rows)


def _origin(run: Run) -> list[tuple[str, str]]:
    record = run.provenance
    names = {
        "program": "Program",
        "program_sha256": "SHA-256 of the program",
        "data_origin": "Data",
        "data_sha256": "SHA-256 of the data",
        "finished": "Finished",
        "evaluations": "Density evaluations besides gradients",
    }
    record = {**record, "data_origin": _data_words(run).removeprefix("on ")}
    listed = [(label, str(record[name])) for name, label in names.items() if name in record]
    stages = {name: f"{v:.1f}" for name, v in record.get("stage_seconds", {}).items() if v >= 0.05}
    if stages:
        listed.append(("Seconds by stage", ", ".join(f"{k} {v}" for k, v in stages.items())))
    return [*listed, ("Engine", run.engine)]


# Settings that `stanct evidence` takes as options.
_OPTIONS = (
    "chains", "draws", "warmup", "seed", "bootstrap", "target_accept", "max_depth", "target_se",
    "max_draws", "base",
)  # fmt: skip


def _data_words(run: Run) -> str:
    file = _data_file(run)
    return f"on {file}" if file else "without data" if file == "" else "on data from Python"


def _data_file(run: Run) -> str | None:
    """The data's file, empty for a program without data, None for data that were in memory."""
    origin = run.provenance["data_origin"]
    if origin in ("data", "no data"):
        return "" if run.data == "{}" else None
    return origin


def _json(value: Any) -> Any:
    """A setting as a saved run has it."""
    return list(value) if isinstance(value, tuple) else value


def _chosen(run: Run) -> dict[str, Any]:
    """The settings that differ from the method's defaults."""
    defaults = METHODS[run.method]().record() if run.method in METHODS else {}
    own = {"coupling": asdict(Coupling()), "hills": asdict(Hills())}
    chosen = {}
    for name, value in run.provenance["settings"].items():
        default = defaults.get(name)
        usual = own.get(name, default) if default is None else default
        if _json(value) != _json(usual):
            chosen[name] = value
    return chosen


def command_line(run: Run) -> str | None:
    """The command that repeats the run; None where only Python can."""
    chosen, data = _chosen(run), _data_file(run)
    given = chosen.get("base") == "given" or not set(chosen) <= set(_OPTIONS)
    if not run.programs or given or data is None:
        return None
    words = ["stanct", "evidence", run.provenance["program"], *([data] if data else [])]
    words += ["--method", run.method] if run.method != "joint" else []
    for name in _OPTIONS:
        if name in chosen:
            words += [f"--{name.replace('_', '-')}", str(chosen[name])]
    return shlex.join(words)


def python_lines(run: Run) -> str | None:
    """Python that repeats the run; None where the target is not a Stan program."""
    if not run.programs:
        return None
    data = _data_file(run)
    lines = ["import stanct", "", f"model = stanct.temper({run.provenance['program']!r})"]
    lines += [
        "run = model.sample(",
        f"    {'data' if data is None else repr(data or None)},",
        f"    method={run.method!r},",
    ]
    for name, value in _chosen(run).items():
        if (name, value) == ("base", "given"):
            lines.append("    base=base,  # the base that you passed")
        elif name == "minibatch":
            lines.append("    minibatch=minibatch,  # the MiniBatch that you passed")
        elif name in ("coupling", "hills"):
            kind = name.capitalize()
            lines[0] = f"from stanct.samplers._tact_settings import {kind}\n{lines[0]}"
            words = ", ".join(f"{key}={part!r}" for key, part in value.items())
            lines.append(f"    {name}={kind}({words}),")
        else:
            lines.append(f"    {name}={value!r},")
    return "\n".join([*lines, ")"])
