"""What `run.json` of a saved run must hold; anyone may have written it.

A rule is a `Kind` of value, `Maybe` one, `Many` of one, `Named` ones, or a mapping from the keys of
a record to their rules. Keys without a rule may hold anything. Nothing but a page's table of
settings reads them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from stanct.errors import shortened

# Integers beyond this are floating-point numbers from then on, since NumPy has none so long.
_LONGEST_INT = 2**53


@dataclass(frozen=True)
class Kind:
    """A kind of value: what it is in words, and whether a value is one."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """A value of a rule, or none."""

    rule: Rule


@dataclass(frozen=True)
class Needed:
    """A value of a rule that a record must have."""

    rule: Rule


@dataclass(frozen=True)
class Many:
    """A list of values of one rule, of which there are at least so many."""

    rule: Rule
    least: int = 0


@dataclass(frozen=True)
class Named:
    """A record of any keys, with values of one rule."""

    rule: Rule


Rule = Union[Kind, Maybe, Needed, Many, Named, Mapping[str, "Rule"]]  # noqa: UP007 (at run time)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: Any) -> float:
    try:
        return float(value) if _number(value) else math.nan
    except OverflowError:
        return math.nan


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


ANYTHING = Kind("a JSON value", lambda value: True)
TEXT = Kind("a text", lambda value: isinstance(value, str))
NAME = Kind(
    "a name of one line",
    lambda value: isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable(),
)
METHOD = Kind(
    "the name of a method",
    lambda value: NAME.holds(value) and not re.search(r"[/\\]|^\.", value),
)
WORD = Kind(
    "the beginning of a name in Stan",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z]\w{0,99}", value, re.A)),
)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a whole number of 0 or more", _is_count)
ONE_OR_MORE = Kind("a whole number of 1 or more", lambda value: _is_count(value) and value > 0)
NUMBER = Kind("a finite number", lambda value: math.isfinite(_float(value)))
NOT_NEGATIVE = Kind("a finite number of 0 or more", lambda value: 0 <= _float(value) < math.inf)
POSITIVE = Kind("a finite number above 0", lambda value: 0 < _float(value) < math.inf)
SHARE = Kind("a number between 0 and 1", lambda value: 0 <= _float(value) <= 1)
# What a run could not estimate is NaN or infinite.
REAL = Kind("a number", lambda value: _number(value) and (value != value or _known(value)))


_FLOATS = (NUMBER, NOT_NEGATIVE, POSITIVE, REAL)
# Seeds may be of any length.
SEED = Kind(COUNT.words, lambda value: isinstance(value, int) and value >= 0 and value is not True)


def _known(value: float) -> bool:
    return not isinstance(value, int) or math.isfinite(_float(value))


_SETTINGS: dict[str, Rule] = {
    "seed": Needed(SEED),
    "draws": Needed(ONE_OR_MORE),
    "chains": ONE_OR_MORE,
    "warmup": COUNT,
    "target_se": Maybe(POSITIVE),
    "max_draws": Maybe(ONE_OR_MORE),
    "max_seconds": Maybe(NOT_NEGATIVE),
    "base": Maybe(TEXT),
    "thin": ONE_OR_MORE,
    "keep": Maybe(Many(TEXT)),
}
_METHOD_SETTINGS: dict[str, Rule] = {"bootstrap": COUNT, "max_depth": Maybe(ONE_OR_MORE)}
_MODES: dict[str, Rule] = {
    "place": Needed(Many(Many(NUMBER))),
    "spread": Needed(Many(Many(POSITIVE))),
    "log_evidence": Needed(Many(NUMBER)),
    "starts": Needed(COUNT),
    "radius": Needed(NOT_NEGATIVE),
    "unseen": Needed(SHARE),
    "finest": POSITIVE,
}
HEAD: dict[str, Rule] = {
    "format": NAME,
    "method": Needed(METHOD),
    "engine": Needed(NAME),
    "programs": Needed(Many(ANYTHING)),
    "provenance": Needed({}),
    "digests": Named(TEXT),
    "ladder": FLAG,
    "atom": SHARE,
    "island": ONE_OR_MORE,
}
PROVENANCE: dict[str, Rule] = {
    "program": Needed(TEXT),
    "program_sha256": Maybe(TEXT),
    "parameters": Many(TEXT),
    "from_text": FLAG,
    "source": TEXT,
    "prefix": WORD,
    "reparametrised": Many(TEXT),
    "tempered": Named(
        Kind(
            "a text or texts", lambda v: isinstance(v, str) or _all(v, lambda t: isinstance(t, str))
        )
    ),
    "data_names": Many(TEXT),
    "unused_data": Many(TEXT),
    "data_origin": TEXT,
    "data_sha256": Maybe(TEXT),
    "omissions": Many(
        {
            "kind": Needed(TEXT),
            "parameters": Needed(Many(TEXT, 1)),
            "path": Needed(TEXT),
            "line": Needed(COUNT),
            "sentence": Needed(TEXT),
            "correction": Needed(Maybe(TEXT)),
            "value": Needed(Maybe(REAL)),
            "remedy": Needed(Maybe(TEXT)),
            "improper": Needed(FLAG),
        }
    ),
    "settings": Needed(_SETTINGS),
    "method_settings": _METHOD_SETTINGS,
    "method_class": TEXT,
    "interrupted": Needed(FLAG),
    "out_of_time": FLAG,
    "stopping": Maybe(
        {
            "reason": Needed(TEXT),
            "target_se": Needed(Maybe(POSITIVE)),
            "max_draws": Maybe(ONE_OR_MORE),
            "effective": Maybe(ONE_OR_MORE),
        }
    ),
    "acceptance": {
        "transitions": Needed(Many(NOT_NEGATIVE)),
        "acceptance": Needed(Many(Maybe(SHARE))),
    },
    "log_step": Many(NUMBER, 1),
    "log_prior_mass": Maybe(REAL),
    "survey": _MODES,
    "confirmed": {
        "method": Needed(TEXT),
        "log_z": Needed(REAL),
        "std_error": Needed(REAL),
    },
    "two_stages": {
        "log_z": Needed(REAL),
        "std_error": Needed(REAL),
        "given": Needed(Many(TEXT)),
        "refused": FLAG,
    },
    "tails": Many(TEXT),
    "endless": Many(TEXT),
    "rounding": {"lost": Needed(REAL), "along": Needed(Many(TEXT))},
    "forecasts": Many(
        {
            "after": Needed(TEXT),
            "at": Needed(NUMBER),
            "seconds": Needed(NUMBER),
            "gradients": Needed(NUMBER),
            "draws": Needed(NUMBER),
            "std_error": Needed(Maybe(REAL)),
            "bound": FLAG,
        }
    ),
    "steps": Many({"method": Needed(TEXT), "draws": Needed(COUNT), "because": Needed(TEXT)}),
    "asked": {"method": Needed(TEXT), "settings": Needed({}), "options": Needed({})},
    "extended": {"settings": Needed({}), "draws": Needed(Many(COUNT))},
    "gradients": Needed(COUNT),
    "evaluations": COUNT,
    "seconds": Needed(NOT_NEGATIVE),
    "stage_seconds": Named(NUMBER),
    "versions": Named(TEXT),
    "finished": TEXT,
}


def _all(values: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(holds, values))


def checked(value: Any, rule: Rule, place: str) -> Any:
    """Return a value of `run.json` if it keeps to a rule; long integers become floats.

    Parameters
    ----------
    place
        Where the value stands, for the error.

    Raises
    ------
    ValueError
        It does not; the message has the place, the value, and what should be there.
    """
    match rule:
        case Kind(words, holds):
            if not holds(value):
                raise ValueError(f"{place} is {shortened(repr(value), 60)}, and not {words}")
            long = isinstance(value, int) and abs(value) > _LONGEST_INT
            return float(value) if long and rule in _FLOATS else value
        case Maybe(inner):
            return None if value is None else checked(value, inner, place)
        case Needed(inner):
            return checked(value, inner, place)
        case Many(inner, least):
            if not isinstance(value, list) or len(value) < least:
                wanted = "a list" if not least else f"a list of {least} or more"
                raise ValueError(f"{place} is {shortened(repr(value), 60)}, and not {wanted}")
            return [checked(one, inner, f"{place}[{k}]") for k, one in enumerate(value)]
        case Named(inner):
            return {k: checked(v, inner, f"{place}.{k}") for k, v in _record(value, place).items()}
        case _:
            return _checked_record(_record(value, place), rule, place)


def _checked_record(
    record: dict[str, Any], rules: Mapping[str, Rule], place: str
) -> dict[str, Any]:
    for key, rule in rules.items():
        if isinstance(rule, Needed) and key not in record:
            raise ValueError(f"{place}.{key} is missing")
    return {
        key: checked(value, rules[key], f"{place}.{key}") if key in rules else value
        for key, value in record.items()
    }


def _record(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is {shortened(repr(value), 60)}, and not a record")
    return value
