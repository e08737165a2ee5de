"""Integrals over one or two parameters, on grids that find where the mass is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

Array = np.ndarray
# exp(-DEPTH) of the highest density is nothing.
DEPTH = 40.0


@dataclass(frozen=True)
class Integral:
    """log of an integral, a mean under the integrand, and how exact both are."""

    log_z: float
    mean: float
    tolerance: float


def log_trapezoid(log_f: Array, step: Array | float) -> Array:
    """log of the trapezoid rule along the last axis, whose spacing is `step`."""
    log_weight = np.zeros(log_f.shape[-1])
    log_weight[[0, -1]] = -np.log(2)
    return logsumexp(log_f + log_weight, axis=-1) + np.log(step)


def integrate(
    log_f: Callable[..., Array],
    value: Callable[..., Array],
    box: Sequence[tuple[float, float]],
    *points: int,
) -> Integral:
    """Integrate exp(log_f) over a box by the trapezoid rule.

    The box first shrinks to where the integrand is not negligible. For smooth integrands that
    vanish at the ends the rule converges exponentially fast, so that every second point gives
    a bound on the error.

    Parameters
    ----------
    log_f, value
        Functions of one array for each side of the box, all of one shape (n,), which return shape
        (n,): the log integrand, and the quantity whose mean is wanted.
    box
        Lower and upper end of each side.
    points
        Points along each side, odd numbers, or one number for all sides.
    """
    shape = points if len(points) > 1 else points * len(box)
    sides = _shrunk(log_f, list(box), [min(number, 101) for number in shape])
    axes = [np.linspace(*side, number) for side, number in zip(sides, shape, strict=True)]
    mesh = [m.ravel() for m in np.meshgrid(*axes, indexing="ij")]
    log_density, values = log_f(*mesh).reshape(shape), value(*mesh).reshape(shape)
    steps = [axis[1] - axis[0] for axis in axes]
    log_z, mean = _sum(log_density, values, steps)
    coarse = (slice(None, None, 2),) * len(axes)
    rough, rough_mean = _sum(log_density[coarse], values[coarse], [2 * step for step in steps])
    return Integral(log_z, mean, max(abs(log_z - rough), abs(mean - rough_mean), 1e-9))


def _sum(log_density: Array, values: Array, steps: Sequence[float]) -> tuple[float, float]:
    weight = np.exp(log_density - log_density.max())
    for axis in range(weight.ndim):
        ends = np.ones(weight.shape[axis])
        ends[[0, -1]] = 0.5
        weight = weight * np.expand_dims(ends, tuple(k for k in range(weight.ndim) if k != axis))
    total = weight.sum()
    log_z = float(log_density.max() + np.log(total) + np.log(steps).sum())
    return log_z, float((weight * values).sum() / total)


def _shrunk(
    log_f: Callable[..., Array], box: list[tuple[float, float]], points: Sequence[int]
) -> list[tuple[float, float]]:
    """The box around all points where the integrand is not negligible, with a margin of a cell.

    On a coarse grid, a narrow integrand is highest beside its mode, and what is not negligible
    may then be cut off. A side where the integrand is not negligible is moved out again.
    """
    sides = box
    for _ in range(40):
        axes = [np.linspace(*side, number) for side, number in zip(sides, points, strict=True)]
        mesh = [m.ravel() for m in np.meshgrid(*axes, indexing="ij")]
        log_density = log_f(*mesh)
        seen = log_density > log_density.max() - DEPTH
        found, done = [], True
        for axis, coordinate, (low, high) in zip(axes, mesh, box, strict=True):
            cell, width = axis[1] - axis[0], axis[-1] - axis[0]
            first, last = coordinate[seen].min(), coordinate[seen].max()
            down = first == axis[0] and axis[0] > low
            up = last == axis[-1] and axis[-1] < high
            start = max(low, first - (0.5 * width if down else cell))
            end = min(high, last + (0.5 * width if up else cell))
            done &= not (down or up) and end - start > 0.8 * width
            found.append((start, end))
        sides = found
        if done:
            return sides
    raise ArithmeticError("no box was found around the integrand")


def log_concave(log_f: Callable[[Array], Array], mode: Array, reach: Array, points: int) -> Array:
    """log ∫ exp(log_f) for many log-concave functions of one variable at once.

    Parameters
    ----------
    log_f
        Takes shape (..., n) and returns that shape, n points for each function.
    mode
        Where each function is highest, shape (...).
    reach
        A length beyond which each is negligible on either side of its mode, shape (...).
    points
        Points of the trapezoid rule for each.
    """
    top = log_f(mode[..., None])[..., 0]
    ends = []
    for sign in (-1, 1):
        near, far = np.zeros_like(mode), np.array(reach, float)
        for _ in range(20):
            middle = 0.5 * (near + far)
            high = log_f((mode + sign * middle)[..., None])[..., 0] > top - DEPTH
            near, far = np.where(high, middle, near), np.where(high, far, middle)
        ends.append(mode + sign * far)
    places = np.linspace(0, 1, points)
    width = ends[1] - ends[0]
    return log_trapezoid(
        log_f(ends[0][..., None] + width[..., None] * places), width / (points - 1)
    )


def in_parts(log_f: Callable[..., Array], size: int) -> Callable[..., Array]:
    """The same function, evaluated at so many points at once."""

    def parts(*coordinates: Array) -> Array:
        cuts = range(size, coordinates[0].size, size)
        split = zip(*(np.split(c, list(cuts)) for c in coordinates), strict=True)
        return np.concatenate([log_f(*part) for part in split])

    return parts
