"""The name for NumPy arrays in signatures, what all rooms do with them, and archives of them."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

Array = np.ndarray


def log_sum_exp(values: Array, axis: int | None = None) -> Array:
    """log Σ exp(values), −inf where there are none.

    Bit for bit that of SciPy, which takes ten times as long for a few numbers.
    """
    values = np.atleast_1d(np.asarray(values, float))
    axes = tuple(range(values.ndim)) if axis is None else axis
    with np.errstate(divide="ignore", invalid="ignore"):
        if not values.size:
            return np.asarray(np.log(values.sum(axis=axes)))
        # The largest are taken out of the sum, for precision.
        largest = values.max(axis=axes, keepdims=True)
        top = values == largest
        rest = values - largest
        rest[top] = -np.inf
        count = top.sum(axis=axes, keepdims=True, dtype=float)
        share = np.exp(rest, out=rest).sum(axis=axes, keepdims=True) / count
        found = np.log1p(share) + np.log(count) + largest
    return np.where(np.isfinite(found), found, largest).squeeze(axis=axes)


def even_share(log_weights: Array) -> float:
    """Kish's effective share of weighted draws, (Σ w)² / (n Σ w²); 0 where all weights vanish."""
    largest = log_weights.max()
    if not np.isfinite(largest):
        return 0.0
    weights = np.exp(log_weights - largest)
    return float(weights.mean() ** 2 / np.square(weights).mean())


def largest_of(log_weights: Array) -> float:
    """The largest weight relative to their mean; infinite where all weights vanish."""
    largest = log_weights.max()
    if not np.isfinite(largest):
        return np.inf
    return float(np.exp(largest - log_sum_exp(log_weights))) * log_weights.size


def read_archive(path: Path) -> dict[str, Array]:
    """The arrays that `np.savez` wrote, by name; nothing is unpickled."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


_long_header = np.lib.format.read_array_header_2_0


MOST_AT_ONCE = 2**22
"""Numbers of a mapped array that are in memory at once where it is read in parts: 32 MiB."""

# Which file each mapping maps: another one may stand at its path by now.
_mappings: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()


def mapped(path: Path, dtype: Any, start: int, shape: tuple[int, ...]) -> Array:
    """Map an array in a file, read-only, from byte `start` on."""
    with path.open("rb") as file:
        found = np.memmap(file, dtype, "r", start, shape)
        _mappings[_mapping(found)] = _identity(os.fstat(file.fileno()))
    return found


def mapped_file(path: Path) -> Array:
    """Map an ``.npy`` file, read-only; `ValueError` if it holds no numbers in C order."""
    shape, dtype, start = _described(path)
    return mapped(path, dtype, start, shape)


def is_mapped(values: Array) -> bool:
    """Whether an array is in a file, and not in memory."""
    return isinstance(values, np.memmap) and _mapping(values) is not None


def forget(values: Array) -> None:
    """Let go of the memory into which parts of a mapped array were read; others are left alone."""
    mapping = _mapping(values)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def columns(values: Array, first: int, count: int) -> Array:
    """Some columns of an array of shape (chains, draws, columns), in memory."""
    if not is_mapped(values):
        return values[..., first : first + count]
    found = np.empty((*values.shape[:2], min(count, values.shape[2] - first)))
    step = max(1, MOST_AT_ONCE // max(1, values.shape[0] * values.shape[2]))
    for row in range(0, values.shape[1], step):
        found[:, row : row + step] = values[:, row : row + step, first : first + count]
        forget(values)
    return found


def whole_file(values: Array) -> tuple[Path, bool] | None:
    """The ``.npy`` file that an array maps as a whole, and whether its first axes are swapped."""
    if not isinstance(values, np.memmap) or not is_mapped(values):
        return None
    path = Path(str(values.filename))
    try:
        shape, dtype, _ = _described(path)
        there = _identity(path.stat())
    except (OSError, ValueError):
        return None
    if _mappings.get(_mapping(values)) != there:
        return None
    for swapped in (False, True):
        found = np.swapaxes(values, 0, 1) if swapped and values.ndim > 1 else values
        if found.shape == shape and found.dtype == dtype and found.flags.c_contiguous:
            return path, swapped
    return None


def _mapping(values: Array) -> Any:
    return getattr(values, "_mmap", None)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _described(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, type and place of the array of an ``.npy`` file."""
    with path.open("rb") as file:
        old = np.lib.format.read_magic(file) == (1, 0)
        header = np.lib.format.read_array_header_1_0 if old else _long_header
        shape, in_columns, dtype = header(file)
        start, size = file.tell(), math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biuf" or in_columns or size <= 0:
            raise ValueError(f"{path.name!r} is not an array of numbers")
        if path.stat().st_size != start + size:
            raise ValueError(f"{path.name!r} is not as long as it says")
    return shape, dtype, start


def joined_rows(*parts: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of shape (chains, draws, ...) by name, of successive draws."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def part_of(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin with a prefix, which is left out."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
