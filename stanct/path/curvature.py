"""Second derivatives by differences of gradients, along few directions where most of them are zero.

Coordinates of one colour move at once, so that each change of a slope is the work of one of them
(Curtis, Powell & Reid 1974). The matrix is symmetric, so that an element may be read from its row
or from its column, which takes fewer colours (Powell & Toint 1979, Coleman & Moré 1984). An arrow
takes two, and a chain three, however long they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array

# Where a larger share of the elements may be other than zero, colours hardly spare a gradient. What
# is coupled with a larger share of all coordinates may have a colour for itself.
FILLED, HUB = 0.5, 0.25

# The step of differences of gradients, in units of each coordinate.
STEP = 1e-3

Gradients = Callable[[Array], tuple[Array, Array]]


class Colouring(NamedTuple):
    """Which of n coordinates move at once, and where second derivatives are read.

    `colours`, shape (n,), count from 0. Row j of `shares`, shape (n, n), has the shares with which
    the change of slope i, where the colour of j moves, is element (i, j): 0 where others of that
    colour change it too.
    """

    colours: Array
    shares: Array

    @classmethod
    def of(cls, coupled: Array) -> Colouring:
        """The colouring for matrices, zero where not `coupled`, (n, n), by a greedy search."""
        coupled = coupled | coupled.T | np.eye(len(coupled), dtype=bool)
        if coupled.mean() > FILLED:
            return cls.dense(len(coupled))
        hubs = int((coupled.mean(axis=0) > HUB).sum())
        colours = min((_star(coupled, alone) for alone in (0, hubs)), key=np.max)
        alike = colours[:, None] == colours
        # Whether j alone of its colour changes the slope i, and does so.
        direct = coupled & (alike.astype(int) @ coupled == 1)
        return cls(colours, direct / np.maximum(direct + direct.T.astype(int), 1))

    @classmethod
    def dense(cls, n: int) -> Colouring:
        """A colour for each of n coordinates."""
        return cls(np.arange(n), np.full((n, n), 0.5))

    def second_derivatives(
        self, gradients: Gradients, points: Array, slopes: Array | None, units: Array
    ) -> Array:
        """Second derivatives by differences, shape (m, n, n), in units of each coordinate.

        `gradients` gives log densities and gradients at points of shape (m k, n), the first k of
        which lie beside the first of `points`, shape (m, n). Differences are forward from `slopes`
        at the points, or without them central, for twice the gradients. They are NaN where a log
        density is not finite. Each is a function of its point, slopes and units alone.
        """
        moves = np.arange(self.colours.max() + 1)[:, None] == self.colours
        moved = STEP * units[:, None] * moves

        def beside(sign: int) -> Array:
            values, there = gradients((points[:, None] + sign * moved).reshape(-1, points.shape[1]))
            there = there.reshape(moved.shape)
            return np.where(np.isfinite(values).reshape(*moved.shape[:2], 1), there, np.nan)

        with np.errstate(over="ignore", invalid="ignore"):  # where gradients are infinite
            if slopes is None:
                changes = (beside(1) - beside(-1)) * (units[:, None] / (2 * STEP))
            else:
                changes = (beside(1) - slopes[:, None]) * (units[:, None] / STEP)
            each = changes[:, self.colours] * self.shares
            return each + each.swapaxes(1, 2)


def hessian(gradients: Gradients, point: Array) -> Array:
    """Second derivatives at a point of unknown scales, shape (D, D), for 2 D gradients."""
    unit = 0.1 * np.maximum(1.0, np.abs(point))
    dense = Colouring.dense(point.size)
    (found,) = dense.second_derivatives(gradients, point[None], None, unit[None])
    with np.errstate(over="ignore", invalid="ignore"):  # as far away as numbers reach
        return found / np.outer(unit, unit)


def _star(coupled: Array, alone: int) -> Array:
    """Colours without paths of four in two of them; `alone` of the most coupled have their own."""
    n = len(coupled)
    coupled = coupled & ~np.eye(n, dtype=bool)
    colours = np.full(n, -1)
    # How many coupled coordinates of each colour there are beside each coordinate.
    beside = np.zeros((n, n), int)
    for rank, one in enumerate(np.argsort(-coupled.sum(axis=0), kind="stable")):
        taken = beside[one] > 0
        taken[: min(rank, alone)] = True
        coloured = colours >= 0
        for other in np.flatnonzero(coupled[one] & coloured):
            its = colours[other]
            if beside[one, its] > 1:
                taken |= beside[other] > 0
            taken[colours[coupled[other] & coloured & (beside[:, its] > 1)]] = True
        colours[one] = np.argmin(taken)
        beside[coupled[one], colours[one]] += 1
    return colours
