"""Runs NUTS chains block by block, and keeps every finished block.

Blocks serve three purposes. They show progress, an interrupt keeps every finished block, and the
step size can vary between blocks. Stan's warm-up tunes one step size for the whole joint space.
Near β = 1, the neck of a funnel needs a smaller one. A chain with a fixed step either stays there
for dozens of draws at a time or never enters. Rejections reveal both. Compiled kernels instead
halve their steps where necessary, and reject almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.deadline import ended_by
from stanct.common.errors import LostExecutorError
from stanct.common.seeds import stan_seed
from stanct.common.settings import MOST_COUNTED, Real, Whole
from stanct.engines.embedded import Nuts, heeding_interrupts
from stanct.path.base import Base
from stanct.path.bias import Bias, CopyBias
from stanct.samplers._job import Job
from stanct.samplers._lanes import block_sizes
from stanct.samplers._method import Method
from stanct.samplers._nuts import Block, CmdStanNuts, CompiledNuts, NutsDraws, nuts_sampler
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import BaseDraws, copies_inside
from stanct.work.progress import Bar
from stanct.work.shelf import Shelf
from stanct.work.workers import warn_of

Result = TypeVar("Result", covariant=True)

BLOCK_DRAWS = 50
# Acceptance that step sizes aim at. From the prior, the scales of what the likelihood tells shrink
# along the path, and one step size has to fit them all. On radon, .8 left three of four chains at
# β below .6, and with .95 each made 24 to 30 round trips in 2,500 draws.
ACCEPT, FROM_PRIOR_ACCEPT = 0.9, 0.95
# Factors on the adapted step size, used in turn once too many transitions were rejected.
SHORT_STEPS = (0.5, 0.25, 0.125)
# A transition with an acceptance below `REJECTED` is almost surely rejected. If the step size fits
# everywhere, at most three in a thousand are. With centred eight schools, four to fourteen in a
# thousand are; with radon, eighteen to forty.
REJECTED, TOLERATED, FEWEST = 0.1, 0.003, 5


@dataclass(frozen=True, kw_only=True)
class NutsMethod(Method[Result]):
    """A method whose chains are moved by NUTS; `Joint` tells of the settings."""

    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 500
    # With fewer iterations, Stan adapts no metric.
    least_warmup: ClassVar[int] = 150
    by_nuts: ClassVar[bool] = True
    loops: ClassVar[tuple[str, ...]] = "evaluate_extended", "nuts_draws"

    bootstrap: Annotated[int, Whole(0)] = 1
    target_accept: Annotated[float | None, Real(0, 1)] = None
    max_depth: Annotated[int, Whole(1, MOST_COUNTED)] = 10

    def nuts(self, job: Job) -> Nuts:
        """Settings of NUTS for the chains."""
        accept = FROM_PRIOR_ACCEPT if self.from_prior else ACCEPT
        if self.target_accept is not None:
            accept = self.target_accept
        return job.nuts(target_accept=accept, max_depth=self.max_depth)


@dataclass(frozen=True)
class Chains:
    """Draws of several chains under one frozen kernel, and δ at draws of the base.

    `step_size` is that of the warm-ups. If `cut`, the stage ended early with what was finished.
    """

    draws: NutsDraws = field(repr=False)
    step_size: float
    base_delta: Array = field(repr=False)
    cut: bool


class Follower(NamedTuple):
    """What follows the blocks of a stage so far: `seen` takes note after each one.

    `more` says how many further draws each chain makes, once all that were wanted are made.
    """

    more: Callable[[list[NutsDraws]], int] = lambda _: 0
    seen: Callable[[list[NutsDraws]], None] = lambda _: None


@dataclass
class StepSizes:
    """The factor on the step size of each block, through all stages of a run.

    It is 1 until more than `FEWEST` + `TOLERATED` × all transitions were rejected. It then cycles
    through `SHORT_STEPS`: of 24 runs of the centred eight schools with steps of 0.4 to 1 times the
    adapted one, 13 missed log Z by more than 1.96 of their errors.
    """

    short: bool = False
    made: int = 0
    transitions: int = 0
    rejected: int = 0

    def factor(self) -> float:
        """The factor on the step size of the next block."""
        self.made += 1
        return SHORT_STEPS[self.made % len(SHORT_STEPS)] if self.short else 1.0

    def heed(self, block: NutsDraws) -> None:
        """Count the rejections of a finished block."""
        if self.short:
            return
        acceptance = block.statistics["accept_stat__"]
        self.transitions += acceptance.size
        self.rejected += int(np.sum(acceptance < REJECTED))
        self.short = self.rejected > FEWEST + TOLERATED * self.transitions


@dataclass
class Stages:
    """Runs the chains of a job in stages, each under one frozen base and bias.

    `round_size` has warm-up iterations and draws of a round, `per_draw` the draws of the base for
    each draw, in a round and beside the kept ones, and `warmed` the gradients of the stage's
    warm-up.
    """

    job: Job = field(repr=False)
    nuts: Nuts
    round_size: tuple[int, int]
    per_draw: tuple[int, int]
    copies: int = 1
    fixed_beta: Array | None = None
    steps: StepSizes = field(default_factory=StepSizes)
    warmed: int = 0

    def run(
        self,
        name: str,
        base: Base,
        bias: Bias | CopyBias,
        places: Array | None,
        follow: Callable[[Bar, Precision, BaseDraws], Follower],
        *,
        precision: Precision | None = None,
        shelf: Shelf | None = None,
    ) -> Chains:
        """Warm the chains up, freeze their adaptation, and draw, also from the base.

        Chains begin at places, shape (chains, dimension), or at draws of the base. `follow` makes
        what follows the draws. Without a stopping rule, the stage is a round. The shelf takes x.
        """
        job, kept = self.job, precision is not None
        aim, per_draw = precision or Precision(None, self.round_size[1]), self.per_draw[kept]
        if places is None:
            rng = np.random.default_rng(job.seeds("starts", name))
            shape = job.chains, self.copies
            places = copies_inside(job.target, base, shape, rng, free=self.fixed_beta is None)
        base_draws = job.base_draws(base, name)
        if per_draw:
            base_draws.begin(job.execution)
        with job.bar(job.chains * aim.first, name) as bar:
            follower = follow(bar, aim, base_draws)

            warmup = job.warmup if kept else self.round_size[0]
            starts = _Starts(name, places, warmup, aim.first, kept, shelf or Shelf())
            sampler = nuts_sampler(job, base, bias, copies=self.copies, fixed_beta=self.fixed_beta)
            blocks, step_size, cut = self._drawn(sampler, starts, bar, follower)
        if cut:
            aim.reason = ended_by()
        draws = NutsDraws.joined(blocks)
        # A gradient of the program is one of the target for each copy.
        spent = self.warmed + sum(block.gradients for block in blocks)
        job.ledger.gradients += self.copies * spent
        base_delta = np.zeros(0)
        if per_draw:
            count = per_draw * job.chains * draws.delta.shape[1]
            base_delta, cut = base_draws.kept(count, job.execution, cut=cut)
            job.ledger.evaluations += base_delta.size
        return Chains(draws, step_size, base_delta, cut)

    def _drawn(
        self,
        sampler: CompiledNuts | CmdStanNuts,
        starts: _Starts,
        bar: Bar,
        follower: Follower,
    ) -> tuple[list[NutsDraws], float, bool]:
        """The blocks, the step size as adapted, and whether they ended early."""
        job, stage = self.job, starts.name
        warmup_seed, draw_seed = job.seeds("warm-up", stage), job.seeds("draws", stage)
        sizes = block_sizes(starts.draws, BLOCK_DRAWS)
        blocks: list[NutsDraws] = []
        interrupted = False
        bar.note("warming up")
        adapted = job.once(
            f"{stage}: warm-up",
            lambda: sampler.adapt(
                starts.places, seed=stan_seed(warmup_seed), warmup=starts.warmup, nuts=self.nuts
            ),
        )
        bar.note("")
        # The adaptation of one chain is noisy, and a chain with the largest step size gets stuck.
        step_size = float(np.median(adapted.step_size))
        inv_metric = np.exp(np.log(adapted.inv_metric).mean(axis=0))
        position, made = adapted.position, 0
        self.warmed = adapted.gradients
        try:
            while sizes:
                step = step_size * self.steps.factor()
                now = Block(stan_seed(draw_seed.spawn(1)[0]), sizes.pop(0), step, inv_metric)
                with heeding_interrupts():
                    draw = partial(sampler.draw, position, now, nuts=self.nuts)
                    block = job.once(
                        f"{stage}: draws",
                        lambda draw=draw, made=made: draw().on(starts.shelf, made),
                    )
                    position, made = block.end, made + now.draws
                    blocks.append(block)
                    self.steps.heed(block)
                    bar.update(job.chains * now.draws)
                    follower.seen(blocks)
                    if not sizes:
                        sizes = block_sizes(follower.more(blocks), BLOCK_DRAWS)
        except LostExecutorError as loss:
            if not (blocks and starts.kept):
                raise
            warn_of(loss)
            interrupted = True
        except KeyboardInterrupt:
            if not blocks:
                raise
            interrupted = True
        if interrupted:
            job.execution.seal()
        return blocks, step_size, interrupted


class _Starts(NamedTuple):
    """Where the chains of a stage begin, and how long they are; `kept` if a part is of use."""

    name: str
    places: Array
    warmup: int
    draws: int
    kept: bool
    shelf: Shelf
