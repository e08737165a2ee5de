"""Evaluates sizes and bounds of a program that follow from its data by simple arithmetic."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stanct.stan.program import Program
from stanct.stan.syntax import Assign, Declare, walk

Known = Mapping[str, Any]
"""Numbers and nested lists of numbers by name."""

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_OF_ARRAYS: dict[str, Callable[[np.ndarray], float]] = {
    "size": len,
    "num_elements": lambda values: values.size,
    "rows": lambda values: values.shape[0],
    "cols": lambda values: values.shape[1],
    "sum": lambda values: values.sum().item(),
    "max": lambda values: values.max().item(),
    "min": lambda values: values.min().item(),
}
_OF_NUMBERS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs}
_DIVISION = re.compile(r"%/%")


def evaluated(expression: str, known: Known) -> float | None:
    """Evaluate a size or a bound; None if that takes more than arithmetic of what is known."""
    try:
        found = _value(ast.parse(_DIVISION.sub("//", expression), mode="eval").body, known)
    except (
        *(SyntaxError, ValueError, KeyError, TypeError, IndexError, RecursionError, MemoryError),
        *(ZeroDivisionError, OverflowError),
    ):
        return None
    return found if isinstance(found, int | float) else None


def known_numbers(program: Program, data: Known) -> dict[str, Any]:
    """Return the data, and the integers of the transformed data that follow from them."""
    known = {name: data[name] for name in program.data_names if name in data}
    text, word = program.syntax.text, program.syntax.word
    statements = program.syntax.statements("transformed data")
    every = list(walk(statements))
    given = Counter(word(one.left.first) for one in every if isinstance(one, Assign))
    given.update(
        word(name)
        for one in every
        if isinstance(one, Declare)
        for name, value in one.names
        if value is not None
    )
    for statement in statements:
        if isinstance(statement, Declare) and statement.type.base == "int":
            values = [(word(name), value) for name, value in statement.names]
        elif isinstance(statement, Assign):
            values = [(text(statement.left), statement.value)]
        else:
            continue
        for name, value in values:
            number = None if value is None or given[name] > 1 else evaluated(text(value), known)
            if isinstance(number, int):
                known[name] = number
    return known


def _value(node: ast.expr, known: Known) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(left, known), _number(right, known))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            # Stan rounds towards zero.
            return math.trunc(_whole(left, known) / _whole(right, known))
        case ast.Subscript(value=array, slice=index):
            found = _value(array, known)
            for one in index.elts if isinstance(index, ast.Tuple) else [index]:
                place = _whole(one, known)
                if place < 1:
                    raise ValueError("no index of Stan")
                found = found[place - 1]
            return found
        case ast.Call(func=ast.Name(id=name), args=[one]) if name in _OF_ARRAYS:
            return _OF_ARRAYS[name](np.asarray(_array(one, known)))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _OF_NUMBERS:
            return _OF_NUMBERS[name](*(_number(each, known) for each in arguments))
        case _:
            raise ValueError("more than arithmetic")


def _number(node: ast.expr, known: Known) -> float:
    found = _value(node, known)
    if not isinstance(found, int | float):
        raise ValueError("no number")
    return found


def _whole(node: ast.expr, known: Known) -> int:
    found = _value(node, known)
    if not isinstance(found, int):
        raise ValueError("no integer")
    return found


def _array(node: ast.expr, known: Known) -> list[Any]:
    found = _value(node, known)
    if not isinstance(found, list):
        raise ValueError("no array")
    return found
