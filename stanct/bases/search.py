"""Searches for modes: many cheap ascents at several scales, and the curvature where they end.

Starts lie at radii that grow geometrically around the origin of the unconstrained space, and then
around and beyond the modes that were found. Each ascent is a run of L-BFGS. Where it ends, Newton
steps and the exact curvature give a Laplace approximation. Ascents stop when few of their ends are
new: the share of modes that were reached only once estimates the probability that the next ascent
finds a new one (Good 1953).

A spike inside a wide mode draws no ascent from outside of its own small basin. Draws of the known
modes, and of a Gaussian around all of them, are many and cheap, and may fall into the basin. The
density there exceeds that of all known modes, and further ascents start at the draws of the largest
importance weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from stanct.arrays import Array, log_sum_exp
from stanct.bases.local import LocalFit, hessian, laplace_fit, positive_covariance
from stanct.bases.outskirts import outskirts, standing_out
from stanct.bases.resolution import finest_ratio
from stanct.errors import SamplingError
from stanct.path.gaussian import GaussianBase, mixture_moments

Gradient = Callable[[Array], tuple[float, Array]]

# Half the widths of the cubes in which ascents start. Stan's own is 2.
RADII = (2.0, 6.0, 15.0, 40.0, 100.0)
# Ascents in a batch, and the most batches. Further batches follow while ends are new. A narrow mode
# has a small basin. A search therefore has many ascents in few dimensions, where they are short.
BATCH, MOST_BATCHES = 30, 40
FEWEST_IN_FEW_DIMENSIONS, FEWEST, FEW = 24, 2, 12
# The search ends where none of the first so many ascents in more dimensions ends at a mode, as in
# funnels: they take as many steps as they may, and Pathfinder is needed in any case.
HOPELESS = 20
# Starts around a mode are this many of its standard deviations away, uniform in the logarithm.
# Every fourth may be much farther away.
NEAREST, FAR, FARTHEST = 3.0, 60.0, 3000.0
# The search goes on while the probability of a new mode is larger than this.
UNSEEN = 0.05
# Gradients that one ascent, and the whole search, may spend.
MOST_STEPS, MOST_GRADIENTS = 500, 30_000
# The fewest draws of a scan, however little the search may spend.
FEWEST_SCANS = 1_500
# Two ends are of one mode if they are nearer than this in standard deviations of its curvature, and
# the second is not higher by more than so many nats: else it is a spike in the middle of the mode.
SAME_END, HIGHER = 1.0, 1.0
# An ascent that stopped on a slope is at no mode: there the squared length of a Newton step, in
# standard deviations of the curvature, is larger than this.
ARRIVED = 0.1
# Modes whose Laplace evidence is lower by this many nats are not kept.
NEGLIGIBLE = 12.0
# Above this dimension, matrices of second derivatives cost more than they tell.
MOST_DIMENSIONS = 250
# Draws that scan, in rounds: in the known modes, around all of them, and around the origin, at so
# many times their widths or radii. A Gaussian spike of mass 1/2 in seven dimensions, ten times
# narrower than its surroundings, has one of 100,000 draws. Ascents start at the best draws where
# the density exceeds that of the modes by so many nats: a spike ten times narrower turns the
# gradient toward itself where it adds no more than a fiftieth. Rounds follow while they find new
# modes. On a ridge, where there is no end of modes, nothing is scanned.
SCANS, NEAR, BEYOND, AROUND_ORIGIN = 30_000, (1.0, 1.5, 2.5), (1.0, 2.5, 5.0), (3.0, 8.0, 20.0)
STARTS, EXCESS, MOST_SCANNED = 12, 0.02, 50
# Shares of the draws in the modes, around them and around the origin, and those of the widths.
SHARES, BY_WIDTH = (0.7, 0.2, 0.1), (0.5, 0.3, 0.2)
# The fewest and the most rounds. In up to three dimensions one suffices.
FEW_TO_SCAN, FEWEST_ROUNDS, MOST_ROUNDS = 3, 3, 6
# Above this dimension, too few draws come near a spike.
MOST_SCANNED_DIMENSIONS = 30
# Points far from the modes, in four to twelve dimensions. Looks follow while they find modes.
OUTSKIRTS, MOST_LOOKS = 60_000, 3
# Draws of a start toward the centre until the density is finite there.
MOST_SHRINKS = 12


@dataclass
class _Mode:
    """A place where ascents end."""

    place: Array
    value: float
    precision: Array
    seen: int = 1

    @cached_property
    def root(self) -> Array:
        """The Cholesky factor of the inverse of the precision."""
        return np.linalg.cholesky(positive_covariance(self.precision))

    def holds(self, place: Array, value: float) -> bool:
        """Whether an ascent that ended at a place, with that log density, is one of this mode."""
        offset = place - self.place
        near = float(offset @ self.precision @ offset) < SAME_END**2
        return near and value < self.value + HIGHER


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes
    ----------
    fits
        A Laplace approximation of each mode, best first.
    seen
        How many ascents ended at each.
    ascents, astray
        Number of ascents that ended at a mode, and of those that ended nowhere.
    unseen
        Estimated probability that one more ascent finds a new mode (Good 1953); 1 without ascents.
    radius
        The largest radius around the origin at which an ascent began.
    gradients, evaluations
        Gradients spent, and log densities without a gradient.
    finest
        How many times narrower than a mode a spike inside it may be, if it has as much mass, for
        the search to find it with a probability of 95 %; 1 if no draws looked for spikes.
    """

    fits: tuple[LocalFit, ...] = field(repr=False)
    seen: tuple[int, ...]
    ascents: int
    astray: int
    unseen: float
    radius: float
    gradients: int
    evaluations: int = 0
    finest: float = 1.0


