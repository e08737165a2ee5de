"""The constants by which a program normalises its own half priors.

A term such as `- normal_lccdf(0 | 0, 1)` or `+ log(2)` is the missing factor of one prior: of one
in its own statement, otherwise of one with the same arguments. With a factor, or in a loop, it may
be that of all such priors.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stanct.stan.densities import Densities, Density, one_line
from stanct.stan.supports import constant
from stanct.stan.syntax import Assign, Compound, Declare, Increment, Range, Statement
from stanct.stan.truncations import Cut
from stanct.stan.walks import terms_of_sum

_PROBABILITY = re.compile(r"(?P<family>\w+)_l?c?cdf")
_BLOCKS = ("transformed data", "transformed parameters", "model")


@dataclass(frozen=True, eq=False)
class _Constant:
    """A term that may be the missing factor of a prior.

    Attributes
    ----------
    family, bounds, arguments
        What the distribution functions in it are of; an empty family for log(2).
    several
        Whether it may be the factor of more than one prior.
    """

    statement: Statement
    family: str
    bounds: frozenset[str]
    arguments: tuple[str, ...]
    several: bool


class OwnConstants:
    """Finds the constants of one program.

    Parameters
    ----------
    densities
        The densities of the program.

    Attributes
    ----------
    functions : set[str]
        The functions that its increments and assignments call.
    """

    def __init__(self, densities: Densities) -> None:
        self._densities, self._syntax = densities, densities.syntax
        self.functions: set[str] = set()
        statements = list(densities.program.statements(*_BLOCKS))
        loops = [
            range(*s.tokens) for s in statements if isinstance(s, Compound) and s.word == "for"
        ]
        self._constants = [
            found
            for statement in statements
            if isinstance(statement, Increment | Assign | Declare)
            for value in self._values(statement)
            for found in self._of(statement, value, any(value.first in loop for loop in loops))
        ]

    def corrected(self, priors: Sequence[tuple[Density, Cut]]) -> set[int]:
        """Return the identities of the priors whose missing factor the program adds."""
        found: set[int] = set()
        owners = {id(prior.statement) for prior, _ in priors}
        apart = [one for one in self._constants if id(one.statement) not in owners]
        inside = [one for one in self._constants if id(one.statement) in owners]
        for constants, exact in ((inside, True), (inside, False), (apart, True), (apart, False)):
            for prior, cut in priors:
                if id(prior) in found:
                    continue
                for one in constants:
                    near = constants is apart or one.statement is prior.statement
                    if near and self._serves(one, prior, cut, exact):
                        found.add(id(prior))
                        if not one.several:
                            constants.remove(one)
                        break
        return found

    def _serves(self, one: _Constant, prior: Density, cut: Cut, exact: bool) -> bool:
        if not one.family:
            return cut.centred
        given = [one_line(self._syntax, argument) for argument in prior.arguments]
        return (
            one.family == prior.family
            and any(_alike(a, b.text) for a in one.bounds for b in cut.bounds)
            and len(given) == len(one.arguments)
            and all(_alike(a, b, exact) for a, b in zip(given, one.arguments, strict=True))
        )

    def _values(self, statement: Increment | Assign | Declare) -> list[Range]:
        if isinstance(statement, Declare):
            return [value for _, value in statement.names if value is not None]
        return [statement.value]

    def _of(self, statement: Statement, value: Range, looped: bool) -> Iterator[_Constant]:
        """Yield the constants in the value of a statement."""
        self.functions.update(name for name, _ in self._densities.calls(value))
        is_added = bool(self._densities.sum_of(statement))
        terms = terms_of_sum(self._syntax, value) if is_added else [(value, True)]
        for term, negative in terms:
            several = looped or not is_added or self._has_factor(term)
            number = constant(one_line(self._syntax, term))
            known = [*self._probabilities(term)]
            if self._has_log_two(term):
                yield _Constant(statement, "", frozenset(), (), several)
            elif is_added and number:
                of_one = abs(abs(number) - math.log(2)) < 1e-3
                yield _Constant(statement, "", frozenset(), (), several or not of_one)
            words = {*self._syntax.words(term)}
            # The log of a probability that is added is the likelihood of a censored value.
            if negative or words & {"-", "/"}:
                for family, arguments in {(f, a): None for f, _, a in known}:
                    bounds = Counter(b for f, b, a in known if (f, a) == (family, arguments))
                    for _ in range(max(bounds.values())):
                        yield _Constant(statement, family, frozenset(bounds), arguments, several)

    def _probabilities(self, tokens: Range) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yield the family, the bound and the arguments of each call of a distribution function."""
        for name, inside in self._densities.calls(tokens):
            match = _PROBABILITY.fullmatch(name)
            if match is not None:
                bound, others = self._syntax.conditioned(inside)
                texts = [one_line(self._syntax, part) for part in (bound, *others)]
                yield match["family"], texts[0], tuple(texts[1:])

    def _has_log_two(self, term: Range) -> bool:
        """Whether log(2) is a factor of a term. The weight log(0.5) of a mixture is none."""
        text = self._syntax.text
        return not self._densities.has_density(term) and any(
            (name == "log" and constant(text(inside)) in (2.0, 0.5)) or (name == "log2")
            for name, inside in self._densities.calls(term)
            if inside.first - 2 in [*self._syntax.outermost(term)]
        )

    def _has_factor(self, term: Range) -> bool:
        factors = [one_line(self._syntax, part) for part in self._syntax.split(term, "*")]
        return sum(constant(text) not in (1.0, -1.0) for text in factors) > 1


def _alike(one: str, other: str, exact: bool = True) -> bool:
    """Whether two expressions are the same, or may be if numbers alone tell that they are not."""
    numbers = constant(one), constant(other)
    if one == other or (numbers[0] is not None and numbers[0] == numbers[1]):
        return True
    return not exact and None in numbers
