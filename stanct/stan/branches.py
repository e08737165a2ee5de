"""The branches of a program that its data choose, such as `if (prior_dist == 1)`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from stanct.stan.own_constants import Numbers
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit, apply
from stanct.stan.syntax import Compound, Statement

_LOGIC = ((r"&&", " and "), (r"\|\|", " or "), (r"!(?!=)", " not "))
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
        ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    }
)  # fmt: skip


def taken(program: Program, known: Numbers) -> Program:
    """Return the program without the branches that numbers of its data rule out.

    Lines stay what they are. A program of several files is left alone.
    """
    if program.source != program.expanded:
        return program
    left_out = [
        statement
        for name in ("transformed parameters", "model")
        for statement in _left_out(program, program.syntax.statements(name), known)
    ]
    if not left_out:
        return program
    edits: list[Edit] = []
    for statement in left_out:
        start, end = program.syntax.span(statement.tokens)
        lines = "\n" * program.expanded.count("\n", start, end)
        edits.append(Edit(start, end, f"{{{lines}}}"))
    source = apply(program.expanded, edits)
    return Program.from_source(source, name=program.name, path=program.path)


def _left_out(program: Program, statements: list[Statement], known: Numbers) -> Iterator[Statement]:
    for statement in statements:
        if not isinstance(statement, Compound):
            continue
        bodies = list(statement.body)
        if statement.word == "if":
            for place, head in enumerate(statement.heads):
                holds = _truth(program.syntax.text(head), known)
                if holds is None:
                    break
                if holds:
                    yield from statement.body[place + 1 :]
                    bodies = [one for one in bodies if one not in statement.body[place + 1 :]]
                    break
                yield statement.body[place]
                bodies.remove(statement.body[place])
        yield from _left_out(program, bodies, known)


def _truth(condition: str, known: Numbers) -> bool | None:
    """Whether a condition of numbers in the data holds; None if these do not tell."""
    for pattern, word in _LOGIC:
        condition = re.sub(pattern, word, condition)
    try:
        found = _value(ast.parse(condition.strip(), mode="eval").body, known)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return None if found is None else bool(found)


def _value(node: ast.expr, known: Numbers) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found = _value(node.operand, known)
        return None if found is None else not found
    if isinstance(node, ast.BoolOp):
        parts = [_value(part, known) for part in node.values]
        decides = isinstance(node.op, ast.Or)
        if any(part is not None and bool(part) is decides for part in parts):
            return decides
        return None if None in parts else not decides
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        ends = _value(node.left, known), _value(node.comparators[0], known)
        compared = _COMPARED.get(type(node.ops[0]))
        return None if compared is None or None in ends else compared(*ends)
    return known(ast.unparse(node))
