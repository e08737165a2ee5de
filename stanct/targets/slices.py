"""Finds scales whose marginal density does not fall off, by the mass of slices far away.

Lines and rays cannot tell of a scale that other parameters follow: as τ goes to 0, so do effects
with the prior normal(0, τ), and every straight line leaves them. Given τ, they are nearly Gaussian.
The others are therefore moved to the top of the slice of each τ, and its curvature gives the mass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stanct.common.arrays import Array

Gradient = Callable[[Array], tuple[float, Array]]

# How far the log of a scale goes both ways from its middle, each four times as far as the one
# before last, and the share of the mass per distance that each must keep of the one before.
DISTANCES, KEEPS = (8.0, 16.0, 32.0, 64.0, 128.0), 0.97
# In how many dimensions; Newton steps in a slice, and when one is so small that it was the last.
MOST_DIMENSIONS, STEPS, SMALL = 40, 25, 1e-3
# The step of differences, in deviations.
DIFFERENCE = 1e-3


def endless_scales(gradient: Gradient, x: Array, scales: Sequence[int]) -> tuple[list[int], int]:
    """The scales along which slices keep their mass for ever, and the gradients spent.

    Parameters
    ----------
    gradient
        Log density and its gradient, in the unconstrained space.
    x : shape (n, D)
        Unconstrained draws.
    scales
        Coordinates that are logarithms of scales.
    """
    if not 1 < x.shape[1] <= MOST_DIMENSIONS:
        return [], 0
    spent = 0

    def counted(point: Array) -> tuple[float, Array]:
        nonlocal spent
        spent += 1
        return gradient(point)

    middle = np.median(x, axis=0)
    deviations = np.median(np.abs(x - middle), axis=0)
    if not deviations.all():
        return [], 0
    with np.errstate(all="ignore"):
        found = [k for k in scales if _has_no_end(counted, middle, deviations, k)]
    return found, spent


def _has_no_end(gradient: Gradient, middle: Array, deviations: Array, scale: int) -> bool:
    for side in (-1.0, 1.0):
        point = middle.copy()
        masses: list[float] = []
        for distance in (0.0, *DISTANCES):
            point[scale] = middle[scale] + side * distance
            mass = _slice(gradient, point, deviations, scale)
            # A slice of a millionth of the middle's density never matters.
            if mass is None or mass < (masses or [mass])[0] - math.log(1e6):
                break
            masses.append(mass)
        else:
            kept = np.diff(masses[-4:])
            if (kept > math.log(KEEPS)).all():
                return True
    return False


def _slice(gradient: Gradient, point: Array, deviations: Array, scale: int) -> float | None:
    """Log mass of a slice by its curvature at its top, to which `point` moves; None without one."""
    rest = np.delete(np.arange(point.size), scale)
    for _ in range(STEPS):
        value, slope = gradient(point)
        curvature = np.empty((rest.size, rest.size))
        for row, k in enumerate(rest):
            step = np.zeros(point.size)
            step[k] = DIFFERENCE * deviations[k]
            ahead, behind = gradient(point + step)[1], gradient(point - step)[1]
            curvature[row] = (behind - ahead)[rest] / (2 * step[k])
        curvature = (curvature + curvature.T) / 2
        units = 1 / np.sqrt(np.diag(curvature))
        if not (np.isfinite(value) and np.isfinite(units).all()):
            return None
        try:
            factor = cho_factor(units[:, None] * curvature * units, lower=True)
        except (LinAlgError, ValueError):
            return None
        move = cho_solve(factor, units * slope[rest])
        if np.abs(move).max() < SMALL:
            return float(value + np.log(units).sum() - np.log(np.diag(factor[0])).sum())
        point[rest] += move * units
    return None
