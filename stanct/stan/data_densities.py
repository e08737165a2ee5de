"""Matrix densities whose arguments are all data, which end the process of the embedded engine.

stanli 0.24 computes the others as functions of parameters, and normal densities of vectors right.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

from stanct.common.errors import ProgramError
from stanct.stan.densities import Densities
from stanct.stan.nodes import Compound, Range, Statement, Tilde
from stanct.stan.program import Program
from stanct.stan.shapes import Scope

_FAMILY = re.compile(
    r"((?:multi_(?:normal(?:_cholesky|_prec)?|student_t(?:_cholesky)?|gp(?:_cholesky)?)"
    r"|(?:inv_)?wishart(?:_cholesky)?|lkj_(?:corr(?:_cholesky)?|cov)))(?:_lu?pdf)?"
)
_WORD = re.compile(rf"\b{_FAMILY.pattern}\s*\(")

OF_DATA = "the arguments are data alone in"
"""Words of the error for such a density, before its name."""


@functools.lru_cache(maxsize=64)
def named_density_of_data(source: str) -> str | None:
    """Name the first such density of a text, or the user's function that calls one."""
    if not _WORD.search(source):
        return None
    try:
        program = Program.from_source(source)
    except ProgramError:
        return None  # stanc says what is wrong
    token = density_of_data(program)
    return None if token is None else program.syntax.word(token)


def density_of_data(program: Program) -> int | None:
    """Token of the name of the first such density, or of the user's function that calls one."""
    return next(_Finder(program).found(), None)


class _Finder:
    def __init__(self, program: Program) -> None:
        self._program, self._syntax = program, program.syntax
        self._densities = Densities(program)
        # Functions of the user's that call such densities, directly or not.
        self._functions = program.calling(
            lambda one: any(map(_FAMILY.fullmatch, self._syntax.words(one.body.tokens)))
        )
        # What flows into these is not followed.
        drawn = program.statements("generated quantities")
        self._drawn = set[str]().union(*map(self._syntax.declared, drawn))

    def found(self) -> Iterator[int]:
        shapes = self._densities.shapes
        for name, block in self._program.blocks.items():
            if name in ("functions", "data", "parameters"):
                continue
            for statement, scope in shapes.walk(block.statements, shapes.globals()):
                yield from self._of(statement, scope)

    def _of(self, statement: Statement, scope: Scope) -> Iterator[int]:
        if isinstance(statement, Compound):
            return
        inside = [statement.tokens]
        if isinstance(statement, Tilde):
            inside = [statement.variate, *statement.arguments]
            if self._fails(statement.distribution, inside, scope):
                yield statement.tilde + 1
        for name, arguments in (
            call for tokens in inside for call in self._densities.calls(tokens)
        ):
            if self._fails(name, self._syntax.arguments(arguments), scope):
                yield arguments.first - 2

    def _fails(self, name: str, parts: Sequence[Range], scope: Scope) -> bool:
        family = _FAMILY.fullmatch(name)
        own = {name, f"{name}_lpdf", f"{name}_lpmf"} & self._functions
        if family is None and not own:
            return False
        names = set[str]().union(*map(self._densities.names, parts))
        if names & self._drawn or self._densities.roots(names):
            return False
        shapes = [self._densities.shapes.shape(part, scope) for part in parts[:2]]
        vectors = all(shape is not None and shape.rank == 1 for shape in shapes)
        return family is None or family[1] != "multi_normal" or not vectors
