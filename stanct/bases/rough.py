"""Rough targets: optima are many, and most were seen once.

With a period among the parameters, a few hundred ascents end at a hundred optima, nearly all of no
mass, and the next one may hold all of it. That an optimum is negligible says nothing of the next.
Two things do: how often the best one was found again, and what stands out where ends are crossed.
A crossed point takes each coordinate from between two ends, not the same for all. So it has any
period that an ascent has seen, and many amplitudes and phases with it. The best point of each slice
of each coordinate is a start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stanct.bases.ascents import Counted, Optimum
from stanct.bases.score import NEGLIGIBLE
from stanct.common.arrays import Array

# Modes within so many nats of the best are as good. Where this share of all is, there is a ridge or
# a shell, and no roughness.
AS_GOOD, FLAT = 1.0, 0.5
# Crossed points are this share of a scan, and starts this many for all coordinates together.
CROSSED, SLICES = 0.67, 120
# With fewer ends there is nothing to cross.
FEWEST = 3


def those_that_count(modes: Sequence[Optimum]) -> list[Optimum]:
    """The modes that are not negligible beside the best."""
    best = max((mode.log_mass for mode in modes), default=0.0)
    return [mode for mode in modes if mode.log_mass > best - NEGLIGIBLE]


def found_again(modes: Sequence[Optimum]) -> int:
    """How many ascents ended at the best mode, or at others as good."""
    best = max((mode.log_mass for mode in modes), default=0.0)
    return sum(mode.seen for mode in modes if mode.log_mass > best - AS_GOOD)


def is_rough(modes: Sequence[Optimum]) -> bool:
    """Whether modes are many, and of different heights."""
    highest = max((mode.value for mode in modes), default=0.0)
    level = sum(mode.value > highest - AS_GOOD for mode in modes)
    return len(modes) >= FEWEST and level < FLAT * len(modes)


def crossed_starts(
    modes: Sequence[Optimum], counted: Counted, rng: np.random.Generator
) -> list[Array]:
    """The best of many crossed points, in each of the slices of every coordinate."""
    places = np.sort([mode.place for mode in modes], axis=0)
    count, dimension = places.shape
    rank = rng.uniform(0, count - 1, (int(CROSSED * counted.scans), dimension))
    low = rank.astype(int)
    below, above = (np.take_along_axis(places, k, axis=0) for k in (low, low + 1))
    points = below + (rank - low) * (above - below)
    log_density = counted.log_densities(points)
    log_density = np.where(np.isfinite(log_density), log_density, -np.inf)
    best = {
        int(part[log_density[part].argmax()])
        for column in points.T
        for part in np.array_split(column.argsort(), max(SLICES // dimension, 1))
    }
    return [points[k] for k in sorted(best) if np.isfinite(log_density[k])]
