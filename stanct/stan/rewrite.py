"""In-place edits of user code that keep constants and redirect increments of the target.

All edits replace spans of the expanded text, so comments and layout are preserved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from stanct.stan.constraints import minus
from stanct.stan.counts import Counts
from stanct.stan.distributions import SUFFIX, TRUNCATED_ONLY
from stanct.stan.nodes import Increment, Range, Statement, Tilde
from stanct.stan.program import Program
from stanct.stan.shapes import Scope, Shape, Shapes
from stanct.stan.syntax import Syntax

_LINE = 70
_LOOSE = frozenset({"?", "==", "!=", "<", "<=", ">", ">=", "&&", "||"})
_UNNORMALISED = {"_lupdf": "_lpdf", "_lupmf": "_lpmf"}


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters `start`, ..., `end - 1` of the expanded text."""

    start: int
    end: int
    text: str


def apply(text: str, edits: Sequence[Edit], start: int = 0, end: int | None = None) -> str:
    """Apply the edits within the characters `start`, ..., `end - 1`, and return the result."""
    end = len(text) if end is None else end
    parts: list[str] = []
    # The sort is stable: insertions at one offset keep their order, and come before a replacement
    # that begins there.
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if start <= edit.start and edit.end <= end:
            parts += (text[start : edit.start], edit.text)
            start = edit.end
    parts.append(text[start:end])
    return "".join(parts)


def edited(program: Program, edits: Sequence[Edit]) -> Program:
    """Return the program after edits; the program itself if there are none."""
    if not edits:
        return program
    text = apply(program.expanded, edits)
    return Program.from_source(text, name=program.name, path=program.path)


