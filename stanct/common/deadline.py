"""The time at which a run has to end, heard wherever the run waits for work.

A deadline is heard once, like Ctrl-C: whatever the run waits for then is stopped. What follows,
such as the estimates from the finished draws, goes on undisturbed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class OutOfTime(KeyboardInterrupt):
    """The deadline has passed; everything that ends at Ctrl-C ends at it in the same way."""


@dataclass
class Deadline:
    """A time at which a run has to end, as `time.monotonic` counts seconds.

    A run may take `seconds`, None for any. It is `heard` once it has ended something.
    """

    seconds: float | None = None
    until: float = math.inf
    heard: bool = False

    def left(self) -> float | None:
        """Seconds until the deadline, at least 0; None if there is none, or none any more."""
        if self.heard or self.until == math.inf:
            return None
        return max(0.0, self.until - time.monotonic())


_current: ContextVar[Deadline] = ContextVar("deadline")


def _now() -> Deadline:
    return _current.get(Deadline())


@contextmanager
def deadline(seconds: float | None, since: float | None = None) -> Iterator[Deadline]:
    """End the body so many seconds after now, or after a monotonic time; None for never."""
    if seconds is None:
        yield _now()
        return
    begun = time.monotonic() if since is None else since
    token = _current.set(Deadline(seconds, begun + seconds))
    try:
        yield _now()
    finally:
        _current.reset(token)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` if the body waits for longer; a deadline that comes first is heard."""
    left = seconds_left()
    if left is not None and left <= seconds:
        yield
        return
    with deadline(seconds) as limit:
        try:
            yield
        except OutOfTime:
            if not limit.heard:
                raise
            raise TimeoutError from None


def seconds_left() -> float | None:
    """Seconds until the deadline of the code that calls; None if there is none to heed."""
    return _now().left()


def out_of_time() -> bool:
    """Whether the deadline has ended something."""
    return _now().heard


def seconds_given() -> float | None:
    """Seconds that the run of the code that calls may take; None for any."""
    return _now().seconds


def nobody_waits() -> bool:
    """Whether a time of 0 seconds asks for what a checkpoint holds, however long that takes."""
    return _now().seconds == 0


def heed() -> None:
    """Raise `OutOfTime` if the deadline has passed, and was not heard yet."""
    if seconds_left() == 0:
        _now().heard = True
        raise OutOfTime


def result(future: Future[T]) -> T:
    """Wait for a result until the deadline."""
    try:
        return future.result(seconds_left())
    except FutureTimeoutError:
        if not future.done():
            heed()
        raise


def completed(futures: Iterable[Future[T]]) -> set[Future[T]]:
    """Wait until one of the futures is done, or for the deadline."""
    done = wait(futures, seconds_left(), FIRST_COMPLETED).done
    heed()
    return done


def ended_by() -> str:
    """What ended work early: ``"max_seconds"``, or ``"interrupted"`` if it was the user."""
    return "max_seconds" if out_of_time() else "interrupted"


def interruption() -> KeyboardInterrupt:
    """The exception that stands for what ended work early."""
    return OutOfTime() if out_of_time() else KeyboardInterrupt()
