"""Bounds of the program's variables that no number is within; the data may be their cause.

Stan's transforms give NaN or an infinity for them, everywhere, and no fit finds out why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stanct.engines.embedded import Recipe
from stanct.stan.arithmetic import evaluated
from stanct.stan.nodes import Range, TypeSpec
from stanct.stan.program import Program
from stanct.targets.data import StanData
from stanct.targets.density import Density, tried

_WORD = re.compile(r"[A-Za-z]\w*")
_BOUNDED = ("real", "vector", "row_vector", "matrix")
# An unconstrained number at which a variable with one bound is that bound to all digits, unless the
# bound is infinite, and the variable the number itself.
_FAR = -801.25
# With fewer numbers between them, bounds round most values of their parameter to each other.
FEWEST_NUMBERS = 1000
_AT = {"lower": _FAR, "upper": _FAR, "offset": 0.0, "multiplier": 1.0}
_NONE = {"lower": -np.inf, "upper": np.inf}


@dataclass(frozen=True)
class _Bounded:
    """A declared variable of which some bounds follow from the data alone."""

    name: str
    token: int
    is_parameter: bool
    spec: TypeSpec
    sides: tuple[str, ...]


def refuse_impossible_bounds(
    program: Program,
    data: StanData,
    prefix: str,
    once: Callable[[Recipe], Recipe],
) -> None:
    """Raise `ProgramError` for a bound that cannot hold, if there is one.

    A lower bound is not below the upper one, a bound is NaN, or infinite at the wrong end, an
    offset is not finite, or a multiplier is not positive and finite. `once` is what `computed_once`
    returns.
    """
    given = data.values
    known = {name: given[name] for name in program.data_names if name in given}
    found = [one for one in _bounded(program) if not _sound(program, one, known)]
    if not found:
        return
    syntax = program.syntax
    lines = [
        f"  {syntax.declared_type(one.spec, [side])} {prefix}{side}_{one.name};"
        for one in found
        for side in one.sides
    ]
    text = "\n".join([syntax.before_parameters, "parameters {", *lines, "}", "model {}", ""])
    density = tried(once(Recipe(text, data.text)))
    # What the engine lacks is another error's concern, and containers may have no elements.
    if density is None or not density.dimension:
        return
    try:
        values = _values(density, prefix)
    except RuntimeError:
        return
    for one in found:
        _check(program, data, one, values)


def _sound(program: Program, one: _Bounded, known: Mapping[str, Any]) -> bool:
    """Whether arithmetic of numbers shows that the bounds can hold, as it does for most."""
    numbers = {
        side: evaluated(program.syntax.text(one.spec.constraints[side]), known)
        for side in one.sides
    }
    told = {side: float(number) for side, number in numbers.items() if number is not None}
    return len(told) == len(numbers) and _fault(told, one.is_parameter) is None


def _bounded(program: Program) -> Iterator[_Bounded]:
    """Bounded variables, with the bounds that the data determine."""
    for kind in ("parameters", "transformed parameters"):
        for statement, token in program.syntax.declarations(kind):
            sides = tuple(
                side
                for side, tokens in statement.type.constraints.items()
                if not program.variable_names & _words(program, tokens)
            )
            if sides and statement.type.base in _BOUNDED:
                name = program.syntax.word(token)
                yield _Bounded(name, token, kind == "parameters", statement.type, sides)


def _words(program: Program, tokens: Range) -> set[str]:
    return {*_WORD.findall(program.syntax.text(tokens))}


def _values(density: Density, prefix: str) -> dict[str, dict[str, float]]:
    """The bounds by side and variable, such as ``lower_b``, and then by index, such as ``2.1``."""
    sides = [n.removeprefix(prefix).partition("_")[0] for n in density.unconstrained_names]
    values = density.constrain(np.array([_AT[side] for side in sides])).tolist()
    found: dict[str, dict[str, float]] = {}
    for name, value in zip(density.names, values, strict=True):
        variable, _, index = name.removeprefix(prefix).partition(".")
        # Without a bound the variable is the unconstrained number.
        none = _NONE.get(variable.partition("_")[0]) if value == _FAR else None
        found.setdefault(variable, {})[index] = value if none is None else none
    return found


def _check(
    program: Program, data: StanData, one: _Bounded, values: dict[str, dict[str, float]]
) -> None:
    for index in values.get(f"{one.sides[0]}_{one.name}", {}):  # a container may have no elements
        numbers = {side: values[f"{side}_{one.name}"][index] for side in one.sides}
        fault = _fault(numbers, one.is_parameter)
        if fault is None:
            continue
        element = f"{one.name}[{index.replace('.', ',')}]" if index else one.name
        told = " and ".join(f"{side} = {_told(number)}" for side, number in numbers.items())
        used = {word for side in one.sides for word in _words(program, one.spec.constraints[side])}
        by_data = f" or {data.origin}" if used & {*program.data_names} else ""
        raise program.syntax.error(
            one.token,
            f"`{element}` has {told}, but {fault}.",
            f"Correct the declaration{by_data}.",
        )


def _told(number: float) -> str:
    short = f"{number:g}"
    return short if float(short) == number or number != number else repr(number)


def _fault(numbers: dict[str, float], is_parameter: bool) -> str | None:
    """What is wrong with the bounds of one number, if anything is."""
    low, high = numbers.get("lower", -np.inf), numbers.get("upper", np.inf)
    scale, offset = numbers.get("multiplier", 1.0), numbers.get("offset", 0.0)
    if any(np.isnan(number) for number in numbers.values()):
        return "NaN is no bound"
    if low > high or low == np.inf or high == -np.inf:
        return "no number is within these bounds"
    if low == high and is_parameter:
        return "only one number is within these bounds, so that it is no parameter"
    between = (high - low) / np.spacing(max(abs(low), abs(high))) if high - low < np.inf else np.inf
    if between < FEWEST_NUMBERS and is_parameter:
        return (
            f"only {between:.0f} floating-point numbers are within these bounds: the parameter "
            "should be its distance from the lower one"
        )
    if not np.isfinite(offset):
        return "an offset must be finite"
    if not 0 < scale < np.inf:
        return "a multiplier must be positive and finite"
    return None
