"""Normalising constants added once, not with every gradient.

`~` drops what the data alone determine, and the embedded engine always lets it. For counts that
saves a log gamma function for each observation, a quarter to a half of the gradient of a Poisson or
a binomial regression. The user's own program and one number are then the density program's density.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stanct.density import Density
from stanct.stan.program import Program
from stanct.stan.syntax import Compound, Simple, Statement, Tilde, walk
from stanct.stan.target_calls import touches_target

# Whose constants cost as much as the rest of them.
_COUNT_NAMES = """
    beta_binomial binomial binomial_logit binomial_logit_glm multinomial multinomial_logit poisson
    poisson_log poisson_log_glm
"""
_COUNTS = frozenset(_COUNT_NAMES.split())
_POINTS, _ATTEMPTS = 10, 40
_TOLERANCE = 1e-11


def added_once(density: Density, program: Program) -> Density:
    """Return a density program's density by the user's own program and a constant, if that pays.

    Parameters
    ----------
    density
        Of the density program, all constants kept.
    program
        The user's.
    """
    if not drops_constants(program):
        return density
    try:
        own = Density(replace(density.recipe, source=program.expanded))
    except ValueError:
        return density
    rng, dropped, values = np.random.default_rng(0), list[float](), list[float]()
    for _ in range(_ATTEMPTS):
        x = rng.normal(size=density.dimension)
        value, less = density.log_density(x), own.log_density(x)
        if np.isfinite(value) and np.isfinite(less):
            values.append(value)
            dropped.append(value - less)
        if len(dropped) == _POINTS:
            break
    else:
        return density
    # Whatever the text says, what is dropped must be the same everywhere.
    if np.ptp(dropped) > _TOLERANCE * max(1.0, *np.abs(values)):
        return density
    return Density(replace(own.recipe, constant=float(np.median(dropped))))


def drops_constants(program: Program) -> bool:
    """Tell whether `~` drops costly constants of a program, and these whatever the parameters."""
    model = program.blocks.get("model")
    if model is None or touches_target(program):
        return False
    words = (token.text for token in program.syntax.tokens)
    if any(word.endswith(("_lupdf", "_lupmf")) for word in words):
        return False
    functions = program.blocks.get("functions")
    bodies = [function.body for function in functions.functions] if functions else []
    if any(isinstance(statement, Tilde) for statement in walk(bodies)):
        return False
    counts = any(
        isinstance(statement, Tilde) and statement.distribution in _COUNTS
        for statement in walk(model.statements)
    )
    return counts and not _branches(model.statements)


def _branches(statements: Sequence[Statement]) -> bool:
    """Tell whether a `~` stands where it may be left out."""
    for statement in walk(statements):
        if isinstance(statement, Simple) and statement.word in ("break", "continue"):
            return True
        if (
            isinstance(statement, Compound)
            and statement.word in ("if", "while")
            and any(isinstance(inner, Tilde) for inner in walk(statement.body))
        ):
            return True
    return False
