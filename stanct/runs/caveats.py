"""What a comparison of models cannot know, or can know only in part, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stanct.runs.run import Run
from stanct.runs.verdicts import failures
from stanct.stan.densities import Densities
from stanct.stan.program import Program

if TYPE_CHECKING:
    import pandas as pd


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