class _Counted:
    """Counts the calls of a gradient, and knows how much a search may spend and how far it goes."""

    def __init__(self, gradient: Gradient, effort: float = 1.0, reach: float = math.inf) -> None:
        self.call = gradient
        self.reach = reach
        self.spent = 0
        self.most = int(MOST_GRADIENTS * effort)
        self.scans = max(int(SCANS * effort), FEWEST_SCANS)

    def __call__(self, x: Array) -> tuple[float, Array]:
        self.spent += 1
        return self.call(x)


def search(
    gradient: Gradient,
    dimension: int,
    seed: np.random.SeedSequence,
    *,
    radius: float | None = None,
    reach: float = math.inf,
    places: Sequence[Array] = (),
    log_densities: Callable[[Array], Array] | None = None,
    effort: float = 1.0,
) -> Search:
    """Search for the modes of a density.

    Parameters
    ----------
    gradient
        Log density and its gradient at an unconstrained point, shape (D,).
    dimension
        D.
    radius
        Largest radius at which ascents start; by default that of `RADII`.
    reach
        How far from the origin or from a mode, in any coordinate, starts of the search's own lie
        at most, and how long the steps of ascents are.
    places
        Further starts.
    log_densities
        Log density at points of shape (n, D), with which the modes are scanned for spikes.
    effort
        Share of the usual gradients and draws that may be spent, between 0 and 1.
    """
    counted = _Counted(gradient, effort, reach)
    if dimension > MOST_DIMENSIONS:
        return Search((), (), 0, 0, 1.0, 0.0, 0)
    rng = np.random.default_rng(seed)
    radii = [r for r in RADII if r <= reach and (radius is None or r < radius)]
    radii += [radius] if radius else []
    modes: list[_Mode] = []
    # L-BFGS solves tiny systems, for which waiting threads of BLAS cost thirty times the work.
    with threadpool_limits(1, "blas"):
        found = _searched(counted, dimension, rng, radii, places, modes)
        if log_densities is None or dimension > MOST_SCANNED_DIMENSIONS or not found.fits:
            return found
        rounds = 0
        while rounds < MOST_ROUNDS and len(modes) <= MOST_SCANNED:
            rounds += 1
            new = _scanned(counted, log_densities, modes, rng)
            if not new and rounds >= (1 if dimension <= FEW_TO_SCAN else FEWEST_ROUNDS):
                break
        looked = 0
        if FEW_TO_SCAN < dimension <= FEW:
            far = np.random.default_rng(seed.spawn(1)[0])
            looked = _looked_around(counted, log_densities, modes, far)
        fits, seen = _fits_of(modes, rng)
        scans = rounds * counted.scans
        near = [scans * SHARES[0] * part / len(modes) for part in BY_WIDTH]
        return replace(
            found, fits=fits, seen=seen, gradients=counted.spent, evaluations=scans + looked,
            finest=finest_ratio(dimension, NEAR, near),
        )  # fmt: skip


def ascents_from(
    gradient: Gradient, starts: Sequence[Array], spread: Array, rng: np.random.Generator
) -> Search:
    """Ascend from given starts alone, for as many dimensions as a D × D matrix allows.

    Parameters
    ----------
    gradient
        As in `search`.
    starts
        Unconstrained points, each of shape (D,).
    spread : shape (D,)
        Scales of the coordinates in which the first ascent steps. Later ones step in those of the
        curvature at the first mode. An ascent that ends at no mode ends the search.
    """
    counted = _Counted(gradient)
    modes: list[_Mode] = []
    ascents = 0
    for start in starts:
        if not _ascend(counted, start, modes, modes[0].root if modes else spread):
            return Search((), (), ascents, 1, 1.0, 0.0, counted.spent)
        ascents += 1
    fits, seen = _fits_of(modes, rng)
    return Search(fits, seen, ascents, 0, seen.count(1) / ascents, 0.0, counted.spent)


