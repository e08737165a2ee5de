"""Loops over points that call the C functions of a model; see `stanct.targets.density`."""

from __future__ import annotations

from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import compiled


@compiled
def densities_at(call: Any, handle: int, points: Array, values: Array) -> None:
    """Put log densities at points, shape (n, D), into `values`; −inf where the call fails."""
    for k in range(values.size):
        at, value = points[k].ctypes.data, values[k:].ctypes.data
        if call(handle, True, True, at, value, np.uintp(0)) != 0:
            values[k] = -np.inf


@compiled
def gradients_at(call: Any, handle: int, points: Array, values: Array, gradients: Array) -> None:
    """Put log densities at points and their gradients, shape (n, D), into two arrays."""
    for k in range(values.size):
        at, value = points[k].ctypes.data, values[k:].ctypes.data
        if call(handle, True, True, at, value, gradients[k].ctypes.data, np.uintp(0)) != 0:
            values[k] = -np.inf


@compiled
def variables_at(
    call: Any, handle: int, every: bool, points: Array, values: Array, rng: int
) -> None:
    """Put the parameters at points, or `every` variable, into rows; NaN where the call fails."""
    for k in range(len(points)):
        at, row = points[k].ctypes.data, values[k].ctypes.data
        if call(handle, every, every, at, row, rng, np.uintp(0)) != 0:
            values[k] = np.nan
