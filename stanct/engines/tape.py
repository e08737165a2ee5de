"""Loads the embedded engine in a thread of its own, which makes all calls that need its tape.

NUTS, Pathfinder and L-BFGS of stanli (0.24) need an autodiff tape, which exists only in the thread
that loaded the library. `on_tape` therefore works from any thread, and the calling thread stays
free for Ctrl-C. Where another module loaded the library first, and in a forked child, calls from
threads without the tape go to one helper process. It runs nothing of the user's script.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from stanct.common.deadline import heed, result, seconds_left
from stanct.common.errors import EngineError

if TYPE_CHECKING:
    import stanli

__all__ = ["on_tape", "serve", "stanli"]

# Time in seconds that an interrupted call has to end before its thread is given up.
_PATIENCE = 1.0
_SERVE = "from stanct.engines.tape import serve; serve()"


class _TapeThread:
    """A thread that makes calls one after another; it does not keep the interpreter alive."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]]
        self._calls = queue.SimpleQueue()
        self._process = os.getpid()
        self._lost = False
        self.interrupted = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stanct-tape", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            future, function, arguments = self._calls.get()
            try:
                future.set_result(function(*arguments))
            except BaseException as failure:
                future.set_exception(failure)

    @property
    def works(self) -> bool:
        """Whether the thread takes calls: not in a forked child, nor if a call never ended."""
        return not self._lost and self._process == os.getpid()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the thread. An interrupt stops the call, or leaves it behind."""
        future = Future[Any]()
        self._calls.put((future, function, arguments))
        try:
            return result(future)
        except KeyboardInterrupt:
            self.interrupted.set()
            with contextlib.suppress(BaseException):
                future.exception(_PATIENCE)
            self._lost = not future.done()
            self.interrupted.clear()
            raise


class _Helper:
    """A process that makes calls one after another; it ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._parent = os.getpid()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._lock:
            if self._process is None or self._parent != os.getpid():
                self._start()
            process = self._process
            assert process is not None and process.stdin and process.stdout
            try:
                with _killed_at_deadline(process):
                    pickle.dump((function, arguments), process.stdin)
                    process.stdin.flush()
                    worked, found = pickle.load(process.stdout)
            except BaseException as cause:
                process.kill()
                process.wait()
                self._process = None
                if isinstance(cause, EOFError | OSError | pickle.UnpicklingError):
                    heed()
                    raise EngineError(
                        "The process that runs the embedded engine died.",
                        remedy="It may have run out of memory.",
                    ) from cause
                raise
        if not worked:
            raise found
        return found

    def _start(self) -> None:
        folders = os.pathsep.join(folder or os.curdir for folder in sys.path)
        self._parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": folders},
        )


@contextlib.contextmanager
def _killed_at_deadline(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process if the deadline passes while the body waits for it."""
    left = seconds_left()
    if left is None:
        yield
        return
    timer = threading.Timer(left, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def serve() -> None:
    """Make the calls of another process, which come and go by the standard streams.

    The process ends with the other one, also in the middle of a call.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Stan programs print
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(calls,), daemon=True).start()
    while True:
        function, arguments = calls.get()
        answer: tuple[bool, Any]
        try:
            answer = True, on_tape(function, *arguments)
        except Exception as failure:
            answer = False, failure
        pickle.dump(answer, answers)
        answers.flush()


def _receive(calls: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))
    except BaseException:  # the other process has ended, or sends what this one cannot read
        os._exit(0)


# stanli (0.24) merges like statements of a loop into one, and loses terms where a vector is among
# their arguments, as in `for (n in 1:N) for (j in 1:M) y[n] ~ normal(m[j] + x[n], 1);`.
os.environ.setdefault("STANLI_NO_REROLL", "1")
_loaded_before = "stanli" in sys.modules
_thread, _helper = _TapeThread(), _Helper()
if _loaded_before:
    import stanli
else:
    stanli = _thread.call(importlib.import_module, "stanli")


class _Watch(stanli._InterruptWatch):  # pyright: ignore
    """The engine's own watch for Ctrl-C, which works in the main thread alone, and ours."""

    def __init__(self) -> None:
        super().__init__()
        self.poll = stanli._SamplePollCallback(  # pyright: ignore
            lambda _: int(self.tripped or _thread.interrupted.is_set())
        )


stanli._InterruptWatch = _Watch  # pyright: ignore


def on_tape(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function where the engine has its tape; see the module's docstring. It, its arguments
    and its result must be picklable. An `EngineError` says that a helper process died.
    """
    heed()
    if _loaded_before:
        if threading.current_thread() is threading.main_thread():
            return function(*arguments)
        return _helper.call(function, *arguments)
    return (_thread if _thread.works else _helper).call(function, *arguments)
