"""The workers of an executor: whether they answer as this process does, and their loss."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, wait
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.deadline import OutOfTime, result, seconds_given, seconds_left
from stanct.common.errors import LostExecutorError, SamplingError, StanctError, TooLittleTimeError
from stanct.work.progress import say_above

PATIENCE = 10.0
"""Time in seconds without an answer of a worker until the user is told."""
_NO_PICKLE = (pickle.PicklingError, AttributeError, TypeError)


class ExecutorWarning(UserWarning):
    """An executor has lost its workers, or failed, and a run has the draws finished before."""


def loss_of(cause: Exception, label: str, remedy: str) -> LostExecutorError:
    """Return the error that tells of an executor's failure during the work of that label."""
    return LostExecutorError(
        f"The executor failed during {label!r}; a worker may have been killed, or have run out "
        f"of memory. It says: {type(cause).__name__}: {str(cause).rstrip('.')}.",
        remedy=remedy,
    )


def warn_of(loss: LostExecutorError) -> None:
    """Warn of a failed executor after which finished draws are kept."""
    text = f"{loss.message} The run keeps the draws that were finished. {loss.remedy}"
    warnings.warn(text, ExecutorWarning, stacklevel=5)


def check_workers(
    executor: Executor,
    borrow: Callable[[], AbstractContextManager[Any]],
    points: Array,
    probe: Array,
    *,
    progress: bool,
) -> None:
    """Raise an error unless a worker has this process's log densities `probe`, shape (n,).

    They are those at unconstrained points, shape (n, D). With `progress`, the user is told where no
    worker answers for a while.
    """
    try:
        found = _answer(executor, progress, _probe, borrow, points)
    except OutOfTime:
        raise TooLittleTimeError(
            f"max_seconds={seconds_given():g} passed before a worker of the executor answered.",
            remedy="Start workers first, or allow more time.",
        ) from None
    except _NO_PICKLE as cause:
        raise SamplingError(
            f"The executor's workers cannot receive this target: {cause}",
            remedy="A Python function must live at the top level of a module that workers can "
            "import; a lambda or a nested function needs threads.",
        ) from cause
    if not np.array_equal(found, probe):
        raise SamplingError(
            "The executor's workers compute other log densities than this process, so the draws "
            "would depend on where they are made.",
            remedy="Use workers with the same versions of stanct and stanli, and a function "
            "without randomness.",
        )


def check_answer(executor: Executor, *, progress: bool) -> None:
    """Wait for an answer of a worker before any work starts; see `check_workers`."""
    _answer(executor, progress, _nothing)


def _answer(executor: Executor, progress: bool, work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the first task that an executor is given."""
    try:
        future = executor.submit(work, *arguments)
    except (BrokenExecutor, EOFError, OSError) as cause:
        raise loss_of(cause, "the first task", "Make a new executor.") from cause
    except _NO_PICKLE:
        raise
    except Exception as cause:
        raise SamplingError(
            f"The executor takes no work: {str(cause).rstrip('.')}.",
            remedy="Make a new executor, and close it after the call.",
        ) from cause
    left = seconds_left()
    try:
        wait([future], PATIENCE if left is None else min(PATIENCE, left))
        if progress and not future.done() and (left is None or left > PATIENCE):
            say_above(f"No worker of the executor has answered for {PATIENCE:g} s. Has it any?")
        return result(future)
    except (StanctError, *_NO_PICKLE):
        raise
    except Exception as cause:
        raise loss_of(
            cause,
            "the first task",
            "Make a new executor. A Python function must live at the top level of a module that "
            "workers can import, and a script that starts processes needs the line "
            '`if __name__ == "__main__":`.',
        ) from cause
    finally:
        future.cancel()


def _nothing() -> None:
    """The task of `check_answer`."""


def _probe(borrow: Callable[[], AbstractContextManager[Any]], points: Array) -> Array:
    with borrow() as density:
        return density.log_densities(points)
