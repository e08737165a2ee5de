"""The branches of a program that its data choose, such as `if (prior_dist == 1)`."""

from __future__ import annotations

from collections.abc import Iterator

from stanct.stan.arithmetic import Known, evaluated
from stanct.stan.nodes import Compound, Statement
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit, edited


def taken(program: Program, known: Known) -> Program:
    """Return the program without the branches that numbers of its data rule out.

    Lines stay what they are. A program of several files is left alone.
    """
    if program.source != program.expanded:
        return program
    edits: list[Edit] = []
    for name in ("transformed parameters", "model"):
        for statement in _left_out(program, program.syntax.statements(name), known):
            start, end = program.syntax.span(statement.tokens)
            lines = "\n" * program.expanded.count("\n", start, end)
            edits.append(Edit(start, end, f"{{{lines}}}"))
    return edited(program, edits)


def _left_out(program: Program, statements: list[Statement], known: Known) -> Iterator[Statement]:
    for statement in statements:
        if not isinstance(statement, Compound):
            continue
        bodies = list(statement.body)
        if statement.word == "if":
            for place, head in enumerate(statement.heads):
                holds = evaluated(program.syntax.text(head), known)
                if holds is None:
                    break
                if holds:
                    yield from statement.body[place + 1 :]
                    bodies = [one for one in bodies if one not in statement.body[place + 1 :]]
                    break
                yield statement.body[place]
                bodies.remove(statement.body[place])
        yield from _left_out(program, bodies, known)
