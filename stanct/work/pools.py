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
    kind, _, rest = executor.partition(":")
    if kind == "dask":
        with _client(rest) as client:
            yield client.get_executor()
        return
    workers = _workers(executor, kind, rest)
    pool: Executor
    if kind == "processes":
        # Forked workers would inherit the locks of threads that do not run in them.
        start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(start))
    else:
        pool = ThreadPoolExecutor(workers)
    with pool:
        yield pool


def _workers(text: str, kind: str, rest: str) -> int | None:
    if kind not in KINDS or (rest and not (rest.isdecimal() and int(rest) > 0)):
        raise SamplingError(f"There is no executor {text!r}.", remedy=f"Write {FORMS}.")
    return int(rest) if rest else multiprocessing.cpu_count()


def _client(address: str) -> Any:
    if not address:
        raise SamplingError("An executor 'dask' needs an address.", remedy=f"Write {FORMS}.")
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise SamplingError(
            "Dask is not installed.", remedy="Install it: pip install 'stanct[dask]'."
        ) from None
    return distributed.Client(address)
