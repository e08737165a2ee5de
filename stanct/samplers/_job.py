"""A job: the user's problem, the options of the run, and the means to carry out the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stanct.bases.fits import FittedBase, check_mixture, first_base
from stanct.bases.forms import Seen, look, standardised
from stanct.bases.known import Hints
from stanct.bases.loop import Recipe
from stanct.bases.recipes import RECIPES
from stanct.common.arrays import Array
from stanct.common.deadline import nobody_waits, out_of_time, seconds_given
from stanct.common.errors import EngineError, ProgramError, SamplingError
from stanct.common.seeds import Seeds
from stanct.engines import embedded
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts
from stanct.path.base import Base, gradients_per_draw
from stanct.runs.run import Run
from stanct.samplers._beyond import noting_beyond
from stanct.samplers._precision import Enough, Precision
from stanct.samplers._rounds import BaseDraws, draws_inside, refuse_huge
from stanct.samplers._two_stages import noting_two_stages
from stanct.samplers._variables import PATIENCE, Later, variables_of
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledDensity, SampledTarget
from stanct.work.execution import Borrow, Executed, Execution
from stanct.work.interrupts import heard
from stanct.work.ledger import Ledger, stamp
from stanct.work.progress import Bar
from stanct.work.shelf import Shelf

NATIVE = "embedded kernels, density by cmdstan"
"""Name of the engine of a program that the embedded engine cannot run."""

T = TypeVar("T")
Lane = TypeVar("Lane")
AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass(frozen=True)
class Plan:
    """Options of a run, apart from the method's own settings; see `options.Options`.

    The base is given or the name of a fit. `recipe` has the makers of a base by name; None for
    those that the name stands for. `draws_given` says whether the user chose the number of draws,
    and `enough` what is enough to stop before all are made; None for nothing.
    """

    chains: int
    draws: int
    warmup: int
    target_se: float | None = None
    max_draws: int | None = None
    base: str | Base = "pilot"
    log_zeta: float | None = None
    threads: int | None = None
    max_seconds: float | None = None
    hints: Hints = field(default_factory=Hints)
    recipe: Recipe | None = None
    thin: int = 1
    keep: tuple[str, ...] | None = None
    draws_given: bool = True
    enough: Enough | None = None

    def record(self) -> dict[str, Any]:
        """The options for provenance, JSON values only."""
        return {
            "chains": self.chains,
            "draws": self.draws,
            "warmup": self.warmup,
            "target_se": self.target_se,
            "max_draws": self.max_draws,
            "base": self.base if isinstance(self.base, str) else "given",
            "log_zeta": self.log_zeta,
            "threads": self.threads,
            "max_seconds": self.max_seconds,
            "inits": "given" if self.hints.places else None,
            "search_radius": self.hints.radius,
            "thin": self.thin,
            "keep": None if self.keep is None else list(self.keep),
        }


@dataclass(frozen=True)
class Job:
    """Everything a method needs to make its run; created by `stanct.sample`.

    Attributes
    ----------
    method
        Name of the method.
    settings
        The method's own settings for provenance, JSON values.
    plan
        The other options of the run.
    target
        The user's problem.
    engine
        The CmdStan that runs NUTS; None for compiled kernels on the embedded engine's density.
    execution
        Runs blocks of work and stores their results.
    seeds
        The run's random streams, by name.
    ledger
        Counts gradients, evaluations and seconds.
    fitted
        The first base, where the choice between forms of the program has fitted it already.
    own_class
        Name of the method's class if it is the user's own; empty for the methods of stanct.
    two_stages_tried
        Whether draws in two stages were tried before, so that no run is compared with them.
    """

    method: str
    settings: Mapping[str, Any]
    plan: Plan
    target: SampledTarget
    engine: CmdStan | None
    execution: Execution
    seeds: Seeds
    ledger: Ledger = field(default_factory=Ledger)
    fitted: FittedBase | None = field(default=None, repr=False)
    own_class: str = ""
    two_stages_tried: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.target, ProgramTarget):
            self.target.density.at_once = self.nuts().threads

    @property
    def recipe(self) -> Recipe | None:
        """The makers of the base; None where the user gave one."""
        named = RECIPES.get(self.plan.base) if isinstance(self.plan.base, str) else None
        return self.plan.recipe or named

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.plan.chains

    @property
    def draws(self) -> int:
        """Kept draws of each chain."""
        return self.plan.draws

    @property
    def warmup(self) -> int:
        """Adaptation iterations of each chain."""
        return self.plan.warmup

    @property
    def density(self) -> SampledDensity:
        """The target's log density −φ."""
        return self.target.density

    @property
    def borrow(self) -> Borrow:
        """Lends a worker its own density; it can be sent to other processes."""
        return self.target.density.borrow

    @property
    def precision(self) -> Precision:
        """A new stopping rule for the run."""
        plan = self.plan
        if plan.enough is not None:
            return plan.enough.precision(plan.chains, plan.draws)
        return Precision(plan.target_se, plan.draws, plan.max_draws)

    def nuts(self, **settings: Any) -> Nuts:
        """Settings of NUTS with the requested number of threads."""
        if self.plan.threads is not None:
            settings["threads"] = self.plan.threads
        return Nuts(**settings)

    def nuts_base(self, base: Base) -> Base:
        """The base in the form that NUTS takes: a generated program wants a dense one."""
        return base if self.engine is None else base.dense()

    def start(
        self, *, bootstrap: int = 0, sampled: bool = False, refuse: bool = True
    ) -> FittedBase:
        """Fit the requested base, or take the given one, and count the cost.

        Parameters
        ----------
        bootstrap
            Number of rounds that will refit the base.
        sampled
            Whether the method draws from its base at β = 0, which makes a mixture possible.
        refuse
            Whether a log density of which squares overflow is refused here.

        Raises
        ------
        SamplingError
            The base contradicts the target or the method.
        EngineError
            No base could be fitted.
        """
        found = self.fitted
        if found is None:
            found = self._first_base(self.target, bootstrap=bootstrap, sampled=sampled)
        elif not found.base.is_gaussian:
            check_mixture(bootstrap, sampled, named=True)
        if found.survey is not None:
            self.ledger.found["survey"] = found.survey.record()
        if found.tails:
            self.ledger.found["tails"] = list(found.tails)
        if refuse:
            refuse_huge(self.target, found.base)
        self.lap("base")
        return found

    def _first_base(
        self, target: SampledTarget, *name: int, hints: Hints | None = None, **method: Any
    ) -> FittedBase:
        """The base that was asked for, fitted to a target; its cost is counted."""
        nuts = self.nuts()
        found = first_base(
            target,
            self.plan.base,
            self.plan.log_zeta,
            chains=self.chains,
            seed=self.seeds("base", *name),
            nuts=nuts,
            execution=self.execution,
            hints=self.plan.hints if hints is None else hints,
            recipe=self.plan.recipe,
            **method,
        )
        self.ledger.gradients += found.gradients
        self.ledger.evaluations += found.evaluations
        road = self.ledger.found.get("road", [])
        form = {"form": name[0]} if name else {}
        self.ledger.found["road"] = [*road, *({**one.record(), **form} for one in found.road)]
        return found

    def in_best_form(self, *, from_prior: bool = False) -> Job:
        """The job with the form of its program that is nearest to a Gaussian.

        Short chains choose the form of each hierarchy. Where they cannot tell, the non-centred form
        is taken, and where it has no base, the one that the user wrote. On a path from the prior it
        is the non-centred one, in which the prior has no funnel.

        Nothing changes where the target has one form only, or where the user gave the base.
        """
        target, named = self.target, isinstance(self.plan.base, str)
        if not (isinstance(target, ProgramTarget) and target.blocks and named):
            return self
        wanted = [standardised(target.blocks), ()]
        if not from_prior:
            work = partial(look, target, seed=self.seeds("look"), nuts=self.nuts())
            looked = self.execution.once("look", lambda: self.execution.away("look", work))
            if looked is not None:
                self.ledger.gradients += looked.gradients
                self.ledger.evaluations += looked.evaluations
                wanted = [looked.turned, *wanted]
        *forms, last = dict.fromkeys(wanted)
        for number, turned in enumerate(forms):
            with suppress(EngineError, ProgramError):
                return self._in_form(target, number, turned)
        return self._in_form(target, len(forms), last)

    def _in_form(self, target: ProgramTarget, number: int, turned: tuple[str, ...]) -> Job:
        """The job with a form of its program, and the base of that form."""
        form = target.in_form(turned)
        hints = self._hints_in(target, form, turned)
        fit = self._first_base(form, number, hints=hints, sampled=True)
        return replace(self, target=form, fitted=fit)

    def _hints_in(
        self, target: ProgramTarget, form: ProgramTarget, turned: tuple[str, ...]
    ) -> Hints:
        """The user's hints in the coordinates of a form, but for places that it cannot have."""
        hints = self.plan.hints
        if not (hints.places and turned):
            return hints
        seen = Seen.at(target, np.array(hints.places))
        known = {block.name for block in seen.blocks}
        carried = seen.in_form(form, turned) if known.issuperset(turned) else ()
        return Hints(hints.radius, tuple(carried))

    def places(self, base: Base) -> Array:
        """Starting points of the chains: whitened draws of the base at which the target is finite.

        Returns
        -------
        Array
            Shape (chains, D).

        Raises
        ------
        SamplingError
            The target vanishes at nearly all draws of the base.
        """
        return draws_inside(self.target, base, self.chains, self.seeds.stream("places"))

    def once(self, label: str, work: Callable[[], T]) -> T:
        """Run a step here, or read its result from the checkpoint; see `Execution.once`."""
        return self.execution.once(label, work)

    def blocks(
        self,
        label: str,
        work: Callable[[Lane, int], T],
        lanes: list[Lane],
        sizes: Sequence[int],
        **options: Any,
    ) -> tuple[list[list[T]], bool]:
        """Move every lane through blocks of the given sizes; see `Execution.blocks`."""
        return self.execution.blocks(label, work, lanes, sizes, **options)

    def shelf(self) -> Shelf:
        """Where the draws of x go that the run keeps; a shelf for each run of a method."""
        return self.execution.shelf(self.plan.thin)

    def bar(self, total: int, label: str, *, unit: str = "draw") -> Bar:
        """A progress bar, shown if the user wants progress bars."""
        return Bar(total, label, unit=unit, shown=self.execution.progress)

    def base_draws(self, base: Base, *name: str | int) -> BaseDraws:
        """Independent draws of a base, from the named stream."""
        return BaseDraws(self.target, base, self.seeds("base draws", *name))

    def base_delta(self, base: Base, count: int, *name: str | int) -> Array:
        """δ at `count` draws of the base, counted and checkpointed, shape (count,)."""
        self.count_draws(base, count)
        made = self.base_draws(base, *name)
        return self.execution.once("draws of the base", lambda: made.first(count))

    def count_draws(self, base: Base, count: int) -> None:
        """Count what so many draws of a base cost, each with its δ."""
        self.ledger.evaluations += count
        self.ledger.gradients += round(count * gradients_per_draw(base))

    def lap(self, stage: str) -> None:
        """Record the time since the last lap as the time of this stage."""
        self.ledger.lap(stage)

    def draft(self, kind: type[AnyRun], **fields: Any) -> AnyRun:
        """A run of the draws so far, for its estimates and checks.

        It has no user's variables, which may take long to compute. The parameters are those of
        `finish`.
        """
        made: Any = kind
        return made(
            **{**self._named(), **fields},
            variables={},
            provenance=self._provenance(_ending(early=False)),
        )

    def _named(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "engine": engine_name(self.target, self.engine),
            "programs": self.target.programs,
            "data": self.target.data_text,
        }

    def finish(
        self,
        kind: type[AnyRun],
        *,
        interrupted: bool,
        x: Array | None = None,
        variables: Mapping[str, Array] | None = None,
        facts: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> AnyRun:
        """Make the run, with its provenance.

        Parameters
        ----------
        kind
            Class of the run.
        interrupted
            Whether the user or the deadline stopped the run before all draws were made.
        x : shape (chains, draws, D)
            Unconstrained draws, from which the user's variables are computed. Without them the
            whitened draws `z` and the `base` among the `fields` give these.
        variables
            The user's variables, where they are already known. They replace `x`.
        facts
            Additions of the method to the provenance, JSON values.
        fields
            The fields of `kind` that not every run has.

        Raises
        ------
        SamplingError
            The target vanishes at all draws.
        """
        delta = fields.get("delta")
        if delta is not None and not np.isfinite(delta).any():
            raise SamplingError(
                f"The target vanishes, or is rejected, at all of {delta.size} draws.",
                remedy="Pass a base that overlaps the target's support.",
            )
        if variables is None:
            made = partial(self._computed, x, fields["z"], fields["base"])
            variables, cut = self._variables(made, cut=interrupted)
            interrupted = interrupted or cut
        elif self.plan.keep is not None:
            variables = {name: variables[name] for name in self.plan.keep}
        self.lap("variables")
        made: Any = kind
        run = made(
            **{**self._named(), **fields},
            variables=variables,
            provenance=self._provenance({**_ending(interrupted), **(facts or {})}),
        )
        if interrupted:
            return run
        run = noting_beyond(run, self.target, self.ledger)
        return run if self.two_stages_tried or run.ended_early else self._compared(run)

    def _compared(self, run: AnyRun) -> AnyRun:
        """The run with log Z of draws in two stages, where its target allows them."""

        def away(work: Callable[[], T]) -> T:
            once = partial(self.execution.away, "two stages", partial(heard, work))
            return self.execution.once("two stages", once)

        seed = self.seeds("two stages")
        return noting_two_stages(run, self.target, self.ledger, seed, away)

    def _variables(
        self, made: Callable[..., Mapping[str, Array]], *, cut: bool
    ) -> tuple[Mapping[str, Array], bool]:
        """The user's variables, computed later if that is cut short here, and whether it was."""
        folder = self.execution.store
        if not cut:
            try:
                # A thread that is left behind may not write to the folder.
                here = folder is not None or nobody_waits()
                return made(folder) if here else heard(partial(made, None)), False
            except KeyboardInterrupt:
                self.execution.seal()
        given = seconds_given()
        patience = max(PATIENCE, given) if given else None
        return Later(partial(made, None), partial(made, None, generated=False), patience), True

    def _computed(
        self, x: Array | None, z: Any, base: Any, folder: Path | None, generated: bool = True
    ) -> Mapping[str, Array]:
        """The user's variables of x, or of the whitened draws z; in files of a folder."""
        seed, keep = self.seeds("variables"), self.plan.keep
        if not generated:
            found = self.target.without_generated(base.unwhiten(np.array(z)) if x is None else x)
            return {name: v for name, v in found.items() if keep is None or name in keep}
        if x is None:
            return variables_of(self.target, z, base, seed, keep, folder)
        found = self.target.variables(x, seed)
        return found if keep is None else {name: found[name] for name in keep}

    def _provenance(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Everything about the run except draws and estimates, JSON values only."""
        return {
            **self.target.origin,
            "settings": {**self.plan.record(), "seed": self.execution.seed},
            "method_settings": dict(self.settings),
            **({} if self.recipe is None else {"recipe": self.recipe.record()}),
            "method_class": self.own_class,
            **facts,
            **self.ledger.record(),
            **stamp(),
        }


def _ending(early: bool) -> dict[str, bool]:
    """For the provenance, whether the user or the deadline ended the run early."""
    late = early and out_of_time()
    return {"interrupted": early and not late, "out_of_time": late}


def engine_name(target: Executed, engine: CmdStan | None = None) -> str:
    """Name of the engine for the provenance of runs."""
    if engine:
        return engine.NAME
    if isinstance(target, ProgramTarget) and target.by_cmdstan:
        return NATIVE
    return embedded.NAME if target.programs else "python"
