"""The components of mixtures that a program names, one ascent for each.

An ascent ends at the mode that dominates where it starts. In many dimensions a narrow one dominates
hardly anywhere, whatever its mass: of two normals in twenty dimensions, the one that is half as
wide is met by one direction in five million. A program that names its components tells of all of
them. Where they are Gaussian and all there is, they need no further search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stanct.bases.ascents import Counted, Optimum, each_height, log_heights
from stanct.bases.local import LocalFit
from stanct.bases.score import unexplained
from stanct.bases.starts import RADII
from stanct.common.arrays import Array
from stanct.path.curvature import hessian
from stanct.targets.protocols import SampledDensity

# The most components that are followed, and the places that tell how many there are: beyond the
# last one, the density stays the same.
MOST, PLACES = 250, 3
# Draws of all components at each of so many times their widths. Gaussians are the whole density if
# they differ from it by no more than this there, in nats and relative to log densities.
DRAWS, WIDTHS, EXACT = 100, (1.0, 3.0, 10.0, 30.0), (0.05, 1e-5)


def components(search: Counted, density: SampledDensity, rng: np.random.Generator) -> list[Optimum]:
    """The modes of the components, each alone, as far as ascents end at some.

    Parameters
    ----------
    search
        Pays for it, and says how far and how long ascents go.
    density
        That of one component, `ProgramTarget.one_component`. Its last coordinate chooses it.
    """
    dimension, counted = density.dimension - 1, Counted(density, reach=search.reach)
    places, before = rng.uniform(-1, 1, (PLACES, dimension)) * RADII[0], None
    # Steps are z, x = start + R z, and R is zero where the coordinate stays.
    root, found = np.append(np.ones(dimension), 0.0)[None], list[Optimum]()
    for kept in range(1, MOST + 1):
        values = counted.log_densities(np.insert(places, dimension, kept, axis=1))
        if before is not None and np.array_equal(values, before):
            break
        before = values
        end, value = counted.ascended(np.append(places[kept % PLACES], kept), root)
        if np.isfinite(value):
            found.append(_optimum(counted, density, end))
        if counted.spent > search.most:
            break
    search.spent += counted.spent
    search.evaluated += counted.evaluated
    return found


def _optimum(counted: Counted, density: SampledDensity, end: Array) -> Optimum:
    """The end of an ascent with its curvature, a Newton step further."""

    def gradients(points: Array) -> tuple[Array, Array]:
        counted.spent += len(points)
        x = np.insert(points, len(end) - 1, end[-1], axis=1)
        values, slopes = density.log_density_gradients(x)
        return values, slopes[:, :-1]

    place = end[:-1]
    precision = -hessian(gradients, place)
    (value,), (slope,) = gradients(place[None])
    with np.errstate(all="ignore"):
        step = np.linalg.lstsq(precision, slope)[0] if np.isfinite(precision).all() else 0.0
    (there,), _ = gradients((place + step)[None])
    return Optimum(*((place + step, there) if there > value else (place, value)), precision, seen=0)


def are_all(counted: Counted, own: Sequence[Optimum], rng: np.random.Generator) -> bool:
    """Whether the Gaussians of components are the whole density, wherever draws tell."""
    if not own or any(_is_flat(one) for one in own):
        return False
    places = np.concatenate([np.tile(one.place, (-(-DRAWS // len(own)), 1)) for one in own])
    noise = rng.standard_normal((len(own), len(places) // len(own), places.shape[1]))
    offset = np.concatenate([z @ one.root.T for z, one in zip(noise, own, strict=True)])
    x = np.concatenate([places + width * offset for width in WIDTHS])
    values, heights = counted.log_densities(x), log_heights(own, x)
    return bool(np.all(np.abs(values - heights) <= EXACT[0] + EXACT[1] * np.abs(heights)))


def _is_flat(one: Optimum) -> bool:
    return not np.isfinite(one.precision).all() or np.linalg.eigvalsh(one.precision)[0] <= 0


def explain(own: Sequence[Optimum], found: Sequence[Optimum]) -> bool:
    """Whether components explain all ends of ascents. Then these count as ends at components."""
    if not found:
        return True
    places = np.array([one.place for one in found])
    heights = each_height(own, places)
    values = np.array([one.value for one in found])
    if unexplained(values, log_heights(own, places)).any():
        return False
    for one, k in zip(found, heights.argmax(axis=0), strict=True):
        own[k].seen += one.seen
    return True


def around(
    counted: Counted, own: Sequence[Optimum], fits: Sequence[LocalFit]
) -> tuple[LocalFit, ...]:
    """Fits of components, of which those are around a mode from where an ascent ends at another."""
    told = []
    for fit in fits:
        one = min(own, key=lambda known: float(np.square(known.place - fit.mean).sum()))
        end, _ = counted.ascended(one.place, one.root)
        nearest = own[int(each_height(own, end[None])[:, 0].argmax())]
        told.append(replace(fit, around=nearest is not one))
    return tuple(told)
