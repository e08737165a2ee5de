"""Stan source text: `#include` expansion, and the mapping from offsets to file and line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from stanct.errors import ProgramError, UnsupportedError

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
class _Piece:
    """A contiguous part of the expanded text that comes from one file."""

    start: int
    path: str
    file_text: str
    file_start: int


class SourceText:
    """The expanded text of a program, with the origin of each character.

    Attributes
    ----------
    text : str
        The program with every `#include` replaced by the file that it names.
    """

    def __init__(self, text: str, pieces: list[_Piece]) -> None:
        self.text = text
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]

    @classmethod
    def expand(cls, source: str, label: str, folders: Iterable[Path] = ()) -> SourceText:
        """Expand every `#include` of `source`.

        Parameters
        ----------
        source
            Stan code.
        label
            Path or name of `source` in error messages.
        folders
            Folders to search for included files, in order. The folder of an including file comes
            last.

        Raises
        ------
        ProgramError
            An included file is missing, unreadable, or includes itself.
        """
        expander = _Expander(tuple(folders))
        expander.add(source, label, None, (label,))
        return cls("".join(expander.parts), expander.pieces)

    def place(self, offset: int) -> Place:
        """Return the original position of the character at `offset` of the expanded text."""
        piece = self._pieces[max(bisect_right(self._starts, offset) - 1, 0)]
        return _place(piece.file_text, piece.path, piece.file_start + offset - piece.start)

    def error(self, offset: int, message: str, remedy: str | None = None) -> ProgramError:
        """Build the error that points at `offset` of the expanded text."""
        return _error_at(self.place(offset), message, remedy)

    def refusal(
        self, offset: int, reason: str, message: str, remedy: str | None = None
    ) -> UnsupportedError:
        """Build the error for legal code at `offset` that cannot be transformed."""
        place = self.place(offset)
        return UnsupportedError(message, reason=reason, remedy=remedy, **asdict(place))


class _Expander:
    """Collects the expanded text piece by piece."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders
        self.parts: list[str] = []
        self.pieces: list[_Piece] = []
        self.length = 0

    def add(self, text: str, label: str, file: Path | None, chain: tuple[str, ...]) -> None:
        start = 0
        for match in _INCLUDE.finditer(text):
            if match.group("include") is None:
                continue
            self._append(text, label, start, match.start())
            name = match.group("q") or match.group("a") or match.group("w") or ""
            place = _place(text, label, match.start())
            found, included = self._read(name, file, place)
            key = str(found)
            if key in chain or len(chain) > _DEEPEST_INCLUDE:
                raise _error_at(
                    place, f"`{name}` includes itself.", "Remove the circular #include."
                )
            self.add(included, key, found, (*chain, key))
            start = match.end()
        self._append(text, label, start, len(text))

    def _append(self, text: str, label: str, start: int, stop: int) -> None:
        self.pieces.append(_Piece(self.length, label, text, start))
        self.parts.append(text[start:stop])
        self.length += stop - start

    def _read(self, name: str, file: Path | None, place: Place) -> tuple[Path, str]:
        folders = [*self.folders, *([file.parent] if file else [])]
        for folder in folders:
            candidate = folder / name
            if candidate.is_file():
                try:
                    return candidate, candidate.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError) as cause:
                    raise _error_at(
                        place, f"`{candidate}` cannot be read: {cause}.", None
                    ) from cause
        searched = ", ".join(str(folder) for folder in folders) or "no folder"
        raise _error_at(
            place,
            f"The included file `{name}` was not found; searched {searched}.",
            "Pass the folder that holds it in include_paths=.",
        )


def _place(text: str, path: str, offset: int) -> Place:
    line_start = text.rfind("\n", 0, offset) + 1
    line_stop = text.find("\n", offset)
    excerpt = text[line_start : line_stop if line_stop >= 0 else len(text)].rstrip("\r")
    return Place(path, text.count("\n", 0, line_start) + 1, offset - line_start + 1, excerpt)


def _error_at(place: Place, message: str, remedy: str | None) -> ProgramError:
    return ProgramError(
        message,
        path=place.path,
        line=place.line,
        column=place.column,
        excerpt=place.excerpt,
        remedy=remedy,
    )
