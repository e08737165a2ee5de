"""Finds lines along which a density does not fall off, so that its integral has no end.

If the integral along lines of one direction is infinite for points of positive probability, the
integral over the whole space is infinite too (Tonelli). Lines through a few draws of a posterior
tell it: each is followed outwards, and every doubling of the distance must hold less mass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.targets.density import Density

# Distances from a draw in standard deviations, two for each doubling.
DISTANCES = np.geomspace(2.0**-4, 2.0**20, 49)
# So many doublings at the end of a line must each hold at least this share of the mass of the one
# before, and the last of them this share of what the largest holds.
DOUBLINGS, KEEPS, MATTERS = 5, 0.97, 1e-6
# Before a line is followed: the density must not be lower at these places by so many nats.
LOOKS, DROP = (20, 36), 18.0
# Where exp(x) and exp(2 x) overflow, and where they underflow to zero. A line that ends there would
# go on with more digits; any other end is that of the support.
LIMITS, NEAR, HALVINGS = np.array([709.78, -745.13, 354.89, -372.57]), 0.5, 30
# Draws that lines go through, dimensions in which they do, and the least effective number of draws.
THROUGH, MOST_DIMENSIONS, FEWEST = 4, 300, 10
# Directions that are no axis: how many, in how many dimensions, how large a part of a gradient may
# be along them, gradients for each dimension, and the longest step: longer ones are not exact.
DIRECTIONS, MOST_CURVED, FLAT, GRADIENTS, LONGEST = 3, 100, 1e-8, 4, 1e3
# Distances at which the mass must not be lower than where a line ends. Farther out, the rounding
# of a direction leaves a narrow ridge.
FARTHER = 2.0 ** np.array([30, 37, 44])
# A coordinate moves along a line if it moves this far relative to the one that moves most.
SHARED = 0.3
# Rays go to so many of the draws that are farthest from the middle, none of them nearly along
# another. Chains in a cone without an end drift along it.
RAYS, ALIKE = 4, 0.99


class Endless(NamedTuple):
    """Where a density's integral has no end.

    Attributes
    ----------
    along
        Names of the coordinates that move along lines without an end.
    gradients, evaluations
        Gradients, and log densities, that were computed.
    """

    along: tuple[str, ...] = ()
    gradients: int = 0
    evaluations: int = 0


def endless(
    density: Density,
    names: Sequence[str],
    x: Array,
    log_weights: Array,
    *,
    by_gradients: bool = True,
) -> Endless:
    """Find along which lines a density's integral has no end.

    Parameters
    ----------
    density
        The density, in the unconstrained space.
    names
        Names of its D coordinates.
    x : shape (n, D)
        Unconstrained draws.
    log_weights : shape (n,)
        Their log weights at the target.
    by_gradients
        Whether lines also go where gradients say that the density is flat.
    """
    weighty = np.isfinite(log_weights)
    if not weighty.any() or x.shape[1] > MOST_DIMENSIONS:
        return Endless()
    x, weights = x[weighty], np.exp(log_weights[weighty] - log_weights[weighty].max())
    weights /= weights.sum()
    few = np.square(weights).sum() * FEWEST > 1  # and have no width
    wide = np.full(len(x), 1 / len(x)) if few else weights
    log_densities = density.log_densities
    places = np.searchsorted(np.cumsum(weights), (np.arange(THROUGH) + 0.5) / THROUGH)
    starts = x[np.minimum(places, len(x) - 1)]
    steps, gradients = _directions(density if by_gradients else None, x, wide)
    if not len(steps):  # all draws are one point
        return Endless()
    # Along a ray, coordinates move in their own units.
    rays, deviations = _rays(x[weights > 0])
    units = np.concatenate([np.ones_like(steps), np.broadcast_to(deviations, rays.shape)])
    steps = np.concatenate([steps, rays])
    lines = [(start, step) for start in starts for step in steps]
    looks = np.array([s + DISTANCES[k] * d for s, d in lines for k in LOOKS])
    found = log_densities(np.concatenate([starts, looks])).reshape(-1)
    tops = np.repeat(found[: len(starts)], len(steps))
    seen = found[len(starts) :].reshape(-1, len(LOOKS))
    seen += np.log(DISTANCES[list(LOOKS)])
    # Where exp overflows, the density may vanish at the second place of a line without an end.
    high = np.where(np.isfinite(seen), seen, -np.inf) > tops[:, None] - DROP
    vanishes = ~np.isfinite(seen)
    alive = (high | vanishes).all(axis=1)
    spent = found.size
    blamed = np.zeros(x.shape[1], bool)
    is_ray = np.arange(len(lines)) % len(steps) >= len(steps) - len(rays)
    # Rays name whatever moves along them, and so come last.
    for line in np.concatenate([np.flatnonzero(alive & ~is_ray), np.flatnonzero(alive & is_ray)]):
        if is_ray[line] and blamed.any():
            break
        start, step = lines[int(line)]
        spent += len(DISTANCES)
        if _has_no_end(log_densities, start, step):
            moved = np.abs(step) / units[int(line) % len(steps)]
            blamed |= moved >= SHARED * moved.max()
    along = tuple(names[int(axis)] for axis in np.flatnonzero(blamed))
    return Endless(along, gradients, spent)


def _directions(density: Density | None, x: Array, weights: Array) -> tuple[Array, int]:
    """Steps of a standard deviation both ways, along axes and flat directions; gradients spent."""
    centred = (x - weights @ x) * np.sqrt(weights)[:, None]
    deviations = np.sqrt(np.square(centred).sum(axis=0))
    steps, spent = np.diag(deviations), 0
    if density is not None and 1 < x.shape[1] <= MOST_CURVED and deviations.all():
        rows = x[:: -(-len(x) // (GRADIENTS * x.shape[1]))]
        flat, spent = _flattest(density, rows, deviations), len(rows)
        lengths = np.sqrt(np.square(centred @ flat.T).sum(axis=0))
        steps = np.concatenate([steps, flat * np.minimum(lengths, LONGEST)[:, None]])
    steps = steps[np.abs(steps).max(axis=1) > 0]
    return np.concatenate([steps, -steps]), spent


def _ends_far_away(
    log_densities: Callable[[Array], Array], start: Array, step: Array, mass: float
) -> bool:
    """Whether the mass falls off beyond all distances of lines, as by a very wide prior.

    Draws may have come but a small part of the way. Where exp overflows, nothing is told.
    """
    found = log_densities(start + FARTHER[:, None] * step) + np.log(FARTHER)
    return bool((found[np.isfinite(found)] < mass - DROP).any())


def _rays(x: Array) -> tuple[Array, Array]:
    """Steps of a deviation towards the farthest draws, and the deviations of the coordinates."""
    middle = np.median(x, axis=0)
    deviations = np.median(np.abs(x - middle), axis=0)
    if x.shape[1] < 2 or not deviations.all():
        return np.empty((0, x.shape[1])), deviations
    scaled = (x - middle) / deviations
    lengths = np.linalg.norm(scaled, axis=1)
    found: list[Array] = []
    for place in np.argsort(-lengths)[: 10 * RAYS]:
        ray = scaled[place] / lengths[place]
        if all(ray @ other < ALIKE for other in found):
            found.append(ray)
    return np.array(found[:RAYS]) * deviations, deviations


def _flattest(density: Density, rows: Array, deviations: Array) -> Array:
    """Unit vectors along which no gradient at draws has a part, shape (n, D).

    Where parameters enter a density by their sums and differences alone, all gradients are
    orthogonal to the same directions.
    """
    dimension = rows.shape[1]
    with np.errstate(all="ignore"):
        scaled = np.array([density.log_density_gradient(row)[1] for row in rows]) * deviations
        lengths = np.linalg.norm(scaled, axis=1)
    sound = np.isfinite(lengths) & (lengths > 0)
    if sound.sum() < 2 * dimension:
        return np.empty((0, dimension))
    _, values, vectors = np.linalg.svd(scaled[sound] / lengths[sound, None], full_matrices=False)
    found = vectors[values < FLAT * values[0]][:DIRECTIONS] * deviations
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def _has_no_end(log_densities: Callable[[Array], Array], start: Array, step: Array) -> bool:
    """Whether the mass along a line does not fall off."""
    found = log_densities(start + DISTANCES[:, None] * step)
    finite = np.isfinite(found)
    end = len(finite) if finite.all() else int(np.argmin(finite))
    if end <= 2 * DOUBLINGS:
        return False
    mass = (found + np.log(DISTANCES))[:end]
    last = mass[-2 * DOUBLINGS - 1 :]
    kept = last[2:] - last[:-2]
    flat = (kept > np.log(KEEPS)).all() and last[-1] > mass.max() + np.log(MATTERS)
    if not flat or end == len(finite):
        return bool(flat) and not _ends_far_away(log_densities, start, step, float(mass[-1]))
    inside, outside = DISTANCES[end - 1], DISTANCES[end]
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if np.isfinite(log_densities((start + middle * step)[None])[0]):
            inside = middle
        else:
            outside = middle
    edge = (start + inside * step)[step != 0]
    return bool((np.abs(edge[:, None] - LIMITS) < NEAR).any())
