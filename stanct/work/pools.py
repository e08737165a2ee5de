"""Executors by name: pools of processes or threads on this machine, and Dask clusters."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from stanct.common.errors import SamplingError
from stanct.work.interrupts import Threads
from stanct.work.isolation import end_with_parent, without_script

T = TypeVar("T")

KINDS = ("processes", "threads", "dask")
FORMS = "'processes:4', 'threads:4' or 'dask:tcp://host:port'"


@contextmanager
def opened(executor: Executor | str | None) -> Iterator[Executor | None]:
    """Yield the executor that a text names, and close it afterwards; other values pass through.

    Worker processes end with this process, even if it is killed. At the end of the body nobody
    waits for calls that are not finished. Raises `SamplingError` if the text names none.
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
    if kind == "threads":
        with Threads(workers) as pool:
            yield pool
        return
    # Forked workers would inherit the locks of threads that do not run in them.
    start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(start)
    # Imported once, and not by every worker of every pool.
    context.set_forkserver_preload(["__main__", "stanct.api.model"])
    with without_script(), _Processes(workers, mp_context=context, initializer=_begin) as pool:
        yield pool


class _Processes(ProcessPoolExecutor):
    """Worker processes that are killed at the end if they are still at work."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._open: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def __exit__(self, *_: object) -> None:
        if not all([future.cancel() or future.done() for future in list(self._open)]):
            for process in list((self._processes or {}).values()):
                process.kill()
        self.shutdown(cancel_futures=True)


def _begin() -> None:
    """Let a worker end with its parent, and leave Ctrl-C to it, which a terminal sends to both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def check_executor(text: str) -> tuple[str, str]:
    """The kind that a text names, and its workers or address; `SamplingError` if it names none."""
    kind, _, rest = text.partition(":")
    if kind == "dask":
        if not rest:
            raise SamplingError("An executor 'dask' needs an address.", remedy=f"Write {FORMS}.")
        return kind, rest
    number = rest.lstrip("0")
    if kind not in KINDS or (rest and not (number.isascii() and number.isdecimal())):
        raise SamplingError(f"There is no executor {text!r}.", remedy=f"Write {FORMS}.")
    return kind, number


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
