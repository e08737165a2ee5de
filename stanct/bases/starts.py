"""Local fits from random starts, by Pathfinder or L-BFGS."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stanct.bases.ascents import Counted, Optimum, climb
from stanct.bases.local import LocalFit, bounded
from stanct.common.arrays import Array
from stanct.common.errors import EngineError, SamplingError, first_few
from stanct.common.seeds import stan_seed
from stanct.engines import embedded
from stanct.engines.embedded import DrawBlock
from stanct.path.gaussian import LOG_2PI, gaussian_moments
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

# The draws of Pathfinder from one start, or why there are none.
Attempt = DrawBlock | EngineError
# Starts are uniform within these radii of the origin, used in turn. Stan's own 2 suits hierarchical
# programs. Larger radii find modes that lie further out.
RADII = (2.0, 6.0, 15.0)
STARTS = 18
# Where the density solves equations, it is asked for no farther than this from the origin or from a
# mode, and steps of ascents are no longer. A rate that is e⁶ times as large takes a solver hundreds
# of times as long, and is rejected more often than not.
NEAR = 2.0
# Points at which a flat density is told, and the largest slope there.
FLAT_AT, FLAT = 8, 1e-12
# Distances from the origin at which a prior so wide that it is flat there falls off, and by how
# many nats it then does.
FAR, LOWER = 10.0 ** np.arange(3, 151), 0.3


def reach_of(target: ProgramTarget) -> float:
    """How far from the origin of the unconstrained space, or from a mode, ascents may start."""
    return NEAR if target.solves_equations else math.inf


def _radii(target: ProgramTarget, radii: Sequence[float] = RADII) -> Iterator[float]:
    """The radii of starts, in turn."""
    return itertools.cycle([radius for radius in radii if radius <= reach_of(target)])


def approximations(
    target: ProgramTarget,
    draws: int,
    bar: Bar,
    seed: np.random.SeedSequence,
    rng: np.random.Generator,
    *,
    starts: int = STARTS,
) -> list[LocalFit]:
    """From each start, a Gaussian with the moments of Pathfinder's draws, and its bound; an
    `EngineError` if no start led to two points with a finite density. Starts lie at the `RADII` in
    turn.
    """
    seen = attempts(target, draws, bar, seed, starts=starts)
    return fitted(target, seen, rng)


def attempts(
    target: ProgramTarget,
    draws: int,
    bar: Bar,
    seed: np.random.SeedSequence,
    *,
    starts: int = STARTS,
    radii: Sequence[float] = RADII,
    judged: int = embedded.JUDGED,
) -> Iterator[Attempt]:
    """From each start, Pathfinder's draws; see `approximations`."""
    with target.density.borrow() as own:
        for child, radius in zip(seed.spawn(starts), _radii(target, radii), strict=False):
            attempt: Attempt
            try:
                with bounded(own):
                    attempt = embedded.pathfinder(
                        target.density_recipe,
                        seed=stan_seed(child),
                        draws=draws,
                        radius=radius,
                        judged=judged,
                    )
            except EngineError as cause:
                attempt = cause
            bar.update()
            yield attempt


def inside_of(
    target: ProgramTarget, seen: Iterable[Attempt], rng: np.random.Generator
) -> tuple[list[tuple[Array, Array]], str]:
    """Points of attempts with their log densities, where two or more of these are finite.

    The text says how the last failed, and is empty where none did.
    """
    found, failure = list[tuple[Array, Array]](), ""
    for attempt in seen:
        try:
            if isinstance(attempt, EngineError):
                raise attempt
            points = target.unconstrain(attempt, 0, rng)
        except EngineError as cause:
            failure = f" The last one said: {cause.message}"
            continue
        log_density = target.density.log_densities(points)
        inside = np.isfinite(log_density)
        if inside.sum() > 1:
            found.append((points[inside], log_density[inside]))
    return found, failure


def fitted(
    target: ProgramTarget, seen: Iterable[Attempt], rng: np.random.Generator
) -> list[LocalFit]:
    """Gaussians with the moments of attempts; see `approximations`."""
    fits: list[LocalFit] = []
    found, failure = inside_of(target, seen, rng)
    for points, log_density in found:
        mean, covariance = gaussian_moments(points)
        entropy = 0.5 * (np.linalg.slogdet(covariance)[1] + mean.size * (1 + LOG_2PI))
        fits.append(LocalFit(mean, covariance, float(log_density.mean() + entropy), points))
    if not fits:
        _refuse_flat(target.density, rng)
        raise EngineError(
            f"The local fit (pathfinder) failed from all starts.{failure}",
            remedy="Check that the density is finite and smooth near the origin of the "
            "unconstrained space, and that scales do not differ by many orders of magnitude, which "
            "`multiplier` mends. Or pass base='laplace' or a GaussianBase.",
        )
    return fits


def _refuse_flat(density: Density, rng: np.random.Generator) -> None:
    """Refuse a density that is flat around the origin, which no fit can follow."""
    points = 2 * rng.standard_normal((FLAT_AT, density.dimension))
    values, slopes = density.log_density_gradients(points)
    if np.isfinite(values).all() and np.abs(slopes).max() < FLAT:
        names = density.unconstrained_names
        where = f"The density is flat around the origin: it does not depend on {first_few(names)}"
        if wide := _widest(density):
            name, scale = wide
            raise SamplingError(
                f"{where} there, and falls off along {name} at about {scale:.0e} only.",
                remedy=f"Declare its scale, as in real<multiplier={scale:.0e}> {name}.",
            )
        raise SamplingError(
            f"{where}.",
            remedy="Give each parameter a proper prior. For a uniform one, declare its bounds, as "
            "in real<lower=0, upper=1>.",
        )


def _widest(density: Density) -> tuple[str, float] | None:
    """The coordinate with the widest scale, by where the log density is lower than at the origin.

    None unless it is so for all coordinates. Ends of a support are no scales.
    """
    places = np.zeros((density.dimension, FAR.size, density.dimension))
    for axis, place in enumerate(places):
        place[:, axis] = FAR
    values = density.log_densities(places.reshape(-1, density.dimension))
    fall = density.log_densities(places[:1, 0] * 0) - values.reshape(places.shape[:2])
    lower = np.isfinite(fall) & (fall > LOWER)
    if not lower.any(axis=1).all():
        return None
    first = np.argmax(lower, axis=1)
    name = density.unconstrained_names[int(first.argmax())]
    return name.partition(".")[0], float(FAR[first.max()])


def laplace_fits(
    target: ProgramTarget, seed: np.random.SeedSequence, rng: np.random.Generator
) -> tuple[list[LocalFit], int]:
    """The Laplace approximations of the modes at which ascents end, and the gradients spent; an
    `EngineError` if none does.
    """
    starts, modes = np.random.default_rng(seed), list[Optimum]()
    counted = Counted(target.density, reach=reach_of(target))
    for _, radius in zip(range(2 * STARTS), _radii(target), strict=False):
        climb(counted, starts.uniform(-radius, radius, target.density.dimension), modes)
    if not modes:
        _refuse_flat(target.density, rng)
        raise EngineError(
            "L-BFGS found no mode with a finite second derivative.",
            remedy="Use base='pathfinder', which stops where the bulk of the mass is.",
        )
    return [mode.fit(rng) for mode in modes], counted.spent
