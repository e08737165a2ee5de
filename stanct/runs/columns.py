"""Columns of tables and files by their names: ``theta[1,2]``, ``theta.1.2`` or ``theta.1.2.``.

The last is what R's data frames make of the first, unless they are told ``check.names = FALSE``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError

COLUMN = re.compile(
    r"(?P<name>[A-Za-z]\w*?)(?:\[(?P<list>\d+(?:,\s*\d+)*)\]|(?P<dots>(?:\.\d+)+)\.?)?$"
)

Columns = Mapping[str, Mapping[tuple[int, ...], int]]
"""Of each variable, the places of the columns of its elements by index."""


def elements_of(labels: Iterable[str]) -> dict[str, dict[tuple[int, ...], int]]:
    """Column labels by variable: index to place; raises `StanctError` if two have one name."""
    places: dict[str, dict[tuple[int, ...], int]] = {}
    for column, label in enumerate(labels):
        match = COLUMN.match(label.strip().strip('"'))
        if match is None:
            continue
        numbers = match["list"] or (match["dots"] or "").lstrip(".").replace(".", ",")
        index = tuple(int(part) for part in numbers.split(",")) if numbers else ()
        its = places.setdefault(match["name"], {})
        if index in its:
            raise StanctError(f"Two columns are named {label!r}.", remedy="Leave one of them out.")
        its[index] = column
    return places


def first_index(elements: Iterable[tuple[int, ...]]) -> int:
    """The number from which indices count; ArviZ's count from 0."""
    return 0 if any(0 in index for index in elements) else 1


def by_name(columns: Columns, draws: Array) -> dict[str, Array]:
    """Variables, (chains, draws, ...), of columns, (chains, draws, columns); NaN if not whole."""
    variables: dict[str, Array] = {}
    for name, elements in columns.items():
        first = first_index(elements)
        rank = len(next(iter(elements)))
        whole = all(len(index) == rank for index in elements)
        shape = tuple(max(index) + 1 - first for index in zip(*elements, strict=False))
        if whole and math.prod(shape) == len(elements):
            # Sorted indices are in the order of the elements of an array.
            places = [elements[index] for index in sorted(elements)]
            variables[name] = draws[:, :, places].reshape(*draws.shape[:2], *shape)
        else:
            variables[name] = np.broadcast_to(np.nan, (*draws.shape[:2], *shape))
    return variables
