"""Parameters that have no elements, as far as the data tell sizes."""

from __future__ import annotations

from stanct.stan.program import Program
from stanct.targets.arithmetic import evaluated, known_numbers
from stanct.targets.data import StanData


def empty_parameters(program: Program, data: StanData) -> frozenset[str]:
    """Names of the parameters without elements, as far as data tell sizes."""
    known, syntax = known_numbers(program, data.values), program.syntax
    return frozenset(
        syntax.word(token)
        for statement, token in syntax.declarations("parameters")
        if any(
            evaluated(syntax.text(size), known) == 0
            for size in (*statement.type.array, *statement.type.dims)
        )
    )