@dataclass
class Rewriter:
    """Collects the edits of one generated program.

    `word_edits` replace words inside expressions, and `functions` are the library functions,
    without prefix, that new code calls. `braced` has the first tokens of statements around which
    other edits put braces. `declares` says whether new code of the model block declares variables.
    `counts` collects constants of counts that are computed once.
    """

    program: Program
    prefix: str
    shapes: Shapes
    edits: list[Edit] = field(default_factory=list[Edit])
    word_edits: list[Edit] = field(default_factory=list[Edit])
    functions: set[str] = field(default_factory=set[str])
    braced: set[int] = field(default_factory=set[int])
    declares: bool = False
    counts: Counts | None = None

    def __post_init__(self) -> None:
        self._syntax: Syntax = self.program.syntax
        self._loops = 0
        self._user = self.program.functions

    def text(self, start: int = 0, end: int | None = None) -> str:
        """Return a range of the program's characters with every edit applied."""
        return apply(self.program.expanded, self.edits + self.word_edits, start, end)

    def inside(self, block_name: str) -> str:
        """Return the edited text between a block's braces; empty for an absent block."""
        block = self.program.blocks.get(block_name)
        if block is None:
            return ""
        tokens = self._syntax.tokens
        return self.text(tokens[block.opening].end, tokens[block.closing].start)

    def normalise_names(self) -> None:
        """Replace every `_lupdf` and `_lupmf`, called or passed by name, by the normalised form."""
        for token in self._syntax.tokens:
            replacement = _UNNORMALISED.get(token.text[-6:])
            if token.kind == "name" and replacement and len(token.text) > 6:
                self.word_edits.append(Edit(token.end - 6, token.end, replacement))

    def keep_constants(self) -> None:
        """Turn every `~` of the functions block into `target +=`."""
        for functions in self._user.values():
            for function in functions:
                scope = self.shapes.arguments(function)
                for statement, seen in self.shapes.walk([function.body], scope):
                    if isinstance(statement, Tilde):
                        self.tilde(statement, seen, "target")

    def model(self, accumulator: str) -> None:
        """Redirect the terms of the model block to `accumulator`, with every constant kept."""
        model = self._syntax.statements("model")
        for statement, scope in self.shapes.walk(model, self.shapes.globals()):
            if isinstance(statement, Tilde):
                self.tilde(statement, scope, accumulator)
            elif isinstance(statement, Increment) and accumulator != "target":
                self.redirect(statement, scope, accumulator)

    def redirect(self, statement: Increment, scope: Scope, accumulator: str) -> None:
        """Redirect one `target +=` or `jacobian +=`, which may sum a container, to a scalar."""
        first = self._syntax.tokens[statement.tokens.first]
        edits, before = self.edits, len(self.edits)
        edits.append(Edit(first.start, first.end, accumulator))
        shape = self.shapes.shape(statement.value, scope)
        start, end = self._syntax.span(statement.value)
        if shape is None or shape.rank > 0:
            edits.append(Edit(start, start, f"{self.summation(shape)}("))
            edits.append(Edit(end, end, ")"))
        moved = sum(len(e.text) - (e.end - e.start) for e in edits[before:] if e.start <= start)
        self._align(first.start, start, end, moved)

    def summation(self, shape: Shape | None) -> str:
        """Return the name of the function that sums the same elements as `target +=`."""
        if shape is not None and shape.rank == 1:
            return "sum"
        self.functions.add("total")
        return f"{self.prefix}total"

    def tilde(self, statement: Tilde, scope: Scope, accumulator: str) -> None:
        """Turn one `~` into `+=` of a full density, renormalised if it is truncated."""
        syntax = self._syntax
        function = statement.distribution + self._suffix(statement, scope)
        start = syntax.start(statement.tokens.first)
        tilde = syntax.tokens[statement.tilde]
        opening = syntax.tokens[statement.tilde + 2]
        closing = syntax.tokens[syntax.partner[statement.tilde + 2]]
        truncation = self._truncation(statement, scope, accumulator)
        lead, indent, tail = self.room(statement, self.edits) if truncation else ("", "", "")
        head = f"{lead}{accumulator} += "
        function = self._with_constants(statement, function, scope)
        self.edits.append(Edit(start, start, f"{head}{function}("))
        first_edit = len(self.edits) - 1
        _, variate_end = syntax.span(statement.variate)
        name = syntax.tokens[statement.tilde + 1]
        if not statement.arguments:
            self.edits.append(Edit(variate_end, opening.end, ""))
        else:
            space = "" if variate_end < tilde.start else " "
            self.edits.append(Edit(tilde.start, tilde.end, f"{space}|"))
            space = "" if tilde.end < name.start else " "
            self.edits.append(Edit(name.start, opening.end, space))
            moved = sum(len(e.text) - (e.end - e.start) for e in self.edits[first_edit:])
            self._align(start, opening.end, closing.start, moved - len(lead))
        semicolon = syntax.tokens[statement.tokens.stop - 1]
        rest = "".join(f"\n{indent}{line}" for line in truncation)
        self.edits.append(Edit(closing.end, semicolon.end, f";{rest}{tail}"))

    def _align(self, start: int, opening: int, closing: int, moved: int) -> None:
        """Move lines that continue an expression at or beyond its first column as it moves."""
        text = self.program.expanded
        if "\n" in text[start:opening]:
            return
        column = opening - (text.rfind("\n", 0, opening) + 1)
        for line in re.finditer(r"\n([ ]*)(?=\S)", text[opening:closing]):
            if len(line[1]) >= column:
                at = opening + line.end()
                self.edits.append(
                    Edit(at, at, " " * moved) if moved > 0 else Edit(at + moved, at, "")
                )

    def _with_constants(self, statement: Tilde, function: str, scope: Scope) -> str:
        """Return the function that a `~` calls, stanct's own if constants of counts are known."""
        if self.counts is None or statement.truncated or not statement.arguments:
            return function
        last = statement.arguments[-1]
        if self.program.defines(statement.distribution) or not self.counts.is_vector(last, scope):
            return function
        arguments = [self.expression(part) for part in (statement.variate, *statement.arguments)]
        known = self.counts.last_argument(function, arguments, statement)
        if known is None:
            return function
        end = self._syntax.tokens[last.stop - 1].end
        self.edits.append(Edit(end, end, f", {known}"))
        return self.ours(function)

    def ours(self, function: str) -> str:
        """Return the name of a library function with the prefix, and record that it is used."""
        self.functions.add(function)
        return f"{self.prefix}{function}"

    def room(self, statement: Statement, edits: list[Edit]) -> tuple[str, str, str]:
        """Make room for several statements in the place of one.

        Returns the text before the first, the indentation of the others, and the text after the
        last. The texts are braces if the statement was the body of a loop or a branch.
        """
        start, text = self._syntax.start(statement.tokens.first), self.program.expanded
        indent = self.indent(start)
        if self.stands_free(statement):
            return "", indent, ""
        before = self._syntax.tokens[statement.tokens.first - 1]
        if "\n" in text[before.end : start]:
            edits.append(Edit(before.end, before.end, " {"))
            return "", indent, f"\n{self.indent(before.start)}}}"
        return f"{{\n{indent}  ", f"{indent}  ", f"\n{indent}}}"

    def stands_free(self, statement: Statement) -> bool:
        """Return whether a statement can be removed, or followed by others, without braces."""
        first = statement.tokens.first
        return first in self.braced or self._syntax.word(first - 1) in (";", "{", "}")

    def retyped(self, declared: Range, plain: str) -> Edit:
        """The edit that writes another type, apart from a name that follows the old one at once."""
        start, end = self._syntax.span(declared)
        return Edit(start, end, plain if self.program.expanded[end].isspace() else f"{plain} ")

    def removal(self, statement: Statement) -> Edit:
        """Return the edit that removes a statement, with its line if nothing else is on it."""
        text = self.program.expanded
        start, end = self._syntax.span(statement.tokens)
        if not self.stands_free(statement):
            return Edit(start, end, "{ }")
        line_start, line_end = text.rfind("\n", 0, start), text.find("\n", end)
        if line_start >= 0 and line_end >= 0:
            behind = text[end:line_end].strip()
            if not text[line_start:start].strip() and (not behind or behind.startswith("//")):
                return Edit(line_start, line_end, "")
        return Edit(start, end, "")

    def indent(self, offset: int) -> str:
        """Return the indentation of the line that contains an offset."""
        text = self.program.expanded
        line = text[text.rfind("\n", 0, offset) + 1 : offset]
        return line[: len(line) - len(line.lstrip())]

    def _suffix(self, statement: Tilde, scope: Scope) -> str:
        """Return `_lpdf` or `_lpmf`, whichever Stan or the user defines for a distribution."""
        name = statement.distribution
        found = {suffix for suffix in ("_lpdf", "_lpmf") if name + suffix in self._user}
        if name in SUFFIX:
            found.add(SUFFIX[name])
        if len(found) == 1:
            return found.pop()
        place = statement.tilde + 1
        if not found:
            raise self._syntax.refusal(
                place,
                "an unknown distribution",
                f"`{name}` is neither one of Stan's distributions nor defined in `functions`.",
                f"Define {name}_lpdf or {name}_lpmf, or write the statement as `target += ...`.",
            )
        shape = self.shapes.shape(statement.variate, scope)
        if shape is not None and shape.integer is not None:
            return "_lpmf" if shape.integer else "_lpdf"
        raise self._syntax.refusal(
            place,
            "a density or a mass function",
            f"`{name}` has both {name}_lpdf and {name}_lpmf; which one is meant cannot be told.",
            f"Write `target += {name}_lpdf(... | ...);` or `target += {name}_lpmf(... | ...);`.",
        )

    # Truncation, with the same statements as stanc generates

    def _truncation(self, statement: Tilde, scope: Scope, accumulator: str) -> list[str]:
        if statement.lower is None and statement.upper is None:
            return []
        text = self._operand
        variate = self.shapes.shape(statement.variate, scope)
        lower = text(statement.lower) if statement.lower else None
        upper = text(statement.upper) if statement.upper else None
        outside: list[str] = []
        if lower is not None:
            outside.append(f"{self._extreme('min', statement.variate, variate)} < {lower}")
        if upper is not None:
            outside.append(f"{self._extreme('max', statement.variate, variate)} > {upper}")
        body = self._normaliser(statement, scope, variate, f"{accumulator} += -")
        if self._declared_inside(statement, scope):
            return body
        condition = f"if ({' || '.join(outside)})"
        nothing = f"{accumulator} += negative_infinity();"
        return [f"{condition} {{", f"  {nothing}", "} else {", *(f"  {x}" for x in body), "}"]

    def _declared_inside(self, statement: Tilde, scope: Scope) -> bool:
        """Whether the bounds of a truncation are those that the variate is declared with."""
        if statement.distribution in TRUNCATED_ONLY:
            return False
        syntax = self._syntax
        first, stop = statement.variate
        if syntax.word(first) not in scope:
            return False
        spec, behind = self.shapes.variable(first, scope)
        if spec.base == "tuple" or (behind < stop and syntax.word(behind) != "["):
            return False
        declared = {side: syntax.words(bound) for side, bound in spec.constraints.items()}
        bounds = {"lower": statement.lower, "upper": statement.upper}
        return all(
            declared.get(side) == syntax.words(bound)
            for side, bound in bounds.items()
            if bound is not None
        )

    def _extreme(self, function: str, variate: Range, shape: Shape | None) -> str:
        if shape is None:
            return self._call(f"{function}imum", self.expression(variate))
        if shape.rank == 0:
            return self._operand(variate)
        return f"{function}({self.expression(variate)})"

    def _normaliser(
        self, statement: Tilde, scope: Scope, variate: Shape | None, head: str
    ) -> list[str]:
        arguments = [self.expression(argument) for argument in statement.arguments]
        shapes = [self.shapes.shape(argument, scope) for argument in statement.arguments]
        # Number of variates that share one normaliser; not needed if an argument is a container.
        containers = [shape for shape in shapes if shape is not None and shape.rank > 0]
        unknown = any(shape is None for shape in shapes)
        count = "" if containers else self._count(statement.variate, variate)
        if unknown and not containers and count:
            tests = " || ".join(
                self._call("is_container", argument)
                for argument, shape in zip(arguments, shapes, strict=True)
                if shape is None
            )
            count = f"({tests} ? 1 : {count})"
        factor = f"{count} * " if count else ""
        one_normaliser = not (containers or unknown)
        if statement.lower is None or statement.upper is None or one_normaliser:
            return self._subtract(f"{head}{factor}", statement, arguments)
        self._refuse_effects(statement)
        self._loops += 1
        index = f"{self.prefix}i{self._loops}"
        elements = [
            self._element(argument, tokens, shape, index)
            for argument, tokens, shape in zip(arguments, statement.arguments, shapes, strict=True)
        ]
        sizes = [
            f"size({argument})" if shape else self._call("length", argument)
            for argument, shape in zip(arguments, shapes, strict=True)
            if shape is None or shape.rank > 0
        ]
        length = sizes[0] if len(sizes) == 1 else f"max({{{', '.join(sizes)}}})"
        body = self._subtract(f"{head}{factor}", statement, elements)
        return [f"for ({index} in 1 : {length}) {{", *(f"  {line}" for line in body), "}"]

    def _refuse_effects(self, statement: Tilde) -> None:
        """Raise an error if a repeated argument calls a function that adds to the target."""
        for argument in statement.arguments:
            for token in self._syntax.calls(argument, lambda name: name.endswith("_lp")):
                name = self._syntax.word(token)
                raise self._syntax.refusal(
                    token,
                    "a call that adds to the target in a truncation",
                    f"`{name}` adds to the target; this truncation would repeat it.",
                    "Give its value a name first, and use the name here.",
                )

    def _subtract(self, head: str, statement: Tilde, arguments: list[str]) -> list[str]:
        """Write the subtraction of the log probability of the interval."""
        upper, lower = self._log_masses(statement, arguments)
        if not (upper and lower):
            return [f"{head}{upper or lower};"]
        line = f"{head}log_diff_exp({upper}, {lower});"
        if len(line) <= _LINE:
            return [line]
        return [f"{head}log_diff_exp(", f"  {upper},", f"  {lower}", ");"]

    def _count(self, variate: Range, shape: Shape | None) -> str:
        text = self.expression(variate)
        if shape is None:
            return self._call("length", text)
        return f"size({text})" if shape.rank else ""

    def _element(self, argument: str, tokens: Range, shape: Shape | None, index: str) -> str:
        if shape is None:
            return self._call("element", argument, index)
        if shape.rank == 0:
            return argument
        return f"{argument}[{index}]" if tokens.is_one else f"({argument})[{index}]"

    def expression(self, tokens: Range) -> str:
        """Return an expression with the word edits made in it so far."""
        if tokens.first >= tokens.stop:
            return ""
        return apply(self.program.expanded, self.word_edits, *self._syntax.span(tokens))

    def _operand(self, tokens: Range) -> str:
        """Return an edited expression, in parentheses if it contains a loosely binding operator."""
        text = self.expression(tokens)
        loose = any(self._syntax.word(token) in _LOOSE for token in self._syntax.outermost(tokens))
        return f"({text})" if loose else text

    def _call(self, function: str, *arguments: str) -> str:
        return f"{self.ours(function)}({', '.join(arguments)})"

    def _log_masses(self, statement: Tilde, arguments: list[str]) -> tuple[str, str]:
        """Return the log probabilities at the upper and the lower end, empty for an open end."""
        name = statement.distribution
        behind = f" | {', '.join(arguments)}" if arguments else ""
        ending = "_lccdf" if statement.upper is None else "_lcdf"
        lower = upper = ""
        if statement.lower is not None:
            lower = self.expression(statement.lower)
            if self._counts(name, ending):
                lower = minus(lower, "1")
            lower = f"{name}{ending}({lower}{behind})"
        if statement.upper is not None:
            upper = f"{name}_lcdf({self.expression(statement.upper)}{behind})"
        return upper, lower

    def _counts(self, distribution: str, ending: str) -> bool:
        """Return whether a distribution is discrete, so that its lower bound is inclusive."""
        functions = self._user.get(distribution + ending)
        if functions and functions[0].arguments:
            return functions[0].arguments[0][0].base == "int"
        return SUFFIX.get(distribution) == "_lpmf"
