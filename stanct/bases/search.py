"""Searches for modes: many cheap ascents at several scales, and the curvature where they end.

Starts lie at radii that grow geometrically around the origin of the unconstrained space, and then
around and beyond the modes that were found. Each ascent is a run of L-BFGS. Where it ends, Newton
steps and the exact curvature give a Laplace approximation. Ascents stop when few of their ends are
new: the share of modes that were reached only once estimates the probability that the next ascent
finds a new one (Good 1953). They also stop where so many ends are new that no affordable number of
ascents would find few.

A spike inside a wide mode draws no ascent from outside of its own small basin. Draws of the known
modes, and of a Gaussian around all of them, are many and cheap, and may fall into the basin. The
density there exceeds that of all known modes, and further ascents start at the draws of the largest
importance weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from stanct.bases.local import LocalFit, laplace_fit, positive_covariance
from stanct.bases.outskirts import outskirts as points_outside
from stanct.bases.outskirts import standing_out
from stanct.bases.resolution import finest_ratio
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.kernels import SIGNATURE
from stanct.kernels.ascent import SPENT, VALUE, Hill, Z, ascend, make_ascent
from stanct.path.curvature import hessian
from stanct.path.gaussian import GaussianBase, mixture_moments
from stanct.targets.protocols import SampledDensity
from stanct.work.interrupts import Pace

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
# The search goes on while the probability of a new mode is larger than this. After so many ascents
# it is given up if that probability, less so many of its errors, must stay larger.
UNSEEN, FEWEST_TO_TELL, ERRORS = 0.05, 100, 2.0
# Gradients that one ascent may spend, or as many as there are dimensions, and those of the whole
# search. Of eight searches for a Gaussian process of 1,000 points, two did not arrive within 500.
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
    ends
        Number of modes at which ascents ended, also of those that are not kept.
    unseen
        Estimated probability that one more ascent finds a new mode (Good 1953); 1 without ascents.
    radius
        The largest radius around the origin at which an ascent began.
    gradients, evaluations
        Gradients spent, and log densities without a gradient.
    finest
        How many times narrower than a mode a spike inside it may be, if it has as much mass, for
        the search to find it with a probability of 95 %; 1 if no draws looked for spikes.
    dimension
        Dimension of the space.
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
    ends: int = 0
    dimension: int = 0

    @property
    def steps(self) -> int:
        """Gradients that an ascent took in the mean, with those at its end."""
        return round(self.gradients / max(self.ascents + self.astray, 1))

    def has_thousands(self, share: float) -> bool:
        """Whether in many dimensions a larger share of the ascents ended at a mode of its own."""
        return self.dimension > FEW and bool(self.ascents) and self.unseen > share


class _Counted:
    """A density that counts its gradients, with what a search may spend and how far it goes."""

    def __init__(
        self, density: SampledDensity, effort: float = 1.0, reach: float = math.inf
    ) -> None:
        self._density, self._call = density, SIGNATURE(density.address)
        self._pace = Pace()
        self.log_densities = density.log_densities
        self.reach = reach
        self.spent = 0
        self.most = int(MOST_GRADIENTS * effort)
        self.scans = max(int(SCANS * effort), FEWEST_SCANS)

    def at(self, place: Array) -> tuple[float, Array]:
        """Log density and gradient at a place."""
        self.spent += 1
        values, slopes = self._density.log_density_gradients(place[None])
        return float(values[0]), slopes[0]

    def precision(self, place: Array) -> Array:
        """Minus the second derivatives at a place."""
        self.spent += 2 * place.size
        return -hessian(self._density.log_density_gradients, place)

    def ascended(self, start: Array, root: Array) -> tuple[Array, float]:
        """The end of an ascent by L-BFGS, and its log density; −inf where the start is rejected.

        Steps are those of z, x = start + R z. No coordinate changes by more than `reach` in a step.

        Parameters
        ----------
        root : shape (D, D) or (1, D)
            R, or its diagonal.
        """
        widest = np.abs(root).max() if len(root) == 1 else np.linalg.norm(root, axis=1).max()
        longest = float(self.reach / widest)
        # A copy is writable, as kernels want all arrays to be.
        hill = Hill(self._call, self._density.handle, np.array(start, float), root, longest)
        vectors, numbers = make_ascent(start.size)
        for part in self._pace.parts(max(MOST_STEPS, start.size)):
            if ascend(hill, vectors, numbers, part.stop - part.start):
                break
        self.spent += int(numbers[SPENT])
        moved = root[0] * vectors[Z] if len(root) == 1 else root @ vectors[Z]
        return start + moved, float(numbers[VALUE]) + self._density.constant


def search(
    density: SampledDensity,
    seed: np.random.SeedSequence,
    *,
    radius: float | None = None,
    reach: float = math.inf,
    places: Sequence[Array] = (),
    scan: bool = True,
    outskirts: bool = True,
    effort: float = 1.0,
) -> Search:
    """Search for the modes of a density.

    Parameters
    ----------
    radius
        Largest radius at which ascents start; by default that of `RADII`.
    reach
        How far from the origin or from a mode, in any coordinate, starts of the search's own lie
        at most, and how long the steps of ascents are.
    places
        Further starts.
    scan, outskirts
        Whether the modes are scanned for spikes, and their surroundings for further modes.
    effort
        Share of the usual gradients and draws that may be spent, between 0 and 1.
    """
    counted, dimension = _Counted(density, effort, reach), density.dimension
    if dimension > MOST_DIMENSIONS:
        return Search((), (), 0, 0, 1.0, 0.0, 0)
    rng = np.random.default_rng(seed)
    radii = [r for r in RADII if r <= reach and (radius is None or r < radius)]
    radii += [radius] if radius else []
    modes: list[_Mode] = []
    found = _searched(counted, dimension, rng, radii, places, modes)
    if not scan or dimension > MOST_SCANNED_DIMENSIONS or not found.fits:
        return found
    rounds = 0
    while rounds < MOST_ROUNDS and len(modes) <= MOST_SCANNED:
        rounds += 1
        new = _scanned(counted, modes, rng)
        if not new and rounds >= (1 if dimension <= FEW_TO_SCAN else FEWEST_ROUNDS):
            break
    looked = 0
    if outskirts and FEW_TO_SCAN < dimension <= FEW:
        looked = _looked_around(counted, modes, np.random.default_rng(seed.spawn(1)[0]))
    fits, seen = _fits_of(modes, rng)
    scans = rounds * counted.scans
    near = [scans * SHARES[0] * part / len(modes) for part in BY_WIDTH]
    return replace(
        found, fits=fits, seen=seen, gradients=counted.spent, evaluations=scans + looked,
        finest=finest_ratio(dimension, NEAR, near),
    )  # fmt: skip


def ascents_from(
    density: SampledDensity, starts: Sequence[Array], spread: Array, rng: np.random.Generator
) -> Search:
    """Ascend from given starts alone, for as many dimensions as a D × D matrix allows.

    Parameters
    ----------
    starts
        Unconstrained points, each of shape (D,).
    spread : shape (D,)
        Scales of the coordinates in which the first ascent steps. Later ones step in those of the
        curvature at the first mode. An ascent that ends at no mode ends the search.
    """
    counted = _Counted(density)
    modes: list[_Mode] = []
    ascents = 0
    for start in starts:
        if not _ascend(counted, start, modes, modes[0].root if modes else spread[None]):
            return Search((), (), ascents, 1, 1.0, 0.0, counted.spent)
        ascents += 1
    fits, seen = _fits_of(modes, rng)
    unseen = seen.count(1) / ascents
    return Search(fits, seen, ascents, 0, unseen, 0.0, counted.spent, ends=len(modes))


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
        most = min((MOST_BATCHES * BATCH) / (ascents + astray), counted.most / counted.spent)
        if ascents >= FEWEST_TO_TELL and _stays_large(unseen, ascents, most):
            break
    return Search(
        *_fits_of(modes, rng), ascents, astray, unseen, max(radii), counted.spent, ends=len(modes),
        dimension=dimension,
    )  # fmt: skip


def _stays_large(unseen: float, ascents: int, times: float) -> bool:
    """Whether so many times as many ascents leave the probability of a new mode above `UNSEEN`.

    It is U(n) = E (1 − p)ⁿ over the modes' probabilities p, and U(t n) ≥ U(n)ᵗ by Jensen's
    inequality.
    """
    least = unseen - ERRORS * math.sqrt(unseen * (1 - unseen) / ascents)
    return max(least, 0.0) ** times > UNSEEN


def _fits_of(
    modes: Sequence[_Mode], rng: np.random.Generator
) -> tuple[tuple[LocalFit, ...], tuple[int, ...]]:
    """Laplace approximations of the modes that count, best first, and how often each was seen."""
    found = [(_laplace(mode, rng), mode.seen) for mode in modes]
    found.sort(key=lambda pair: -pair[0].log_evidence)
    best = found[0][0].log_evidence if found else 0.0
    kept = [pair for pair in found if pair[0].log_evidence > best - NEGLIGIBLE]
    return tuple(fit for fit, _ in kept), tuple(count for _, count in kept)


def _scanned(counted: _Counted, modes: list[_Mode], rng: np.random.Generator) -> bool:
    """Scan the modes and what lies between; return whether ascents from there find new ones."""
    known = len(modes)
    try:
        everywhere = _everywhere(modes)
    except SamplingError:  # modes of hardly any width, far apart
        return False
    dimension = modes[0].place.size
    around = [sd for sd in AROUND_ORIGIN if 2 * sd <= counted.reach] or AROUND_ORIGIN[:1]
    centres = [GaussianBase(mode.place, mode.root) for mode in modes]
    centres += [everywhere, GaussianBase(np.zeros(dimension), np.eye(dimension))]
    shares = [*[SHARES[0] / len(modes)] * len(modes), *SHARES[1:]]
    parts = [
        (k, width, int(counted.scans * share * part * len(BY_WIDTH) / len(widths)))
        for k, (share, widths) in enumerate(
            zip(shares, [*[NEAR] * len(modes), BEYOND, around], strict=True)
        )
        for width, part in zip(widths, BY_WIDTH, strict=False)
    ]
    x = np.concatenate([centres[k].unwhiten(w * centres[k].draw(rng, n)) for k, w, n in parts])
    squares = [np.square(one.whiten(x)).sum(axis=1) for one in centres]
    terms = [
        -0.5 * squares[k] / width**2 - dimension * np.log(width) - centres[k].log_det_scale
        for k, width, _ in parts
    ]
    log_q = log_sum_exp(np.array(terms), axis=0)  # up to a constant
    log_density = counted.log_densities(x)
    of_modes = [mode.value - 0.5 * square for mode, square in zip(modes, squares, strict=False)]
    excess = log_density - log_sum_exp(np.array(of_modes), axis=0)
    outside = excess > EXCESS
    # Large weights find spikes in the modes, large excesses the surroundings of modes far off.
    for rank in (log_density - log_q, excess):
        for best in np.argsort(-np.where(outside, rank, -np.inf))[:STARTS]:
            if outside[best]:
                _ascend(counted, x[best], modes)
    return len(modes) > known


def _looked_around(counted: _Counted, modes: list[_Mode], rng: np.random.Generator) -> int:
    """Look far from the modes, and ascend from what stands out there; return the points spent."""
    looked = 0
    for _ in range(MOST_LOOKS):
        if len(modes) > MOST_SCANNED:
            break
        known = [GaussianBase(mode.place, mode.root) for mode in modes]
        count = int(OUTSKIRTS * counted.scans / SCANS)
        points = points_outside(known, count, counted.reach, rng)
        looked += len(points)
        for best in standing_out(known, points, counted.log_densities(points), 2 * STARTS):
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


def _ascend(counted: _Counted, start: Array, modes: list[_Mode], root: Array | None = None) -> bool:
    """Ascend from a start, and add the end to the modes; return whether it is a mode.

    With a root R of a covariance, the steps are those of L-BFGS in z, x = start + R z; see
    `_Counted.ascended`.
    """
    root = np.ones((1, start.size)) if root is None else root
    for _ in range(MOST_SHRINKS):
        place, value = counted.ascended(start, root)
        if np.isfinite(value):
            break
        start = 0.6 * start
    else:
        return False
    if _seen_again(modes, place, value):
        return True
    place, value, slope, precision = _newton(counted, place)
    if not np.isfinite(precision).all():
        return False
    curvatures, axes = np.linalg.eigh(precision)
    if curvatures[0] <= 0:
        return False
    with np.errstate(over="ignore"):  # far out, on a slope without an end
        arrived = float(np.square(slope @ axes) @ (1 / curvatures)) < ARRIVED
    if not arrived:
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


def _newton(counted: _Counted, place: Array) -> tuple[Array, float, Array, Array]:
    """Newton steps while they ascend by more than rounding.

    No coordinate changes by more than `reach` in a step.

    Returns
    -------
    Their end, and the log density, the gradient and minus the second derivatives there.
    """
    value, slope = counted.at(place)
    precision = counted.precision(place)
    for _ in range(3):
        if not np.isfinite(precision).all():
            break
        try:
            step = np.linalg.solve(precision, slope)
        except np.linalg.LinAlgError:
            break
        if np.abs(step).max() > counted.reach:
            break
        new, slope_there = counted.at(place + step)
        if not (0.5 * float(slope @ step) > 1e-9 and new > value):
            break
        place, value, slope = place + step, new, slope_there
        precision = counted.precision(place)
    return place, value, slope, precision


def _laplace(mode: _Mode, rng: np.random.Generator) -> LocalFit:
    return laplace_fit(mode.place, mode.value, mode.precision, rng)
