"""`sample`: checks the options, makes a job of them, and lets the method run the job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from stanct.api.preparing import Asked, prepared
from stanct.bases.known import Hints
from stanct.bases.loop import Recipe
from stanct.bases.recipes import AUTO, RECIPES
from stanct.common.errors import ImproperError, SamplingError, StanctError
from stanct.common.names import BASES, MODES
from stanct.common.resources import within_memory
from stanct.common.seeds import Seeds
from stanct.common.settings import Whole, declared, listing, near, refuse_unknown
from stanct.engines.cmdstan import CmdStan
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.normalised import MASS
from stanct.runs.run import Run
from stanct.runs.storage import check_store_folder
from stanct.runs.verdicts import failures
from stanct.samplers import METHODS
from stanct.samplers._job import Job, Plan, engine_name
from stanct.samplers._method import Method
from stanct.samplers.options import DEFAULTS, ELSEWHERE, Options
from stanct.stan.dependence import Dependence
from stanct.stan.prior_mass import untold
from stanct.targets.batches import StochasticTarget
from stanct.targets.function_target import telling_of
from stanct.targets.program_target import ProgramTarget, naming_causes
from stanct.targets.protocols import SampledTarget
from stanct.targets.recipes import prior_target
from stanct.work.execution import executing
from stanct.work.interrupts import heeding_signals
from stanct.work.pools import check_executor, opened
from stanct.work.progress import Bar, say_above

# The most time of a run on the prior alone that only checks whether its integral is 1: so many
# seconds, or times that of the run.
LEAST_SECONDS, MOST_TIMES = 10.0, 3.0

AnyRun = TypeVar("AnyRun", bound=Run)
Result = TypeVar("Result")


@overload
def sample(
    target: SampledTarget | StochasticTarget, method: Method[Result], **options: Unpack[Options]
) -> Result:
    """Return the kind of run that the method makes."""


@overload
def sample(
    target: SampledTarget | StochasticTarget, method: str = "auto", **options: Unpack[Options]
) -> Run:
    """Return the run of the method of that name."""


@heeding_signals()
def sample(
    target: SampledTarget | StochasticTarget,
    method: Method[Any] | str = "auto",
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
        Later, the target vanishes at the draws of the base, or `max_seconds` pass before there are
        draws to keep.
    ProgramError
        The transformed data are random, or the program has no form that the method needs.
    EngineError
        No base could be fitted, or no chain could start.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    Exception
        The user's own, where the function of a `FunctionTarget` raises it at all draws of the base.
    KeyboardInterrupt
        The run was interrupted before every chain had finished draws. A later interrupt returns the
        finished draws.
    """
    if options.get("progress", True) and isinstance(target, ProgramTarget):
        _tell_improper(target)
    begun, run = time.monotonic(), sampled(target, method, options)
    limit = options.get("max_seconds")
    left = None if limit is None else limit - time.monotonic() + begun
    return measuring_prior(run, target, left, progress=options.get("progress", True))


def _tell_improper(target: ProgramTarget) -> None:
    """Say on stderr, before a run that may take long, that its log Z will be no evidence."""
    improper = [one for one in target.omissions if one.improper]
    if improper:
        more = f" ({len(improper) - 1} more)" if improper[1:] else ""
        say_above(f"Note, {improper[0]}{more}")


def sampled(
    target: SampledTarget | StochasticTarget, method: Method[Any] | str, options: Options
) -> Any:
    """What `sample` returns, with what the program's text alone tells of the prior's mass."""
    chosen = _whole(method) if isinstance(method, Method) else named_method(method)
    if isinstance(target, ProgramTarget) and target.program.ends is not None:
        chosen = _between(chosen)
    asked = _checked(chosen, options)
    if not isinstance(target, ProgramTarget):
        asked = _of_a_function(chosen, asked, options)
    begun = time.monotonic()
    _check_target(chosen, target)
    chosen.check(asked.plan, target)
    with Bar(0, "preparing", shown=asked.progress):
        problem, plan = prepared(chosen, target, asked)
    if asked.store is not None:
        check_store_folder(asked.store)
    with (
        within_memory(),
        telling_of(problem),
        naming_causes(problem),
        opened(asked.executor) as executor,
        executing(
            problem,
            chosen.name,
            {
                **chosen.identity(),
                **plan.record(),
                "base": plan.base,
                "makers": None if plan.recipe is None else repr(plan.recipe),
                "inits": list(plan.hints.places),
                "engine": engine_name(problem, asked.engine),
                "stored": asked.store is not None,
            },
            seed=asked.seed,
            executor=executor,
            threads=plan.threads,
            checkpoint=asked.store or asked.checkpoint,
            store=asked.store is not None,
            max_seconds=plan.max_seconds,
            since=begun,
            progress=asked.progress,
        ) as execution,
    ):
        job = Job(
            chosen.name,
            chosen.record(),
            plan,
            problem,
            asked.engine,
            execution,
            Seeds(execution.seed),
            own_class="" if chosen.is_built_in else type(chosen).__qualname__,
        )
        run = chosen.run(job.in_best_form(from_prior=chosen.from_prior))
        if execution.store is not None and not run.ended_early:
            execution.complete(run.z)
            run = run.stored(execution.store)
    return run