def _searched(
    counted: _Counted,
    dimension: int,
    rng: np.random.Generator,
    radii: Sequence[float],
    places: Sequence[Array],
    modes: list[_Mode],
) -> Search:
    ascents, astray, unseen = 0, 0, 1.0
    around = itertools.cycle(radii)

    def is_over() -> bool:
        hopeless = dimension > FEW and not ascents and astray >= max(HOPELESS, len(places))
        return hopeless or counted.spent >= counted.most

    for batch in range(MOST_BATCHES):
        starts = [*places] if batch == 0 else []
        centred = batch % 2 == 1 and modes
        for _ in range(BATCH):
            starts.append(
                _around(modes, rng, counted.reach)
                if centred
                else rng.uniform(-1, 1, dimension) * next(around)
            )
        for start in starts:
            if not is_over():
                # Steps in the coordinates of a mode make ascents short where scales differ widely.
                root = None if astray or dimension <= FEW or not modes else modes[0].root
                arrived = _ascend(counted, start, modes, root)
                ascents, astray = ascents + arrived, astray + (not arrived)
        once = sum(mode.seen == 1 for mode in modes)
        unseen = once / ascents if ascents else 1.0
        fewest = FEWEST_IN_FEW_DIMENSIONS if dimension <= FEW else FEWEST
        if (batch + 1 >= fewest and unseen < UNSEEN) or is_over():
            break
    return Search(*_fits_of(modes, rng), ascents, astray, unseen, max(radii), counted.spent)


def _fits_of(
    modes: Sequence[_Mode], rng: np.random.Generator
) -> tuple[tuple[LocalFit, ...], tuple[int, ...]]:
    """Laplace approximations of the modes that count, best first, and how often each was seen."""
    found = [(_laplace(mode, rng), mode.seen) for mode in modes]
    found.sort(key=lambda pair: -pair[0].log_evidence)
    best = found[0][0].log_evidence if found else 0.0
    kept = [pair for pair in found if pair[0].log_evidence > best - NEGLIGIBLE]
    return tuple(fit for fit, _ in kept), tuple(count for _, count in kept)


def _scanned(
    counted: _Counted,
    log_densities: Callable[[Array], Array],
    modes: list[_Mode],
    rng: np.random.Generator,
) -> bool:
    """Scan the modes and what lies between; return whether ascents from there find new ones."""
    known = len(modes)
    try:
        everywhere = _everywhere(modes)
    except SamplingError:  # modes of hardly any width, far apart
        return False
    gaussians = [GaussianBase(mode.place, mode.root) for mode in modes]
    dimension = modes[0].place.size
    around = [sd for sd in AROUND_ORIGIN if 2 * sd <= counted.reach] or AROUND_ORIGIN[:1]
    groups = (
        [GaussianBase(one.mean, width * one.scale) for one in gaussians for width in NEAR],
        [GaussianBase(everywhere.mean, width * everywhere.scale) for width in BEYOND],
        [GaussianBase(np.zeros(dimension), sd * np.eye(dimension)) for sd in around],
    )
    counts = [
        int(counted.scans * share * part * len(BY_WIDTH) / len(group))
        for group, share in zip(groups, SHARES, strict=True)
        for _, part in zip(group, itertools.cycle(BY_WIDTH), strict=False)
    ]
    parts = [q for group in groups for q in group]
    x = np.concatenate([q.unwhiten(q.draw(rng, n)) for q, n in zip(parts, counts, strict=True)])
    log_q = log_sum_exp(np.array([q.log_density(x) for q in parts]), axis=0)
    log_density = log_densities(x)
    tops = [
        mode.value - one.log_density(one.mean) for mode, one in zip(modes, gaussians, strict=True)
    ]
    of_modes = [top + one.log_density(x) for top, one in zip(tops, gaussians, strict=True)]
    excess = log_density - log_sum_exp(np.array(of_modes), axis=0)
    outside = excess > EXCESS
    # Large weights find spikes in the modes, large excesses the surroundings of modes far off.
    for rank in (log_density - log_q, excess):
        for best in np.argsort(-np.where(outside, rank, -np.inf))[:STARTS]:
            if outside[best]:
                _ascend(counted, x[best], modes)
    return len(modes) > known


def _looked_around(
    counted: _Counted,
    log_densities: Callable[[Array], Array],
    modes: list[_Mode],
    rng: np.random.Generator,
) -> int:
    """Look far from the modes, and ascend from what stands out there; return the points spent."""
    looked = 0
    for _ in range(MOST_LOOKS):
        if len(modes) > MOST_SCANNED:
            break
        known = [GaussianBase(mode.place, mode.root) for mode in modes]
        count = int(OUTSKIRTS * counted.scans / SCANS)
        points = outskirts(known, count, counted.reach, rng)
        looked += len(points)
        for best in standing_out(known, points, log_densities(points), 2 * STARTS):
            _ascend(counted, points[best], modes)
        if len(modes) == len(known):
            break
    return looked


