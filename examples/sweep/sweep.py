"""Transforms every program of folders that stanc accepts, and reports the outcome of each.

    python examples/sweep/sweep.py FOLDER ... [--kind joint] [--data] [--out FILE]

The cases run one after another in a separate process. A crash or an endless loop in the compiler or
the engine is therefore a finding about one program and does not end the sweep.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm
from verify import verify
from worker import NO_END, NoAnswerError, Worker

from stanct.common.errors import (
    DataError,
    EngineError,
    ProgramError,
    SamplingError,
    StanctError,
    UnsupportedError,
)
from stanct.common.names import INTERRUPTED, KINDS
from stanct.common.resources import remedy_for
from stanct.engines import cmdstan, embedded
from stanct.engines.embedded import CompilerMessageError
from stanct.engines.homes import Home
from stanct.stan.codegen import generate
from stanct.stan.program import NO_PARAMETERS, Program
from stanct.stan.source import SourceText
from stanct.targets.data import read_data
from stanct.targets.program_target import ProgramTarget

OUTCOMES = ("transformed", "equal", "refused", "not compared", "differs", "failed")
FAULTS = frozenset({"differs", "failed"})
_EXAMPLES = 5
_INCLUDE_MISSING = "an include that is not there"


@dataclass(frozen=True)
class Case:
    """A program to transform, with data if log densities are to be compared too.

    Attributes
    ----------
    name
        Name in the report: the path in the folder, or the name of the posterior.
    program, data
        Files; `data` is JSON or a zip archive of it.
    includes
        Folders in which ``#include`` looks before the program's own folder.
    """

    name: str
    program: Path
    data: Path | None = None
    includes: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The outcome of one case and one kind.

    Attributes
    ----------
    case, kind
        Name of the case and kind of generated program. The kind is empty if no kind was reached.
    outcome
        ``"rejected"``: stanc or a missing include rejects the program. ``"transformed"``: stanc
        accepts the generated program. ``"equal"``: the generated program also equals its formula at
        random points. ``"differs"``: it does not. ``"not compared"``: they could not be compared
        for a reason other than the program's text, such as data that do not fit. ``"refused"``:
        stanct does not support the program, for a named reason. ``"failed"``: a fault of stanct, a
        crash, or no end in time.
    reason
        Short reason, by which outcomes are grouped.
    message
        Full message.
    """

    case: str
    kind: str
    outcome: str
    reason: str = ""
    message: str = ""


def find_cases(folder: str | os.PathLike[str], *, with_data: bool = False) -> list[Case]:
    """List the programs of a folder, or only those with data.

    Parameters
    ----------
    folder
        Folder that is searched recursively for ``*.stan``. A checkout of posteriordb is recognised.
        Includes are looked up in the program's folder and in those above it, up to this one, as
        packages for R keep them.
    with_data
        List only programs with data, and pair them: the posteriors of posteriordb; elsewhere
        ``<stem>.data.json`` beside the program, or, if there is none, the first ``*.data.json``
        there that has all of its variables.

    Raises
    ------
    StanctError
        There is no such folder, or no program in it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise StanctError(
            f"There is no folder {root}.",
            remedy=f"Check the path; it is looked up from {Path.cwd()}.",
        )
    if (root / "posterior_database").is_dir():
        root = root / "posterior_database"
    if with_data:
        posteriors = sorted((root / "posteriors").glob("*.json"))
        cases = [case for path in posteriors for case in _posterior(root, path)]
        cases = cases or [
            case for path in sorted(root.rglob("*.stan")) for case in _beside(path, root)
        ]
    else:
        cases = [Case("", path) for path in sorted(root.rglob("*.stan"))]
    if not cases:
        raise StanctError(
            f"{root} holds no Stan programs{' with data' if with_data else ''}.",
            remedy="Pass a folder with *.stan files"
            + (", and <name>.data.json beside them." if with_data else "."),
        )
    return [
        replace(
            case,
            name=case.name or str(case.program.relative_to(root)),
            includes=_above(case.program, root),
        )
        for case in cases
    ]


def _above(program: Path, root: Path) -> tuple[Path, ...]:
    """The program's folder and those above it up to the root."""
    return tuple(folder for folder in program.parents if folder.is_relative_to(root))


