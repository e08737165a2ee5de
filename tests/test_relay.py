"""Lanes that begin the next step before all have ended this one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from stanct.common.errors import LostExecutorError, SamplingError
from stanct.work.execution import Execution
from stanct.work.relay import Step

LANES = 3


def moved(name: int, lane: int, place: int, _stopped: Callable[[], bool]) -> int:
    """What depends on the step, the lane, and all that came before."""
    return (31 * place + 7 * name + lane) % 1_000_003


def by_hand(steps: int) -> list[list[int]]:
    places, found = [*range(LANES)], []
    for name in range(steps):
        places = [moved(name, lane, place, bool) for lane, place in enumerate(places)]
        found.append(places)
    return found


def ran(execution: Execution, steps: int) -> list[list[int]]:
    works = [Step(name, partial(moved, name)) for name in range(steps)]
    places, found = [*range(LANES)], []
    with execution.relay("steps", LANES, int) as relay:
        for work, following in zip(works, [*works[1:], None], strict=True):
            places = relay.step(work, places, following)
            found.append(places)
    return found


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_lane_takes_every_step_once(threads: int) -> None:
    assert ran(Execution(1, threads=threads), 20) == by_hand(20)


def test_workers_that_are_processes_take_the_same_steps() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        assert ran(Execution(1, executor), 4) == by_hand(4)


def test_a_lane_goes_on_by_one_step_while_another_is_slow() -> None:
    """Lane 0 stands in step 0 until the others have begun step 1; nobody has begun step 2."""
    begun: list[tuple[int, int]] = []
    ahead = threading.Event()

    def work(name: int, lane: int, place: int, _stopped: Callable[[], bool]) -> int:
        begun.append((name, lane))
        if name == 1 and {(1, 1), (1, 2)} <= {*begun}:
            ahead.set()
        if (name, lane) == (0, 0):
            assert ahead.wait(30)
            time.sleep(0.05)
            assert {*begun} == {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)}
        return place

    steps = [Step(name, partial(work, name)) for name in range(3)]
    with Execution(1, threads=2).relay("steps", LANES, int) as relay:
        relay.step(steps[0], [0, 0, 0], steps[1])
        relay.step(steps[1], [0, 0, 0], steps[2])
        relay.step(steps[2], [0, 0, 0])
    assert sorted(begun) == [(name, lane) for name in range(3) for lane in range(LANES)]


def test_an_early_end_stops_what_was_begun() -> None:
    """The work ahead would take minutes."""
    begun, told = threading.Event(), threading.Event()

    def slow(_lane: int, _place: int, stopped: Callable[[], bool]) -> int:
        begun.set()
        until = time.monotonic() + 300
        while not stopped() and time.monotonic() < until:
            time.sleep(0.01)
        told.set()
        return 0

    with (
        pytest.raises(KeyboardInterrupt),
        Execution(1, threads=1).relay("steps", 2, int) as relay,
    ):
        relay.step(Step(0, partial(moved, 0)), [0, 0], Step(1, slow))
        assert begun.wait(60)
        raise KeyboardInterrupt
    assert told.wait(60)


class Broken(Executor):
    """An executor whose workers are gone."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_exception(OSError("the worker is gone"))
        return future


def failing(_lane: int, _place: int, _stopped: Callable[[], bool]) -> int:
    raise SamplingError("The work itself is wrong.")


def test_failures_keep_their_kind() -> None:
    with (
        pytest.raises(LostExecutorError, match=r"'steps'.*the worker is gone"),
        Execution(1, Broken()).relay("steps", 1, int) as relay,
    ):
        relay.step(Step(0, partial(moved, 0)), [0])
    with (
        pytest.raises(SamplingError, match="itself is wrong"),
        Execution(1, threads=2).relay("steps", 1, int) as relay,
    ):
        relay.step(Step(0, failing), [0])
