"""One thread of BLAS while stanct works, whatever the environment says.

The matrices of most targets are small. Threads of BLAS wait for each other in every call on them,
beside the threads that move the chains, and how a product is split decides its last bits.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

_lock = threading.Lock()
_inside = 0
_before: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let the BLAS of NumPy and of SciPy have one thread in this process while the body lasts.

    Bodies may be nested, and may overlap in several threads. The last one to end restores what was
    there before the first.
    """
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = _controller().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _before.restore_original_limits()


@functools.cache
def _controller() -> ThreadpoolController:
    # A limit concerns the libraries that are loaded, and SciPy has a BLAS of its own.
    importlib.import_module("scipy.linalg")
    return ThreadpoolController()


def with_one_blas_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, also in a worker of an executor, where it takes this one along."""
    with one_blas_thread():
        return function(*arguments)


def blas_in_words() -> str:
    """The libraries of NumPy and SciPy, and how many threads each has outside of stanct's work."""
    found = [one for one in _controller().info() if one["user_api"] == "blas"]
    return ", ".join(
        f"{one['internal_api']} {one['version']} ({one['architecture']}), {one['num_threads']} "
        f"thread{'s' if one['num_threads'] > 1 else ''}"
        for one in found
    )