def _posterior(root: Path, path: Path) -> Iterator[Case]:
    posterior = json.loads(path.read_text(encoding="utf-8"))
    data = root / "data" / "data" / f"{posterior['data_name']}.json.zip"
    program = root / "models" / "stan" / f"{posterior['model_name']}.stan"
    if data.is_file() and program.is_file():
        yield Case(path.stem, program, data)


def _beside(program: Path, root: Path) -> Iterator[Case]:
    own = program.with_suffix(".data.json")
    try:
        needed = set(Program.from_file(program, include_paths=_above(program, root)).data_names)
    except ProgramError:
        return
    for data in [own] if own.is_file() else sorted(program.parent.glob("*.data.json")):
        if needed <= set(json.loads(data.read_text(encoding="utf-8"))):
            yield Case("", program, data)
            return


def sweep(
    cases: Iterable[Case],
    kinds: Sequence[str] = KINDS,
    *,
    seconds: float = 120,
    second: Home | None = None,
) -> Iterator[Verdict]:
    """Transform every program to every kind, check it with stanc, and compare it if it has data.

    Parameters
    ----------
    cases
        Cases of `find_cases`.
    kinds
        Kinds of `stanct.stan.codegen.KINDS`.
    seconds
        Time in seconds after which a case counts as failed. A case with data is then transformed
        once more without data.
    second
        The CmdStan that evaluates one side of every comparison; see `verify.verify`.
    """
    with Worker(partial(examine, kinds=tuple(kinds), second=second), seconds) as worker:
        for case in cases:
            try:
                yield from worker(case)
            except NoAnswerError as error:
                if case.data is None or error.reason != NO_END:
                    yield Verdict(case.name, "", "failed", error.reason, str(error))
                else:
                    yield from _without_numbers(worker, case, error)


def _without_numbers(
    worker: Worker[Case, list[Verdict]], case: Case, late: NoAnswerError
) -> Iterator[Verdict]:
    """Transform a case whose comparison takes too long."""
    try:
        verdicts = worker(replace(case, data=None))
    except NoAnswerError as error:
        verdicts = [Verdict(case.name, "", "failed", error.reason, str(error))]
    for verdict in verdicts:
        if verdict.outcome == "transformed":
            yield replace(verdict, outcome="not compared", reason=late.reason, message=str(late))
        else:
            yield verdict


def examine(case: Case, kinds: Sequence[str], second: Home | None = None) -> list[Verdict]:
    """Transform and compare one case in this process; see `sweep`."""
    try:
        text = case.program.read_text(encoding="utf-8")
        folders = [*case.includes, case.program.parent]
        expanded = SourceText.expand(text, str(case.program), folders).text
    except (ProgramError, OSError, UnicodeDecodeError) as error:
        return [Verdict(case.name, "", "rejected", _INCLUDE_MISSING, str(error))]
    try:
        embedded.compile_program(expanded)
    except CompilerMessageError as error:
        return [Verdict(case.name, "", "rejected", "stanc", str(error))]
    return [_transform(case, kind, second) for kind in kinds]


def _transform(case: Case, kind: str, second: Home | None) -> Verdict:
    try:
        program = Program.from_file(case.program, include_paths=case.includes)
        embedded.compile_program(generate(program, kind))
        if case.data is None:
            return Verdict(case.name, kind, "transformed")
        target = ProgramTarget(program, read_data(load_data(case.data), program))
        comparison = verify(target, kind, second=second)
    except UnsupportedError as error:
        return Verdict(case.name, kind, "refused", error.reason, str(error))
    except (DataError, SamplingError) as error:
        return Verdict(case.name, kind, "not compared", "data that do not fit", str(error))
    except EngineError as error:
        return Verdict(case.name, kind, "not compared", "the engine cannot run it", str(error))
    except ProgramError as error:
        return Verdict(case.name, kind, "failed", "misread", str(error))
    except CompilerMessageError as error:
        return Verdict(case.name, kind, "failed", "stanc rejects the result", str(error))
    except Exception as error:
        return Verdict(case.name, kind, "failed", type(error).__name__, str(error))
    if comparison.points == 0:
        return Verdict(case.name, kind, "not compared", "no finite point", str(comparison))
    if comparison.passed:
        return Verdict(case.name, kind, "equal", "", str(comparison))
    if comparison.engines_differ:
        return Verdict(case.name, kind, "not compared", "the engines differ", str(comparison))
    return Verdict(case.name, kind, "differs", "not its formula", str(comparison))