def measuring_prior(
    run: AnyRun, target: Any, seconds: float | None = None, *, progress: bool = False
) -> AnyRun:
    """The run with the mass of its prior, where the text does not tell it, by a run on that alone.

    If that ends within the seconds. Where log Z rests on it, it may cost as much as any run.
    """
    if not isinstance(target, ProgramTarget) or not isinstance(run, EvidenceRun):
        return run
    told = run.provenance
    rests = "log_prior_mass" in told
    options: Options = {"seed": run.settings["seed"], "engine": "embedded", "progress": False}
    if not rests:
        own = max(LEAST_SECONDS, MOST_TIMES * told["seconds"])
        seconds = own if seconds is None else min(own, seconds)
    if seconds is not None:
        options["max_seconds"] = max(seconds, 0.0)
    dependence = Dependence(target.program)
    doubts = untold(dependence, target.omissions)
    wanted = told["log_prior_mass"] is None if rests else doubts
    if run.ended_early or not wanted or not (rests or dependence.tells_apart):
        return run
    try:
        with Bar(0, "the prior alone", shown=progress):
            prior = sampled(prior_target(target.program, target.data), "auto", options)
    except ImproperError as none:
        said = [f"Of the prior alone, {none.message}", none.remedy]
        lines = [one.line for one in doubts]
        return replace(run, provenance={**told, "improper_prior": said, "measured": lines})
    except (StanctError, KeyboardInterrupt):
        return run
    facts = {n: told[n] + prior.provenance[n] for n in ("gradients", "evaluations", "seconds")}
    facts["measured"] = [one.line for one in doubts]
    endless = [one for one in failures(prior.diagnostics) if one.name == "improper"]
    if endless:
        said = f"The prior alone is improper. {endless[0].message}"
        facts["improper_prior"] = [said, endless[0].remedy]
    elif isinstance(prior, EvidenceRun) and prior.verdict.for_draws:
        mass = prior.bare_evidence
        facts[MASS] = [mass.log_z, mass.std_error]
        if rests:
            facts |= {"log_prior_mass": mass.log_z, "log_prior_mass_error": mass.std_error}
    else:
        return run
    return replace(run, provenance={**told, **facts})


def _between(method: Method[Any]) -> Method[Any]:
    """The method for a path between two programs, on which the default is NUTS on that path."""
    if method.name == "auto":
        joint: Any = METHODS["joint"]
        return joint(path="prior")
    if not method.from_prior:
        raise SamplingError(
            f"The path of the method {method.name!r} does not lead from one program to another.",
            remedy="Leave out method=, pass stanct.Joint(path='prior') or 'power_posterior', or "
            "leave out base= of stanct.temper.",
        )
    return method


def _of_a_function(method: Method[Any], asked: Asked, options: Mapping[str, Any]) -> Asked:
    """What ``base="auto"`` stands for where there is no Stan program to which bases are fitted."""
    base = options.get("base", "auto")
    if method.stochastic and isinstance(base, str) and base == "auto":
        asked = replace(asked, plan=replace(asked.plan, base="auto"))
    return asked


def check_options(method: Method[Any] | str, options: Mapping[str, Any]) -> Method[Any]:
    """Return the method; raise `SamplingError` where it or an option of a run is unknown or bad."""
    chosen = method if isinstance(method, Method) else named_method(method)
    _checked(chosen, options)
    return chosen


def _whole(method: Method[Any]) -> Method[Any]:
    """Refuse a method of the user's own whose class lacks what every method declares."""
    for name, kind in (("name", "str"), ("default_draws", "int"), ("default_warmup", "int")):
        if not hasattr(method, name):
            raise SamplingError(
                f"The method {type(method).__name__} has no `{name}`.",
                remedy=f"Declare it in the class: `{name}: ClassVar[{kind}] = ...`.",
            )
    return method


def named_method(name: Any) -> Method[Any]:
    """Return the method of this name with its defaults; raise `SamplingError` if there is none."""
    if not isinstance(name, str):
        raise SamplingError(
            f"method must be a method or the name of one, not {name!r}.",
            remedy="Did you mean method='joint'? A method of your own derives from stanct.Method.",
        )
    if name not in METHODS:
        refuse_unknown("method", name, METHODS)
    return METHODS[name]()


def method_with(name: str, settings: Mapping[str, Any]) -> Method[Any]:
    """The method of a name with settings; `SamplingError` if one is unknown or breaks its rule."""
    kind = type(named_method(name))
    known = [f.name for f in fields(kind)]
    for setting in settings:
        if setting not in known:
            refuse_unknown(f"{name} setting", setting, known)
    return kind(**settings)


