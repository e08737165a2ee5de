"""`sample_many`: one program and many data sets, with every result on disk once it is there."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from stanct.api.sampling import check_options, sample
from stanct.common.arrays import Array
from stanct.common.errors import (
    CheckpointError,
    LostExecutorError,
    SamplingError,
    StanctError,
    first_few,
    shortened,
)
from stanct.common.seeds import Seeds, stan_seed
from stanct.common.settings import declared, refuse_unknown
from stanct.common.version import __version__
from stanct.engines import embedded
from stanct.estimates.naming import label
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.many import Many, table_of
from stanct.runs.run import Run
from stanct.runs.verdicts import OF_THE_PROGRAM
from stanct.samplers._method import Method
from stanct.samplers.options import Options
from stanct.stan.program import Program
from stanct.targets.program_target import ProgramTarget
from stanct.work.calls import Calls
from stanct.work.execution import check_seed
from stanct.work.interrupts import note_sigterm
from stanct.work.pools import check_executor, opened
from stanct.work.progress import Bar
from stanct.work.results import Results
from stanct.work.workers import check_answer, loss_of

# Longest name of a data set, in bytes: a folder may have it, and a draft beside has a longer one.
LONGEST_NAME = 200
RUNS = "runs"
# Options that belong to one run, not to many.
SINGLE = ("executor", "checkpoint", "store", "progress", "seed", "threads")


class Model(Protocol):
    """A `TemperedModel`; it can be sent to workers."""

    @property
    def program(self) -> Program: ...

    def target(self, data: Any) -> ProgramTarget: ...


class Simulated(NamedTuple):
    """Data that were simulated, and the values of variables from which they were.

    Each run then says, for every scalar, which share of the posterior lies below its true value.
    """

    data: Any
    truth: Mapping[str, Any]


DATA = (Mapping, str, os.PathLike, Simulated)
"""Forms of one data set."""


@dataclass(frozen=True)
class _Task:
    """The run of one data set; it is sent to workers."""

    model: Model
    name: str
    data: Any = field(repr=False)
    method: Method[Any] | str
    seed: int
    threads: int | None
    options: Mapping[str, Any]
    variables: tuple[str, ...]
    truth: Mapping[str, Any]
    keep: str | None

    def __call__(self) -> dict[str, Any]:
        row: dict[str, Any] = {"name": self.name, "data": _digest(self.data), "error": ""}
        try:
            target = self.model.target(self.data)
            run = sample(
                target, self.method, seed=self.seed, threads=self.threads, progress=False,
                **self.options,
            )  # fmt: skip
            if run.provenance.get("interrupted"):
                raise KeyboardInterrupt  # a row is that of a whole run
            row |= _summary(run, self.variables)
            row["ranks"] = _ranks(run, self.truth)
            if self.keep is not None:
                run.save(self.keep)
        except StanctError as cause:
            row["error"] = str(cause)
        return row


def sample_many(
    model: Model,
    datasets: Mapping[str, Any] | Iterable[Any],
    method: Method[Any] | str = "auto",
    *,
    folder: str | os.PathLike[str] | None = None,
    executor: Executor | str | None = None,
    seed: int | None = None,
    variables: Sequence[str] = (),
    keep_runs: bool = False,
    progress: bool = True,
    **options: Any,
) -> Many:
    """Sample one program with many data sets.

    Every data set has a seed of its own, which follows from `seed` and its name. Results therefore
    depend neither on the executor nor on the others. One that fails is a row with an `error`.

    Parameters
    ----------
    model
        A `TemperedModel`.
    datasets
        Data by name, or data alone, whose names are then 0, 1, …; each in a form that
        `TemperedModel.sample` accepts. A generator is read as far as there is work.
    folder
        Folder to which each result is appended, to the file ``results.jsonl``, as soon as it is
        there. The same call goes on with the data sets that have no result in it, and tries those
        again whose line is an error. Results of others stay there, and are not returned.
    executor
        A `concurrent.futures.Executor`, or ``"processes:4"``, ``"threads:4"`` or
        ``"dask:tcp://host:port"``, whose workers run whole data sets. By default they run here, in
        turn, with chains on threads. Ctrl-C ends the call soon with the rows that are finished. An
        executor of your own goes on with those that it has begun.
    seed
        Seed of all runs; a fresh one by default, or that of the folder.
    variables
        Names of variables whose posterior means go into the table; elements of containers get
        names such as ``theta[1]``.
    keep_runs
        Whether each run is saved too, in ``folder/runs/NAME``.
    progress
        Whether a bar on stderr counts the data sets.
    options
        Options of each run, as in `stanct.samplers.options.Options`.

    Raises
    ------
    SamplingError
        An option is unknown or belongs to single runs, `datasets` are none or the variables of a
        single one, or the executor is closed; raised before any work. Two data sets have one name.
    LostExecutorError
        The executor broke. Results that were finished are in the folder.
    CheckpointError
        The folder belongs to other settings, is damaged, or cannot be written.
    """
    _check_datasets(model, datasets)
    seed, executor = _checked(model, method, variables, options, seed, executor)
    if keep_runs and folder is None:
        raise SamplingError("keep_runs needs a folder.", remedy="Pass folder='results'.")
    journal = Results.opened(folder, _identity(model, method, options, variables), seed)
    bar = Bar(len(order := _order(datasets)), "data sets", unit="data set", shown=progress)
    with bar, opened(executor) as pool:
        if pool is not None:
            check_answer(pool, progress=progress)
        seeds, threads = Seeds(journal.seed), None if pool is None else 1
        runs = Path(folder) / RUNS if keep_runs and folder else None
        tasks = (
            _Task(
                model, name, data, method, stan_seed(seeds("data set", name)), threads,
                dict(options), tuple(variables), truth, None if runs is None else str(runs / name),
            )
            for name, (data, truth) in _unfinished(datasets, journal, order, bar)
        )  # fmt: skip
        complete, running = _taken(Calls(pool, tasks, partial(_loss, folder)), journal, bar)
    rows = {name: journal.rows[name] for name in order if name in journal.rows}
    if not complete:
        own = [] if isinstance(executor, str) else running
        warnings.warn(_stopped(len(rows), own, folder is not None), stacklevel=2)
    return Many(table_of(rows), journal.seed, complete, model.program.label)


def _checked(
    model: Model, method: Method[Any] | str, variables: Sequence[str], options: Mapping[str, Any],
    seed: int | None, executor: Any,
) -> tuple[int | None, Any]:  # fmt: skip
    """The seed and the executor, if all that was asked for can be."""
    for name in SINGLE:
        if name in options:
            raise SamplingError(f"{name} is no option of the single runs of sample_many.")
    check_options(method, options)
    _check_variables(model, variables)
    executor = declared(Options)["executor"].checked("executor", executor)
    if isinstance(executor, str):
        check_executor(executor)
    return seed if seed is None else check_seed(seed), executor


def _taken(calls: Calls[_Task], journal: Results, bar: Bar) -> tuple[bool, list[_Task]]:
    """Add the rows of calls; whether all came, and those that an executor still works on."""
    complete = True
    try:
        for row in calls:
            journal.add(row)
            bar.update(1)
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit):
            note_sigterm()
        complete = False
        for row in calls.last():
            journal.add(row)
    finally:
        running = calls.cancel()
    return complete, running


def _order(datasets: Mapping[str, Any] | Iterable[Any]) -> dict[str, None]:
    """Names of the data sets in the order of the table; those of a generator are not known yet."""
    if isinstance(datasets, Mapping):
        return dict.fromkeys(map(str, datasets))
    return dict.fromkeys(map(str, range(len(datasets) if isinstance(datasets, Sized) else 0)))


def _stopped(finished: int, running: Sequence[_Task], goes_on: bool) -> str:
    """What is said after an interrupt; `running` are those that an executor is still working on."""
    text = f"Stopped after {finished} data sets."
    if running:
        names = first_few([task.name for task in running])
        text += (
            f" The executor still works on {len(running)}, and nothing is kept of them: {names}."
        )
    return text + (" The same call goes on." if goes_on else "")


def _check_datasets(model: Model, datasets: Any) -> None:
    """Refuse what is no collection of data sets, or is the data of one."""
    if not isinstance(datasets, Iterable) or isinstance(datasets, str | bytes | Simulated):
        raise SamplingError(
            "datasets must be data by name, or a list of data, "
            f"not {shortened(repr(datasets), 80)}.",
            remedy="Pass {'a': data_a, 'b': data_b}. For one data set call model.sample(data).",
        )
    if not isinstance(datasets, Mapping):
        return
    declared = {one.name for one in model.program.data}
    for name, data in datasets.items():
        _check_name(str(name))
        if name in declared and not (data is None or isinstance(data, DATA)):
            raise SamplingError(
                f"These datasets are the variables of one: the program declares `{name}` as data.",
                remedy="For one data set call model.sample(data), or pass {'a': data}.",
            )


def _check_variables(model: Model, variables: Sequence[str]) -> None:
    """Refuse names of variables that the program does not have."""
    known = sorted({*model.program.parameter_names, *model.program.derived_names})
    for name in variables:
        if str(name).split(":")[0] not in known:
            refuse_unknown("variable", str(name), known)


def _unfinished(
    datasets: Mapping[str, Any] | Iterable[Any], journal: Results, order: dict[str, None], bar: Bar
) -> Iterator[tuple[str, Simulated]]:
    """Yield the data sets without a result, and put the names of all into `order`."""
    seen: set[str] = set()
    for key, given in datasets.items() if isinstance(datasets, Mapping) else enumerate(datasets):
        name = str(key)
        one = given if isinstance(given, Simulated) else Simulated(given, {})
        if name in seen:
            raise SamplingError(f"Two data sets have the name {name!r}.")
        seen.add(name)
        order[name] = None
        found = journal.rows.get(name)
        # What caused an error may be gone, such as a missing file or too little memory.
        if found is None or found["error"]:
            yield name, one
        elif found["data"] == _digest(one.data):
            bar.update(1)
        else:
            raise CheckpointError(
                f"The folder has a result of {name!r} with other data.",
                remedy="Choose another folder, or other names.",
            )


def _check_name(name: str) -> None:
    long = len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME
    if not name or name in (".", "..") or any(c in name for c in "/\\\0") or long:
        raise SamplingError(
            f"A data set cannot have the name {shortened(repr(name), 80)}.",
            remedy=f"It may name a folder: {LONGEST_NAME} bytes at most, and no slash.",
        )


def _loss(folder: str | os.PathLike[str] | None, cause: Exception) -> LostExecutorError:
    return loss_of(
        cause,
        "data sets",
        "With folder=FOLDER the call can go on after such a loss."
        if folder is None
        else f"Finished results are in {folder}: repeat the call with a new executor.",
    )


def _identity(
    model: Model, method: Method[Any] | str, options: Mapping[str, Any], variables: Sequence[str]
) -> dict[str, Any]:
    """What must be equal in a call that goes on with a folder."""
    named = method if isinstance(method, str) else {method.name: method.record()}
    return {
        "program": hashlib.sha256(model.program.source.encode()).hexdigest(),
        "method": json.loads(json.dumps(named)),
        "options": {name: repr(value) for name, value in sorted(options.items())},
        "variables": list(variables),
        "versions": {"stanct": __version__, "numpy": np.__version__, **embedded.versions()},
    }


def _digest(data: Any) -> str:
    """A short digest of data in any form that a model accepts."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in sorted(value.items())}
        return np.asarray(value).tolist() if hasattr(value, "__array__") else value

    if isinstance(data, str | os.PathLike):
        content = Path(data).read_bytes() if Path(data).is_file() else os.fspath(data).encode()
    else:
        content = json.dumps(plain(data), default=repr).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _summary(run: Run, variables: Sequence[str]) -> dict[str, Any]:
    """The numbers of a run that the table keeps."""
    row: dict[str, Any] = {
        "method": run.method,
        "gradients": run.gradients,
        "seconds": run.provenance["seconds"],
        "failed": [name for name in run.warnings if name not in OF_THE_PROGRAM],
    }
    if isinstance(run, EvidenceRun):
        evidence = run.evidence
        row |= {
            "log_z": evidence.log_z,
            "std_error": evidence.std_error,
            "pareto_k": float(evidence.pareto_k),
        }
    means = {}
    for name in variables:
        found = run.expect(name)
        value, error = np.ravel(found.value), np.ravel(found.std_error)
        names = [label(name, index) for index in np.ndindex(np.shape(found.value))]
        means |= {n: [float(v), float(e)] for n, v, e in zip(names, value, error, strict=True)}
    return row | {"means": means}


