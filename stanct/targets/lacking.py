"""Names the construct of a program that the embedded engine cannot run, and its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from stanct.common.errors import EngineError, ProgramError, shortened
from stanct.engines import embedded
from stanct.engines.embedded import Recipe
from stanct.stan.data_densities import OF_DATA, density_of_data
from stanct.stan.nodes import Range
from stanct.stan.program import Program
from stanct.stan.stand_ins import stand_ins

# What the engine's messages begin with if it lacks something that Stan has.
_LACKS = re.compile(r"stanli compile|mir: |stanli \w+: unsupported |portable mir .*nesting exceeds")
_RECURSION = re.compile(r"recursion too deep in (\w+)")
_FUNCTION = re.compile(r"unsupported function (\w+)")
# It says this of arguments whose sizes disagree, and of some that Stan would repeat to fit.
_SIZES = re.compile(r"does not match|must match|out of bounds|extent|larger than max_size")
# It says this of an empty array of integers, but not in a branch that is not taken.
_EMPTY = "must be int data"
# A word of such a message, and the words of a program that cause it.
_CONSTRUCTS = (
    ("Tuple", r"tuple|eigendecompose\w*|svd|qr|qr_thin|csr_extract|hmm_\w+"),
    ("StochasticColumn", "column_stochastic_matrix"),
    ("StochasticRow", "row_stochastic_matrix"),
    ("Jacobian", "jacobian"),
    ("FnFatalError", "fatal_error"),
    ("unsupported expression", r"\w*laplace_\w+"),
    (
        "Complex|parameter read|to_complex|FnMakeComplex",
        r"complex\w*|to_complex|get_real|get_imag|(inv_)?fft2?|eigenvalues|(\d+\.?\d*|\.\d+)i",
    ),
)
# The blocks without which the engine goes on where it cannot run them, and what it then says.
_DERIVED = ("transformed parameters", "generated quantities")
_INSIDE = re.compile(r"\((stanli \w+: [^()]*)")


class LackingError(EngineError, ProgramError):
    """The embedded engine cannot run a program that Stan accepts."""


def lacking(program: Program, message: str) -> ProgramError | None:
    """Return the error for an engine's message that says what the engine lacks; None for others.

    It is a `LackingError` where CmdStan helps. A function that calls itself without end does not
    return there either, and takes the whole process with it.
    """
    if endless := _RECURSION.search(message):
        function = endless.group(1)
        words = program.syntax.words(Range(0, len(program.syntax.tokens)))
        told = f"`{function}` calls itself without end, or too often for the embedded engine."
        remedy = "Give it an end that the data reach, or write it as a loop."
        if function not in words:
            return ProgramError(told, path=program.label, remedy=remedy)
        return program.syntax.error(words.index(function), told, remedy)
    return _error(program, message) if _LACKS.match(message) else None


def _error(program: Program, message: str, blocks: Sequence[str] = ()) -> LackingError:
    """Return the error for a message; the construct stands in one of these blocks, if any."""
    of_data = OF_DATA in message
    found = density_of_data(program) if of_data else _culprit(program, message, blocks)
    place: dict[str, Any] = {"path": program.label}
    what = "this program"
    if found is not None:
        place = asdict(program.syntax.source.place(program.syntax.start(found)))
        what = f"`{program.syntax.word(found)}`"
    told = shortened(message.split(" | in:")[0], 120)
    quoted = ", because all of its arguments are data" if of_data else f" ({told})"
    remedy = "CmdStan runs it, and stanct uses a CmdStan that is there: stanct install-cmdstan."
    if _SIZES.search(message):
        remedy = f"See that the sizes are right. If they are, {remedy}"
    if _EMPTY in message:
        remedy = f"If the data make an array of integers empty, put `if (n > 0)` before. {remedy}"
    return LackingError(f"The embedded engine cannot run {what}{quoted}.", remedy=remedy, **place)


def refuse_losses(program: Program, recipe: Recipe) -> None:
    """Raise `LackingError` where the embedded engine would leave out the user's variables.

    Of a program whose transformed parameters or generated quantities it cannot run, the engine
    computes the parameters alone, and says so in a warning.
    """
    message = embedded.warning(recipe)
    if "unavailable" in message:
        inside = _INSIDE.search(message)
        told = inside[1] if inside else "stanli compile: its generated quantities"
        raise _error(program, told, _DERIVED)


def may_lose(program: Program) -> bool:
    """Whether the embedded engine might leave out variables, by the words of the program."""
    words = {token.text for token in program.syntax.tokens}
    pattern = re.compile("|".join(words for _, words in _CONSTRUCTS))
    return bool(program.derived_names) and any(map(pattern.fullmatch, words))


def lost_all(program: Program, computed: Collection[str]) -> bool:
    """Whether all transformed parameters and generated quantities miss among what is computed."""
    names = program.derived_names
    return bool(names) and not any(name.split(":")[0] in names for name in computed)


def _culprit(program: Program, message: str, blocks: Sequence[str]) -> int | None:
    """Return the token of the construct that a message means; None if it is none of the known.

    Some messages name nothing: the first word of all that the engine lacks is then the best guess.
    """
    word, everywhere = program.syntax.word, range(len(program.syntax.tokens))
    there = [token for name in blocks for token in range(*program.syntax.block_range(name))]
    known = [words for _, words in _CONSTRUCTS] if "nesting" not in message else []
    for patterns in (_meant(program, message), known):
        pattern = re.compile("|".join(f"(?:{one})" for one in patterns) or r"(?!)")
        found = next((t for t in (*there, *everywhere) if pattern.fullmatch(word(t))), None)
        if found is not None:
            return found
    return None


def _meant(program: Program, message: str) -> list[str]:
    """Patterns of words that a message means, or that it quotes and the program calls."""
    word, everywhere = program.syntax.word, range(len(program.syntax.tokens))
    meant = [words for told, words in _CONSTRUCTS if re.search(told, message)]
    meant += [name for name in stand_ins() if f"_{name}_" in message]
    meant += _FUNCTION.findall(message)
    called = {word(token) for token in everywhere if word(token + 1) == "("}
    told = re.sub(r"_lp[dm]f\b", "", message.split(" | in:")[0])
    named = [rf"{w}(_l\w+)?" for w in re.findall(r"\w+", told)]
    return meant + [w for w in named if any(re.fullmatch(w, name) for name in called)]
