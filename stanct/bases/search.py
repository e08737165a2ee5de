"""Searches for modes: many cheap ascents at several scales, and the curvature where they end.

Starts lie at radii that grow geometrically around the origin of the unconstrained space, and then
around and beyond the modes that were found. Each ascent is a run of L-BFGS. Where it ends, Newton
steps and the exact curvature give a Laplace approximation. Ascents stop when few of their ends are
new: the share of modes that were reached only once estimates the probability that the next ascent
finds a new one (Good 1953). They also stop where so many ends are new that no affordable number of
ascents would find few.

What was found is then scanned for spikes and for modes around it (`stanct.bases.scans`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stanct.bases.ascents import SCANS, Counted, Optimum, climb, each_height, uncounted
from stanct.bases.components import are_all, around, components, explain
from stanct.bases.local import LocalFit
from stanct.bases.resolution import finest_ratio
from stanct.bases.rough import crossed_starts, found_again, is_rough, those_that_count
from stanct.bases.scans import (
    BY_WIDTH,
    BY_WITHIN,
    MOST_SCANNED,
    NEAR,
    OUTSKIRTS,
    SHARES,
    TIMES,
    WITHIN,
    looked_around,
    looked_within,
    scanned,
)
from stanct.common.arrays import Array
from stanct.targets.protocols import SampledDensity
from stanct.work.progress import Bar

# Half the widths of the cubes in which ascents start. Stan's own is 2.
RADII = (2.0, 6.0, 15.0, 40.0, 100.0)
# Ascents in a batch, and the most batches. Further batches follow while ends are new. A narrow mode
# has a small basin. A search therefore has many ascents in few dimensions, where they are short,
# and where several modes are known.
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
# Where an ascent in more than twelve dimensions is more likely than this to find a new mode, there
# are thousands.
THOUSANDS = 0.5
# A rough target is searched on with so many gradients at most, until the best mode was found so
# often. After each look at crossed ends follow so many batches.
ROUGH, AGAIN, BATCHES = 300_000, 6, 3
# Above this dimension, matrices of second derivatives cost more than they tell.
MOST_DIMENSIONS = 250
# The fewest and the most rounds. In up to three dimensions one suffices.
FEW_TO_SCAN, FEWEST_ROUNDS, MOST_ROUNDS = 3, 3, 6
# Above this dimension, too few draws come near a spike.
MOST_SCANNED_DIMENSIONS = 30


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes
    ----------
    ends
        Number of modes at which ascents ended, also of those that are not kept.
    unseen
        Estimated probability that one more ascent finds a new mode (Good 1953); 1 without ascents.
    finest
        How many times narrower than a mode a spike inside it may be, if it has as much mass, for
        the search to find it with a probability of 95 %; 1 if no draws looked for spikes.
    again
        Where most modes were seen once, how many ascents ended at the best, or at others as good;
        otherwise None.
    below
        How far the log mass of the mode at which the ascent from each given place ended lies below
        that of the best; None where it ended at no mode.
    particles, settled
        Annealed particles that looked for further modes, and whether the last look found hardly any
        mass that was new, and all looks together nearly all that was known; None without a look.
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
    again: int | None = None
    optima: tuple[Optimum, ...] = field(default=(), repr=False, compare=False)
    below: tuple[float | None, ...] = ()
    particles: int = 0
    settled: bool | None = None
    named: int = 0
    whole: bool = False

    @property
    def steps(self) -> int:
        """Gradients that an ascent took in the mean, with those at its end."""
        return round(self.gradients / max(self.ascents + self.astray, 1))

    @property
    def has_thousands(self) -> bool:
        """Whether modes are so many that no base is made of them, and none is measured."""
        return self.dimension > FEW and bool(self.ascents) and self.unseen > THOUSANDS


# Where nothing was searched.
NOTHING = Search((), (), 0, 0, 1.0, 0.0, 0)


def search(
    density: SampledDensity,
    seed: np.random.SeedSequence,
    *,
    radius: float | None = None,
    reach: float = math.inf,
    places: Sequence[Array] = (),
    named: SampledDensity | None = None,
    scan: bool = True,
    outskirts: bool = True,
    effort: float = 1.0,
    most_rough: int = ROUGH,
    bar: Bar | None = None,
) -> Search:
    """Search for the modes of a density.

    Parameters
    ----------
    radius
        Largest radius at which ascents start; by default that of `RADII`.
    reach
        How far from the origin or from a mode, in any coordinate, starts of the search's own lie
        at most, and how long the steps of ascents are.
    scan, outskirts
        Whether the modes are scanned for spikes, and their surroundings for further modes.
    effort
        Share of the usual gradients and draws that may be spent, between 0 and 1.
    most_rough
        Gradients that may be spent where most modes were seen once.
    """
    dimension = density.dimension
    if dimension > MOST_DIMENSIONS:
        return NOTHING
    rng, further = np.random.default_rng(seed), seed.spawn(4)
    radii = [r for r in RADII if r <= reach and (radius is None or r < radius)]
    radii += [radius] if radius else []
    ascents = _Batches(Counted(density, effort, reach, bar), rng, radii, dimension)
    counted, modes = ascents.counted, ascents.modes
    if bar is not None:
        bar.phase(counted.most, "evaluation")
    own, its = list[Optimum](), np.random.default_rng(further[3])
    if named is not None:
        own = components(counted, named, its)
        if are_all(counted, own, its) and (found := _named(ascents, own, places, max(radii), its)):
            return found
    _searched(ascents, dimension, places if ascents.is_new else ())
    # Thousands of modes in many dimensions are a glass, which no ascents explore.
    most = 1.0 if dimension <= FEW else THOUSANDS
    bounded = dimension <= MOST_SCANNED_DIMENSIONS and UNSEEN < ascents.unseen <= most
    if rough := bounded and is_rough(modes):
        _searched_on(ascents, np.random.default_rng(further[1]), most_rough)
    for mode in modes:
        mode.afar = mode.seen
    with uncounted(modes):
        for one in own:
            climb(counted, one.place, modes, modes[0].root if modes else None)
    found = Search(
        *fits_of(modes, rng), ascents.arrived, ascents.astray, ascents.unseen, max(radii),
        counted.spent, counted.evaluated, ends=len(modes), dimension=dimension,
        again=found_again(modes) if rough else None, optima=tuple(modes),
        below=_below(modes, ascents.given), named=len(own),
    )  # fmt: skip
    # No base is made of thousands.
    if not (scan and found.fits) or found.has_thousands or dimension > MOST_SCANNED_DIMENSIONS:
        return found
    around = outskirts and FEW_TO_SCAN < dimension <= FEW
    return _scanned(ascents, found, further[2], further[0] if around else None)


def _scanned(
    ascents: _Batches, found: Search, within: np.random.SeedSequence,
    outskirts: np.random.SeedSequence | None,
) -> Search:  # fmt: skip
    """Scan the modes for spikes, and their outskirts for further modes where there is a seed."""
    counted, modes, rng, dimension = ascents.counted, ascents.modes, ascents.rng, found.dimension
    rounds, fewest = 0, 1 if dimension <= FEW_TO_SCAN else FEWEST_ROUNDS
    if counted.bar is not None:
        far = OUTSKIRTS * counted.scans // SCANS if outskirts else 0
        counted.bar.phase((TIMES + fewest) * counted.scans + far, "evaluation")
    if len(those_that_count(modes)) <= MOST_SCANNED:
        looked_within(counted, modes, np.random.default_rng(within))
    while rounds < MOST_ROUNDS and len(those_that_count(modes)) <= MOST_SCANNED:
        rounds += 1
        new = scanned(counted, modes, rng)
        if not new and rounds >= fewest:
            break
    if outskirts:
        looked_around(counted, modes, np.random.default_rng(outskirts))
    for mode in modes:
        mode.scanned = mode not in found.optima
    fits, seen = fits_of(modes, rng)
    near = rounds * SHARES[0] * np.array(BY_WIDTH)
    inside = TIMES * np.array(BY_WITHIN) / sum(BY_WITHIN)
    each = counted.scans / len(fits) * np.concatenate([near, inside])
    return replace(
        found, fits=fits, seen=seen, gradients=counted.spent, evaluations=counted.evaluated,
        finest=finest_ratio(dimension, NEAR + WITHIN, list(each)), optima=tuple(modes),
    )  # fmt: skip


def ascents_from(
    density: SampledDensity, starts: Sequence[Array], spread: Array, rng: np.random.Generator
) -> Search:
    """Ascend from given starts alone, for as many dimensions as a D × D matrix allows.

    Parameters
    ----------
    spread : shape (D,)
        Scales of the coordinates in which the first ascent steps. Later ones step in those of the
        curvature at the first mode. An ascent that ends at no mode ends the search.
    """
    counted = Counted(density)
    modes: list[Optimum] = []
    ascents = 0
    for start in starts:
        if not climb(counted, start, modes, modes[0].root if modes else spread[None]):
            return Search((), (), ascents, 1, 1.0, 0.0, counted.spent)
        ascents += 1
    fits, seen = fits_of(modes, rng)
    unseen = sum(mode.seen == 1 for mode in modes) / ascents
    return Search(fits, seen, ascents, 0, unseen, 0.0, counted.spent, ends=len(modes))


class _Batches:
    """Ascents in batches, from around the origin and from around known modes in turn. `given` are
    the ends of those from given places, None where it was nowhere, and `named` the components that
    may be all there is.
    """

    def __init__(
        self, counted: Counted, rng: np.random.Generator, radii: Sequence[float], dimension: int
    ) -> None:
        self.counted, self.modes = counted, list[Optimum]()
        self.arrived = self.astray = self._made = 0
        self.given: list[Optimum | None] = []
        self.named: Sequence[Optimum] = ()
        self.rng, self._radii, self._dimension = rng, itertools.cycle(radii), dimension
        self._hopeless = HOPELESS

    @property
    def unseen(self) -> float:
        """Estimated probability that one more ascent finds a new mode (Good 1953)."""
        once = sum(mode.seen == 1 for mode in self.modes)
        return once / self.arrived if self.arrived else 1.0

    @property
    def is_new(self) -> bool:
        """Whether no batch was made."""
        return not self._made

    def is_over(self) -> bool:
        """Whether nothing is left to spend, or no ascent of many ended at a mode."""
        lost = self._dimension > FEW and not self.arrived and self.astray >= self._hopeless
        return lost or self.counted.spent >= self.counted.most

    def made(self, places: Sequence[Array] = ()) -> None:
        """Make one more batch, and ascents from places."""
        starts, centred = [*places], self._made % 2 == 1 and self.modes
        self._hopeless = max(self._hopeless, len(places))
        self._made += 1
        for _ in range(BATCH):
            starts.append(
                _around(self.modes, self.rng, self.counted.reach)
                if centred
                else self.rng.uniform(-1, 1, self._dimension) * next(self._radii)
            )
        for number, start in enumerate(starts):
            if not self.is_over():
                end = self.climbed(start, self._root(start))
                self.given += [end] * (number < len(places))

    def _root(self, start: Array) -> Array | None:
        """The coordinates of a mode, in which ascents are short where scales differ widely."""
        if self.named:
            return self.named[int(each_height(self.named, start[None])[:, 0].argmax())].root
        plain = self.astray or self._dimension <= FEW or not self.modes
        return None if plain else self.modes[0].root

    def climbed(self, start: Array, root: Array | None = None) -> Optimum | None:
        """Make one more ascent, and return where it ended."""
        end = climb(self.counted, start, self.modes, root)
        self.arrived, self.astray = self.arrived + bool(end), self.astray + (not end)
        return end


def _below(modes: Sequence[Optimum], ends: Sequence[Optimum | None]) -> tuple[float | None, ...]:
    best = max((mode.log_mass for mode in modes), default=0.0)
    return tuple(None if end is None else best - end.log_mass for end in ends)


def _named(
    ascents: _Batches, own: Sequence[Optimum], places: Sequence[Array], radius: float,
    rng: np.random.Generator,
) -> Search | None:  # fmt: skip
    """What components tell that are Gaussian and all there is; None if an ascent refutes it."""
    counted, ascents.named = ascents.counted, own
    ascents.modes += own
    for batch in range(FEWEST):
        ascents.made(() if batch else places)
    ascents.named, others = (), ascents.modes[len(own) :]
    if not explain(own, others):
        ascents.modes[:] = others
        return None
    for one in own:
        one.afar = one.seen
    fits, seen = fits_of(own, rng)
    fits = around(counted, own, fits)
    return Search(
        fits, seen, ascents.arrived, ascents.astray, 0.0, radius, counted.spent, counted.evaluated,
        ends=sum(one.seen > 0 for one in own), dimension=len(own[0].place), optima=tuple(own),
        below=_below(ascents.modes, ascents.given), settled=True, named=len(own), whole=True,
    )  # fmt: skip


def _searched(ascents: _Batches, dimension: int, places: Sequence[Array]) -> None:
    """Make batches until few ends are new, or as many as may be."""
    counted = ascents.counted
    for batch in range(MOST_BATCHES):
        ascents.made(() if batch else places)
        several = dimension <= FEW or len(those_that_count(ascents.modes)) > 1
        fewest = FEWEST_IN_FEW_DIMENSIONS if several else FEWEST
        if (batch + 1 >= fewest and ascents.unseen < UNSEEN) or ascents.is_over():
            break
        done = ascents.arrived + ascents.astray
        most = min((MOST_BATCHES * BATCH) / done, counted.most / counted.spent)
        if ascents.arrived >= FEWEST_TO_TELL and _stays_large(
            ascents.unseen, ascents.arrived, most
        ):
            break


def _searched_on(ascents: _Batches, rng: np.random.Generator, most: int) -> None:
    """Go on where the target is rough, until the best mode was found again and again."""
    counted, rounds = ascents.counted, 0
    counted.most = max(counted.most, most)
    while not ascents.is_over():
        found = found_again(ascents.modes) >= AGAIN and rounds >= FEWEST_ROUNDS
        if found and ascents.arrived >= FEWEST_IN_FEW_DIMENSIONS * BATCH:
            break
        rounds += 1
        for start in crossed_starts(ascents.modes, counted, rng):
            ascents.climbed(start)
        for _ in range(BATCHES):
            ascents.made()


def _stays_large(unseen: float, ascents: int, times: float) -> bool:
    """Whether so many times as many ascents leave the probability of a new mode above `UNSEEN`.

    It is U(n) = E (1 − p)ⁿ over the modes' probabilities p, and U(t n) ≥ U(n)ᵗ by Jensen's
    inequality.
    """
    least = unseen - ERRORS * math.sqrt(unseen * (1 - unseen) / ascents)
    return max(least, 0.0) ** times > UNSEEN


def fits_of(
    modes: Sequence[Optimum], rng: np.random.Generator
) -> tuple[tuple[LocalFit, ...], tuple[int, ...]]:
    """Laplace approximations of the modes that count, best first, and how often each was seen."""
    kept = sorted(those_that_count(modes), key=lambda mode: -mode.log_mass)
    return tuple(mode.fit(rng) for mode in kept), tuple(mode.seen for mode in kept)


def _around(modes: Sequence[Optimum], rng: np.random.Generator, reach: float) -> Array:
    """A start around one of the modes, at a distance on the scale of that mode."""
    mode = modes[int(rng.integers(len(modes)))]
    direction = rng.standard_normal(mode.place.size)
    farthest = FARTHEST if rng.random() < 0.25 else FAR
    far = np.exp(rng.uniform(np.log(NEAREST), np.log(farthest)))
    offset = far * (mode.root @ direction) / np.linalg.norm(direction)
    return mode.place + offset * min(1.0, reach / np.abs(offset).max())
