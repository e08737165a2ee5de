"""Calls a function in a separate process, so that a crash or an endless loop becomes an error."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from stanct.work.isolation import end_with_parent, without_script

Argument = TypeVar("Argument")
Result = TypeVar("Result")

NO_END = "no end"
"""Reason of a call that did not return in time."""


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
