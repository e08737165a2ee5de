"""The constants by which a program normalises its own priors.

A term such as `- normal_lccdf(0 | 0, 1)` or `+ log(2)` is the missing factor of priors if its value
is: of one, or of several together. A loop counts as often as it runs. What the text does not tell,
such as a size among the data, stands for one arbitrary number wherever it is written. The whole
number in a prior's own statement, as in `- 2 * normal_lccdf(0 | 0, 1)`, counts its elements.
"""

from __future__ import annotations

import ast
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from stanct.stan.arithmetic import Known, constant, evaluated
from stanct.stan.densities import DENSITY, PROBABILITY, Densities, one_line
from stanct.stan.nodes import Assign, Compound, Range, Statement
from stanct.stan.truncations import length
from stanct.stan.walks import terms_of_sum

_SIZES = frozenset({"size", "num_elements", "rows"})
_WHOLE = re.compile(r"\d+")
_BLOCKS = ("transformed data", "transformed parameters", "model")
_NEAR = 1e-3
# Beyond so many priors, a constant is compared with few of them at a time, or with all.
_MANY = 10


@dataclass(frozen=True, eq=False)
class Lack:
    """The log of a factor that a prior lacks, and what one element lacks; NaN if unknown.

    `statement` is that of the prior, if there is one. `is_open` says whether the text does not tell
    the value.
    """

    statement: Statement | None
    value: float
    is_open: bool
    each: float = math.nan


@dataclass(frozen=True, eq=False)
class OwnConstant:
    """A term that adds a constant to the target; NaN if its value cannot be read.

    `is_fixed` says whether no parameter stands in it, and `count` is the whole number by which it
    begins as a factor; 0 if there is none.
    """

    statement: Statement
    value: float
    is_fixed: bool
    count: int = 0


