"""Runs compiled blocks of several chains at once, and stops between blocks when asked to.

Every chain owns its state, its engine handle and its random stream, so results do not depend on
how many threads there are or which of them runs what.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from tqdm.auto import tqdm

from stanct import kernels
from stanct.bases import AnyBase
from stanct.errors import SamplingError
from stanct.rounds import SampledDensity
from stanct.workspace import Problem, State, make_problem, make_scratch

Array = np.ndarray
T = TypeVar("T")
START_TRIES = 200


class Lane:
    """One chain's own engine handle, random stream and room to work.

    Parameters
    ----------
    density
        Cloned, so that no other thread uses the same handle.
    seed
        The lane's own.
    """

    def __init__(self, density: SampledDensity, seed: np.random.SeedSequence) -> None:
        self.density = density.clone()
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.scratch = make_scratch(density.dimension)

    def problem(self, base: AnyBase) -> Problem:
        """The density with a base; valid as long as the lane lives."""
        return make_problem(self.density, base)

    def start(self, base: AnyBase) -> State:
        """A state drawn from the base inside the target's support.

        Raises
        ------
        SamplingError
            The target vanishes at every try.
        """
        problem = self.problem(base)
        for _ in range(START_TRIES):
            state = kernels.make_state(problem, base.draw(self.rng, 1)[0])
            if np.isfinite(state.value[0]):
                return state
        raise SamplingError(
            f"The target vanishes, or Stan rejects it, at {START_TRIES} draws from the base.",
            remedy="Pass a base that overlaps the target's support.",
        )


def run_blocks(
    work: Callable[[int, int], T],
    lanes: int,
    sizes: Sequence[int],
    *,
    threads: int | None,
    label: str,
    progress: bool,
    unit: str = "draw",
) -> tuple[list[list[T]], bool]:
    """Run `work(lane, size)` for every lane and every block size, block after block.

    Returns
    -------
    results, interrupted
        One list a lane; shorter than `sizes` after a keyboard interrupt, when every block that was
        under way has been finished.

    Raises
    ------
    KeyboardInterrupt
        Before the first block was finished.
    """
    results: list[list[Any]] = [[] for _ in range(lanes)]
    workers = min(threads or os.cpu_count() or 1, lanes)
    with (
        tqdm(
            total=lanes * sum(sizes), desc=label, unit=unit, disable=not progress, leave=False
        ) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        try:
            for size in sizes:
                block = [pool.submit(work, lane, size) for lane in range(lanes)]
                found = [one.result() for one in block]
                for lane, result in enumerate(found):
                    results[lane].append(result)
                bar.update(lanes * size)
        except KeyboardInterrupt:
            if not results[0]:
                raise
            return results, True
    return results, False


def block_sizes(total: int, block: int) -> list[int]:
    """`total` in blocks of `block` and a rest."""
    full, rest = divmod(total, block)
    return [block] * full + ([rest] if rest else [])