def _ranks(run: Run, truth: Mapping[str, Any]) -> dict[str, float]:
    """The share of the posterior below each true scalar, where half of what is equal counts."""
    ranks = {}
    shapes = {name: values.shape[2:] for name, values in run.variables.items()}
    for name, value in check_truth(truth, shapes).items():

        def below(draws: Mapping[str, Any], name: str = name, value: Any = value) -> Any:
            return (draws[name] < value) + 0.5 * (draws[name] == value)

        found = np.ravel(run.expect(below).value)
        names = (label(name, index) for index in np.ndindex(value.shape))
        ranks |= dict(zip(names, found.tolist(), strict=True))
    return ranks


def check_truth(
    truth: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """True values as arrays, by name of the variables, which have these shapes.

    Raises `SamplingError` if there is no such variable, or a value is not finite or of another
    shape.
    """
    found = check_numbers(truth)
    for name, array in found.items():
        if name not in shapes:
            refuse_unknown("variable", name, tuple(shapes))
        if array.shape != shapes[name]:
            raise SamplingError(
                f"The true value of {name!r} has shape {array.shape}, the variable {shapes[name]}.",
                remedy="Give a value for each element of the variable.",
            )
    return found


def check_numbers(truth: Mapping[str, Any]) -> dict[str, Array]:
    """True values as arrays; raise `SamplingError` where one is no finite number."""
    found = {}
    for name, value in truth.items():
        try:
            array = np.asarray(value, float)
        except (TypeError, ValueError, OverflowError):
            array = np.array(np.nan)
        if not np.isfinite(array).all():
            raise SamplingError(
                f"The true value of {name!r} must be of finite numbers, not "
                f"{shortened(repr(value), 80)}.",
                remedy="Leave out what has no true value.",
            )
        found[name] = array
    return found
