"""Kept draws in looks: until all are made, or until log Z is as precise as was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stanct.common.deadline import ended_by
from stanct.common.errors import LostExecutorError
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.verdicts import failures
from stanct.samplers._job import Job
from stanct.samplers._precision import Precision
from stanct.work.progress import Bar
from stanct.work.workers import warn_of


def in_looks(
    job: Job,
    precision: Precision,
    make: Callable[[int, Bar], bool],
    more: Callable[[int, Bar], int],
    label: str,
    *,
    unit: str = "draw",
    each: int = 1,
) -> bool:
    """Make the kept draws, and return whether they ended early; the stopping rule is told why.

    `make` makes so many further draws of each chain, under a bar with this label, units and units
    for `each` draw. It says whether it was stopped early with draws that count. `more` says how
    many more each chain makes, after so many.

    Raises `KeyboardInterrupt` if the user or the deadline stopped the first look before every chain
    had draws, and `LostExecutorError` if the executor broke at such a time.
    """
    made, ahead, early = 0, precision.first, False
    with job.bar(job.chains * each * ahead, label, unit=unit) as bar:
        while ahead and not early:
            try:
                early = make(ahead, bar)
                made += ahead
                if not early:
                    ahead = more(made, bar)
            except (KeyboardInterrupt, LostExecutorError) as stop:
                if not made:
                    raise
                if isinstance(stop, LostExecutorError):
                    warn_of(stop)
                job.execution.seal()
                early = True
    if early:
        precision.reason = ended_by()
    return early


def until_precise(
    job: Job,
    precision: Precision,
    make: Callable[[int, Bar], bool],
    kind: type[EvidenceRun],
    fields: Callable[[], dict[str, Any]],
    label: str,
    *,
    unit: str = "draw",
    each: int = 1,
) -> tuple[dict[str, Any], bool]:
    """Make kept draws by `in_looks`; return the fields of their run, and whether they ended early.

    `fields` gives those of a run of this kind from the draws so far.
    """

    def more(made: int, bar: Bar) -> int:
        return further(job, precision, made, bar, lambda: job.draft(kind, **fields()))

    early = in_looks(job, precision, make, more, label, unit=unit, each=each)
    job.lap("sampling")
    return fields(), early


def further(
    job: Job, precision: Precision, made: int, bar: Bar, draft: Callable[[], EvidenceRun]
) -> int:
    """Return how many more draws each chain makes after `made`, by a draft of their run."""
    if precision.target_se is None:
        return precision.more(made, math.nan, ())
    bar.note("are these enough?")
    run = draft()
    evidence = run.bare_evidence
    failed: tuple[str, ...] = ()
    if evidence.std_error <= precision.target_se:
        # Those say that a small error is not to be believed. More draws mend none of the others.
        failed = tuple(c.name for c in failures(run.diagnostics) if c.kind.mended_by == "draws")
    ahead = precision.more(made, evidence.std_error, failed)
    bar.expect(job.chains * max(made + ahead, round(min(precision.expected, precision.limit))))
    bar.note(f"log Z {evidence.log_z:.2f} ± {evidence.std_error:.2g}")
    return ahead
