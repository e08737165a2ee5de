"""How a base is found: makers propose in turn, one score judges, and one purse pays.

A maker is a frozen dataclass whose fields are its constants, each with its rule. It looks at what
is known of the target (`State`), spends gradients from the purse, and returns a `Proposal`: modes,
parts of a mixture, or a density that takes the place of all that. What each maker spent and gained
is its `Stage`. The stages are the road of a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from stanct.bases.known import FitSeeds, Hints, Modes, Survey
from stanct.bases.local import LocalFit, mixture_of, moment_match
from stanct.bases.nested import Nested
from stanct.bases.score import SCORED, Score
from stanct.bases.search import NOTHING, Search
from stanct.bases.weights import SAMPLE, reweighted
from stanct.common.arrays import Array
from stanct.common.errors import EngineError, SamplingError
from stanct.common.settings import Real, Whole, check_fields, refuse_unknown
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.path.gaussian import GaussianBase
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.work.progress import Bar

# With more characters of data, some 150,000 numbers, a log density takes milliseconds, and tens of
# thousands of them minutes. Makers then spend less, in proportion. With a limit of time, draws
# would depend on the machine. A density that solves equations takes about as long as with so many
# times as much, however few data it has.
MUCH_DATA, SOLVING = 1_000_000, 20
# The purse of which makers take shares, in gradients.
USUAL = 3_000_000
# A proposal that is judged stays if the share of the base's draws that count grows by this.
GAIN = 0.05
# A low-rank base is fitted to at least so many points.
LOW_RANK_DRAWS = 600


def effort_of(target: SampledTarget) -> float:
    """Share of the usual work that is allowed: less where a log density takes milliseconds."""
    least = isinstance(target, ProgramTarget) and target.solves_equations
    return min(1 / SOLVING if least else 1.0, MUCH_DATA / max(len(target.data_text), 1))


@dataclass(frozen=True)
class Stage:
    """What one maker did: what it spent (gradients, and log densities without one), how many modes,
    parts or points it added, and what it found, in a few words.
    """

    maker: str
    gradients: int = 0
    evaluations: int = 0
    parts: int = 0
    said: str = ""

    def record(self) -> dict[str, Any]:
        """The stage for provenance, JSON values only."""
        return asdict(self)


class Purse:
    """The gradients meant for the base, out of which every maker is paid.

    Ascents, ridges and two stages take a share. Pilots, particles and scouts are counted, and not
    bounded by it. `stages` say what was paid, and for what.
    """

    def __init__(self, gradients: float) -> None:
        self._whole = gradients
        self.stages: list[Stage] = []

    @property
    def spent(self) -> tuple[int, int]:
        """Gradients and log densities without one that all makers spent."""
        return (
            sum(one.gradients for one in self.stages),
            sum(one.evaluations for one in self.stages),
        )

    @property
    def left(self) -> int:
        """Gradients that are left."""
        return max(int(self._whole) - self.spent[0], 0)

    def may_spend(self, share: float) -> float:
        """Gradients that a maker may spend which takes a share of the purse."""
        return min(self._whole * share, self.left)

    def pay(self, stage: Stage) -> None:
        """Take what a maker spent out of the purse."""
        self.stages.append(stage)


@dataclass(frozen=True)
class Proposal:
    """What a maker proposes.

    Attributes
    ----------
    parts
        Gaussians that join the base, each with its weight relative to 1 for all modes together.
    instead
        A base that takes the place of all that is known, and the guess at log Z that goes with it.
    known
        What the state knows then, by the names of its fields.
    gradients, evaluations
        What the maker spent.
    made
        How many modes or points it found, where it proposes no parts.
    said
        What it found, in a few words, for the table of steps.
    reweigh
        Whether weights of the whole mixture are to be fitted to the target, because those of the
        parts are rough. Wide parts for tails would lose theirs.
    """

    parts: tuple[tuple[float, GaussianBase], ...] = field(default=(), repr=False)
    instead: tuple[Base, float] | None = None
    known: Mapping[str, Any] = field(default_factory=dict, repr=False)
    gradients: int = 0
    evaluations: int = 0
    made: int = 0
    said: str = ""
    reweigh: bool = False


@dataclass(frozen=True)
class State:
    """What is known of a target while makers look for a base.

    Attributes
    ----------
    target
        The user's program.
    recipe
        What is wanted.
    chains, nuts, hints
        As in `fit_base`.
    seeds, rng
        Random streams of the stages, and one that several stages draw from in turn.
    bar
        The progress bar.
    purse
        Pays every maker.
    search
        What ascents found.
    near, others
        Modes that curvature has measured, and those that it cannot measure.
    approximate, failure
        What Pathfinder found, or why it found nothing.
    modes
        The measured modes.
    parts
        Gaussians beside the modes, as in `Proposal`.
    tails, ridges
        Names of coordinates along which tails are heavy, and along which ridges were followed.
    instead, log_zeta
        A base in place of the modes', and its guess at log Z.
    points : shape (n, D)
        Draws of pilots, unconstrained.
    nested
        What is known of a base in two stages.
    survey
        What a base of many parameters tells of modes.
    score
        The score of the base as it is; None where it has none yet.
    """

    target: ProgramTarget
    recipe: Recipe
    chains: int
    nuts: Nuts
    hints: Hints
    seeds: FitSeeds
    rng: np.random.Generator = field(repr=False)
    bar: Bar = field(repr=False)
    purse: Purse = field(repr=False)
    search: Search = NOTHING
    near: tuple[LocalFit, ...] = ()
    others: tuple[LocalFit, ...] = ()
    approximate: tuple[LocalFit, ...] = ()
    failure: EngineError | None = None
    modes: Modes | None = None
    parts: tuple[tuple[float, GaussianBase], ...] = ()
    tails: tuple[str, ...] = ()
    ridges: tuple[str, ...] = ()
    instead: Base | None = None
    log_zeta: float = 0.0
    points: Array | None = None
    nested: Nested | None = None
    survey: Survey | None = None
    score: Score | None = None

    @property
    def measured(self) -> Modes:
        """The measured modes, for makers that need some."""
        assert self.modes is not None
        return self.modes

    @property
    def fits(self) -> Sequence[LocalFit]:
        """A fit for each measured mode, best first."""
        return self.measured.fits

    @property
    def several(self) -> bool:
        """Whether there are several modes."""
        return len(self.fits) > 1

    @property
    def in_two_stages(self) -> bool:
        """Whether a base in two stages was found."""
        return self.nested is not None and self.nested.base is not None

    @property
    def is_settled(self) -> bool:
        """Whether no further modes are likely, so that the base may be a mixture."""
        return self.modes is not None and (self.modes.sought.complete or not self.several)

    @property
    def weights_alone(self) -> bool:
        """Whether the base as it is serves for independent draws."""
        return self.score is not None and self.recipe.believes(self.score)

    def base(self) -> tuple[Base, float]:
        """The base that follows from what is known, and the guess at log Z."""
        recipe = self.recipe
        if self.instead is not None:
            return self.instead, self.log_zeta
        if self.modes is None:
            raise SamplingError(
                f"None of the makers {', '.join(one.name for one in recipe.makers)} measured a "
                "mode.",
                remedy="Keep pilots among them.",
            )
        as_needed = recipe.shape == "modes" and (self.several or bool(self.parts))
        if recipe.shape == "mixture" or as_needed:
            share = recipe.wide_share if self.several else 0.0
            return mixture_of(self.fits, wide_share=share, width=recipe.width, beside=self.parts)
        if recipe.shape == "low rank":
            best = self.fits[0]
            return LowRankBase.from_points(enough_points(best)), best.log_evidence
        return moment_match(self.fits)

    def after(self, proposal: Proposal) -> State:
        """What is known after a proposal."""
        state = replace(self, **proposal.known)
        if proposal.parts:
            state = replace(state, parts=(*self.parts, *proposal.parts), score=None)
            if isinstance(self.instead, MixtureBase):
                shares, parts = zip(*proposal.parts, strict=True)
                known = self.instead
                joined = MixtureBase.of([*known.weights, *shares], [*known.parts, *parts])
                state = replace(state, instead=joined)
        if proposal.instead is not None:
            base, log_zeta = proposal.instead
            state = replace(state, instead=base, log_zeta=log_zeta, score=None)
        return state

    def scored(self) -> State:
        """The state with the score of its base."""
        if self.score is not None:
            return self
        score = Score.by_draws(self.base()[0], self.target, self.seeds.score)
        self.purse.pay(Stage("score", evaluations=SCORED, said=f"{score.even:.0%} of draws count"))
        return replace(self, score=score)


@dataclass(frozen=True, kw_only=True)
class Maker(ABC):
    """Base class of what looks for a base; derive from it to write your own.

    The fields of a maker are its constants. A field whose type carries a rule of
    `stanct.common.settings` is checked when the maker is created.

    Attributes
    ----------
    name
        Name of the maker in the road of a run.
    judged
        Whether its parts stay only if more draws of the base then count. Otherwise the maker itself
        has tested that they hold mass which the base misses.
    scored
        Whether the maker is asked only where independent draws of the base do not suffice.
    """

    name: ClassVar[str]
    judged: ClassVar[bool] = True
    scored: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def applies(self, state: State) -> bool:
        """Whether the maker has anything to do."""
        return state.modes is not None

    @abstractmethod
    def make(self, state: State) -> Proposal:
        """Do the work, and say what it cost."""

    def record(self) -> dict[str, Any]:
        """The name and the constants for provenance, JSON values only."""
        return {"maker": self.name, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The makers of a base, in the order in which they are asked.

    Attributes
    ----------
    name
        Name of the recipe.
    makers
        The makers.
    shape
        The kind of base that is wanted: ``"Gaussian"``, ``"low rank"``, ``"mixture"``, or
        ``"modes"`` for a mixture where there are several modes or parts, and else a Gaussian.
    gradients
        The purse from which makers are paid.
    wide_share, width
        Share of a mixture of several modes that is one wide Gaussian, and its covariance relative
        to the mixture's. A mode that was missed is within its reach.
    even, bounded
        Draws of the base suffice if their weights are this even, and none is larger than the second
        times their mean. On eight schools, weights up to sixteen times the mean came from a tail
        that few draws reach, and log Z was low by two errors.
    """

    name: str
    makers: tuple[Maker, ...]
    shape: str = "Gaussian"
    gradients: Annotated[int, Whole(1)] = USUAL
    wide_share: Annotated[float, Real(0, 1, closed=True)] = 0.1
    width: Annotated[float, Real(0)] = 2.0
    even: Annotated[float, Real(0)] = 0.6
    bounded: Annotated[float, Real(0)] = 3.0

    def __post_init__(self) -> None:
        check_fields(self)

    def believes(self, score: Score) -> bool:
        """Whether draws of a base with this score need no path."""
        return score.even > self.even and score.largest < self.bounded

    def maker(self, name: str) -> Maker | None:
        """The maker of this name; None if there is none."""
        return next((one for one in self.makers if one.name == name), None)

    def without(self, *names: str) -> Recipe:
        """The recipe without the makers of these names."""
        for name in names:
            if self.maker(name) is None:
                refuse_unknown("maker", name, [one.name for one in self.makers])
        return replace(self, makers=tuple(m for m in self.makers if m.name not in names))

    def changing(self, name: str, **constants: Any) -> Recipe:
        """The recipe with other constants of the maker of this name."""
        known = self.maker(name)
        if known is None:
            refuse_unknown("maker", name, [one.name for one in self.makers])
        return self.adding(replace(known, **constants))

    def adding(self, *makers: Maker) -> Recipe:
        """The recipe with these makers, each in the place of one of its name, or at the end."""
        known = {one.name: one for one in (*self.makers, *makers)}
        return replace(self, makers=tuple(known.values()))

    def record(self) -> dict[str, Any]:
        """The recipe for provenance, JSON values only."""
        return {**asdict(self), "makers": [one.record() for one in self.makers]}


