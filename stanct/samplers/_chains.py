"""Runs NUTS chains block by block, and keeps every finished block.

Blocks serve three purposes. They show progress, an interrupt keeps every finished block, and the
step size can vary between blocks. Stan's warm-up tunes one step size for the whole joint space.
Near β = 1, the neck of a funnel needs a smaller one. A chain with a fixed step either stays there
for dozens of draws at a time or never enters. Rejections reveal both. Compiled kernels instead
halve their steps where necessary, and reject almost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, TypeVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import LostExecutorError
from stanct.common.seeds import stan_seed
from stanct.common.settings import MOST_COUNTED, Real, Whole
from stanct.engines.embedded import Nuts, heeding_interrupts
from stanct.path.base import Base
from stanct.samplers._forecast import Clock, Trial, foretell
from stanct.samplers._job import Job
from stanct.samplers._lanes import block_sizes
from stanct.samplers._method import Method
from stanct.samplers._nuts import Block, NutsDraws, NutsSampler
from stanct.work.progress import Bar
from stanct.work.shelf import Shelf
from stanct.work.workers import warn_of

Result = TypeVar("Result", covariant=True)

BLOCK_DRAWS = 50
# Blocks that are planned: the one that is made, and the one that chains may begin meanwhile.
AHEAD = 2
# The standard error of log Z from draws.
ErrorOf = Callable[[NutsDraws], float]
# The effective draws on which means rest.
EffectiveOf = Callable[[NutsDraws], float]
# Draws of each chain from which the first forecast of a stage is made.
EARLY = 100

# Factors on the adapted step size, used in turn once too many transitions were rejected.
SHORT_STEPS = (0.5, 0.25, 0.125)
# A transition with an acceptance below `REJECTED` is almost surely rejected. If the step size fits
# everywhere, at most three in a thousand are. With centred eight schools, four to fourteen in a
# thousand are; with radon, eighteen to forty.
REJECTED, TOLERATED, FEWEST = 0.1, 0.003, 5


@dataclass(frozen=True, kw_only=True)
class NutsMethod(Method[Result]):
    """A method whose chains are moved by NUTS, with compiled kernels or with CmdStan.

    Attributes
    ----------
    bootstrap
        Rounds that refit base and bias before the final chains. With 0, the first base is final.
    target_accept
        Target acceptance statistic for tuning the step size.
    max_depth
        Largest depth of a NUTS tree.
    """

    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 500
    # With fewer iterations, Stan adapts no metric.
    least_warmup: ClassVar[int] = 150
    by_nuts: ClassVar[bool] = True
    loops: ClassVar[tuple[str, ...]] = "evaluate_extended", "nuts_draws"

    bootstrap: Annotated[int, Whole(0)] = 1
    target_accept: Annotated[float, Real(0, 1)] = 0.9
    max_depth: Annotated[int, Whole(1, MOST_COUNTED)] = 10

    def nuts(self, job: Job) -> Nuts:
        """Settings of NUTS for the chains."""
        return job.nuts(target_accept=self.target_accept, max_depth=self.max_depth)


@dataclass(frozen=True)
class Chains:
    """Draws of several chains under one frozen kernel.

    Attributes
    ----------
    step_size
        Step size shared by all chains after their warm-ups, before the factors of `StepSizes`.
    interrupted
        Whether the user, the deadline or a failed executor ended the run early. The arrays then
        hold the finished blocks.
    """

    draws: NutsDraws = field(repr=False)
    gradients: int
    step_size: float
    interrupted: bool


@dataclass
class Outlook:
    """Makes the forecasts of a stage of NUTS chains.

    Attributes
    ----------
    left
        Rounds that follow this one; None where the draws count.
    round_size
        Warm-up iterations and draws of a round.
    beside
        Draws of the base for each kept draw.
    copies
        Gradients of the target in one of the chains' density.
    effective_of
        Gives the effective draws that the stopping rule asks for.
    """

    runner: Runner
    name: str
    base: Base
    left: int | None
    round_size: tuple[int, int]
    beside: int
    copies: int = 1
    effective_of: EffectiveOf = lambda draws: math.inf
    early: bool = False

    def after_first(self, blocks: list[NutsDraws], error_of: ErrorOf) -> str:
        """Make a forecast once there are `EARLY` draws of each chain, and none at other times."""
        made = sum(block.delta.shape[1] for block in blocks)
        if self.early or made < EARLY:
            return ""
        self.early = True
        return self.made(f"{made} draws of {self.name}", NutsDraws.joined(blocks), error_of)

    def made(
        self, after: str, draws: NutsDraws, error_of: ErrorOf, *, counted: bool = False
    ) -> str:
        """Make a forecast from the draws of this stage; `counted` where the ledger has them."""
        runner, made = self.runner, draws.delta.shape[1]
        gradients = self.copies * draws.gradients
        warmup, length = self.round_size
        planned = 0.0
        if self.left is not None:
            each, warming = gradients / made, self.copies * runner.warmed / warmup
            further = self.left * (warming * warmup + each * length)
            planned = each * (length - made) + further + warming * runner.job.warmup
        trial = Trial(
            after,
            made,
            gradients,
            runner.clock.seconds,
            planned=planned,
            beside=self.beside,
            kept=made if self.left is None else 0,
            uncounted=0 if counted else gradients + self.copies * runner.warmed,
            refitted=self.left is not None,
        )
        job = runner.job
        effective = partial(self.effective_of, draws)
        return foretell(job, job.precision, self.base, trial, lambda: error_of(draws), effective)


@dataclass
class StepSizes:
    """The factor on the step size of each block, through all stages of a run.

    A block is planned while the one before it is made, so that chains need not wait for each other.
    The factor is 1 until more than `FEWEST` + `TOLERATED` × all transitions have been rejected. It
    then cycles through `SHORT_STEPS`. The centred eight schools need these short steps: of 24 runs
    with steps of 0.4 to 1 times the adapted one, 13 missed log Z by more than 1.96 of their errors.
    """

    short: bool = False
    planned: int = 0
    transitions: int = 0
    rejected: int = 0

    def factor(self) -> float:
        """The factor on the step size of the next block that is planned."""
        self.planned += 1
        return SHORT_STEPS[self.planned % len(SHORT_STEPS)] if self.short else 1.0

    def heed(self, block: NutsDraws) -> None:
        """Count the rejections of a finished block."""
        if self.short:
            return
        acceptance = block.statistics["accept_stat__"]
        self.transitions += acceptance.size
        self.rejected += int(np.sum(acceptance < REJECTED))
        self.short = self.rejected > FEWEST + TOLERATED * self.transitions


@dataclass(frozen=True)
class Length:
    """The length of the chains.

    Attributes
    ----------
    draws
        Kept iterations before the first call of `more`.
    more
        Called with all finished blocks when no draws are left to make. It returns the number of
        further draws of each chain.
    seen
        Called with all finished blocks after each new block.
    kept
        Whether the draws are worth keeping if the executor fails before all are made.
    """

    warmup: int
    draws: int
    more: Callable[[list[NutsDraws]], int] = lambda blocks: 0
    seen: Callable[[list[NutsDraws]], None] = lambda blocks: None
    kept: bool = False
    shelf: Shelf = field(default_factory=Shelf)


@dataclass
class Runner:
    """Runs the chains of a job under a sequence of frozen bases and biases.

    Attributes
    ----------
    steps
        Factors on the step sizes of the blocks, updated by every block of every stage.
    clock
        Measures the draws of the current stage, without their warm-up.
    warmed
        Gradients of the current stage's warm-up.
    """

    job: Job
    nuts: Nuts
    steps: StepSizes = field(default_factory=StepSizes)
    clock: Clock = field(default_factory=Clock)
    warmed: int = 0

    def run(
        self, sampler: NutsSampler, starts: Array, length: Length, stage: str, bar: Bar
    ) -> Chains:
        """Warm the chains up, pool their adaptation, freeze it, and draw.

        Parameters
        ----------
        sampler
            Moves the chains.
        starts : shape (chains, dimension)
            Unconstrained starting points.
        stage
            Name of the steps in a checkpoint and of the random streams.
        bar
            Progress bar.
        """
        job = self.job
        warmup_seed, draw_seed = job.seeds("warm-up", stage), job.seeds("draws", stage)
        sizes = block_sizes(length.draws, BLOCK_DRAWS)
        blocks: list[NutsDraws] = []
        interrupted = False
        bar.note("warming up")
        adapted = job.once(
            f"{stage}: warm-up",
            lambda: sampler.adapt(
                starts, seed=stan_seed(warmup_seed), warmup=length.warmup, nuts=self.nuts
            ),
        )
        bar.note("")
        # The adaptation of one chain is noisy, and a chain with the largest step size gets stuck.
        step_size = float(np.median(adapted.step_size))
        inv_metric = np.exp(np.log(adapted.inv_metric).mean(axis=0))
        position, made = adapted.position, 0
        self.warmed = adapted.gradients
        self.clock.restart()
        ahead: list[Block] = []
        try:
            with sampler.relay(job.chains) as relay:
                while sizes or ahead:
                    while sizes and len(ahead) < AHEAD:
                        step = step_size * self.steps.factor()
                        seed = stan_seed(draw_seed.spawn(1)[0])
                        ahead.append(Block(seed, sizes.pop(0), step, inv_metric))
                    now = ahead.pop(0)
                    with heeding_interrupts():
                        draw = partial(
                            sampler.draw,
                            position,
                            now,
                            nuts=self.nuts,
                            relay=relay,
                            following=ahead[0] if ahead else None,
                        )
                        block = job.once(
                            f"{stage}: draws",
                            lambda draw=draw, made=made: draw().on(length.shelf, made),
                        )
                        position, made = block.end, made + now.draws
                        blocks.append(block)
                        self.steps.heed(block)
                        bar.update(job.chains * now.draws)
                        with self.clock.paused():
                            length.seen(blocks)
                        if not (sizes or ahead):
                            sizes = block_sizes(length.more(blocks), BLOCK_DRAWS)
        except LostExecutorError as loss:
            if not (blocks and length.kept):
                raise
            warn_of(loss)
            interrupted = True
        except KeyboardInterrupt:
            if not blocks:
                raise
            interrupted = True
        self.clock.stop()
        if interrupted:
            job.execution.seal()
        spent = adapted.gradients + sum(block.gradients for block in blocks)
        return Chains(NutsDraws.joined(blocks), spent, step_size, interrupted)
