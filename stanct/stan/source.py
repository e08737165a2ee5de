"""Stan source text: `#include` expansion, and the mapping from offsets to file and line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from stanct.common.errors import ProgramError, UnsupportedError

# Comments and strings are matched first, so that an #include inside them is left alone.
_INCLUDE = re.compile(
    r"""//[^\r\n]* | /\*.*?\*/ | "[^"\r\n]*"
      | (?P<include>\#include[ \t\f\r\n]+(?:"(?P<q>[^"\r\n]*)"|<(?P<a>[^>\r\n]*)>|(?P<w>\S+)))""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST_INCLUDE = 50


@dataclass(frozen=True)
class Place:
    """A position in one of the user's files. Lines and columns are counted from 1."""

    path: str
    line: int
    column: int
    excerpt: str


@dataclass(frozen=True)
class _File:
    """A file of the program."""

    path: str
    text: str

    def place(self, offset: int) -> Place:
        start = self.text.rfind("\n", 0, offset) + 1
        stop = self.text.find("\n", offset)
        excerpt = self.text[start : stop if stop >= 0 else len(self.text)].rstrip("\r")
        line = self.text.count("\n", 0, start) + 1
        return Place(self.path, line, offset - start + 1, excerpt)


@dataclass(frozen=True)
class _Piece:
    """A contiguous part of the expanded text that comes from one file."""

    start: int
    file: _File
    file_start: int


class SourceText:
    """The text of a program with every `#include` expanded, and the origin of each character."""

    def __init__(self, text: str, pieces: list[_Piece]) -> None:
        self.text = text
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]

    @classmethod
    def expand(cls, source: str, label: str, folders: Iterable[Path] = ()) -> SourceText:
        """Expand every `#include` of `source`, whose path or name in messages is `label`.

        Included files are looked up in the folders in order, and then in that of the including
        file. As in stanc, this goes for names that begin with a slash, too. Raises `ProgramError`
        for a file that is missing, unreadable, or includes itself.
        """
        expander = _Expander(tuple(folders))
        expander.add(_File(label, source), None, (label,))
        return cls("".join(expander.parts), expander.pieces)

    def place(self, offset: int) -> Place:
        """Return the original position of the character at `offset` of the expanded text."""
        piece = self._pieces[max(bisect_right(self._starts, offset) - 1, 0)]
        return piece.file.place(piece.file_start + offset - piece.start)

    def error(self, offset: int, message: str, remedy: str | None = None) -> ProgramError:
        """Build the error that points at `offset` of the expanded text."""
        return _error_at(self.place(offset), message, remedy)

    def refusal(
        self, offset: int, reason: str, message: str, remedy: str | None = None
    ) -> UnsupportedError:
        """Build the error for legal code at `offset` that cannot be transformed."""
        place = asdict(self.place(offset))
        return UnsupportedError(message, reason=reason, remedy=remedy, **place)


class _Expander:
    """Collects the expanded text piece by piece."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders
        self.parts: list[str] = []
        self.pieces: list[_Piece] = []
        self.length = 0

    def add(self, file: _File, path: Path | None, chain: tuple[str, ...]) -> None:
        start = 0
        for match in _INCLUDE.finditer(file.text):
            if match.group("include") is None:
                continue
            self._append(file, start, match.start())
            name = match.group("q") or match.group("a") or match.group("w") or ""
            place = file.place(match.start())
            if not name:
                told = "This #include names no file."
                raise _error_at(place, told, "Write `#include file.stan`.")
            found, included = self._read(name, path, place)
            key = str(found)
            if key in chain or len(chain) > _DEEPEST_INCLUDE:
                told = f"`{name}` includes itself."
                raise _error_at(place, told, "Remove the circular #include.")
            self.add(included, found, (*chain, key))
            start = match.end()
        self._append(file, start, len(file.text))

    def _append(self, file: _File, start: int, stop: int) -> None:
        self.pieces.append(_Piece(self.length, file, start))
        self.parts.append(file.text[start:stop])
        self.length += stop - start

    def _read(self, name: str, including: Path | None, place: Place) -> tuple[Path, _File]:
        folders = [*self.folders, *([including.parent] if including else [])]
        for folder in folders:
            candidate = folder / name.lstrip("/")
            try:
                if not candidate.is_file():
                    continue
                text = candidate.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as cause:
                told = f"`{candidate}` cannot be read: {cause}."
                raise _error_at(place, told, None) from cause
            return candidate, _File(str(candidate), text)
        searched = ", ".join(str(folder) for folder in folders) or "no folder"
        raise _error_at(
            place,
            f"The included file `{name}` was not found; searched {searched}.",
            "Pass the folder that holds it in include_paths=.",
        )


def _error_at(place: Place, message: str, remedy: str | None) -> ProgramError:
    return ProgramError(message, remedy=remedy, **asdict(place))
