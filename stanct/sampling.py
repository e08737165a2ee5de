"""`sample`: checks the options, makes a job of them, and lets the method run the job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypedDict, TypeVar, Unpack, overload

from stanct.bases.fits import BASES as FITS
from stanct.engines import homes
from stanct.engines.cmdstan import CmdStan
from stanct.errors import SamplingError
from stanct.path.base import Base
from stanct.runs.run import Run
from stanct.samplers import METHODS
from stanct.samplers._job import Job, Plan, engine_name
from stanct.samplers._method import Method
from stanct.seeds import Seeds
from stanct.settings import (
    Choice,
    Flag,
    Instance,
    Real,
    Whole,
    declared,
    listing,
    near,
    refuse_unknown,
)
from stanct.targets.batches import StochasticTarget
from stanct.targets.protocols import SampledTarget
from stanct.work.execution import executing

Result = TypeVar("Result")

ENGINES = ("auto", "embedded", "cmdstan")
BASES = ("auto", *FITS, "advi")


def _is_base(value: Any) -> bool:
    # An isinstance test against the protocol would compute properties such as a D × D matrix.
    return all(hasattr(type(value), name) for name in ("whiten", "unwhiten", "draw", "delta"))


def _is_cmdstan(value: Any) -> bool:
    return isinstance(value, CmdStan)


class Options(TypedDict, total=False):
    """Options of every method.

    Attributes
    ----------
    chains
        Number of independent chains, ladders or streams of particles; 4 by default.
    draws, warmup
        Kept and adaptation iterations of each chain. The defaults depend on the method.
    target_se, max_draws
        Standard error of log Z at which to stop, and the largest number of draws of each chain
        until then, by default 20 × `draws`. With `target_se`, `draws` serves only for this default.
        The check ``"target_se"`` says why the run stopped.
    seed
        Seed of all random streams. By default, a fresh seed is drawn and recorded. The draws do not
        depend on the number of threads.
    base
        Name of the fit of the base, such as ``"pilot"``, ``"pathfinder"``, ``"laplace"`` or
        ``"advi"``, or a base of your own. `stanct.bases.fits.fit_base` describes all fits.
        ``"auto"``, the default, leaves the choice to the method, which is ``"pilot"`` for most.
    log_zeta
        Guess at log Z that accompanies a base of your own. It only starts the bias.
    engine
        Engine of NUTS in the methods joint and pseudo_extended. ``"cmdstan"`` or a `CmdStan` runs
        the generated program. ``"embedded"`` runs compiled kernels on the embedded engine's
        density, as all other methods do. ``"auto"`` selects CmdStan if it is found, and otherwise
        the embedded engine. The run records the choice.
    threads
        Number of chains that run at once; by default the number of cores.
    executor
        Runs the blocks of the chains in place of threads: any `concurrent.futures.Executor`,
        including Dask's ``client.get_executor()``. The draws do not depend on the executor. The
        base is fitted in the calling process.
    checkpoint
        Folder from which a killed run resumes when the same call is repeated. The folder remains
        after the run has finished; delete it once the run is saved.
    progress
        Whether progress bars are shown on stderr.
    """

    chains: Annotated[int, Whole(1)]
    draws: Annotated[int | None, Whole(1)]
    warmup: Annotated[int | None, Whole(0)]
    target_se: Annotated[float | None, Real(0)]
    max_draws: Annotated[int | None, Whole(8)]
    seed: Annotated[int | None, Whole(0)]
    base: Annotated[str | Base, Choice(*BASES, fits=_is_base, called="a base of your own")]
    log_zeta: Annotated[float | None, Real()]
    engine: Annotated[str | CmdStan, Choice(*ENGINES, fits=_is_cmdstan, called="a CmdStan")]
    threads: Annotated[int | None, Whole(1)]
    executor: Annotated[
        Executor | None,
        Instance(Executor, "a concurrent.futures.Executor, such as Dask's client.get_executor()"),
    ]
    checkpoint: Annotated[
        str | os.PathLike[str] | None, Instance(str | os.PathLike, "the path of a folder")
    ]
    progress: Annotated[bool, Flag()]


DEFAULTS: Mapping[str, Any] = {"chains": 4, "base": "auto", "engine": "auto", "progress": True}
"""Defaults of the options that are the same for all methods."""


@overload
def sample(
    target: SampledTarget | StochasticTarget, method: Method[Result], **options: Unpack[Options]
) -> Result: ...


@overload
def sample(
    target: SampledTarget | StochasticTarget, method: str = "joint", **options: Unpack[Options]
) -> Run: ...


def sample(
    target: SampledTarget | StochasticTarget,
    method: Method[Any] | str = "joint",
    **options: Unpack[Options],
) -> Any:
    """Sample a target by a method and return the run.

    Parameters
    ----------
    target
        A `FunctionTarget`, a `StochasticTarget`, or a program with data (`TemperedModel.target`).
    method
        A method with its own settings, such as ``stanct.Gibbs(transitions=8)``, or the name of a
        method, which stands for its defaults.
    options
        Options of every method; see `Options`.

    Raises
    ------
    SamplingError
        Before any work, the method or an option is unknown, or settings contradict each other.
        Later, the target vanishes at the draws of the base.
    ProgramError
        The transformed data are random, or the program has no form that the method needs.
    EngineError
        No base could be fitted, or no chain could start.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        The run was interrupted before every chain had finished draws. A later interrupt returns the
        finished draws.
    """
    chosen = method if isinstance(method, Method) else named_method(method)
    asked = _checked(chosen, options)
    plan = asked.plan
    _check_target(chosen, target)
    chosen.check(plan, target)
    problem: Any = target
    with executing(
        problem,
        chosen.name,
        {
            **chosen.identity(),
            **plan.record(),
            "base": plan.base,
            "engine": engine_name(problem, asked.engine),
        },
        seed=asked.seed,
        executor=asked.executor,
        threads=plan.threads,
        checkpoint=asked.checkpoint,
        progress=asked.progress,
    ) as execution:
        job = Job(
            chosen.name,
            chosen.record(),
            plan,
            problem,
            asked.engine,
            execution,
            Seeds(execution.seed),
        )
        return chosen.run(job.in_best_form())


def named_method(name: Any) -> Method[Any]:
    """Return the method of this name with its defaults.

    Raises
    ------
    SamplingError
        There is no such method.
    """
    if not isinstance(name, str):
        raise SamplingError(
            f"method must be a method or the name of one, not {name!r}.",
            remedy="Did you mean method='joint'? A method of your own derives from stanct.Method.",
        )
    if name not in METHODS:
        refuse_unknown("method", name, METHODS)
    return METHODS[name]()


def method_with(name: str, settings: Mapping[str, Any]) -> Method[Any]:
    """Return the method of this name with the given settings.

    Raises
    ------
    SamplingError
        There is no such method or setting, or a setting breaks its rule.
    """
    kind = type(named_method(name))
    known = [f.name for f in fields(kind)]
    for setting in settings:
        if setting not in known:
            refuse_unknown(f"{name} setting", setting, known)
    return kind(**settings)


@dataclass(frozen=True)
class _Asked:
    """Checked options."""

    plan: Plan
    engine: CmdStan | None
    seed: int | None
    executor: Executor | None
    checkpoint: str | os.PathLike[str] | None
    progress: bool


def _checked(method: Method[Any], options: Mapping[str, Any]) -> _Asked:
    """Fill in the defaults of the options, and check each by its rule and against the method."""
    rules = declared(Options)
    for name in options:
        if name not in rules:
            _refuse_option(method, name)
    found: dict[str, Any] = {name: DEFAULTS.get(name) for name in rules}
    for name, value in options.items():
        rule = replace(rules[name], default=found[name])
        if name in ("draws", "warmup"):
            rule = replace(rule, rule=Whole(getattr(method, f"least_{name}")))
        found[name] = rule.checked(name, value)
    for name in ("draws", "warmup"):
        if found[name] is None:
            found[name] = getattr(method, f"default_{name}")
    if found["base"] == "auto":
        found["base"] = method.default_base
    _check_aim(method, found["target_se"], found["max_draws"])
    if found["executor"] is not None and not method.distributed:
        raise SamplingError(
            f"Method {method.name!r} takes no executor: all its chains move together, block by "
            "block, on threads of this machine.",
            remedy="Pass threads=, or use method 'gibbs', 'parallel_tempering' or 'ais'.",
        )
    plan = Plan(
        **{
            name: found[name]
            for name in (
                *("chains", "draws", "warmup", "target_se", "max_draws"),
                *("base", "log_zeta", "threads"),
            )
        }
    )
    rest = (found[name] for name in ("seed", "executor", "checkpoint", "progress"))
    return _Asked(plan, _engine(found["engine"], method), *rest)


def _refuse_option(method: Method[Any], name: str) -> None:
    """Raise for an unknown option, with a hint if it is a setting of the method."""
    kind, own, hint = type(method).__name__, method.record(), None
    if type(method).__module__.startswith("stanct."):
        kind = f"stanct.{kind}"
    nearest = near(name, [*declared(Options), *own])
    if name in own:
        hint = f"It is a setting of the method: did you mean {kind}({name}=...)?"
    elif nearest in own:
        hint = f"Did you mean {kind}({nearest}=...)?"
    elif nearest:
        hint = f"Did you mean {nearest}=...?"
    refuse_unknown("option", name, declared(Options), hint=hint)


def _check_aim(method: Method[Any], target_se: float | None, max_draws: int | None) -> None:
    if target_se is not None and not method.aims:
        able = listing(repr(name) for name, kind in METHODS.items() if kind.aims)
        raise SamplingError(
            f"Method {method.name!r} makes a fixed number of draws and cannot stop at target_se.",
            remedy=f"Pass draws= instead, or use method {able}.",
        )
    if max_draws is not None and target_se is None:
        raise SamplingError(
            "max_draws limits a run that stops at target_se, and there is none.",
            remedy="Pass target_se too, or draws instead.",
        )


def _check_target(method: Method[Any], target: Any) -> None:
    if isinstance(target, type) or not hasattr(type(target), "data_text"):
        kind = target if isinstance(target, type) else type(target)
        raise SamplingError(
            "A target must be a FunctionTarget, a StochasticTarget or a program with data, not "
            f"{kind.__name__!r}.",
            remedy="Did you mean model.sample(data) or stanct.sample(model.target(data))?",
        )
    if isinstance(target, StochasticTarget) and not method.stochastic:
        raise SamplingError(
            f"Method {method.name!r} needs exact log densities, and this target gives estimates "
            "from batches.",
            remedy="Use method 'tact', or a FunctionTarget.",
        )


def _engine(engine: str | CmdStan, method: Method[Any]) -> CmdStan | None:
    """The CmdStan that the name stands for, or the given one; None for the embedded engine."""
    if engine == "embedded" or (engine == "auto" and not method.by_nuts):
        return None
    if not method.by_nuts:
        able = listing(repr(name) for name, kind in METHODS.items() if kind.by_nuts)
        raise SamplingError(
            f"Method {method.name!r} runs on the embedded engine alone: its moves are compiled "
            "kernels.",
            remedy=f"Leave out engine=, or use method {able}.",
        )
    if engine == "auto":
        home = homes.find()
        return CmdStan(home) if home else None
    return CmdStan.here() if isinstance(engine, str) else engine
