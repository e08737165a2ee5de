"""Runs NUTS chains block by block, and keeps what is finished.

Blocks make three things simple: progress is seen, an interrupt keeps every finished block, and the
step size can vary between blocks. Stan's warm-up tunes one step size for the whole joint space, yet
near β = 1 in the neck of a funnel only a smaller one moves: a chain with a fixed step sits there
for dozens of draws at a time, or stays out and knows nothing of it. Rejections tell of both.
Compiled kernels halve steps where they must instead, and reject next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, TypeVar

import numpy as np

from stanct.arrays import Array
from stanct.engines.embedded import Nuts, heeding_interrupts
from stanct.samplers._job import Job
from stanct.samplers._lanes import block_sizes
from stanct.samplers._method import Method
from stanct.samplers._nuts import NutsDraws, NutsSampler
from stanct.seeds import stan_seed
from stanct.settings import Real, Whole
from stanct.work.progress import Bar

Result = TypeVar("Result", covariant=True)

BLOCK_DRAWS = 50

# Factors on the adapted step size, one a block in turn, once too many transitions were rejected.
SHORT_STEPS = (0.5, 0.25, 0.125)
# With an acceptance below this a transition is all but surely rejected. Where steps fit everywhere
# at most three in a thousand are, with centred eight schools four to fourteen, with radon eighteen
# to forty.
REJECTED, TOLERATED, FEWEST = 0.1, 0.003, 5


@dataclass(frozen=True, kw_only=True)
class NutsMethod(Method[Result]):
    """A method whose chains are moved by NUTS, compiled or CmdStan's.

    Attributes
    ----------
    bootstrap
        Rounds that refit base and bias before the final chains. With 0 the first base is final.
    target_accept
        Acceptance statistic that the step size is tuned to.
    max_depth
        Largest depth of a NUTS tree.
    """

    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 500
    # With fewer Stan adapts no metric.
    least_warmup: ClassVar[int] = 150
    by_nuts: ClassVar[bool] = True
    distributed: ClassVar[bool] = False

    bootstrap: Annotated[int, Whole(0)] = 1
    target_accept: Annotated[float, Real(0, 1)] = 0.9
    max_depth: Annotated[int, Whole(1)] = 10

    def nuts(self, job: Job) -> Nuts:
        """For the chains."""
        return job.nuts(target_accept=self.target_accept, max_depth=self.max_depth)


@dataclass(frozen=True)
class Chains:
    """Draws of several chains under one frozen kernel.

    Attributes
    ----------
    draws
        All of them.
    gradients
        All gradients spent, warm-up included.
    step_size
        What all chains shared after their warm-ups, before the factors of `StepSizes`.
    interrupted
        Whether the user stopped the run early; then the arrays hold the finished blocks.
    """

    draws: NutsDraws = field(repr=False)
    gradients: int
    step_size: float
    interrupted: bool


@dataclass
class StepSizes:
    """The factor on the step size of each block, through all stages of a run.

    It is 1 until more than `FEWEST` + `TOLERATED` × all transitions were rejected, and then cycles
    through `SHORT_STEPS`. The centred eight schools need these: of 24 runs with steps of .4 to 1
    times the adapted one, 13 missed log Z by more than 1.96 of their errors.
    """

    short: bool = False
    blocks: int = 0
    transitions: int = 0
    rejected: int = 0

    def factor(self) -> float:
        """What the step size of the next block is multiplied with."""
        return SHORT_STEPS[self.blocks % len(SHORT_STEPS)] if self.short else 1.0

    def heed(self, block: NutsDraws) -> None:
        """Learn from a finished block."""
        self.blocks += 1
        if self.short:
            return
        acceptance = block.statistics["accept_stat__"]
        self.transitions += acceptance.size
        self.rejected += int(np.sum(acceptance < REJECTED))
        self.short = self.rejected > FEWEST + TOLERATED * self.transitions


@dataclass(frozen=True)
class Length:
    """How long chains are.

    Attributes
    ----------
    warmup
        Adaptation iterations.
    draws
        Kept iterations before `more` is asked.
    more
        Called with all finished blocks when no draws are left to do; returns how many more each
        chain makes.
    seen
        Called with them after each new one.
    """

    warmup: int
    draws: int
    more: Callable[[list[NutsDraws]], int] = lambda blocks: 0
    seen: Callable[[list[NutsDraws]], None] = lambda blocks: None


@dataclass
class Runner:
    """Runs the chains of a job under one frozen base and bias after another.

    Attributes
    ----------
    steps
        How the blocks' step sizes vary; it learns from every block of every stage.
    """

    job: Job
    nuts: Nuts
    steps: StepSizes = field(default_factory=StepSizes)

    def run(
        self, sampler: NutsSampler, starts: Array, length: Length, stage: str, bar: Bar
    ) -> Chains:
        """Warm the chains up, pool what they learned, freeze it, and draw.

        Parameters
        ----------
        sampler
            Moves the chains.
        starts : shape (chains, dimension)
            Unconstrained starting points.
        stage
            What the steps are called in a checkpoint; names the random streams.
        bar
            Shows progress.
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
        # One chain's adaptation is noisy, and the largest step size is the one that gets stuck.
        step_size = float(np.median(adapted.step_size))
        inv_metric = np.exp(np.log(adapted.inv_metric).mean(axis=0))
        position = adapted.position
        try:
            while sizes:
                with heeding_interrupts():
                    size = sizes.pop(0)
                    draw = partial(
                        sampler.draw,
                        position,
                        step_size=step_size * self.steps.factor(),
                        inv_metric=inv_metric,
                        seed=stan_seed(draw_seed.spawn(1)[0]),
                        draws=size,
                        nuts=self.nuts,
                    )
                    block = job.once(f"{stage}: draws", draw)
                    position = block.end
                    blocks.append(block)
                    self.steps.heed(block)
                    bar.update(job.chains * size)
                    length.seen(blocks)
                    if not sizes:
                        sizes = block_sizes(length.more(blocks), BLOCK_DRAWS)
        except KeyboardInterrupt:
            if not blocks:
                raise
            interrupted = True
            job.execution.seal()
        spent = adapted.gradients + sum(block.gradients for block in blocks)
        return Chains(NutsDraws.joined(blocks), spent, step_size, interrupted)
