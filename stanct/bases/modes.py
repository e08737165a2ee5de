"""Finds the modes of a target by Pathfinder, L-BFGS or pilot chains from several starts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from stanct.arrays import Array
from stanct.bases.local import (
    LocalFit,
    best_of_each_mode,
    distinct_modes,
    hessian,
    positive_covariance,
)
from stanct.engines import embedded
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import DrawBlock, Nuts
from stanct.errors import EngineError
from stanct.path.bridge import bridge_log_evidence
from stanct.path.gaussian import LOG_2PI, GaussianBase, gaussian_moments
from stanct.seeds import stan_seed
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

# Makes the draws of one local approximation from recipe, seed, draws, and radius of the start.
Approximation = Callable[..., DrawBlock]
# Makes local fits from `STARTS` random starts.
Look = Callable[[np.random.SeedSequence, np.random.Generator], list[LocalFit]]
# Starts are uniform within these radii of the origin, used in turn. Stan's own 2 suits hierarchical
# programs. Larger radii find modes that lie further out.
RADII = (2.0, 6.0, 15.0)
STARTS = 18
PILOT_WARMUP, PILOT_DRAWS, MOST_PILOTS = 300, 300, 8
# A mode this many nats below the best is ignored. By Pathfinder's bounds, it gets no pilot while
# those of the best modes agree. By the pilots' own evidences, it is dropped. A pilot that drifts
# along a ridge, or into a neck where coordinates are rounding noise, would otherwise widen the base
# by tens of standard deviations.
NEGLIGIBLE = 7.0


class FitSeeds(NamedTuple):
    """Random streams of a fit, one for each stage."""

    starts: np.random.SeedSequence
    more_starts: np.random.SeedSequence
    points: np.random.SeedSequence
    pilots: np.random.SeedSequence
    more_pilots: np.random.SeedSequence
    scouts: np.random.SeedSequence

    @classmethod
    def of(cls, seed: np.random.SeedSequence) -> FitSeeds:
        """The streams spawned from one seed, which should have no other children."""
        starts, chains, points, more_starts = seed.spawn(4)
        pilots, more_pilots, scouts = chains.spawn(3)
        return cls(starts, more_starts, points, pilots, more_pilots, scouts)


@dataclass(frozen=True)
class Modes:
    """The modes that were found, and the cost of finding them.

    Attributes
    ----------
    fits
        One fit for each distinct mode, best first.
    unseen
        Whether some mode was reached from only one start, so that further modes are likely.
    gradients, evaluations
        Gradients spent, and log densities without a gradient. L-BFGS and Pathfinder runs count by
        the draws they return, because the engine does not report their iterations.
    """

    fits: tuple[LocalFit, ...] = field(repr=False)
    unseen: bool = False
    gradients: int = 0
    evaluations: int = 0


def find_modes(
    target: ProgramTarget,
    method: str,
    *,
    chains: int,
    seeds: FitSeeds,
    nuts: Nuts,
    engine: CmdStan | None = None,
    progress: bool = False,
) -> Modes:
    """Fit a Gaussian to each mode of a target.

    Parameters
    ----------
    method
        ``"pilot"``, ``"pathfinder"``, ``"laplace"`` or, by CmdStan, ``"advi"``; see `fit_base`.
    chains, nuts, engine, progress
        As in `fit_base`.

    Raises
    ------
    EngineError
        No start worked.
    """
    rng = np.random.default_rng(seeds.points)
    with Bar(STARTS, "base", unit="start", shown=progress) as bar:
        if method == "laplace" and engine is None:
            look = partial(_laplace_fits, target, bar)
            return Modes(best_of_each_mode(_found(look, seeds, rng, bar)[0]))
        draws = 25 if method == "pilot" else max(100, 4 * target.density.dimension)
        if engine is not None and method != "pilot":
            way = {
                "pathfinder": engine.pathfinder,
                "laplace": engine.laplace,
                "advi": engine.advi,
            }[method]
            found = _approximate(target, way, draws, bar, seeds.starts, rng)
            cost = _points(found)
        else:
            look = partial(_approximate, target, embedded.pathfinder, draws, bar)
            found, cost = _found(look, seeds, rng, bar)
        if method != "pilot":
            return Modes(best_of_each_mode(found), evaluations=cost)
        bar.note("pilot chains")
        modes = _piloted(target, found, chains, seeds, rng, nuts)
        return replace(modes, evaluations=modes.evaluations + cost)


def _found(
    look: Look, seeds: FitSeeds, rng: np.random.Generator, bar: Bar
) -> tuple[list[LocalFit], int]:
    """Local fits from `STARTS` starts, and from as many again if those found only one mode.

    A mode to which every sixth start leads is missed by all first starts in one run of 27, and by
    all starts of both looks in one of 700. A second look that finds nothing new is dropped, but its
    cost in points is included in the second number.
    """
    found = look(seeds.starts, rng)
    cost = _points(found)
    if len(distinct_modes(found)) > 1:
        return found, cost
    bar.expect(2 * STARTS)
    bar.note("a second look")
    try:
        more = look(seeds.more_starts, np.random.default_rng(seeds.more_starts.spawn(1)[0]))
    except EngineError:  # keep the first look
        return found, cost
    new = len(distinct_modes(found + more)) > 1
    return (found + more if new else found), cost + _points(more)


def _points(fits: list[LocalFit]) -> int:
    return sum(len(fit.points) for fit in fits)


def _approximate(
    target: ProgramTarget,
    way: Approximation,
    draws: int,
    bar: Bar,
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
) -> list[LocalFit]:
    """From each start, a Gaussian with the moments of an approximation's draws, and its bound."""
    fits = []
    failure: EngineError | None = None
    for child, radius in zip(seed.spawn(STARTS), itertools.cycle(RADII), strict=False):
        bar.update()
        try:
            block = way(target.density_recipe, seed=stan_seed(child), draws=draws, radius=radius)
            points = target.unconstrain(block, 0, rng)
        except EngineError as cause:
            failure = cause
            continue
        log_density = target.density.log_densities(points)
        points, log_density = (
            points[np.isfinite(log_density)],
            log_density[np.isfinite(log_density)],
        )
        if len(points) < 2:
            continue
        mean, covariance = gaussian_moments(points)
        entropy = 0.5 * (np.linalg.slogdet(covariance)[1] + mean.size * (1 + LOG_2PI))
        fits.append(LocalFit(mean, covariance, float(log_density.mean() + entropy), points))
    if not fits:
        raise EngineError(
            f"The local fit ({way.__name__}) failed from all of {STARTS} starts."
            + (f" The last one said: {failure.message}" if failure else ""),
            remedy="Check that the density is finite and smooth near the origin of the "
            "unconstrained space, or pass base='laplace' or a GaussianBase.",
        )
    return fits


