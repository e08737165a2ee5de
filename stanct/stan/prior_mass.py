"""The mass of a program's prior, ∫ p(θ) dθ, where statements tell it.

It is 1 where every prior is normalised. A parameter of bounded support without a prior adds the
volume of its support, and a prior with mass outside of declared bounds adds what is inside.
"""

from __future__ import annotations

import re

from stanct.stan.accumulators import accumulators
from stanct.stan.densities import one_line
from stanct.stan.dependence import Dependence
from stanct.stan.nodes import Increment, Tilde
from stanct.stan.omissions import omissions
from stanct.stan.program import Program


def corrections(program: Program) -> tuple[str, ...] | None:
    """Stan expressions of the data whose sum is −log ∫ p(θ) dθ; None if it is not known.

    Sums of densities in functions of the user's are taken for normalised. What the likelihood adds
    by hand does not matter. On a path between two programs, the base takes the place of the prior,
    and nothing is to be corrected.
    """
    if program.ends is not None:
        return ()
    dependence = Dependence(program)
    syntax = program.syntax
    by_hand, likely = set[tuple[int, str]](), set[tuple[int, str]]()
    sums = set(accumulators(program))
    for statement in program.statements("transformed parameters", "model"):
        terms = dependence.terms(statement) if isinstance(statement, Increment | Tilde) else []
        priors = [term for term in terms if term.part == "prior"]
        line = syntax.source.place(syntax.start(statement.tokens.first)).line
        place = line, one_line(syntax, statement.tokens)
        if priors:
            by_hand.add(place)
        elif isinstance(statement, Tilde):
            likely.add(place)
        sums -= {syntax.word(term.tokens.first) for term in priors}
    found: list[str] = []
    for omission in omissions(program):
        if omission.kind == "missing_constant":
            place = omission.line, omission.statement
            total = re.split(r"\W", omission.statement, maxsplit=1)[0]
            if place in by_hand or (place not in likely and total not in {"target", *sums}):
                return None
        elif omission.correction is not None:
            found.append(omission.correction)
        elif omission.value != 0:
            return None
    return tuple(found)


def measuring(program: Program, expressions: tuple[str, ...]) -> str:
    """A Stan program of one real parameter whose log density is the sum of the expressions."""
    terms = "".join(f"  target += {expression};\n" for expression in expressions)
    before = program.syntax.before_parameters
    return "\n".join([before, "parameters {\n  real at;\n}", f"model {{\n{terms}}}\n"])
