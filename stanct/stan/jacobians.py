"""Splitting of calls of functions ending in `_jacobian` into a value and a log Jacobian.

Stan adds the log Jacobian of such a call to the target at weight 1, and leaves it out when it saves
draws. In a generated program `y = f_jacobian(x);` becomes

    ct_log_jacobian += ct_f_lj(x);
    y = ct_f(x);

A user-defined function is split in two. Stan's own functions are refused, but for `sum_to_zero`,
whose log Jacobian is constant: what they make can be declared as a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stanct.common.errors import UnsupportedError
from stanct.stan.constraints import wrapped
from stanct.stan.rewrite import Edit, Rewriter, apply
from stanct.stan.syntax import (
    Call,
    Compound,
    Declare,
    Function,
    Increment,
    Range,
    Simple,
    Statement,
    walk,
)

_ENDING = "_jacobian"
_CONSTANT = "sum_to_zero"


class JacobianCalls:
    """The calls of one program and the edits that split them.

    The rewriter receives the edits, and its other edits of words inside expressions must be
    complete. The accumulator is the variable that collects the log Jacobian in transformed
    parameters.
    """

    def __init__(self, rewriter: Rewriter, accumulator: str) -> None:
        self._rewriter = rewriter
        self._syntax = rewriter.program.syntax
        self._prefix = rewriter.prefix
        self._accumulator = accumulator
        self._user: dict[str, list[Function]] = {}
        for function in self._syntax.functions:
            name = self._syntax.word(function.name)
            if name.endswith(_ENDING):
                self._user.setdefault(name, []).append(function)

    def take_apart(self) -> None:
        """Edit the transformed parameters, and the user-defined functions that they call."""
        tokens = self._syntax.block_range("transformed parameters")
        called = self._called(tokens)
        self.rename(tokens, self._rewriter.word_edits)
        functions = [function for name in called for function in self._user.get(name, ())]
        for function in functions:
            self.rename(function.tokens, self._rewriter.word_edits)
        edits = self._rewriter.edits
        statements = self._syntax.statements("transformed parameters")
        self._collect(statements, self._accumulator, edits)
        edits += [Edit(*self._syntax.span(one.tokens), self._split(one)) for one in functions]

    def rename(self, tokens: Range, edits: list[Edit]) -> None:
        """Rename every call to the function that computes only the value."""
        for token in self._calls(tokens):
            name = self._syntax.word(token)
            if self._is_void(name):
                continue
            stem = name.removesuffix(_ENDING)
            value = f"{self._prefix}{stem}" if name in self._user else f"{stem}_constrain"
            place = self._syntax.tokens[token]
            edits.append(Edit(place.start, place.end, value))

    def drop_void_calls(self, statements: Sequence[Statement], edits: list[Edit]) -> None:
        """Remove the calls of functions that return no value."""
        for statement in walk(statements):
            if isinstance(statement, Call) and statement.name.endswith(_ENDING):
                edits.append(self._rewriter.removal(statement))

    def _calls(self, tokens: Range) -> list[int]:
        return self._syntax.calls(tokens, lambda name: name.endswith(_ENDING))

    def _is_void(self, name: str) -> bool:
        return any(function.returns is None for function in self._user.get(name, ()))

    def _called(self, tokens: Range) -> list[str]:
        """Return the names of the called functions, including calls by user-defined functions."""
        names: list[str] = []
        waiting = [tokens]
        while waiting:
            for token in self._calls(waiting.pop()):
                name = self._syntax.word(token)
                if name not in names:
                    names.append(name)
                    waiting += [function.tokens for function in self._user.get(name, ())]
        return names

    # User-defined functions

    def _split(self, function: Function) -> str:
        """Write a function that returns the value and one that returns the log Jacobian."""
        stem = f"{self._prefix}{self._syntax.word(function.name).removesuffix(_ENDING)}"
        value = "" if function.returns is None else self._value(function) + "\n  "
        return value + self._log_jacobian(function, f"{stem}_lj")

    def _value(self, function: Function) -> str:
        increments = (one for one in walk([function.body]) if isinstance(one, Increment))
        edits = [self._rewriter.removal(one) for one in increments]
        self.drop_void_calls([function.body], edits)
        return self._edited(function, edits)

    def _log_jacobian(self, function: Function, name: str) -> str:
        syntax, sum_name = self._syntax, f"{self._prefix}lj"
        edits: list[Edit] = []
        scope = self._rewriter.shapes.arguments(function)
        self._collect([function.body], sum_name, edits)
        for statement, seen in self._rewriter.shapes.walk([function.body], scope):
            if isinstance(statement, Increment):
                edits += self._rewriter.redirection(statement, seen, sum_name)
            elif isinstance(statement, Simple) and statement.word == "return":
                edits.append(Edit(*syntax.span(statement.tokens), f"return {sum_name};"))
        start, end = syntax.start(function.tokens.first), syntax.tokens[function.name].end
        edits.append(Edit(start, end, f"real {name}"))
        if isinstance(function.body, Compound):
            opening = syntax.tokens[function.body.tokens.first].end
            closing = syntax.tokens[function.body.tokens.stop - 1].start
            indent = self._rewriter.indent(start) + "  "
            edits.append(Edit(opening, opening, f"\n{indent}real {sum_name} = 0;"))
            if function.returns is None:
                edits.append(Edit(closing, closing, f"  return {sum_name};\n{indent[:-2]}"))
        return self._edited(function, edits)

    def _edited(self, function: Function, edits: list[Edit]) -> str:
        text = self._rewriter.program.expanded
        return apply(text, edits + self._rewriter.word_edits, *self._syntax.span(function.tokens))

    # Statements with calls

    def _collect(
        self, statements: Sequence[Statement], accumulator: str, edits: list[Edit]
    ) -> None:
        """Insert the log Jacobian of every call before the statement that contains the call."""
        for statement in walk(statements):
            if isinstance(statement, Compound):
                calls = self._in_head(statement)
            else:
                calls = self._calls(statement.tokens)
                if isinstance(statement, Declare) and len(statement.names) > 1 and calls:
                    raise self._refusal(calls[0], "in a declaration of several variables")
                self._refuse_conditions(statement.tokens, calls)
            if not calls:
                continue
            start, end = self._syntax.span(statement.tokens)
            lead, indent, tail = self._rewriter.room(statement, edits)
            lines = [
                part
                for call in calls
                for line in self._lines(call, accumulator)
                for part in wrapped(line)
            ]
            added = lead + "".join(f"{line}\n{indent}" for line in lines)
            edits.append(Edit(end, end, tail))
            if isinstance(statement, Call) and statement.name in self._user:
                # A call without a value contributes only its log Jacobian.
                semicolon = added.rstrip().rfind(";")
                edits.append(Edit(start, end, added[: semicolon + 1]))
            else:
                edits.append(Edit(start, start, added))

    def _in_head(self, statement: Compound) -> list[int]:
        """Return the calls in the first condition of an `if`, or in the header of a `for`."""
        calls = [call for head in statement.heads for call in self._calls(head)]
        for call in calls:
            head = statement.heads[0]
            if statement.word == "while" or not head.first <= call < head.stop:
                raise self._refusal(call, "in a condition that is not always evaluated")
            self._refuse_conditions(head, [call])
        return calls

    def _refuse_conditions(self, tokens: Range, calls: Iterable[int]) -> None:
        for call in calls:
            outside = [
                *range(tokens.first, call),
                *range(self._syntax.partner[call + 1], tokens.stop),
            ]
            if any(self._syntax.word(token) in ("?", "&&", "||") for token in outside):
                raise self._refusal(call, "in an expression that is not always evaluated")

    def _lines(self, call: int, accumulator: str) -> list[str]:
        """Write the statements that add the log Jacobian of one call."""
        name = self._syntax.word(call)
        stem = name.removesuffix(_ENDING)
        if stem == _CONSTANT:
            return []
        if name not in self._user:
            raise self._syntax.refusal(
                call,
                f"a call of one of Stan's own `{_ENDING}` functions",
                f"This kind of program cannot weight the log Jacobian that `{name}` adds.",
                "Declare a parameter with that constraint, or add the log Jacobian by a "
                "`jacobian +=` of your own, or leave out method= and engine=.",
            )
        arguments = self._syntax.split(self._syntax.inside(call + 1))
        texts = ", ".join(map(self._rewriter.expression, arguments))
        return [f"{accumulator} += {self._prefix}{stem}_lj({texts});"]

    def _refusal(self, call: int, what: str) -> UnsupportedError:
        name = self._syntax.word(call)
        return self._syntax.refusal(
            call,
            f"a call of a `{_ENDING}` function {what}",
            f"This kind of program cannot express the call of `{name}` {what}.",
            "Compute its value in a statement of its own: one variable, whose shape is declared.",
        )
