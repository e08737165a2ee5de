"""Classification of a model's terms as prior or likelihood, by their dependence on data.

A term is likelihood if its *variate* depends on data. The variate is the expression left of `~`, or
left of the bar in `normal_lpdf(y | ...)`, or otherwise everything that enters the value. Indices do
not count. Data among the parameters of a distribution do not count either, since they are constants
of the prior. Transformed data count as data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stanct.stan.nodes import (
    Assign,
    Compound,
    Declare,
    Increment,
    Range,
    Statement,
    Tilde,
)
from stanct.stan.program import Program
from stanct.stan.supports import is_compact
from stanct.stan.walks import terms_of_sum

PARTS = ("prior", "likelihood")

# The results of the first group do not depend on the values of their arguments. Those of the
# second group depend on the value of the first argument only.
_SIZE_NAMES = """
    rows cols size num_elements dims zeros_vector zeros_row_vector zeros_array zeros_int_array
    ones_vector ones_row_vector ones_array ones_int_array identity_matrix one_hot_vector
    one_hot_row_vector one_hot_array one_hot_int_array
"""
_FIRST_NAMES = """
    rep_vector rep_row_vector rep_matrix rep_array segment head tail block sub_col sub_row col row
    to_matrix
"""
_SIZES, _FIRST = frozenset(_SIZE_NAMES.split()), frozenset(_FIRST_NAMES.split())
_DENSITY = re.compile(r"\w+_(?:lu?p[dm]f|lc?cdf)")
# One between backticks is mentioned, as in the heads of generated programs.
_ANNOTATION = re.compile(r"(?<!`)//[ \t]*stanct[ \t]*:[ \t]*(?P<part>[^\r\n]*)")
_HOLDS = "density"
# Mapping from the name of each variable that a statement sees to its number.
Numbering = dict[str, int]
_Flow = tuple[int, frozenset[int]]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Term:
    """A summand of a target increment: its tokens, whether it is subtracted, and its part."""

    tokens: Range
    negative: bool
    part: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """A statement with the variables that it sees and the conditions under which it runs."""

    statement: Statement
    scope: Numbering
    conditions: frozenset[int]
    heads: tuple[int, ...]


class Dependence:
    """The parameters and data on which each statement of one program's model depends.

    Raises `ProgramError` for an annotation that cannot be read or belongs to no statement.
    """

    def __init__(self, program: Program) -> None:
        self.program, self._syntax = program, program.syntax
        self._count = 0
        self._data: set[int] = set()
        # Data that are one number each, of which it cannot be told whether they are observations.
        self._numbers: set[int] = set()
        self._flags: set[int] = set()
        self._parameters: dict[int, str] = {}
        # What flows into a variable by its value, and what in any way, including as an index or as
        # the parameter of a distribution.
        self._values: list[_Flow] = []
        self._everything: list[_Flow] = []
        # Variables that get log densities, such as a sum of priors, and the expressions.
        self._given: list[tuple[int, Range, Numbering]] = []
        self._seen: list[_Seen] = []
        self._covered: set[int] = set()
        # First tokens of terms that may be prior or likelihood: with data and parameters that only
        # functions of the user's know, or whose data are single numbers and no variate.
        self.unattributed: list[int] = []
        # First tokens of terms by hand that count as likelihood because data are in them. They may
        # be part of the prior, or of a density that has neither.
        self.by_hand: list[int] = []
        # First tokens of terms that are both, such as a variable that sums prior and likelihood.
        self.mixed: list[int] = []
        scope: Numbering = {}
        for name in ("data", "transformed data", "parameters", "transformed parameters", "model"):
            for seen in self._walk(program.syntax.statements(name), scope, frozenset(), ()):
                self._note(seen, name)
        # For each variable: the data and parameters whose values enter it, those that influence it,
        # and whether it holds densities, with what they are of.
        self._roots = self._spread(self._values)
        self._says = self._spread(self._everything)
        kinds = [set[str]() for _ in range(self._count)]
        for variable, value, around in self._given:
            kinds[variable] |= {_HOLDS, *self._kinds_in(value, around)}
        self._kinds = _settled(kinds, self._values)
        self._annotations = _Annotations(program)
        self._parts = {
            id(seen.statement): self._terms(seen)
            for seen in self._seen
            if isinstance(seen.statement, (Tilde, Increment))
        }
        self._calls = [self._call_part(*call) for call in self._lp_calls()]
        self._annotations.finish()

    def terms(self, statement: Tilde | Increment) -> list[Term]:
        """Return the terms of a `~` statement or an increment."""
        return self._parts[id(statement)]

    @property
    def has_likelihood(self) -> bool:
        """Whether any term of the model is likelihood."""
        return any(term.part == "likelihood" for terms in self._parts.values() for term in terms)

    @property
    def tells_apart(self) -> bool:
        """Whether it is certain which terms are prior, because all others are densities of data.

        That of a Boltzmann machine is no posterior, and has no prior.
        """
        return not (self.by_hand or self.mixed)

    @property
    def likelihood_call(self) -> int | None:
        """Token of the first call of an `_lp` function that adds likelihood, or None."""
        return next((token for token, part in self._calls if part == "likelihood"), None)

    @property
    def uncovered(self) -> frozenset[str]:
        """The parameters that are the variate of no prior term."""
        covered = {self._parameters[root] for root in self._covered}
        return frozenset(self.program.parameter_types) - covered

    def without_prior(self) -> list[str]:
        """Return the parameters of unbounded support that are the variate of no prior term.

        An empty list is necessary for a proper prior, but not sufficient.
        """
        types = self.program.parameter_types.items()
        return [name for name, spec in types if name in self.uncovered and not is_compact(spec)]

    # Data flow

    def _declare(self, name: str, scope: Numbering) -> int:
        scope[name], self._count = self._count, self._count + 1
        return scope[name]

    def _walk(
        self,
        statements: Sequence[Statement],
        scope: Numbering,
        conditions: frozenset[int],
        heads: tuple[int, ...],
    ) -> Iterator[_Seen]:
        """Yield every statement. Declarations are added to `scope`; Stan has no shadowing."""
        for statement in statements:
            yield _Seen(statement, scope, conditions, heads)
            if not isinstance(statement, Compound):
                continue
            inner, under = dict(scope), conditions
            if statement.word == "for":
                head = statement.heads[0]
                variable = self._declare(self._syntax.word(head.first), inner)
                over = Range(head.first + 2, head.stop)
                if len(self._syntax.split(over, ":")) == 1:
                    self._add_flow(variable, over, scope, frozenset())
            elif statement.word in ("if", "while"):
                for head in statement.heads:
                    under = under | self._names(head, scope)
            inside = (*heads, statement.tokens.first)
            yield from self._walk(statement.body, inner, under, inside)

    def _note(self, seen: _Seen, block: str) -> None:
        statement, scope = seen.statement, seen.scope
        if isinstance(statement, Declare):
            for token, value in statement.names:
                name = self._syntax.word(token)
                variable = self._declare(name, scope)
                if block in ("data", "transformed data"):
                    self._data.add(variable)
                    if statement.type.base in ("int", "real") and statement.type.rank == 0:
                        self._numbers.add(variable)
                        if statement.type.base == "int":
                            self._flags.add(variable)
                elif block == "parameters":
                    self._parameters[variable] = name
                if value is not None:
                    self._add_flow(variable, value, scope, seen.conditions)
        elif isinstance(statement, Assign):
            for variable in self._names(statement.left, scope):
                self._add_flow(variable, statement.value, scope, seen.conditions)
        if block in ("transformed parameters", "model"):
            self._seen.append(seen)

    def _add_flow(
        self, variable: int, value: Range, scope: Numbering, conditions: frozenset[int]
    ) -> None:
        # A scalar integer of the data in a condition is a switch, not an observation.
        conditions -= self._flags
        if variable not in self._data:
            values, every = (self._names(value, scope, every=every) for every in (False, True))
            self._values.append((variable, values | conditions))
            self._everything.append((variable, every | conditions))
        if self._has_density(value):
            self._given.append((variable, value, scope))

    def _has_density(self, tokens: Range) -> bool:
        return any(_DENSITY.fullmatch(self._syntax.word(token)) for token in range(*tokens))

    def _spread(self, flows: Sequence[_Flow]) -> list[set[int]]:
        """The data and parameters that flows bring to each variable."""
        sources = self._data | self._parameters.keys()
        own = [{variable} & sources for variable in range(self._count)]
        return _settled(own, flows)

    def _kinds_in(self, tokens: Range, scope: Numbering) -> set[str]:
        """The parts of the model to which densities in an expression belong, by their variates."""
        found, syntax = set[str](), self._syntax
        for token in syntax.calls(tokens, _is_density):
            roots = self._reaches(
                self._names(syntax.conditioned(syntax.inside(token + 1))[0], scope)
            )
            if roots & self._data:
                found.add("likelihood")
            elif roots & self._parameters.keys():
                found.add("prior")
        return found

    def _names(self, tokens: Range, scope: Numbering, *, every: bool = False) -> frozenset[int]:
        """Return the variables whose values enter an expression, or with `every` all it names."""
        found: set[int] = set()
        syntax, token = self._syntax, tokens.first
        while token < tokens.stop:
            word = syntax.word(token)
            closing = syntax.partner.get(token)
            if syntax.tokens[token].kind == "name" and syntax.word(token + 1) == "(":
                closing = syntax.partner[token + 1]
                inside = self._values_of_call(word, Range(token + 2, closing), every)
                found |= self._names(inside, scope, every=every)
                token = closing
            elif syntax.tokens[token].kind == "name" and word in scope:
                found.add(scope[word])
            elif word == "[" and closing is not None and not every and token > tokens.first:
                before = syntax.tokens[token - 1]
                if before.kind == "name" or before.text in (")", "]", "}", "'"):
                    token = closing
            token += 1
        return frozenset(found)

    def _values_of_call(self, name: str, arguments: Range, every: bool) -> Range:
        if every:
            return arguments
        if name in _SIZES:
            return Range(arguments.first, arguments.first)
        if name in _FIRST or _DENSITY.fullmatch(name):
            separator = "," if name in _FIRST else "|"
            return next(iter(self._syntax.split(arguments, separator)), arguments)
        return arguments

    def _reaches(self, names: frozenset[int]) -> set[int]:
        return set[int]().union(*(self._roots[name] for name in names))

    # Classification

    def _terms(self, seen: _Seen) -> list[Term]:
        statement = seen.statement
        annotated = self._annotations.part(statement.tokens, seen.heads)
        if isinstance(statement, Tilde):
            whole = Range(statement.tokens.first, statement.tokens.stop - 1)
            return [Term(whole, False, self._part(statement.variate, whole, seen, annotated))]
        assert isinstance(statement, Increment)
        terms = [
            Term(tokens, negative, self._part(tokens, tokens, seen, annotated))
            for tokens, negative in terms_of_sum(self._syntax, statement.value)
        ]
        if len({term.part for term in terms}) == 1:
            return [Term(statement.value, False, terms[0].part)]
        return terms

    def _part(self, variate: Range, whole: Range, seen: _Seen, annotated: str | None) -> str:
        values = self._reaches(self._names(variate, seen.scope))
        named = self._names(whole, seen.scope, every=True)
        everything = set[int]().union(*(self._says[name] for name in named))
        parameters = values & self._parameters.keys()
        held = set[str]().union(*(self._kinds[name] for name in named))
        density = variate != whole or self._has_density(whole) or bool(held)
        inner = self._inner_variates(whole, seen.scope)
        if variate == whole and not density and inner:
            values, density = inner, True
            parameters = values & self._parameters.keys()
        if values & self._data:
            part = "likelihood"
            users = set(self._syntax.words(whole)) & self.program.functions.keys()
            told = not (users or values & self._data <= self._numbers)
            if parameters and not density and annotated is None and not told:
                self.unattributed.append(whole.first)
        elif parameters and density:
            part = "prior"
        else:
            observed = self._reaches(seen.conditions - self._flags) | everything
            free = everything & self._parameters.keys()
            part = "likelihood" if observed & self._data and free else "prior"
        if part == "likelihood" and not density and annotated is None:
            self.by_hand.append(whole.first)
        sums_both = {*PARTS} <= self._kinds_in(whole, seen.scope) | held
        if variate == whole and annotated is None and sums_both:
            self.mixed.append(whole.first)
        part = annotated or part
        if part == "prior":
            self._covered |= parameters or everything & self._parameters.keys()
            self._covered |= inner & self._parameters.keys()
        return part

    def _inner_variates(self, tokens: Range, scope: Numbering) -> set[int]:
        """Data and parameters that a user's functions give to densities as the variate."""
        found, syntax = set[int](), self._syntax
        for token in range(*tokens):
            if token + 1 not in syntax.partner:
                continue
            for function in self.program.functions.get(syntax.word(token), ()):
                given = syntax.arguments(syntax.inside(token + 1))
                for (_, name), argument in zip(function.arguments, given, strict=False):
                    if syntax.word(name) in self.program.variates_in(function, _is_density):
                        found |= self._reaches(self._names(argument, scope))
        return found

    def _lp_calls(self) -> Iterator[tuple[int, _Seen]]:
        """Yield every call of a function ending in `_lp`, which adds to the target."""
        for seen in self._seen:
            statement = seen.statement
            ranges = statement.heads if isinstance(statement, Compound) else [statement.tokens]
            for tokens in ranges:
                for token in self._syntax.calls(tokens, lambda name: name.endswith("_lp")):
                    yield token, seen

    def _call_part(self, token: int, seen: _Seen) -> tuple[int, str]:
        arguments = self._syntax.inside(token + 1)
        roots = self._reaches(self._names(arguments, seen.scope))
        annotated = self._annotations.part(seen.statement.tokens, seen.heads)
        part = annotated or ("likelihood" if roots & self._data else "prior")
        if part == "prior":
            self._covered |= roots & self._parameters.keys()
        return token, part


