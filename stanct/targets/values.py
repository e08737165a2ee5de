"""Finds what cannot be data in the values that users give, and reads JSON so that it is found."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stanct.common.errors import shortened

DEEPEST = 64
"""Most dimensions of an array."""

_FINITE = "Data are finite numbers: leave missing values out, or declare them as parameters."
_TOO_LARGE = "a number too large for a computer's"
_SCALARS = (bool, int, float, np.number, np.bool_)
_ARRAYS = ("numpy", "xarray", "pandas")  # modules whose objects stanio makes arrays of
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

Index = tuple[Any, ...]


class Fault(NamedTuple):
    """What is wrong with a value: where, as indices, what stands there, and the remedy."""

    place: Index
    words: str
    remedy: str


class Unreadable:
    """Stands in JSON that was read for what could not be."""

    def __init__(self, words: str, remedy: str) -> None:
        self.words, self.remedy = words, remedy


def fault_in(value: Any, *, complex_too: bool = True) -> Fault | None:
    """Return the first thing in a value that cannot be data; None if all are finite numbers.

    Parameters
    ----------
    value
        Numbers, arrays, lists, tuples and dictionaries, as users give them or as read from JSON.
    complex_too
        Whether complex numbers may be among them.
    """
    first = value
    try:
        # A list may hold itself.
        for _ in range(DEEPEST + 1):
            if not (isinstance(first, list | tuple) and first):
                return next(_faults(value, (), complex_too), None)
            first = first[0]
    except Exception as cause:  # classes of the user's own, whose methods may raise anything
        told = shortened(f"{type(cause).__name__}: {cause}", 120)
        words = f"of the type {type(value).__name__!r}, which cannot be read ({told}),"
        return Fault((), words, "Use numbers, lists and NumPy arrays.")
    return _too_deep((1, 1, 1))


def ragged(value: Any, index: Index = ()) -> tuple[Index, str, Index, str] | None:
    """Return two places of a value with other lengths than each other, and these; or None."""
    if not isinstance(value, list | tuple) or len(index) > DEEPEST:
        return None
    words = [_length(item) for item in value]
    for k, word in enumerate(words):
        if word != words[0]:
            return (*index, k + 1), word, (*index, 1), words[0]
    parts = (ragged(item, (*index, k)) for k, item in enumerate(value, 1))
    found = next((part for part in parts if part is not None), None)
    if found is not None:
        return found
    shapes = [np.shape(item) for item in value]
    for k, shape in enumerate(shapes):
        if shape != shapes[0]:
            return (*index, k + 1), f"the shape {shape}", (*index, 1), f"{shapes[0]}"
    return None


def without_booleans(value: Any) -> Any:
    """What was read from JSON, with 1 and 0 in the places of true and false."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {key: without_booleans(item) for key, item in value.items()}
    return [without_booleans(item) for item in value] if isinstance(value, list) else value


def read_json(text: str) -> Any:
    """Read JSON; an `Unreadable` stands for an integer too long, a key that comes twice, and depth.

    Raises
    ------
    json.JSONDecodeError
        The text is no JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        return {_deepest(text): Unreadable(*_too_deep(())[1:])}
    except ValueError:  # of Python, which reads no integer of thousands of digits
        return json.loads(text, object_pairs_hook=_once, parse_int=_integer)


def _faults(value: Any, index: Index, complex_too: bool) -> Iterator[Fault]:
    if isinstance(value, Unreadable):
        yield Fault(index, value.words, value.remedy)
    elif len(index) > DEEPEST:
        yield _too_deep(index[:3])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _faults(item, (*index, key), complex_too)
    elif isinstance(value, list | tuple):
        if not _sound(value):
            for key, item in enumerate(value, 1):
                yield from _faults(item, (*index, key), complex_too)
    elif isinstance(value, np.generic) and value.dtype.char in "gG":
        yield _no_json(value, index)
    elif isinstance(value, _SCALARS) or value is None or isinstance(value, complex | str):
        yield from _faults_of_one(value, index, complex_too)
    elif type(value).__module__.split(".")[0] in _ARRAYS:
        yield from _faults_of_array(np.asanyarray(value), index, complex_too)
    else:
        yield _no_json(value, index)


def _sound(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list is a regular array of finite numbers, as most are; that is quickly seen."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        return False
    regular = array.dtype.kind in "iuf" and array.dtype.char != "g"
    return regular and bool(np.isfinite(array).all())


def _faults_of_array(array: np.ndarray, index: Index, complex_too: bool) -> Iterator[Fault]:
    kind = array.dtype.kind
    if kind in "biuf" and array.dtype.char != "g" and not np.ma.is_masked(array):
        for place in np.argwhere(~np.isfinite(array)):
            here = (*index, *(int(k) + 1 for k in place))
            yield from _faults_of_one(array[tuple(place)], here, complex_too)
    elif kind in "Mm" or array.dtype.char in "gG":  # times, and long doubles
        yield _no_json(array.flat[0] if array.size else array, index)
    else:
        inside = array.tolist()
        strange = array.ndim == 0 and type(inside).__module__.split(".")[0] in _ARRAYS
        if strange:  # it would be made an array again
            yield _no_json(inside, index)
        else:
            yield from _faults(inside, index, complex_too)


def _faults_of_one(value: Any, index: Index, complex_too: bool) -> Iterator[Fault]:
    if value is None or value is np.ma.masked:
        yield Fault(index, "null", _FINITE)
        return
    if isinstance(value, complex | np.complexfloating):
        if not complex_too:
            remedy = "Pass its real part, or declare the variable complex."
            yield Fault(index, f"the complex number {value}", remedy)
        elif not (math.isfinite(value.real) and math.isfinite(value.imag)):
            yield Fault(index, f"{value}", _FINITE)
        return
    try:
        number = float(value)
    except OverflowError:
        yield Fault(index, _TOO_LARGE, "Stan's numbers end at 1.8e308.")
        return
    except ValueError:
        number = 0.0
    if not math.isfinite(number):
        yield Fault(index, "NaN" if number != number else "infinite", _FINITE)
    elif isinstance(value, str):
        yield Fault(index, f"the text {shortened(value, 40)!r}", "Write a number.")


def _no_json(value: Any, index: Index) -> Fault:
    name = type(value).__name__
    words = f"of the type {name!r}, which cannot be written as JSON,"
    return Fault(index, words, "Use numbers, lists and NumPy arrays.")


def _too_deep(index: Index) -> Fault:
    remedy = f"An array has at most {DEEPEST} dimensions."
    return Fault(index, "a list nested too deeply", remedy)


def _length(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} element{'s' * (len(value) != 1)}"
    return "no elements of its own"


def _once(pairs: list[tuple[str, Any]]) -> Any:
    """The object of these keys and values; a key that comes twice has no value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found[key] = Unreadable("given twice", "Leave one of the two out.")
            seen.add(key)
    return found


def _integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return Unreadable(_TOO_LARGE, "Stan's numbers end at 1.8e308.")


def _deepest(text: str) -> str:
    """The name of the variable in whose value the brackets of a JSON object nest too deeply."""
    depth, key = 0, ""
    for match in _BRACKETS.finditer(text):
        word = match.group()
        if word in "[{":
            depth += 1
            if depth > DEEPEST + 1:
                break
        elif word in "]}":
            depth -= 1
        elif depth == 1 and text[match.end() :].lstrip()[:1] == ":":
            key = word
    return json.loads(key) if key else "?"
