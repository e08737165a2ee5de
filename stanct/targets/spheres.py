"""The areas of the spheres on which a program's unit vectors lie.

Stan gives the unconstrained y of a unit vector with n elements the factor exp(−½ |y|²). Its
integral is (2π)^{n/2}, and not the sphere's area 2 π^{n/2} / Γ(n/2), but for n = 2. The ratio
of the two is added to every log density, so that log Z is an integral over the sphere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stanct.stan.program import Program
from stanct.targets.density import Density


def unit_vectors(program: Program, names: Sequence[str]) -> list[list[int]]:
    """Positions of each unit vector among the names of the unconstrained coordinates."""
    known = {one.name for one in program.parameters if one.type == "unit_vector"}
    groups: dict[str, list[int]] = {}
    for position, flat in enumerate(names):
        name, *index = flat.split(".")
        if name in known:
            groups.setdefault(".".join([name, *index[:-1]]), []).append(position)
    return list(groups.values())


def with_areas(density: Density, program: Program) -> Density:
    """The density of a program that declares its unit vectors, as one on their spheres."""
    sizes = [len(one) for one in unit_vectors(program, density.unconstrained_names)]
    added = sum((1 - n / 2) * math.log(2) - math.lgamma(n / 2) for n in sizes)
    if not added:
        return density
    return density.with_constant(density.constant + added)
