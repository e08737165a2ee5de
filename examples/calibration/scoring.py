"""Rows of finished runs in a CSV file, what they say of a family, and the verdict."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from scipy.stats import binom, chi2

# A family is suspect if what it shows has a smaller chance than this in a calibrated method, or in
# one that warns as often as it may. No error counts as more than 3.5 standard errors: one that is
# larger is counted as silent.
CHANCE, LARGEST = 1e-4, 3.5
CHANCE_OF_WARNINGS = 5e-3
# It is suspect, too, if of so many runs a smaller share than this is within 1.96 standard errors.
MANY, FEWEST_WITHIN = 100, 0.85


@dataclass(frozen=True)
class Row:
    """One run. Errors are estimate minus truth; `failed` is the error message of a failed run.

    `beyond` is 1 where the target has a spike narrower than the run says it would have found.
    `base` is the kind of base, `parts` has what each maker added to it, `methods` the methods in
    turn, and `stages` the gradients of each stage, as in ``"base:5000 sampling:20000"``. Rows of
    older runs leave these empty.
    """

    family: str
    method: str
    seed: int
    log_z_error: float = np.nan
    log_z_se: float = np.nan
    mean_error: float = np.nan
    mean_se: float = np.nan
    tolerance: float = 0.0
    warnings: str = ""
    beyond: int = 0
    gradients: int = 0
    cpu_seconds: float = 0.0
    failed: str = ""
    base: str = ""
    parts: str = ""
    methods: str = ""
    stages: str = ""

    @property
    def scores(self) -> tuple[float, float]:
        """Errors of log Z and of the mean in standard errors; the truth is exact to a tolerance."""
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.array([self.log_z_error, self.mean_error])
            scale = np.hypot([self.log_z_se, self.mean_se], self.tolerance)
            first, second = errors / scale
        return float(first), float(second)

    @property
    def silent(self) -> bool:
        """Whether either error exceeds three standard errors without any warning."""
        return not self.warnings and max(map(abs, self.scores)) > 3


COLUMNS = tuple(field.name for field in fields(Row))
KINDS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, none if there is no file. A line cut short by a kill is left out."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if None not in line.values()]
    return [
        Row(**{f.name: KINDS[str(f.type)](line[f.name]) for f in fields(Row) if f.name in line})
        for line in lines
    ]


@contextmanager
def appending(path: Path | None) -> Iterator[Callable[[Row], None]]:
    """A function that adds a row to the file at once, or does nothing without a file."""
    if path is None:
        yield lambda row: None
        return
    kept = read_rows(path)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(map(asdict, kept))
        yield lambda row: _written(writer, file, row)


def _written(writer: csv.DictWriter[str], file: TextIO, row: Row) -> None:
    writer.writerow(asdict(row))
    file.flush()


@dataclass(frozen=True)
class Score:
    """What the runs of a method on a family show; shares lie between 0 and 1.

    Attributes
    ----------
    bias, rmse, mean_se
        Of log Z.
    log_z_within, mean_within
        Shares of all runs whose error is within 1.96 standard errors.
    silent
        Number of runs off by more than three standard errors without a warning.
    beyond
        Number of runs whose target has a spike narrower than the run says it would have found. No
        other number counts them.
    reasons
        What cannot be chance.
    """

    family: str
    method: str
    runs: int
    beyond: int
    failed: int
    bias: float
    rmse: float
    mean_se: float
    log_z_within: float
    mean_within: float
    warned: float
    silent: int
    gradients: float
    cpu_seconds: float
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """RMSE of log Z over its mean standard error."""
        return self.rmse / self.mean_se if self.mean_se else np.nan


def score(rows: Sequence[Row], calm: float) -> Score:
    """Score the runs of one method on one family."""
    done = [row for row in rows if not row.failed and not row.beyond]
    z = np.abs([row.scores for row in done]).reshape(-1, 2)
    errors = np.array([row.log_z_error for row in done])
    warned = np.array([bool(row.warnings) for row in done], bool)

    def mean(values: Any) -> float:
        return float(np.mean(values)) if len(done) else np.nan

    failed = sum(bool(row.failed) for row in rows)
    reasons = [f"{failed} runs failed"] * (failed > 0)
    for name, column in zip(("log Z", "the mean"), z[~warned].T, strict=True):
        squares = np.square(np.minimum(column, LARGEST)).sum()
        few = column.size >= MANY and (column <= 1.96).mean() < FEWEST_WITHIN
        if few or (column.size and chi2.sf(squares, column.size) < CHANCE):
            within = f"{(column <= 1.96).sum()} of {column.size} within 1.96 SE"
            reasons.append(f"errors of {name} exceed what runs without a warning say ({within})")
    if len(done) and binom.sf(warned.sum() - 1, len(done), 1 - calm) < CHANCE_OF_WARNINGS:
        reasons.append(f"{warned.sum()} of {len(done)} runs warn")
    return Score(
        family=rows[0].family,
        method=rows[0].method,
        runs=len(done),
        beyond=sum(bool(row.beyond) for row in rows),
        failed=failed,
        bias=mean(errors),
        rmse=float(np.sqrt(mean(errors**2))),
        mean_se=mean([row.log_z_se for row in done]),
        log_z_within=mean(z[:, 0] <= 1.96),
        mean_within=mean(z[:, 1] <= 1.96),
        warned=mean(warned),
        silent=sum(row.silent for row in done),
        gradients=mean([row.gradients for row in done]),
        cpu_seconds=mean([row.cpu_seconds for row in done]),
        reasons=tuple(reasons),
    )


def scores_of(rows: Sequence[Row], calm: float) -> list[Score]:
    """The score of each family and method, in the order of their first rows."""
    order = {key: k for k, key in reversed(list(enumerate((r.family, r.method) for r in rows)))}

    def place(row: Row) -> int:
        return order[row.family, row.method]

    return [score(list(group), calm) for _, group in groupby(sorted(rows, key=place), key=place)]


@dataclass(frozen=True)
class Limits:
    """What all runs together must reach.

    Attributes
    ----------
    least
        Share of the errors of runs without a warning that are within 1.96 standard errors.
    calm
        Share of the runs that have no warning.
    silent
        Largest share of the runs that are off by more than three errors without a warning.
    """

    least: float = 0.93
    calm: float = 0.85
    silent: float = 0.01


@dataclass(frozen=True)
class Verdict:
    """Whether a method may be called calibrated, and the words that say why."""

    passed: bool
    lines: tuple[str, ...]


def verdict(rows: Sequence[Row], limits: Limits) -> Verdict:
    """Judge all runs of one method together, and each family by itself."""
    finished = [row for row in rows if not row.failed]
    done = [row for row in finished if not row.beyond]
    beyond = len(finished) - len(done)
    if not done:
        return Verdict(False, ("no run finished",))
    calm = [row for row in done if not row.warnings]
    within = float(np.mean(np.abs([r.scores for r in calm]) <= 1.96)) if calm else 0.0
    everywhere = float(np.mean(np.abs([r.scores for r in done]) <= 1.96))
    silent, calm_share = float(np.mean([r.silent for r in done])), len(calm) / len(done)
    lines = [
        f"{rows[0].method}: {len(done)} of {len(rows) - beyond} runs, {calm_share:.0%} without a "
        f"warning; of these {within:.1%} of log Z and means within 1.96 SE (of all "
        f"{everywhere:.1%}); {silent:.1%} silently off by more than 3 SE"
    ]
    if beyond:
        missed = sum(row.silent for row in finished if row.beyond)
        lines.append(
            f"  {beyond} more runs say that they may have missed so narrow a spike; "
            f"{missed} of them are silently off by more than 3 SE"
        )
    suspects = [s for s in scores_of(rows, limits.calm) if s.reasons]
    lines += [f"  {s.family}: {reason}" for s in suspects for reason in s.reasons]
    good = within >= limits.least and calm_share >= limits.calm and silent <= limits.silent
    return Verdict(good and not suspects and len(finished) == len(rows), tuple(lines))


HEADINGS = (
    "family", "method", "n", "beyond", "failed", "bias", "RMSE", "mean SE", "RMSE/SE",
    "log Z ≤ 1.96", "mean ≤ 1.96", "warned", "silent", "gradients", "CPU s",
)  # fmt: skip


def cells(s: Score) -> tuple[str, ...]:
    """The cells of a score under `HEADINGS`."""
    return (
        s.family, s.method, f"{s.runs}", f"{s.beyond}", f"{s.failed}",
        f"{s.bias:+.4f}", f"{s.rmse:.4f}", f"{s.mean_se:.4f}", f"{s.ratio:.2f}",
        f"{s.log_z_within:.0%}", f"{s.mean_within:.0%}",
        f"{s.warned:.0%}", f"{s.silent}", f"{s.gradients:,.0f}", f"{s.cpu_seconds:.1f}",
    )  # fmt: skip


def as_markdown(scores: Sequence[Score]) -> str:
    """The table for a README."""
    lines = [HEADINGS, ("---", "---", *["--:"] * (len(HEADINGS) - 2)), *map(cells, scores)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_text(line: Sequence[str]) -> str:
    """One line of the table for a terminal."""
    widths = [max(len(heading), 8) for heading in HEADINGS[2:]]
    numbers = (f"{cell:>{width}}" for cell, width in zip(line[2:], widths, strict=True))
    return f"{line[0]:<17} {line[1]:<27} {' '.join(numbers)}"
