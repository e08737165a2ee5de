"""Finds local Gaussian fits of a target by pilots, Pathfinder or Laplace, from several starts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from stanct.arrays import Array
from stanct.bases.scouts import annealed_scouts
from stanct.engines import embedded
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import DrawBlock, Nuts
from stanct.errors import EngineError, SamplingError
from stanct.path.gaussian import (
    LOG_2PI,
    GaussianBase,
    LocalFit,
    bridge_log_evidence,
    distinct_modes,
    gaussian_moments,
    hessian,
    moment_match,
    positive_covariance,
)
from stanct.seeds import stan_seed
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

METHODS = ("pilot", "pathfinder", "laplace")
# Draws of one local approximation: recipe, seed, draws, radius of the start.
Approximation = Callable[..., DrawBlock]
# Local fits from `STARTS` random starts.
Look = Callable[[np.random.SeedSequence, np.random.Generator], list[LocalFit]]
# Starts are uniform within these radii of the origin in turn. Stan's own 2 is kind to hierarchical
# programs; modes that lie further out are found from further out.
RADII = (2.0, 6.0, 15.0)
STARTS = 18
PILOT_WARMUP, PILOT_DRAWS, MOST_PILOTS = 300, 300, 8
# A mode that Pathfinder puts this many nats below its best one gets no pilot while those of the
# best ones agree.
NEGLIGIBLE = 7.0
# Annealed scouts where pilots stay apart: so many a dimension, from so many to so many.
SCOUTS_PER_DIMENSION, FEWEST_SCOUTS, MOST_SCOUTS = 4, 128, 512
# They start where modes are known with variances twice as large; four times in few dimensions,
# where that costs little, if there are likely more. (From too far broad modes get all of them.)
# They start again while they come to lie farther apart, up to so many times.
FEW, MOST_LOOKS = 4, 4


@dataclass(frozen=True)
class FittedBase:
    """A base with the guess log ζ and what it cost.

    Attributes
    ----------
    base, log_zeta
        The moment-matched Gaussian and the log of the fits' total evidence.
    fits
        One a distinct mode, best first.
    gradients, evaluations
        Gradients spent, and log densities without a gradient. L-BFGS and Pathfinder runs are
        counted by the draws they return: the engine does not tell their iterations.
    separated
        Whether pilots stayed in modes of their own, so that annealed scouts gave the base.
    """

    base: GaussianBase
    log_zeta: float
    fits: tuple[LocalFit, ...] = field(repr=False)
    gradients: int = 0
    evaluations: int = 0
    separated: bool = False


def fit_base(
    target: ProgramTarget,
    method: str,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    engine: CmdStan | None = None,
    progress: bool = False,
) -> FittedBase:
    """Fit a Gaussian base and log ζ.

    Parameters
    ----------
    method
        ``"pilot"``: Pathfinder from several starts finds the modes, short NUTS chains from there
        measure their shape, bridge sampling their mass; where the chains stay apart, annealed
        scouts look for what lies between and beyond them, and their spread is the base.
        ``"pathfinder"``: Pathfinder's own Gaussians weighted by evidence lower bounds.
        ``"laplace"``: Gaussians at the modes that L-BFGS finds; a poor choice for hierarchical
        programs, whose mode sits in a funnel's neck.
        ``"advi"``: full-rank variational fits, on CmdStan only.
    engine
        A `CmdStan` runs its own Pathfinder, ADVI and Laplace; pilots run on the embedded engine
        in any case, as a process for each would take longer than they do.
    chains
        At least this many pilots run.
    nuts
        Settings of the pilots; their acceptance target is Stan's own 0.8.
    progress
        Whether a bar on stderr counts the starts.

    Raises
    ------
    SamplingError
        There is no such method, or not on this engine.
    EngineError
        No start worked.
    """
    start_seed, pilot_seed, rng_seed, again_seed = seed.spawn(4)
    rng = np.random.default_rng(rng_seed)
    if method == "advi" and engine is None:
        raise SamplingError(
            "The base 'advi' is fitted by CmdStan, and this run is on the embedded engine.",
            remedy='Pass engine="cmdstan" (methods joint and pseudo_extended), or another base.',
        )
    if method not in (*METHODS, "advi"):
        raise SamplingError(
            f"There is no base {method!r}.",
            remedy=f"Use one of {', '.join(METHODS)}, or a GaussianBase.",
        )
    with Bar(STARTS, "base", unit="start", shown=progress) as bar:
        if method == "laplace" and engine is None:
            look = partial(_laplace_fits, target, bar)
            return _joined(_found(look, start_seed, again_seed, rng, bar)[0])
        draws = 25 if method == "pilot" else max(100, 4 * target.density.dimension)
        if engine is not None and method != "pilot":
            way = {
                "pathfinder": engine.pathfinder,
                "laplace": engine.laplace,
                "advi": engine.advi,
            }[method]
            found = _approximate(target, way, draws, bar, start_seed, rng)
            cost = _points(found)
        else:
            look = partial(_approximate, target, embedded.pathfinder, draws, bar)
            found, cost = _found(look, start_seed, again_seed, rng, bar)
        if method != "pilot":
            return _joined(found, evaluations=cost)
        bar.note("pilot chains")
        return _pilot_base(target, found, cost, chains, pilot_seed, rng, nuts)


def _joined(fits: list[LocalFit], evaluations: int = 0) -> FittedBase:
    """Keep the best fit of each mode and match moments."""
    kept = tuple(fits[group[0]] for group in distinct_modes(fits))
    base, log_zeta = moment_match(kept)
    return FittedBase(base, log_zeta, kept, evaluations=evaluations)


def _found(
    look: Look,
    seed: np.random.SeedSequence,
    again_seed: np.random.SeedSequence,
    rng: np.random.Generator,
    bar: Bar,
) -> tuple[list[LocalFit], int]:
    """Local fits from `STARTS` starts, and from as many again where those saw one mode only.

    A mode to which every sixth start leads is missed by all of the first in one run of 27, by all
    of both in one of 700. A second look that shows nothing new is dropped, but what it cost, in
    points, is in the second number.
    """
    found = look(seed, rng)
    cost = _points(found)
    if len(distinct_modes(found)) > 1:
        return found, cost
    bar.expect(2 * STARTS)
    bar.note("a second look")
    try:
        more = look(again_seed, np.random.default_rng(again_seed.spawn(1)[0]))
    except EngineError:  # the first look is enough
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
    """Gaussians with the moments of one approximation's draws from each start, and their bounds."""
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


