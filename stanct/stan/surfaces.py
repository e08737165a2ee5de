"""Priors that are densities of all vectors, and not of those on the surface of their parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from stanct.stan.arithmetic import constant
from stanct.stan.densities import Densities, Density, one_line
from stanct.stan.nodes import Assign, Increment

# Types whose values fill a surface, and the densities on it that Stan has.
_SURFACES: dict[str, tuple[str, str]] = {
    "unit_vector": ("vectors of length one", ""),
    "sum_to_zero_vector": ("vectors that sum to zero", ""),
    "sum_to_zero_matrix": ("matrices whose rows and columns sum to zero", ""),
    "simplex": ("simplexes", "dirichlet"),
}


def on_surfaces(seen: Densities) -> Iterator[tuple[Density, str, str, dict[str, Any]]]:
    """Yield such priors: density, parameter, what is left out, and what is known of it.

    See `omissions.Omission`.
    """
    syntax, program = seen.syntax, seen.program
    types = {name: spec.base for name, spec in program.parameter_types.items()}
    added = [
        one_line(syntax, one.value)
        for one in program.statements("transformed parameters", "model")
        if isinstance(one, Increment | Assign) and seen.sum_of(one)
    ]
    for density in seen.found:
        name = syntax.word(density.variate.first)
        values, own = _SURFACES.get(types.get(name, ""), ("", ""))
        whole = density.variate.stop - density.variate.first in (1, 4)
        if values and whole and density.added and density.family != own:
            factor, more = _among_sums_of_zero(seen, density, types[name])
            if more and any(more["term"] in text for text in added):
                continue
            more.pop("term", None)
            said = (
                f"`{name}` has {values} alone, and {density.family} is a density of all: "
                f"it is not normalised there, and {factor}."
            )
            yield density, name, said, more


def _among_sums_of_zero(seen: Densities, density: Density, base: str) -> tuple[str, dict[str, Any]]:
    """What a normal density lacks among vectors that sum to zero: √(2π) times its scale."""
    text = seen.syntax.text
    bare = density.variate.is_one
    shapes = [seen.shapes.shape(one, density.scope) for one in density.arguments]
    alike = all(shape is not None and shape.rank == 0 for shape in shapes)
    centred = density.family == "std_normal" or (
        density.family == "normal" and constant(text(density.arguments[0])) == 0
    )
    if base != "sum_to_zero_vector" or not (bare and alike and centred) or density.inside:
        return "its constant is not known", {}
    scales = density.arguments[1:]
    half = "0.5 * log(2 * pi())"
    term = " + ".join([half, *(f"log({text(scale)})" for scale in scales)])
    total = seen.sum_of(density.statement) or "target"
    remedy = f"{one_line(seen.syntax, density.statement.tokens)} {total} += {term};"
    roots = seen.roots_in(*scales)
    if roots:
        said = f"the missing factor depends on {', '.join(sorted(roots))}, so that the posterior"
        return f"{said} changes, too", {"term": term, "remedy": remedy}
    numbers = [constant(text(scale)) for scale in scales]
    value = 0.5 * math.log(2 * math.pi)
    if None not in numbers:
        value += sum(math.log(number) for number in numbers if number and number > 0)
        said = f"log Z is too {'small' if value > 0 else 'large'} by {abs(value):.4f}"
        return said, {"term": term, "correction": term, "value": value, "remedy": remedy}
    return "log Z is off by a constant", {"term": term, "correction": term, "remedy": remedy}
