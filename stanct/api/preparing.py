"""Prepares a run: reads the program with its data, and refuses what cannot be sampled.

All of this happens before any work, in the time that the run may take.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stanct import kernels
from stanct.bases.fits import SEARCHED
from stanct.bases.forms import nearer
from stanct.bases.known import Hints
from stanct.common.deadline import OutOfTime, deadline
from stanct.common.errors import SamplingError, TooLittleTimeError
from stanct.common.resources import memory
from stanct.common.seeds import Seeds
from stanct.common.settings import refuse_unknown
from stanct.engines.cmdstan import CmdStan
from stanct.engines.native import end_compilers
from stanct.path.base import Base
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.runs.unconstrained import sampled
from stanct.samplers._job import Plan
from stanct.samplers._method import Method
from stanct.samplers.options import is_base
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.targets.inits import Inits, places_of
from stanct.targets.program_target import ProgramTarget
from stanct.work.interrupts import heard

MOST = 10_100
"""Largest number of parameters without base='low_rank', for 10,000 groups and what they share: a
dense matrix has 800 MB, and so have 10,000 draws."""


@dataclass(frozen=True)
class Asked:
    """Checked options."""

    plan: Plan
    engine: CmdStan | None
    seed: int | None
    executor: Executor | str | None
    checkpoint: str | os.PathLike[str] | None
    progress: bool
    inits: Inits | None
    store: str | os.PathLike[str] | None


def prepared(method: Method[Any], target: Any, asked: Asked) -> tuple[Any, Plan]:
    """Read the program with its data, refuse what cannot be sampled, and return it with the plan.

    Ctrl-C and the deadline, with `TooLittleTimeError`, end this even where Stan does not return.
    """
    seconds = asked.plan.max_seconds
    try:
        # A time of 0 seconds asks for what a checkpoint holds.
        with deadline(seconds or None):
            return heard(lambda: _made(method, target, asked))
    except KeyboardInterrupt as stop:
        end_compilers()
        if not isinstance(stop, OutOfTime):
            raise
        raise TooLittleTimeError(
            f"max_seconds={seconds:g} passed before the target could be evaluated.",
            remedy="Allow more time if a CmdStan compiles it, which takes about a minute once. "
            "Otherwise see that all loops have an end, those of the transformed data first.",
        ) from None


def _made(method: Method[Any], target: Any, asked: Asked) -> tuple[Any, Plan]:
    plan, problem = asked.plan, target
    if asked.inits is not None or plan.hints:
        _check_searched(plan.base)
        plan = replace(plan, hints=Hints(plan.hints.radius, places_of(problem, asked.inits)))
    if not isinstance(plan.base, str) and not is_base(plan.base):
        seeds = Seeds(asked.seed or 0)
        problem, base = _base_of_fit(problem, plan.base, seeds.stream("fit"))
        plan = replace(plan, base=base)
    blind = isinstance(plan.base, str) and asked.inits is None
    _try_density(problem, plan.base, asked.engine, blind=blind)
    if asked.executor is None and not (method.by_nuts and asked.engine):
        kernels.compile_ahead(method.loops)
    _check_kept(plan, problem)
    _check_memory(plan, problem, asked)
    return problem, plan


def _check_kept(plan: Plan, problem: Any) -> None:
    """Refuse names of variables that the program does not have."""
    if plan.keep is not None and isinstance(problem, ProgramTarget):
        known = problem.variable_names
        for name in plan.keep:
            if name not in known:
                refuse_unknown("variable", name, known)


def _check_memory(plan: Plan, problem: Any, asked: Asked) -> None:
    """Refuse draws of all variables that are larger than the memory of this machine."""
    if plan.keep is not None or asked.store is not None or not isinstance(problem, ProgramTarget):
        return
    needed = 8 * problem.density.numbers * plan.chains * plan.draws / plan.thin
    if needed > memory():
        raise SamplingError(
            f"All variables of {plan.chains} × {plan.draws} draws take {needed / 1e9:.1f} GB, and "
            f"this machine has {memory() / 1e9:.1f} GB of memory.",
            remedy="Name the variables to keep (keep=), keep fewer draws (thin=), or keep them in "
            "files (store=FOLDER).",
        )


def _try_density(problem: Any, base: str | Base, engine: CmdStan | None, *, blind: bool) -> None:
    """Refuse what fails before any work; with `blind`, also a density that is finite nowhere."""
    if isinstance(problem, ProgramTarget):
        count = problem.density.dimension
        dense = engine is not None or problem.by_cmdstan
        thin = not dense and (base == "low_rank" or not isinstance(base, str))
        if count > MOST and not thin:
            raise SamplingError(
                f"{problem.program.label} has {count} unconstrained parameters with these data, "
                f"and this run {MOST} at most.",
                remedy="Pass base='low_rank' and few draws, without engine=. Each draw of all "
                f"parameters takes {16 * count / 1e6:.1f} MB.",
            )
        if blind:
            problem.refuse_rejection()
    elif isinstance(problem, FunctionTarget) and not isinstance(base, str):
        density = problem.density
        if isinstance(density, FunctionDensity) and base.dimension == density.dimension:
            density.check(base.unwhiten(base.draw(np.random.default_rng(0), 50)))


def _check_searched(base: Any) -> None:
    """Refuse hints to a search that is not made."""
    if not (isinstance(base, str) and base in SEARCHED):
        given = repr(base) if isinstance(base, str) else "your own"
        raise SamplingError(
            f"inits and search_radius are for the search for modes, and the base {given} makes "
            "none.",
            remedy=f"Leave them out, or pass base={SEARCHED[0]!r}.",
        )


def _base_of_fit(target: Any, fit: Any, rng: np.random.Generator) -> tuple[ProgramTarget, Base]:
    """The Gaussian of a fit's draws, and the target in the form nearest to a Gaussian by them."""
    if not isinstance(target, ProgramTarget):
        raise SamplingError(
            "A fit as base needs a Stan program, which this target has not.",
            remedy="Pass base=GaussianBase(...).",
        )
    x = sampled(target, fit, rng).x
    form, points = nearer(target, x.reshape(-1, x.shape[-1]))
    return form, GaussianBase.from_covariance(*gaussian_moments(points))
