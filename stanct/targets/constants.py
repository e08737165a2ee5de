"""Adds normalising constants once instead of in every gradient.

The statement `~` drops terms that only the data determine, and the embedded engine always lets it
do so. For counts this saves a log gamma function for each observation, which is a quarter to a half
of the gradient of a Poisson or binomial regression. For a Gaussian process it saves a seventh, and
elsewhere little. The density program's log density is then that of the user's own program plus a
constant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stanct.stan.nodes import Assign, Compound, Declare, Range, Statement, Tilde
from stanct.stan.program import Program
from stanct.stan.syntax import walk
from stanct.stan.target_calls import touches_target
from stanct.targets.density import Density

# In an expression with parameters these can make an integer or a branch depend on them.
_DECISIONS = frozenset({"?", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "!"})
_INTEGERS = frozenset(
    {"int_step", "is_inf", "is_nan", "rank", "sort_indices_asc", "sort_indices_desc"}
)
_SCALES = (1.0, 0.3, 0.1, 0.03, 0.01)
_POINTS, _ATTEMPTS = 5, 8
# The difference of larger log densities is too inaccurate to give the constant.
_LARGEST = 1e7
_TOLERANCE = 1e-12


def added_once(density: Density, program: Program, source: str) -> Density:
    """Replace a density by that of the user's own program plus a constant, if that is cheaper.

    `density` is that of the density program, with all constants. `source` is a text of the user's
    program that goes with the density's data.
    """
    if not drops_constants(program):
        return density
    try:
        own = Density(replace(density.recipe, source=source))
    except ValueError:
        return density
    found = _differences(density, own)
    if len(found) < _POINTS:
        return density
    # The difference of the smallest values is the most accurate.
    magnitude, constant = min(found)
    for other, difference in found:
        # Whatever the program's text says, the dropped constant must be the same everywhere.
        if abs(difference - constant) > _TOLERANCE * max(1.0, magnitude, other):
            return density
    return own.with_constant(density.constant + constant)


def _differences(density: Density, own: Density) -> list[tuple[float, float]]:
    """Return the magnitude of the densities at a few points, and by how much `density` exceeds."""
    rng, found = np.random.default_rng(0), list[tuple[float, float]]()
    for scale in np.repeat(_SCALES, _ATTEMPTS):
        x = rng.normal(scale=scale, size=density.dimension)
        # `own` has the constant that the density has already.
        value, less = density.log_density(x), own.log_density(x)
        magnitude = max(abs(value), abs(less))
        if magnitude < _LARGEST:
            found.append((magnitude, value - less))
        if len(found) == _POINTS:
            break
    return found


def drops_constants(program: Program) -> bool:
    """Return whether `~` drops constants of a program that do not depend on the parameters."""
    syntax = program.syntax
    if touches_target(program):
        return False
    if any(token.text.endswith(("_lupdf", "_lupmf")) for token in syntax.tokens):
        return False
    if any(isinstance(one, Tilde) for one in walk([each.body for each in syntax.functions])):
        return False
    drops = any(isinstance(one, Tilde) for one in walk(syntax.statements("model")))
    return drops and not _Choices(program).found


class _Choices:
    """Finds branches, loop counts and integers that may depend on parameters."""

    def __init__(self, program: Program) -> None:
        self._syntax = syntax = program.syntax
        self._fixed = set(program.data_names)
        self._integers: set[str] = set()
        self._deciding = (
            _DECISIONS | _INTEGERS | {syntax.word(one.name) for one in syntax.functions}
        )
        for statement in walk(syntax.statements("transformed data")):
            self._fixed |= syntax.declared(statement)
        later = [*syntax.statements("transformed parameters"), *syntax.statements("model")]
        self.found = any(map(self._chooses, walk(later)))

    def _chooses(self, statement: Statement) -> bool:
        if isinstance(statement, Tilde):
            decides = not self._deciding.isdisjoint(self._syntax.words(statement.tokens))
            return decides and not self._is_fixed(statement.tokens)
        if isinstance(statement, Declare) and statement.type.base == "int":
            self._integers |= self._syntax.declared(statement)
            return not all(value is None or self._is_fixed(value) for _, value in statement.names)
        if isinstance(statement, Declare):
            # The name may be that of a loop counter elsewhere.
            return bool(self._syntax.declared(statement) & (self._fixed | self._integers))
        if isinstance(statement, Assign):
            name = self._syntax.word(statement.left.first)
            return name in self._integers and not self._is_fixed(statement.value)
        if not isinstance(statement, Compound) or not statement.heads:
            return False
        heads = statement.heads
        if statement.word == "for":
            self._fixed.add(self._syntax.loop_variable(statement))
            heads = self._syntax.loop_ends(statement)
        return not all(self._is_fixed(head) for head in heads)

    def _is_fixed(self, tokens: Range) -> bool:
        """Return whether an expression names only data, counters and functions."""
        syntax = self._syntax
        return all(
            syntax.tokens[token].kind != "name"
            or syntax.word(token + 1) == "("
            or syntax.word(token) in self._fixed | self._integers
            for token in range(*tokens)
        )
