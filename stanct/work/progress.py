"""Progress bars that never stop or slow the sampling, whatever happens to stderr."""

from __future__ import annotations

import select
import sys
import time
import warnings
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tqdm import TqdmExperimentalWarning

with warnings.catch_warnings():
    # `tqdm.auto` does the same and loads asyncio.
    warnings.simplefilter("ignore", TqdmExperimentalWarning)
    from tqdm.autonotebook import tqdm

EVERY, GROWTH = 10.0, 0.1
"""Off a terminal: seconds between lines at least, and as a share of what the stage has taken."""


class Bar:
    """A progress bar on a terminal, a widget in notebooks, and lines in files and pipes.

    A bar is drawn at most ten times a second. A line is written every ten seconds, and less often
    the longer a stage takes.

    Output that stderr cannot take at once is dropped, as with a pipe that nobody reads or a stopped
    terminal. After the first error of any kind the bar is silent.

    Parameters
    ----------
    total, unit
        Number of units, and their name.
    label
        Text before the bar.
    shown
        Whether the bar is drawn.
    """

    def __init__(self, total: int, label: str, *, unit: str, shown: bool) -> None:
        self._bar: tqdm | _Lines | None = None
        self.shown = shown
        if shown and sys.stderr is not None:
            self._try(lambda: self._open(total, label, unit))

    def _open(self, total: int, label: str, unit: str) -> None:
        if not _can_draw():
            self._bar = _Lines(total, label, unit)
            return
        self._bar = tqdm(
            total=total, desc=label, unit=unit, leave=False, mininterval=0.1, file=_Patient()
        )

    def update(self, count: int = 1) -> None:
        """Count further units as done."""
        self._try(lambda: self._bar and self._bar.update(count))

    def note(self, text: str) -> None:
        """Show a text beside the bar; characters that stderr cannot encode become "?"."""
        coding = getattr(sys.stderr, "encoding", None) or "utf-8"
        plain = text.encode(coding, "replace").decode(coding)
        self._try(lambda: self._bar and self._bar.set_postfix_str(plain))

    def expect(self, total: int) -> None:
        """Correct the total number of units."""
        self._try(lambda: self._bar and setattr(self._bar, "total", total))

    def _try(self, draw: Any) -> None:
        try:
            draw()
        except Exception:  # from a widget; `_Patient` catches the errors of stderr
            if self._bar is not None:
                self._bar.disable = True
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._try(lambda: self._bar and self._bar.close())


def _can_draw() -> bool:
    """Whether this is a terminal, or a notebook, where tqdm is a widget."""
    return sys.stderr.isatty() or any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)


class _Lines:
    """What `Bar` needs of tqdm, as lines of text."""

    last = float("-inf")  # time of the last line of any stage

    def __init__(self, total: int, label: str, unit: str) -> None:
        self.total, self.disable = total, False
        self._label, self._unit, self._note = label, unit, ""
        self._done = 0
        self._file = _Patient()
        self._began = time.monotonic()
        # The first line of a run, too, comes after a while only.
        if self._began - _Lines.last > 10 * EVERY:
            _Lines.last = self._began

    def update(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        taken = now - self._began
        if not self._done or now - _Lines.last < max(EVERY, GROWTH * taken):
            return
        _Lines.last = now
        note = f" ({self._note})" if self._note else ""
        self._file.write(
            f"{self._label}: {self._done} of {self.total} {self._unit}s{note}, {taken:.0f} s\n"
        )

    def set_postfix_str(self, text: str) -> None:
        self._note = text

    def close(self) -> None:
        """Say nothing: what comes next tells that the stage is over."""


def say_above(text: str) -> None:
    """Print a line on stderr, above the bars that are open; never an error."""
    if sys.stderr is None:
        return
    coding = getattr(sys.stderr, "encoding", None) or "utf-8"
    with suppress(Exception):
        tqdm.write(text.encode(coding, "replace").decode(coding), file=_Patient())


class _Patient:
    """The interface of stderr that tqdm needs; it drops text instead of waiting."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._works = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            if self._works and self._ready():
                self._stream.write(text)
                self._stream.flush()
        except Exception:
            self._works = False
        return len(text)

    def flush(self) -> None:
        """Do nothing, because `write` flushes."""

    def _ready(self) -> bool:
        """Return whether a line can be written at once; True if the stream cannot tell."""
        try:
            return bool(select.select([], [self._stream.fileno()], [], 0)[1])
        except (OSError, ValueError, AttributeError):
            return True
