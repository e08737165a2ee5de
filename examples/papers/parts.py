"""The parts of a figure: each is made once, kept in a file, and made in any worker.

A part is a function of a job, which is a dictionary of JSON values with its own seed. Its result
is a dictionary of numbers and lists. It therefore depends on neither the worker that makes it nor
on the other parts. A finished part becomes one line of a file at once, so that a figure that was
stopped goes on from there. Its key holds the job and a hash of the function's text and of what it
calls in these examples, so that parts of another version are not taken for its own.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import logging
import multiprocessing
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  its BLAS is limited once it is loaded
from threadpoolctl import threadpool_limits
from tqdm import tqdm

Job = Mapping[str, Any]
Result = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[1]
EXECUTORS = "serial, processes, dask or dask:ADDRESS"


def timed(function: Callable[..., Result], job: Job) -> tuple[str, float]:
    """The result of one part as JSON, and its seconds; this is what a worker calls."""
    started = time.perf_counter()
    with threadpool_limits(1, "blas"):  # some results depend on the number of threads
        result = function(**job)
    return json.dumps(result, default=_plain), time.perf_counter() - started


class Signals:
    """Remembers Ctrl-C and SIGTERM while its context lasts.

    A run of stanct that Ctrl-C ends returns the draws that it has. A part made of them would be
    too short, and it would look finished.

    Attributes
    ----------
    number
        The signal that came, or 0.
    """

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> Signals:
        self._before = {n: signal.signal(n, self._heard) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        raise KeyboardInterrupt


def _plain(value: Any) -> Any:
    """Arrays and NumPy's numbers as Python's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _texts(function: Callable[..., Any]) -> list[str]:
    """The texts of a function, of what it names in these examples, and of scripts that it loads."""
    texts: dict[str, str] = {}
    left: list[Any] = [function]
    while left:
        one = left.pop()
        key = f"{one.__module__}.{one.__qualname__}"
        if key in texts:
            continue
        texts[key] = inspect.getsource(one)
        named, scripts = _names(texts[key])
        texts |= {str(script): script.read_text(encoding="utf-8") for script in scripts}
        around = vars(sys.modules[one.__module__])
        modules = [value for name in named if inspect.ismodule(value := around.get(name))]
        for value in (space.get(name) for space in (around, *map(vars, modules)) for name in named):
            own = getattr(value, "__wrapped__", value)  # of a function with a cache
            if (inspect.isfunction(own) or inspect.isclass(own)) and _is_ours(own):
                left.append(own)
    return [texts[name] for name in sorted(texts)]


