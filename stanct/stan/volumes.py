"""The volume of a parameter's support, whose log a flat prior lacks."""

from __future__ import annotations

import math

from stanct.stan.arithmetic import constant
from stanct.stan.densities import Densities, one_line
from stanct.stan.nodes import TypeSpec
from stanct.stan.supports import COMPACT
from stanct.stan.truncations import operand, product

Volume = tuple[str | None, float | None, str | None]


def volume(densities: Densities, name: str, spec: TypeSpec) -> Volume:
    """Return minus the log volume of a support, as code and number, and the uniform prior."""
    sizes = [densities.syntax.text(size) for size in spec.array]
    if spec.base in ("simplex", "unit_vector"):
        size = densities.syntax.text(spec.dims[0])
        number = constant(size) or 0
        if spec.base == "simplex":
            value = math.lgamma(number) if number >= 1 else None
            remedy = f"{name} ~ dirichlet(rep_vector(1, {size}));" if len(sizes) < 2 else None
            return product(sizes, f"lgamma({size})"), _times(sizes, value), remedy
        short: dict[float, str] = {2: "-log(2 * pi())", 3: "-log(4 * pi())"}
        half = f"0.5 * {operand(size)}"
        each = short.get(number, f"lgamma({half}) - log(2) - {half} * log(pi())")
        value = None
        if number >= 1:
            value = math.lgamma(number / 2) - math.log(2) - number / 2 * math.log(math.pi)
        whole = product(sizes, each if not sizes or number in short else f"({each})")
        return whole, _times(sizes, value), f"target += {whole};"
    if spec.base in COMPACT or spec.base == "tuple":
        return None, None, None
    return _between_bounds(densities, name, spec)


def _between_bounds(densities: Densities, name: str, spec: TypeSpec) -> Volume:
    syntax, bounds = densities.syntax, (spec.constraints["lower"], spec.constraints["upper"])
    if any(densities.roots_in(bound) for bound in bounds):
        return None, None, None
    sizes = [syntax.text(size) for size in (*spec.array, *spec.dims)]
    low, high = (one_line(syntax, bound) for bound in bounds)
    remedy = f"{name} ~ uniform({low}, {high});" if len(sizes) < 2 else None
    shapes = [densities.shapes.shape(bound, densities.shapes.globals()) for bound in bounds]
    if any(shape is None or shape.rank for shape in shapes):
        # Each element has its own bounds, which arrays of vectors would share.
        return f"-sum(log({high} - {low}))" if len(sizes) == 1 else None, None, remedy
    length = f"{high} - {operand(low)}"
    number = constant(length)
    each = f"-log({length if number is None else f'{number:g}'})"
    value = None if number is None else -math.log(max(number, 5e-324))
    return product(sizes, each), _times(sizes, value), remedy


def _times(sizes: list[str], value: float | None) -> float | None:
    """Multiply a value by sizes; None if the value or a size is not a known number."""
    numbers = [constant(size) for size in sizes]
    if value == 0:
        return 0.0
    if value is None or None in numbers:
        return None
    return value * math.prod(number for number in numbers if number is not None)
