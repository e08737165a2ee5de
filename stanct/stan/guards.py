"""Changes to the text of a program that habits of the embedded engine ask for.

Branches stand around loops that may run zero times, because the engine looks into their bodies.

The embedded engine (stanli 0.24) turns a loop that adds a density to the target into one call of
that density, and checks its arguments even where the loop has no iterations. In

    for (i in 1 : use) r ~ binomial_logit(n, theta);

with `use = 0`, an `r` above `n` then makes the density zero. It heeds `if (1 <= use)` before the
loop. The engine also computes generated quantities with any variable, and `without_generated`
empties that block. No line of the program moves to another.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from stanct.common.errors import ProgramError
from stanct.stan.nodes import Call, Compound, Increment, Statement, Tilde
from stanct.stan.rewrite import Edit, apply
from stanct.stan.syntax import Syntax, parsed, walk

# What a call of these does cannot be done twice.
_EFFECTS = ("_lp", "_jacobian", "_rng")


@functools.lru_cache(maxsize=64)
def guarded(source: str) -> str:
    """Return the program with a branch around each loop that might add nothing to the target."""
    if "for" not in source:
        return source
    try:
        syntax = parsed(source)
    except ProgramError:
        return source  # stanc says what is wrong
    edits: list[Edit] = []
    for loop in _loops(syntax):
        condition = _runs(syntax, loop)
        if condition is None:
            continue
        start, end = syntax.span(loop.tokens)
        # An `else` after the loop belongs to a branch around it.
        braced = syntax.word(loop.tokens.stop) == "else"
        edits.append(Edit(start, start, f"{'{ ' * braced}if ({condition}) "))
        edits.append(Edit(end, end, " }" * braced))
    return apply(source, edits)


def without_generated(source: str) -> str:
    """Return a program with empty generated quantities; no line moves to another."""
    syntax = parsed(source)
    block = syntax.blocks.get("generated quantities")
    if block is None:
        return source
    start, end = syntax.tokens[block.opening].end, syntax.tokens[block.closing].start
    return source[:start] + "\n" * source.count("\n", start, end) + source[end:]


def _loops(syntax: Syntax) -> Iterator[Compound]:
    """Loops over ranges or elements that may add to the target."""
    for block in syntax.blocks.values():
        bodies: list[Statement] = [function.body for function in block.functions]
        for statement in walk([*block.statements, *bodies]):
            if not isinstance(statement, Compound) or statement.word != "for":
                continue
            if any(map(_adds, walk(statement.body))):
                yield statement


def _adds(statement: Statement) -> bool:
    if isinstance(statement, Call):
        return statement.name.endswith(_EFFECTS)
    return isinstance(statement, Tilde | Increment)


def _runs(syntax: Syntax, loop: Compound) -> str | None:
    """The condition that a loop has iterations; None if that is sure or has effects."""
    bounds = syntax.loop_ends(loop)
    words = syntax.words(loop.heads[0])[2:]
    if any(word.endswith(_EFFECTS) for word in words):
        return None
    texts = [" ".join(syntax.words(bound)) for bound in bounds]
    if len(texts) != 2:
        return f"size({' '.join(words)}) > 0"
    first, last = texts
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last):
        return None
    return f"({first}) <= ({last})"
