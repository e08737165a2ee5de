"""The name for NumPy arrays in signatures, what all rooms do with them, and archives of them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

Array = np.ndarray


class Later(Mapping[str, Array]):
    """Named arrays that are computed when one of them is first asked for, and then kept."""

    def __init__(self, compute: Callable[[], Mapping[str, Array]]) -> None:
        self._compute = compute

    @cached_property
    def _found(self) -> Mapping[str, Array]:
        return self._compute()

    def __getitem__(self, name: str) -> Array:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __reduce__(self) -> tuple[type[dict[str, Array]], tuple[dict[str, Array]]]:
        """Arrive elsewhere as a dictionary of what was computed."""
        return dict, (dict(self._found),)


def log_sum_exp(values: Array, axis: int | None = None) -> Array:
    """SciPy's logsumexp with the type that it has without its optional arguments."""
    return np.asarray(logsumexp(values, axis=axis))


def even_share(log_weights: Array) -> float:
    """Kish's effective share of weighted draws, (Σ w)² / (n Σ w²); 0 where all weights vanish."""
    largest = log_weights.max()
    if not np.isfinite(largest):
        return 0.0
    weights = np.exp(log_weights - largest)
    return float(weights.mean() ** 2 / np.square(weights).mean())


def read_archive(path: Path) -> dict[str, Array]:
    """Read the arrays that `np.savez` wrote, by name; the file is not trusted.

    Nothing is unpickled or unpacked, so no more memory is taken than the file is long.

    Raises
    ------
    ValueError
        An array is not of numbers, is compressed, or is not as long as it says.
    OSError, zipfile.BadZipFile
        The file is no archive, or cannot be read.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError("its arrays are longer than the file")
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{member.filename!r} is compressed")
            with archive.open(member) as file:
                old = np.lib.format.read_magic(file) == (1, 0)
                header = np.lib.format.read_array_header_1_0 if old else _long_header
                shape, _, dtype = header(file)
                size = math.prod(shape) * dtype.itemsize
                if dtype.kind not in "biufc" or file.tell() + size != member.file_size:
                    raise ValueError(
                        f"{member.filename!r} is not an array of numbers, or not whole"
                    )
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


_long_header = np.lib.format.read_array_header_2_0


def joined_rows(first: Mapping[str, Array], more: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of shape (chains, draws, ...) by name, with further draws behind."""
    return {name: np.concatenate([values, more[name]], axis=1) for name, values in first.items()}
