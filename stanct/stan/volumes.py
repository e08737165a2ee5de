"""The volume of a parameter's support, whose log a flat prior lacks."""

from __future__ import annotations

import math

from stanct.stan.arithmetic import constant
from stanct.stan.densities import Densities, one_line
from stanct.stan.supports import COMPACT
from stanct.stan.syntax import TypeSpec
from stanct.stan.truncations import operand, product


def volume(
    densities: Densities, name: str, spec: TypeSpec
) -> tuple[str | None, float | None, str | None]:
    """Return minus the log volume of a support, as code and number, and the uniform prior."""
    syntax, shapes = densities.syntax, densities.shapes
    text = syntax.text
    sizes = [text(size) for size in spec.array]
    if spec.base == "simplex":
        (size,) = map(text, spec.dims)
        each, remedy = f"lgamma({size})", f"{name} ~ dirichlet(rep_vector(1, {size}));"
        number = constant(size)
        value = math.lgamma(number) if number and number >= 1 else None
        return (
            product(sizes, each),
            _times(sizes, value),
            remedy if len(sizes) < 2 else None,
        )
    if spec.base == "unit_vector":
        (size,) = map(text, spec.dims)
        number = constant(size)
        short: dict[float, str] = {2: "-log(2 * pi())", 3: "-log(4 * pi())"}
        half = f"0.5 * {operand(size)}"
        each = short.get(number or 0, f"lgamma({half}) - log(2) - {half} * log(pi())")
        value = None
        if number and number >= 1:
            value = math.lgamma(number / 2) - math.log(2) - number / 2 * math.log(math.pi)
        plain = not sizes or (number or 0) in short
        whole = product(sizes, each if plain else f"({each})")
        return whole, _times(sizes, value), f"target += {whole};"
    if spec.base in COMPACT or spec.base == "tuple":
        return None, None, None
    low, high = spec.constraints["lower"], spec.constraints["upper"]
    if densities.roots(densities.names(low) | densities.names(high)):
        return None, None, None
    sizes += [text(size) for size in spec.dims]
    ends = one_line(syntax, low), one_line(syntax, high)
    numbers = [constant(end) for end in ends]
    scope = shapes.globals()
    shapes = [shapes.shape(bound, scope) for bound in (low, high)]
    remedy = f"{name} ~ uniform({ends[0]}, {ends[1]});" if len(sizes) < 2 else None
    if any(shape is None or shape.rank for shape in shapes):
        # Each element has its own bounds, which arrays of vectors would share.
        whole = len(sizes) == 1
        return (f"-sum(log({ends[1]} - {ends[0]}))" if whole else None), None, remedy
    value = None
    if None not in numbers:
        value = -math.log(max(numbers[1] - numbers[0], 5e-324))  # type: ignore[operator]
    length = f"{ends[1]} - {operand(ends[0])}"
    number = constant(length)
    each = f"-log({length if number is None else f'{number:g}'})"
    return product(sizes, each), _times(sizes, value), remedy


def _times(sizes: list[str], value: float | None) -> float | None:
    """Multiply a value by sizes; None if the value or a size is not a known number."""
    numbers = [constant(size) for size in sizes]
    if value == 0:
        return 0.0
    if value is None or None in numbers:
        return None
    return value * math.prod(number for number in numbers if number is not None)
