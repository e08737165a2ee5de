"""Whether runs can be compared, and what a comparison cannot know, or only in part, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stanct.common.errors import StanctError
from stanct.runs.run import Run
from stanct.runs.verdicts import are_normalised, failures
from stanct.stan.densities import Densities
from stanct.stan.program import Program

if TYPE_CHECKING:
    import pandas as pd


def declared_data(run: Run) -> dict[str, Any]:
    """The data that a run's program declares, as JSON values."""
    values = json.loads(run.data)
    # A saved run may lack this record. Then everything in its data file counts.
    declared = run.provenance.get("data_names", list(values))
    return {name: values[name] for name in declared}


def refuse_other_data(
    first: str,
    a: Mapping[str, Any],
    second: str,
    b: Mapping[str, Any],
    observed: Sequence[str] | None,
) -> None:
    """Raise `StanctError` unless two runs, of these names and declared data, are on the same data.

    `observed` names the data that must agree; None for all that both declare.
    """
    both = f"{first!r} and {second!r}"
    shared = [name for name in a if name in b]
    if observed is not None:
        for name in observed:
            if name not in shared:
                where = first if name not in a else second
                raise StanctError(
                    f"The program of {where!r} declares no data `{name}`, which observed= names.",
                    remedy=f"{both} share: {', '.join(shared) or 'nothing'}.",
                )
        # brms's switch decides whether there are observations at all.
        shared = [*observed, *(name for name in ("prior_only",) if name in shared)]
    if (a or b) and not shared:
        raise StanctError(
            f"{both} share no data: one declares {', '.join(a) or 'nothing'}, the other "
            f"{', '.join(b) or 'nothing'}.",
            remedy="Evidences of different data cannot be compared. Give the same observations the "
            "same name in both programs.",
        )
    different = [name for name in shared if not _same(a[name], b[name])]
    if different:
        agree = [name for name in shared if name not in different]
        raise StanctError(
            f"{both} ran on different data: `{'`, `'.join(different)}` "
            f"{'differ' if len(different) > 1 else 'differs'}"
            f"{', `' + '`, `'.join(agree) + '` agree' if agree else ''}.",
            remedy="Evidences of different data cannot be compared. If only covariates differ, "
            "name the observations (observed=, or --observed).",
        )


def _same(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same data; 1 and 1.0 are equal."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b or (a != a and b != b)


def pairs(count: int) -> Iterator[tuple[int, int]]:
    """All pairs of different positions."""
    return ((i, j) for j in range(count) for i in range(j))


def notes_of(
    labels: Sequence[str],
    runs: Sequence[Run],
    data: Sequence[Mapping[str, Any]],
    observed: Sequence[str] | None,
    alike: Sequence[str],
) -> Iterator[str]:
    """Failed checks, and data that only some programs declare; for `alike` see `Comparison`."""
    for label, run in zip(labels, runs, strict=True):
        if run.verdict.draws:
            yield (
                f"{label} has warnings ({', '.join(run.verdict.draws)}): its log Z may be off by "
                "more than its error."
            )
    for label, run in zip(labels, runs, strict=True):
        for check in failures(run.diagnostics):
            if check.of == "evidence":
                yield f"{label}: {check.message} {check.remedy}"
    for label, run in zip(labels, runs, strict=True):
        if lines := run.verdict.unchecked:
            yield (
                f"{label}: nobody checked that {are_normalised(lines)}. What such a line lacks "
                "cancels only where all models have it alike."
            )
    if "normalised" in alike:
        yield "What log Z lacks is the same in all models, and cancels from the Bayes factors."
    if not any(data):
        yield (
            "The programs declare no data, so that nothing could be compared: that they describe "
            "the same observations is for you to know."
        )
    common = set(data[0]).intersection(*data[1:])
    for label, run, own in zip(labels, runs, data, strict=True):
        rest = [name for name in own if name not in common]
        if rest and observed is None and (rest := _perhaps_observed(run, rest)):
            yield (
                f"Not all models have the data {', '.join(rest)} of {label}; observations must be "
                "the same in all."
            )
    for i, j in pairs(len(runs)):
        hashes = {run.provenance["program_sha256"] for run in (runs[i], runs[j])}
        if len(hashes) == 1 and None not in hashes and runs[i].data == runs[j].data:
            yield (
                f"{labels[i]} and {labels[j]} are the same program on the same data: their log Z "
                "must agree, and each counts as a model of its own."
            )


def _perhaps_observed(run: Run, names: Sequence[str]) -> list[str]:
    """Those of some data of a run that may be observations, as far as its program tells."""
    source = run.provenance.get("source")
    if not source or run.provenance.get("ends"):
        return list(names)
    found = Densities(Program.from_source(source)).perhaps_observed()
    return [name for name in names if name in found]


def notes_of_loo(by_loo: pd.DataFrame | None) -> Iterator[str]:
    """Models of whose leave-one-out ArviZ warns."""
    warned = {} if by_loo is None else by_loo["warning"].to_dict()
    for name in (name for name, doubtful in warned.items() if doubtful):
        yield (
            f"{name}: ArviZ warns of a large Pareto k of single observations, so that its elpd may "
            "be off. `az.loo(run.to_arviz(), pointwise=True)` shows which."
        )