def _settled(known: list[set[_Item]], flows: Sequence[_Flow]) -> list[set[_Item]]:
    """What is known of each variable, with all that flows bring from others."""
    changed = True
    while changed:
        changed = False
        for variable, sources in flows:
            new = set[_Item]().union(*(known[name] for name in sources)) - known[variable]
            known[variable] |= new
            changed |= bool(new)
    return known


def _is_density(name: str) -> bool:
    return _DENSITY.fullmatch(name) is not None


class _Annotations:
    """The comments `// stanct: prior` and `// stanct: likelihood`, by line."""

    def __init__(self, program: Program) -> None:
        self._syntax = program.syntax
        self._text = program.expanded
        self._by_line: dict[int, tuple[int, str]] = {}
        self._used: set[int] = set()
        behind = 0
        for start, end in [
            *((t.start, t.end) for t in self._syntax.tokens),
            (len(self._text),) * 2,
        ]:
            for match in _ANNOTATION.finditer(self._text, behind, start):
                part = match.group("part").strip()
                if part not in PARTS:
                    raise self._syntax.source.error(
                        match.start(),
                        f"`{part}` is no part of a model.",
                        "Write `// stanct: prior` or `// stanct: likelihood`.",
                    )
                self._by_line[self._line(match.start())] = match.start(), part
            behind = end

    def _line(self, offset: int) -> int:
        return self._text.rfind("\n", 0, offset)

    def part(self, tokens: Range, heads: Sequence[int]) -> str | None:
        """Return the annotation on a statement's line, or on the head of an enclosing one."""
        last = self._line(self._syntax.tokens[tokens.stop - 1].start)
        lines = [last, self._line(self._syntax.start(tokens.first))]
        lines += [self._line(self._syntax.start(head)) for head in reversed(heads)]
        said = [line for line in lines if line in self._by_line]
        self._used.update(said)
        return self._by_line[said[0]][1] if said else None

    def finish(self) -> None:
        """Raise an error if an annotation belongs to no statement."""
        for line, (offset, _) in self._by_line.items():
            if line not in self._used:
                raise self._syntax.source.error(
                    offset,
                    "This annotation belongs to no statement that adds to the target.",
                    "Put it at the end of the statement's line, or behind the `{` of a loop.",
                )
