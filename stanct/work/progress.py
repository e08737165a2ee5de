"""Progress that never stops or slows the sampling, whatever happens to stderr.

One line shows the bar that was opened last. A thread draws it again and again, so that a stage that
reports nothing for a while is seen to go on.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import suppress
from typing import Self

TICK, LEAST = 0.5, 0.1
"""Seconds between two looks of the thread, and between two drawings at least."""
EVERY, GROWTH = 10.0, 0.1
"""Off a terminal: seconds between lines at least, and as a share of what the stage has taken."""
SURE = 2.0
"""Seconds of a stage after which its time left is told."""


class Bar:
    """One stage of the work: a line on a terminal and in notebooks, lines in files and pipes.

    A line says the stage, its share, seconds so far and left: twice a second, or off a terminal
    every ten seconds, and less often the longer a stage takes. `total` is 0 where there is nothing
    to count.
    """

    def __init__(self, total: int, label: str, *, unit: str = "", shown: bool) -> None:
        self.total, self.label, self.unit, self.shown = total, label, unit, shown
        self._place = self._note = ""
        self._done = 0
        self._began = time.monotonic()
        if shown and sys.stderr is not None:
            _line.open(self)

    def begin(self, part: str, number: int, of: int) -> None:
        """Begin a part of the stage, the first of which has the number 1, with its own units."""
        self._place, self._note = f" {number}/{of}, {part}", ""
        self.phase(0, "")

    def update(self, count: int = 1) -> None:
        """Count further units as done."""
        self._done += count
        if self.shown:
            _line.draw()

    def note(self, text: str) -> None:
        """Show a text behind the numbers; characters that stderr cannot encode become "?"."""
        self._note = text

    def expect(self, total: int) -> None:
        """Correct the total number of units."""
        self.total = total

    def phase(self, total: int, unit: str) -> None:
        """Begin a phase of the part, with units and seconds of its own."""
        self.total, self.unit, self._began = total, unit, time.monotonic()
        self._done = 0

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self._began

    @property
    def text(self) -> str:
        """Stage, units, share, seconds so far and left, and the note."""
        taken, done = self.seconds, self._done
        parts = [f"{taken:.0f} s"]
        if done > 0 and self.total:
            total = max(self.total, done)  # a stage may make more than was expected
            share = done / total
            units = f" {self.unit}s" if self.unit else ""
            parts.insert(0, f"{done:,} of {total:,}{units} ({share:.0%})")
            if taken > SURE and share < 1:
                parts.append(f"about {taken * (1 / share - 1):.0f} s left")
        note = f"; {self._note}" if self._note else ""
        return f"{self.label}{self._place}: {', '.join(parts)}{note}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            _line.close(self)


class _Line:
    """The line of the innermost open bar, and the thread that draws it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bars: list[Bar] = []
        self._ended = threading.Event()
        self._fails = False  # stderr, which is then left alone
        self._width = 0  # characters of the line on the screen
        self._drawn = float("-inf")
        self._told = float("-inf")  # time of the last line of any stage off a terminal

    def open(self, bar: Bar) -> None:
        """Show a bar in place of the one that was opened before."""
        with self._lock, suppress(Exception):
            self._bars.append(bar)
            if len(self._bars) > 1:
                return
            self._fails, self._drawn = False, float("-inf")
            # The first line of a run, too, comes after a while only.
            if (now := time.monotonic()) - self._told > 10 * EVERY:
                self._told = now
            self._ended = threading.Event()
            threading.Thread(target=self._tick, args=(self._ended,), daemon=True).start()

    def close(self, bar: Bar) -> None:
        """Show the bar that was opened before, if any."""
        with self._lock, suppress(Exception):
            self._bars = [other for other in self._bars if other is not bar]
            if self._bars:
                self._bars[-1].note(f"after {bar.label}")
                return
            self._ended.set()
            self._clear()

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(TICK):
            self.draw()

    def draw(self) -> None:
        """Draw the line, or write one, if it is time."""
        now = time.monotonic()
        if now - self._drawn < LEAST:
            return
        with self._lock, suppress(Exception):
            if not self._bars:
                return
            self._drawn = now
            bar = self._bars[-1]
            if _can_draw():
                self._put(bar.text)
            elif now - self._told >= max(EVERY, GROWTH * bar.seconds):
                self._told = now
                self._write(f"{_encodable(bar.text)}\n")

    def _put(self, text: str) -> None:
        short = _encodable(text)[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{short.ljust(self._width)}")
        self._width = len(short)

    def _clear(self) -> None:
        if self._width:
            self._write(f"\r{' ' * self._width}\r")
            self._width = 0

    def _write(self, text: str) -> None:
        if not self._fails:
            self._fails = True
            sys.stderr.write(text)
            sys.stderr.flush()
            self._fails = False

    def say(self, text: str) -> None:
        """Print a line above the line."""
        with self._lock, suppress(Exception):
            self._clear()
            self._fails = self._fails and bool(self._bars)
            self._write(f"{_encodable(text)}\n")
            if self._bars and _can_draw():
                self._put(self._bars[-1].text)


def say_above(text: str) -> None:
    """Print a line on stderr, above the bars that are open; never an error."""
    if sys.stderr is not None:
        _line.say(text)


def _can_draw() -> bool:
    """Whether a line can be drawn over itself: on a terminal, and in a notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


def _encodable(text: str) -> str:
    coding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return text.encode(coding, "replace").decode(coding)


_line = _Line()
