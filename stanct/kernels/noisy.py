"""Energies and gradients that are estimated from batches of the data, in whitened coordinates."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, number_below, shared


class Potential(NamedTuple):
    """An energy that is estimated from batches, in whitened coordinates x = m + L z.

    Batch j, of probability n_j / N, estimates the log density by w_j v_j(x) + (1 − w_j) v_0(x) with
    w_j = N / n_j, v_j given the batch alone, and v_0 given no data, only where it is `split`. Each
    density has its own of `handles`, shape (S,), or `prior` for v_0; see `Density.address`.
    `values` a_j, (S,) or (0,), and `gradients` b_j add a_j + b_j x, see `Batches.corrections`.
    `scale` is L, (D, D), or its diagonal, (1, D). `noise` has standard deviations that are added to
    U and ∇U.
    """

    call: Any
    handles: Array
    weights: Array
    cumulative: Array
    prior: int
    split: bool
    values: Array
    gradients: Array
    mean: Array
    scale: Array
    noise: tuple[float, float]


class Reading(NamedTuple):
    """Working memory for an estimate of the energy.

    `rows`, shape (5, D): ∇U, x, the gradient and the prior's in x, and the place of the last look.
    `value`: U, and U − offset, which `move` sets.
    """

    rows: Array
    value: Array


def make_reading(dimension: int) -> Reading:
    """Allocate working memory for an estimate in D dimensions."""
    return Reading(np.zeros((5, dimension)), np.zeros(2))


@compiled
def density_at(
    potential: Potential, batch: int, x: Array, gradient: Array, other: Array, value: Array
) -> bool:
    """The estimate of a batch at x, into `value` and `gradient`; False if x is rejected."""
    code = potential.call(
        potential.handles[batch], True, True,
        x.ctypes.data, value.ctypes.data, gradient.ctypes.data, np.uintp(0),
    )  # fmt: skip
    if code != 0:
        return False
    if potential.split:
        found = value[0]
        code = potential.call(
            potential.prior, True, True,
            x.ctypes.data, value.ctypes.data, other.ctypes.data, np.uintp(0),
        )  # fmt: skip
        if code != 0:
            return False
        weight = potential.weights[batch]
        value[0] = weight * found + (1.0 - weight) * value[0]
        for i in range(x.size):
            gradient[i] = weight * gradient[i] + (1.0 - weight) * other[i]
    if potential.values.size > 0:
        value[0] += potential.values[batch]
        for i in range(x.size):
            value[0] += potential.gradients[batch, i] * x[i]
            gradient[i] += potential.gradients[batch, i]
    return math.isfinite(value[0])


@compiled
def energy_at(potential: Potential, z: Array, rng: np.random.Generator, reading: Reading) -> bool:
    """Put a noisy U(z), up to a constant, and ∇U into `reading`; return False if z is rejected."""
    return estimated(borrowed(potential), z, borrowed(rng), borrowed(reading))


@shared()
def estimated(potential: Potential, z: Array, rng: np.random.Generator, reading: Reading) -> bool:
    """Shared form of `energy_at` for borrowed records."""
    room, value = reading.rows, reading.value
    x, gradient = room[1], room[2]
    diagonal = potential.scale.shape[0] == 1
    if diagonal:
        for i in range(z.size):
            x[i] = potential.mean[i] + potential.scale[0, i] * z[i]
    else:
        for i in range(z.size):
            total = potential.mean[i]
            for j in range(i + 1):
                total += potential.scale[i, j] * z[j]
            x[i] = total
    batch = 0
    if potential.handles.size > 1:
        place = number_below(potential.cumulative, rng.random(), True)
        batch = min(place, potential.handles.size - 1)
    if not density_at(potential, batch, x, gradient, room[3], value):
        return False
    for i in range(z.size):
        room[0, i] = 0.0
    for i in range(z.size):
        if diagonal:
            room[0, i] = -potential.scale[0, i] * gradient[i]
        else:
            for j in range(i + 1):
                room[0, j] -= potential.scale[i, j] * gradient[i]
    value[0] = -value[0]
    if potential.noise[0] > 0:
        value[0] += potential.noise[0] * rng.standard_normal()
    total = 0.0
    for i in range(z.size):
        if potential.noise[1] > 0:
            room[0, i] += potential.noise[1] * rng.standard_normal()
        total += room[0, i]
    return math.isfinite(total)


@compiled
def batch_spread(
    potential: Potential,
    points: Array,
    repeats: int,
    rng: np.random.Generator,
    reading: Reading,
    out: Array,
) -> None:
    """Variances between batches of U and, averaged over coordinates, of ∇U at points (P, D).

    They go into `out`, shape (P, 2), NaN where a batch was rejected.
    """
    dimension = points.shape[1]
    potential, rng, reading = borrowed(potential), borrowed(rng), borrowed(reading)
    for n in range(points.shape[0]):
        mean, square = np.zeros(dimension + 1), np.zeros(dimension + 1)
        good = True
        for k in range(repeats):
            good = estimated(potential, points[n], rng, reading) and good
            for i in range(dimension + 1):
                new = reading.rows[0, i] if i < dimension else reading.value[0]
                step = new - mean[i]
                mean[i] += step / (k + 1)
                square[i] += step * (new - mean[i])
        out[n, 0] = square[dimension] / (repeats - 1) if good else np.nan
        out[n, 1] = square[:dimension].mean() / (repeats - 1) if good else np.nan
