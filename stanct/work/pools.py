"""Executors by name: pools of processes or threads on this machine, and Dask clusters."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from stanct.errors import SamplingError

KINDS = ("processes", "threads", "dask")
FORMS = "'processes:4', 'threads:4' or 'dask:tcp://host:port'"


@contextmanager
def opened(executor: Executor | str | None) -> Iterator[Executor | None]:
    """Yield the executor that a text names, and close it afterwards; other values pass through.

    ``"processes:4"`` and ``"threads:4"`` are pools of four workers, without a number of as many as
    there are cores. ``"dask:tcp://host:port"`` is a Dask cluster with a scheduler at that address.

    Raises
    ------
    SamplingError
        The text names no executor, or Dask is not installed.
    """
    if not isinstance(executor, str):
        yield executor
        return
    kind, rest = check_executor(executor)
    if kind == "dask":
        with _client(rest) as client:
            yield client.get_executor()
        return
    workers = int(rest) if rest else multiprocessing.cpu_count()
    pool: Executor
    if kind == "processes":
        # Forked workers would inherit the locks of threads that do not run in them.
        start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(start)
        # Imported once, and not by every worker of every pool.
        context.set_forkserver_preload(["__main__", "stanct.model"])
        pool = ProcessPoolExecutor(workers, mp_context=context)
    else:
        pool = ThreadPoolExecutor(workers)
    with pool:
        yield pool


def check_executor(text: str) -> tuple[str, str]:
    """Return the kind that a text names, and its number of workers or address.

    Raises
    ------
    SamplingError
        The text names no executor.
    """
    kind, _, rest = text.partition(":")
    if kind == "dask":
        if not rest:
            raise SamplingError("An executor 'dask' needs an address.", remedy=f"Write {FORMS}.")
    elif kind not in KINDS or (rest and not (rest.isdecimal() and int(rest) > 0)):
        raise SamplingError(f"There is no executor {text!r}.", remedy=f"Write {FORMS}.")
    return kind, rest


def _client(address: str) -> Any:
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise SamplingError(
            "Dask is not installed.", remedy="Install it: pip install 'stanct[dask]'."
        ) from None
    try:
        return distributed.Client(address)
    except (OSError, ValueError) as cause:
        raise SamplingError(
            f"There is no Dask scheduler at {address!r}: {cause}.",
            remedy="Start one (dask scheduler), or correct the address.",
        ) from cause
