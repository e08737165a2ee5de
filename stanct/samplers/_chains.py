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
from typing import Any, Protocol

import numpy as np

from stanct.arrays import Array
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import (
    Adapted,
    DrawBlock,
    Nuts,
    ParameterShapes,
    Recipe,
    heeding_interrupts,
)
from stanct.errors import SamplingError
from stanct.samplers._settings import check_precision
from stanct.seeds import stan_seed
from stanct.settings import whole
from stanct.work.execution import Execution
from stanct.work.progress import Bar

BLOCK_DRAWS = 50

# Factors on the adapted step size, one a block in turn, once too many transitions were rejected.
SHORT_STEPS = (0.5, 0.25, 0.125)
# With an acceptance below this a transition is all but surely rejected. Where steps fit everywhere
# at most three in a thousand are, with centred eight schools four to fourteen, with radon eighteen
# to forty.
REJECTED, TOLERATED, FEWEST = 0.1, 0.003, 5


class NutsSampler(Protocol):
    """NUTS on one density: compiled kernels (`extended.ExtendedSampler`), or a `ProgramSampler`."""

    def adapt(self, positions: Array, *, seed: int, warmup: int, nuts: Nuts) -> Adapted: ...

    def draw(
        self,
        positions: Array,
        *,
        step_size: float,
        inv_metric: Array,
        seed: int,
        draws: int,
        nuts: Nuts,
    ) -> DrawBlock: ...

    def position(self, block: DrawBlock) -> Array: ...


@dataclass(frozen=True)
class ProgramSampler:
    """NUTS by CmdStan, on a program whose parameters are all unconstrained.

    Attributes
    ----------
    shapes
        Those parameters in order, scalars, vectors and matrices, name to shape.
    """

    engine: CmdStan
    recipe: Recipe = field(repr=False)
    shapes: ParameterShapes

    def adapt(self, positions: Array, **settings: Any) -> Adapted:
        """Warm chains up, see `CmdStan.adapt`."""
        return self.engine.adapt(self.recipe, positions, self.shapes, **settings)

    def draw(self, positions: Array, **settings: Any) -> DrawBlock:
        """Draw a block, see `CmdStan.draw`."""
        return self.engine.draw(self.recipe, positions, self.shapes, **settings)

    def position(self, block: DrawBlock) -> Array:
        """Where the chains ended, shape (chains, dimension)."""
        return block.position(tuple(self.shapes))


@dataclass(frozen=True)
class ChainSettings:
    """How chains are run.

    Attributes
    ----------
    chains, warmup, draws
        Number of chains, and for each the adaptation's and the kept iterations.
    target_accept
        Acceptance statistic that the step size is tuned to, in (0, 1).
    max_depth
        Largest NUTS tree depth.
    threads
        Chains that run at once; as many as there are cores by default.
    target_se, max_draws
        Standard error of log Z to stop at, and the most draws of each chain on the way to it.
    """

    chains: int
    warmup: int
    draws: int
    target_accept: float = 0.9
    max_depth: int = 10
    threads: int | None = None
    target_se: float | None = None
    max_draws: int | None = None

    def __post_init__(self) -> None:
        counts = ("chains", "warmup", "draws", "max_depth")
        for name in counts if self.threads is None else (*counts, "threads"):
            whole(name, getattr(self, name), 1)
        if self.warmup < 150:
            raise SamplingError(
                f"warmup={self.warmup} is too short: below 150 iterations Stan adapts no metric.",
                remedy="Use warmup=500.",
            )
        if self.draws < 8:
            raise SamplingError(
                f"draws={self.draws} is too few for any error estimate.", remedy="Use draws=2500."
            )
        check_precision(self.target_se, self.max_draws)
        if not 0 < self.target_accept < 1:
            raise SamplingError(
                f"target_accept must lie between 0 and 1, not {self.target_accept!r}.",
                remedy="Use target_accept=0.9; nearer to 1 where chains diverge.",
            )

    @property
    def nuts(self) -> Nuts:
        """The engine's share of the settings."""
        if self.threads is None:
            return Nuts(self.target_accept, self.max_depth)
        return Nuts(self.target_accept, self.max_depth, self.threads)


