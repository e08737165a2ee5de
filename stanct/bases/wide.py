"""Bases for many parameters: the curvature where that suffices, and pilots elsewhere.

With up to `MOST_CURVED` parameters, ascents go on from a few ends of Pathfinder. Where they meet in
one mode whose curvature explains the target, its Gaussian is the base. Where it does not, and the
target is Gaussian given a few parameters (`stanct.bases.nested_wide`), draws in two stages take the
place of pilots.

Elsewhere no D × D matrix is made. The base has a diagonal plus low-rank scale (`LowRankBase`), from
draws of a few NUTS chains that start where Pathfinder ends. Gradients at these draws tell of the
directions in which the target is narrow. The base's distance to the target grows like D / n for n
effective draws, and refits shorten it. There is no search for modes but the starts of Pathfinder,
of which the pilots take those that lie farthest apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from stanct.bases.local import SAME_MODE, bounded
from stanct.bases.nested import Nested
from stanct.bases.nested_wide import find_nested_wide
from stanct.bases.pilots import measured
from stanct.bases.search import ascents_from
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.common.seeds import stan_seed
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.path.bridge import bridge_log_z
from stanct.path.gaussian import GaussianBase
from stanct.path.low_rank import LowRankBase
from stanct.targets.program_target import ProgramTarget
from stanct.work.interrupts import heard
from stanct.work.progress import Bar

# With more parameters, bases are diagonal plus low rank unless the user gives another. A dense one
# costs D² numbers a gradient: 114 µs at D = 1,000, where this one costs 5.
MOST_DENSE = 250

WARMUP, DRAWS = 300, 300
# Starts of Pathfinder, at these radii in turn, and the draws of each, of which a pilot takes the
# densest. Each step of an ascent takes a few draws to be judged; with Stan's 25 the ascents of a
# Gaussian process took three times as long, to the same ends.
STARTS, RADII, CANDIDATES, JUDGED = 12, (2.0, 0.5, 6.0), 25, 5
# Second derivatives take 2 D gradients, and their root D³ operations: 3 seconds at 2,000.
MOST_CURVED = 2000
# Ends of Pathfinder from which ascents go on.
ASCENTS = 3
# Two pilots whose means lie apart are of one mode if the log density on the line between these
# falls nowhere by more than so many nats below the straight line between its ends. Slow chains of
# one mode have such means.
DIP, ON_THE_LINE = 2.0, 15


class WideSeeds(NamedTuple):
    """Random streams, one for each stage."""

    starts: np.random.SeedSequence
    pilots: np.random.SeedSequence
    bridge: np.random.SeedSequence
    particles: np.random.SeedSequence


@dataclass(frozen=True)
class WideFit:
    """A base of many dimensions and what pilots saw.

    Attributes
    ----------
    base, log_evidence
        The Gaussian of the mode's curvature or of all pilots' draws, and its bridge estimate of log
        Z, natural log.
    place, spread : shape (K, D)
        Means and standard deviations of the groups of chains that stayed apart.
    weight : shape (K,)
        Shares of the chains in each group.
    unseen
        Estimated probability that one more chain or ascent finds a new group (Good 1953).
    starts
        Number of starts.
    gradients, evaluations
        Gradients spent, but not those of Pathfinder, and log densities without a gradient.
    nested
        The base in two stages, if the target has one.
    points : shape (n, D)
        Draws of the pilots; None where there are none.
    said
        What the base rests on, in a few words.
    """

    base: Base = field(repr=False)
    log_evidence: float
    place: Array = field(repr=False)
    spread: Array = field(repr=False)
    weight: Array
    unseen: float
    starts: int
    gradients: int
    evaluations: int
    nested: Nested | None = field(default=None, repr=False)
    points: Array | None = field(default=None, repr=False)
    said: str = "short chains"


def fit_wide(
    target: ProgramTarget,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    bar: Bar,
    places: Sequence[Array] = (),
    curved: bool = False,
    given: bool = True,
) -> WideFit:
    """Fit a base to the curvature of the only mode, or to the draws of short NUTS chains.

    Parameters
    ----------
    chains
        Smallest number of pilots.
    places
        Unconstrained points of the user's, each of shape (D,), from which ascents and pilots start
        too.
    curved
        Whether a dense base is welcome, with `MOST_CURVED` parameters at most.
    given
        Whether a base in two stages is looked for.

    Raises
    ------
    EngineError
        No chain could start, or none gave draws.
    """
    seeds = WideSeeds(*seed.spawn(4))
    rng = np.random.default_rng(seeds.bridge)
    ends = _ends(target, seeds.starts, rng, bar)
    spent = 0
    if curved and target.density.dimension <= MOST_CURVED:
        bar.note("searching")
        look = partial(_curved, target, ends, places, seeds.particles, nuts.threads, given)
        looked = heard(look)
        if isinstance(looked, WideFit):
            return looked
        spent = looked
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
    _, scores = heard(lambda: target.density.log_density_gradients(points))
    base = LowRankBase.from_points(points).narrowed(points, scores)
    groups = _apart(drawn, target.density.log_densities)
    merged = [np.concatenate([drawn[i] for i in group]) for group in groups]
    return WideFit(
        base,
        _bridged(target, base, points, rng),
        np.array([part.mean(axis=0) for part in merged]),
        np.array([part.std(axis=0) for part in merged]),
        np.array([len(part) / len(points) for part in merged]),
        sum(len(group) == 1 for group in groups) / len(drawn) if len(groups) > 1 else 0.0,
        STARTS + len(places),
        spent + gradients + len(points),
        CANDIDATES * len(ends) + 2 * len(points),
        points=points,
    )


def _curved(
    target: ProgramTarget,
    ends: Sequence[_End],
    places: Sequence[Array],
    seed: np.random.SeedSequence,
    threads: int,
    given: bool,
) -> WideFit | int:
    """A fit from the curvature at the only mode; only the gradients spent where there is none."""
    starts = [ends[k].point for k in _farthest(ends, ASCENTS)]
    spread = np.sqrt(ends[0].variance)
    found = ascents_from(target.density, [*starts, *places], spread, np.random.default_rng(seed))
    if len(found.fits) != 1:
        return found.gradients
    (fit,) = found.fits
    moves, rest = seed.spawn(2)
    mode = measured(target, fit, moves, threads=threads)
    gradients, evaluations = found.gradients + mode.gradients, CANDIDATES * len(ends)
    if mode.fit is None:
        if not given:
            return gradients
        nested = find_nested_wide(target, fit, rest, threads=threads)
        gradients += nested.gradients
        if nested.base is None:
            return gradients
        evaluations += nested.evaluations
        base, log_evidence = nested.base.whitening, nested.log_z
    else:
        nested, log_evidence = None, mode.fit.log_evidence
        base = GaussianBase.from_covariance(mode.fit.mean, mode.fit.covariance)
    return WideFit(
        base,
        log_evidence,
        base.mean[None],
        base.spread[None],
        np.ones(1),
        found.unseen,
        STARTS + len(places),
        gradients,
        evaluations,
        nested,
        said="the curvature of the only mode",
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
            with bounded(target.density):
                block = embedded.pathfinder(
                    target.density_recipe, seed=stan_seed(child), draws=CANDIDATES, radius=radius,
                    judged=JUDGED,
                )  # fmt: skip
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


def _apart(drawn: Sequence[Array], log_densities: Callable[[Array], Array]) -> list[list[int]]:
    """Group chains whose means agree, or between whose means is no valley, largest group first."""
    means = [points.mean(axis=0) for points in drawn]
    variances = [points.var(axis=0) for points in drawn]
    groups: list[list[int]] = []
    for i in range(len(drawn)):
        for group in groups:
            j = group[0]
            near = _distance(means[i], means[j], variances[i], variances[j]) < SAME_MODE
            if near or not _valley(means[i], means[j], log_densities):
                group.append(i)
                break
        else:
            groups.append([i])
    return sorted(groups, key=len, reverse=True)


def _valley(one: Array, other: Array, log_densities: Callable[[Array], Array]) -> bool:
    """Whether the log density between two points dips below the straight line by `DIP`."""
    share = np.linspace(0, 1, ON_THE_LINE)
    heights = log_densities(one + share[:, None] * (other - one))
    straight = heights[0] + share * (heights[-1] - heights[0])
    return not np.all(heights > straight - DIP)


def _bridged(
    target: ProgramTarget, base: LowRankBase, points: Array, rng: np.random.Generator
) -> float:
    """Bridge estimate of log Z from points of the target and as many draws of the base."""
    x = base.unwhiten(base.draw(rng, len(points)))
    own, at_base = (target.density.log_densities(at) - base.log_density(at) for at in (points, x))
    return bridge_log_z(own, at_base)
