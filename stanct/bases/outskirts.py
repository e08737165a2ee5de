"""Points far from the known modes that stand out among those equally far.

The tails of a heavy-tailed mode rise above those of lighter ones everywhere but in a ball around
them. Ascents from outside of that ball end in the heavy-tailed mode, although the others may carry
most of the mass. Log densities without gradients are cheap. Of many, those far above what is usual
at their distance from the nearest mode may lie in such a ball.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stanct.common.arrays import Array
from stanct.path.gaussian import GaussianBase

# Standard deviations of the normals from which points are drawn: of the modes, and around the
# origin of the unconstrained space.
OF_MODES, AROUND_ORIGIN = (4.0, 8.0, 16.0, 32.0), (2.0, 4.0, 8.0, 16.0)
# Points that tell what is usual at a distance, at most.
WINDOW, STRIDE = 101, 10


def outskirts(
    modes: Sequence[GaussianBase], count: int, reach: float, rng: np.random.Generator
) -> Array:
    """Draw points around the modes and around the origin, half of each, shape (n, D).

    Parameters
    ----------
    reach
        How far from its centre, in any coordinate, a point lies at most.
    """
    dimension = modes[0].dimension
    around = [sd for sd in AROUND_ORIGIN if 2 * sd <= reach] or [reach / 2]
    centre, unit = np.zeros(dimension), np.eye(dimension)
    each = max(1, count // (2 * len(OF_MODES) * len(modes)))
    points = [
        one.mean + _within(reach, sd * one.draw(rng, each) @ one.scale.T)
        for one in modes
        for sd in OF_MODES
    ]
    each = max(1, count // (2 * len(around)))
    base = GaussianBase(centre, unit)
    points += [_within(reach, sd * base.draw(rng, each)) for sd in around]
    return np.concatenate(points)


def _within(reach: float, offsets: Array) -> Array:
    return offsets[np.abs(offsets).max(axis=1) <= reach]


def standing_out(
    modes: Sequence[GaussianBase], points: Array, log_density: Array, count: int
) -> Array:
    """Indices of the points that stand out most among those equally far from the nearest mode.

    Half of them exceed the median log density there by most nats, and half by most of the spread.
    """
    distances = np.array([np.square(one.whiten(points)).sum(axis=1) for one in modes])
    nearest, known = distances.argmin(axis=0), np.isfinite(log_density)
    excess, score = np.full(len(points), -np.inf), np.full(len(points), -np.inf)
    for mode in range(len(modes)):
        mine = np.flatnonzero(known & (nearest == mode))
        if len(mine) < WINDOW:
            continue
        mine = mine[np.argsort(distances[mode, mine])]
        with np.errstate(over="ignore", invalid="ignore"):  # of log densities such as −10³⁰⁸
            above = log_density[mine] - _medians(log_density[mine])
            spread = _medians(np.abs(above))
            excess[mine] = above
            score[mine] = above / np.maximum(spread, 1e-3)
    first = np.argsort(-excess)[: count // 2]
    second = np.argsort(-score)[: count - len(first)]
    chosen = np.unique(np.concatenate([first, second]))
    return chosen[excess[chosen] > 0]


def _medians(values: Array) -> Array:
    """Medians of the `WINDOW` values around each, shape (n,), between every `STRIDE` by a line."""
    windows = sliding_window_view(np.pad(values, WINDOW // 2, mode="edge"), WINDOW)[::STRIDE]
    places = np.arange(len(values))
    return np.interp(places, places[::STRIDE], np.median(windows, axis=1))
