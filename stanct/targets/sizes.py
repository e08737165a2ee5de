"""Sizes of the program's variables that follow from the data, checked before any engine reads them.

Engines take the memory of a huge variable before they say that there is too little, and name no
variable. A CmdStan would even compile the program first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from stanct.common.errors import ProgramError
from stanct.common.resources import memory
from stanct.stan.program import Program
from stanct.stan.syntax import Range, TypeSpec
from stanct.targets.arithmetic import Known, evaluated, known_numbers
from stanct.targets.data import SQUARE, StanData

MOST_NUMBERS = 10_000_000
"""Maximum count of numbers in one draw of all variables; each takes a name of its own."""

# Memory in bytes for each number of a variable, in the embedded engine 0.24: a number of the data
# or of the model as it computes the density, and one of a draw with its name.
_EACH, _EACH_NAMED = 40, 400
_DRAWN = ("parameters", "transformed parameters", "generated quantities")
_BLOCKS = ("data", "transformed data", *_DRAWN, "model")


class _Declared(NamedTuple):
    """A variable of a block, with its type and the token of its name."""

    block: str
    token: int
    spec: TypeSpec


def refuse_sizes(program: Program, data: StanData) -> None:
    """Raise an error that names a variable of a negative or a huge size, as far as data tell sizes.

    Raises
    ------
    ProgramError
        A size is negative, a Cholesky factor has fewer rows than columns, or all variables
        together take more memory than this machine has.
    """
    known = known_numbers(program, data.values)
    drawn, needed, available = 0, 0, memory()
    for one in _declared(program):
        count = _count(program, one, one.spec, known, data)
        if one.block in _DRAWN:
            drawn += count
            needed += _EACH_NAMED * count
        else:
            needed += _EACH * count
        name = program.syntax.word(one.token)
        fault = ""
        if drawn > MOST_NUMBERS:
            fault = f"one draw of all variables has {_told(drawn)}, and {MOST_NUMBERS} at most"
        elif needed > available:
            fault = (
                f"the program takes about {_told(needed // 10**9)} GB, and this machine has "
                f"{available / 1e9:.1f} GB"
            )
        if fault:
            raise program.syntax.error(
                one.token,
                f"With `{name}`, which has {_told(count)} numbers, {fault}.",
                f"Correct its sizes or {data.name}.",
            )


def empty_parameters(program: Program, data: StanData) -> frozenset[str]:
    """Names of the parameters without elements, as far as data tell sizes."""
    known = known_numbers(program, data.values)
    return frozenset(
        program.syntax.word(one.token)
        for one in _declared(program)
        if one.block == "parameters"
        and any(
            _size(program, one, size, known, data) == 0
            for size in (*one.spec.array, *one.spec.dims)
        )
    )


def _told(count: int) -> str:
    return f"{count}" if count < 10**12 else f"{count:.1e}"


def _declared(program: Program) -> Iterator[_Declared]:
    """Variables that are declared whatever the program does, block by block."""
    for kind in _BLOCKS:
        for statement, token in program.syntax.declarations(kind):
            yield _Declared(kind, token, statement.type)


def _count(program: Program, one: _Declared, spec: TypeSpec, known: Known, data: StanData) -> int:
    """How many numbers a variable has; 0 where the data do not tell."""
    base = spec.dims * 2 if spec.base in SQUARE and len(spec.dims) == 1 else spec.dims
    told = [_size(program, one, size, known, data) for size in (*spec.array, *base)]
    sizes = [size for size in told if size is not None]
    inside = [_count(program, one, element, known, data) for element in spec.elements]
    if len(sizes) < len(told):
        return 0
    if spec.base == "cholesky_factor_cov" and len(base) == 2 and sizes[-2] < sizes[-1]:
        shape = f"has {sizes[-2]} rows and {sizes[-1]} columns"
        rule = "a Cholesky factor has no fewer rows than columns"
        raise _error(program, one, f"{shape}; {rule}", data)
    own = sum(inside) if spec.base == "tuple" else 1 + spec.base.startswith("complex")
    return math.prod(sizes) * own


def _size(
    program: Program, one: _Declared, tokens: Range, known: Known, data: StanData
) -> int | None:
    text = program.syntax.text(tokens)
    found = evaluated(text, known)
    if not isinstance(found, int):
        return None
    if found < 0:
        told = f"{found}" if text == f"{found}" else f"{text} = {found}"
        raise _error(program, one, f"has the size {told}, which is negative", data)
    return found


def _error(program: Program, one: _Declared, fault: str, data: StanData) -> ProgramError:
    remedy = f"Correct the declaration or {data.name}."
    return program.syntax.error(one.token, f"`{program.syntax.word(one.token)}` {fault}.", remedy)
