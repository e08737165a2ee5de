"""The densities that a model adds to its target, and the parameters that flow into each.

The analysis ignores the order of statements and scopes: a variable flows into every variable
that is assigned from it anywhere. The resulting dependencies are therefore a superset of the true
ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stanct.stan.accumulators import accumulators
from stanct.stan.nodes import (
    Assign,
    Compound,
    Declare,
    Function,
    Increment,
    Range,
    Statement,
    Tilde,
)
from stanct.stan.program import Program
from stanct.stan.shapes import Scope, Shapes
from stanct.stan.syntax import Syntax, walk, walk_within
from stanct.stan.walks import terms_of_sum

DENSITY = re.compile(r"(?P<family>\w+?)_lu?(?P<of>p[dm]f)")
PROBABILITY = re.compile(r"(?P<family>\w+?)_l?c?cdf")
_ELEMENT = re.compile(r"(?P<name>\w+)(\[[\d, ]+\])?")
_SIZES = frozenset({"size", "num_elements", "rows", "cols"})
_BLOCKS = ("transformed parameters", "model")
# Functions that put elements together, or take some.
_TOGETHER_NAMES = """
    to_vector to_row_vector to_matrix to_array_1d to_array_2d append_row append_col append_array
    head tail segment row col sub_row sub_col block diagonal reverse