def _pilot_base(
    target: ProgramTarget,
    found: list[LocalFit],
    evaluations: int,
    chains: int,
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
    nuts: Nuts,
) -> FittedBase:
    """Pilots from the modes that Pathfinder found, and scouts if these do not join them."""
    first_seed, second_seed, scout_seed = seed.spawn(3)
    every = distinct_modes(found)
    # The share of starts that alone led to their modes is the chance that the next one leads to a
    # mode not seen yet (Good 1953).
    unseen = any(len(group) == 1 for group in every)
    modes = every[:MOST_PILOTS]
    starts = []
    for k in range(chains):
        group = modes[k % len(modes)]
        fit = found[group[(k // len(modes)) % len(group)]]
        starts.append(fit.points[rng.integers(len(fit.points))])
    pilots, gradients = _pilots(target, starts, first_seed, rng, nuts)
    rest = [found[group[0]] for group in modes[chains:]]
    if len(distinct_modes(pilots)) == 1:
        floor = found[modes[0][0]].log_evidence - NEGLIGIBLE
        rest = [fit for fit in rest if fit.log_evidence > floor]
    if rest:
        starts = [fit.points[rng.integers(len(fit.points))] for fit in rest]
        more, spent = _pilots(target, starts, second_seed, rng, nuts)
        pilots, gradients = pilots + more, gradients + spent
    fits = []
    for group in distinct_modes(pilots):
        points = np.concatenate([pilots[i].points for i in group])
        fits.append(_bridged(target, points, rng))
        evaluations += 2 * len(points)
    if len(fits) > 1:
        return _scouted(target, fits, unseen, scout_seed, nuts, gradients, evaluations)
    base, log_zeta = moment_match(fits)
    return FittedBase(base, log_zeta, tuple(fits), gradients, evaluations)


def _scouted(
    target: ProgramTarget,
    fits: list[LocalFit],
    unseen: bool,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    gradients: int,
    evaluations: int,
) -> FittedBase:
    """The base that annealed scouts find, from a Gaussian around and beyond modes found so far.

    Every mode counts the same: the next one to be found may outweigh all of these. Where scouts
    come to lie farther apart than what they set out from, more go, from around and beyond them.
    They set out from farther if there may be modes that are `unseen`.
    """
    mean, covariance = gaussian_moments(np.concatenate([fit.points for fit in fits]))
    count = int(np.clip(SCOUTS_PER_DIMENSION * mean.size, FEWEST_SCOUTS, MOST_SCOUTS))
    # Of D ratios of two such variances the largest errs by √(2 ln D) standard errors, as a rule.
    noise = (1.5 + np.sqrt(2 * np.log(mean.size))) * np.sqrt(4 / count)
    more = 1 + 2 * unseen * min(1.0, FEW / mean.size) ** 2
    looks = seed.spawn(MOST_LOOKS)
    while True:
        before = np.diag(covariance)
        wide = GaussianBase.from_covariance(mean, covariance + more * np.diag(before))
        scouts = annealed_scouts(
            target.density.borrow, wide, particles=count, seed=looks.pop(), threads=nuts.threads
        )
        gradients += scouts.gradients
        mean, covariance = gaussian_moments(scouts.points)
        if not looks or np.all(np.diag(covariance) < (1 + noise) * before):
            break
    base = GaussianBase.from_covariance(mean, covariance)
    return FittedBase(base, scouts.log_z, tuple(fits), gradients, evaluations, separated=True)


def _pilots(
    target: ProgramTarget,
    starts: list[Array],
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
    nuts: Nuts,
) -> tuple[list[LocalFit], int]:
    """Short NUTS chains, each with the moments of its own draws, and the gradients spent."""
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
    """Fit a Gaussian to a mode's points and bridge between both for the mode's mass."""
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