def _everywhere(modes: Sequence[_Mode]) -> GaussianBase:
    """A Gaussian around all modes, which have equal weights."""
    mean, covariance, _ = mixture_moments(
        np.zeros(len(modes)),
        [mode.place for mode in modes],
        [mode.root @ mode.root.T for mode in modes],
    )
    return GaussianBase.from_covariance(mean, covariance)


def _around(modes: Sequence[_Mode], rng: np.random.Generator, reach: float) -> Array:
    """A start around one of the modes, at a distance on the scale of that mode."""
    mode = modes[int(rng.integers(len(modes)))]
    direction = rng.standard_normal(mode.place.size)
    farthest = FARTHEST if rng.random() < 0.25 else FAR
    far = np.exp(rng.uniform(np.log(NEAREST), np.log(farthest)))
    offset = far * (mode.root @ direction) / np.linalg.norm(direction)
    return mode.place + offset * min(1.0, reach / np.abs(offset).max())


def _ascend(
    gradient: _Counted, start: Array, modes: list[_Mode], root: Array | None = None
) -> bool:
    """Ascend from a start, and add the end to the modes; return whether it is a mode.

    With a root R of a covariance, the steps are those of L-BFGS in z, x = start + R z. A vector is
    the diagonal of R. No step reaches farther than the search's `reach` from the best place.
    """
    for _ in range(MOST_SHRINKS):
        best = gradient(start)[0]
        if np.isfinite(best):
            break
        start = 0.6 * start
    else:
        return False

    root = np.ones(start.size) if root is None else root
    scaled = np.multiply if root.ndim == 1 else np.matmul

    def place_of(z: Array) -> Array:
        return start + scaled(root, z)

    top = start  # the best place so far
    seen, slope_seen = b"", np.zeros(start.size)

    def descent(z: Array) -> float:
        nonlocal best, top, seen, slope_seen
        seen, slope_seen = z.tobytes(), np.zeros(z.size)
        place = place_of(z)
        if not np.abs(place - top).max() <= gradient.reach:
            return 1e300
        value, slope = gradient(place)
        if not np.isfinite(value):
            return 1e300
        if value > best:
            best, top = value, place
        slope_seen = -scaled(slope, root)
        return -value

    def slope_of(z: Array) -> Array:
        # L-BFGS asks for it where it has just asked for the value. SciPy's own way to have both at
        # once takes as long as the log density of a small program.
        if z.tobytes() != seen:
            descent(z)
        return slope_seen

    with np.errstate(all="ignore"):
        found = minimize(
            descent, np.zeros(start.size), jac=slope_of, method="L-BFGS-B",
            options={"maxiter": MOST_STEPS, "maxfun": MOST_STEPS, "ftol": 1e-10, "gtol": 1e-5},
        )  # fmt: skip
    place, value = place_of(np.asarray(found.x, float)), -float(found.fun)
    if not np.isfinite(value) or value < -1e299:
        return False
    if _seen_again(modes, place, value):
        return True
    precision = -hessian(lambda x: gradient(x)[1], place)
    place, value, precision = _newton(gradient, place, value, precision)
    if not np.isfinite(precision).all():
        return False
    curvatures, axes = np.linalg.eigh(precision)
    if curvatures[0] <= 0:
        return False
    if not float(np.square(gradient(place)[1] @ axes) @ (1 / curvatures)) < ARRIVED:
        return False
    if not _seen_again(modes, place, value):
        modes.append(_Mode(place, value, precision))
    return True


def _seen_again(modes: Sequence[_Mode], place: Array, value: float) -> bool:
    """Whether a place of that log density belongs to a known mode, which is then seen once more."""
    for mode in modes:
        if mode.holds(place, value):
            mode.seen += 1
            return True
    return False


def _newton(
    gradient: _Counted, place: Array, value: float, precision: Array
) -> tuple[Array, float, Array]:
    """Newton steps while they ascend by more than rounding, with the curvature at their end.

    No coordinate changes by more than `reach` in a step.
    """
    for _ in range(3):
        if not np.isfinite(precision).all():
            break
        slope = gradient(place)[1]
        try:
            step = np.linalg.solve(precision, slope)
        except np.linalg.LinAlgError:
            break
        if np.abs(step).max() > gradient.reach:
            break
        gain = 0.5 * float(slope @ step)
        new = gradient(place + step)[0]
        if not (gain > 1e-9 and new > value):
            break
        place, value = place + step, new
        precision = -hessian(lambda x: gradient(x)[1], place)
    return place, value, precision


def _laplace(mode: _Mode, rng: np.random.Generator) -> LocalFit:
    return laplace_fit(mode.place, mode.value, mode.precision, rng)