"""
_TOGETHER = frozenset(_TOGETHER_NAMES.split())
_OPERATORS = frozenset({"+", "-", "*", "/", "^", ".*", "./", ".^", "%"})


@dataclass(frozen=True, slots=True)
class Density:
    """A density of a variate: a `~` statement, or a call of an `_lpdf` or `_lpmf` function.

    `added` says whether each execution of the statement adds exactly this density to the target,
    and `alone` whether it is the whole of its statement, or a term of the statement's sum. `inside`
    has the compound statements around it, outermost first.
    """

    statement: Statement
    family: str
    variate: Range
    arguments: tuple[Range, ...]
    added: bool
    alone: bool
    inside: tuple[Compound, ...]
    scope: Scope


class Densities:
    """All densities of one program, and the data flow between its variables.

    Attributes
    ----------
    found
        The densities, in the order of the text.
    renamed
        Variables that are a parameter, or an element of one, by another name, with its name.
    adders
        Functions of the user's that call a density or add to the target, even indirectly.
    sums
        Variables that collect terms of the target, as `target` does. See `accumulators`.
    increments, jacobians
        Increments of the target or of its sums that depend on parameters but contain no density,
        and increments of the log Jacobian.
    in_variates, used, in_bounds
        Parameters that flow into the variate of some density, that influence the target in any way,
        and on which the bounds or sizes of parameters depend.
    by_hand
        Parameters that flow into the target outside of every known density, so that their priors
        cannot be determined.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.syntax = program, program.syntax
        self.shapes = Shapes(program.syntax)
        self.parameters = frozenset(program.parameter_names)
        self._functions = program.functions
        self.adders = program.calling(self._adds)
        self._closures: dict[str, frozenset[str]] = {}
        every = program.statements(*(program.blocks.keys() - {"functions"}))
        self._variables = frozenset[str]().union(*map(self.syntax.declared, every))
        self._flows: dict[str, set[str]] = {}
        for block in ("transformed data", *_BLOCKS):
            self._flow(self.syntax.statements(block), set())
        # Parameters and their elements by another name, and variables that are more than that.
        self.renamed = dict(self._renamed())
        self._made = frozenset(name for name, _ in self.assigned) - self.renamed.keys()
        self.sums = accumulators(program)
        # Variables to which the log of a density is assigned, directly or through another variable.
        self._holders: set[str] = set()
        self._find_holders()
        self.found: list[Density] = []
        self.increments: list[Increment | Assign] = []
        self.jacobians: list[Increment] = []
        self.in_variates: set[str] = set()
        self.by_hand: set[str] = set()
        self.used: set[str] = set()
        self.in_bounds: set[str] = set()
        for spec in program.parameter_types.values():
            bounds = (b for name, b in spec.constraints.items() if name in ("lower", "upper"))
            for bound in (*bounds, *spec.dims, *spec.array):
                self.in_bounds |= self.names(bound) & self.parameters
            for value in spec.constraints.values():
                self.used |= self.names(value) & self.parameters
        self.used |= self.in_bounds
        for block in _BLOCKS:
            self._read(self.syntax.statements(block))

    # Names

    def names(self, tokens: Range) -> set[str]:
        """Return the variables that are named in a range of tokens."""
        return self._names_outside(tokens, lambda _: False)

    def names_past_sizes(self, tokens: Range) -> set[str]:
        """Return the variables that are named outside of calls that ask for a size."""
        return self._names_outside(tokens, _SIZES.__contains__)

    def _names_outside(self, tokens: Range, is_left_out: Callable[[str], bool]) -> set[str]:
        """Return the variables that are named outside of calls of some functions."""
        syntax, calls = self.syntax, self.syntax.calls(tokens, is_left_out)
        inside = {token for call in calls for token in range(*syntax.inside(call + 1))}
        return {
            syntax.word(token)
            for token in range(*tokens)
            if token not in inside
            and syntax.tokens[token].kind == "name"
            and syntax.word(token) in self._variables
            and syntax.word(token + 1) != "("
        }

    def roots(self, names: Iterable[str]) -> set[str]:
        """Return the parameters on whose values the named variables depend."""
        return self._reached(names) & self.parameters

    def roots_in(self, *expressions: Range) -> set[str]:
        """Return the parameters on whose values expressions depend."""
        return self.roots(set[str]().union(*map(self.names, expressions)))

    def is_made(self, tokens: Range) -> bool:
        """Return whether an expression is made of parameters alone, and not only put together."""
        names = self.names(tokens)
        if not names or self._reached(names) & set(self.program.data_names):
            return False
        calls = {name for name, _ in self.calls(tokens)} - _TOGETHER
        words = {self.syntax.word(token) for token in self.syntax.outermost(tokens)}
        return bool(calls or words & _OPERATORS or names & self._made)

    def surrounded(self) -> Iterator[tuple[Statement, tuple[Compound, ...]]]:
        """Yield the statements that make the target, with those around each, outermost first."""
        for block in _BLOCKS:
            yield from walk_within(self.syntax.statements(block))

    def decided_by(self, inside: Iterable[Compound]) -> set[str]:
        """Return the parameters that decide whether a statement runs; none if data do so, too.

        Whether a number is none is a question about digits.
        """
        inside = [*inside]
        heads = [head for one in inside if one.word != "for" for head in one.heads]
        counters = {self.syntax.loop_variable(one) for one in inside if one.word == "for"}
        names = set[str]().union(*map(self.names_past_sizes, heads)) - counters
        reached = self._reached(names)
        digits = any(name.startswith("is_") for head in heads for name, _ in self.calls(head))
        observed = bool(reached & set(self.program.data_names))
        return set() if digits or observed else reached & self.parameters

    def perhaps_observed(self) -> set[str]:
        """Return the data that may be observations: all but those that no variate depends on.

        What flows into the target past known densities may be observed, too.
        """
        ranges = [density.variate for density in self.found]
        outside: set[str] = set()
        for statement in self.program.statements(*_BLOCKS):
            if isinstance(statement, Increment | Assign) and self.sum_of(statement):
                outside |= self._outside_densities(statement.value)
            for name, arguments in self.calls(statement.tokens):
                own = not DENSITY.fullmatch(name) and name in self._functions
                ranges += [arguments] * (own or name.startswith(("reduce_sum", "hmm_")))
        for density in self.found:
            ranges += density.arguments if self.program.defines(density.family) else ()
        reached = self._reached(outside.union(*map(self.names, ranges)))
        return reached & set(self.program.data_names)

    def _reached(self, names: Iterable[str]) -> set[str]:
        return set[str]().union(*map(self._closure, names))

    def _closure(self, name: str) -> frozenset[str]:
        if name not in self._closures:
            reached, new = {name}, {name}
            while new:
                new = set[str]().union(*(self._flows.get(one, ()) for one in new)) - reached
                reached |= new
            self._closures[name] = frozenset(reached)
        return self._closures[name]

    def _flow(self, statements: Iterable[Statement], conditions: set[str]) -> None:
        for statement in statements:
            for name, value in self.syntax.assigned(statement):
                left = statement.left if isinstance(statement, Assign) else Range(0, 0)
                self._add(name, self.names(left) | self.names(value) | conditions)
            if isinstance(statement, Compound):
                under = set(conditions)
                for head in statement.heads:
                    if statement.word == "for":
                        over = self.names(Range(head.first + 1, head.stop))
                        self._add(self.syntax.word(head.first), over | conditions)
                    else:
                        under |= self.names(head)
                self._flow(statement.body, under)

    def _add(self, name: str, sources: set[str]) -> None:
        self._flows.setdefault(name, set()).update(sources)

    # Densities

    def sum_of(self, statement: Statement) -> str:
        """Return the sum that a statement adds to: `target`, one of `sums`, or an empty string."""
        if isinstance(statement, Increment):
            return statement.accumulator
        assigned = self.syntax.assigned(statement)
        name = assigned[0][0] if len(assigned) == 1 else ""
        return name if name in self.sums else ""

    def value_of_sum(self, statement: Statement) -> Range | None:
        """Return what a statement adds to the target or to one of its sums; None for no such."""
        if self.sum_of(statement) in ("", "jacobian"):
            return None
        if isinstance(statement, Declare):
            return statement.names[0][1]
        assert isinstance(statement, Increment | Assign)
        return statement.value

    def calls(self, tokens: Range) -> Iterator[tuple[str, Range]]:
        """Yield the name and arguments of every function call in a range, outer before inner."""
        for token in range(*tokens):
            is_name = self.syntax.tokens[token].kind == "name"
            if is_name and self.syntax.word(token + 1) == "(" and token + 1 < tokens.stop:
                arguments = self.syntax.inside(token + 1)
                yield self.syntax.word(token), arguments

    def has_density(self, tokens: Range) -> bool:
        """Return whether an expression contains the log of a density or of a probability."""
        for name, arguments in self.calls(tokens):
            if is_log_density(name) or name == "target" or name in self.adders:
                return True
            if name.startswith("reduce_sum") or name.startswith("hmm_"):
                return True
            first = next(iter(self.syntax.split(arguments)), arguments)
            if self.syntax.word(first.first) in self._functions:
                return True  # a function that takes a user-defined function
        return bool(self.names(tokens) & self._holders)

    def _adds(self, function: Function) -> bool:
        """Return whether a function calls a density or adds to the target by itself."""
        called = [name for name, _ in self.calls(function.body.tokens)]
        return (
            self.syntax.word(function.name).endswith("_lp")
            or any(isinstance(inner, Tilde | Increment) for inner in walk([function.body]))
            or any(map(is_log_density, called))
        )

    def _renamed(self) -> Iterator[tuple[str, str]]:
        """Yield the variables that are a parameter, or an element of one, with its name."""
        names = [name for name, _ in self.assigned]
        for name, value in self.assigned:
            match = _ELEMENT.fullmatch(one_line(self.syntax, value))
            if match and match["name"] in self.parameters and names.count(name) == 1:
                yield name, match["name"]

    def _find_holders(self) -> None:
        assigned = self.assigned
        before = -1
        while before < len(self._holders):
            before = len(self._holders)
            self._holders.update(name for name, value in assigned if self.has_density(value))

    @property
    def assigned(self) -> list[tuple[str, Range]]:
        """Every variable that is assigned, whole or in part, with the value."""
        return [
            pair
            for statement in self.program.statements(*_BLOCKS)
            for pair in self.syntax.assigned(statement)
        ]

    def _read(self, statements: Sequence[Statement]) -> None:
        seen = self.shapes.walk(statements, self.shapes.globals())
        for (statement, scope), (_, inside) in zip(seen, walk_within(statements), strict=True):
            read = [statement.tokens]
            if isinstance(statement, Increment) and statement.accumulator != "target":
                self.jacobians.append(statement)
                continue
            if isinstance(statement, Compound):
                read = statement.heads
            elif isinstance(statement, Tilde):
                variate, arguments = statement.variate, tuple(statement.arguments)
                family, added = statement.distribution, not statement.truncated
                self._density(
                    Density(statement, family, variate, arguments, added, True, inside, scope)
                )
            elif isinstance(statement, Increment) or (
                isinstance(statement, Assign) and self.sum_of(statement)
            ):
                read = [statement.value]
                self._increment(statement, inside, scope)
            elif isinstance(statement, Assign | Declare):
                self._opaque_calls(statement.tokens)
                self._assignment(statement, inside, scope)
                continue
            for tokens in read:
                self.used |= self.roots_in(tokens)
                self._opaque_calls(tokens)

    def _assignment(
        self, statement: Assign | Declare, inside: tuple[Compound, ...], scope: Scope
    ) -> None:
        if isinstance(statement, Declare) and statement.type.constraints:
            # Stan rejects where a transformed parameter breaks its constraint.
            self.used |= self.roots(self.syntax.declared(statement))
        for name, value in self.syntax.assigned(statement):
            self._calls_of_densities(statement, value, inside, scope)
            if name in self._holders:
                self.by_hand |= self._past_densities(value)

    def _increment(
        self, statement: Increment | Assign, inside: tuple[Compound, ...], scope: Scope
    ) -> None:
        value = statement.value
        self._calls_of_densities(statement, value, inside, scope)
        self.by_hand |= self._past_densities(value)
        names = self.names_past_sizes(value) - self.sums
        if self.roots(names) and not self.has_density(value):
            self.increments.append(statement)

    def _calls_of_densities(
        self,
        statement: Statement,
        value: Range,
        inside: tuple[Compound, ...],
        scope: Scope,
    ) -> None:
        """Record every density in an expression."""
        terms = terms_of_sum(self.syntax, value)
        firsts = {term.first for term, negative in terms if not negative}
        ends = {term.stop for term, _ in terms}
        for name, arguments in self.calls(value):
            match = DENSITY.fullmatch(name)
            if match is None:
                continue
            variate, others = self.syntax.conditioned(arguments)
            alone = arguments.first - 2 in firsts and arguments.stop + 1 in ends
            added, family = alone and bool(self.sum_of(statement)), match["family"]
            self._density(
                Density(statement, family, variate, tuple(others), added, alone, inside, scope)
            )

    def _density(self, density: Density) -> None:
        self.found.append(density)
        self.in_variates |= self.roots_in(density.variate)
        for function in (
            *self._functions.get(f"{density.family}_lpdf", ()),
            *self._functions.get(f"{density.family}_lpmf", ()),
        ):
            if not self._is_density_of_first(function):
                self.by_hand |= self.roots_in(*density.arguments)

    def _is_density_of_first(self, function: Function) -> bool:
        """Return whether the densities in a user-defined density are of its first argument only."""
        others = {self.syntax.word(token) for _, token in function.arguments[1:]}
        called = {name for name, _ in self.calls(function.body.tokens)}
        if any(name in self.adders and not DENSITY.fullmatch(name) for name in called):
            return False
        return not others & self.program.variates_in(
            function, lambda name: DENSITY.fullmatch(name) is not None
        )

    def _opaque_calls(self, tokens: Range) -> None:
        """Mark the parameters passed to user-defined functions that may contain a prior."""
        for name, arguments in self.calls(tokens):
            if not is_log_density(name) and name in self.adders:
                self.by_hand |= self.roots_in(arguments)
                self.used |= self.by_hand

    def _past_densities(self, value: Range) -> set[str]:
        """Return the parameters that enter an expression outside of the densities that it calls."""
        # Variables that hold densities are analysed where they are assigned.
        return self.roots(self._outside_densities(value) - self._holders - self.sums)

    def _outside_densities(self, value: Range) -> set[str]:
        """Return the variables that an expression names outside of densities and sizes."""
        return self._names_outside(value, lambda name: name in _SIZES or is_log_density(name))


def is_log_density(name: str) -> bool:
    """Return whether a function's name is that of the log of a density or of a probability."""
    return bool(DENSITY.fullmatch(name) or PROBABILITY.fullmatch(name))


def one_line(syntax: Syntax, tokens: Range) -> str:
    """Return a range of a program's tokens on one line, without comments."""
    parts: list[str] = []
    for token in range(*tokens):
        before = syntax.tokens[token - 1]
        apart = token > tokens.first and before.end < syntax.tokens[token].start
        parts.append(f"{' ' * apart}{syntax.word(token)}")
    return "".join(parts)
