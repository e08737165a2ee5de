"""A program whose mixtures keep one component each, by the number of a parameter of its own.

Stan has no discrete parameters. A program therefore names the components of a mixture by
`log_sum_exp` or `log_mix`. With all components but one out of the way, an ascent ends at the mode
of that one, however narrow it is.
"""

from __future__ import annotations

from stanct.common.errors import ProgramError
from stanct.stan.rewrite import Edit, apply
from stanct.stan.source import SourceText
from stanct.stan.syntax import Syntax, free_prefix

_BLOCKS = "transformed parameters", "model"
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
real {p}mix(real w, real a, real b, real kept) {{
  return {p}sum([log(w) + a, log1m(w) + b]', kept);
}}
real {p}mix(vector w, vector v, real kept) {{ return {p}sum(log(w) + v, kept); }}
real {p}mix(vector w, row_vector v, real kept) {{ return {p}sum(log(w) + v', kept); }}
real {p}mix(vector w, array[] real v, real kept) {{ return {p}sum(log(w) + to_vector(v), kept); }}
"""
_CALLS = {"log_sum_exp": "sum", "log_mix": "mix"}


def with_one_component(source: str) -> str | None:
    """The program with one unconstrained parameter more, the last, which keeps one component.

    It counts components from 1. Beyond the last one, that stays. None where the program names no
    mixture outside of its functions.
    """
    if not any(name in source for name in _CALLS):
        return None
    try:
        syntax = Syntax(SourceText.expand(source, "program"))
    except ProgramError:
        return None
    calls = [
        token
        for block in _BLOCKS
        if block in syntax.blocks
        for token in syntax.calls(syntax.block_range(block), _CALLS.__contains__)
    ]
    own = {syntax.word(one.name) for one in syntax.functions}
    parameters = syntax.blocks.get("parameters")
    if not calls or parameters is None or not own.isdisjoint(_CALLS):
        return None
    prefix = free_prefix("component_", syntax)
    end = syntax.tokens[parameters.closing].start
    edits = [Edit(end, end, f"  real {prefix};\n"), _defined(syntax, prefix)]
    for token in calls:
        name, inside = syntax.tokens[token], syntax.inside(token + 1)
        closing = syntax.tokens[inside.stop].start
        edits.append(Edit(name.start, name.end, f"{prefix}{_CALLS[name.text]}"))
        edits.append(Edit(closing, closing, f", {prefix}"))
    return apply(source, edits)


def _defined(syntax: Syntax, prefix: str) -> Edit:
    """The edit that defines the functions, behind the user's own."""
    text = _DEFINITIONS.format(p=prefix)
    functions = syntax.blocks.get("functions")
    if functions is None:
        return Edit(0, 0, f"functions {{{text}}}\n")
    end = syntax.tokens[functions.closing].start
    return Edit(end, end, text)
