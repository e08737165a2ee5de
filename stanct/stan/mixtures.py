"""A program whose mixtures keep one component each, by the number of a parameter of its own.

Stan has no discrete parameters. A program therefore names the components of a mixture by
`log_sum_exp`, `log_mix` or `log1p_exp`, the log of 1 + eˣ. With all components but one out of the
way, an ascent ends at the mode of that one, however narrow it is.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Container, Sequence

from stanct.common.errors import ProgramError
from stanct.stan.nodes import Assign, Statement
from stanct.stan.rewrite import Edit, apply
from stanct.stan.source import SourceText
from stanct.stan.syntax import Syntax, free_prefix, walk

_BLOCKS = "transformed parameters", "model", "generated quantities"
# Components are lower by so many nats for each number that they are away from the kept one.
_DEFINITIONS = """
real {p}sum(vector v, real kept) {{
  int n = num_elements(v);
  vector[n] w = v;
  for (i in 1:n) w[i] -= 1e15 * abs(i - fmin(kept, n));
  return log_sum_exp(w);
}}
real {p}sum(row_vector v, real kept) {{ return {p}sum(v', kept); }}
real {p}sum(array[] real v, real kept) {{ return {p}sum(to_vector(v), kept); }}
real {p}sum(real a, real b, real kept) {{ return {p}sum([a, b]', kept); }}
real {p}one(real a, real kept) {{ return {p}sum(0, a, kept); }}
real {p}mix(real w, real a, real b, real kept) {{
  return {p}sum([log(w) + a, log1m(w) + b]', kept);
}}
real {p}mix(vector w, vector v, real kept) {{ return {p}sum(log(w) + v, kept); }}
real {p}mix(vector w, row_vector v, real kept) {{ return {p}sum(log(w) + v', kept); }}
real {p}mix(vector w, array[] real v, real kept) {{ return {p}sum(log(w) + to_vector(v), kept); }}
"""
_CALLS = {"log_sum_exp": "sum", "log_mix": "mix", "log1p_exp": "one"}


def with_one_component(source: str) -> str | None:
    """The program with one unconstrained parameter more, the last, which keeps one component.

    It counts components from 1. Beyond the last one, that stays. None where the density has no
    mixture by these names, or sums over states one after the other, as of a hidden Markov model,
    whose paths are no components.
    """
    if not any(name in source for name in _CALLS):
        return None
    try:
        syntax = Syntax(SourceText.expand(source, "program"))
    except ProgramError:
        return None
    parameters, mixing = syntax.blocks.get("parameters"), _mixing(syntax)
    own = {syntax.word(one.name) for one in syntax.functions}
    blocks = {
        block: syntax.calls(syntax.block_range(block), mixing.__contains__)
        for block in _BLOCKS
        if block in syntax.blocks
    }
    generated = blocks.pop("generated quantities", [])
    if parameters is None or not own.isdisjoint(_CALLS) or not any(blocks.values()):
        return None
    bodies = [[*syntax.statements(_BLOCKS[0]), *syntax.statements(_BLOCKS[1])]]
    bodies += [[one.body] for one in syntax.functions]
    if any(_recurs(syntax, body, mixing) for body in bodies):
        return None
    prefix = free_prefix("component_", syntax)
    end = syntax.tokens[parameters.closing].start
    edits = [Edit(end, end, f"  real {prefix};\n"), _defined(syntax, prefix)]
    heads = [one.name for one in syntax.functions if syntax.word(one.name) in mixing]
    inner = [
        token
        for one in syntax.functions
        if syntax.word(one.name) in mixing
        for token in syntax.calls(one.body.tokens, mixing.__contains__)
    ]
    for token in {*heads, *inner, *generated, *itertools.chain(*blocks.values())}:
        name, inside = syntax.tokens[token], syntax.inside(token + 1)
        closing = syntax.tokens[inside.stop].start
        comma = ", " if inside.stop > inside.first else ""
        kind = "real " if token in heads else ""
        edits.append(Edit(closing, closing, f"{comma}{kind}{prefix}"))
        if name.text in _CALLS:
            edits.append(Edit(name.start, name.end, f"{prefix}{_CALLS[name.text]}"))
    return apply(source, edits)


def _mixing(syntax: Syntax) -> set[str]:
    """The functions that have a mixture's components, and those of the user's that call them."""
    found, before = {*_CALLS}, 0
    while len(found) > before:
        before = len(found)
        for one in syntax.functions:
            if syntax.calls(one.body.tokens, found.__contains__):
                found.add(syntax.word(one.name))
    return found


def _recurs(syntax: Syntax, body: Sequence[Statement], mixing: Container[str]) -> bool:
    """Whether a sum over components goes into its own terms, other than as the sum so far."""
    inputs, sums = defaultdict[str, set[str]](set), list[tuple[str, set[str]]]()
    for statement in walk(body):
        for name, value in syntax.assigned(statement):
            inputs[name].update(syntax.names(value))
            so_far = syntax.words(statement.left) if isinstance(statement, Assign) else []
            for call in syntax.calls(value, mixing.__contains__):
                terms = syntax.split(syntax.inside(call + 1))
                own = [syntax.names(one) for one in terms if syntax.words(one) != so_far]
                sums.append((name, set[str]().union(*own)))
    for name, reached in sums:
        before = 0
        while len(reached) > before:
            before = len(reached)
            reached |= {own for one in reached for own in inputs.get(one, ())}
        if name in reached:
            return True
    return False


def _defined(syntax: Syntax, prefix: str) -> Edit:
    """The edit that defines the functions, before the user's own."""
    text = _DEFINITIONS.format(p=prefix)
    functions = syntax.blocks.get("functions")
    if functions is None:
        return Edit(0, 0, f"functions {{{text}}}\n")
    start = syntax.tokens[functions.opening].end
    return Edit(start, start, text)
