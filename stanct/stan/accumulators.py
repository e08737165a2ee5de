"""Variables in which a program collects terms that it then adds to the target.

brms writes `real lprior = 0;`, then `lprior += normal_lpdf(b | 0, 1);` for each prior, and at last
`target += lprior;`. Each such statement adds its value to the target, as `target += ...` does.
"""

from __future__ import annotations

from collections import Counter

from stanct.stan.nodes import Assign, Declare, Increment, Statement
from stanct.stan.program import Program
from stanct.stan.syntax import Syntax, walk_within
from stanct.stan.walks import terms_of_sum

_BLOCKS = ("transformed parameters", "model")


def accumulators(program: Program) -> frozenset[str]:
    """Scalars that only grow by `+=`, and that the model adds to the target once.

    A variable that is read elsewhere before the generated quantities is left out.
    """
    syntax = program.syntax
    # Statements that run exactly once, with those in blocks of their own.
    outer = [
        statement
        for name in _BLOCKS
        for statement, inside in walk_within(syntax.statements(name))
        if all(one.word in ("block", "profile") for one in inside)
    ]
    added = _added_once(syntax, outer)
    if not added:
        return frozenset()
    # The name stands in its declaration and where the target grows.
    uses = dict.fromkeys(added, 2)
    declared: dict[str, int] = {}
    for statement in outer:
        if not isinstance(statement, Declare) or statement.type.array:
            continue
        if syntax.text(statement.type.base_range) == "real":
            declared.update(
                (syntax.word(token), token) for token, value in statement.names if value
            )
    for statement in program.statements(*_BLOCKS):
        if not isinstance(statement, Assign):
            continue
        left, name = statement.left, syntax.word(statement.left.first)
        grows = left.is_one and syntax.word(left.stop) == "+="
        if name in uses and grows:
            # What comes later is not added.
            uses[name] += 1 + (statement.tokens.first > added[name])
    counts = _counts(program)
    return frozenset(
        name
        for name, use in uses.items()
        if use == counts[name] and declared.get(name, added[name]) < added[name]
    )


def _added_once(syntax: Syntax, statements: list[Statement]) -> dict[str, int]:
    """Names that are whole terms of what is added to the target, and the tokens where."""
    found: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Increment) and statement.accumulator == "target":
            for term, negative in terms_of_sum(syntax, statement.value):
                if not negative and term.is_one:
                    found[syntax.word(term.first)] = term.first
    return found


def _counts(program: Program) -> Counter[str]:
    """How often each name stands in the blocks whose statements make the target."""
    syntax = program.syntax
    tokens = (syntax.tokens[k] for name in _BLOCKS for k in range(*syntax.block_range(name)))
    return Counter(token.text for token in tokens if token.kind == "name")
