"""Pilots measure the modes that a search found, by short chains or by particles.

A mode whose Laplace approximation fits is measured by particles that move under the target from
draws of that approximation. Everywhere else, NUTS chains of a few hundred draws start at the mode.
Bridge sampling between a mode's points and its Gaussian gives its evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stanct.bases.local import LocalFit, best_of_each_mode, distinct_modes
from stanct.bases.score import half_width, unexplained
from stanct.bases.scouts import annealed_scouts
from stanct.bases.starts import reach_of
from stanct.bases.surroundings import log_mass, surroundings
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import EngineError
from stanct.common.seeds import stan_seed
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.path.bridge import bridge_log_z
from stanct.path.gaussian import GaussianBase, gaussian_moments, mixture_moments
from stanct.targets.integrable import Endless, endless_of
from stanct.targets.program_target import ProgramTarget

WARMUP, DRAWS = 300, 300
# The most modes that get a pilot each: many where a pilot costs little.
MOST_PILOTS, MOST_IN_FEW_DIMENSIONS, FEW = 8, 32, 5
# Where lines tell that a density has no end, trees of pilots are no deeper: along a flat direction
# they turn nowhere.
SHALLOW = 5
# A mode this many nats below the best is ignored. By the fits' bounds, it gets no pilot while those
# of the best modes agree. By the pilots' own evidences, it is dropped. A pilot that drifts along a
# ridge, or into a neck where coordinates are rounding noise, would otherwise widen the base by tens
# of standard deviations.
FAINT = 7.0
# A Laplace approximation fits if half of the width of δ over its draws is at most this, and no more
# over the particles that left it.
FITS = 0.7
# It is exact if δ has no wider range over its draws.
EXACT = 0.05
PARTICLES, STEPS = 48, 12
TRIAL = 100
# A fit lies far below the known modes if its bound and the density at all its points are lower than
# their mass by so many nats, and by so many more for each dimension.
FAR_BELOW, FOR_EACH = 50.0, 2.0
# Particles in place of a pilot, and the Gaussian from which they cool: the factor on a mode's
# covariance, or the standard deviation around the origin, as wide as Stan's own starts.
SCOUTS, WIDER, AROUND_ORIGIN = 256, 4.0, 2.0


@dataclass(frozen=True)
class Piloted:
    """Measured modes, a fit for each, best first, and what they cost."""

    fits: tuple[LocalFit, ...] = field(repr=False)
    gradients: int = 0
    evaluations: int = 0


@dataclass(frozen=True)
class Measured:
    """A mode that particles measured.

    Attributes
    ----------
    strays
        Points of mass outside of all known modes, if there are any; then there is no `fit`.
    around
        A wide Gaussian around the mode that holds mass of its own, if there is one.
    """

    fit: LocalFit | None = None
    strays: LocalFit | None = None
    around: LocalFit | None = None
    gradients: int = 0
    evaluations: int = 0


def measured(
    target: ProgramTarget,
    fit: LocalFit,
    seed: np.random.SeedSequence,
    *,
    threads: int,
    known: Sequence[LocalFit] = (),
    one_of_many: bool = False,
) -> Measured:
    """Measure a mode by particles that start at draws of its Laplace approximation.

    Parameters
    ----------
    one_of_many
        Whether draws alone may measure the mode, if it is exactly Gaussian there.
    """
    known = [*known] or [fit]
    q = fit.gaussian
    draws, moves, rest = seed.spawn(3)
    bulk = surroundings(
        target.density.log_densities, fit, known, np.random.default_rng(rest), reach_of(target)
    )
    around, spent = bulk.fit, bulk.evaluations + TRIAL
    known += [around] if around else []
    x = q.unwhiten(q.draw(np.random.default_rng(draws), TRIAL))
    # Where modes overlap, the target is the sum of their Gaussians.
    at_q = log_mass(known, x) - target.density.log_densities(x)
    if half_width(at_q) > FITS:
        return Measured(around=around, evaluations=spent)
    if one_of_many and np.ptp(at_q) < EXACT and not len(bulk.strays):
        exact = replace(fit, log_evidence=fit.log_evidence - float(at_q.mean()), points=x)
        return Measured(exact, around=around, evaluations=spent)
    try:
        found = annealed_scouts(
            target.density.borrow, q, particles=PARTICLES, seed=moves, threads=threads,
            temperatures=STEPS,
        )  # fmt: skip
    except EngineError:
        return Measured(around=around, evaluations=spent)
    cost = found.gradients, spent + len(found.points)
    log_density = target.density.log_densities(found.points)
    at_points = log_mass(known, found.points)
    strays = np.concatenate([found.points[unexplained(log_density, at_points)], bulk.strays])
    at_points -= log_density
    if len(strays):
        return Measured(None, _fit_of(strays, fit), around, *cost)
    apart = float(np.median(at_q) - np.median(at_points)) > 2 * FITS
    if apart or half_width(at_points) > FITS:
        return Measured(None, None, around, *cost)
    missing = bridge_log_z(-at_points, -at_q)
    known_fit = replace(fit, log_evidence=fit.log_evidence + missing, points=found.points)
    return Measured(known_fit, None, around, *cost)


def _fit_of(points: Array, like: LocalFit) -> LocalFit:
    """A fit to a few points, with the evidence of another."""
    if len(points) < 2:
        return replace(like, mean=points[0], points=points)
    mean, covariance = gaussian_moments(points)
    return replace(like, mean=mean, covariance=covariance, points=points)


def needless(
    target: ProgramTarget, fit: LocalFit, near: Sequence[LocalFit], bound: float = -np.inf
) -> bool:
    """Whether what is known tells all about a fit of an approximation, so that it needs no pilot.

    Pathfinder's approximations of strongly correlated parameters are far too narrow, and pilots,
    which scale each parameter alone, take a thousand gradients a draw there. A fit tells nothing
    new if the known modes are about as dense at all its points, or if it lies far below them.
    """
    log_density = target.density.log_densities(fit.points)
    known = float(log_sum_exp(np.array([bound, *(one.log_evidence for one in near)])))
    low = known - FAR_BELOW - FOR_EACH * fit.mean.size
    if max(fit.log_evidence, float(log_density.max())) < low:
        return True
    return bool(near) and not unexplained(log_density, log_mass(near, fit.points)).any()


def without_end(target: ProgramTarget, fits: Sequence[LocalFit]) -> Endless:
    """What lines through points of fits tell of mass without an end."""
    density = target.density
    points = np.concatenate([fit.points for fit in fits])
    points = points[np.isfinite(density.log_densities(points))]
    return endless_of(target.program, density, points, np.zeros(len(points)))


def most_pilots(dimension: int) -> int:
    """The most modes that get a pilot."""
    return MOST_IN_FEW_DIMENSIONS if dimension <= FEW else MOST_PILOTS


def piloted(
    target: ProgramTarget,
    found: Sequence[LocalFit],
    *,
    chains: int,
    seeds: tuple[np.random.SeedSequence, np.random.SeedSequence],
    rng: np.random.Generator,
    nuts: Nuts,
) -> Piloted:
    """Measure the modes of local fits by so many NUTS chains or more that start there. The seeds
    are those of the first pilots and of further ones.
    """
    modes = _spread_out(found, most_pilots(target.density.dimension))
    starts = []
    for k in range(chains):
        group = modes[k % len(modes)]
        fit = found[group[(k // len(modes)) % len(group)]]
        starts.append(fit.points[rng.integers(len(fit.points))])
    pilots, gradients = _pilots(target, starts, seeds[0], rng, nuts)
    rest = [found[group[0]] for group in modes[chains:]]
    if len(distinct_modes(pilots)) == 1:
        floor = found[modes[0][0]].log_evidence - FAINT
        rest = [fit for fit in rest if fit.log_evidence > floor]
    if rest:
        starts = [fit.points[rng.integers(len(fit.points))] for fit in rest]
        more, spent = _pilots(target, starts, seeds[1], rng, nuts)
        pilots, gradients = pilots + more, gradients + spent
    fits, evaluations = [], 0
    for group in distinct_modes(pilots):
        points = np.concatenate([pilots[i].points for i in group])
        fits.append(bridged(target, points, rng))
        evaluations += 2 * len(points)
    return Piloted(tuple(fits), gradients, evaluations)


def _spread_out(found: Sequence[LocalFit], most: int) -> list[list[int]]:
    """Groups of fits for pilots: those of the best modes, and those farthest from them.

    On a ridge or a shell, many local fits are of one mode. The best ones alone may be all of it.
    """
    modes = distinct_modes(found)
    if len(modes) <= most:
        return modes
    places = np.array([found[group[0]].mean for group in modes])
    places = places / np.maximum(places.std(axis=0), 1e-300)
    chosen = list(range(most // 2))
    floor = found[modes[0][0]].log_evidence - FAINT
    while len(chosen) < most:
        nearest = np.linalg.norm(places[:, None] - places[chosen], axis=2).min(axis=1)
        worth = [found[group[0]].log_evidence > floor for group in modes]
        chosen.append(int(np.argmax(np.where(worth, nearest, -1.0))))
    return [modes[k] for k in chosen]


def annealed(
    target: ProgramTarget,
    found: Sequence[LocalFit],
    seed: np.random.SeedSequence,
    *,
    rng: np.random.Generator,
    threads: int,
) -> Piloted:
    """Measure all modes at once by particles that cool from around them.

    It takes the place of pilots where no engine can run them. The one fit is as wide as the modes
    lie apart. Without any mode, the particles start around the origin.
    """
    dimension = target.density.dimension
    start = GaussianBase(np.zeros(dimension), AROUND_ORIGIN * np.eye(dimension))
    if found:
        modes = best_of_each_mode(found)
        mean, covariance, _ = mixture_moments(
            np.zeros(len(modes)), [fit.mean for fit in modes], [fit.covariance for fit in modes]
        )
        start = GaussianBase.from_covariance(mean, WIDER * covariance)
    scouts = annealed_scouts(
        target.density.borrow, start, particles=SCOUTS, seed=seed, threads=threads
    )
    fit = bridged(target, scouts.points, rng)
    return Piloted((fit,), scouts.gradients, 2 * len(scouts.points))


def _pilots(
    target: ProgramTarget,
    starts: list[Array],
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
    nuts: Nuts,
) -> tuple[list[LocalFit], int]:
    """Local fits with the moments of short NUTS chains, and the gradients spent."""
    drawn, gradients = short_chains(target, starts, seed, rng, nuts)
    return [LocalFit(*gaussian_moments(points), 0.0, points) for points in drawn], gradients


def short_chains(
    target: ProgramTarget,
    starts: Sequence[Array],
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
    nuts: Nuts,
) -> tuple[list[Array], int]:
    """Points of short NUTS chains, each of shape (n, D), and the gradients spent; an `EngineError`
    if no chain could start or none gave draws.
    """
    block, gradients = embedded.run_nuts(
        target.density.recipe,
        np.array(starts),
        seed=stan_seed(seed),
        warmup=WARMUP,
        draws=DRAWS,
        nuts=replace(nuts, target_accept=0.8),
    )
    drawn = [target.unconstrain(block, chain, rng) for chain in range(len(starts))]
    drawn = [points for points in drawn if len(points) > 1]
    if not drawn:
        raise EngineError("No pilot chain gave points that the transform can invert.")
    return drawn, gradients


def bridged(
    target: ProgramTarget,
    points: Array,
    rng: np.random.Generator,
    counts: Callable[[Array], Array] | None = None,
) -> LocalFit:
    """Fit a Gaussian to a mode's points, shape (n, D), and estimate the mode's mass by bridge
    sampling.

    `counts` says which points are in the region whose mass is wanted, as all given ones should be;
    by default that is the whole space.
    """
    mean, covariance = gaussian_moments(points)
    q = GaussianBase.from_covariance(mean, covariance)
    x = q.unwhiten(rng.standard_normal(points.shape))
    log_ratio = target.density.log_densities(x) - q.log_density(x)
    log_evidence = bridge_log_z(
        target.density.log_densities(points) - q.log_density(points),
        log_ratio if counts is None else np.where(counts(x), log_ratio, -np.inf),
    )
    return LocalFit(mean, covariance, log_evidence, points)
