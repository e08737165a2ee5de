"""Names the construct of a program that the embedded engine cannot run, and its place."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from stanct.errors import EngineError, ProgramError
from stanct.stan.program import Program

# What the engine's messages begin with if it lacks something that Stan has.
_LACKS = re.compile(r"stanli compile|mir: |stanli \w+: unsupported |portable mir .*nesting exceeds")
_FUNCTION = re.compile(r"unsupported function (\w+)")
# A word of such a message, and the words of a program that cause it.
_CONSTRUCTS = (
    ("Tuple", r"tuple|eigendecompose\w*|svd|qr|qr_thin|csr_extract|hmm_\w+"),
    ("StochasticColumn", "column_stochastic_matrix"),
    ("StochasticRow", "row_stochastic_matrix"),
    ("Jacobian", "jacobian"),
    ("Complex|parameter read|to_complex|FnMakeComplex", r"complex\w*|to_complex"),
)


class LackingError(EngineError, ProgramError):
    """The embedded engine cannot run a program that Stan accepts."""


def lacking(program: Program, message: str) -> LackingError | None:
    """Return the error for an engine's message that says what the engine lacks; None for others."""
    if not _LACKS.match(message):
        return None
    word, tokens = program.syntax.word, range(len(program.syntax.tokens))
    patterns = [words for told, words in _CONSTRUCTS if re.search(told, message)]
    patterns += _FUNCTION.findall(message)
    found = [t for pattern in patterns for t in tokens if re.fullmatch(pattern, word(t))]
    place: dict[str, Any] = {"path": program.label}
    if found:
        place = asdict(program.syntax.source.place(program.syntax.start(found[0])))
    what = f"`{word(found[0])}`" if found else "this program"
    told = message if len(message) < 120 else f"{message[:120]}..."
    return LackingError(
        f"The embedded engine cannot run {what} ({told}).",
        remedy="CmdStan runs it, and stanct uses a CmdStan that is there: stanct install-cmdstan.",
        **place,
    )
