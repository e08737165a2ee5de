"""The first base of a run, either fitted by name or given and checked."""

from __future__ import annotations

from functools import partial

import numpy as np

from stanct.bases.fits import MIXTURE_METHODS, FittedBase, fit_base
from stanct.bases.modes import Hints
from stanct.common.errors import SamplingError
from stanct.common.names import GAUSSIAN_BASES, MODES
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.targets.once import refuse_random_data
from stanct.targets.program_target import ProgramTarget
from stanct.work.execution import Executed, Execution
from stanct.work.interrupts import heard

# Number of draws of a given base for the guess of log ζ.
ROUGH_DRAWS = 200


def first_base(
    target: Executed,
    base: str | Base,
    log_zeta: float | None,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    execution: Execution,
    engine: CmdStan | None = None,
    bootstrap: int = 0,
    sampled: bool = False,
    hints: Hints | None = None,
) -> FittedBase:
    """Fit the base that `base` names, or check a given base and guess a missing log ζ.

    Parameters
    ----------
    base, log_zeta
        A name that `fit_base` knows, or a base with its guess at log Z.
    chains, nuts, engine
        As in `fit_base`.
    execution
        Runs the fit as a step that a checkpoint stores, in one worker of an executor.
    bootstrap
        Number of rounds that will refit the base, which a mixture does not allow.
    sampled
        Whether the method draws from its base at β = 0, which makes a mixture possible.
    hints
        As in `fit_base`.

    Raises
    ------
    SamplingError
        The settings contradict each other or the target.
    ProgramError
        The transformed data are random.
    """
    if isinstance(target, ProgramTarget):
        refuse_random_data(target.program)
    if base in ("mixture", MODES) if isinstance(base, str) else not base.is_gaussian:
        check_mixture(bootstrap, sampled, named=isinstance(base, str))
    if isinstance(base, str):
        if log_zeta is not None:
            raise SamplingError(
                "log_zeta belongs to a base of your own.", remedy="Pass base=GaussianBase(...) too."
            )
        if not isinstance(target, ProgramTarget):
            raise SamplingError(
                f"The base {base!r} is fitted to a Stan program, and this target has none.",
                remedy="Pass base=GaussianBase(...).",
            )
        fit = partial(
            fit_base,
            target,
            base,
            chains=chains,
            seed=seed,
            nuts=nuts,
            engine=engine,
            progress=execution.progress and execution.executor is None,
            hints=hints,
        )
        return execution.once("base", lambda: execution.away("base", fit))
    if base.dimension != target.density.dimension:
        raise SamplingError(
            f"The base has {base.dimension} dimensions, the program "
            f"{target.density.dimension} unconstrained parameters."
        )
    if log_zeta is not None:
        return FittedBase(base, log_zeta, given=True)
    # In a thread, because a slow Python function would keep the deadline from being heard.
    guess = partial(_rough_log_zeta, target, base, seed)
    (rough,) = execution.once("log zeta", lambda: [heard(guess)])
    return FittedBase(base, rough, evaluations=ROUGH_DRAWS, given=True)


def check_mixture(bootstrap: int, sampled: bool, *, named: bool) -> None:
    """Refuse a mixture base if the method cannot use it."""
    if not sampled:
        other = ", ".join(GAUSSIAN_BASES) if named else "a GaussianBase"
        raise SamplingError(
            "This method moves through its base and would not cross between a mixture's parts.",
            remedy=f"Use a method that draws from its base ({', '.join(MIXTURE_METHODS)}; gibbs "
            f"does so at its atom, atom=0.05), or another base: {other}.",
        )
    if bootstrap:
        raise SamplingError("A mixture base is not refitted.", remedy="Pass bootstrap=0.")


def _rough_log_zeta(target: Executed, base: Base, seed: np.random.SeedSequence) -> float:
    """Minus the median of finite δ over draws of the base, which is usually below log Z."""
    z = base.draw(np.random.default_rng(seed), ROUGH_DRAWS)
    delta = base.delta(z, target.density.log_densities(base.unwhiten(z)))
    finite = delta[np.isfinite(delta)]
    if finite.size == 0:
        raise SamplingError(
            f"The target vanishes at all of {ROUGH_DRAWS} draws from the given base.",
            remedy="Pass a base that overlaps the target.",
        )
    return float(-np.median(finite))