def asked(maker: Maker, state: State) -> State:
    """What is known after a maker was asked, paid from the purse."""
    if not maker.applies(state):
        return state
    if maker.scored:
        state = state if state.in_two_stages else state.scored()
        if state.in_two_stages or state.weights_alone:
            return state
    proposal = maker.make(state)
    made = len(proposal.parts) or proposal.made
    cost = proposal.gradients, proposal.evaluations
    if not (maker.judged and (proposal.parts or proposal.instead)):
        state.purse.pay(Stage(maker.name, *cost, made, proposal.said))
        after = state.after(proposal)
        try:
            return reweighed(after) if proposal.reweigh and proposal.parts else after
        except SamplingError:  # along what has no end, parts are too long beside their widths
            return state
    before = state.scored()
    after = before.after(proposal)
    after = (reweighed(after) if proposal.parts else after).scored()
    assert before.score is not None and after.score is not None
    gained = after.score.even - before.score.even
    kept = gained > GAIN or (after.weights_alone and not before.weights_alone)
    verdict = f"{gained:+.0%} of the draws count" + ("" if kept else ", not kept")
    said = f"{proposal.said}: {verdict}" if proposal.said else verdict
    state.purse.pay(Stage(maker.name, *cost, made if kept else 0, said))
    return after if kept else before


def reweighed(state: State) -> State:
    """The state with weights of its mixture that bring it nearer to the target."""
    base, log_zeta = state.base()
    if not isinstance(base, MixtureBase):
        return state
    rng = np.random.default_rng(state.seeds.ridges)
    better = reweighted(base, state.target.density.log_densities, rng)
    state.purse.pay(Stage("weights", evaluations=sum(SAMPLE), said="of the parts, fitted anew"))
    return replace(state, instead=better, log_zeta=log_zeta, score=None)


def enough_points(fit: LocalFit) -> Array:
    """Points of a fit, or draws of its Gaussian where its points are few, shape (n, D)."""
    if len(fit.points) >= LOW_RANK_DRAWS:
        return fit.points
    q = fit.gaussian
    rng = np.random.default_rng(0)
    return q.unwhiten(rng.standard_normal((LOW_RANK_DRAWS, fit.mean.size)))
