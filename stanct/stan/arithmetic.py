"""The values of Stan expressions that follow from the numbers in the text and in the data."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stanct.stan.nodes import Assign, Declare
from stanct.stan.program import Program
from stanct.stan.supports import FAMILIES, low_end, mass
from stanct.stan.syntax import walk

Known = Mapping[str, Any]
"""Numbers and nested lists of numbers by name."""
Other = Callable[[ast.expr], Any]
"""Gives the value of a part of an expression that is no constant, or raises `ValueError`."""

_FAILURES = (
    *(SyntaxError, ValueError, KeyError, TypeError, IndexError, RecursionError, MemoryError),
    ArithmeticError,
)
# What Python writes in another way.
_WRITTEN = (
    *((r"\^", "**"), ("%/%", "//")),
    *(("&&", " and "), (r"\|\|", " or "), (r"!(?!=)", " not ")),
)
_DIVISION = re.compile(r"(?<!%)/(?!%)")
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.truediv, ast.Pow: operator.pow,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "pi": lambda: math.pi,
    "e": lambda: math.e,
    "sqrt2": lambda: math.sqrt(2),
    "log2": lambda: math.log(2),
    "log10": lambda: math.log(10),
    "machine_precision": lambda: 2.0**-52,
    "positive_infinity": lambda: math.inf,
    "negative_infinity": lambda: -math.inf,
    "abs": abs,
    "log": math.log,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log1m": lambda x: math.log1p(-x),
    "log1m_exp": lambda x: math.log(-math.expm1(x)),
    "log_diff_exp": lambda x, y: x + math.log(-math.expm1(y - x)),
    "lgamma": math.lgamma,
    "tgamma": math.gamma,
}
_OF_TWO: Mapping[str, Callable[..., float]] = {"max": max, "min": min}
_OF_ARRAYS: Mapping[str, Callable[[np.ndarray], float]] = {
    "size": len,
    "num_elements": lambda values: values.size,
    "rows": lambda values: values.shape[0],
    "cols": lambda values: values.shape[1],
    "sum": lambda values: values.sum().item(),
    "max": lambda values: values.max().item(),
    "min": lambda values: values.min().item(),
}
_PROBABILITY = re.compile(r"(?P<family>\w+?)_(?P<log>l?)(?P<side>c?)cdf")


def _refused(_: ast.expr) -> float:
    raise ValueError("not a constant")


def constant(text: str, other: Other = _refused) -> float | None:
    """The value of a constant Stan expression, or None for any other expression."""
    found = _read(text, other)
    return None if found is None or math.isnan(found) else float(found)


def evaluated(text: str, known: Known) -> float | None:
    """The value of an expression of known numbers, an integer where it is one, or None.

    A number among the data may be real without a point, so that a division is not evaluated.
    """
    return None if _DIVISION.search(text) else _read(text, lambda node: _of_data(node, known))


def known_numbers(program: Program, data: Known) -> dict[str, Any]:
    """The data, and the integers of the transformed data that follow from them."""
    known = {name: data[name] for name in program.data_names if name in data}
    syntax = program.syntax
    statements = syntax.statements("transformed data")
    given = Counter(name for one in walk(statements) for name, _ in syntax.assigned(one))
    for statement in statements:
        integers = isinstance(statement, Declare) and statement.type.base == "int"
        whole = isinstance(statement, Assign) and statement.left.is_one
        for name, value in syntax.assigned(statement) if integers or whole else ():
            number = evaluated(syntax.text(value), known) if given[name] == 1 else None
            if isinstance(number, int):
                known[name] = number
    return known


def _read(text: str, other: Other) -> float | None:
    for pattern, instead in _WRITTEN:
        text = re.sub(pattern, instead, text)
    try:
        return _number(ast.parse(text.strip(), mode="eval").body, other)
    except _FAILURES:
        return None


def _number(node: ast.expr, other: Other) -> float:
    found = _value(node, other)
    if not isinstance(found, int | float):
        raise ValueError("no number")
    return found


def _value(node: ast.expr, other: Other) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(operand, other))
        case ast.BoolOp(op=op, values=parts):
            return _decided(parts, other, decides=isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(left, other), _number(right, other))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            ends = _number(left, other), _number(right, other)
            found = _OPERATORS[type(op)](*ends)
            whole = isinstance(op, ast.Div | ast.FloorDiv) and all(isinstance(x, int) for x in ends)
            return math.trunc(found) if whole else found  # Stan rounds towards zero
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            function = _FUNCTIONS.get(name) or (_OF_TWO.get(name) if arguments[1:] else None)
            if function is not None:
                return function(*(_number(argument, other) for argument in arguments))
            probability = _probability(name, arguments, other)
            return other(node) if probability is None else probability
        case _:
            return other(node)


def _decided(parts: Sequence[ast.expr], other: Other, *, decides: bool) -> bool:
    """Whether some or all conditions hold; what is not known matters where no other one decides."""
    found: list[bool | None] = []
    for part in parts:
        try:
            found.append(bool(_number(part, other)))
        except _FAILURES:
            found.append(None)
    if None in found and decides not in found:
        raise ValueError("not known")
    return decides if decides in found else not decides


def _of_data(node: ast.expr, known: Known) -> Any:
    """A variable, an element of one, or what a function tells of an array."""

    def inner(part: ast.expr) -> Any:
        return _of_data(part, known)

    match node:
        case ast.Name(id=name):
            return known[name]
        case ast.Subscript(value=array, slice=index):
            found = _value(array, inner)
            for one in index.elts if isinstance(index, ast.Tuple) else [index]:
                place = _value(one, inner)
                if place < 1:
                    raise ValueError("no index of Stan")
                found = found[place - 1]
            return found
        case ast.Call(func=ast.Name(id=name), args=[one]) if name in _OF_ARRAYS:
            array = _value(one, inner)
            if not isinstance(array, list):
                raise ValueError("no array")
            return _OF_ARRAYS[name](np.asarray(array))
        case _:
            raise ValueError("more than arithmetic")


def _probability(name: str, arguments: Sequence[ast.expr], other: Other) -> float | None:
    """The value of a distribution function, `a | b` being its first argument for Python."""
    match = _PROBABILITY.fullmatch(name)
    if match is None or match["family"] not in FAMILIES or not arguments:
        return None
    parts = [*arguments]
    if isinstance(parts[0], ast.BinOp) and isinstance(parts[0].op, ast.BitOr):
        parts[:1] = [parts[0].left, parts[0].right]
    if any(isinstance(part, ast.List | ast.Starred) for part in parts):
        return None
    end, *given = (_number(part, other) for part in parts)
    if not match["side"] and end <= low_end(match["family"], given):
        return -math.inf if match["log"] else 0.0
    ends = (end, math.inf) if match["side"] else (-math.inf, end)
    inside = mass(match["family"], given, *ends)
    return None if inside is None else math.log(inside) if match["log"] else inside
