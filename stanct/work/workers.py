"""The workers of an executor: whether they compute what this process computes, and their loss."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from stanct.arrays import Array
from stanct.errors import LostExecutorError, SamplingError


class ExecutorWarning(UserWarning):
    """An executor failed, and the run has only the draws that were finished before."""


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
) -> None:
    """Evaluate log densities in a worker before any work starts.

    Parameters
    ----------
    borrow
        Lends a worker the density.
    points, probe
        Unconstrained points, shape (n, D), and this process's log densities there, shape (n,).

    Raises
    ------
    SamplingError
        The workers cannot receive the density, or compute other values.
    """
    try:
        found = executor.submit(_probe, borrow, points).result()
    except (pickle.PicklingError, AttributeError, TypeError, BrokenExecutor) as cause:
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


def _probe(borrow: Callable[[], AbstractContextManager[Any]], points: Array) -> Array:
    with borrow() as density:
        return density.log_densities(points)