def _piloted(
    target: ProgramTarget,
    found: list[LocalFit],
    chains: int,
    seeds: FitSeeds,
    rng: np.random.Generator,
    nuts: Nuts,
) -> Modes:
    """The modes of pilot chains that start at the modes of local fits."""
    every = distinct_modes(found)
    # The share of starts that alone reached their mode estimates the chance that the next start
    # finds a new mode (Good 1953).
    unseen = any(len(group) == 1 for group in every)
    modes = every[:MOST_PILOTS]
    starts = []
    for k in range(chains):
        group = modes[k % len(modes)]
        fit = found[group[(k // len(modes)) % len(group)]]
        starts.append(fit.points[rng.integers(len(fit.points))])
    pilots, gradients = _pilots(target, starts, seeds.pilots, rng, nuts)
    rest = [found[group[0]] for group in modes[chains:]]
    if len(distinct_modes(pilots)) == 1:
        floor = found[modes[0][0]].log_evidence - NEGLIGIBLE
        rest = [fit for fit in rest if fit.log_evidence > floor]
    if rest:
        starts = [fit.points[rng.integers(len(fit.points))] for fit in rest]
        more, spent = _pilots(target, starts, seeds.more_pilots, rng, nuts)
        pilots, gradients = pilots + more, gradients + spent
    fits, evaluations = [], 0
    for group in distinct_modes(pilots):
        points = np.concatenate([pilots[i].points for i in group])
        fits.append(_bridged(target, points, rng))
        evaluations += 2 * len(points)
    best = max(fit.log_evidence for fit in fits)
    kept = tuple(fit for fit in fits if fit.log_evidence > best - NEGLIGIBLE)
    return Modes(kept, unseen, gradients, evaluations)


def _pilots(
    target: ProgramTarget,
    starts: list[Array],
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
    nuts: Nuts,
) -> tuple[list[LocalFit], int]:
    """Local fits with the moments of short NUTS chains, and the gradients spent."""
    block, gradients = embedded.run_nuts(
        target.density.recipe,
        np.array(starts),
        seed=stan_seed(seed),
        warmup=PILOT_WARMUP,
        draws=PILOT_DRAWS,
        nuts=replace(nuts, target_accept=0.8),
    )
    pilots = []
    for chain in range(len(starts)):
        points = target.unconstrain(block, chain, rng)
        if len(points) > 1:
            mean, covariance = gaussian_moments(points)
            pilots.append(LocalFit(mean, covariance, 0.0, points))
    if not pilots:
        raise EngineError("No pilot chain gave points that the transform can invert.")
    return pilots, gradients


def _bridged(target: ProgramTarget, points: Array, rng: np.random.Generator) -> LocalFit:
    """Fit a Gaussian to a mode's points, and estimate the mode's mass by bridge sampling."""
    mean, covariance = gaussian_moments(points)
    q = GaussianBase.from_covariance(mean, covariance)
    x = q.unwhiten(rng.standard_normal(points.shape))
    log_evidence = bridge_log_evidence(
        target.density.log_densities(points),
        q.log_density(points),
        target.density.log_densities(x),
        q.log_density(x),
    )
    return LocalFit(mean, covariance, log_evidence, points)


def _laplace_fits(
    target: ProgramTarget, bar: Bar, seed: np.random.SeedSequence, rng: np.random.Generator
) -> list[LocalFit]:
    density = target.density
    fits = []
    failure: EngineError | None = None
    for child, radius in zip(seed.spawn(STARTS), itertools.cycle(RADII), strict=False):
        bar.update()
        try:
            mode, value = embedded.mode(target.density_recipe, seed=stan_seed(child), radius=radius)
        except EngineError as cause:
            failure = cause
            continue
        precision = -hessian(lambda x: density.log_density_gradient(x)[1], mode)
        if not np.isfinite(precision).all():
            continue
        covariance = positive_covariance(precision)
        log_evidence = value + 0.5 * (np.linalg.slogdet(covariance)[1] + mode.size * LOG_2PI)
        scale = np.linalg.cholesky(covariance)
        points = mode + rng.standard_normal((25, mode.size)) @ scale.T
        fits.append(LocalFit(mode, covariance, float(log_evidence), points))
    if not fits:
        raise failure or EngineError("L-BFGS found no mode with a finite second derivative.")
    return fits
