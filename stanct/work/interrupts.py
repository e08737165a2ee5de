"""Ends a run soon after Ctrl-C or SIGTERM, whatever its compiled code is doing."""

from __future__ import annotations

import atexit
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from stanct.deadline import heed, result

T = TypeVar("T")

GRACE = 0.8
"""Time in seconds that work under way has to end after an interrupt, before it is left behind."""
# Time until a process is ended whose main thread does not react: to SIGTERM, or to a second Ctrl-C.
_SLOWEST, _AGAIN = 2.0, 0.5


class Threads(Executor):
    """Threads that an interrupt can leave behind; they do not keep the interpreter alive.

    Those of `ThreadPoolExecutor` are joined before a process ends, and a block of a slow program
    may take minutes.
    """

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"stanct-{k}", daemon=True)
            for k in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

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
        for _ in self._threads:
            self._tasks.put(None)
        _left.extend(self._threads)
        _left[:] = [thread for thread in _left if thread.is_alive()]


_left: list[threading.Thread] = []


@atexit.register
def _end() -> None:
    """End an interrupted process at once if threads were left behind in compiled code.

    They would come back while the interpreter is taken apart, which aborts the process.
    """
    until = time.monotonic() + GRACE
    for thread in _left:
        thread.join(max(0.0, until - time.monotonic()))
    if not any(thread.is_alive() for thread in _left):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if _status is not None:
        os._exit(_status)


_status: int | None = None


def in_threads(
    work: Callable[[int], T], count: int, threads: int, stopped: threading.Event | None = None
) -> list[T]:
    """Call `work` with 0, ..., `count` − 1 in threads, and return the results.

    An interrupt or the deadline sets `stopped`, waits for `GRACE` seconds, and leaves the rest
    behind.
    """
    heed()
    with Threads(min(threads or os.cpu_count() or 1, count)) as pool:
        futures = [pool.submit(work, k) for k in range(count)]
        try:
            return [result(future) for future in futures]
        except BaseException:
            if stopped is not None:
                stopped.set()
            wait([future for future in futures if not future.cancel()], GRACE)
            raise


def heard(work: Callable[[], T]) -> T:
    """Call `work` in a thread, so that an interrupt is heard while compiled code runs."""
    (found,) = in_threads(lambda _: work(), 1, 1)
    return found


@contextmanager
def heeding_signals(save: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM end the body like Ctrl-C, and end a process whose main thread hangs.

    SIGTERM raises `SystemExit`, unless the user has a handler of their own. If the main thread does
    not react, because compiled code does not return, `save` is called and the process ends: two
    seconds after SIGTERM, and half a second after a second Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    ended = threading.Event()
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    handler = signal.getsignal(signal.SIGTERM)
    terminates = handler in (signal.SIG_DFL, _terminate)
    if terminates:
        signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=_watch, args=(reader, ended, save, terminates), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        if terminates:
            signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(previous)
        writer.close()


def _terminate(number: int, _frame: FrameType | None) -> None:
    leave_with(128 + number)
    raise SystemExit(128 + number)


def leave_with(status: int) -> None:
    """Set the status with which an interrupted process ends if threads are left behind."""
    global _status
    _status = status


def _watch(
    reader: socket.socket, ended: threading.Event, save: Callable[[], None], terminates: bool
) -> None:
    """Read the numbers of signals, which arrive even while the main thread hangs."""
    interrupts = 0
    with reader:
        while numbers := reader.recv(1):
            interrupts += numbers[0] == signal.SIGINT
            if numbers[0] == signal.SIGTERM and terminates:
                patience = _SLOWEST
            elif numbers[0] == signal.SIGINT and interrupts > 1:
                patience = _AGAIN
            else:
                continue
            if not ended.wait(patience):
                with suppress(BaseException):
                    save()
                os._exit(128 + numbers[0])
