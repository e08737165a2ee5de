"""Bases for many parameters: pilots tell means, variances and the few correlations that matter.

No D × D matrix is made. The base has a diagonal plus low-rank scale (`LowRankBase`), from
draws of a few NUTS chains that start where Pathfinder ends. Its distance to the target grows like
D / n for n effective draws, and refits shorten it. There is no search for modes but the starts of
Pathfinder, of which the pilots take those that lie farthest apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stanct.arrays import Array
from stanct.bases.local import SAME_MODE
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.errors import EngineError
from stanct.path.bridge import bridge_log_evidence
from stanct.path.low_rank import LowRankBase
from stanct.seeds import stan_seed
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

# With more parameters, bases are diagonal plus low rank unless the user gives another. A dense one
# costs D² numbers a gradient: 114 µs at D = 1,000, where this one costs 5.
MOST_DENSE = 400

WARMUP, DRAWS = 300, 300
# Starts of Pathfinder, at these radii in turn, and the draws of each, of which a pilot takes the
# densest.
STARTS, RADII, CANDIDATES = 12, (2.0, 0.5, 6.0), 25


class WideSeeds(NamedTuple):
    """Random streams, one for each stage."""

    starts: np.random.SeedSequence
    pilots: np.random.SeedSequence
    bridge: np.random.SeedSequence


@dataclass(frozen=True)
class WideFit:
    """A base of many dimensions and what pilots saw.

    Attributes
    ----------
    base, log_evidence
        The Gaussian of all pilots' draws, and its bridge estimate of log Z, natural log.
    place, spread : shape (K, D)
        Means and standard deviations of the groups of chains that stayed apart.
    weight : shape (K,)
        Shares of the chains in each group.
    unseen
        Estimated probability that one more chain finds a new group (Good 1953).
    starts
        Number of starts.
    gradients, evaluations
        Gradients spent by pilots, and log densities without a gradient.
    """

    base: LowRankBase = field(repr=False)
    log_evidence: float
    place: Array = field(repr=False)
    spread: Array = field(repr=False)
    weight: Array
    unseen: float
    starts: int
    gradients: int
    evaluations: int


def fit_wide(
    target: ProgramTarget,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    bar: Bar,
    places: Sequence[Array] = (),
) -> WideFit:
    """Fit a diagonal plus low-rank base to the draws of short NUTS chains.

    Parameters
    ----------
    chains
        Smallest number of pilots.
    places
        Unconstrained points of the user's, each of shape (D,), from which pilots start too.

    Raises
    ------
    EngineError
        No chain could start, or none gave draws.
    """
    seeds = WideSeeds(*seed.spawn(3))
    rng = np.random.default_rng(seeds.bridge)
    ends = _ends(target, seeds.starts, rng, bar)
    starts = [*places, *(ends[k].point for k in _farthest(ends, max(chains - len(places), 0)))]
    bar.note("pilot chains")
    block, gradients = embedded.run_nuts(
        target.density.recipe,
        np.array(starts),
        seed=stan_seed(seeds.pilots),
        warmup=WARMUP,
        draws=DRAWS,
        nuts=replace(nuts, target_accept=0.8),
    )
    drawn = [target.unconstrain(block, chain, rng) for chain in range(len(starts))]
    drawn = [points for points in drawn if len(points) > 1]
    if not drawn:
        raise EngineError("No pilot chain gave points that the transform can invert.")
    points = np.concatenate(drawn)
    base = LowRankBase.from_points(points)
    groups = _apart(drawn)
    merged = [np.concatenate([drawn[i] for i in group]) for group in groups]
    return WideFit(
        base,
        _bridged(target, base, points, rng),
        np.array([part.mean(axis=0) for part in merged]),
        np.array([part.std(axis=0) for part in merged]),
        np.array([len(part) / len(points) for part in merged]),
        sum(len(group) == 1 for group in groups) / len(drawn) if len(groups) > 1 else 0.0,
        STARTS + len(places),
        gradients,
        CANDIDATES * len(ends) + 2 * len(points),
    )


class _End(NamedTuple):
    """Where a Pathfinder run ended: moments, densest draw, and mean log density of its draws."""

    mean: Array
    variance: Array
    point: Array
    log_density: float


def _ends(
    target: ProgramTarget, seed: np.random.SeedSequence, rng: np.random.Generator, bar: Bar
) -> list[_End]:
    """The ends of Pathfinder runs that gave draws with a finite density, densest first."""
    found: list[_End] = []
    failure: EngineError | None = None
    for child, radius in zip(seed.spawn(STARTS), itertools.cycle(RADII), strict=False):
        bar.update()
        try:
            block = embedded.pathfinder(
                target.density_recipe, seed=stan_seed(child), draws=CANDIDATES, radius=radius
            )
            points = target.unconstrain(block, 0, rng)
        except EngineError as cause:
            failure = cause
            continue
        log_density = target.density.log_densities(points)
        inside = np.isfinite(log_density)
        points, log_density = points[inside], log_density[inside]
        if len(points) > 1:
            best = points[np.argmax(log_density)]
            moments = points.mean(axis=0), points.var(axis=0)
            found.append(_End(*moments, best, float(log_density.mean())))
    if not found:
        raise EngineError(
            f"Pathfinder failed from all of {STARTS} starts."
            + (f" The last one said: {failure.message}" if failure else ""),
            remedy="Pass a LowRankBase of your own.",
        )
    return sorted(found, key=lambda end: -end.log_density)


def _farthest(ends: Sequence[_End], count: int) -> list[int]:
    """The densest end, and then always the one farthest from those before it.

    Where there are fewer ends than wanted, they are taken in turn.
    """
    chosen = [0]
    nearest = np.full(len(ends), np.inf)
    while len(chosen) < min(count, len(ends)):
        last = ends[chosen[-1]]
        apart = [_distance(last.mean, end.mean, last.variance, end.variance) for end in ends]
        nearest = np.minimum(nearest, apart)
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return list(itertools.islice(itertools.cycle(chosen), count))


def _distance(mean: Array, other: Array, variance: Array, of_other: Array) -> float:
    """Largest difference of two means in any coordinate, in pooled standard deviations."""
    pooled = np.sqrt(0.5 * (variance + of_other))
    return float(np.max(np.abs(mean - other) / np.maximum(pooled, 1e-300)))


def _apart(drawn: Sequence[Array]) -> list[list[int]]:
    """Group chains whose means agree in every coordinate, largest group first."""
    means = [points.mean(axis=0) for points in drawn]
    variances = [points.var(axis=0) for points in drawn]
    groups: list[list[int]] = []
    for i in range(len(drawn)):
        for group in groups:
            j = group[0]
            if _distance(means[i], means[j], variances[i], variances[j]) < SAME_MODE:
                group.append(i)
                break
        else:
            groups.append([i])
    return sorted(groups, key=len, reverse=True)


def _bridged(
    target: ProgramTarget, base: LowRankBase, points: Array, rng: np.random.Generator
) -> float:
    """Bridge estimate of log Z from points of the target and as many draws of the base."""
    x = base.unwhiten(base.draw(rng, len(points)))
    return bridge_log_evidence(
        target.density.log_densities(points),
        base.log_density(points),
        target.density.log_densities(x),
        base.log_density(x),
    )
