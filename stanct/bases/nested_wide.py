"""Finds bases in two stages for hundreds of parameters, from the curvature at a mode.

It takes the place of pilots for programs such as Gaussian processes: given a few scales, all else
is Gaussian, and narrower than its prior along a few directions. Pilots take hundreds of gradients a
draw there, because these directions turn and stretch with the scales.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stanct.bases.local import LocalFit
from stanct.bases.nested import MOST_OUTER, Fit, Nested
from stanct.bases.scouts import annealed_scouts
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.path.conditional import Slices
from stanct.path.gaussian import gaussian_moments
from stanct.path.narrowed import Frame, Narrowed, frame_of, narrowed
from stanct.path.nested import NestedLowRank
from stanct.path.smooth import Smooth, interpolated
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget

# Pairs of directions for third derivatives, and the step of their differences, in standard
# deviations of the mode's Gaussian.
PAIRS, DIFFERENCE = 16, 1e-2
# The cubic terms of a Gaussian have no larger variance than this, in nats².
CUBIC = 0.003
# Sweeps of factor analysis, and how far a curvature along a direction of the frame is from that of
# the coordinates. More directions would cost more than pilots.
SWEEPS, TOLERANCE, MOST_DIRECTIONS = 10, 0.02, 60
# The largest variance, in nats², of log densities about those of the Gaussians. Curvatures below
# the tolerance are left out of them.
NEARLY = 0.05
# Gaussians are found in so many rounds, in each at so many places for each outer coordinate and one
# more. They lie far from each other among candidates of a Gaussian so wide and within this reach,
# in standard deviations, which follow from log masses. No variance falls below a share of itself.
ROUNDS, NODES, CANDIDATES, WIDTH, REACH, FLOOR = 3, 9, 2000, 2.0, 5.0, 0.01
# Particles that cool from the mode's Gaussian to where its mass is, and the steps of each.
PARTICLES, TEMPERATURES = 48, 12


def find_nested_wide(
    target: ProgramTarget, mode: LocalFit, seed: np.random.SeedSequence, *, threads: int
) -> Nested:
    """Fit a base in two stages, if the target is Gaussian and narrow given a few coordinates. The
    only mode has the covariance of its curvature.
    """
    moves, rest = seed.spawn(2)
    rng = np.random.default_rng(rest)
    density = target.density
    outer, spent = _outer(density, mode, rng)
    found = Nested(gradients=spent)
    if outer is None:
        return found
    precision = np.linalg.inv(mode.covariance)[np.ix_(~outer, ~outer)]
    frame = frame_of(mode.mean[~outer], precision, sweeps=SWEEPS, tolerance=TOLERANCE)
    if frame.vectors.shape[1] > MOST_DIRECTIONS:
        return found
    q = mode.gaussian
    try:
        cooled = annealed_scouts(
            density.borrow, q, particles=PARTICLES, seed=moves, threads=threads,
            temperatures=TEMPERATURES,
        )  # fmt: skip
    except EngineError:
        return found
    slices = Slices(density.log_density_gradients, outer)
    smooth = _smooth(slices, frame, cooled.points[:, outer], rng)
    found = replace(found, gradients=spent + cooled.gradients + slices.spent)
    if smooth is None:
        return found
    fit = Fit(density, cooled.points, rng, NestedLowRank, outer, **smooth._asdict())
    return found.with_fit(fit, limit=NEARLY)


def _smooth(slices: Slices, frame: Frame, theta: Array, rng: np.random.Generator) -> Smooth | None:
    """Gaussians around outer coordinates of shape (m, k); None if too many slices have no top.

    Log masses at the nodes so far tell where the next ones lie.
    """
    (middle, covariance), size = gaussian_moments(theta), theta.shape[1]
    at, known = np.empty((0, size)), list[Narrowed]()
    for _ in range(ROUNDS):
        unit = np.linalg.cholesky(covariance)
        u = WIDTH * rng.standard_normal((CANDIDATES, size))
        u = u[np.square(u).sum(axis=1) < REACH**2]
        chosen = _far(u, np.linalg.solve(unit, (at - middle).T).T, NODES * (size + 1))
        places = middle + u[chosen] @ unit.T
        found = [narrowed(slices, place, frame) for place in places]
        tops = [k for k, one in enumerate(found) if one.log_mass > -np.inf]
        if 2 * len(tops) < len(found):
            return None
        at, known = np.concatenate([at, places[tops]]), known + [found[k] for k in tops]
        log_mass = np.array([one.log_mass for one in known])
        nodes = np.linalg.solve(unit, (at - middle).T).T
        told = np.minimum(interpolated(nodes, log_mass, u), log_mass.max() + 1)
        log_weights = told + 0.5 * np.square(u / WIDTH).sum(axis=1)
        weights, before = np.exp(log_weights - log_weights.max()), covariance
        middle, covariance = gaussian_moments(middle + u @ unit.T, weights=weights)
        covariance = covariance + FLOOR * before
    unit = np.linalg.cholesky(covariance)
    nodes = np.linalg.solve(unit, (at - middle).T).T
    return Smooth.of(frame, (middle, unit), nodes, known)


def _far(u: Array, known: Array, count: int) -> list[int]:
    """So many rows of u, (n, k), always the one that is farthest from known ones, (m, k)."""
    away = np.full(len(u), 1e300)
    for node in known:
        away = np.minimum(away, np.square(u - node).sum(axis=1))
    chosen = list[int]()
    for _ in range(count):
        chosen.append(int(np.argmax(away)))
        away = np.minimum(away, np.square(u - u[chosen[-1]]).sum(axis=1))
    return chosen


def _outer(density: Density, mode: LocalFit, rng: np.random.Generator) -> tuple[Array | None, int]:
    """The coordinates given which the target is Gaussian, shape (D,), and the gradients spent.

    Third derivatives along two random directions each are a gradient, whose squares add up to how
    much of all third derivatives each coordinate takes part in. The one that takes most is held,
    and so on. None if there are none or too many.
    """
    spread = np.sqrt(np.diag(mode.covariance))
    inner, spent = np.ones(spread.size, bool), 0
    while True:
        share = np.zeros(spread.size)
        for _ in range(PAIRS):
            one, other = DIFFERENCE * spread * inner * rng.standard_normal((2, spread.size))
            steps = np.array([one + other, one, other, 0 * one])
            with np.errstate(over="ignore", invalid="ignore"):
                values, slopes = density.log_density_gradients(mode.mean + steps)
                third = (slopes[0] - slopes[1] - slopes[2] + slopes[3]) * spread / DIFFERENCE**2
            spent += len(steps)
            if not (np.isfinite(values).all() and np.isfinite(third).all()):
                return None, spent
            share += np.square(third * inner) / PAIRS
        if share.sum() / 6 < CUBIC:
            return (None if inner.all() else ~inner), spent
        if (~inner).sum() == MOST_OUTER:
            return None, spent
        inner[np.argmax(share)] = False
