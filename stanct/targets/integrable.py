"""Finds lines along which a density does not fall off, so that its integral has no end.

If the integral along lines of one direction is infinite for points of positive probability, the
integral over the whole space is infinite too (Tonelli). Lines through a few draws of a posterior
tell it: each is followed outwards, and every doubling of the distance must hold less mass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stanct.arrays import Array

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
# Draws that lines go through, dimensions in which they do, and directions that are no axis. The
# least effective number of draws.
THROUGH, MOST_DIMENSIONS, DIRECTIONS, FEWEST = 4, 300, 3, 10


def endless(
    log_densities: Callable[[Array], Array], names: Sequence[str], x: Array, log_weights: Array
) -> tuple[str, ...]:
    """Find along which lines a density's integral has no end.

    Parameters
    ----------
    log_densities
        Log densities of unconstrained points, shape (n, D).
    names
        Names of the D unconstrained coordinates.
    x : shape (n, D)
        Unconstrained draws.
    log_weights : shape (n,)
        Their log weights at the target.

    Returns
    -------
    The names of the coordinates that move most along these lines.
    """
    weighty = np.isfinite(log_weights)
    if not weighty.any() or x.shape[1] > MOST_DIMENSIONS:
        return ()
    x, weights = x[weighty], np.exp(log_weights[weighty] - log_weights[weighty].max())
    weights /= weights.sum()
    if np.square(weights).sum() * FEWEST > 1:  # a few draws have no width
        return ()
    steps = _directions(x, weights)
    places = np.searchsorted(np.cumsum(weights), (np.arange(THROUGH) + 0.5) / THROUGH)
    starts = x[np.minimum(places, len(x) - 1)]
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
    blamed: list[int] = []
    for line in np.flatnonzero(alive):
        start, step = lines[line]
        if _has_no_end(log_densities, start, step):
            blamed.append(int(np.argmax(np.abs(step))))
    return tuple(dict.fromkeys(names[axis] for axis in blamed))


def _directions(x: Array, weights: Array) -> Array:
    """Steps of one standard deviation along axes and along the longest directions, both ways."""
    centred = (x - weights @ x) * np.sqrt(weights)[:, None]
    deviations = np.sqrt(np.square(centred).sum(axis=0))
    steps = [np.diag(deviations)]
    if x.shape[1] > 1 and np.isfinite(centred).all():
        scaled = centred / np.maximum(deviations, 1e-300)
        _, lengths, axes = np.linalg.svd(scaled, full_matrices=False)
        steps.append((axes * lengths[:, None])[:DIRECTIONS] * deviations)
    both = np.concatenate(steps)
    both = both[np.abs(both).max(axis=1) > 0]
    return np.concatenate([both, -both])


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
        return bool(flat)
    inside, outside = DISTANCES[end - 1], DISTANCES[end]
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if np.isfinite(log_densities((start + middle * step)[None])[0]):
            inside = middle
        else:
            outside = middle
    edge = (start + inside * step)[step != 0]
    return bool((np.abs(edge[:, None] - LIMITS) < NEAR).any())
