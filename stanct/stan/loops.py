"""What a model's loops add to the target, summed as vectors.

A sum that grows by one term each time round a loop is slow to differentiate, and more so when the
program goes on to multiply it by β: the expression graph has a node a term. So

    for (n in 1 : N) y[n] ~ normal(a[group[n]], sigma);

becomes `normal_lpdf(y | a[group], sigma)`. Arguments that have no such name are kept in vectors
while the loop runs. What cannot leave its loop can be summed there: each time round fills one
element of a vector, which is summed behind the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stanct.stan.constraints import minus, times
from stanct.stan.distributions import SUFFIX
from stanct.stan.rewrite import Edit, Rewriter
from stanct.stan.shapes import Scope
from stanct.stan.syntax import (
    Assign,
    Compound,
    Declare,
    Increment,
    Range,
    Simple,
    Statement,
    Tilde,
    walk,
)

_ENDINGS = ("_lpdf", "_lpmf", "_lcdf", "_lccdf")
# Stan has no form of these for a vector of scalars.
_SINGLE = frozenset({"hypergeometric", "wiener"})
# Times round that need no vector for what they add.
_FEW = 10


@dataclass(frozen=True, slots=True)
class _Term:
    """A density of scalars: the function, and its variate and arguments."""

    function: str
    arguments: tuple[Range, ...]
    is_discrete: bool


@dataclass(slots=True)
class _Lines:
    """New lines around a loop and in its body."""

    before: list[str] = field(default_factory=list[str])
    first: list[str] = field(default_factory=list[str])
    last: list[str] = field(default_factory=list[str])
    behind: list[str] = field(default_factory=list[str])


class LoopSums:
    """Redirects what the model block adds to the target, and takes densities out of its loops.

    Parameters
    ----------
    rewriter
        Receives the edits.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter, self._prefix = rewriter, rewriter.prefix
        self._program = rewriter.program
        self._syntax = rewriter.program.syntax
        block = self._program.blocks.get("model")
        self._statements = block.statements if block else []
        shapes = rewriter.shapes
        self._seen = {
            id(statement): dict(scope)
            for statement, scope in shapes.walk(self._statements, shapes.globals())
        }
        self._path: dict[int, tuple[Compound, ...]] = {}
        self._find_paths(self._statements, ())
        self._lines: dict[int, _Lines] = {}
        self._in_place: dict[int, list[str]] = {}
        self._counters: dict[tuple[int, ...], str] = {}
        self._count = 0
        self._terms = [
            (statement, nest, term)
            for statement in walk(self._statements)
            for nest, term in self._liftable(statement)
        ]
        self._nests = {id(statement): nest for statement, nest, _ in self._terms}

    @property
    def leaves_terms(self) -> bool:
        """Whether loops still add to the target, term by term, when densities have left them."""
        return any(
            compound.word in ("for", "while")
            for statement in walk(self._statements)
            if isinstance(statement, Tilde | Increment)
            for compound in self._outside(statement)
        )

    def write(self, accumulator: str, weight: str = "", *, by_loop: bool = False) -> None:
        """Make the edits.

        Parameters
        ----------
        accumulator
            Where the terms go.
        weight
            Variable by which each is multiplied.
        by_loop
            Whether a loop that keeps terms collects them in a vector of its own.
        """
        sums = self._sums(accumulator) if by_loop else {}
        factor = f"{weight} * " if weight else ""
        for statement, nest, term in self._terms:
            self._lift(statement, nest, term, self._target(nest[0], sums, accumulator), factor)
        for statement in self._statements:
            self._write(statement, sums, accumulator, weight)

    # Which densities can leave their loops

    def _find_paths(self, statements: Sequence[Statement], path: tuple[Compound, ...]) -> None:
        for statement in statements:
            self._path[id(statement)] = path
            if isinstance(statement, Compound):
                self._find_paths(statement.body, (*path, statement))

    def _outside(self, statement: Statement) -> tuple[Compound, ...]:
        """Return what stands around a term where it is added to the target."""
        return self._path[id(self._nests.get(id(statement), [statement])[0])]

    def _liftable(self, statement: Statement) -> Iterator[tuple[list[Compound], _Term]]:
        """Yield the loops that a density of scalars can leave, outermost first; nothing if none."""
        loops: list[Compound] = []
        for compound in reversed(self._path[id(statement)]):
            if compound.word == "for":
                loops.insert(0, compound)
            elif compound.word != "block":
                break
        term = self._term(statement) if loops else None
        if term is None:
            return
        for first in range(len(loops)):
            nest = loops[first:]
            if self._is_plain(nest) and self._varies(term, nest):
                yield nest, term
                return

    def _term(self, statement: Statement) -> _Term | None:
        scope, syntax = self._seen[id(statement)], self._syntax
        if isinstance(statement, Tilde) and not statement.truncated:
            name = statement.distribution
            function = name + SUFFIX.get(name, "")
            arguments = (statement.variate, *statement.arguments)
        elif isinstance(statement, Increment) and statement.accumulator == "target":
            first, stop = statement.value
            function = self._rewriter.expression(Range(first, first + 1))
            name = next((function.removesuffix(e) for e in _ENDINGS if function.endswith(e)), "")
            if syntax.partner.get(first + 1) != stop - 1 or not name:
                return None
            inside = Range(first + 2, stop - 1)
            arguments = tuple(
                part for half in syntax.split(inside, "|") for part in syntax.split(half)
            )
        else:
            return None
        if name not in SUFFIX or name in _SINGLE or self._rewriter.is_users(name):
            return None
        shapes = [self._rewriter.shapes.shape(argument, scope) for argument in arguments]
        if any(shape is None or shape.rank > 0 for shape in shapes):
            return None
        is_discrete = SUFFIX[name] == "_lpmf"
        if is_discrete and (shapes[0] is None or not shapes[0].integer):
            return None
        return _Term(function, arguments, is_discrete)

    def _is_plain(self, nest: Sequence[Compound]) -> bool:
        """Tell whether loops run over ranges that are known when the first one begins."""
        changed = self._changed(nest[0])
        for loop in nest:
            bounds = self._bounds(loop)
            if len(bounds) != 2 or self._leaves_early(loop):
                return False
            if loop is not nest[0] and any(self._names(bound) & changed for bound in bounds):
                return False
        return True

    def _varies(self, term: _Term, nest: Sequence[Compound]) -> bool:
        changed = self._changed(nest[0])
        return any(self._names(argument) & changed for argument in term.arguments)

    def _leaves_early(self, loop: Compound) -> bool:
        return any(
            isinstance(inner, Simple) and inner.word in ("break", "continue", "return")
            for inner in walk(loop.body)
        )

    def _bounds(self, loop: Compound) -> list[Range]:
        """Return the two bounds of a loop over a range; of any other one its container."""
        return self._syntax.split(Range(loop.heads[0].first + 2, loop.heads[0].stop), ":")

    def _variable(self, loop: Compound) -> str:
        return self._syntax.word(loop.heads[0].first)

    def _names(self, tokens: Range) -> set[str]:
        return {
            self._syntax.word(token)
            for token in range(*tokens)
            if self._syntax.tokens[token].kind == "name"
        }

    def _changed(self, loop: Compound) -> set[str]:
        """Return every name to which a loop gives a value, its own variable among them."""
        changed = {self._variable(loop)}
        for inner in walk(loop.body):
            if isinstance(inner, Declare):
                changed |= {self._syntax.word(name) for name, _ in inner.names}
            elif isinstance(inner, Assign):
                changed |= self._names(inner.left)
            elif isinstance(inner, Compound) and inner.word == "for":
                changed.add(self._variable(inner))
        return changed

    # How they leave

    def _lift(
        self, statement: Statement, nest: list[Compound], term: _Term, target: str, factor: str
    ) -> None:
        """Note the lines that compute a density behind its loops instead of in them."""
        scope, changed = self._seen[id(statement)], self._changed(nest[0])
        texts: list[str] = []
        kept: list[str] = []
        for argument in term.arguments:
            text = self._rewriter.expression(argument)
            if self._names(argument) & changed:
                whole = self._whole(argument, nest, scope, statement, changed)
                if whole is None:
                    shape = self._rewriter.shapes.shape(argument, scope)
                    integer = term.is_discrete and shape is not None and shape.integer
                    whole, line = self._keep(text, nest, integer=bool(integer))
                    kept.append(line)
                text = whole
            texts.append(text)
        self._in_place[id(statement)] = kept
        behind = f" | {', '.join(texts[1:])}" if texts[1:] else ""
        line = f"{target} += {factor}{term.function}({texts[0]}{behind});"
        self._around(nest[0]).behind.append(line)

    def _whole(
        self,
        argument: Range,
        nest: list[Compound],
        scope: Scope,
        statement: Statement,
        changed: set[str],
    ) -> str | None:
        """Return `y` for `y[n]`, or `a[group]` for `a[group[n]]`, where `n` runs through them."""
        word, name = self._syntax.word, self._syntax.word(argument.first)
        closing = self._syntax.partner.get(argument.first + 1, -1)
        if len(nest) > 1 or word(argument.first + 1) != "[" or closing != argument.stop - 1:
            return None
        index = Range(argument.first + 2, closing)
        spec = scope.get(name)
        if spec is None or spec.rank != 1 or spec.base == "tuple":
            return None
        if index.stop - index.first > 1:
            if name in changed:
                return None
            inner = self._whole(index, nest, scope, statement, changed)
            return None if inner is None else f"{name}[{inner}]"
        size = (spec.array or spec.dims or (None,))[0]
        upper = self._bounds(nest[0])[1]
        is_whole = (
            word(index.first) == self._variable(nest[0])
            and self._offset(nest[0]) == "0"
            and size is not None
            and self._syntax.text(size) == self._bound(upper)
            and not self._names(size) & changed
        )
        return name if is_whole and self._is_settled(name, nest[0], statement) else None

    def _is_settled(self, name: str, loop: Compound, statement: Statement) -> bool:
        """Tell whether each time round gives a container no value, or its own, before a statement.

        What a density reads there is then what the container holds behind the loop.
        """
        own = [name, "[", self._variable(loop), "]"]
        for inner in walk(loop.body):
            if isinstance(inner, Declare):
                if name in {self._syntax.word(token) for token, _ in inner.names}:
                    return False
            elif isinstance(inner, Assign) and name in self._names(inner.left):
                left = [self._syntax.word(token) for token in range(*inner.left)]
                if left != own or inner.tokens.first > statement.tokens.first:
                    return False
        return True

    def _keep(self, text: str, nest: list[Compound], *, integer: bool) -> tuple[str, str]:
        """Keep a value of each time round; returns the container's name and the assignment."""
        self._count += 1
        name = f"{self._prefix}each{self._count}"
        before = self._around(nest[0]).before
        lengths = [self._length(loop) for loop in nest]
        size = times(*lengths) if len(nest) > 1 else lengths[0]
        before.append(f"array[{size}] int {name};" if integer else f"vector[{size}] {name};")
        return name, f"{name}[{self._turn(nest)}] = {text};"

    def _turn(self, nest: Sequence[Compound]) -> str:
        """Return the number of the time round, a counter where loops stand in one another."""
        if len(nest) == 1:
            return minus(self._variable(nest[0]), self._offset(nest[0]))
        key = tuple(id(loop) for loop in nest)
        if key not in self._counters:
            self._counters[key] = f"{self._prefix}turn{len(self._counters) + 1}"
            self._around(nest[0]).before.append(f"int {self._counters[key]} = 0;")
            self._around(nest[-1]).first.append(f"{self._counters[key]} += 1;")
        return self._counters[key]

    def _length(self, loop: Compound) -> str:
        upper, offset = self._bound(self._bounds(loop)[1]), self._offset(loop)
        spec = self._seen[id(loop)].get(upper)
        lowest = spec.constraints.get("lower") if spec else None
        is_size = upper.isdecimal() or (lowest and self._syntax.text(lowest).isdecimal())
        return upper if is_size and offset == "0" else f"max(0, {minus(upper, offset)})"

    def _offset(self, loop: Compound) -> str:
        """Return the number in front of a loop's first one."""
        lower = self._bound(self._bounds(loop)[0])
        if lower.isdecimal() and int(lower) > 0:
            return str(int(lower) - 1)
        before = lower.removesuffix("+ 1").rstrip()
        return before if before != lower and before.isidentifier() else minus(lower, "1")

    def _bound(self, bound: Range) -> str:
        """Return a bound without the brackets around it."""
        while self._syntax.partner.get(bound.first) == bound.stop - 1:
            bound = Range(bound.first + 1, bound.stop - 1)
        return self._rewriter.expression(bound)

    def _around(self, loop: Compound) -> _Lines:
        return self._lines.setdefault(id(loop), _Lines())

    # What stays in its loop

    def _sums(self, accumulator: str) -> dict[int, str]:
        """Give each loop that keeps terms a vector of sums; returns what its terms go to."""
        summed: list[Compound] = []
        for statement in walk(self._statements):
            if isinstance(statement, Tilde | Increment):
                for loop in self._outside(statement):
                    if loop not in summed and self._is_worth_a_sum(loop):
                        summed.append(loop)
        sums: dict[int, str] = {}
        for number, loop in enumerate(summed, start=1):
            term, terms = f"{self._prefix}term{number}", f"{self._prefix}terms{number}"
            lines = self._around(loop)
            lines.before.append(f"vector[{self._length(loop)}] {terms};")
            lines.first.append(f"real {term} = 0;")
            lines.last.append(f"{terms}[{self._turn([loop])}] = {term};")
            sums[id(loop)] = term
        for loop in summed:
            name = sums[id(loop)].replace("term", "terms")
            target = self._target(loop, sums, accumulator)
            self._around(loop).behind.append(f"{target} += sum({name});")
        return sums

    def _is_worth_a_sum(self, loop: Compound) -> bool:
        bounds = self._bounds(loop) if loop.word == "for" else []
        if len(bounds) != 2 or self._leaves_early(loop):
            return False
        last = self._bound(bounds[1])
        return not (last.isdecimal() and int(last) < _FEW)

    def _target(self, statement: Statement, sums: dict[int, str], accumulator: str) -> str:
        """Return where a statement adds: to the sum of the loop around it that has one."""
        for compound in reversed(self._path[id(statement)]):
            if id(compound) in sums:
                return sums[id(compound)]
        return accumulator

    # Edits

    def _write(
        self, statement: Statement, sums: dict[int, str], accumulator: str, weight: str
    ) -> None:
        """Edit a statement and all in it; outer lines first in front, last behind."""
        rewriter = self._rewriter
        if id(statement) in self._in_place:
            self._replace(statement, self._in_place[id(statement)])
        elif isinstance(statement, Tilde):
            target = self._target(statement, sums, accumulator)
            rewriter.tilde(statement, self._seen[id(statement)], target, weight)
        elif isinstance(statement, Increment):
            target = self._target(statement, sums, accumulator)
            rewriter.redirect(statement, self._seen[id(statement)], target, weight)
        elif isinstance(statement, Compound):
            self._write_compound(statement, sums, accumulator, weight)

    def _write_compound(
        self, statement: Compound, sums: dict[int, str], accumulator: str, weight: str
    ) -> None:
        lines, tail = self._lines.get(id(statement)), ""
        if lines and self._is_emptied(statement):
            self._replace(statement, lines.behind)
            return
        if lines:
            tail = self._open(statement, lines)
        for inner in statement.body:
            self._write(inner, sums, accumulator, weight)
        if lines:
            self._close(statement, lines, tail)

    def _is_emptied(self, loop: Compound) -> bool:
        """Tell whether nothing is left in a loop, not even a comment."""
        text = self._syntax.text(loop.tokens)
        return (
            "//" not in text
            and "/*" not in text
            and all(
                self._in_place.get(id(inner)) == []
                or (isinstance(inner, Compound) and inner.word in ("block", "for"))
                for inner in walk(loop.body)
            )
        )

    def _replace(self, statement: Statement, lines: list[str]) -> None:
        rewriter = self._rewriter
        if not lines:
            rewriter.edits.append(rewriter.removal(statement))
            return
        start = self._syntax.start(statement.tokens.first)
        end = self._syntax.tokens[statement.tokens.stop - 1].end
        lead, indent, tail = (
            rewriter.room(statement, rewriter.edits)
            if len(lines) > 1
            else ("", rewriter.indent(start), "")
        )
        text = f"\n{indent}".join(lines)
        rewriter.edits.append(Edit(start, end, f"{lead}{text}{tail}"))

    def _open(self, loop: Compound, lines: _Lines) -> str:
        """Write what stands in front of a loop and at its body's head; returns what closes it."""
        rewriter, edits = self._rewriter, self._rewriter.edits
        start = self._syntax.start(loop.tokens.first)
        lead, indent, tail = rewriter.room(loop, edits)
        before = "".join(f"{line}\n{indent}" for line in lines.before)
        edits.append(Edit(start, start, lead + before))
        if lines.first or lines.last:
            inner = "".join(f"\n{indent}  {line}" for line in lines.first)
            opening = self._syntax.tokens[loop.heads[0].stop]
            body = self._syntax.tokens[loop.body[0].tokens.first]
            if self._is_block(loop.body[0]):
                edits.append(Edit(body.end, body.end, inner))
            else:
                rewriter.braced.add(loop.body[0].tokens.first)
                between = self._program.expanded[opening.end : body.start]
                if "\n" in between:
                    edits.append(Edit(opening.end, opening.end, f" {{{inner}"))
                else:
                    edits.append(Edit(opening.end, body.start, f" {{{inner}\n{indent}  "))
        return tail

    def _close(self, loop: Compound, lines: _Lines, tail: str) -> None:
        edits = self._rewriter.edits
        end = self._syntax.tokens[loop.tokens.stop - 1].end
        indent = self._rewriter.indent(self._syntax.start(loop.tokens.first))
        last = "".join(f"  {line}\n{indent}" for line in lines.last)
        if self._is_block(loop.body[0]):
            closing = self._syntax.tokens[loop.tokens.stop - 1].start
            edits.append(Edit(closing, closing, last))
        elif lines.first or lines.last:
            edits.append(Edit(end, end, f"\n{indent}{last}}}"))
        behind = "".join(f"\n{indent}{line}" for line in lines.behind)
        edits.append(Edit(end, end, behind + tail))

    def _is_block(self, statement: Statement) -> bool:
        return isinstance(statement, Compound) and statement.word == "block"
