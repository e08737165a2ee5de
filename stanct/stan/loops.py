"""Vectorised sums of the terms that a model's loops add to the target.

A sum that grows by one term per iteration is slow to differentiate, because the expression graph
has one node per term. It is slower still if the program then multiplies the sum by β. Therefore

    for (n in 1 : N) y[n] ~ normal(a[group[n]], sigma);

becomes `normal_lpdf(y | a[group], sigma)`. Arguments that cannot be written in this form are stored
in vectors while the loop runs. With `sums`, so is any other scalar, such as a mixture, and its sum
follows the loop. Terms that cannot leave their loop stay in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from stanct.stan.constraints import minus, times
from stanct.stan.lifting import LiftableTerm, ModelLoops
from stanct.stan.nodes import Compound, Increment, Range, Statement, Tilde
from stanct.stan.rewrite import Edit, Rewriter, apply
from stanct.stan.syntax import walk

_COMMENT = re.compile(r"[ \t]*//[^\n]*")


@dataclass(slots=True)
class _Lines:
    """New lines before and after a loop, and at the start of its body."""

    before: list[str] = field(default_factory=list[str])
    first: list[str] = field(default_factory=list[str])
    behind: list[str] = field(default_factory=list[str])


class LoopSums:
    """Redirects the terms of the model block, and moves them out of its loops."""

    def __init__(self, rewriter: Rewriter, *, sums: bool = False) -> None:
        self._rewriter, self._prefix = rewriter, rewriter.prefix
        self._syntax = rewriter.program.syntax
        self._loops = ModelLoops(rewriter, sums=sums)
        self._lines: dict[int, _Lines] = {}
        self._in_place: dict[int, list[str]] = {}
        self._counters: dict[tuple[int, ...], str] = {}
        self._count = 0

    def write(self, accumulator: str, only: Sequence[Statement] | None = None) -> None:
        """Let terms go to `accumulator`; with `only`, edit these statements of the model alone."""
        for term in self._loops.terms:
            self._lift(term, f"{accumulator} += ")
        for statement in self._loops.statements if only is None else only:
            self._write(statement, accumulator)

    # Terms that leave their loops

    def _lift(self, term: LiftableTerm, head: str) -> None:
        """Record the lines that compute a density after its loops instead of inside them."""
        changed = self._loops.changed(term.nest[0])
        texts: list[str] = []
        kept: list[str] = []
        for argument in term.arguments:
            text = self._rewriter.expression(argument)
            if self._loops.names(argument) & changed:
                whole = self._loops.whole(argument, term)
                if whole is None:
                    whole, line = self._keep(argument, term)
                    kept.append(line)
                text = whole
            texts.append(text)
        self._in_place[id(term.statement)] = kept
        function = self._with_constants(term, texts)
        behind = f" | {', '.join(texts[1:])}" if texts[1:] else ""
        line = f"{head}{function}({texts[0]}{behind});"
        if self._may_be_impossible(term):
            runs = [test for test in map(self._loops.runs, term.nest) if test]
            line = f"if ({' && '.join(runs)}) {line}" if runs else line
            # An `else` after the loop belongs to a branch around it.
            if runs and self._syntax.word(term.nest[0].tokens.stop) == "else":
                line = f"{{ {line} }}"
        self._around(term.nest[0]).behind.append(line)

    def _may_be_impossible(self, term: LiftableTerm) -> bool:
        """Return whether data that loops without iterations would not use are used behind them.

        Stan checks arguments even where another one has no elements.
        """
        changed = self._loops.changed(term.nest[0])
        return any(
            names and names <= self._loops.data and not names & changed
            for names in map(self._loops.names, term.arguments)
        )

    def _with_constants(self, term: LiftableTerm, texts: list[str]) -> str:
        """Return the function that a term calls, and append the argument that stanct's needs."""
        counts, scope = self._rewriter.counts, self._loops.seen[id(term.statement)]
        shape = self._rewriter.shapes.shape(term.arguments[-1], scope)
        spec = scope.get(texts[-1].split("[")[0])
        is_kept = spec is None and texts[-1].startswith(f"{self._prefix}each")
        is_vector = is_kept or (spec is not None and spec.base == "vector" and not spec.array)
        if counts is None or not is_vector or shape is None or shape.integer:
            return term.function
        known = counts.last_argument(term.function, texts, term.nest[0])
        if known is None:
            return term.function
        texts.append(known)
        return self._rewriter.ours(term.function)

    def _keep(self, argument: Range, term: LiftableTerm) -> tuple[str, str]:
        """Store a value of each iteration. Return the container's name and the assignment."""
        self._count += 1
        name = f"{self._prefix}each{self._count}"
        lengths = [self._loops.length(loop) for loop in term.nest]
        size = times(*lengths) if len(lengths) > 1 else lengths[0]
        shape = self._rewriter.shapes.shape(argument, self._loops.seen[id(term.statement)])
        is_array = term.is_discrete and shape is not None and shape.integer
        kind = f"array[{size}] int" if is_array else f"vector[{size}]"
        self._declare(term.nest[0], f"{kind} {name}; // a value of each iteration")
        head = f"{name}[{self._turn(term.nest)}] = "
        return name, f"{self._aligned(head, argument, term.statement)};"

    def _aligned(self, head: str, argument: Range, statement: Statement) -> str:
        """Put an expression of a statement behind `head`; its further lines move as the first."""
        start, at = (self._syntax.start(t) for t in (statement.tokens.first, argument.first))
        first, *rest = self._rewriter.expression(argument).split("\n")
        moved = len(head) - (at - start)
        if "\n" not in self._rewriter.program.expanded[start:at]:
            rest = [" " * (len(line) - len(line.lstrip()) + moved) + line.lstrip() for line in rest]
        return "\n".join([head + first, *rest])

    def _turn(self, nest: Sequence[Compound]) -> str:
        """Return the number of the iteration, which is a counter for nested loops."""
        if len(nest) == 1:
            return minus(self._syntax.loop_variable(nest[0]), self._loops.offset(nest[0]))
        key = tuple(id(loop) for loop in nest)
        if key not in self._counters:
            self._counters[key] = f"{self._prefix}turn{len(self._counters) + 1}"
            self._declare(nest[0], f"int {self._counters[key]} = 0; // iterations begun")
            self._around(nest[-1]).first.append(f"{self._counters[key]} += 1;")
        return self._counters[key]

    def _declare(self, loop: Compound, line: str) -> None:
        """Declare a variable before a loop."""
        self._around(loop).before.append(line)
        self._rewriter.declares = True

    def _around(self, loop: Compound) -> _Lines:
        return self._lines.setdefault(id(loop), _Lines())

    # Edits

    def _write(self, statement: Statement, accumulator: str) -> None:
        """Edit a statement and all its parts.

        Lines of outer loops come first before a statement and last after it.
        """
        scope, rewriter = self._loops.seen[id(statement)], self._rewriter
        if id(statement) in self._in_place:
            self._replace(statement, self._in_place[id(statement)])
        elif isinstance(statement, Tilde):
            rewriter.tilde(statement, scope, accumulator)
        elif isinstance(statement, Increment):
            rewriter.redirect(statement, scope, accumulator)
        elif isinstance(statement, Compound):
            lines = self._lines.get(id(statement))
            if lines and self._is_emptied(statement):
                self._replace(statement, lines.behind)
                return
            tail = self._open(statement, lines) if lines else ""
            for inner in statement.body:
                self._write(inner, accumulator)
            if lines:
                self._close(statement, lines, tail)

    def _is_emptied(self, loop: Compound) -> bool:
        """Return whether nothing is left in a loop, not even a comment."""
        rewriter, path = self._rewriter, self._loops.path[id(loop)]
        # What stands behind a statement on its line goes with it.
        removals = [
            rewriter.removal(inner)
            for inner in walk(loop.body)
            if self._in_place.get(id(inner)) == []
        ]
        text = apply(rewriter.program.expanded, removals, *self._syntax.span(loop.tokens))
        return (
            "//" not in text
            and "/*" not in text
            and all(
                (self._in_place.get(id(inner)) == [] and self._loops.outside(inner) == path)
                or (isinstance(inner, Compound) and inner.word in ("block", "for"))
                for inner in walk(loop.body)
            )
        )

    def _replace(self, statement: Statement, lines: list[str]) -> None:
        rewriter = self._rewriter
        if not lines:
            rewriter.edits.append(rewriter.removal(statement))
            return
        start, end = self._syntax.span(statement.tokens)
        lead, indent, tail = (
            rewriter.room(statement, rewriter.edits)
            if len(lines) > 1
            else ("", rewriter.indent(start), "")
        )
        text = f"\n{indent}".join(lines)
        rewriter.edits.append(Edit(start, end, f"{lead}{text}{tail}"))

    def _open(self, loop: Compound, lines: _Lines) -> str:
        """Write the lines before a loop and at the start of its body. Return the closing text."""
        rewriter, edits = self._rewriter, self._rewriter.edits
        start = self._syntax.start(loop.tokens.first)
        lead, indent, tail = rewriter.room(loop, edits)
        before = "".join(f"{line}\n{indent}" for line in lines.before)
        edits.append(Edit(start, start, lead + before))
        if lines.first:
            inner = "".join(f"\n{indent}  {line}" for line in lines.first)
            opening = self._syntax.tokens[loop.heads[0].stop]
            body = self._syntax.tokens[loop.body[0].tokens.first]
            if self._is_block(loop.body[0]):
                edits.append(Edit(body.end, body.end, inner))
            else:
                rewriter.braced.add(loop.body[0].tokens.first)
                between = self._rewriter.program.expanded[opening.end : body.start]
                if "\n" in between:
                    edits.append(Edit(opening.end, opening.end, f" {{{inner}"))
                else:
                    edits.append(Edit(opening.end, body.start, f" {{{inner}\n{indent}  "))
        return tail

    def _close(self, loop: Compound, lines: _Lines, tail: str) -> None:
        edits = self._rewriter.edits
        end = self._syntax.tokens[loop.tokens.stop - 1].end
        # A comment on a loop's last line belongs to the loop.
        comment = _COMMENT.match(self._rewriter.program.expanded, end)
        end = comment.end() if comment else end
        indent = self._rewriter.indent(self._syntax.start(loop.tokens.first))
        if lines.first and not self._is_block(loop.body[0]):
            edits.append(Edit(end, end, f"\n{indent}}}"))
        behind = "".join(f"\n{indent}{line}" for line in lines.behind)
        edits.append(Edit(end, end, behind + tail))

    def _is_block(self, statement: Statement) -> bool:
        return isinstance(statement, Compound) and statement.word == "block"