class OwnConstants:
    """Finds the constants of one program; `known` are numbers of the data."""

    def __init__(self, densities: Densities, known: Known) -> None:
        self._known = known
        self._densities, self._syntax = densities, densities.syntax
        self._specs = densities.program.parameter_types
        self._texts = self._named()
        self._constants = [
            found
            for statement, inside in densities.surrounded()
            for found in self._of(statement, inside)
        ]

    def match(self, lacks: Sequence[Lack]) -> tuple[set[Lack], list[OwnConstant]]:
        """Return the lacks that constants of the program make up for, and the constants left."""
        owners = [lack.statement for lack in lacks]
        inside = [one for one in self._constants if one.statement in owners]
        groups = [[c for c in inside if c.statement is owner] for owner in owners]
        groups += [[c] for c in inside] + [[c] for c in self._constants]
        groups.append(self._constants)
        own = len(owners) + len(inside)
        filled, left = set[Lack](), list(self._constants)
        for number, group in enumerate(groups):
            group = [one for one in group if one in left]
            if not group:
                continue
            open_ = [lack for lack in lacks if lack not in filled]
            if number < own:
                open_ = [lack for lack in open_ if lack.statement is group[0].statement]
            found = _of_sum(open_, sum(one.value for one in group))
            if number < own and not found:
                found = _of_count(open_, group)
            if found:
                filled.update(found)
                left = [one for one in left if one not in group]
        return filled, left

    def read(self, text: str, inside: Sequence[Compound] = ()) -> tuple[float, bool]:
        """The value of an expression in as many runs, and whether arbitrary numbers are in it."""
        opened = False

        def other(node: ast.expr) -> float:
            nonlocal opened
            name = node.id if isinstance(node, ast.Name) else ""
            if name in self._texts:
                value, is_open = self.read(self._texts[name])
                opened |= is_open
                return value
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                sizes = self._sizes_of(ast.unparse(node.args[0]), node.func.id)
                if sizes:
                    value, is_open = self._product(sizes)
                    opened |= is_open
                    return value
            number = evaluated(text := ast.unparse(node), self._known)
            opened |= number is None
            return _arbitrary(text) if number is None else number

        value = constant(text, other)
        if value is None:
            return math.nan, True
        for runs in (self._runs(one, head) for one in inside for head in one.heads):
            if "?" in runs:
                more, is_open = _arbitrary(runs), True
            else:
                more, is_open = self.read(runs)
            value, opened = value * more, opened or is_open
        return value, opened

    def elements(self, name: str) -> float:
        """The number of elements of a parameter, or the arbitrary one for which its sizes stand."""
        return self._product(self._sizes_of(name, "num_elements"))[0]

    def _sizes_of(self, name: str, function: str) -> Sequence[Range]:
        """The sizes whose product a function returns for a parameter; empty for other functions."""
        spec = self._specs.get(name)
        if spec is None or function not in _SIZES:
            return ()
        if function == "rows":
            return spec.dims[:1] if not spec.array and spec.base != "row_vector" else ()
        return *spec.array, *spec.dims

    def _product(self, sizes: Sequence[Range]) -> tuple[float, bool]:
        read = [self.read(one_line(self._syntax, size)) for size in sizes]
        return math.prod(value for value, _ in read), any(is_open for _, is_open in read)

    def whole(self, tokens: Range) -> int | None:
        """The whole number that an expression is; None if neither text nor data tell one."""
        value, is_open = self.read(one_line(self._syntax, tokens))
        return int(value) if not is_open and value == int(value) else None

    def _runs(self, compound: Compound, head: Range) -> str:
        """How often a head runs what is inside, in Stan; with a `?` where that is unknown."""
        if compound.word == "for" and (runs := length(self._syntax, compound)) is not None:
            return runs
        known = ("block", "profile")
        return "1" if compound.word in known else f"? {one_line(self._syntax, head)}"

    def _named(self) -> dict[str, str]:
        """What each variable is that is declared with its value and never assigned."""
        declared: dict[str, str] = {}
        assigned = set[str]()
        for statement in self._densities.program.statements(*_BLOCKS):
            found = {n: one_line(self._syntax, v) for n, v in self._syntax.assigned(statement)}
            if isinstance(statement, Assign):
                assigned |= found.keys()
            else:
                declared |= found
        return {name: text for name, text in declared.items() if name not in assigned}

    def _of(self, statement: Statement, inside: tuple[Compound, ...]) -> Iterator[OwnConstant]:
        """Yield the constants among the terms of what a statement adds."""
        seen = self._densities
        value = seen.value_of_sum(statement)
        if value is None:
            return
        for term, negative in terms_of_sum(self._syntax, value):
            called = {name for name, _ in seen.calls(term)}
            names = seen.names(term)
            is_fixed = not seen.roots(seen.names_past_sizes(term))
            is_own = is_fixed or any(map(PROBABILITY.fullmatch, called))
            if not is_own or names & seen.sums or any(map(DENSITY.fullmatch, called)):
                continue
            read, _ = self.read(one_line(self._syntax, term), inside)
            if read != 0:
                words = self._syntax.words(term)
                is_times = words[1:2] == ["*"] and _WHOLE.fullmatch(words[0])
                count = int(words[0]) if is_times else 0
                yield OwnConstant(statement, -read if negative else read, is_fixed, count)


def _arbitrary(text: str) -> float:
    """The number for which a text stands wherever it is written, between 1 and 3."""
    return 1 + zlib.crc32(text.encode()) / 2**31


def _of_count(lacks: Sequence[Lack], constants: Sequence[OwnConstant]) -> tuple[Lack, ...]:
    """The lack that a constant fills if its factor is the number of elements; empty if none is."""
    total, count = constants[0].value, constants[0].count if len(constants) == 1 else 0
    found = (lack for lack in lacks if lack.is_open and abs(count * lack.each - total) < _NEAR)
    return tuple(found)[:1]


def _of_sum(lacks: Sequence[Lack], total: float) -> tuple[Lack, ...]:
    """The fewest lacks whose values have that sum; empty if there are none."""
    known = [lack for lack in lacks if not math.isnan(lack.value)]
    for size in range(1, len(known) + 1):
        if len(known) > _MANY and 2 < size < len(known):
            continue
        for found in combinations(known, size):
            if abs(sum(lack.value for lack in found) - total) < _NEAR:
                return found
    return ()