def _checked(method: Method[Any], options: Mapping[str, Any]) -> Asked:
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
    draws_given = found["draws"] is not None
    for name in ("draws", "warmup"):
        if found[name] is None:
            found[name] = getattr(method, f"default_{name}")
    if isinstance(found["base"], str) and found["base"] == "auto":
        found["base"] = method.automatic_base()
    if isinstance(found["base"], str) and found["base"] not in BASES:
        found["base"] = Path(found["base"])  # of a fit
    recipe = found["base"] if isinstance(found["base"], Recipe) else None
    if recipe is not None:
        found["base"] = MODES if recipe.name == AUTO else recipe.name
    elif method.in_two_stages and isinstance(found["base"], str) and found["base"] == MODES:
        recipe = RECIPES[AUTO]
    _check_aim(method, found["target_se"], found["max_draws"])
    _check_storing(method, found)
    if isinstance(found["executor"], str):
        check_executor(found["executor"])
    plan = Plan(
        **{
            name: found[name]
            for name in (
                *("chains", "draws", "warmup", "target_se", "max_draws"),
                *("base", "log_zeta", "threads", "max_seconds", "thin"),
            )
        },
        hints=Hints(found["search_radius"]),
        recipe=recipe,
        keep=None if found["keep"] is None else tuple(found["keep"]),
        draws_given=draws_given,
    )
    rest = (
        found[name] for name in ("seed", "executor", "checkpoint", "progress", "inits", "store")
    )
    engine = _engine(found["engine"], method, spread=found["executor"] is not None)
    return Asked(plan, engine, *rest)


def _refuse_option(method: Method[Any], name: str) -> None:
    """Raise for an unknown option, with a hint if it is a setting of the method."""
    kind, own, hint = type(method).__name__, method.record(), None
    if method.is_built_in:
        kind = f"stanct.{kind}"
    meant = ELSEWHERE.get(name, name)
    others = [m for m, one in METHODS.items() if meant in (f.name for f in fields(one))]
    nearest = ELSEWHERE.get(name) or near(name, [*declared(Options), *own])
    if name in own:
        hint = f"It is a setting of the method: did you mean {kind}({name}=...)?"
    elif others and meant not in own:
        hint = (
            f"{method.name} has no such setting: did you mean "
            f"method=stanct.{METHODS[others[0]].__name__}({meant}=...)?"
        )
    elif nearest in own:
        hint = f"Did you mean {kind}({nearest}=...)?"
    elif ELSEWHERE.get(name) == "inits":
        hint = "Did you mean inits=..., from which the search for modes starts?"
    elif nearest in declared(Options):
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


def _check_storing(method: Method[Any], found: Mapping[str, Any]) -> None:
    """Check `thin`, `keep`, `store` and `checkpoint` against each other and the method."""
    for name, default in (("thin", 1), ("store", None)):
        if found[name] != default and not method.thins:
            able = listing(repr(name) for name, kind in METHODS.items() if kind.thins)
            own = f"stanct.{type(method).__name__}({name}={found[name]!r})"
            raise SamplingError(
                f"Method {method.name!r} keeps all its draws in memory, so {name}= has no meaning.",
                remedy=f"Pass {own}, a setting of its own."
                if name in declared(type(method))
                else f"Leave out {name}=, or use method {able}. keep= serves every method.",
            )
    if found["store"] is not None and found["checkpoint"] is not None:
        raise SamplingError(
            "The folder of store= is a checkpoint too, and a run has one.",
            remedy="Leave out checkpoint=.",
        )
    if found["draws"] // found["thin"] < method.least_draws:
        raise SamplingError(
            f"thin={found['thin']} would leave x of {found['draws'] // found['thin']} draws.",
            remedy=f"Pass thin={max(1, found['draws'] // method.least_draws)} or less.",
        )
    keep = found["keep"]
    if keep is not None and not (keep and all(isinstance(name, str) for name in keep)):
        raise SamplingError(
            f"keep must be names of variables, not {keep!r}.", remedy="Did you mean keep=['mu']?"
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


def _engine(engine: str | CmdStan, method: Method[Any], *, spread: bool) -> CmdStan | None:
    """The CmdStan that the name stands for, or the given one; None for the embedded engine."""
    if engine in ("auto", "embedded"):
        return None
    if not method.by_nuts:
        able = listing(repr(name) for name, kind in METHODS.items() if kind.by_nuts)
        raise SamplingError(
            f"Method {method.name!r} runs on the embedded engine alone: its moves are compiled "
            "kernels.",
            remedy=f"Leave out engine=, or use method {able}.",
        )
    if spread:
        raise SamplingError(
            "An executor cannot run CmdStan, which starts processes of its own on this machine.",
            remedy="Leave out engine=, and the executor's workers run compiled kernels, or leave "
            "out executor=.",
        )
    return CmdStan.here(opencl=engine == "opencl") if isinstance(engine, str) else engine
