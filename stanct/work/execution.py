"""Execution of a run: its workers, its checkpoint, and its progress bars.

A sampler's expensive work has three forms. `Execution.blocks` moves several lanes (chains, ladders,
streams of particles), each through a sequence of blocks. `Execution.once` does a single step, whose
parts `Execution.each` and `Execution.away` give to the workers. The first two take results that a
killed run had finished from the checkpoint. Blocks and parts are pure functions of their arguments,
among which are their random streams. No result therefore depends on where, when or how often they
run.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.deadline import OutOfTime, completed, deadline, heed, result
from stanct.common.errors import LostExecutorError, SamplingError, StanctError, TooLittleTimeError
from stanct.work.blas import one_blas_thread, with_one_blas_thread
from stanct.work.checkpoint import Journal, as_recorded
from stanct.work.identity import identity
from stanct.work.interrupts import GRACE, Threads, heeding_signals, in_threads
from stanct.work.progress import Bar
from stanct.work.shelf import Shelf
from stanct.work.workers import check_workers, loss_of, warn_of

T = TypeVar("T")
Item = TypeVar("Item")
Lane = TypeVar("Lane")
# Picklable; yields a density for the caller's exclusive use while the context lasts.
Borrow = Callable[[], AbstractContextManager[Any]]

# Number of points at which this process's log densities are compared with those of a checkpoint and
# of the workers.
PROBES = 3


class LentDensity(Protocol):
    """The part of a density that workers need, beside what compiled loops need."""

    @property
    def dimension(self) -> int: ...

    def log_densities(self, points: Array) -> Array: ...

    @property
    def borrow(self) -> Borrow: ...


class Executed(Protocol):
    """The part of a target that an execution needs."""

    @property
    def density(self) -> LentDensity: ...

    @property
    def programs(self) -> Mapping[str, str]: ...

    @property
    def origin(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Execution:
    """The execution of one run, made by `executing`.

    `store` is the folder into which kept draws go, that of the checkpoint; None for memory.
    """

    seed: int
    executor: Executor | None = None
    threads: int | None = None
    progress: bool = True
    store: Path | None = None
    _journal: Journal | None = field(default=None, repr=False)
    _shelves: list[Shelf] = field(default_factory=list, repr=False)
    _steps: Iterator[int] = field(default_factory=lambda: iter(range(2**62)), repr=False)

    def shelf(self, thin: int) -> Shelf:
        """Make the shelf of another stage, for every so many of its draws."""
        path = None if self.store is None else self.store / f"draws-{len(self._shelves)}.npy"
        self._shelves.append(Shelf(thin, path))
        return self._shelves[-1]

    def complete(self, draws: Array) -> None:
        """Record nothing more, and end the file of these draws; the run can then be saved there."""
        self.seal()
        for shelf in self._shelves:
            shelf.finish(draws)

    def once(self, label: str, work: Callable[[], T]) -> T:
        """Do a step in this thread, or take its result from the checkpoint.

        `label` describes the step. `checkpoint.encode` must accept the result.
        """
        key = (next(self._steps), 0, 0)
        if self._journal is None:
            return as_recorded(work())
        found = self._journal.find(key, label)
        if found is None:
            found = as_recorded(work())
            self._journal.put(key, label, found)
        return found

    def each(self, label: str, work: Callable[[Item], T], items: Sequence[Item]) -> list[T]:
        """Call a function with every item, and return the results in order.

        Nothing is recorded; the call belongs in the work of a step (`once`). Errors call it
        `label`. `work` must be picklable if the executor's workers are processes. Raises
        `LostExecutorError` if the executor broke.
        """
        if self.executor is None:
            return in_threads(lambda k: work(items[k]), len(items), self.threads or 0)
        return self._called(self.executor, label, [partial(work, item) for item in items])

    def away(self, label: str, work: Callable[[], T]) -> T:
        """Call a function in a worker of the executor; without an executor, here. See `each`."""
        if self.executor is None:
            return work()
        return self._called(self.executor, label, [work])[0]

    def _called(self, executor: Executor, label: str, calls: Sequence[Callable[[], T]]) -> list[T]:
        heed()
        futures: list[Future[T]] = []
        try:
            futures.extend(executor.submit(with_one_blas_thread, call) for call in calls)
            return [result(future) for future in futures]
        except BaseException as cause:
            wait([future for future in futures if not future.cancel()], GRACE)
            if isinstance(cause, StanctError) or not isinstance(cause, Exception):
                raise
            raise self._loss(cause, label) from cause

    def blocks(
        self,
        label: str,
        work: Callable[[Lane, int], T],
        lanes: list[Lane],
        sizes: Sequence[int],
        *,
        unit: str = "draw",
        final: bool = False,
        bar: Bar | None = None,
        seen: Callable[[list[list[T]]], None] | None = None,
        taken: Callable[[int, int, T], T] | None = None,
    ) -> tuple[list[list[T]], bool]:
        """Move every lane through blocks of the given sizes; lanes do not wait for each other.

        Parameters
        ----------
        work
            Takes a lane and a size, changes the lane in place and returns a block. It must be
            picklable if the executor's workers are processes: a `functools.partial` of a function
            at the top level of a module.
        lanes
            Picklable states of the lanes; the list is updated with the moved states.
        unit
            Unit of the sizes, for the progress bar.
        final
            Whether to return finished blocks when the user or a broken executor stops the work;
            otherwise an error is raised.
        seen
            Called in this thread after each new block with the finished blocks of every lane.
        taken
            Called in this thread with lane, number of the first unit and each new block; returns
            what is kept of it, which a checkpoint records.

        Returns
        -------
        blocks, interrupted
            A list of blocks for each lane, with one block for each size, or fewer after an
            interrupt; and whether the work was stopped early.

        Raises
        ------
        KeyboardInterrupt
            The user stopped the work before every lane had finished a block, or at any time if the
            work is not `final`.
        LostExecutorError
            The executor broke at such a time.
        """
        step = next(self._steps)
        results = [self._remembered(step, label, k, lanes, sizes) for k in range(len(lanes))]
        total = len(lanes) * sum(sizes)
        with nullcontext(bar) if bar else Bar(total, label, unit=unit, shown=self.progress) as bar:
            bar.update(sum(sum(sizes[: len(blocks)]) for blocks in results))

            def finished(lane: int, block: T, moved: Lane) -> None:
                number = len(results[lane])
                if taken is not None:
                    block = taken(lane, sum(sizes[:number]), block)
                if self._journal is not None:
                    self._journal.put((step, lane, number), label, (block, moved))
                results[lane].append(block)
                lanes[lane] = moved
                bar.update(sizes[number])
                if seen is not None:
                    seen(results)

            def carry_out() -> None:
                with self._pool(len(lanes)) as pool:
                    _carry_out(pool, work, lanes, sizes, results, finished)

            interrupted = self._stopped(carry_out, label, lambda: final and all(results))
        shortest = min(map(len, results))
        return [blocks[:shortest] for blocks in results], interrupted

    def _stopped(self, work: Callable[[], None], label: str, enough: Callable[[], bool]) -> bool:
        """Do the work; whether it was stopped early with enough to keep.

        Otherwise that is raised.
        """
        try:
            work()
            return False
        except KeyboardInterrupt:
            if not enough():
                raise
        except StanctError:
            raise
        except Exception as cause:
            if self.executor is None:
                raise
            loss = self._loss(cause, label)
            if not enough():
                raise loss from cause
            warn_of(loss)
        finally:
            if self._journal is not None:
                self._journal.flush()
        self.seal()
        return True

    def seal(self) -> None:
        """Record no further step, because the run was cut short and later steps differ."""
        if self._journal is not None:
            self._journal.seal()

    def _remembered(
        self, step: int, label: str, lane: int, lanes: list[Lane], sizes: Sequence[int]
    ) -> list[Any]:
        """Return a lane's blocks from the checkpoint, and set the lane to its state after them."""
        blocks = []
        if self._journal is not None:
            for number in range(len(sizes)):
                found = self._journal.find((step, lane, number), label)
                if found is None:
                    break
                block, lanes[lane] = found
                blocks.append(block)
        return blocks

    @contextmanager
    def _pool(self, lanes: int) -> Iterator[Executor]:
        if self.executor is not None:
            yield self.executor
            return
        with Threads(min(self.threads or os.cpu_count() or 1, lanes)) as pool:
            yield pool

    def _loss(self, cause: Exception, label: str) -> LostExecutorError:
        remedy = (
            "Finished blocks are in the checkpoint: repeat the command with a new executor."
            if self._journal is not None
            else "With checkpoint=FOLDER a run can go on after such a loss."
        )
        return loss_of(cause, label, remedy)


