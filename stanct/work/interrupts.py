"""Ends a run soon after Ctrl-C or SIGTERM, whatever its compiled code is doing."""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from stanct.common.deadline import OutOfTime, heed, result

T = TypeVar("T")

GRACE = 0.8
"""Time in seconds that work under way has to end after an interrupt, before it is left behind."""
# Time in seconds that compiled code has for a part of its work, and the most items of a part.
_AT_ONCE, _MOST_AT_ONCE = 1e-3, 256


class Threads(Executor):
    """Threads that an interrupt can leave behind; they do not keep the interpreter alive.

    A `ThreadPoolExecutor` waits for its own, and a block of a slow program may take minutes.
    """

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [_Thread(self._work, f"stanct-{k}") for k in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
        # Every log density asks whether its thread is among them.
        with suppress(ValueError):
            _left.remove(threading.current_thread())

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call; see `concurrent.futures.Executor.submit`."""
        future = Future[T]()

        def task() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as failure:
                    future.set_exception(failure)

        self._tasks.put(task)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let each thread end after what it is doing; nobody waits for it."""
        with _lock:
            _left[:] = [thread for thread in {*_left, *self._threads} if thread.is_alive()]
        for _ in self._threads:
            self._tasks.put(None)


class _Thread(threading.Thread):
    """A thread that knows which thread made it, and therefore waits for it."""

    def __init__(self, target: Callable[[], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.maker = threading.current_thread()


_left: list[threading.Thread] = []
_lock = threading.Lock()


def left_behind() -> bool:
    """Whether nobody waits any more for what this thread does, or for the one that made it."""
    if not _left:
        return False
    thread: threading.Thread | None = threading.current_thread()
    while thread is not None and thread not in _left:
        thread = getattr(thread, "maker", None)
    return thread is not None


def end_if_left_behind() -> None:
    """Raise `KeyboardInterrupt` in a thread for which nobody waits any more."""
    if left_behind():
        raise KeyboardInterrupt


class Pace:
    """How much compiled code does at once: as much as takes a millisecond, and not too much.

    Between its parts, a thread that was left behind ends. The next loop remembers the pace.
    """

    def __init__(self) -> None:
        self._size, self.each = 1, 0.0  # `each`: seconds that one item took last

    def parts(self, count: int, first: int = 0) -> Iterator[slice]:
        """Yield slices from `first` to `count`, for a body that works on one after another."""
        while first < count:
            end_if_left_behind()
            part = slice(first, min(first + self._size, count))
            begun = time.perf_counter()
            yield part
            took = time.perf_counter() - begun
            self.each = took / (part.stop - first)
            if took > _AT_ONCE:
                self._size = 1
            elif part.stop - first == self._size < _MOST_AT_ONCE:
                self._size *= 2
            first = part.stop


@atexit.register
def _end() -> None:
    """End the process at once if threads were left behind in compiled code.

    They would come back while what they use is taken apart, which aborts the process. The status of
    one that has not failed is known only when Python leaves, if at all.
    """
    until = time.monotonic() + GRACE
    with suppress(KeyboardInterrupt):  # of somebody who does not want to wait
        for thread in [*_left]:
            thread.join(max(0.0, until - time.monotonic()))
    if not any(thread.is_alive() for thread in _left):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    ended_by = getattr(sys, "last_type", None)
    if ended_by is KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if _status is not None or ended_by is not None:
        os._exit(1 if _status is None else _status)
    with suppress(AttributeError, OSError, TypeError):  # glibc alone has `on_exit`
        library = ctypes.CDLL(None)
        library.on_exit(ctypes.cast(library._exit, ctypes.c_void_p), None)


_status: int | None = None


def in_threads(work: Callable[[int], T], count: int, threads: int) -> list[T]:
    """Call `work` with 0, ..., `count` − 1 in threads, and return the results.

    An interrupt leaves them behind, and waits `GRACE` seconds for those that end.
    """
    heed()
    with Threads(min(threads or os.cpu_count() or 1, count)) as pool:
        futures = [pool.submit(work, k) for k in range(count)]
        try:
            return [result(future) for future in futures]
        except BaseException:
            pool.shutdown()  # nobody waits any more
            wait([future for future in futures if not future.cancel()], GRACE)
            raise


def heard(work: Callable[[], T]) -> T:
    """Call `work` in a thread, so that an interrupt is heard while compiled code runs."""
    (found,) = in_threads(lambda _: work(), 1, 1)
    return found


@contextmanager
def heeding_signals(*, last: bool = False) -> Iterator[None]:
    """Let SIGTERM end the body like Ctrl-C; a handler of the user's own stays.

    A body that makes something of what is finished returns it, and the next body of the process
    ends at once with `SystemExit`. A body that has nothing to return ends with `SystemExit` itself.
    With `last`, the body is what makes something of what is finished: a SIGTERM that came before
    does not end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    terminates = handler in (signal.SIG_DFL, _terminate)
    if last:
        _sigterm.clear()
    if handler == signal.SIG_DFL and _sigterm.is_set():
        raise _exit()
    if terminates:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt as stop:
        if not _sigterm.is_set() or isinstance(stop, OutOfTime):
            raise
        raise _exit(stop) from stop
    finally:
        if terminates:
            signal.signal(signal.SIGTERM, handler)


# Whether SIGTERM came, and no `SystemExit` has told of it yet.
_sigterm = threading.Event()


def note_sigterm() -> None:
    """Let the next body of `heeding_signals` end the process, because this one returns results."""
    _sigterm.set()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    _sigterm.set()
    raise KeyboardInterrupt


def _exit(stop: BaseException | None = None) -> SystemExit:
    """The exception that ends a process after SIGTERM, with the notes of what ended its work."""
    _sigterm.clear()
    status = 128 + signal.SIGTERM
    leave_with(status)
    ending = SystemExit(status)
    for note in getattr(stop, "__notes__", ()):
        ending.add_note(note)
    return ending


def leave_with(status: int) -> None:
    """Set the status with which an interrupted process ends if threads are left behind."""
    global _status
    _status = status
