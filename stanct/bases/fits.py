"""Fits a base by the makers of a recipe or checks a given one, and guesses log Z."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from stanct.bases.known import FitSeeds, Hints, Optima, Survey
from stanct.bases.local import MOST_DENSE
from stanct.bases.loop import Purse, Recipe, Stage, State, asked, effort_of
from stanct.bases.nested import Nested
from stanct.bases.recipes import RECIPES
from stanct.bases.score import Score
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.names import FITS, GAUSSIAN_BASES, MODES
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.targets.once import refuse_random_data
from stanct.targets.program_target import ProgramTarget
from stanct.work.execution import Executed, Execution
from stanct.work.interrupts import heard
from stanct.work.progress import Bar

SEARCHED = ("pilot", "low_rank", "mixture", MODES)
"""The fits that begin with a search for modes, and can therefore heed `Hints`."""
MIXTURE_METHODS = (
    "gibbs", "simulated_tempering", "parallel_tempering", "ais", "independence", "auto"
)  # fmt: skip
"""Methods that draw from their base, and can therefore use a mixture."""

# A refit never shrinks the base's variance in any direction below this factor, because a round that
# missed a corner must not lock it out.
LEAST_SHRINKAGE = 0.2

# Number of draws of a given base for the guess of log ζ.
ROUGH_DRAWS = 200

# Share of the density of β that is uniform where modes lie apart; the rest follows the speed of the
# path. Elsewhere all of it is uniform: draws near β = 1 are worth more than trips to the base.
UNIFORM = 0.5


@dataclass(frozen=True)
class FittedBase:
    """A base with the guess log ζ at log Z, and the cost of both.

    Attributes
    ----------
    separated
        Whether pilots stayed in modes of their own.
    survey
        The modes behind a base that pilots fitted.
    points : shape (n, D)
        Unconstrained draws of pilots, from every mode; None where no pilots ran.
    nested
        What is known of a base in two stages, where one was looked for.
    """

    base: Base
    log_zeta: float
    gradients: int = 0
    evaluations: int = 0
    separated: bool = False
    survey: Survey | None = None
    tails: tuple[str, ...] = ()
    ridges: tuple[str, ...] = ()
    points: Array | None = field(default=None, repr=False)
    given: bool = False
    nested: Nested | None = field(default=None, repr=False)
    score: Score | None = None
    road: tuple[Stage, ...] = field(default=(), repr=False)

    @property
    def least_shrinkage(self) -> float:
        """The smallest factor by which refits may shrink the base's variance in any direction.

        The factor is 1 where modes lie apart, because a round that missed some of them would lock
        them out. Nor does a refit narrow a base that the user gave, who may know of more modes.
        """
        return 1.0 if self.separated or self.given else LEAST_SHRINKAGE

    @property
    def uniform(self) -> float:
        """Share of the density of β that is uniform; see `Course.log_density`."""
        return UNIFORM if self.separated else 1.0


def fit_base(
    target: ProgramTarget,
    name: str,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    progress: bool = False,
    hints: Hints | None = None,
    recipe: Recipe | None = None,
) -> FittedBase:
    """Fit the base that a name stands for, and log ζ.

    Parameters
    ----------
    name
        ``"pilot"``: Pathfinder finds the modes from several starts, short NUTS chains from there
        measure their shape, and bridge sampling measures their mass. If the chains stay apart,
        annealed scouts explore between and beyond them, and the base takes their spread.
        ``"pathfinder"``: Pathfinder's own Gaussians, weighted by evidence lower bounds.
        ``"laplace"``: Gaussians at the modes that L-BFGS finds. This is a poor choice for
        hierarchical programs, whose mode lies in the neck of a funnel.
        ``"low_rank"``: as ``"pilot"``, but with a diagonal and a low rank in place of a dense
        covariance, from the pilots' draws or the endpoints of the scouts.
        ``"mixture"``: a Gaussian for each mode of the pilots, weighted by its mass. No scouts
        search for more modes. Only for methods that draw from their base.
        ``"modes"``: ``"mixture"`` with a wide part where pilots stay apart and no further modes
        are likely, and with Gaussians that reach into heavy tails and along ridges. Otherwise it is
        ``"pilot"``.
        Only for methods that draw from their base.

        With more than `MOST_DENSE` parameters, ``"pilot"``, ``"modes"`` and ``"low_rank"`` are one
        (`stanct.bases.wide`): diagonal plus low rank, from pilots without a search. ``"modes"``
        then is the Gaussian of the only mode's curvature where that explains the target.
        ``"advi"``: full-rank variational fits of the modes at which Pathfinder ends, weighted by
        evidence lower bounds; see `stanct.bases.variational`.

    Raises
    ------
    SamplingError
        The base does not exist, or not for this program.
    EngineError
        No start worked.
    """
    _check_name(name, target)
    return _fitted(
        explored(
            target, recipe or RECIPES[name], chains=chains, seed=seed, nuts=nuts,
            progress=progress, hints=hints,
        )
    )  # fmt: skip


def explored(
    target: ProgramTarget,
    recipe: Recipe,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    progress: bool = False,
    hints: Hints | None = None,
) -> State:
    """What is known of a target after all makers of a recipe were asked; see `fit_base`."""
    seeds, effort = FitSeeds.of(seed), effort_of(target)
    with Bar(0, "base", shown=progress) as bar:
        state = State(
            target, recipe, chains, nuts, hints or Hints(), seeds,
            np.random.default_rng(seeds.points), bar, Purse(effort * recipe.gradients),
        )  # fmt: skip
        for number, maker in enumerate(recipe.makers, 1):
            bar.begin(maker.name, number, len(recipe.makers))
            state = asked(maker, state)
    if any(maker.scored for maker in recipe.makers) and not state.in_two_stages:
        state = state.scored()
    return state


def _fitted(state: State) -> FittedBase:
    """The base that makers found."""
    base, log_zeta = state.base()
    survey = state.survey
    if survey is None and state.modes is not None and state.recipe.maker("pilots") is not None:
        survey = Survey.of(state.modes)
    # The density of a unit vector's coordinates is highest at their origin, where no direction is.
    directed = isinstance(state.target, ProgramTarget) and any(
        one.type == "unit_vector" for one in state.target.program.parameters
    )
    if survey is not None and not directed:
        survey = replace(survey, optima=Optima.of(state.search.optima))
    gradients, evaluations = state.purse.spent
    return FittedBase(
        base,
        log_zeta,
        gradients,
        evaluations,
        separated=survey is not None and len(survey.log_evidence) > 1,
        survey=survey,
        tails=state.tails,
        ridges=state.ridges,
        points=state.points,
        nested=state.nested,
        score=state.score,
        road=tuple(state.purse.stages),
    )


def _check_name(name: str, target: ProgramTarget) -> None:
    if name == "mixture" and target.density.dimension > MOST_DENSE and not target.by_cmdstan:
        raise SamplingError(
            f"A mixture base has {MOST_DENSE} dimensions at most, and {target.program.label} has "
            f"{target.density.dimension} unconstrained parameters with these data.",
            remedy="Use base='low_rank', or a base of your own.",
        )
    if name in ("pathfinder", "laplace", "advi") and target.by_cmdstan:
        raise SamplingError(
            f"The base {name!r} is fitted by the embedded engine, which cannot run "
            f"{target.program.label}.",
            remedy="Use base='pilot'.",
        )
    if name not in FITS:
        raise SamplingError(
            f"There is no base {name!r}.",
            remedy=f"Use one of {', '.join(GAUSSIAN_BASES)}, or a GaussianBase; with the methods "
            f"{', '.join(MIXTURE_METHODS)} also mixture and modes.",
        )


def first_base(
    target: Executed,
    base: str | Base,
    log_zeta: float | None,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    execution: Execution,
    bootstrap: int = 0,
    sampled: bool = False,
    hints: Hints | None = None,
    recipe: Recipe | None = None,
) -> FittedBase:
    """Fit the base that `base` names, or check a given base and guess a missing log ζ.

    Parameters
    ----------
    bootstrap
        Number of rounds that will refit the base, which a mixture does not allow.
    sampled
        Whether the method draws from its base at β = 0, which makes a mixture possible.

    Raises
    ------
    SamplingError
        The settings contradict each other or the target.
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
            progress=execution.progress and execution.executor is None,
            hints=hints,
            recipe=recipe,
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