def _carry_out(
    pool: Executor,
    work: Callable[[Lane, int], T],
    lanes: list[Lane],
    sizes: Sequence[int],
    results: list[list[T]],
    finished: Callable[[int, T, Lane], None],
) -> None:
    """Submit each lane's next block once its last one is done, and report it to `finished`."""
    waiting: dict[Future[tuple[T, Lane]], int] = {}

    def submit(lane: int) -> None:
        number = len(results[lane])
        if number < len(sizes):
            waiting[pool.submit(_moved, work, lanes[lane], sizes[number])] = lane

    try:
        if any(len(blocks) < len(sizes) for blocks in results):
            heed()
        for lane in range(len(lanes)):
            submit(lane)
        while waiting:
            for future in completed(waiting):
                lane = waiting.pop(future)
                finished(lane, *future.result())
                submit(lane)
    except BaseException as cause:
        # Blocks that are running are kept; after an interrupt, if they end soon.
        grace = GRACE if isinstance(cause, KeyboardInterrupt | SystemExit) else None
        under_way = {future: lane for future, lane in waiting.items() if not future.cancel()}
        for future in wait(under_way, grace).done:
            if not future.cancelled() and future.exception() is None:
                finished(under_way[future], *future.result())
        raise


def _moved(work: Callable[[Lane, int], T], lane: Lane, size: int) -> tuple[T, Lane]:
    """Do a block in a worker without changing the caller's lane."""
    lane = copy.deepcopy(lane)
    with one_blas_thread():
        return work(lane, size), lane


