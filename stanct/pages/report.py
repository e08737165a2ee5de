"""The report of a run: one page that shows the result and whether to trust it."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from stanct.estimates.digits import MOST, decimals, is_below_digits
from stanct.estimates.naming import Names, by_interest, label, places_of
from stanct.estimates.path import Evidence
from stanct.pages.page import (
    Cell,
    HtmlPage,
    Row,
    Table,
    cell,
    number,
    render_page,
    with_error,
)
from stanct.pages.panels import panels_of
from stanct.pages.reproduction import command_line, data_file, python_lines
from stanct.plots.canvas import chain_colour
from stanct.runs.decisions import decisions
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.runs.screen import MOST_PEAKS
from stanct.runs.surveyed import OF_PEAKS, searched, survey_facts
from stanct.runs.verdicts import Check, failures

MOST_ROWS = 1000
"""Largest number of rows in the summary; a longer page would be slow to open."""

MOST_THERE = 5
"""Largest number of scalars whose values at peaks are shown."""

_SECTIONS = (
    ("evidence", "Evidence"),
    ("mixing", "Did the chains move?"),
    ("weights", "Weights and base"),
    ("posterior", "Posterior"),
)
_COLUMNS = {
    "mean": "mean",
    "std_error": "std. error",
    "sd": "sd",
    "q5": "5 %",
    "q50": "median",
    "q95": "95 %",
    "ess_bulk": "bulk size",
    "ess_tail": "tail size",
    "r_hat": "R-hat",
}


def report_page(run: Run, names: Names = None) -> HtmlPage:
    """Return the report of a run as one HTML page, with a panel for each name in its `shows`.

    The names are those of variables or scalars in the summary and the picture of draws.
    """
    evidence = run.evidence if isinstance(run, EvidenceRun) else None
    # Nothing has the numbers that are not known or do not exist.
    known = evidence is None or not evidence.unknown
    tables: dict[str, list[Table]] = {}
    if run.has_posterior:
        tables["mixing"] = [_chain_table(run, evidence)]
        tables["posterior"] = _peaks_table(run)
        if isinstance(run, EvidenceRun):
            estimates = [_estimate_table(run)] if known else []
            tables["evidence"] = [*estimates, *_modes_table(run)]
    panels = [
        panel
        for panel in panels_of(run)
        if run.has_posterior and (known or panel.section != "evidence")
    ]
    sections = [
        {
            "id": name,
            "title": title,
            "pictures": [
                panel.picture(run, **({"names": names} if panel.needs == "pair" else {}))
                for panel in panels
                if panel.section == name
            ],
            "tables": tables.get(name, []),
        }
        for name, title in _SECTIONS
    ]
    return render_page(
        "report.html.jinja",
        run=run,
        program_name=Path(run.provenance["program"]).name,
        data_words=_data_words(run),
        evidence=evidence,
        answer=_answer(evidence),
        checks=[*failures(run.diagnostics), *(c for c in run.diagnostics if c.passed)],
        verdict=run.verdict,
        searched=searched(run) if run.has_posterior else "",
        remedies=remedies(run.diagnostics),
        decisions=list(decisions(run.provenance)) if run.has_posterior else [],
        facts=_facts(run, evidence),
        sections=[s for s in sections if s["pictures"] or s["tables"] or s["id"] == "posterior"],
        summary=_summary_table(run, names) if run.has_posterior else None,
        number=number,
        limit=_limit,
        programs=run.programs,
        steps=_steps(run),
        origin=_origin(run),
        settings={**run.settings, **run.method_settings},
        versions=run.provenance["versions"],
        command=command_line(run),
        python=python_lines(run),
    )


def remedies(checks: tuple[Check, ...]) -> list[str]:
    """Remedies of the failed checks, the most important first; without an end, of that alone."""
    failed = failures(checks)
    endless = [check for check in failed if check.name == "improper"]
    return list(dict.fromkeys(check.remedy for check in endless or failed))


def _answer(evidence: Evidence | None) -> dict[str, str]:
    if evidence is None:
        return {}
    if evidence.unknown:
        return {"log_z": "", "unknown": evidence.unknown}
    low, high = evidence.interval
    error = evidence.std_error
    places = decimals(error, 0) if math.isfinite(error) and error > 0 else 4
    where = f" {evidence.within}" if evidence.within else ""
    return {
        "unknown": "",
        "of": evidence.of,
        # On a phone, the error stays in the line of its number.
        "log_z": with_error(evidence.log_z, error).replace(" ± ", "\xa0±\xa0") + where,
        # Below all digits both ends would be the number itself.
        "low": "" if is_below_digits(evidence.std_error) else _fixed(low, places),
        "high": _fixed(high, places),
    }


def _fixed(value: float, places: int) -> str:
    if not math.isfinite(value):
        return number(value)
    return f"{value:.{places}f}".replace("-", "−")


def _limit(check: Check) -> str:
    value = check.threshold
    if check.bound == "minimum" and value == 0:  # every count is
        return "none"
    words = number(value) if value == round(value) else f"{value:.3g}".replace("-", "−")
    return f"{'at least' if check.bound == 'minimum' else 'at most'} {words}"


def _facts(run: Run, evidence: Evidence | None) -> list[tuple[str, str]]:
    imported = " of the import" if run.provenance.get("imported") else ""
    facts = [
        ("Method", run.made_by),
        ("Draws", f"{run.chains} × {run.draws}"),
        ("Gradients", f"{run.gradients:,}".replace(",", " ")),
        (f"Time{imported}", f"{run.provenance['seconds']:.1f} s"),
    ]
    if evidence is not None and not evidence.unknown:
        facts += [
            ("Effective size of log Z", f"{evidence.effective_size:.0f}"),
            ("Pareto k of the weights", _tail_words(evidence)),
        ]
    # What the search did stands in a sentence above.
    told = survey_facts(run.provenance.get("survey")) if searched(run) else {}
    found = {k: v for k, v in run.facts().items() if k not in told} if run.has_posterior else {}
    facts += [(label[:1].upper() + label[1:], number(value, 3)) for label, value in found.items()]
    return facts


def _tail_words(evidence: Evidence) -> str:
    """Pareto k, and why it does not matter where it is large and nothing depends on it."""
    found = number(evidence.pareto_k, 2)
    return found + evidence.tail.in_words.partition(f"{evidence.pareto_k:.2f}")[2]


def _estimate_table(run: EvidenceRun) -> Table:
    """Make a table of all estimates of log Z, the reported one first."""
    reported = run.evidence
    named = [(f"{reported.method} (reported)", reported), *run.extra_estimates().items()]
    rows = tuple(
        Row(
            _in_lines(label),
            (
                _shown(e.log_z, 7, f"0.{'0' * MOST}"),
                *(
                    _shown(error, 2)
                    for error in (e.std_error, e.within_error, e.between_error, e.base_error)
                ),
                cell(e.effective_size, 4),
            ),
        )
        for label, e in named
    )
    columns = ("estimator", "log Z", "std. error", *reported.part_names, "effective size")
    return Table("Estimates of log Z", columns, rows)


def _in_lines(name: str) -> Markup:
    """A long name, broken where its parts end, so that numbers stand beside it on a phone."""
    return Markup("<br>").join(name.replace(", ", ", \n").replace(" (", " \n(").split("\n"))


def _shown(value: float, digits: int, small: str = f"below 1e-{MOST}") -> Cell:
    """A cell of a log Z or of its error, which may be below all digits that are shown."""
    return Cell(small, float(value)) if is_below_digits(abs(value)) else cell(value, digits)


def _modes_table(run: Run) -> list[Table]:
    """Make a table of the modes if pilots found several."""
    modes = run.modes
    if modes is None or len(modes) < 2:
        return []
    columns = {
        "weight": "weight",
        "std_error": "std. error",
        "log_z": "log Z",
        "log_z_std_error": "its std. error",
        "pilot_weight": "rough weight",
        "chains": "chains",
        "optima": "optima",
        **{name: f"mean of {name}" for name in run.mode_means},
    }
    columns = {name: head for name, head in columns.items() if name in modes}
    rows = tuple(
        Row(f"mode {place + 1}", tuple(cell(float(value), 4) for value in values))
        for place, values in enumerate(modes[list(columns)].to_numpy(float))
    )
    left_out = bool(modes[[*run.mode_means]].isna().to_numpy().any())
    why = ". A mean is left out where hardly any draw lies: see run.optima" * left_out
    return [Table(f"Modes, in the search's order{why}", ("mode", *columns.values()), rows)]


def _peaks_table(run: Run) -> list[Table]:
    """Make a table of the optima that have draws if a mode holds several."""
    found = run.optima
    if found is None or not len(run.heavy_optima):
        return []
    heads = {"weight": "weight", "std_error": "std. error", "mode": "mode", "seen": "ascents"}
    there = [name for name in found.columns if name not in {*heads, "log_mass"}][:MOST_THERE]
    shown = found.iloc[run.heavy_optima[:MOST_PEAKS]]
    rows = tuple(
        Row(f"peak {number}", tuple(cell(float(value), 4) for value in values))
        for number, values in zip(shown.index, shown[[*heads, *there]].to_numpy(float), strict=True)
    )
    more = f", the {len(shown)} heaviest of {len(found)}" * (len(shown) < len(found))
    caption = f"Peaks (run.optima){more}. {OF_PEAKS}"
    return [Table(caption, ("peak", *heads.values(), *(f"{n} there" for n in there)), rows)]


def _chain_table(run: Run, evidence: Evidence | None) -> Table:
    """Make a table of log Z and the counts of each chain."""
    columns: dict[str, list[Cell]] = {}
    if evidence is not None and evidence.chain_log_z:
        places = decimals(evidence.std_error)
        columns["log Z alone"] = [
            Cell(f"{z:.{places}f}".replace("-", "−"), z) if math.isfinite(z) else cell(z)
            for z in evidence.chain_log_z
        ]
    counts = {**run.chain_counts(), "draws": [run.draws] * run.chains}
    columns |= {name: [cell(value, 7) for value in values] for name, values in counts.items()}
    rows = tuple(
        Row(f"chain {c + 1}", tuple(own[c] for own in columns.values()), chain_colour(c))
        for c in range(run.chains)
    )
    return Table("By chain, after warm-up", ("chain", *columns), rows)


def _summary_table(run: Run, names: Names) -> Table:
    order = by_interest(run.variables, run.provenance.get("parameters", ()))
    places = places_of(run.variables, order if names is None else names)
    shown: pd.DataFrame = run.summary([label(*place) for place in places[:MOST_ROWS]])
    rows = tuple(
        Row(str(name), tuple(cell(float(row[c])) for c in _COLUMNS if c in shown))
        for name, row in zip(shown.index, shown.to_dict("records"), strict=True)
    )
    more = f"; the first {len(shown)} of {len(places)}" if len(places) > len(shown) else ""
    caption = f"Posterior summary, weighted to the program's density{more}"
    columns = ("parameter", *(label for name, label in _COLUMNS.items() if name in shown))
    return Table(caption, columns, rows)


def _steps(run: Run) -> list[tuple[str, ...]]:
    """Rows of the table of what was tried: its name, what it found, its cost, and log Z."""
    rows = []
    known = not (isinstance(run, EvidenceRun) and run.evidence.unknown)
    for row in run.road.rows():
        log_z, error = row.get("log_z"), row.get("std_error")
        told = ""
        if known and log_z is not None and error is not None and math.isfinite(log_z):
            told = with_error(log_z, error)
        counts = [row.get(name) for name in ("parts", "draws", "gradients", "evaluations")]
        costs = ("" if count is None else f"{count:,}" for count in counts)
        rows.append((row["step"].replace("_", " "), row["found"], *costs, told))
    return rows


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


def _data_words(run: Run) -> str:
    file = data_file(run)
    return f"on {file}" if file else "without data" if file == "" else "on data from Python"