def load_data(path: Path) -> Any:
    """Return data for `read_data`: the path of a JSON file, or the content of a zipped one."""
    if path.suffix != ".zip":
        return path
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def report(verdicts: Sequence[Verdict]) -> str:
    """Count the outcomes by kind, list refusals by reason, and list every fault."""
    cases = {verdict.case for verdict in verdicts}
    rejected = [verdict for verdict in verdicts if verdict.outcome == "rejected"]
    empty = {verdict.case for verdict in verdicts if verdict.reason == NO_PARAMETERS}
    judged = [v for v in verdicts if v.outcome != "rejected" and v.case not in empty]
    lines = [f"{len(cases)} cases: {len({v.case for v in judged})} to transform"]
    lines += [f", {count} {what}" for what, count in _rejections(rejected, empty) if count]
    parts = ["".join(lines) + "."]
    if judged:
        frame = pd.DataFrame([asdict(verdict) for verdict in judged])
        counts = pd.crosstab(frame["kind"], frame["outcome"])
        columns = [outcome for outcome in OUTCOMES if outcome in counts]
        parts.append(counts[columns].to_string())
    for outcome in OUTCOMES:
        groups: dict[tuple[str, str], list[Verdict]] = {}
        for verdict in judged:
            if verdict.outcome == outcome and verdict.reason:
                groups.setdefault((verdict.kind, verdict.reason), []).append(verdict)
        for (kind, reason), group in groups.items():
            names = ", ".join(verdict.case for verdict in group[:_EXAMPLES])
            more = f" and {len(group) - _EXAMPLES} more" if len(group) > _EXAMPLES else ""
            parts.append(
                f"{outcome}, {kind or 'any kind'}, {len(group)} for {reason}: {names}{more}"
            )
            if outcome in FAULTS:
                parts += [f"  {verdict.case}: {verdict.message}" for verdict in group]
    return "\n".join(parts)


def _rejections(rejected: Sequence[Verdict], empty: set[str]) -> list[tuple[str, int]]:
    by_stanc = sum(verdict.reason == "stanc" for verdict in rejected)
    return [
        ("that stanc rejects", by_stanc),
        (f"with {_INCLUDE_MISSING}", len(rejected) - by_stanc),
        ("without parameters", len(empty)),
    ]


def journal(verdicts: Iterable[Verdict], path: str | os.PathLike[str]) -> Iterator[Verdict]:
    """Write each verdict to a CSV file at once and yield it; columns are the fields of `Verdict`.

    Raises
    ------
    StanctError
        The file cannot be written; raised before the first verdict.
    """
    file = Path(path)
    try:
        _write_row(file, "w", [field.name for field in fields(Verdict)])
    except OSError as cause:
        raise StanctError(
            f"The verdicts cannot be written to {file}: {cause}.",
            remedy=remedy_for(cause, "Choose a file that you can write."),
        ) from cause
    for verdict in verdicts:
        _write_row(file, "a", asdict(verdict).values())
        yield verdict


def _write_row(path: Path, mode: str, cells: Iterable[str]) -> None:
    with path.open(mode, encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(cells)


def cases_of(folders: Sequence[str], *, with_data: bool) -> list[Case]:
    """The cases of all folders; names begin with the folder where there are several."""
    if len(folders) == 1:
        return find_cases(folders[0], with_data=with_data)
    return [
        replace(case, name=f"{Path(folder).name}/{case.name}")
        for folder in folders
        for case in find_cases(folder, with_data=with_data)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep; the status is 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="Stan programs, at any depth")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument(
        "--data",
        action="store_true",
        help="take the programs that have data (posteriordb's posteriors, or <name>.data.json), "
        "and compare log densities at random points, too",
    )
    parser.add_argument("--engine", choices=["embedded", "cmdstan"], default="embedded")
    parser.add_argument("--seconds", type=float, help="for one program; default 120, CmdStan 900")
    parser.add_argument("--out", metavar="FILE", help="write every verdict there as it comes, CSV")
    options = parser.parse_args(arguments)
    second = cmdstan.CmdStan.here().home if options.engine == "cmdstan" else None
    limit = options.seconds or (120 if second is None else 900)
    bar = tqdm(cases_of(options.folders, with_data=options.data), unit=" programs", disable=None)
    found = sweep(bar, options.kind or KINDS, seconds=limit, second=second)
    verdicts: list[Verdict] = []
    try:
        verdicts.extend(found if options.out is None else journal(found, options.out))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        print(report(verdicts))
    return int(any(verdict.outcome in FAULTS for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
