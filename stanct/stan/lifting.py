"""Terms that can be moved out of the loops of a model, and the lengths of these loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from stanct.stan.constraints import minus
from stanct.stan.distributions import SUFFIX
from stanct.stan.nodes import Assign, Compound, Declare, Increment, Range, Simple, Statement, Tilde
from stanct.stan.rewrite import Rewriter
from stanct.stan.syntax import walk, walk_within

# Operators that do not bind more tightly than a comparison.
_COMPARES = re.compile(r"[?<>=!&|]")
_ENDINGS = ("_lpdf", "_lpmf", "_lcdf", "_lccdf")
# Stan has no form of these for a vector of scalars.
_SINGLE = frozenset({"hypergeometric", "wiener"})


@dataclass(frozen=True, slots=True)
class LiftableTerm:
    """A term that can be moved out of its loops, outermost first.

    It is a density of scalars, whose arguments begin with the variate, or the sum of a scalar.
    """

    statement: Statement
    nest: tuple[Compound, ...]
    function: str
    arguments: tuple[Range, ...]
    is_discrete: bool


class ModelLoops:
    """Analysis of the loops of a model block. It makes no edits.

    `data` has the names of data and transformed data. `seen` and `path` have, by the `id` of a
    statement, the variables that it sees and the compound statements around it, outermost first.
    `terms` are what can leave its loops: densities, and with `sums` all scalars.
    """

    def __init__(self, rewriter: Rewriter, *, sums: bool = False) -> None:
        self._rewriter, self._syntax = rewriter, rewriter.program.syntax
        self.statements = self._syntax.statements("model")
        shapes = rewriter.shapes
        self._globals = set(shapes.globals())
        self.data = rewriter.program.fixed_names
        self.seen = {
            id(statement): dict(scope)
            for statement, scope in shapes.walk(self.statements, shapes.globals())
        }
        self.path = {id(one): inside for one, inside in walk_within(self.statements)}
        self._sums = sums
        self.terms = [
            term for statement in walk(self.statements) for term in self._liftable(statement)
        ]
        self._outermost = {id(term.statement): term.nest[0] for term in self.terms}

    def outside(self, statement: Statement) -> tuple[Compound, ...]:
        """Return the compound statements around the place where a term is added to the target."""
        return self.path[id(self._outermost.get(id(statement), statement))]

    def _liftable(self, statement: Statement) -> Iterator[LiftableTerm]:
        """Yield a term with all loops that it can leave, if there are any."""
        loops: list[Compound] = []
        for compound in reversed(self.path[id(statement)]):
            if compound.word == "for":
                loops.insert(0, compound)
            elif compound.word != "block":
                break
        call = self._call(statement) if loops else None
        if call is not None and self._is_of_scalars(statement, *call):
            function, name, arguments = call
            is_discrete = SUFFIX[name] == "_lpmf"
        elif loops and self._is_sum(statement):
            function, arguments, is_discrete = "sum", (statement.value,), False
        else:
            return
        for first in range(len(loops)):
            nest = tuple(loops[first:])
            if is_discrete and not self._is_fixed(nest):
                continue
            if self._is_plain(nest) and self._varies(arguments, nest):
                yield LiftableTerm(statement, nest, function, arguments, is_discrete)
                return

    def _call(self, statement: Statement) -> tuple[str, str, tuple[Range, ...]] | None:
        """Return the function that a statement adds, its distribution, and its arguments."""
        syntax = self._syntax
        if isinstance(statement, Tilde) and not statement.truncated:
            name = statement.distribution
            arguments = (statement.variate, *statement.arguments)
            return name + SUFFIX.get(name, ""), name, arguments
        if isinstance(statement, Increment) and statement.accumulator == "target":
            first = statement.value.first
            function = self._rewriter.expression(Range(first, first + 1))
            name = next((function.removesuffix(e) for e in _ENDINGS if function.endswith(e)), "")
            if name and (inside := syntax.call(statement.value)) is not None:
                return function, name, tuple(syntax.arguments(inside))
        return None

    def _is_sum(self, statement: Statement) -> TypeGuard[Increment]:
        """Return whether a statement adds a scalar to the target, and such terms are wanted."""
        if not (self._sums and isinstance(statement, Increment)):
            return False
        shape = self._rewriter.shapes.shape(statement.value, self.seen[id(statement)])
        return statement.accumulator == "target" and shape is not None and shape.rank == 0

    def _is_of_scalars(
        self, statement: Statement, function: str, name: str, arguments: tuple[Range, ...]
    ) -> bool:
        """Return whether a call is a Stan density of scalars, or a mass function of integers."""
        if name not in SUFFIX or name in _SINGLE or self._rewriter.program.defines(name):
            return False
        scope = self.seen[id(statement)]
        shapes = [self._rewriter.shapes.shape(argument, scope) for argument in arguments]
        if not shapes or any(shape is None or shape.rank > 0 for shape in shapes):
            return False
        return SUFFIX[name] == "_lpdf" or (shapes[0] is not None and bool(shapes[0].integer))

    def _is_plain(self, nest: Sequence[Compound]) -> bool:
        """Return whether loops run over ranges that are known when the first one begins."""
        changed = self.changed(nest[0])
        for loop in nest:
            bounds = self._syntax.loop_ends(loop)
            if len(bounds) != 2 or self.leaves_early(loop):
                return False
            if loop is not nest[0] and any(self.names(bound) & changed for bound in bounds):
                return False
        return True

    def _is_fixed(self, nest: Sequence[Compound]) -> bool:
        """Return whether the data alone determine the lengths of loops.

        Otherwise the embedded engine does not recognise that an array of integers holds data.
        """
        bounds = [bound for loop in nest for bound in self._syntax.loop_ends(loop)]
        return all(self.names(bound) <= self._globals for bound in bounds)

    def _varies(self, arguments: Sequence[Range], nest: Sequence[Compound]) -> bool:
        changed = self.changed(nest[0])
        return any(self.names(argument) & changed for argument in arguments)

    def leaves_early(self, loop: Compound) -> bool:
        """Return whether an iteration of a loop may end early."""
        return any(
            isinstance(inner, Simple) and inner.word in ("break", "continue", "return")
            for inner in walk(loop.body)
        )

    def names(self, tokens: Range) -> set[str]:
        """Return the names in an expression."""
        return set(self._syntax.names(tokens))

    def changed(self, loop: Compound) -> set[str]:
        """Return every name that a loop assigns, including its own variable."""
        changed = {self._syntax.loop_variable(loop)}
        for inner in walk(loop.body):
            changed |= self._syntax.declared(inner)
            if isinstance(inner, Assign):
                changed |= self.names(inner.left)
        return changed

    def whole(self, argument: Range, term: LiftableTerm) -> str | None:
        """Return `y` for `y[n]`, or `a[group]` for `a[group[n]]`, if `n` runs over all elements."""
        loop, statement = term.nest[0], term.statement
        name, index = self._syntax.word(argument.first), self._syntax.index(argument)
        if len(term.nest) > 1 or index is None:
            return None
        spec = self.seen[id(statement)].get(name)
        if spec is None or spec.rank != 1 or spec.base == "tuple":
            return None
        if not index.is_one:
            if name in self.changed(loop):
                return None
            inner = self.whole(index, term)
            return None if inner is None else f"{name}[{inner}]"
        size = (spec.array or spec.dims or (None,))[0]
        upper = self._syntax.loop_ends(loop)[1]
        is_whole = (
            self._syntax.word(index.first) == self._syntax.loop_variable(loop)
            and self.offset(loop) == "0"
            and size is not None
            and self._syntax.text(size) == self.bound(upper)
            and self.names(size) <= self._globals
        )
        return name if is_whole and self._is_settled(name, loop, statement) else None

    def _is_settled(self, name: str, loop: Compound, statement: Statement) -> bool:
        """Return whether a container has its final values where a statement reads them.

        Each iteration then assigns at most its own element, before the statement.
        """
        own = [name, "[", self._syntax.loop_variable(loop), "]"]
        for inner in walk(loop.body):
            if isinstance(inner, Declare) and name in self._syntax.declared(inner):
                return False
            if isinstance(inner, Assign) and name in self.names(inner.left):
                late = inner.tokens.first > statement.tokens.first
                if late or self._syntax.words(inner.left) != own:
                    return False
        return True

    def length(self, loop: Compound) -> str:
        """Return the number of iterations of a loop, as a Stan expression."""
        upper, offset = self.bound(self._syntax.loop_ends(loop)[1]), self.offset(loop)
        spec = self.seen[id(loop)].get(upper)
        lowest = spec.constraints.get("lower") if spec else None
        is_size = upper.isdecimal() or (lowest and self._syntax.text(lowest).isdecimal())
        return upper if is_size and offset == "0" else f"max(0, {minus(upper, offset)})"

    def runs(self, loop: Compound) -> str:
        """Return the condition that a loop has iterations; empty if that is sure."""
        lower, upper = map(self.bound, self._syntax.loop_ends(loop))
        least, spec = upper, self.seen[id(loop)].get(upper)
        if spec and "lower" in spec.constraints:
            least = self._syntax.text(spec.constraints["lower"])
        if lower.isdecimal() and least.isdecimal() and int(least) >= int(lower):
            return ""
        sides = [f"({side})" if _COMPARES.search(side) else side for side in (upper, lower)]
        return " >= ".join(sides)

    def offset(self, loop: Compound) -> str:
        """Return the number before the first value of a loop's variable."""
        lower = self.bound(self._syntax.loop_ends(loop)[0])
        if lower.isdecimal() and int(lower) > 0:
            return str(int(lower) - 1)
        before = lower.removesuffix("+ 1").rstrip()
        return before if before != lower and before.isidentifier() else minus(lower, "1")

    def bound(self, bound: Range) -> str:
        """Return a bound without the parentheses around it."""
        return self._rewriter.expression(self._syntax.bare(bound))
