"""Settings: each is declared once, with the rule that it must satisfy, and refused in one way.

A rule stands in the type of a field or of a keyword,

    transitions: Annotated[int, Whole(1)] = 5

and every refusal reads alike: what the setting must be, what it was, and the nearest that will do.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from stanct.errors import SamplingError


class Rule(ABC):
    """What a setting must satisfy."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """In words what the setting must be, as in "a whole number of at least 1"."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether a value will do."""

    def nearest(self, value: Any) -> Any:
        """An acceptable value near a refused one, None if there is none."""
        return None

    def convert(self, value: Any) -> Any:
        """An accepted value in the type that the rest of the package expects."""
        return value


@dataclass(frozen=True)
class Whole(Rule):
    """A whole number of at least `least`."""

    least: int = 0

    @property
    def wanted(self) -> str:
        return f"a whole number of at least {self.least}"

    def accepts(self, value: Any) -> bool:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return whole and bool(value >= self.least)

    def nearest(self, value: Any) -> int:
        number = _number(value)
        return self.least if number is None else max(self.least, round(number))

    def convert(self, value: Any) -> int:
        return int(value)


@dataclass(frozen=True)
class Real(Rule):
    """A finite number from `low` to `high`; the ends belong to it only if they are `closed`."""

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

    @property
    def wanted(self) -> str:
        return "True or False"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, bool | np.bool_)

    def nearest(self, value: Any) -> bool:
        return bool(value) and str(value).lower() not in ("0", "no", "false", "off")

    def convert(self, value: Any) -> bool:
        return bool(value)


class Choice(Rule):
    """One of several names, or something else that `fits` accepts.

    Parameters
    ----------
    names
        Those that will do.
    fits, called
        Tells objects that will do as well, and what these are called.
    """

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
        if isinstance(value, str):
            return value in self.names
        return self.fits is not None and self.fits(value)

    def nearest(self, value: Any) -> str | None:
        return near(value, self.names) if isinstance(value, str) else None


@dataclass(frozen=True)
class Numbers(Rule):
    """Numbers from `low` to `high` in a row, `count` of them where that is given."""

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
class Instance(Rule):
    """An object of a type, `called` so in words."""

    kind: Any
    called: str

    @property
    def wanted(self) -> str:
        return self.called

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.kind)


@dataclass(frozen=True)
class Declared:
    """One setting as it is declared: its rule, whether None will do, and its default."""

    rule: Rule
    optional: bool
    default: Any = inspect.Parameter.empty

    def checked(self, name: str, value: Any) -> Any:
        """The value in the type that the rest of the package expects.

        Raises
        ------
        SamplingError
            It breaks the rule.
        """
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
    """Every setting of a dataclass or typed dictionary that has a rule, by name."""
    found: dict[str, Declared] = {}
    for name, hint in get_type_hints(owner, include_extras=True).items():
        rules = [part for part in _parts(hint) if isinstance(part, Rule)]
        if rules:
            default = getattr(owner, name, inspect.Parameter.empty)
            found[name] = Declared(rules[0], type(None) in _parts(hint), default)
    return types.MappingProxyType(found)


def _parts(hint: Any) -> list[Any]:
    """All that a type is made of, annotations and members of unions included."""
    parts = [hint]
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        parts += [*_parts(inner), *more]
    elif get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            parts += _parts(member)
    return parts


def check_fields(record: Any) -> None:
    """Check the settings of a frozen dataclass in its ``__post_init__``; numbers get their type.

    Raises
    ------
    SamplingError
        A setting breaks its rule.
    """
    for name, setting in declared(type(record)).items():
        object.__setattr__(record, name, setting.checked(name, getattr(record, name)))


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, None if none is."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def listing(words: Iterable[str]) -> str:
    """Words in a row with "or" before the last."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def refuse_unknown(
    kind: str, name: str, known: Iterable[str], *, hint: str | None = None
) -> NoReturn:
    """Raise `SamplingError` for a name that is none of the known ones.

    Parameters
    ----------
    kind
        What the name stands for: "method", "setting".
    hint
        What to say in place of the nearest known name.
    """
    names = list(known)
    nearest = near(name, names)
    if hint is None:
        hint = f"Did you mean {nearest!r}?" if nearest else f"There are {', '.join(names)}."
    raise SamplingError(f"There is no {kind} {name!r}.", remedy=hint)


def _number(value: Any) -> float | None:
    """A finite number that a value can be read as, None if it cannot."""
    if isinstance(value, bool | np.complexfloating):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
