"""Calls of workers: results as they come, and what is left of them after an interrupt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from stanct.common.errors import SamplingError, StanctError
from stanct.work.calls import AHEAD, Calls
from stanct.work.interrupts import GRACE


def lost(cause: Exception) -> Exception:
    return SamplingError(f"lost: {cause}")


def given(number: int) -> int:
    return number


def late(seconds: float, number: int) -> int:
    time.sleep(seconds)
    return number


@pytest.mark.parametrize("count", [0, 3, 2 * AHEAD])
def test_every_call_has_a_result(count: int) -> None:
    calls = [partial(given, k) for k in range(count)]
    assert list(Calls(None, calls, lost)) == list(range(count))
    with ThreadPoolExecutor(2) as pool:
        assert sorted(Calls(pool, calls, lost)) == list(range(count))


def test_what_ends_in_a_moment_is_kept_after_an_interrupt() -> None:
    begun_to_hang, released = threading.Event(), threading.Event()

    def hanging() -> bool:
        begun_to_hang.set()
        return released.wait()

    quick, soon = partial(given, 1), partial(late, GRACE / 2, 2)
    queued = partial(given, 4)
    with ThreadPoolExecutor(2) as pool:
        calls = Calls[Callable[[], object]](pool, [quick, soon, hanging, queued], lost)
        results = iter(calls)
        try:
            assert next(results) == 1
            assert begun_to_hang.wait(10)
            # While the result is taken in, which is then handed out again.
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                results.throw(KeyboardInterrupt)  # pyright: ignore[reportAttributeAccessIssue]
            assert sorted(calls.last()) == [1, 2]  # pyright: ignore[reportArgumentType]
            assert time.monotonic() - begun < 2 * GRACE
            assert calls.cancel() == [hanging]
        finally:
            released.set()


def test_results_come_before_a_loss() -> None:
    def broken() -> int:
        time.sleep(0.2)
        raise OSError("gone")

    def refused() -> int:
        raise StanctError("refused")

    with ThreadPoolExecutor(1) as pool:
        found = list[int]()
        with pytest.raises(SamplingError, match="lost: gone"):
            found.extend(Calls(pool, [partial(given, 1), broken], lost))
        assert found == [1]
        with pytest.raises(StanctError, match="refused"):
            list(Calls(pool, [refused], lost))
    with pytest.raises(SamplingError, match="lost: cannot schedule"):
        list(Calls(pool, [partial(given, 1)], lost))
