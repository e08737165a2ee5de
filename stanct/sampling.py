"""`sample`: checks what is asked of a method, makes a job of it, and lets the method run it."""

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
    # An isinstance test of a protocol would compute its properties, a D × D matrix among them.
    return all(hasattr(type(value), name) for name in ("whiten", "unwhiten", "draw", "delta"))


def _is_cmdstan(value: Any) -> bool:
    return isinstance(value, CmdStan)


class Options(TypedDict, total=False):
    """What goes with every method.

    Attributes
    ----------
    chains
        Independent chains, ladders or streams of particles; 4 by default.
    draws, warmup
        Kept and adaptation iterations of each chain; the method's own numbers by default.
    target_se, max_draws
        Standard error of log Z at which to stop, and the most draws of each chain that this may
        take, by default 20 × `draws`; `draws` has no other meaning then. The check ``"target_se"``
        says why the run stopped.
    seed
        A fresh one is drawn and recorded by default. The draws depend on no number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"``, ``"laplace"`` or ``"advi"``, see
        `stanct.bases.fits.fit_base`, or a base of your own. ``"auto"``, the default, leaves it to
        the method, and stands for ``"pilot"`` in most.
    log_zeta
        Guess at log Z that goes with a base of your own; it only starts the bias.
    engine
        What runs NUTS in the methods joint and pseudo_extended: ``"cmdstan"`` or a `CmdStan` on the
        generated program; ``"embedded"``, compiled kernels on the embedded engine's density, as for
        all other methods; or ``"auto"``: CmdStan where one is found, else embedded. The run says
        which it was.
    threads
        Chains that run at once; as many as there are cores by default.
    executor
        Who runs the chains' blocks instead of threads: any `concurrent.futures.Executor`, also
        Dask's ``client.get_executor()``. The draws do not depend on it. The base is fitted here.
    checkpoint
        Folder from which a run that was killed goes on: repeat the same call. It stays when the run
        is finished; delete it when the run is saved.
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
"""Of the options that have one for all methods; None for the others."""


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
        A method with its own settings, as ``stanct.Gibbs(transitions=8)``, or the name of one,
        which stands for its defaults.
    options
        What goes with every method: see `Options`.

    Raises
    ------
    SamplingError
        Before any work: no such method or option, or settings that contradict each other. Later: a
        base at whose draws the target vanishes.
    ProgramError
        The transformed data are random, or the program has no form that the method needs.
    EngineError
        No base could be fitted, or no chain could start.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before every chain had finished draws; later, the finished ones are returned.
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
    """The method of that name with its defaults.

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
    """The method of that name with settings of its own.

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
    """The options with their defaults, each checked by its rule and against the method."""
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
    """Raise for an unknown option; a method's own setting belongs into the method."""
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
    if isinstance(target, StochasticTarget) and not method.stochastic:
        raise SamplingError(
            f"Method {method.name!r} needs exact log densities, and this target gives estimates "
            "from batches.",
            remedy="Use method 'tact', or a FunctionTarget.",
        )


def _engine(engine: str | CmdStan, method: Method[Any]) -> CmdStan | None:
    """The CmdStan that this name stands for, or the one given, if the method can use it."""
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
