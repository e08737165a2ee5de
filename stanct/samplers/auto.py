"""The default method: pilots decide what samples the target, and failed checks change it.

A search finds the modes and pilots measure them (`stanct.bases.modes`). Their Gaussians make a
base, and a thousand draws of it tell how far it is from the target. A base that nearly is the
target needs no path: its own draws are accepted or rejected. Where modes lie apart and are known,
and where mass lies in tails or along ridges, simulated tempering redraws from a mixture. It is also
chosen where the target is far from its base, as with thousands of modes, because its warm-up learns
the bias step by step. Everything else is left to joint continuous tempering by NUTS, and so are the
modes of centred hierarchies. Where nobody asked for a number of draws or an error, a run stops when
it has enough (`Enough`). Where checks fail, a longer run of the same method follows, or one of
another method, within the budget. The run says what was done and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stanct.bases.fits import FittedBase
from stanct.bases.known import Survey
from stanct.bases.local import MOST_DENSE
from stanct.bases.loop import effort_of
from stanct.bases.pilots import SHALLOW
from stanct.bases.recipes import AUTO, RECIPES
from stanct.bases.score import SCORED, Score
from stanct.common.arrays import log_sum_exp
from stanct.common.deadline import out_of_time
from stanct.common.errors import LostExecutorError, counted
from stanct.common.names import MODES
from stanct.common.seeds import Seeds
from stanct.common.settings import Real, Whole
from stanct.estimates.tours import ENOUGH_TOURS, FEWEST_TOURS
from stanct.path.base import lent
from stanct.path.grids import GridsBase
from stanct.path.mixture import MixtureBase
from stanct.path.product import ProductBase
from stanct.runs.tempered import TemperedRun
from stanct.runs.verdicts import mendable
from stanct.samplers._beyond import endless_early, named_endless
from stanct.samplers._job import Job
from stanct.samplers._method import Method
from stanct.samplers._precision import Enough
from stanct.samplers._rounds import refuse_huge
from stanct.samplers._two_stages import as_two_stages, two_stages_note
from stanct.samplers.independence import Independence
from stanct.samplers.joint import Joint
from stanct.samplers.simulated_tempering import SimulatedTempering
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.work.workers import warn_of

# Draws of a base in two stages cost many gradients each, so that the bias is learned from fewer.
NESTED_TRIAL = 250
# Simulated tempering takes over where half of the width of δ over draws of the base is more than
# this. On relaxations of Boltzmann machines with 8 to 30 units, joint tempering had the smaller
# error at equal cost in one case, at 7.6, and in none above 9. On radon and on Poisson counts in a
# hundred groups, which are at 3.5, it had half the error of simulated tempering.
FAR = 8.0
# A failed run is repeated with this many times its draws, or as many as the budget allows, but not
# with fewer than `LEAST_LONGER` times. A draw of the base costs one density, where others cost
# dozens of gradients, so there are up to `INDEPENDENT` times as many, but in at most `MOST_DENSE`
# dimensions, where draws take little memory. With much data a density is slow; then there are
# fewer.
LONGER, LEAST_LONGER, INDEPENDENT = 4.0, 1.5, 4
# Runs at most.
MOST_STEPS = 3
# Coordinates that a reason names, at most.
NAMED = 5
# Draws of each chain where the integral of the density has no end, and nothing follows from them.
FEW = 100

_JOINT, _LADDER, _INDEPENDENT = Joint(), SimulatedTempering(), Independence()
_IN_TWO_STAGES = Independence(trial=NESTED_TRIAL)


class _Step(NamedTuple):
    """A method, its draws and why, with a base of its own, or again after a shorter run."""

    method: Method[TemperedRun]
    draws: int
    because: str
    start: FittedBase | None = None
    again: bool = False

    def record(self, run: TemperedRun) -> dict[str, Any]:
        """The step and its run for provenance, JSON values only."""
        found = {
            "method": self.method.name,
            "draws": self.draws,
            "because": self.because,
            "gradients": run.gradients,
            "made": run.draws,
        }
        stopped = run.provenance["stopping"]
        ended = {"reached": "enough", "limit": "limit"}.get(stopped["reason"])
        return found | ({ended: stopped} if ended and stopped["effective"] else {})


@dataclass(frozen=True, kw_only=True)
class Auto(Method[TemperedRun]):
    """The default: pilots choose the method, and failed checks lead to more work.

    Attributes
    ----------
    max_gradients
        The most gradients that runs after the first may bring the total to. A longer run is
        shortened to fit, or left out, whatever the checks say.
    enough_se, enough_draws
        A run to which neither `draws` nor `target_se` is given stops once the standard error of
        log Z is at most the first, and the mean of each parameter, unconstrained, is as precise as
        that of so many independent draws of your density; and after 2,500 draws of each chain at
        the latest, or 10,000 independent ones.
    """

    name: ClassVar[str] = "auto"
    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 500
    default_base: ClassVar[str] = MODES
    least_warmup: ClassVar[int] = 150
    aims: ClassVar[bool] = True
    thins: ClassVar[bool] = True
    by_nuts: ClassVar[bool] = True
    in_two_stages: ClassVar[bool] = True
    # Those of its search come first; NUTS may not be wanted.
    loops: ClassVar[tuple[str, ...]] = "evaluate", "anneal", "evaluate_extended", "nuts_draws"
    # CmdStan's NUTS cannot halve single steps, which necks of funnels need.

    max_gradients: Annotated[int, Whole(0)] = 3_000_000
    enough_se: Annotated[float, Real(0)] = 0.02
    enough_draws: Annotated[int, Whole(1)] = 1000

    def run(self, job: Job) -> TemperedRun:
        """Fit a base, choose a method, run it, and go on while checks fail."""
        # The base of a density without an end may lie where its numbers overflow.
        start = _for_necks(job.target, job.start(sampled=True, refuse=False))
        asked = job.plan.record()
        if not job.plan.draws_given:
            asked["draws"] = None
            if job.plan.target_se is None:
                enough = Enough(self.enough_se, self.enough_draws)
                job = replace(job, plan=replace(job.plan, enough=enough))
        if is_endless := endless_early(job.target, start.points, job.ledger):
            few = min(job.draws, FEW)
            job = replace(job, plan=replace(job.plan, draws=few, target_se=None, enough=None))
        with named_endless(job.ledger):
            refuse_huge(job.target, start.base)
        step = _choice(job, start)
        step = _shallow(step, start) if is_endless else step
        steps: list[dict[str, Any]] = []
        kept: TemperedRun | None = None
        while True:
            before = job.ledger.gradients
            seeds = job.seeds.within("attempt", len(steps)) if steps else job.seeds
            try:
                own = _own(job, step.method, step.draws, seeds, step.start or start)
                own = replace(own, plan=replace(own.plan, enough=_enough(step, job.plan.enough)))
                with named_endless(job.ledger):
                    run = step.method.run(own)
            except (KeyboardInterrupt, LostExecutorError) as stop:
                if kept is None:
                    raise
                run = _stopped(stop, kept, job)
                break
            steps.append(step.record(run))
            if run.provenance["interrupted"] or (run.ended_early and kept is None):
                run = _longer(kept, run, job)
                break  # who ends a run early does not wait for its checks
            try:
                failed = mendable(run.diagnostics)
                evidence = run.bare_evidence
            except KeyboardInterrupt as stop:  # finished draws do not need their checks
                run = _longer(kept, _stopped(stop, run, job), job)
                break
            steps[-1] |= {
                "failed": failed,
                "log_z": evidence.log_z,
                "std_error": evidence.std_error,
            }
            if run.ended_early and kept is not None:
                run = _better(kept, steps[-2]["failed"], run, failed, job)
                break
            few = "" if _are_short(step) else _few_tours(run)
            why = f"checks failed: {', '.join(failed)}" if failed else few
            stop = not why or len(steps) == MOST_STEPS or "improper" in run.warnings
            # How many times the last run the rest of the budget would pay for.
            spent = max(run.gradients - before, 1)
            room = (self.max_gradients - run.gradients) / spent
            done = step._replace(draws=run.draws)
            following = None if stop else _next(done, why, start, job.draws, room)
            if following is None:
                if why and "improper" not in run.warnings:
                    steps[-1]["rest"] = {"despite": why, "because": self._no_more(run, steps)}
                break
            if done.start is not None and following.start is None and start.nested is not None:
                log_z, error = evidence.log_z, evidence.std_error
                job.ledger.found |= as_two_stages(log_z, error, start.nested.outer)
            kept, step = run, following
        provenance = {
            **run.provenance,
            "asked": {
                "method": self.name,
                "settings": self.record(),
                "options": {**asked, "seed": job.execution.seed},
            },
            "steps": steps,
        }
        return replace(run, provenance=provenance)

    def _no_more(self, run: TemperedRun, steps: list[dict[str, Any]]) -> str:
        """Why no further run follows one that is not enough."""
        if len(steps) == MOST_STEPS:
            return f"{MOST_STEPS} runs are the most"
        left = max(self.max_gradients - run.gradients, 0)
        return (
            f"{left:,} gradients are left of max_gradients={self.max_gradients}, too few for a run "
            f"{LEAST_LONGER:g} times as long"
        )


def _own(job: Job, method: Method[Any], draws: int, seeds: Seeds, start: FittedBase) -> Job:
    """The job as a method of its own, with its base where that is known."""
    return replace(
        job,
        method=method.name,
        settings=method.record(),
        plan=replace(job.plan, draws=draws),
        engine=job.engine if method.by_nuts else None,
        seeds=seeds,
        fitted=start,
        two_stages_tried=not start.given,
    )


def _for_necks(target: SampledTarget, start: FittedBase) -> FittedBase:
    """One Gaussian around the modes where a hierarchy is sampled in its centred form.

    Moves of fixed length miss its necks: P(log τ < −2) was .017 instead of .050 on two lines.
    """
    base = start.base
    if not (_has_necks(target) and start.separated and isinstance(base, MixtureBase)):
        return start
    return start if start.given else replace(start, base=base.whitening)


def _has_necks(target: SampledTarget) -> bool:
    """Whether a hierarchy is sampled in its centred form."""
    return isinstance(target, ProgramTarget) and target.written_centred


def _choice(job: Job, start: FittedBase) -> _Step:
    """The first method, and why."""
    score, nested = start.score, start.nested
    if nested is not None and nested.base is not None:
        return _Step(
            _IN_TWO_STAGES,
            job.draws,
            f"all other parameters are {nested.form} given {_some(nested.outer)}",
            replace(start, base=lent(nested.base, job.borrow)),
        )
    if nested is not None:
        job.ledger.found |= two_stages_note(nested)
    if score is None:
        score = Score.of(job.base_delta(start.base, SCORED, "trial"))
    largest = float(f"{score.largest:.2g}")
    seen = (
        f"{score.even:.0%} of its draws count, and the largest weight is {largest:,.10g} times the "
        "mean"
    )
    recipe = job.recipe or RECIPES[AUTO]
    if recipe.believes(score):
        why = f"{_shape(start)} is nearly the density: {seen}"
        # Fewer where log densities are slow.
        times = INDEPENDENT if start.base.dimension <= MOST_DENSE else 1
        draws = max(int(times * effort_of(job.target) * job.draws), job.draws)
        return _Step(_INDEPENDENT, draws, why)
    needs = [f"more than {recipe.even:.0%}"] if score.even <= recipe.even else []
    needs += [f"less than {recipe.bounded:g} times"] if score.largest >= recipe.bounded else []
    seen += f" (independent draws need {' and '.join(needs)})"
    if not start.base.is_gaussian:
        return _Step(_LADDER, job.draws, f"{_shape(start)} is not near enough: {seen}")
    far = score.width > FAR and not _has_necks(job.target)
    how = f"{'far from' if far else 'near'} the density"
    why = f"{_shape(start)} is {how}: δ varies by ± {float(f'{score.width:.2g}'):g}, {seen}"
    return _Step(_LADDER if far else _JOINT, job.draws, why)


def _shallow(step: _Step, start: FittedBase) -> _Step:
    """The step where the integral has no end: nothing follows from its draws, and trajectories
    along flat directions turn nowhere.
    """
    if step.method not in (_JOINT, _LADDER):
        return step
    base, method = start.base, replace(_JOINT, max_depth=SHALLOW)
    if isinstance(base, MixtureBase | ProductBase | GridsBase):
        start = replace(start, base=base.whitening)
    return step._replace(method=method, because="the integral has no end", start=start)


def _shape(start: FittedBase) -> str:
    """What a base is, in the words of a statistician."""
    if start.given:
        return "your base"
    if isinstance(start.base, ProductBase):
        return "a product with a density for each parameter"
    if isinstance(start.base, GridsBase):
        return "a product with a density for each pair of parameters"
    survey = start.survey
    if start.base.is_gaussian:
        if start.separated and survey is not None:
            return f"one Gaussian around {_modes(survey)}"
        return "one Gaussian"
    has = []
    if start.separated and survey is not None:
        has.append(_modes(survey))
    if start.tails:
        has.append(f"heavy tails of {_some(start.tails)}")
    if start.ridges:
        has.append(f"skewed or bent {_some(start.ridges)}")
    return f"a mixture for {' and '.join(has) or 'the mode'}"


def _modes(survey: Survey) -> str:
    """How many modes there are, and their shares of the mass."""
    log_mass = survey.log_evidence
    share = 100 * np.exp(log_mass - log_sum_exp(log_mass))
    known = " : ".join(f"{one:.0f}" if one >= 0.5 else "<1" for one in share[:NAMED])
    around = survey.around
    count = counted(len(share) - around, "mode")
    wide = f" and wide mass around {'it' if count == '1 mode' else 'them'}" if around else ""
    return f"{count}{wide} ({known}{' …' if len(share) > NAMED else ''})"


def _some(names: tuple[str, ...]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _enough(step: _Step, usual: Enough | None) -> Enough | None:
    """What is enough for a step: all its draws if what was enough before did not pass."""
    if step.again or usual is None:
        return None
    return replace(usual, tours=FEWEST_TOURS) if _are_short(step) else usual


def _are_short(step: _Step) -> bool:
    """Whether tours are short: of independent draws with bounded weights, or of a longer run."""
    return isinstance(step.method, Independence) and (step.again or step.start is None)


def _few_tours(run: TemperedRun) -> str:
    """In words that few tours make up the error of log Z; empty where they are enough."""
    for check in run.diagnostics:
        if check.name == "few_tours" and check.value < ENOUGH_TOURS:
            return f"the error of log Z rests on {check.value:.1f} effective tours"
    return ""


def _longer(kept: TemperedRun | None, run: TemperedRun, job: Job) -> TemperedRun:
    """The run that the user ended, or the one before it if that has more draws."""
    return run if kept is None or run.draws >= kept.draws else _ended_early(kept, job)


def _better(
    kept: TemperedRun, known: list[str], run: TemperedRun, failed: list[str], job: Job
) -> TemperedRun:
    """The run that the deadline ended, or the one before it if fewer of that one's checks failed.

    Where as many failed, the run with more draws is better.
    """
    if (len(failed), -run.draws) <= (len(known), -kept.draws):
        return run
    return _ended_early(kept, job)


def _stopped(stop: BaseException, run: TemperedRun, job: Job) -> TemperedRun:
    """The finished run that is kept when the user, the deadline or the executor stops the next."""
    if isinstance(stop, LostExecutorError):
        warn_of(stop)
    job.execution.seal()
    return _ended_early(run, job)


def _ended_early(run: TemperedRun, job: Job) -> TemperedRun:
    """A finished run, after which the user or the deadline ended another one."""
    ending = {"interrupted": not out_of_time(), "out_of_time": out_of_time()}
    return replace(run, provenance={**run.provenance, **job.ledger.record(), **ending})


def _next(done: _Step, why: str, start: FittedBase, first: int, room: float) -> _Step | None:
    """The step after a run that is not enough; None where the budget has no room for it.

    `first` is the number of draws of a method's first run, and `room` how many times as long a run
    the budget has left.
    """
    longer = min(LONGER, room)
    two_stages = done.start is not None
    # Only independent draws of a product are to be had.
    product = isinstance(start.base, ProductBase | GridsBase) and not two_stages
    longer = 0.0 if product and done.again else longer
    if (
        isinstance(done.method, Independence)
        and not product
        and (done.again or not two_stages or longer < LEAST_LONGER)
    ):
        return _Step(_JOINT if start.base.is_gaussian else _LADDER, first, why)
    if longer < LEAST_LONGER:
        return None
    return _Step(done.method, int(longer * done.draws), why, done.start, again=True)
