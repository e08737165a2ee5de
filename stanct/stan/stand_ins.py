"""Functions of Stan that the embedded engine lacks, written in those that it has.

`neg_binomial_2_log_glm_lpmf` is there, but subtracts numbers of the size of phi. Where phi is 10¹⁵,
as under brms's prior, the difference is rounding error, which L-BFGS climbs without end.

Each file of `templates/stand_ins` has the definitions of one function, under its own name. They go
into the text that the engine gets, under names that the program does not use. No line of the
program moves to another. CmdStan has the functions themselves, and gets the program as it is.
"""

from __future__ import annotations

import functools
import re

from stanct.common.errors import ProgramError
from stanct.common.resources import resource_folder
from stanct.stan.rewrite import Edit, apply
from stanct.stan.syntax import Syntax, free_prefix, parsed

_FOLDER, _ENDING = "stand_ins", ".stanfunctions"
_WORD = re.compile(r"[A-Za-z]\w*")


@functools.cache
def stand_ins() -> tuple[str, ...]:
    """The names of the functions that have a stand-in, in order."""
    folder = resource_folder("templates") / _FOLDER
    return tuple(sorted(file.name.removesuffix(_ENDING) for file in folder.iterdir()))


@functools.lru_cache(maxsize=64)
def with_stand_ins(source: str) -> str:
    """Return the program with a stand-in for each function that the embedded engine lacks."""
    words = set(_WORD.findall(source))
    if words.isdisjoint(stand_ins()) and words.isdisjoint(map(_plain, stand_ins())):
        return source
    try:
        syntax = parsed(source)
    except ProgramError:
        return source  # stanc says what is wrong
    prefix = free_prefix("stanct_", syntax)
    functions = syntax.blocks.get("functions")
    own = {syntax.word(one.name) for one in syntax.functions}
    calls = [
        (token, name)
        for token, (_, word, _, _) in enumerate(syntax.tokens)
        if (name := _named(word, syntax.word(token - 1) if token else "")) in stand_ins()
        and name not in own
        and _is_call(syntax, token, name)
    ]
    if not calls:
        return source
    defined = " ".join(_definitions(name, prefix) for name in sorted({name for _, name in calls}))
    note = f" /* Stand-ins for what the embedded engine lacks. */ {defined} "
    start, text = 0, f"functions {{{note}}} "
    if functions:
        start, text = syntax.tokens[functions.opening].end, note
    names = [Edit(syntax.start(token), syntax.start(token), prefix) for token, _ in calls]
    return apply(source, [Edit(start, start, text), *names])


def _named(word: str, before: str) -> str:
    """The function that a word calls; after `~` and as `_lupmf` it is the density in full."""
    return f"{word}_lpmf" if before == "~" else word.replace("_lupmf", "_lpmf")


def _plain(name: str) -> str:
    return name.removesuffix("_lpmf")


def _is_call(syntax: Syntax, token: int, name: str) -> bool:
    """Whether a word calls its function with as many arguments as a stand-in has."""
    if syntax.word(token + 1) != "(":
        return False
    # A bar, or the left side of `~`, stands before the first comma of a density.
    count = len(syntax.split(syntax.inside(token + 1))) + name.endswith("_lpmf")
    return count in _arities(name)


@functools.cache
def _arities(name: str) -> set[int]:
    defined = parsed(f"functions {{ {_text(name)} }}").functions
    return {len(one.arguments) for one in defined}


def _definitions(name: str, prefix: str) -> str:
    """The definitions of a function under another name, in one line."""
    text = re.sub(rf"\b{name}\(", f"{prefix}{name}(", _text(name))
    return " ".join(text.split())


@functools.cache
def _text(name: str) -> str:
    file = resource_folder("templates") / _FOLDER / f"{name}{_ENDING}"
    return file.read_text(encoding="utf-8")
