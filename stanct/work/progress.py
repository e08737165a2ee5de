"""Progress bars that can neither stop nor slow the sampling, whatever becomes of stderr."""

from __future__ import annotations

import select
import sys
from types import TracebackType
from typing import Any, Self

from tqdm.auto import tqdm


class Bar:
    """A progress bar on stderr, or a widget in notebooks; at most ten updates a second are drawn.

    What stderr cannot take at once is dropped: a pipe that nobody reads, a stopped terminal. After
    the first error of any kind the bar is silent.

    Parameters
    ----------
    total, unit
        How many of what there will be.
    label
        What stands before the bar.
    shown
        Whether anything is drawn at all.
    """

    def __init__(self, total: int, label: str, *, unit: str, shown: bool) -> None:
        self._bar: tqdm | None = None
        self.shown = shown
        if shown and sys.stderr is not None:
            self._try(lambda: self._open(total, label, unit))

    def _open(self, total: int, label: str, unit: str) -> None:
        self._bar = tqdm(
            total=total, desc=label, unit=unit, leave=False, mininterval=0.1, file=_Patient()
        )

    def update(self, count: int = 1) -> None:
        """Count further units as done."""
        self._try(lambda: self._bar and self._bar.update(count))

    def note(self, text: str) -> None:
        """Say beside the bar what goes on; what stderr's encoding lacks becomes a question mark."""
        coding = getattr(sys.stderr, "encoding", None) or "utf-8"
        plain = text.encode(coding, "replace").decode(coding)
        self._try(lambda: self._bar and self._bar.set_postfix_str(plain))

    def expect(self, total: int) -> None:
        """Correct how many units there will be."""
        self._try(lambda: self._bar and setattr(self._bar, "total", total))

    def _try(self, draw: Any) -> None:
        try:
            draw()
        except Exception:  # of a widget; what stderr raises ends in `_Patient`
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


class _Patient:
    """Stderr as tqdm needs it, but a text that would have to wait is dropped."""

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
        """Nothing waits: `write` flushes."""

    def _ready(self) -> bool:
        """Whether a line can be written at once; a stream that cannot tell is taken to be ready."""
        try:
            return bool(select.select([], [self._stream.fileno()], [], 0)[1])
        except (OSError, ValueError, AttributeError):
            return True
