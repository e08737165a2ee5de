"""What the arrays of a saved run must be; anyone may have written them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from stanct.arrays import Array, is_mapped

_INTERVAL = re.compile(r"\[(-?\d*),(\d*)\]")


def check_shapes(
    arrays: Mapping[str, Array], shapes: Mapping[str, str], statistics: Mapping[str, Array]
) -> None:
    """Check the arrays of a saved run against each other, and the numbers of those in memory.

    Parameters
    ----------
    shapes
        Axes of each array, such as ``"c n d"``. Axes of one name have one length, and ``"*"`` any.
        Numbers are finite, unless ``"+"`` or ``"-"`` follows the axes, which allow an infinity of
        that sign, or ``"?"``, which allows anything. ``"[0,1]"`` and ``"[0,]"`` are bounds.

    Raises
    ------
    ValueError
        An array is missing, has another shape or type, or holds what it must not.
    """
    known: dict[str, int] = {}
    missing = [name for name in shapes if name not in arrays]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing among its arrays")
    named = [(name, arrays[name], _Described(axes)) for name, axes in shapes.items()]
    named += [(f"statistic {name}", v, _Described("c n ?")) for name, v in statistics.items()]
    for name, values, described in named:
        axes = described.axes
        fits = values.ndim == len(axes) and all(
            size == (int(axis) if axis.isdigit() else known.setdefault(axis, size)) or axis == "*"
            for axis, size in zip(axes, values.shape, strict=True)
        )
        if not fits or 0 in (known.get("c"), known.get("n"), known.get("m"), known.get("k")):
            raise ValueError(f"{name!r} has the shape {values.shape}")
        # To read all of a file would take the time and the memory that mapping saves.
        if not is_mapped(values):
            described.check(name, values)


def check_types(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays as numbers of this machine; raise `ValueError` if some are no real ones."""
    found: dict[str, Array] = {}
    for name, values in arrays.items():
        if np.iscomplexobj(values):
            raise ValueError(f"{name!r} holds complex numbers")
        if values.dtype.kind == "b" and not name.startswith("statistic "):
            raise ValueError(f"{name!r} holds no numbers")
        plain = np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        if is_mapped(values) and values.dtype != plain:
            raise ValueError(f"{name!r} is of the type {values.dtype}")
        found[name] = values if values.dtype == plain else values.astype(plain)
    return found


def check_members(found: Collection[str], own: Collection[str]) -> None:
    """Raise `ValueError` for an array that no run of its kind has."""
    named = ("variable ", "statistic ")
    strange = sorted(n for n in found if n not in own and not n.startswith(named))
    strange += sorted(n for n in found if n in named or not n.isprintable())
    if strange:
        raise ValueError(f"it has an array {strange[0][:60]!r}, which no run of its kind has")


def check_path(betas: Array) -> None:
    """Raise `ValueError` unless inverse temperatures increase from 0 to 1."""
    if betas[0] != 0 or betas[-1] != 1 or np.any(np.diff(betas) <= 0):
        raise ValueError("its inverse temperatures do not increase from 0 to 1")


class _Described:
    """The axes of an array, and the numbers that it may hold."""

    def __init__(self, described: str) -> None:
        words = described.split()
        interval = next((m for m in map(_INTERVAL.fullmatch, words) if m), None)
        self.axes = [word for word in words if re.fullmatch(r"\w+|\*", word)]
        self.anything = "?" in words
        self.infinite = {"+", "-"} & {*words}
        self.low = float(interval[1]) if interval and interval[1] else -np.inf
        self.high = float(interval[2]) if interval and interval[2] else np.inf

    def check(self, name: str, values: Array) -> None:
        if self.anything:
            return
        if np.isnan(values).any():
            raise ValueError(f"{name!r} holds NaN")
        for sign, infinity in (("+", np.inf), ("-", -np.inf)):
            if sign not in self.infinite and np.any(values == infinity):
                raise ValueError(f"{name!r} holds infinities")
        if np.any(values < self.low) or np.any(values > self.high):
            raise ValueError(f"{name!r} holds a number out of its range")
