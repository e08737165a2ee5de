"""`Run.extend`: goes on with a finished run under its frozen settings."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from stanct.common.arrays import joined_rows
from stanct.common.errors import SamplingError
from stanct.common.seeds import Seeds
from stanct.common.settings import Whole, declared
from stanct.engines.cmdstan import CmdStan
from stanct.path.base import lent
from stanct.runs.power import PowerRun
from stanct.runs.run import Run
from stanct.samplers import METHODS
from stanct.samplers._job import Job, Plan
from stanct.samplers._method import Method, refuse_other_densities
from stanct.samplers.options import Options
from stanct.stan.between import recorded
from stanct.stan.forms import in_form
from stanct.stan.program import Program
from stanct.targets.data import StanData
from stanct.targets.function_target import telling_of
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.work.execution import executing
from stanct.work.pools import opened

AnyRun = TypeVar("AnyRun", bound=Run)

# Runs whose recorded method name differs from that of its class.
_NAMES = {"smc": "ais"}
_AGAIN = "Run it again with more draws (draws=)."


def extended(
    run: AnyRun,
    draws: int,
    *,
    target: Any = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: bool = True,
) -> AnyRun:
    """Go on with a run, and return the longer one; see `Run.extend`."""
    rules = declared(Options)
    threads = rules["threads"].checked("threads", threads)
    executor = rules["executor"].checked("executor", executor)
    progress = rules["progress"].checked("progress", progress)
    method = _method_of(run)
    draws = replace(rules["draws"], rule=Whole(method.least_draws), optional=False).checked(
        "draws", draws
    )
    with telling_of(target):
        problem = target_of(run, target)
    before = run.provenance.get("extended", {"settings": dict(run.settings), "draws": []})
    plan = Plan(
        run.chains,
        draws,
        run.settings["warmup"],
        base=_base(run),
        threads=threads,
        thin=rules["thin"].checked("thin", run.settings.get("thin", 1)),
        keep=tuple(run.variables) if run.settings.get("keep") else None,
    )
    method.check(plan, problem)
    engine = CmdStan.here() if run.engine == CmdStan.NAME else None
    if engine is not None and executor is not None:
        raise SamplingError(
            "CmdStan made this run and goes on with it, and an executor cannot run CmdStan.",
            remedy="Leave out executor=.",
        )
    with (
        telling_of(problem),
        opened(executor) as pool,
        executing(
            problem,
            method.name,
            {},
            seed=run.settings["seed"],
            executor=pool,
            threads=plan.threads,
            progress=progress,
        ) as execution,
    ):
        seeds = Seeds(execution.seed).within("extension", len(before["draws"]))
        job = Job(method.name, dict(run.method_settings), plan, problem, engine, execution, seeds)
        more = method.resume(job, run)
    facts = {"settings": dict(before["settings"]), "draws": [*before["draws"], more.draws]}
    return _joined(run, more, facts, run.draws + draws)


def _base(run: Run) -> Any:
    base = run.base
    if base is None:
        raise SamplingError("The run has no base, so it cannot be extended.", remedy=_AGAIN)
    return base


def _method_of(run: Run) -> Method[Any]:
    """The method that made the run, with the run's settings."""
    kind = METHODS.get(_NAMES.get(run.method, run.method))
    if kind is None or kind.resume is Method.resume:
        again = "Fit again with more draws." if run.method == "bridge" else _AGAIN
        raise SamplingError(f"A run of the method {run.method!r} cannot be extended.", remedy=again)
    known = {field.name for field in fields(kind)}
    own = {name: value for name, value in run.method_settings.items() if name in known}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})


def target_of(run: Run, given: Any) -> SampledTarget:
    """The target that was given, or the one that the run has recorded."""
    target = _recorded(run) if given is None else _in_form(run, given)
    x = _base(run).unwhiten(run.z[:, -1].reshape(-1, run.z.shape[-1]))
    if target.density.dimension != x.shape[1]:
        raise SamplingError(
            f"The target has {target.density.dimension} dimensions, and the run has {x.shape[1]}.",
            remedy="Pass the target of the run.",
        )
    # δ of the power posterior has no base. Its method compares likelihoods.
    delta = None if isinstance(run, PowerRun) else getattr(run, "delta", None)
    if delta is not None:
        last = delta[:, getattr(run, "kept", [-1])[-1]]
        kept = last.reshape(len(x)) if last.size == len(x) else last[:, -1]
        base = lent(_base(run), target.density.borrow)
        own = base.delta(base.whiten(x), target.density.log_densities(x))
        refuse_other_densities(own, kept)
    return target


def _in_form(run: Run, given: Any) -> SampledTarget:
    """The form of a target that the run has sampled."""
    if isinstance(given, type) or not hasattr(type(given), "data_text"):
        raise SamplingError(
            f"target must be what the run has sampled, not a {type(given).__name__}.",
            remedy="Did you mean target=model.target(data)?",
        )
    if isinstance(given, ProgramTarget):
        sampled = list(run.provenance.get("reparametrised", ()))
        return given if list(given.reparametrised) == sampled else given.in_form(sampled)
    return given


def _recorded(run: Run) -> ProgramTarget:
    """The target of a run on a Stan program, from the text of the program and the data."""
    told = run.provenance
    source = told.get("source")
    if source is None:
        kind = "was saved by an earlier version" if run.programs else "is of a Python function"
        raise SamplingError(
            f"The run {kind}, so it does not have its target.",
            remedy="Pass the target, such as target=model.target(data).",
        )
    ends = told.get("ends")
    users = recorded(ends) if ends else Program.from_source(source, path=told["program"])
    sampled = in_form(users, told["reparametrised"])
    data = StanData(run.data, told["data_origin"])
    written = None if sampled is users else users
    return ProgramTarget(sampled, data, told["prefix"], written, False, told["tempered"])


def _joined(run: AnyRun, more: AnyRun, extended: Mapping[str, Any], wanted: int) -> AnyRun:
    """A run with further draws behind its own."""
    arrays = {}
    for name, axes in type(run).arrays.items():
        if "n" in axes.split():
            pair = [getattr(run, name), getattr(more, name)]
            arrays[name] = np.concatenate(pair, axis=axes.split().index("n"))
    old, new = run.provenance, more.provenance
    sums = ("gradients", "evaluations", "seconds")
    stages = dict(old.get("stage_seconds", {}))
    stages["extension"] = round(stages.get("extension", 0) + new["seconds"], 3)
    provenance = {
        **old,
        **{name: old.get(name, 0) + new[name] for name in sums},
        "settings": {**run.settings, "draws": wanted, "target_se": None, "max_draws": None},
        "stopping": None,
        "interrupted": new["interrupted"],
        "stage_seconds": stages,
        "versions": new["versions"],
        "finished": new["finished"],
        "extended": dict(extended),
    }
    if "acceptance" in old and "acceptance" in new:
        provenance["acceptance"] = _pooled(old["acceptance"], new["acceptance"])
    return replace(
        run,
        **run._joined(more),
        **arrays,
        variables=joined_rows(run.variables, more.variables),
        provenance=provenance,
    )


def _pooled(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Transitions and mean acceptance in bins of β, of two records together."""
    tries = np.array([one["transitions"], other["transitions"]], float)
    means = np.array([one["acceptance"], other["acceptance"]], float)
    sums = np.where(tries > 0, tries * np.nan_to_num(means), 0).sum(axis=0)
    total = tries.sum(axis=0)
    return {
        "transitions": [int(count) for count in total],
        "acceptance": [
            float(value / count) if count else None
            for value, count in zip(sums, total, strict=True)
        ],
    }
