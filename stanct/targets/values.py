"""Finds what cannot be data in the values that users give, and reads JSON so that it is found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stanct.common.errors import shortened

_FINITE = "Data are finite numbers: leave missing values out, or declare them as parameters."
_NUMBER = "Write a number. From R: as.integer(factor(x)), as.numeric(date)."
_SCALARS = (bool, int, float, np.number, np.bool_)
_STRANGE: tuple[Any, ...] = (
    np.timedelta64,
    np.longdouble,
    np.clongdouble,
)  # numbers that JSON has not
_ARRAYS = ("numpy", "xarray", "pandas")  # modules whose objects stanio makes arrays of
# Stands in JSON that was read for the value of a key that comes twice.
_TWICE = object()

Index = tuple[Any, ...]


class Fault(NamedTuple):
    """What is wrong with a value: where, as indices, what stands there, and the remedy."""

    place: Index
    words: str
    remedy: str


def fault_in(value: Any, *, complex_too: bool = True) -> Fault | None:
    """Return the first thing in a value that cannot be data; None if all are finite numbers.

    The value is as users give it or as read from JSON. Complex numbers may be allowed.
    """
    return next(_faults(value, (), complex_too), None)


def ragged(value: Any, index: Index = ()) -> tuple[Index, str, Index, str] | None:
    """Return two places of a value with other lengths than each other, and these; or None."""
    if not isinstance(value, list | tuple):
        return None
    words = [_length(item) for item in value]
    for k, word in enumerate(words):
        if word != words[0]:
            return (*index, k + 1), word, (*index, 1), words[0]
    parts = (ragged(item, (*index, k)) for k, item in enumerate(value, 1))
    return next((part for part in parts if part is not None), None)


def without_booleans(value: Any) -> Any:
    """What was read from JSON, with 1 and 0 in the places of true and false."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {key: without_booleans(item) for key, item in value.items()}
    return [without_booleans(item) for item in value] if isinstance(value, list) else value


def read_json(text: str) -> Any:
    """Read JSON, or raise `json.JSONDecodeError`; `fault_in` finds a key that comes twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        found = dict(pairs)
        return found | {key: _TWICE for key in found if keys.count(key) > 1}

    return json.loads(text, object_pairs_hook=once)


def _faults(value: Any, index: Index, complex_too: bool) -> Iterator[Fault]:
    if type(value).__module__.split(".")[0] in _ARRAYS and not isinstance(value, np.generic):
        value = np.asanyarray(value)
        value = value if value.ndim else value[()]
    if value is _TWICE:
        yield Fault(index, "given twice", "Leave one of the two out.")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _faults(item, (*index, key), complex_too)
    elif isinstance(value, list | tuple) or (np.ndim(value) and isinstance(value, np.ndarray)):
        for key, item in enumerate(() if _sound(value) else value, 1):
            yield from _faults(item, (*index, key), complex_too)
    else:
        yield from _faults_of_one(value, index, complex_too)


def _sound(values: Any) -> bool:
    """Whether an array or list has finite numbers alone, as most have; that is quickly seen."""
    try:
        array = np.asanyarray(values)
    except (TypeError, ValueError, OverflowError):
        return False
    plain = array.dtype.kind in "biuf" and array.dtype.char != "g" and not np.ma.is_masked(array)
    return plain and bool(np.isfinite(array).all())


def _faults_of_one(value: Any, index: Index, complex_too: bool) -> Iterator[Fault]:
    if value is None or value is np.ma.masked:
        yield Fault(index, "null", _FINITE)
        return
    strange = isinstance(value, _STRANGE)
    if isinstance(value, complex | np.complexfloating) and not strange:
        if not complex_too:
            remedy = "Pass its real part, or declare the variable complex."
            yield Fault(index, f"the complex number {value}", remedy)
        elif not (math.isfinite(value.real) and math.isfinite(value.imag)):
            yield Fault(index, f"{value}", _FINITE)
        return
    if strange or not isinstance(value, (*_SCALARS, str)):
        name = type(value).__name__
        words = f"of the type {name!r}, which cannot be written as JSON,"
        yield Fault(index, words, "Use numbers, lists and NumPy arrays.")
        return
    try:
        number = float(value)
    except OverflowError:
        words = "a number too large for a computer's"
        yield Fault(index, words, "Stan's numbers end at 1.8e308.")
        return
    except ValueError:
        number = 0.0
    if not math.isfinite(number):
        yield Fault(index, "NaN" if number != number else "infinite", _FINITE)
    elif isinstance(value, str):
        # R's jsonlite writes so what is missing.
        remedy = _FINITE if value == "NA" else _NUMBER
        yield Fault(index, f"the text {shortened(str(value), 40)!r}", remedy)


def _length(value: Any) -> str:
    if isinstance(value, list | tuple) or np.ndim(value):
        return f"{len(value)} element{'s' * (len(value) != 1)}"
    return "no elements of its own"
