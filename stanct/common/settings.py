"""Declaration and validation of settings.

Each setting is declared once, with the rule that it must satisfy. The rule is part of the type
annotation of a field or a keyword:

    transitions: Annotated[int, Whole(1)] = 5

Every error message has the same form: what the setting must be, what it was, and the nearest value
that is allowed.
"""

from __future__ import annotations

import difflib
import errno
import functools
import inspect
import math
import os
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    NoReturn,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from stanct.common.errors import SamplingError, StanctError, shortened

P = ParamSpec("P")
R = TypeVar("R")

MOST_COUNTED = 10**9
"""Largest setting that compiled loops count to."""


class Rule(ABC):
    """A condition that the value of a setting must satisfy.

    `wanted` describes what the setting must be, such as "a whole number of at least 1".
    """

    wanted: Any

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Return whether a value satisfies the rule."""

    def nearest(self, value: Any) -> Any:
        """Return an acceptable value near a refused one, or None if there is none."""
        return None

    def convert(self, value: Any) -> Any:
        """Return an accepted value in the type that the rest of the package expects."""
        return value


@dataclass(frozen=True)
class Folder(Rule):
    """The path of a folder, which need not exist."""

    wanted = "the path of a folder"

    def accepts(self, value: Any) -> bool:
        return _unusable(value) is None


def usable_path(given: Any, error: type[StanctError] = StanctError) -> Path:
    """Return what a user gave as a path; raise `error` if no file can have it."""
    why = _unusable(given)
    if why is not None:
        told = shortened(repr(given), 80)
        raise error(f"{told} cannot be a path: {why}.", remedy="Pass the path as a text.")
    return Path(given)


def check_page_file(file: str | os.PathLike[str]) -> Path:
    """Return the file as a path; raise `StanctError` if a page cannot be written there."""
    path = usable_path(file)
    why = "it is a folder" if path.is_dir() else closed(path)
    if why is not None:
        raise StanctError(
            f"The page cannot be written to {path}: {why}.",
            remedy="Choose a file that you can write, e.g. report.html.",
        )
    return path


def closed(path: Path) -> str | None:
    """Why nothing new can be written at a path; None if something can, as far as is known."""
    if path.exists() and os.access(path, os.W_OK):
        return None
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir():
        return f"{parent} is not a folder"
    return None if os.access(parent, os.W_OK | os.X_OK) else f"{parent} takes no new files"


def _unusable(given: Any) -> str | None:
    """Return why no file can have a path; None if one can."""
    if not isinstance(given, str | os.PathLike):
        return f"it is of the type {type(given).__name__!r}"
    try:
        os.lstat(Path(given))
    except (TypeError, ValueError) as cause:  # bytes, or a null character
        return str(cause)
    except OSError as cause:
        return cause.strerror if cause.errno in (errno.ENAMETOOLONG, errno.ELOOP) else None
    return None


@dataclass(frozen=True)
class Whole(Rule):
    """A whole number of at least `least`, and of at most `most` where compiled code counts it."""

    least: int = 0
    most: float = math.inf

    @property
    def wanted(self) -> str:
        return f"a whole number of at least {self.least}"

    def accepts(self, value: Any) -> bool:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return whole and bool(self.least <= value <= self.most)

    def nearest(self, value: Any) -> int:
        number = _number(value)
        if number is None:
            return self.least
        return max(self.least, round(min(number, self.most)))

    def convert(self, value: Any) -> int:
        return int(value)


@dataclass(frozen=True)
class Real(Rule):
    """A finite number from `low` to `high`; the ends are allowed only if `closed` is True."""

    low: float = -math.inf
    high: float = math.inf
    closed: bool = False

    @property
    def wanted(self) -> str:
        if self.low == -math.inf and self.high == math.inf:
            return "a finite number"
        if self.high == math.inf:
            least = "of at least" if self.closed else "above"
            return f"a finite number {least} {self.low:g}"
        if self.closed:
            return f"a number from {self.low:g} to {self.high:g}"
        return f"a number between {self.low:g} and {self.high:g}"

    def accepts(self, value: Any) -> bool:
        number = _number(value)
        if number is None or not isinstance(value, int | float | np.integer | np.floating):
            return False
        inside = self.low < number < self.high
        at_end = self.closed and number in (self.low, self.high)
        return inside or at_end

    def nearest(self, value: Any) -> float | None:
        number = _number(value)
        if number is None:
            return None
        if self.closed:
            return float(min(max(number, self.low), self.high))
        # The mirror image keeps the size of a number with the wrong sign.
        return next(filter(self.accepts, (number, -number)), None)

    def convert(self, value: Any) -> float:
        return float(value)


@dataclass(frozen=True)
class Flag(Rule):
    """True or False."""

    wanted = "True or False"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, bool | np.bool_)

    def nearest(self, value: Any) -> bool | None:
        try:
            return bool(value) and str(value).lower() not in ("0", "no", "false", "off")
        except (TypeError, ValueError):  # arrays, and what has no truth value
            return None

    def convert(self, value: Any) -> bool:
        return bool(value)


class Choice(Rule):
    """One of several names, or another object that `fits` accepts, described as `called`."""

    def __init__(
        self, *names: str, fits: Callable[[Any], bool] | None = None, called: str = ""
    ) -> None:
        self.names = names
        self.fits = fits
        self.called = called

    @property
    def wanted(self) -> str:
        words = [repr(name) for name in self.names]
        return listing([*words, self.called] if self.called else words)

    def accepts(self, value: Any) -> bool:
        named = isinstance(value, str) and value in self.names
        return named or (self.fits is not None and self.fits(value))

    def nearest(self, value: Any) -> str | None:
        return near(value, self.names) if isinstance(value, str) else None


@dataclass(frozen=True)
class Numbers(Rule):
    """A flat sequence of numbers from `low` to `high`, of length `count` if that is given."""

    low: float = -math.inf
    high: float = math.inf
    count: int | None = None

    @property
    def wanted(self) -> str:
        many = "numbers" if self.count is None else f"{self.count} numbers"
        if self.high < math.inf:
            return f"{many} from {self.low:g} to {self.high:g}"
        return many if self.low == -math.inf else f"{many} of at least {self.low:g}"

    def accepts(self, value: Any) -> bool:
        flat = isinstance(value, np.ndarray) and value.ndim == 1
        if not flat and (isinstance(value, str | bytes) or not isinstance(value, Sequence)):
            return False
        row = list(value)
        one = Real(self.low, self.high, closed=True)
        return (self.count is None or len(row) == self.count) and all(map(one.accepts, row))

    def convert(self, value: Any) -> tuple[float, ...]:
        return tuple(map(float, value))


@dataclass(frozen=True)
class Ladder(Rule):
    """A number of inverse temperatures of at least `low`, or themselves, increasing from 0 to 1."""

    low: int = 2

    @property
    def wanted(self) -> str:
        return (
            f"a whole number of at least {self.low}, or inverse temperatures that increase from 0 "
            "to 1"
        )

    def accepts(self, value: Any) -> bool:
        if Whole(self.low).accepts(value):
            return True
        if not Numbers(0, 1).accepts(value):
            return False
        row = np.asarray(value, float)
        return row.size >= 2 and row[0] == 0 and row[-1] == 1 and bool((np.diff(row) > 0).all())

    def nearest(self, value: Any) -> int | None:
        # Nothing is near a sequence that is no ladder.
        return None if isinstance(value, Sequence | np.ndarray) else Whole(self.low).nearest(value)

    def convert(self, value: Any) -> int | tuple[float, ...]:
        whole = Whole(self.low)
        return whole.convert(value) if whole.accepts(value) else Numbers(0, 1).convert(value)


@dataclass(frozen=True)
class Knots(Rule):
    """Pairs (β, b) with β increasing from 0 to 1 and b = 0 at β = 0."""

    wanted = "pairs (β, b) with β increasing from 0 to 1 and b = 0 at β = 0"

    def accepts(self, value: Any) -> bool:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
            return False
        if not all(Numbers(count=2).accepts(pair) for pair in value) or len(value) < 2:
            return False
        beta, b = zip(*value, strict=True)
        return Ladder().accepts(beta) and b[0] == 0

    def convert(self, value: Any) -> tuple[tuple[float, ...], ...]:
        return tuple(Numbers().convert(pair) for pair in value)


@dataclass(frozen=True)
class Instance(Rule):
    """An object of type `kind`, described in error messages as what is wanted."""

    kind: Any
    wanted: str

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.kind)


@dataclass(frozen=True)
class Declared:
    """One declared setting: its rule, whether None is allowed, and its default."""

    rule: Rule
    optional: bool
    default: Any = inspect.Parameter.empty

    def checked(self, name: str, value: Any) -> Any:
        """Return the value in the type that the rest expects, or raise `SamplingError`."""
        if value is None and self.optional:
            return None
        if self.rule.accepts(value):
            return self.rule.convert(value)
        nearest = self.rule.nearest(value)
        if nearest is None and self.default is not inspect.Parameter.empty:
            nearest = self.default
        remedy = None
        if nearest is not None or self.optional:
            remedy = f"Did you mean {name}={nearest!r}?"
        wanted = f"{self.rule.wanted}{', or None' if self.optional else ''}"
        raise SamplingError(f"{name} must be {wanted}, not {value!r}.", remedy=remedy)


@functools.cache
def declared(owner: type) -> Mapping[str, Declared]:
    """Return the settings of a dataclass or typed dictionary that have a rule, by name."""
    found: dict[str, Declared] = {}
    for name, hint in get_type_hints(owner, include_extras=True).items():
        rules = [part for part in _parts(hint) if isinstance(part, Rule)]
        if rules:
            default = getattr(owner, name, inspect.Parameter.empty)
            found[name] = Declared(rules[0], type(None) in _parts(hint), default)
    return types.MappingProxyType(found)


def _parts(hint: Any) -> list[Any]:
    """Return a type and its components, including annotations and members of unions."""
    parts = [hint]
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        parts += [*_parts(inner), *more]
    elif get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            parts += _parts(member)
    return parts


def check_fields(record: Any) -> None:
    """Check and convert the settings of a frozen dataclass, in its ``__post_init__``."""
    for name, setting in declared(type(record)).items():
        object.__setattr__(record, name, setting.checked(name, getattr(record, name)))


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to this one, or None if none is similar."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def listing(words: Iterable[str]) -> str:
    """Join words with commas, and with "or" before the last."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def refuse_unknown(
    kind: str, name: str, known: Iterable[str], *, hint: str | None = None
) -> NoReturn:
    """Raise `SamplingError` for a name that is not among the known ones.

    The kind is what the name stands for, such as "method". The hint replaces the nearest known
    name.
    """
    names = list(known)
    nearest = near(name, names)
    if hint is None:
        hint = f"Did you mean {nearest!r}?" if nearest else f"There are {', '.join(names)}."
    raise SamplingError(f"There is no {kind} {name!r}.", remedy=hint)


def _number(value: Any) -> float | None:
    """Convert a value to a finite number, or return None if that is impossible."""
    if isinstance(value, bool | np.complexfloating):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def explained(elsewhere: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function say what to do in place of passing arguments that other tools have."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*given: P.args, **named: P.kwargs) -> R:
            for name in named:
                if name in elsewhere:
                    raise StanctError(
                        f"{function.__name__} has no argument {name!r}.", remedy=elsewhere[name]
                    )
            return function(*given, **named)

        return called

    return wrap
