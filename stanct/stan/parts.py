"""Priors of single elements: which elements have none, and which priors count several times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stanct.stan.densities import Densities, Density, one_line
from stanct.stan.nodes import Range, TypeSpec
from stanct.stan.own_constants import OwnConstants

_TYPES = frozenset({"real", "vector", "row_vector", "matrix", "ordered", "positive_ordered"})


@dataclass(frozen=True)
class Part:
    """The elements a, ..., b of a parameter with a prior; the end is None where it is unknown."""

    density: Density
    first: int
    last: int | None


def parts_of(
    seen: Densities, numbers: OwnConstants, name: str, spec: TypeSpec
) -> list[Part] | None:
    """The parts of a parameter that densities name by their first index.

    None where a density is of all of it, or of something else that is made of it.
    """
    if spec.base not in _TYPES or name in seen.by_hand | seen.in_bounds:
        return None
    found: list[Part] = []
    for density in seen.found:
        if name in seen.roots_in(density.variate):
            part = _part(seen, numbers, name, density)
            if part is None:
                return None
            found.append(part)
    return found


def without_prior(numbers: OwnConstants, spec: TypeSpec, parts: list[Part]) -> int | None:
    """The first element that no part has; None where every one has a prior, or may have."""
    size = numbers.whole([*spec.array, *spec.dims][0]) if spec.array or spec.dims else None
    place = 1
    while size is None or place <= size:
        ends = [one.last for one in parts if one.first <= place <= (one.last or place)]
        if not ends:
            return place
        if size is None or None in ends:
            return None
        place = max(end for end in ends if end is not None) + 1
    return None


def repeated(seen: Densities) -> Iterator[tuple[Density, str]]:
    """Yield the priors of whole parameters that run several times without any change."""
    for density in seen.found:
        name = seen.syntax.word(density.variate.first)
        loops = {seen.syntax.loop_variable(one) for one in density.inside if one.word == "for"}
        words = {*seen.syntax.words(density.variate)}.union(
            *(seen.syntax.words(argument) for argument in density.arguments)
        )
        is_whole = density.variate.is_one
        if (
            is_whole
            and name in seen.parameters
            and density.added
            and loops - words == loops != set()
        ):
            yield density, name


def _part(seen: Densities, numbers: OwnConstants, name: str, density: Density) -> Part | None:
    syntax, inside = seen.syntax, seen.syntax.index(density.variate)
    if syntax.word(density.variate.first) != name or inside is None:
        return None
    index = next(iter(syntax.split(inside)))
    for loop in density.inside:
        if loop.word == "for" and syntax.loop_variable(loop) == one_line(syntax, index):
            ends = syntax.loop_ends(loop)
            return _between(numbers, density, ends) if len(ends) == 2 else None
    ends = syntax.split(index, ":")
    if len(ends) == 2:
        return _between(numbers, density, ends)
    place = numbers.whole(index)
    return None if place is None else Part(density, place, place)


def _between(numbers: OwnConstants, density: Density, ends: list[Range]) -> Part | None:
    empty = [end.first == end.stop for end in ends]
    first = 1 if empty[0] else numbers.whole(ends[0])
    last = None if empty[1] else numbers.whole(ends[1])
    return None if first is None else Part(density, first, last)
