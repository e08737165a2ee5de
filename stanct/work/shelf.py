"""Shelves: where the draws of x that a run keeps go, into memory or into a file that grows.

A run keeps every k-th draw of x (`thin`). Estimates of log Z need β and δ alone, and those are
small. With a folder (`store`), the kept draws go to disk as they are made, and blocks hold none of
them. The checkpoint in the same folder records the blocks. A file may then hold draws that no
checkpoint tells of, but not the other way round, because it reaches the disk first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from stanct.common.arrays import Array, mapped, mapped_file
from stanct.common.errors import CheckpointError
from stanct.common.resources import remedy_for


class Shelf:
    """The kept draws of one stage, every `thin`-th from the first on.

    They go into a file, or without a `path` stay in their blocks.
    """

    def __init__(self, thin: int = 1, path: Path | None = None) -> None:
        self.thin = thin
        self._path = path
        self._file: _Grown | None = None

    @property
    def on_disk(self) -> bool:
        """Whether draws go to a file."""
        return self._path is not None

    def kept(self, draws: int) -> Array:
        """Positions of the kept ones among the first draws of a chain."""
        return np.arange(0, draws, self.thin)

    def rows(self, first: int, draws: int) -> slice:
        """The kept ones in a block whose first draw is the chain's draw number `first`, from 0."""
        return slice(-first % self.thin, draws, self.thin)

    def taken(
        self, values: Array, first: int, *, chain: int = 0, chains: int | None = None
    ) -> Array:
        """Keep what is to be kept of a block, and return what the block holds in its place.

        `values`, shape (some chains, draws, ...), begin with draw `first` and `chain` of all
        `chains`.
        """
        kept = values[:, self.rows(first, values.shape[1])]
        if self._path is None:
            return values if self.thin == 1 else kept.copy()
        item = (chains or len(values), *values.shape[2:])
        self._put(kept, -(-first // self.thin), chain, item)
        return values[:, :0].copy()

    def all(self, joined: Array, draws: int) -> Array:
        """The kept ones among the first `draws` draws of every chain, shape (chains, kept, ...).

        `joined` is what blocks hold of them. Raises `CheckpointError` if the file is too short.
        """
        if self._path is None:
            return joined
        if self._file is None:
            self._file = _Grown(self._path, (len(joined), *joined.shape[2:]))
        return self._file.view(self.kept(draws).size)

    def filled(self, shape: tuple[int, ...], parts: Iterable[tuple[int, Array, Array]]) -> Array:
        """Keep draws that come in any order; they are as by `all`, of shape (chains, kept, ...).

        `parts` are a chain, increasing rows, shape (n,), and values, shape (n, ...).
        """
        if self._path is None:
            found = np.empty(shape)
            for chain, rows, values in parts:
                found[chain, rows] = values
            return found
        for chain, rows, values in parts:
            ends = np.flatnonzero(np.diff(rows) != 1) + 1
            for some, them in zip(np.split(rows, ends), np.split(values, ends), strict=True):
                self._put(them[None], int(some[0]), chain, (shape[0], *shape[2:]))
        return self.all(np.empty((shape[0], 0, *shape[2:])), self.thin * shape[1])

    def _put(self, values: Array, row: int, chain: int, item: tuple[int, ...]) -> None:
        if self._file is None:
            assert self._path is not None
            self._file = _Grown(self._path, item)
        self._file.write(values, row, chain)

    def finish(self, values: Array) -> None:
        """End the file after these draws, if it is theirs."""
        name = getattr(values, "filename", None)
        if self._file and self._path and name and self._path.samefile(name):
            self._file.finish(values.shape[1])

    def synchronise(self) -> None:
        """Wait until what was written would survive a power cut."""
        if self._file is not None:
            self._file.synchronise()

    def close(self) -> None:
        """Close the file; arrays that map it stay as they are."""
        if self._file is not None:
            self._file.close()


class Filled:
    """A new ``.npy`` file of a known shape, which is filled from its beginning to its end."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self._path = path
        path.unlink(missing_ok=True)  # arrays that map the old one stay as they are
        self._stream = path.open("xb")
        self._stream.write(_header(shape))

    def add(self, values: Array) -> None:
        """Write the next values."""
        self._stream.write(np.ascontiguousarray(values, "<f8").reshape(-1).data.cast("B"))

    def array(self) -> Array:
        """Close the file, and map it."""
        self._stream.close()
        return mapped_file(self._path)


class _Grown:
    """An ``.npy`` file that grows without a mapping, by rows of one kept draw of all chains."""

    def __init__(self, path: Path, item: Sequence[int]) -> None:
        self._path, self._item = path, tuple(item)
        self._row = 8 * int(np.prod(self._item))
        self._start = len(_header((0, *self._item)))
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            self._stream = os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
        except OSError as cause:
            raise CheckpointError(
                f"The draws cannot be stored in {path}: {cause}.",
                remedy=remedy_for(cause, "Choose a folder that you can write."),
            ) from cause

    def write(self, values: Array, first: int, chain: int) -> None:
        """Write rows from number `first` on, of some chains from `chain` on."""
        some, count = values.shape[:2]
        rows = np.ascontiguousarray(np.swapaxes(values, 0, 1), dtype="<f8")
        try:
            if some == self._item[0]:
                self._put(rows, first, 0)
                return
            for k in range(count):
                self._put(rows[k], first + k, chain)
        except OSError as cause:
            raise CheckpointError(
                f"The draws cannot be stored in {self._path}: {cause}.",
                remedy="Make room, and repeat the call, which goes on from the finished blocks.",
            ) from cause

    def _put(self, values: Array, row: int, chain: int) -> None:
        rest = values.reshape(-1).data.cast("B")
        self._stream.seek(self._start + row * self._row + chain * self._row // self._item[0])
        while rest.nbytes:
            rest = rest[self._stream.write(rest) or 0 :]

    def view(self, rows: int) -> Array:
        """Map the first rows, shape (chains, rows, ...); the mapping is read-only."""
        size = os.fstat(self._stream.fileno()).st_size
        if size < self._start + rows * self._row:
            raise CheckpointError(
                f"{self._path} is damaged: it is too short for {rows} draws.",
                remedy="Delete the folder and run again.",
            )
        shape = (rows, *self._item)
        return np.swapaxes(mapped(self._path, "<f8", self._start, shape), 0, 1)

    def finish(self, rows: int) -> None:
        """Give the file its header and its length; nothing is written to it any more."""
        self._stream.seek(0)
        self._stream.write(_header((rows, *self._item)))
        self._stream.truncate(self._start + rows * self._row)
        self.synchronise()

    def synchronise(self) -> None:
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        self._stream.close()


def _header(shape: tuple[int, ...]) -> bytes:
    """The header of an ``.npy`` file, whose length does not depend on the first axis."""
    buffer = BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()
