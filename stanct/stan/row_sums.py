"""A program whose sums over rows run in parallel, by Stan's `reduce_sum`.

A likelihood such as `y ~ normal(X * beta, sigma);`, or a loop `for (n in 1 : N)` whose rows share
no variable that they assign, moves to a function that adds up the rows from `start` to `end`.
Variables of the model that are computed row by row for that sum alone move with it. Densities that
can leave their loops do so first, as in any generated program.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stanct.stan.dependence import Dependence
from stanct.stan.lifting import ModelLoops
from stanct.stan.loops import LoopSums
from stanct.stan.nodes import (
    MATRIX_TYPES,
    VECTOR_TYPES,
    Assign,
    Compound,
    Declare,
    Increment,
    Range,
    Statement,
    Tilde,
    TypeSpec,
)
from stanct.stan.program import Program
from stanct.stan.render import library
from stanct.stan.rewrite import Edit, Rewriter, edited
from stanct.stan.rows import Rows, StaysError
from stanct.stan.shapes import Scope, Shapes
from stanct.stan.source import Place
from stanct.stan.syntax import free_prefix, walk
from stanct.stan.walks import terms_of_sum

SLICES = 16
"""Number of slices of the rows, about, that threads share. Each slice costs some microseconds."""


class RowSums(NamedTuple):
    """A program with `reduce_sum`, and where a likelihood stays as it is, with the reason."""

    program: Program
    kept: tuple[tuple[Place, str], ...]


def row_sums(program: Program) -> RowSums:
    """Write the sums over rows in a program's likelihood by `reduce_sum`.

    Where there is none, raises `ProgramError` at the first statement of the likelihood, and says
    why.
    """
    source = program.syntax.source
    if "model" not in program.blocks:
        raise source.error(0, "This program has no model, and so no sum over rows.")
    lifted, edits = _lifted(program)
    writer = _Writer(lifted)
    for statements in _lists(writer.model.statements):
        for statement in statements:
            writer.move(statement, statements)
    kept = [(_origin(lifted.syntax.start(token), edits), why) for token, why in writer.kept]
    if not writer.functions:
        at, why = kept[0] if kept else (0, "it has none")
        raise source.error(
            at,
            f"No likelihood in this program is a sum over rows that threads can share: {why}.",
            "Write `reduce_sum` by hand, or leave it out.",
        )
    return RowSums(writer.written(), tuple((source.place(at), why) for at, why in kept))


def _lifted(program: Program) -> tuple[Program, list[Edit]]:
    """The program with densities of its likelihood outside of their loops, and the edits."""
    rewriter = Rewriter(program, free_prefix("row_", program.syntax), Shapes(program.syntax))
    rewriter.normalise_names()
    loops, dependence = ModelLoops(rewriter), Dependence(program)
    leaving = {id(term.statement): len(term.nest) for term in loops.terms}
    chosen: list[Statement] = []
    for statement in loops.statements:
        own = [one for one in walk([statement]) if _is_likelihood(dependence, one)]
        # A nest of loops would need a counter, by which rows depend on one another.
        if own and all(leaving.get(id(one)) == 1 for one in own):
            chosen.append(statement)
    LoopSums(rewriter).write("target", only=chosen)
    edits = rewriter.edits + rewriter.word_edits
    _add_functions(program, library(rewriter.functions, rewriter.prefix), edits)
    return edited(program, edits), edits


def _add_functions(program: Program, text: str, edits: list[Edit]) -> None:
    """Add functions at the end of the functions block, or before the first block."""
    block = program.blocks.get("functions")
    at = program.syntax.start(block.closing if block else 0)
    if text:
        edits.append(Edit(at, at, f"{text}\n" if block else f"functions {{\n{text}\n}}\n"))


def _origin(offset: int, edits: Sequence[Edit]) -> int:
    """The offset before edits of what stands at an offset after them."""
    moved = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start + moved + len(edit.text) > offset:
            return min(offset - moved, edit.start)
        moved += len(edit.text) - (edit.end - edit.start)
    return offset - moved


def _lists(statements: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Lists of statements that run in turn, at most once."""
    yield statements
    for statement in statements:
        if isinstance(statement, Compound) and statement.word in ("block", "profile"):
            yield from _lists(statement.body)
        elif isinstance(statement, Compound) and statement.word == "if":
            for branch in statement.body:
                yield from _lists([branch])


def _is_likelihood(dependence: Dependence, statement: Statement) -> bool:
    return isinstance(statement, Tilde | Increment) and any(
        term.part == "likelihood" for term in dependence.terms(statement)
    )


