"""Transformed data with loops, computed once for all handles of a program.

The engine interprets such loops, at some 10 to 30 µs an iteration, whenever a handle is made, and a
run makes several. A loop over all pairs of places, as for the covariance of a spatial model, then
takes minutes each time. The values that one handle computed are data for all others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stanct.common.arrays import Array
from stanct.engines.embedded import Recipe
from stanct.stan.nodes import Compound, Declare
from stanct.stan.program import Program
from stanct.stan.syntax import parsed, walk
from stanct.targets.data import StanData
from stanct.targets.density import tried

# Seconds that a handle may take without its loops being worth a text of their values.
QUICK = 0.5
# The most numbers that become text: 100 MB of it.
MOST_NUMBERS = 5_000_000

_TYPES = {"int", "real", "vector", "row_vector", "matrix"}


@dataclass(frozen=True)
class Computed:
    """Turns transformed data of recipes into data; a target takes it along to workers.

    The user's data with the values, None to change nothing, and the declarations of the values.
    """

    data: str | None = None
    declarations: str = ""

    def __call__(self, recipe: Recipe) -> Recipe:
        """The recipe with the values as data."""
        if self.data is None:
            return recipe
        return replace(recipe, source=_as_data(recipe.source, self.declarations), data=self.data)


def computed_once(program: Program, data: StanData, prefix: str) -> Computed:
    """What turns transformed data of recipes, made from a program with these data, into data.

    It changes nothing where the transformed data are quickly computed, are random or no plain
    numbers, or where Stan rejects them. No name in the program begins with the prefix.
    """
    syntax = program.syntax
    declared = [one for one in syntax.statements("transformed data") if isinstance(one, Declare)]
    plain = all(one.type.base in _TYPES for one in declared)
    slow = bool(declared) and plain and _has_loops(program) and _random(program) is None
    values = _values(program, declared, data, prefix) if slow else None
    if values is None:
        return Computed()
    declarations = " ".join(
        f"{syntax.declared_type(one.type)} {syntax.word(name)};"
        for one in declared
        for name, _ in one.names
    )
    return Computed(data.extended(values), declarations)


def refuse_random_data(program: Program) -> None:
    """Raise an error if a program's transformed data are random.

    The engine draws them again for every seed, and every chain and block has its own seed.
    """
    token = _random(program)
    if token is not None:
        word = program.syntax.word(token)
        raise program.syntax.error(
            token,
            f"`{word}` makes the transformed data random, so every chain would have data of "
            "its own.",
            "Draw the numbers once, outside the program, and pass them as data.",
        )


def _random(program: Program) -> int | None:
    """Token of the function that makes a program's transformed data random, if one does."""
    syntax = program.syntax
    tokens = range(*syntax.block_range("transformed data"))
    return next((token for token in tokens if syntax.word(token).endswith("_rng")), None)


def _has_loops(program: Program) -> bool:
    """Whether transformed data have loops, or may call functions that have."""
    syntax = program.syntax
    bodies = [function.body for function in syntax.functions]
    statements = walk([*syntax.statements("transformed data"), *bodies])
    return any(isinstance(one, Compound) and one.word in ("for", "while") for one in statements)


def _values(
    program: Program, declared: list[Declare], data: StanData, prefix: str
) -> Mapping[str, Array] | None:
    """The transformed data by name; None where a text of them is not worth while."""
    syntax, lines, integers = program.syntax, list[str](), dict[str, bool]()
    for one in declared:
        for token, _ in one.names:
            name = syntax.word(token)
            lines.append(f"  {syntax.declared_type(one.type)} {prefix}{name} = {name};")
            integers[name] = one.type.base == "int"
    at = f"parameters {{ real {prefix}; }}"
    text = "\n".join([syntax.before_parameters, at, "generated quantities {", *lines, "}", ""])
    began = time.perf_counter()
    density = tried(Recipe(text, data.text))
    if density is None:
        return None  # what is wrong with the data is another error's concern
    if time.perf_counter() - began < QUICK or density.numbers > MOST_NUMBERS:
        return None
    found = {
        name.removeprefix(prefix): values[0]
        for name, values in density.variables(np.zeros((1, 1)), seed=1).items()
        if name != prefix
    }
    if found.keys() != integers.keys() or not all(np.isfinite(a).all() for a in found.values()):
        return None  # containers without elements have no text, and what is not finite may lose it
    return {name: array.astype(int) if integers[name] else array for name, array in found.items()}


def _as_data(source: str, declarations: str) -> str:
    """The program with declarations as data in place of transformed data; no line moves."""
    syntax = parsed(source)
    made, given = syntax.blocks["transformed data"], syntax.blocks.get("data")
    start, end = syntax.start(made.keyword), syntax.tokens[made.closing].end
    lines = "\n" * source.count("\n", start, end)
    if given is None:
        return f"{source[:start]}data {{ {declarations} }}{lines}{source[end:]}"
    inside = syntax.tokens[given.closing].start
    return f"{source[:inside]} {declarations} {source[inside:start]}{lines}{source[end:]}"
