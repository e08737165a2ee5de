"""The parts of a figure: each is made once, kept in a file, and made in any worker.

A part is a function of a job, which is a dictionary of JSON values with its own seed. Its result
is a dictionary of numbers and lists. It therefore depends on neither the worker that makes it nor
on the other parts. A finished part becomes one line of a file at once, so that a figure that was
stopped goes on from there. Its key holds the job and a hash of the function's text, so that parts
of another version of the function are not taken for its own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

Job = Mapping[str, Any]
Result = dict[str, Any]
EXECUTORS = "serial, processes, dask or dask:ADDRESS"


def timed(function: Callable[..., Result], job: Job) -> tuple[str, float]:
    """The result of one part as JSON, and its seconds; this is what a worker calls."""
    started = time.perf_counter()
    result = function(**job)
    return json.dumps(result, default=_plain), time.perf_counter() - started


def _plain(value: Any) -> Any:
    """Arrays and NumPy's numbers as Python's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


@dataclass
class Parts:
    """Makes the parts of one figure, apart from those that its file already has.

    Attributes
    ----------
    file
        One line of JSON for each finished part.
    executor
        Where parts are made; here, one after the other, if it is None.
    only
        Makes only parts whose key contains one of these words. The others are left out, unless the
        file has them.
    seconds
        Seconds of each part that was used, by key. Those of the others are not known.
    """

    file: Path
    executor: Executor | None = None
    only: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def all(self, function: Callable[..., Result], jobs: Sequence[Job]) -> list[Result | None]:
        """The results of all jobs in their order, None for those left out by `only`.

        Raises
        ------
        SystemExit
            Every job is left out.
        """
        text = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:8]
        start = f"{function.__name__} {text}"
        keys = [f"{start} {json.dumps(dict(job), sort_keys=True)}" for job in jobs]
        found = self._kept()
        left = [k for k, key in enumerate(keys) if key not in found and self._wanted(key)]
        bar = tqdm(total=len(left), unit="part", leave=False, disable=None)
        with self.file.open("a", encoding="utf-8") as file, bar:
            for k, (text, seconds) in self._made(function, jobs, left):
                line = {"part": keys[k], "seconds": seconds, "result": json.loads(text)}
                file.write(json.dumps(line) + "\n")
                file.flush()
                found[keys[k]] = line
                bar.update()
        if not any(key in found for key in keys):
            raise SystemExit(f"--only leaves out every part. A key looks like this: {keys[0]}")
        self.seconds |= {key: found[key]["seconds"] for key in keys if key in found}
        return [found[key]["result"] if key in found else None for key in keys]

    def _wanted(self, key: str) -> bool:
        return not self.only or any(word in key for word in self.only)

    def _made(
        self, function: Callable[..., Result], jobs: Sequence[Job], left: Sequence[int]
    ) -> Iterator[tuple[int, tuple[str, float]]]:
        if self.executor is None:
            for k in left:
                yield k, timed(function, jobs[k])
            return
        futures = {self.executor.submit(timed, function, jobs[k]): k for k in left}
        for future in _finished(futures):
            yield futures[future], future.result()

    def _kept(self) -> dict[str, dict[str, Any]]:
        """The parts of the file by key. A last line that a killed run left unfinished goes."""
        if not self.file.exists():
            return {}
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
            self.file.write_text("".join(lines), encoding="utf-8")
        parts = (json.loads(line) for line in lines)
        return {part["part"]: part for part in parts}


def _finished(futures: Mapping[Any, int]) -> Iterator[Any]:
    """Futures as they finish; those of other executors than Python's own in their order."""
    own = all(hasattr(future, "_waiters") for future in futures)
    return as_completed(futures) if own else iter(futures)


@contextlib.contextmanager
def executor(kind: str, workers: int) -> Iterator[Executor | None]:
    """What `--executor` names.

    Raises
    ------
    SystemExit
        There is no such executor, or Dask is not installed.
    """
    # New processes read this: each uses one thread for linear algebra.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if kind == "serial":
        yield None
    elif kind == "processes":
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool
    elif kind == "dask" or kind.startswith("dask:"):
        try:
            from dask.distributed import Client
        except ImportError:
            raise SystemExit("Dask is not installed: pip install distributed") from None
        address = kind.partition(":")[2]
        opened: Callable[[], Any] = functools.partial(
            Client,
            **(
                {"address": address}
                if address
                else {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            ),
        )
        with opened() as client:
            yield client.get_executor(pure=False)
    else:
        raise SystemExit(f"There is no executor {kind!r}. Choose {EXECUTORS}.")
