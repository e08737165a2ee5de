"""Calls that read Stan's target, or add to it outside of the accumulators.

In a generated program the model's terms go to accumulators, so Stan's target holds only the terms
that user-defined functions ending in `_lp` add. `target()` must keep the value that it has in the
user's program.
"""

from __future__ import annotations

from collections.abc import Mapping

from stanct.stan.program import Program
from stanct.stan.rewrite import Edit, Rewriter
from stanct.stan.syntax import Function, Range


def calls_of_lp_functions(program: Program) -> bool:
    """Return whether the program's blocks call functions that add to Stan's target."""
    syntax = program.syntax
    behind = Range(syntax.block_range("functions").stop, len(syntax.tokens))
    return bool(syntax.calls(behind, lambda name: name.endswith("_lp")))


def touches_target(program: Program) -> bool:
    """Return whether the model reads the target, or the program calls functions ending in `_lp`."""
    model = program.syntax.block_range("model")
    reads = program.syntax.calls(model, lambda name: name == "target")
    return bool(reads) or calls_of_lp_functions(program)


class TargetCalls:
    """The calls of one program that touch Stan's target; the rewriter receives the edits.

    `added` is a Stan expression for the terms in Stan's target that are not in the accumulators;
    empty if there are none.
    """

    def __init__(self, rewriter: Rewriter, added: str) -> None:
        self._rewriter = rewriter
        self._syntax = rewriter.program.syntax
        self._added = added
        self._functions = self._syntax.functions

    def redirect(self, collected: Mapping[str, str]) -> None:
        """Preserve the value of `target()` in the blocks and in the functions that they call.

        `collected` maps the name of a block to a Stan expression for the sum of its accumulators;
        "0" if there are none.
        """
        readers = self._readers()
        for name, total in collected.items():
            tokens = self._syntax.block_range(name)
            own = f"{total} + {self._added}" if self._added else total
            if total != "0":
                self._replace_reads(tokens, f"({own})" if " " in own else own)
            # Functions can read Stan's target themselves.
            self._pass_on(tokens, readers, total + self._added.removeprefix("target()"))
        argument = f"{self._rewriter.prefix}target"
        for function in self._functions:
            if self._syntax.word(function.name) not in readers:
                continue
            opening = function.name + 1
            closing = self._syntax.start(self._syntax.partner[opening])
            comma = ", " if function.arguments else ""
            self._rewriter.word_edits.append(Edit(closing, closing, f"{comma}real {argument}"))
            body = function.body.tokens
            self._replace_reads(body, f"({argument} + target())")
            self._pass_on(body, readers, argument)

    def _readers(self) -> set[str]:
        """Return the names of the functions that read the target, or call one that does."""
        readers = {self._name(f) for f in self._functions if self._reads(f.body.tokens)}
        while True:
            callers = {
                self._name(f) for f in self._functions if self._calls(f.body.tokens, readers)
            }
            if callers <= readers:
                return readers
            readers |= callers

    def _name(self, function: Function) -> str:
        return self._syntax.word(function.name)

    def _reads(self, tokens: Range) -> list[int]:
        return self._calls(tokens, {"target"})

    def _calls(self, tokens: Range, names: set[str]) -> list[int]:
        return self._syntax.calls(tokens, names.__contains__)

    def _replace_reads(self, tokens: Range, own: str) -> None:
        for token in self._reads(tokens):
            start, end = self._syntax.start(token), self._syntax.tokens[token + 2].end
            self._rewriter.word_edits.append(Edit(start, end, own))

    def _pass_on(self, tokens: Range, readers: set[str], value: str) -> None:
        for token in self._calls(tokens, readers):
            closing = self._syntax.partner[token + 1]
            comma = ", " if closing > token + 2 else ""
            end = self._syntax.start(closing)
            self._rewriter.word_edits.append(Edit(end, end, comma + value))
