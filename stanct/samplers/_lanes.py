"""Random streams, starting points and block sizes for lanes of compiled moves.

A lane is one of several units that a sampler runs at once: a chain, a ladder or a stream of
particles. A lane owns its state, step sizes and random stream, but no density. Blocks borrow a
density where they run; see `stanct.work.execution`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.kernels import State, StepTable, make_problem
from stanct.path.base import Base
from stanct.runs.run import Run
from stanct.targets.protocols import SampledDensity

START_TRIES = 200
# Relative lengths of the rounds of a warm-up.
DOUBLING = (1, 1, 2, 4, 8)


class Mover(Protocol):
    """A lane whose moves have step sizes."""

    table: StepTable


def doubling(warmup: int) -> list[int]:
    """The lengths of rounds of doubling length that a warm-up has, two at least."""
    return [max(warmup * share // sum(DOUBLING), 2) for share in DOUBLING]


def pool(lanes: Sequence[Mover], table: StepTable | None = None) -> StepTable:
    """Give all lanes the same step sizes, by default what they learned on average."""
    pooled = kernels.pool_tables([lane.table for lane in lanes]) if table is None else table
    for lane in lanes:
        lane.table = kernels.copy_table(pooled)
    return pooled


def stream(seed: np.random.SeedSequence) -> np.random.Generator:
    """The random generator of a lane."""
    return np.random.Generator(np.random.PCG64(seed))


def start(density: SampledDensity, base: Base, rng: np.random.Generator) -> State:
    """A state drawn from the base; raises `SamplingError` if the target vanishes at every try."""
    problem = make_problem(density, base)
    for _ in range(START_TRIES):
        state = kernels.make_state(problem, base.draw(rng, 1)[0])
        if np.isfinite(state.value[0]):
            return state
    raise SamplingError(
        f"The target vanishes, or Stan rejects it, at {START_TRIES} draws from the base.",
        remedy="Pass a base that overlaps the target's support.",
    )


def frozen_table(run: Run) -> StepTable:
    """The step sizes by which a run made its draws; raises `SamplingError` without them."""
    log_step = run.provenance.get("log_step")
    if log_step is None:
        raise SamplingError(
            "The saved run has no step sizes, so it cannot be extended.",
            remedy="Run it again with more draws (draws=).",
        )
    return StepTable(np.array(log_step, float), np.ones(len(log_step)))


def block_sizes(total: int, block: int) -> list[int]:
    """Split `total` into blocks of size `block` and a remainder."""
    full, rest = divmod(total, block)
    return [block] * full + ([rest] if rest else [])


def whole_chain(points: Array, draws: int, start: Array) -> tuple[Array, float]:
    """A chain of so many draws, shape (draws, D), and the share that had to be repeated."""
    lost = 1 - len(points) / draws
    if not lost:
        return points, 0.0
    kept = points if len(points) else start[None]
    return kept[np.minimum(np.arange(draws), len(kept) - 1)], lost
