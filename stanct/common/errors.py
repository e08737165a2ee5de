"""The exceptions of stanct. Each says what was wrong, where, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Characters of a message that are shown, of a word in it, such as a path or a name of the user's,
# and of a line of the user's around the fault.
_LONGEST, _LONGEST_WORD, _AROUND = 1200, 160, 50
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


def shortened(text: str, longest: int) -> str:
    """Leave out the middle of a text that is longer than this."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} [...] {text[-half:]}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first names, with a mark where there are more."""
    return f"{', '.join(names[:most])}{', …' if len(names) > most else ''}"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number of things: ``1 chain``, ``4 chains``."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def as_written(flat: str) -> str:
    """A scalar that CmdStan calls ``b.1.2``, or ``t:1.2`` in a tuple, as in Stan: ``b[1,2]``."""
    parts = [part.split(".") for part in flat.split(":")]
    return ".".join(f"{name}[{','.join(at)}]" if at else name for name, *at in parts)


def _shown(text: str) -> str:
    """A text as messages show it: of a few lines, and of characters that can be printed."""
    short = _LONG_WORD.sub(lambda word: shortened(word[0], _LONGEST_WORD), text)
    return shortened(short, _LONGEST).encode(errors="backslashreplace").decode()


class StanctError(Exception):
    """Base class of every error that stanct raises on purpose.

    The message says what was wrong and what was seen. The remedy, which is appended to it, says
    what the user can do about it.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        message = _shown(message)
        super().__init__(message)
        self.message = message
        self.remedy = None if remedy is None else _shown(remedy)

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}" if self.remedy else self.message


class ProgramError(StanctError):
    """The user's Stan program cannot be read, checked or transformed.

    Path, line and column, from 1, are those of the user's file, and the excerpt is the line.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        excerpt: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.path = path
        self.line = line
        self.column = column
        self.excerpt = excerpt

    def __str__(self) -> str:
        path = _shown(self.path or "")
        place = ":".join(str(part) for part in (path, self.line, self.column) if part)
        lines = [f"{place}: {self.message}" if place else self.message]
        if self.excerpt is not None:
            first = max(0, (self.column or 1) - 1 - _AROUND)
            excerpt = self.excerpt[first : first + 2 * _AROUND]
            lines.append(f"    {excerpt}")
            if self.column is not None:
                before = excerpt[: self.column - 1 - first]
                lead = "".join("\t" if c == "\t" else " " for c in before)
                lines.append(f"    {lead}^")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines).encode(errors="backslashreplace").decode()


class UnsupportedError(ProgramError):
    """The program is legal Stan that one kind of generated program cannot express.

    The reason is a short name of the construct. Programs refused for the same cause share it.
    """

    def __init__(self, message: str, *, reason: str, **place: Any) -> None:
        super().__init__(message, **place)
        self.reason = reason


class DataError(ProgramError):
    """The data do not fit the program's data block."""


class EngineError(StanctError):
    """A Stan engine is missing, or failed for a reason that is not the user's program."""


class SamplingError(StanctError):
    """Sampling could not start or continue, or its settings are invalid or contradictory."""


class TooLittleTimeError(SamplingError):
    """The time that a run may take passed before there were draws to keep."""


class ImproperError(SamplingError):
    """The integral of the density has no end, and no method could sample it."""


class LostExecutorError(SamplingError):
    """An executor failed: a worker was killed, ran out of memory, or could not be reached."""


class SavedRunError(StanctError):
    """A folder does not hold a run that this version of stanct can read."""


class CheckpointError(StanctError):
    """A folder cannot be used as the checkpoint of this run."""
