"""What Stan removed until version 2.33, and the line that takes its place."""

from __future__ import annotations

import re

from stanct.stan.distributions import SUFFIX

_UNDECLARED = re.compile(r'identifier "\w+"')
_UNKNOWN = re.compile(r'when looking for distribution "(\w+)"')
_CALL = re.compile(r"(\w+)\s*\(")
# Functions that have another name, or are an expression of their arguments.
_RENAMED = {
    "cov_exp_quad": "gp_exp_quad_cov",
    "fabs": "abs",
    "multiply_log": "lmultiply",
    "binomial_coefficient_log": "lchoose",
    "integrate_ode_rk45": "ode_rk45",
    "integrate_ode_bdf": "ode_bdf",
    "integrate_ode_adams": "ode_adams",
}
_ENDS = (("_ccdf_log", "_lccdf"), ("_cdf_log", "_lcdf"), ("_log", ""))


def in_new_words(text: str, at: int, message: str) -> str | None:
    """A sentence on what replaces what Stan no longer has; None where that is not known.

    The fault is at this offset of the whole program, and the message is stanc's.
    """
    if '"lp__" clashes' in message:
        return "Stan removed `lp__`: write `target += …` to add to it, and `target()` to read it."
    if (named := _UNKNOWN.search(message)) and re.search(rf"\b{named[1]}_log\s*\(", text):
        name = named[1]
        return f"`{name}_log` is no distribution: name it `{name}_lpdf`, or `_lpmf` of integers."
    called = _CALL.match(text, at)
    if called is None:
        return None
    name, (arguments, end) = called[1], _arguments(text, called.end())
    if "require a vertical bar" in message:
        return f"A bar has to be behind the first argument: write `{_barred(name, arguments)}`."
    # `increment_log_prob(f(x));` is a statement, and its argument may be of an old name, too.
    around = re.search(r"\bincrement_log_prob\s*\(\s*$", text[:at])
    new = _replaced(name, arguments) if _UNDECLARED.search(message) else None
    if new is None:
        return None
    if around and text[end:].lstrip().startswith(")"):
        new = f"target += {new}"
    return f"Stan removed `{name}`: write `{new}`."


def _replaced(name: str, arguments: list[str]) -> str | None:
    listed = ", ".join(arguments)
    if name == "increment_log_prob":
        inner = re.fullmatch(r"(\w+)\s*\((.*)\)", listed, re.DOTALL)
        own = inner and _replaced(inner[1], _arguments(f"{inner[2]})", 0)[0])
        return f"target += {own or listed}"
    if name == "get_lp":
        return "target()"
    if name == "if_else" and len(arguments) == 3:
        return f"{arguments[0]} ? {arguments[1]} : {arguments[2]}"
    if name in _RENAMED:
        return f"{_RENAMED[name]}({listed})"
    for old, new in _ENDS:
        stem = name.removesuffix(old)
        if stem != name and stem in SUFFIX and arguments:
            return _barred(f"{stem}{new or SUFFIX[stem]}", arguments)
    return None


def _barred(name: str, arguments: list[str]) -> str:
    return f"{name}({' | '.join([arguments[0], ', '.join(arguments[1:])]).rstrip()})"


def _arguments(text: str, begin: int) -> tuple[list[str], int]:
    """The arguments of a call from behind its parenthesis, and the place behind the closing one."""
    found, depth, last = [], 0, begin
    for place in range(begin, len(text)):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}" and depth:
            depth -= 1
        elif text[place] == ")" or (text[place] == "," and not depth):
            found.append(text[last:place].strip())
            last = place + 1
            if text[place] == ")":
                return [one for one in found if one], last
    return found, len(text)