def _names(text: str) -> tuple[set[str], list[Path]]:
    """Every name that a text has, and the scripts of other examples that it loads."""
    found, scripts = set[str](), list[Path]()
    for node in ast.walk(ast.parse(textwrap.dedent(text))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "example":
            folder, script = [*map(ast.literal_eval, node.args), "run"][:2]
            scripts.append(EXAMPLES / folder / f"{script}.py")
    return found, scripts


def _is_ours(value: Any) -> bool:
    """Whether a function or a class is of these examples, and not of a package."""
    file = getattr(sys.modules.get(value.__module__), "__file__", None)
    return file is not None and EXAMPLES in Path(file).resolve().parents


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
    signals
        Knows whether somebody wants the command to end. Nothing that was under way is then kept.
    anew
        Empties the file, but only when the first part is finished: a command that is refused, or
        that stumbles at once, costs no parts.
    """

    file: Path
    executor: Executor | None = None
    only: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    signals: Signals = field(default_factory=Signals)
    anew: bool = False

    def every(self, function: Callable[..., Result], jobs: Sequence[Job]) -> list[Result]:
        """The results of all jobs, for figures that lack nothing.

        Raises
        ------
        SystemExit
            `only` leaves out a job. Nothing is made then.
        """
        self.whole((function, jobs))
        return [result for result in self.all(function, jobs) if result is not None]

    def whole(self, *wanted: tuple[Callable[..., Result], Sequence[Job]]) -> None:
        """Refuse `only` where it leaves out one of these parts; for figures of several kinds.

        Raises
        ------
        SystemExit
            A part is left out.
        """
        found, keys = self._kept(), [key for pair in wanted for key in self._keys(*pair)]
        lacking = [key for key in keys if key not in found and not self._wanted(key)]
        if lacking:
            raise SystemExit(
                f"This figure needs all of its {len(keys)} parts, and --only leaves out "
                f"{len(lacking)} of them. The first one is: {lacking[0]}"
            )

    def all(self, function: Callable[..., Result], jobs: Sequence[Job]) -> list[Result | None]:
        """The results of all jobs in their order, None for those left out by `only`.

        Raises
        ------
        SystemExit
            Every job is left out, the file has a line that is no part, or a worker has died.
        KeyboardInterrupt
            A signal came. The parts that were under way are not kept.
        """
        return self.kinds((function, jobs))[0]

    def kinds(
        self, *wanted: tuple[Callable[..., Result], Sequence[Job]]
    ) -> list[list[Result | None]]:
        """What `all` returns, of several functions. It is refused if every job of all is left out.

        Raises
        ------
        SystemExit, KeyboardInterrupt
            As `all`.
        """
        found = self._kept()
        keys = [self._keys(*pair) for pair in wanted]
        if not any(key in found or self._wanted(key) for own in keys for key in own):
            raise SystemExit(f"--only leaves out every part. A key looks like this: {keys[0][0]}")
        return [
            self._results(function, jobs, own)
            for (function, jobs), own in zip(wanted, keys, strict=True)
        ]

    def _results(
        self, function: Callable[..., Result], jobs: Sequence[Job], keys: Sequence[str]
    ) -> list[Result | None]:
        """Make what is missing of one function, and read the rest."""
        found = self._kept()
        left = [k for k, key in enumerate(keys) if key not in found and self._wanted(key)]
        bar = tqdm(total=len(left), unit="part", leave=False, disable=None)
        with bar:
            for k, (text, seconds) in self._made(function, jobs, left):
                line = {"part": keys[k], "seconds": seconds, "result": json.loads(text)}
                with self.file.open("w" if self.anew else "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                self.anew = False
                found[keys[k]] = line
                bar.update()
        self.seconds |= {key: found[key]["seconds"] for key in keys if key in found}
        return [found[key]["result"] if key in found else None for key in keys]

    def _wanted(self, key: str) -> bool:
        return not self.only or any(word in key for word in self.only)

    @staticmethod
    def _keys(function: Callable[..., Result], jobs: Sequence[Job]) -> list[str]:
        text = hashlib.sha256("".join(_texts(function)).encode()).hexdigest()[:8]
        start = f"{function.__name__} {text}"
        return [f"{start} {json.dumps(dict(job), sort_keys=True)}" for job in jobs]

    def _made(
        self, function: Callable[..., Result], jobs: Sequence[Job], left: Sequence[int]
    ) -> Iterator[tuple[int, tuple[str, float]]]:
        if self.executor is None:
            for k in left:
                try:
                    made = timed(function, jobs[k])
                except Exception as failure:
                    if self.signals.number:  # too few draws may have been what it stumbled over
                        raise KeyboardInterrupt from failure
                    raise
                if self.signals.number:
                    raise KeyboardInterrupt
                yield k, made
            return
        with without_interrupts():  # processes that are started now never hear Ctrl-C
            futures = {self.executor.submit(timed, function, jobs[k]): k for k in left}
        try:
            for future in _finished(futures):
                yield futures[future], future.result()
        except BrokenExecutor:
            raise SystemExit(
                f"A worker has died, perhaps for want of memory. {self.file} has the finished "
                "parts, and --resume goes on from them. Try fewer --workers."
            ) from None
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _kept(self) -> dict[str, dict[str, Any]]:
        """The parts of the file by key. A last line that a killed run left unfinished goes."""
        if self.anew or not self.file.exists():
            return {}
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
            self.file.write_text("".join(lines), encoding="utf-8")
        found = {}
        for number, line in enumerate(lines, 1):
            try:
                part = json.loads(line)
                found[part["part"]] = {name: part[name] for name in ("part", "seconds", "result")}
            except (ValueError, KeyError, TypeError):
                raise SystemExit(
                    f"Line {number} of {self.file} is not a part. Delete the line, or make all "
                    "parts anew without --resume."
                ) from None
        return found


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C.

    A terminal sends it to them, too. They would return a part of too few draws, or print where
    they were. The process that started them ends them.
    """
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # only the main thread may do that
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ended(patience: float = 3.0) -> None:
    """End the processes that this one has started, first by asking them."""
    running = multiprocessing.active_children()
    for process in running:
        process.terminate()
    until = time.monotonic() + patience
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()


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
    if kind == "serial":
        yield None
    elif kind == "processes":
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _ended()
            raise
        pool.shutdown()
    elif kind == "dask" or kind.startswith("dask:"):
        with _dask(kind.partition(":")[2], workers) as pool:
            yield pool
    else:
        raise SystemExit(f"There is no executor {kind!r}. Choose {EXECUTORS}.")


@contextlib.contextmanager
def _dask(address: str, workers: int) -> Iterator[Executor]:
    """Workers of Dask at an address, or so many on this machine if it is empty."""
    try:
        from dask.distributed import Client
    except ImportError:
        raise SystemExit("Dask is not installed: pip install distributed") from None
    place: dict[str, Any] = {"address": address} if address else {
        "n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"
    }  # fmt: skip
    with without_interrupts():
        try:
            client = Client(**place)
        except (OSError, ValueError) as failure:
            raise SystemExit(f"Dask cannot be reached at {address!r}: {failure}") from None
    try:
        yield client.get_executor(pure=False)
    except BaseException:
        logging.disable()  # what it says about work that was given up is of no use to anybody
        with contextlib.suppress(Exception):
            client.close(timeout=20)  # workers of this machine have a few seconds to end
        _ended()
        raise
    client.close()