@dataclass(frozen=True)
class Chains:
    """Draws of several chains under one frozen kernel.

    Attributes
    ----------
    variables
        Name to shape (chains, draws, ...).
    statistics
        Name of a NUTS statistic to shape (chains, draws).
    gradients
        All gradients spent, warm-up included.
    step_size
        What all chains shared after their warm-ups, before the factors of `StepSizes`.
    interrupted
        Whether the user stopped the run early; then the arrays hold the finished blocks.
    """

    variables: dict[str, Array] = field(repr=False)
    statistics: dict[str, Array] = field(repr=False)
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

    def heed(self, block: DrawBlock) -> None:
        """Learn from a finished block."""
        self.blocks += 1
        if self.short:
            return
        acceptance = block.statistics["accept_stat__"]
        self.transitions += acceptance.size
        self.rejected += int(np.sum(acceptance < REJECTED))
        self.short = self.rejected > FEWEST + TOLERATED * self.transitions


def refuse_executor(method: str, executor: object) -> None:
    """Raise `SamplingError` for an executor: NUTS chains move block by block together."""
    if executor is not None:
        raise SamplingError(
            f"Method {method!r} takes no executor: all its chains move together, block by block, "
            "on threads of this machine.",
            remedy="Pass threads=, or use method 'gibbs', 'parallel_tempering' or 'ais'.",
        )


def run_chains(
    sampler: NutsSampler,
    starts: Array,
    settings: ChainSettings,
    steps: StepSizes,
    *,
    draws: int,
    seed: np.random.SeedSequence,
    label: str,
    execution: Execution,
    bar: Bar,
    seen: Callable[[list[DrawBlock]], None],
    more: Callable[[list[DrawBlock]], int],
) -> Chains:
    """Warm up the chains, pool what they learned, freeze it, and draw.

    Parameters
    ----------
    sampler
        Moves the chains.
    starts : shape (chains, dimension)
        Unconstrained starting points.
    steps
        How the blocks' step sizes vary; it learns from every block.
    draws
        Draws of each chain, before `more` is asked.
    seed
        Warm-up and every block get a stream of their own from it.
    label
        What the steps are called in a checkpoint.
    execution
        Remembers the warm-up and every block.
    bar
        Shows progress.
    seen
        Called with all finished blocks after each new one.
    more
        Called with them when no draws are left to do; returns how many more each chain makes.
    """
    warmup_seed, draw_seed = seed.spawn(2)
    sizes = _block_sizes(draws)
    blocks: list[DrawBlock] = []
    interrupted = False
    bar.note("warming up")
    adapted = execution.once(
        f"{label}: warm-up",
        lambda: sampler.adapt(
            starts, seed=stan_seed(warmup_seed), warmup=settings.warmup, nuts=settings.nuts
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
                    step_size=step_size * steps.factor(),
                    inv_metric=inv_metric,
                    seed=stan_seed(draw_seed.spawn(1)[0]),
                    draws=size,
                    nuts=settings.nuts,
                )
                block = execution.once(f"{label}: draws", draw)
                position = sampler.position(block)
                blocks.append(block)
                steps.heed(block)
                bar.update(settings.chains * size)
                seen(blocks)
                if not sizes:
                    sizes = _block_sizes(more(blocks))
    except KeyboardInterrupt:
        if not blocks:
            raise
        interrupted = True
        execution.seal()
    return Chains(
        joined([block.variables for block in blocks]),
        joined([block.statistics for block in blocks]),
        adapted.gradients + sum(block.gradients for block in blocks),
        step_size,
        interrupted,
    )


def _block_sizes(draws: int) -> list[int]:
    full, rest = divmod(draws, BLOCK_DRAWS)
    return [BLOCK_DRAWS] * full + ([rest] if rest else [])


def joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Blocks of arrays of shape (chains, draws, ...) by name, one after another."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
