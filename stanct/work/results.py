"""Results of many pieces of work: rows in memory and, with a folder, lines of a file that grows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stanct.common.errors import CheckpointError, first_few, shortened
from stanct.common.resources import remedy_for

RESULTS = "results.jsonl"
# What a folder's results have that those of another call lack.
_OTHER = {
    "program": "of another program",
    "method": "of another method, or of one with other settings",
    "options": "with other options",
    "variables": "with other variables",
    "versions": "of other versions of stanct, NumPy or the engine",
    "seed": "with another seed",
}


def _differences(there: Any, here: Any) -> str:
    """What two sets of options differ in, and the values that are in the folder."""
    if not (isinstance(there, Mapping) and isinstance(here, Mapping)):
        return ""
    names = [n for n in sorted({*there, *here}) if there.get(n) != here.get(n)]
    parts = [f"{n}={there[n]}" if n in there else f"no {n}=" for n in names]
    return f": {shortened(first_few(parts), 200)}"


class Results:
    """The rows so far by name, and the file to which they are appended, if any.

    Its first line identifies the call. Rows are JSON values, each with `name`, `data` and `error`.
    """

    def __init__(self, file: Path | None, seed: int, rows: dict[str, dict[str, Any]]) -> None:
        self.file, self.seed, self.rows = file, seed, rows

    @classmethod
    def opened(
        cls, folder: str | os.PathLike[str] | None, identity: Mapping[str, Any], seed: int | None
    ) -> Results:
        """The results of a folder, or of a new one.

        Raises `CheckpointError` if it cannot be written, is damaged, or belongs to other settings.
        """
        fresh = seed if seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
        if folder is None:
            return cls(None, fresh, {})
        file = Path(folder) / RESULTS
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            lines = _lines(file)
            if not lines:
                _append_line(file, {**identity, "seed": fresh})
                lines = _lines(file)
            head, rows = _read(file, lines)
            found = cls(file, head.get("seed", fresh), rows)
        except OSError as cause:
            raise CheckpointError(
                f"{file} cannot be read or written: {cause}.",
                remedy=remedy_for(cause, "Choose a folder that you can write."),
            ) from cause
        for name, value in {**identity, "seed": found.seed if seed is None else seed}.items():
            if head.get(name) != value:
                raise CheckpointError(
                    f"{folder} holds results {_OTHER[name]}{_differences(head.get(name), value)}.",
                    remedy="Choose another folder, or repeat the call that made it.",
                )
        return found

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; raises `CheckpointError` if it cannot be written."""
        self.rows[row["name"]] = row
        if self.file is None:
            return
        try:
            _append_line(self.file, row)
        except OSError as cause:
            raise CheckpointError(
                f"{self.file} cannot be written: {cause}.",
                remedy=remedy_for(cause, "The same call goes on once it can."),
            ) from cause


def _append_line(file: Path, line: Mapping[str, Any]) -> None:
    """Write a line; of one that fails, what was written of it is removed by `_lines` later."""
    with file.open("ab") as stream:
        stream.write(json.dumps(line).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _lines(file: Path) -> list[bytes]:
    """The lines of a file, if it is there; a last line that was cut, as by a kill, is removed."""
    text = file.read_bytes() if file.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        with file.open("rb+") as stream:
            stream.truncate(len(whole))
    return whole.split(b"\n")[:-1]


def _read(file: Path, lines: list[bytes]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The object of the first line, and the rows of the others by name."""
    try:
        head, *rows = map(json.loads, lines)
        return dict(head), {row["name"]: row for row in rows}
    except (ValueError, KeyError, TypeError) as cause:
        raise CheckpointError(
            f"{file} is damaged: {cause}.", remedy="Choose another folder, or delete this one."
        ) from cause
