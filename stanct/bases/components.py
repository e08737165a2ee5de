"""Starts of ascents from the components of mixtures that a program names.

An ascent ends at the mode that dominates where it starts. In many dimensions a narrow one dominates
hardly anywhere, whatever its mass: of two normals in twenty dimensions, the one that is half as
wide is met by one direction in five million. A program that names its components tells of all of
them, one ascent each.
"""

from __future__ import annotations

import numpy as np

from stanct.bases.ascents import Counted
from stanct.bases.starts import RADII
from stanct.common.arrays import Array
from stanct.targets.protocols import SampledDensity

# The most components that are followed, and the places that tell how many there are: beyond the
# last one, the density stays the same.
MOST, PLACES = 250, 3


def component_ends(
    search: Counted, density: SampledDensity, rng: np.random.Generator
) -> list[Array]:
    """Where ascents end that see one component of the program's mixtures each.

    Parameters
    ----------
    search
        Pays for it, and says how far and how long ascents go.
    density
        That of one component, `ProgramTarget.one_component`. Its last coordinate chooses it.
    """
    dimension, counted = density.dimension - 1, Counted(density, reach=search.reach)
    ends = list[Array]()
    places, before = rng.uniform(-1, 1, (PLACES, dimension)) * RADII[0], None
    # Steps are z, x = start + R z, and R is zero where the coordinate stays.
    root = np.append(np.ones(dimension), 0.0)[None]
    for kept in range(1, MOST + 1):
        values = counted.log_densities(np.insert(places, dimension, kept, axis=1))
        if before is not None and np.array_equal(values, before):
            break
        before = values
        end, value = counted.ascended(np.append(places[kept % PLACES], kept), root)
        if np.isfinite(value):
            ends.append(end[:-1])
        if counted.spent > search.most:
            break
    search.spent += counted.spent
    search.evaluated += counted.evaluated
    return ends
