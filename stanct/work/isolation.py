"""Processes that this package starts end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess


def end_with_parent() -> None:
    """Let this process end when the process that made it ends, even if that one was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def without_script() -> Iterator[None]:
    """Let processes begin as those of ``python -c`` while a script comes from stdin."""
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) != "<stdin>":
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = "<stdin>"
