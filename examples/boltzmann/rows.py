"""A CSV file of finished runs, to which each run is added at once."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows that the file has so far, none if there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def appending(
    path: Path, columns: Sequence[str]
) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """A function that adds a row to the file and flushes it, so that a killed run loses nothing.

    The header is written if the file is new.
    """
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if new:
            writer.writeheader()

        def add(row: Mapping[str, object]) -> None:
            writer.writerow(row)
            file.flush()

        yield add
