"""What Stan says of a program that it rejects wherever it is tried, with the line that says it.

A fit would only tell that it failed. Programs that are rejected at most points are no concern of
this module: the search for modes looks much further.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import ProgramError, shortened
from stanct.stan.nodes import Call, Declare, Statement
from stanct.stan.program import Program
from stanct.stan.syntax import walk
from stanct.targets.data import StanData
from stanct.targets.density import Density

# Standard deviations of the unconstrained points that are tried after the origin.
_SCALES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
_FEWEST, _MOST, _SECONDS = 64, 1000, 2.0
_REJECTING = ("reject", "fatal_error")
_STRING = re.compile(r'"([^"]*)"')
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_SHAPES = re.compile(r"constraint shapes do not match for (\w+)")
_DENSITY = re.compile(r"(\w+?)_l(?:pdf|pmf|cdf|ccdf)\b")
# A CmdStan adds the place in the generated program to each message.
_PLACE = re.compile(r"\s*\(in '[^']*', line \d+[^)]*\)")
_ENGINE = re.compile(r"^stanli [\w ]+: ")


def refuse_rejection(program: Program, data: StanData, density: Density, *, failed: bool) -> None:
    """Raise an error with Stan's words if Stan rejects the program at every point that is tried.

    Unless a fit has `failed`, it is raised only where Stan says the same at all points, so that no
    other point can be expected to be better; after that, also where the log density is not finite.
    """
    told: list[str] = []
    end = time.monotonic() + _SECONDS
    for number, x in enumerate(_points(density.dimension)):
        message = density.refusal(x)
        if message is None:
            return
        told.append(_cleaned(message))
        if not failed and (not message or told[-1] != told[0]):
            return
        if number >= _FEWEST and time.monotonic() > end:
            break
    (words, _), *_ = Counter(told).most_common(1)
    kinds = {_NUMBER.sub("#", each) for each in told}
    where = f"at each of {len(told)} points that were tried"
    if not words:
        raise ProgramError(
            f"The log density is not finite {where}.",
            path=program.label,
            remedy="See that it is finite where parameters are within their bounds.",
        )
    also = "" if len(kinds) == 1 else ", among others,"
    raise rejection(program, words, f" {where}{also}", data)


def rejection(program: Program, message: str, where: str, data: StanData) -> ProgramError:
    """Return the error for Stan's words, at the line of the program that they are about.

    `where` says at which points Stan says so, with a space before it; it may be empty.
    """
    token = users_own(program, message)
    words = shortened(_cleaned(message), 300).rstrip(".!")
    remedy = f"Correct the program or {data.name}."
    if token is not None:
        word = program.syntax.word(token)
        told = f"The program calls `{word}`{where}: {words}."
    elif sizes := _SHAPES.search(message):
        token = _declared(program, sizes[1])
        told = f"`{sizes[1]}` and its bounds have different sizes."
    else:
        token = _density(program, message)
        told = f"Stan rejects the program{where}: {words}."
    if token is None:
        return ProgramError(told, path=program.label, remedy=remedy)
    return program.syntax.error(token, told, remedy)


def users_own(program: Program, message: str) -> int | None:
    """Return the token of the `reject` or `fatal_error` whose words a message holds, if any."""
    for statement in _statements(program):
        if not isinstance(statement, Call) or statement.name not in _REJECTING:
            continue
        texts = _STRING.findall(program.syntax.text(statement.tokens))
        if texts and all(text.strip() in message for text in texts):
            return statement.tokens.first
    return None


def _statements(program: Program) -> Iterator[Statement]:
    for block in program.blocks.values():
        yield from walk([*block.statements, *(each.body for each in block.functions)])


def _declared(program: Program, name: str) -> int | None:
    for statement in _statements(program):
        if isinstance(statement, Declare) and statement.type.constraints:
            for token, _ in statement.names:
                if program.syntax.word(token) == name:
                    return token
    return None


def _density(program: Program, message: str) -> int | None:
    """Return the token of the only density that a message can be about."""
    family = _DENSITY.search(message)
    if family is None:
        return None
    word, tokens = program.syntax.word, range(len(program.syntax.tokens))
    found = [
        token
        for token in tokens
        if (word(token) == family[1] and word(token - 1) == "~")
        or re.fullmatch(rf"{family[1]}_lu?(pdf|pmf|cdf|ccdf)", word(token))
    ]
    return found[0] if len(found) == 1 else None


def _points(dimension: int) -> Iterator[Array]:
    rng = np.random.default_rng(0)
    yield np.zeros(dimension)
    for k in range(_MOST):
        yield rng.normal(scale=_SCALES[k % len(_SCALES)], size=dimension)


def _cleaned(message: str) -> str:
    """Stan's words without the place in a program that the user has not written."""
    return " ".join(_ENGINE.sub("", _PLACE.sub("", message.strip())).split())
