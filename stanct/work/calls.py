"""Calls that workers carry out in any order, and whose results come as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, Generic, TypeVar

from stanct.common.errors import StanctError
from stanct.work.interrupts import GRACE

Call = TypeVar("Call", bound=Callable[[], Any])

AHEAD = 64
"""Calls that an executor has at a time; further ones are not made yet."""


class Calls(Generic[Call]):
    """The results of calls, of an executor's workers or, without a pool, of this thread in turn.

    `calls` are taken as there is work for them. `loss` makes an error of the executor's failure.
    """

    def __init__(
        self, pool: Executor | None, calls: Iterable[Call], loss: Callable[[Exception], Exception]
    ) -> None:
        self._pool, self._calls, self._loss = pool, calls, loss
        self._waiting: dict[Future[Any], Call] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yield results as they come; those that are there come before any error."""
        for call in self._calls:
            if self._pool is None:
                yield call()
                continue
            try:
                self._waiting[self._pool.submit(call)] = call
            except Exception as cause:
                yield from self._finished()
                raise self._loss(cause) from cause
            if len(self._waiting) >= AHEAD:
                yield from self._next()
        while self._waiting:
            yield from self._next()

    def _next(self) -> Iterator[Any]:
        """Wait for the next results; those that a broken executor had finished come first."""
        wait(self._waiting, return_when=FIRST_COMPLETED)
        yield from self._finished()
        for future in list(self._waiting):
            if future.done():
                try:
                    future.result()
                except StanctError:
                    raise
                except Exception as cause:
                    yield from self._finished()
                    raise self._loss(cause) from cause

    def _finished(self) -> Iterator[Any]:
        """Take out the results that are there, each once it has been taken in."""
        for future in list(self._waiting):
            if future.done() and not future.cancelled() and future.exception() is None:
                yield future.result()
                self._waiting.pop(future)

    def last(self) -> Iterator[Any]:
        """Cancel the calls that wait, and yield what is finished, or is so in a moment."""
        wait([future for future in self._waiting if not future.cancel()], GRACE)
        yield from self._finished()

    def cancel(self) -> list[Call]:
        """Cancel the calls that wait, and return those that a worker may still carry out."""
        left = [(future, call) for future, call in self._waiting.items() if not future.cancel()]
        return [call for future, call in left if not future.done()]
