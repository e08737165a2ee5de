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
# Newton's steps have led to a mode if the squared length of the next one is less than this, in
# standard deviations of the curvature.
THERE = 1e-6
# Draws of all components at each of so many times their widths. Gaussians are the whole density if
# they differ from it by no more than this there, in nats and relative to log densities.
DRAWS, WIDTHS, EXACT = 100, (1.0, 3.0, 10.0, 30.0), (0.05, 1e-5)


def components(search: Counted, density: SampledDensity, rng: np.random.Generator) -> list[Optimum]:
    """The modes of the components, each alone, as far as ascents end at some.

    `search` pays for it, and says how far and how long ascents go. The last coordinate of the
    density, that of `ProgramTarget.one_component`, chooses the component.
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
        start = np.append(places[kept % PLACES], kept)
        if optimum := _followed(counted, density, start, root):
            found.append(optimum)
        if counted.spent > search.most:
            break
    search.spent += counted.spent
    search.evaluated += counted.evaluated
    return found


def _followed(
    counted: Counted, density: SampledDensity, start: Array, root: Array
) -> Optimum | None:
    """Where one component has its mode: Newton's step leads there if it is Gaussian."""
    there = _newton(counted, density, start)
    if there is None or not there[1]:
        end, value = counted.ascended(start, root)
        there = _newton(counted, density, end) if np.isfinite(value) else None
    return there and there[0]


def _newton(counted: Counted, density: SampledDensity, at: Array) -> tuple[Optimum, bool] | None:
    """Where two of Newton's steps end, by the curvature where they begin, and whether at a mode."""

    def gradients(points: Array) -> tuple[Array, Array]:
        counted.spent += len(points)
        x = np.insert(points, len(at) - 1, at[-1], axis=1)
        values, slopes = density.log_density_gradients(x)
        return values, slopes[:, :-1]

    place = at[:-1]
    precision = -hessian(gradients, place)
    (value,), (slope,) = gradients(place[None])
    if not (np.isfinite(precision).all() and np.isfinite(slope).all()):
        return None
    for _ in range(2):
        step = np.linalg.lstsq(precision, slope)[0]
        (new,), (its_slope,) = gradients((place + step)[None])
        if not new > value or np.abs(step).max() > counted.reach:
            break
        place, value, slope = place + step, new, its_slope
    left = float(slope @ np.linalg.lstsq(precision, slope)[0])
    return Optimum(place, float(value), precision, seen=0), 0 <= left < THERE


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
