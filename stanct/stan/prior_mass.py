"""The mass of a program's prior, ∫ p(θ) dθ, where statements tell it.

It is 1 where every prior is normalised. A parameter of bounded support without a prior adds the
volume of its support, and a prior with mass outside of declared bounds adds what is inside.
"""

from __future__ import annotations

from stanct.stan.densities import one_line
from stanct.stan.dependence import Dependence
from stanct.stan.omissions import omissions
from stanct.stan.program import Program
from stanct.stan.syntax import Increment, walk

_BEFORE = ("functions", "data", "transformed data")


def corrections(program: Program) -> tuple[str, ...] | None:
    """Stan expressions of the data whose sum is −log ∫ p(θ) dθ; None if it is not known.

    Hand-written densities and functions of the user's are taken for normalised. On a path between
    two programs, the base takes the place of the prior, and nothing is to be corrected.
    """
    if program.ends is not None:
        return ()
    dependence = Dependence(program)
    syntax = program.syntax
    by_hand = {
        (
            syntax.source.place(syntax.start(statement.tokens.first)).line,
            one_line(syntax, statement.tokens),
        )
        for name in ("transformed parameters", "model")
        if (block := program.blocks.get(name)) is not None
        for statement in walk(block.statements)
        if isinstance(statement, Increment)
        and any(term.part == "prior" for term in dependence.terms(statement))
    }
    found: list[str] = []
    for omission in omissions(program):
        if omission.kind == "missing_constant":
            if (omission.line, omission.statement) in by_hand or not _is_increment(
                omission.statement
            ):
                return None
        elif omission.correction is not None:
            found.append(omission.correction)
        elif omission.value != 0:
            return None
    return tuple(found)


def _is_increment(statement: str) -> bool:
    return statement.startswith("target")


def measuring(program: Program, expressions: tuple[str, ...]) -> str:
    """A Stan program of one real parameter whose log density is the sum of the expressions."""
    blocks = (program.blocks.get(name) for name in _BEFORE)
    syntax = program.syntax
    texts = [
        program.expanded[syntax.start(block.keyword) : syntax.tokens[block.closing].end]
        for block in blocks
        if block is not None
    ]
    terms = "".join(f"  target += {expression};\n" for expression in expressions)
    return "\n".join([*texts, "parameters {\n  real at;\n}", f"model {{\n{terms}}}\n"])
