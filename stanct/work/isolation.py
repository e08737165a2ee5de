"""Calls a function in a separate process, so that a crash or an endless loop becomes an error.

Processes that this package starts end with the one that started them (`end_with_parent`).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")

NO_END = "no end"
"""Reason of a call that did not return in time."""


def end_with_parent() -> None:
    """Let this process end when the process that made it ends, even if that one was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def without_script() -> Iterator[None]:
    """Let processes begin while a script comes from stdin: no other process can read it.

    They then begin as those of ``python -c``. Objects of the script itself cannot be sent to them.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) != "<stdin>":
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = "<stdin>"


class NoAnswerError(Exception):
    """The process died or did not answer in time; `reason` says which in a word or two."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Worker(Generic[Argument, Result]):
    """A process that calls a function repeatedly and is replaced if it is lost.

    Parameters
    ----------
    function
        Takes one argument. The function, its argument and its result must be picklable.
    seconds
        Time in seconds after which a call counts as endless.
    """

    def __init__(self, function: Callable[[Argument], Result], seconds: float) -> None:
        self._function, self._seconds = function, seconds
        self._context = multiprocessing.get_context("spawn")
        self._running: tuple[BaseProcess, Any] | None = None

    def __enter__(self) -> Worker[Argument, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def __call__(self, argument: Argument) -> Result:
        """Call the function in the process.

        Raises
        ------
        NoAnswerError
            The process died or did not answer in time.
        """
        try:
            _, pipe = self._running = self._running or self._start()
            pipe.send(argument)
            if pipe.poll(self._seconds):
                return pipe.recv()
        except (EOFError, OSError) as cause:
            self._stop()
            raise NoAnswerError("crash", "The process that examined it died.") from cause
        self._stop()
        raise NoAnswerError(NO_END, f"No answer within {self._seconds:g} s.")

    def _start(self) -> tuple[BaseProcess, Any]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._function), daemon=True)
        with without_script():
            process.start()
        theirs.close()
        ours.recv()  # wait until it is ready, so that the time of its imports does not count
        return process, ours

    def _stop(self) -> None:
        if self._running is not None:
            process, pipe = self._running
            process.kill()
            process.join()
            pipe.close()
        self._running = None


def _serve(pipe: Connection[Any, Any], function: Callable[[Any], Any]) -> None:
    end_with_parent()  # while the function runs, nobody reads the pipe
    # Stan programs print from compiled code, which bypasses sys.stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pipe.send(None)
    while True:
        try:
            argument = pipe.recv()
        except EOFError:
            return
        pipe.send(function(argument))
