"""The mass of a program's prior, ∫ p(θ) dθ, where statements tell it.

It is 1 where every prior is normalised. A parameter of bounded support without a prior adds the
volume of its support, and a prior with mass outside of declared bounds adds what is inside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stanct.stan.accumulators import accumulators
from stanct.stan.densities import one_line
from stanct.stan.dependence import Dependence
from stanct.stan.nodes import Increment, Tilde
from stanct.stan.omission import Omission
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
    found = omissions(program)
    missing = [one for one in found if one.correction is None and one.value != 0]
    if untold(Dependence(program), found) or any(one.kind != "missing_constant" for one in missing):
        return None
    return tuple(one.correction for one in found if one.correction is not None)


def untold(dependence: Dependence, found: Sequence[Omission]) -> tuple[Omission, ...]:
    """Those of a program's omissions that leave the mass of the prior unknown.

    What the likelihood adds by hand is none of them.
    """
    doubts, program = [one for one in found if one.kind == "missing_constant"], dependence.program
    if not doubts or program.ends is not None:
        return ()
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

    def of_prior(one: Omission) -> bool:
        place, total = (one.line, one.statement), re.split(r"\W", one.statement, maxsplit=1)[0]
        return place in by_hand or (place not in likely and total not in {"target", *sums})

    return tuple(one for one in doubts if of_prior(one))


def measuring(program: Program, expressions: tuple[str, ...]) -> str:
    """A Stan program of one real parameter whose log density is the sum of the expressions."""
    terms = "".join(f"  target += {expression};\n" for expression in expressions)
    before = program.syntax.before_parameters
    return "\n".join([before, "parameters {\n  real at;\n}", f"model {{\n{terms}}}\n"])