@dataclass
class _Part:
    """What moves to one function: definitions of variables, and a statement or terms of it.

    `left` are the other terms, and `prior` the statements of a loop that stay in the model.
    """

    rows: Rows
    definitions: list[Statement] = field(default_factory=list[Statement])
    terms: list[tuple[Range, bool]] = field(default_factory=list[tuple[Range, bool]])
    left: list[tuple[Range, bool]] = field(default_factory=list[tuple[Range, bool]])
    prior: list[Statement] = field(default_factory=list[Statement])


class _Writer:
    """Moves statements of one program to functions."""

    def __init__(self, program: Program) -> None:
        self.program, self.syntax = program, program.syntax
        self.dependence, self.shapes = Dependence(program), Shapes(program.syntax)
        self.globals = self.shapes.globals()
        self.data = program.fixed_names
        words = (token.text for token in program.syntax.tokens)
        self.words = {re.sub("_lp[dm]f$", "", word) for word in words}
        self.prefix = free_prefix("row_", program.syntax)
        self.rewriter = Rewriter(program, self.prefix, self.shapes)
        self.start, self.end = self._free("start"), self._free("end")
        self.sum = self._free("log_p")
        self.model = program.blocks["model"]
        seen = self.shapes.walk(self.model.statements, self.globals)
        self.seen = {id(one): dict(around) for one, around in seen}
        self.edits: list[Edit] = []
        self.functions: list[str] = []
        self.library: set[str] = set()
        # Arrays of the numbers of the rows, by the count of rows.
        self.counts: dict[str, str] = {}
        self.kept: list[tuple[int, str]] = []

    def _free(self, name: str) -> str:
        """A name that the program does not use."""
        return name if name not in self.words else self._free(f"{name}_of_rows")

    def written(self) -> Program:
        """The program with its functions and, where needed, the numbers of rows."""
        helpers = library(self.library, self.prefix)
        functions = "\n".join(part for part in (helpers, *self.functions) if part)
        _add_functions(self.program, functions, self.edits)
        n = self._free("n")
        lines = "".join(
            f"  array[{count}] int {name};\n  for ({n} in 1 : {count}) {{\n"
            f"    {name}[{n}] = {n};\n  }}\n"
            for count, name in self.counts.items()
        )
        block = self.program.blocks.get("transformed data")
        at = self.syntax.start(
            block.closing if block else self.program.blocks["parameters"].keyword
        )
        if lines:
            self.edits.append(Edit(at, at, lines if block else f"transformed data {{\n{lines}}}\n"))
        return edited(self.program, self.edits)

    def move(self, statement: Statement, siblings: Sequence[Statement]) -> None:
        """Move one statement of a list if it is a sum over rows of the likelihood."""
        is_loop = isinstance(statement, Compound) and statement.word in ("for", "while")
        inside = walk([statement]) if is_loop else [statement]
        if not any(_is_likelihood(self.dependence, one) for one in inside):
            return
        given = set[str]()
        try:
            part, failed = self._part(statement, siblings, given)
            while failed:
                given |= failed
                part, failed = self._part(statement, siblings, given)
            self._write(statement, part)
        except StaysError as why:
            self.kept.append((statement.tokens.first, str(why)))

    # What moves

    def _part(
        self, statement: Statement, siblings: Sequence[Statement], given: set[str]
    ) -> tuple[_Part, set[str]]:
        """What moves, and local variables of which this was tried and that have to be arguments."""
        for token in range(*statement.tokens):
            word = self.syntax.word(token)
            if self.syntax.word(token + 1) == "(" and (word.endswith("_lp") or word == "target"):
                raise StaysError(f"`{word}` reads or changes the target")
        rows = Rows(self.program, self.shapes, self.start, self.end)
        make = self._loop if isinstance(statement, Compound) else self._vectorised
        part = make(statement, rows, self.seen[id(statement)])
        if not set(re.findall(r"[A-Za-z]\w*\b(?!\()", rows.count)) <= self.data:
            raise StaysError("the number of rows is no data")
        failed = set[str]()
        while name := next(
            (
                name
                for name in rows.uses
                if name not in {*self.globals, *rows.local, *given} and rows.is_sized(name)
            ),
            "",
        ):
            rows.local.add(name)
            own = [one for one in siblings if self._count(one.tokens, name)]
            used = self._count(Range(self.model.opening, self.model.closing), name)
            late = any(one.tokens.first > statement.tokens.first for one in own)
            try:
                if late or used != sum(self._count(one.tokens, name) for one in own):
                    raise StaysError(f"`{name}` is used elsewhere")
                for one in own:
                    if one is not statement and one not in part.definitions:
                        self._define(one, part)
                        self._refuse_changes(one, statement, siblings, rows.local)
            except StaysError:
                failed.add(name)
        part.definitions.sort(key=lambda one: one.tokens.first)
        failed |= {name for name in rows.local if rows.is_whole(name)}
        if left := sorted(rows.assigned - (rows.local - failed)):
            raise StaysError(f"`{left[0]}` is assigned in one row and may be read in another")
        return part, failed

    def _count(self, tokens: Range, name: str) -> int:
        return self.syntax.words(tokens).count(name)

    def _refuse_changes(
        self, moved: Statement, to: Statement, siblings: Sequence[Statement], local: set[str]
    ) -> None:
        """Refuse to move a statement past others that change what it reads."""
        reads = {*self.syntax.words(moved.tokens)} - local
        first, last = moved.tokens.first, to.tokens.first
        for one in walk([one for one in siblings if first < one.tokens.first < last]):
            if isinstance(one, Assign) and self.syntax.word(one.left.first) in reads:
                raise StaysError("what it reads changes")

    def _define(self, statement: Statement, part: _Part) -> None:
        """Take a statement that gives values to a variable of the rows."""
        rows, scope, by_row = part.rows, self.seen[id(statement)], False
        if isinstance(statement, Declare) and len(statement.names) == 1:
            name, value = statement.names[0]
            rows.declare(name, statement.type, scope)
            by_row = value is None or rows.form(value, scope).by_row
        elif isinstance(statement, Assign) and statement.left.is_one:
            rows.note(statement.left.first, "slice")
            form = rows.form(statement.value, scope)
            by_row = form.by_row or (self.syntax.word(statement.left.stop) != "=" and not form.rank)
        elif isinstance(statement, Compound) and statement.word == "for":
            rows.loop(statement, scope)
            by_row = not any(isinstance(one, Tilde | Increment) for one in walk([statement]))
        if not by_row:
            raise StaysError("no value for each row")
        part.definitions.append(statement)

    def _loop(self, loop: Statement, rows: Rows, scope: Scope) -> _Part:
        assert isinstance(loop, Compound)
        inner = list(walk(loop.body))
        densities = [one for one in inner if isinstance(one, Tilde | Increment)]
        terms = {id(one): self.dependence.terms(one) for one in densities}
        prior = [one for one in densities if any(t.part == "prior" for t in terms[id(one)])]
        names = [one.names for one in inner if isinstance(one, Declare)]
        declared = [self.syntax.word(name) for pairs in names for name, _ in pairs]
        block = loop.body[0]
        body = block.body if isinstance(block, Compound) and block.word == "block" else loop.body
        for one in prior:
            apart = any(one is other for other in body) and len(terms[id(one)]) == 1
            if not apart or any(self._count(one.tokens, name) for name in declared):
                raise StaysError("its loop has a prior that cannot be told apart")
        rows.loop(loop, scope, [one.tokens for one in prior])
        return _Part(rows, prior=list(prior))

    def _vectorised(self, statement: Statement, rows: Rows, scope: Scope) -> _Part:
        """A `~`, or the terms of an increment that are sums over the same rows."""
        part, why = _Part(rows), ""
        if isinstance(statement, Tilde):
            if statement.truncated:
                raise StaysError("a vector's truncated density is no plain sum")
            rows.density(statement.distribution, statement.variate, statement.arguments, scope)
            return part
        assert isinstance(statement, Increment)
        parts = {term.tokens.first: term.part for term in self.dependence.terms(statement)}
        for value, negative in terms_of_sum(self.syntax, statement.value):
            state = rows.state()
            try:
                if parts.get(value.first) == "prior":
                    raise StaysError("it is a prior")
                rows.term(value, scope)
                part.terms.append((value, negative))
            except StaysError as reason:
                rows.restore(state)
                part.left.append((value, negative))
                why = why or str(reason)
        if not part.terms:
            raise StaysError(why)
        return part

    # Text

    def _write(self, statement: Statement, part: _Part) -> None:
        """Write the function, and the statement that calls it."""
        rows, scope = part.rows, self.seen[id(statement)]
        arguments = [one for one in rows.uses if one not in rows.local]
        types = {one: _unsized(scope[one]) for one in arguments}
        able = [one for one in arguments if rows.can_be_cut(one)]
        # A parameter that is cut is not copied to every slice.
        able.sort(key=lambda one: (one in self.data, scope[one].base != "int"))
        if able:
            sliced, kind = able[0], types.pop(able[0])
            rows.local.add(sliced)
        else:
            kind, own = "array[] int", self._free(f"rows{len(self.counts) + 1}")
            sliced = self.counts.setdefault(rows.count, own)
        suffix = "_lpmf" if kind.endswith("int") else "_lpdf"
        name = self._free(f"partial_sum{len(self.functions) + 1}") + suffix
        heads = [f"{kind} {sliced}", f"int {self.start}", f"int {self.end}"]
        heads += [f"{kind} {one}" for one, kind in types.items()]
        lines = self._body(statement, part, scope)
        adds = f"{self.sum} += "
        if len(lines) == 1 and lines[0].startswith(adds):
            lines = [f"return {lines[0].removeprefix(adds)}"]
        else:
            lines = [f"real {self.sum} = 0;", *lines, f"return {self.sum};"]
        body = textwrap.indent("\n".join(lines), "    ")
        self.functions.append(
            f"  // log density of the rows {self.start} to {self.end}\n"
            f"{_call(f'  real {name}(', heads, ') {')}\n{body}\n  }}"
        )
        count = rows.count if re.fullmatch(r"\w+", rows.count) else f"({rows.count})"
        given = [name, sliced, f"max(1, {count} %/% {SLICES})", *types]
        indent = self._indent(statement)
        self._replace(statement, part, _call(f"{indent}target += reduce_sum(", given, ");"), indent)

    def _body(self, statement: Statement, part: _Part, scope: Scope) -> list[str]:
        """The statements of the function."""
        rewriter = Rewriter(self.program, self.prefix, self.shapes)
        rewriter.word_edits = part.rows.edits()
        lines = [self._span(rewriter, one) for one in part.definitions]
        for value, negative in part.terms:
            shape, text = self.shapes.shape(value, scope), rewriter.expression(value)
            text = f"sum({text})" if shape is not None and shape.rank else text
            lines.append(f"{self.sum} {'-' if negative else '+'}= {text};")
        if not part.terms:
            for one in walk([statement]):
                if any(one is other for other in part.prior):
                    rewriter.edits.append(rewriter.removal(one))
                elif isinstance(one, Tilde):
                    rewriter.tilde(one, self.seen[id(one)], self.sum)
                elif isinstance(one, Increment):
                    rewriter.redirect(one, self.seen[id(one)], self.sum)
            lines.append(self._span(rewriter, statement))
        self.library |= rewriter.functions
        return lines

    def _span(self, rewriter: Rewriter, statement: Statement) -> str:
        """The edited text of a statement."""
        text = rewriter.text(*self.syntax.span(statement.tokens))
        return textwrap.dedent(self._indent(statement) + text)

    def _indent(self, statement: Statement) -> str:
        return self.rewriter.indent(self.syntax.start(statement.tokens.first))

    def _replace(self, statement: Statement, part: _Part, call: str, indent: str) -> None:
        """Put the call in the place of a statement, with what stays in the model before it."""
        rewriter = self.rewriter
        self.edits += [rewriter.removal(one) for one in part.definitions]
        before = ""
        if part.left:
            texts = [f"{'-' if less else '+'} {self.syntax.text(one)}" for one, less in part.left]
            left = " ".join(texts).removeprefix("+ ")
            before = f"target += {re.sub('^- ', '-', left)};\n{indent}"
        elif part.prior and isinstance(statement, Compound):
            inner = "".join(f"{indent}  {self.syntax.text(one.tokens)}\n" for one in part.prior)
            head = self.syntax.text(statement.heads[0])
            before = f"for ({head}) {{\n{inner}{indent}}}\n{indent}"
        lead, _, tail = rewriter.room(statement, self.edits) if before else ("", "", "")
        span = self.syntax.span(statement.tokens)
        self.edits.append(Edit(*span, f"{lead}{before}{call.lstrip()}{tail}"))


def _unsized(spec: TypeSpec) -> str:
    """The type of an argument of a function."""
    if spec.base == "tuple":
        raise StaysError("a tuple would be an argument")
    base = spec.base
    if base not in ("row_vector", "vector", "matrix") and "complex" not in base:
        base = "vector" if base in VECTOR_TYPES else "matrix" if base in MATRIX_TYPES else base
    return f"array[{',' * (len(spec.array) - 1)}] {base}" if spec.array else base


def _call(head: str, parts: Sequence[str], tail: str) -> str:
    """A call or a signature on lines of 80 columns."""
    lines, indent = [head], " " * (len(head) - len(head.lstrip()) + 4)
    for k, part in enumerate(parts):
        text = part + ("," if k < len(parts) - 1 else tail)
        if len(lines[-1]) + 1 + len(text) > 80:
            lines.append(indent + text)
        else:
            lines[-1] += text if k == 0 else f" {text}"
    return "\n".join(lines)