@contextmanager
def executing(
    target: Executed,
    method: str,
    settings: Mapping[str, Any],
    *,
    seed: int | None,
    executor: Executor | None = None,
    threads: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    max_seconds: float | None = None,
    since: float | None = None,
    progress: bool = True,
    store: bool = False,
) -> Iterator[Execution]:
    """Yield the execution of one run; its checkpoint is written however the body ends.

    Method, settings, target and seed identify the run. `max_seconds` after `since`, by
    `time.monotonic`, work under way is stopped. With `store`, the folder of the checkpoint takes
    the draws. BLAS has one thread meanwhile, so that draws do not depend on how many it has.

    Raises `SamplingError` for a bad seed or executor, `LostExecutorError` if that broke before the
    body, `TooLittleTimeError` if the time passed before the body can end early, and
    `CheckpointError` if the folder cannot be the checkpoint of this run.
    """
    if seed is not None:
        seed = check_seed(seed)
    if executor is not None and not isinstance(executor, Executor):
        raise SamplingError(
            f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}.",
            remedy="For Dask pass client.get_executor().",
        )
    journal = None
    if executor is not None or checkpoint is not None:
        points = np.random.default_rng(0).standard_normal((PROBES, target.density.dimension))
        probe = target.density.log_densities(points)
        # A run of 0 seconds takes what the checkpoint has, and needs no worker.
        if executor is not None and max_seconds != 0:
            with deadline(max_seconds, since):
                check_workers(executor, target.density.borrow, points, probe, progress=progress)
        if checkpoint is not None:
            journal = Journal(checkpoint, identity(target.origin, method, settings, seed, probe))
            seed = journal.identity["seed"]
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    shelves: list[Shelf] = []
    if journal is not None:
        journal.before = lambda: [shelf.synchronise() for shelf in shelves]
    place = Path(checkpoint) if store and checkpoint is not None else None
    try:
        with (
            heeding_signals(),
            deadline(max_seconds, since),
            one_blas_thread(),
            Bar(0, "run", shown=progress),
        ):
            yield Execution(seed, executor, threads, progress, place, journal, shelves)
    except OutOfTime as stop:
        told = f"max_seconds={max_seconds:g} passed before every chain had draws that count."
        raise TooLittleTimeError(
            " ".join([told, *getattr(stop, "__notes__", ())]),
            remedy=f"The checkpoint {checkpoint} has the finished steps: repeat the call with more "
            "time."
            if journal is not None
            else "Allow more time. With checkpoint=FOLDER a run can go on.",
        ) from None
    except (KeyboardInterrupt, SystemExit) as stop:
        stop.add_note(
            f"Finished steps are in the checkpoint {checkpoint}: repeat the call to go on."
            if journal is not None
            else "No draws were finished, so none are kept. With checkpoint=FOLDER a run goes on."
        )
        raise
    finally:
        if journal is not None:
            journal.close()
        for shelf in shelves:
            shelf.close()


def check_seed(seed: Any) -> int:
    """Return the seed as an int; raise `SamplingError` if it is not a whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SamplingError(f"seed must be a whole number from 0, not {seed!r}.")
    return int(seed)
