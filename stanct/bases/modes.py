"""Finds the modes of a target by Pathfinder, L-BFGS or pilot chains from several starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from stanct.bases.local import (
    LocalFit,
    best_of_each_mode,
    distinct_modes,
    encloses,
    explains,
    inside,
    is_flat,
)
from stanct.bases.pilots import (
    NEGLIGIBLE,
    TRIAL,
    Piloted,
    annealed,
    measured,
    most_pilots,
    needless,
    piloted,
)
from stanct.bases.search import FEW, UNSEEN, Search, search
from stanct.bases.starts import (
    STARTS,
    Attempt,
    approximations,
    attempts,
    fitted,
    laplace_fits,
    reach_of,
)
from stanct.common.arrays import Array
from stanct.common.errors import EngineError, StanctError
from stanct.engines import embedded
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts
from stanct.engines.tape import has_own_thread
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.work.interrupts import beside, heard
from stanct.work.progress import Bar

# Makes local fits from `STARTS` random starts.
Look = Callable[[np.random.SeedSequence, np.random.Generator], list[LocalFit]]
# With more characters of data, some 150,000 numbers, a log density takes milliseconds, and tens of
# thousands of them minutes. The search then spends less, in proportion. With a limit of time, draws
# would depend on the machine.
MUCH_DATA = 1_000_000
# Log densities that Pathfinder takes at each place on its way.
ELBO_DRAWS = 25
# Where more modes than pilots were found, all count as measured if the fits of the pilots leave out
# a smaller share of the mass. With six effects that are zero or not, two fits enclosed twenty
# modes. A Gaussian around all of it had ten times the error of a mixture of the two.
LEFT_OUT = 0.02
# Where an ascent is more likely than this to find a new mode, there are thousands.
THOUSANDS = 0.5


@dataclass(frozen=True)
class Hints:
    """What the user knows of where modes may lie.

    Attributes
    ----------
    radius
        Largest radius around the origin of the unconstrained space at which the search starts; None
        for the search's own.
    places
        Unconstrained points, each of shape (D,), from which it also starts.
    """

    radius: float | None = None
    places: tuple[Array, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return self.radius is not None or bool(self.places)


class FitSeeds(NamedTuple):
    """Random streams of a fit, one for each stage."""

    starts: np.random.SeedSequence
    more_starts: np.random.SeedSequence
    points: np.random.SeedSequence
    pilots: np.random.SeedSequence
    more_pilots: np.random.SeedSequence
    scouts: np.random.SeedSequence
    search: np.random.SeedSequence
    particles: np.random.SeedSequence
    tails: np.random.SeedSequence
    ridges: np.random.SeedSequence

    @classmethod
    def of(cls, seed: np.random.SeedSequence) -> FitSeeds:
        """The streams spawned from one seed, which should have no other children."""
        starts, chains, points, more_starts, search, particles, tails, ridges = seed.spawn(8)
        pilots, more_pilots, scouts = chains.spawn(3)
        return cls(
            starts, more_starts, points, pilots, more_pilots, scouts, search, particles, tails,
            ridges,
        )  # fmt: skip


@dataclass(frozen=True)
class Modes:
    """The modes that were found, and the cost of finding them.

    Attributes
    ----------
    fits
        One fit for each distinct mode, best first.
    peaks
        Laplace approximations where ascents ended, best first, of which a fit may enclose several.
    unseen
        Estimated probability that one more start finds a new mode (Good 1953).
    starts, radius
        Number of ascents behind that probability, and the largest radius at which they began.
    finest
        How narrow a spike inside a mode the search would have found; see `Search`.
    complete
        Whether every mode that was found has a fit or lies within one, and `unseen` is small.
    gradients, evaluations
        Gradients spent, and log densities without a gradient. The engine does not report the
        iterations of Pathfinder. After a search, each of its runs counts as many as the search's
        ascents took in the mean, with one gradient and `ELBO_DRAWS` log densities each. Without a
        search it counts by the draws that it returns.
    """

    fits: tuple[LocalFit, ...] = field(repr=False)
    peaks: tuple[LocalFit, ...] = field(default=(), repr=False)
    unseen: float = 1.0
    starts: int = 0
    radius: float = 0.0
    finest: float = 1.0
    complete: bool = False
    gradients: int = 0
    evaluations: int = 0


def effort_of(target: SampledTarget) -> float:
    """Share of the usual work that the data allow: less where a log density takes milliseconds."""
    return min(1.0, MUCH_DATA / max(len(target.data_text), 1))


def find_modes(
    target: ProgramTarget,
    method: str,
    *,
    chains: int,
    seeds: FitSeeds,
    nuts: Nuts,
    engine: CmdStan | None = None,
    progress: bool = False,
    hints: Hints | None = None,
) -> Modes:
    """Fit a Gaussian to each mode of a target.

    Parameters
    ----------
    method
        ``"pilot"``, ``"pathfinder"``, ``"laplace"`` or, by CmdStan, ``"advi"``; see `fit_base`.
    chains, nuts, engine, progress, hints
        As in `fit_base`.

    Raises
    ------
    EngineError
        No start worked.
    """
    rng = np.random.default_rng(seeds.points)
    with Bar(STARTS, "base", unit="start", shown=progress) as bar:
        if method == "pilot":
            # Most hierarchies need Pathfinder too. It begins at once where a second core is free.
            seen = attempts(target, embedded.pathfinder, 25, bar, seeds.starts)
            both = nuts.threads > 1 and effort_of(target) == 1 and not target.by_cmdstan
            with beside(seen, early=both and has_own_thread()) as pathfinder:
                return _piloted(
                    target, chains, seeds, rng, nuts, bar,
                    hints=hints or Hints(), pathfinder=pathfinder,
                )  # fmt: skip
        if method == "laplace" and engine is None:
            look = partial(laplace_fits, target, bar)
            return Modes(best_of_each_mode(_found(look, seeds, rng, bar)[0]))
        draws = max(100, 4 * target.density.dimension)
        if engine is not None:
            way = {
                "pathfinder": engine.pathfinder,
                "laplace": engine.laplace,
                "advi": engine.advi,
            }[method]
            engine.compiled(target.density_recipe.source)
            found = approximations(target, way, draws, bar, seeds.starts, rng)
            cost = _points(found)
        else:
            look = partial(approximations, target, embedded.pathfinder, draws, bar)
            found, cost, _ = _found(look, seeds, rng, bar)
        return Modes(best_of_each_mode(found), evaluations=cost)


def _found(
    look: Look,
    seeds: FitSeeds,
    rng: np.random.Generator,
    bar: Bar,
    *,
    first: Callable[[], list[LocalFit]] | None = None,
) -> tuple[list[LocalFit], int, int]:
    """Local fits from `STARTS` starts, and from as many again if those found only one mode.

    `first` makes those of the first look where it has begun.

    A mode to which every sixth start leads is missed by all first starts in one run of 27, and by
    all starts of both looks in one of 700. A second look that finds nothing new is dropped, but its
    cost is included in the points, the second number, and the starts, the third.
    """
    found = first() if first else look(seeds.starts, rng)
    cost = _points(found)
    if len(distinct_modes(found)) > 1:
        return found, cost, STARTS
    bar.expect(2 * STARTS)
    bar.note("a second look")
    try:
        more = look(seeds.more_starts, np.random.default_rng(seeds.more_starts.spawn(1)[0]))
    except EngineError:  # keep the first look
        return found, cost, 2 * STARTS
    new = len(distinct_modes(found + more)) > 1
    return (found + more if new else found), cost + _points(more), 2 * STARTS


def _piloted(
    target: ProgramTarget,
    chains: int,
    seeds: FitSeeds,
    rng: np.random.Generator,
    nuts: Nuts,
    bar: Bar,
    *,
    hints: Hints,
    pathfinder: Callable[[], list[Attempt]],
) -> Modes:
    """Search for modes, and measure each: by its curvature where that suffices, or by a pilot.

    Ascents find local modes, and find them at every scale. Pathfinder stops on its way up where the
    bulk of the mass is, which ascents in funnels miss.

    `pathfinder` makes the attempts of its first look.
    """
    density = target.density
    bar.note("searching")
    look = partial(
        search,
        density,
        seeds.search,
        radius=hints.radius,
        reach=max(hints.radius or 0.0, reach_of(target)),
        places=hints.places,
        effort=effort_of(target),
    )
    looked = heard(look)
    near, others, spent, draws = _by_curvature(target, looked, seeds.particles, nuts)
    gradients = looked.gradients + spent
    evaluations = looked.evaluations + draws
    failure: EngineError | None = None
    approximate = list[LocalFit]()
    if not target.by_cmdstan and (others or looked.astray or not near):
        draw = partial(approximations, target, embedded.pathfinder, 25, bar)
        try:
            approximate, points, starts = _found(
                draw, seeds, rng, bar, first=lambda: fitted(target, pathfinder(), "pathfinder", rng)
            )
            steps = starts * looked.steps
            gradients += steps
            evaluations += points + ELBO_DRAWS * steps
        except EngineError as cause:  # as for a density that is flat up to the edge of its support
            failure = cause
    unseen = 1.0
    if approximate and not looked.ascents:
        # Without a search, the ends of Pathfinder must tell how likely further modes are.
        once = sum(len(group) == 1 for group in distinct_modes(approximate))
        unseen = once / len(approximate)
    fits = list(near)
    further: Piloted | None = None
    if failure or (target.by_cmdstan and (others or not near)):
        # No Pathfinder, and no pilots, which the embedded engine runs.
        bar.note("scouts")
        try:
            further = annealed(target, near + others, seeds.scouts, rng=rng, threads=nuts.threads)
        except StanctError as cause:
            raise failure or cause from None
        fits = [*further.fits]
    elif wanted := _for_pilots(target, approximate, near, others, looked, hints):
        bar.note("pilot chains")
        further = piloted(
            target, wanted, chains=chains, seeds=(seeds.pilots, seeds.more_pilots), rng=rng,
            nuts=nuts,
        )  # fmt: skip
        fits += [fit for fit in further.fits if not any(explains(one, fit) for one in near)]
    if further is not None:
        gradients += further.gradients
        evaluations += further.evaluations
    modes = Modes(tuple(fits), unseen=unseen, gradients=gradients, evaluations=evaluations)
    return _that_count(modes, looked, density.dimension)


def _for_pilots(
    target: ProgramTarget,
    approximate: list[LocalFit],
    near: list[LocalFit],
    others: list[LocalFit],
    looked: Search,
    hints: Hints,
) -> list[LocalFit]:
    """The fits at which pilots start: those of Pathfinder, and of ascents that it did not see.

    Without fits of Pathfinder there are none, because curvature has measured all modes.

    Parameters
    ----------
    near, others
        What curvature has measured, and what it could not.
    """
    if not approximate:
        return []
    # In the spike of a funnel, an ascent ends far below the mass that Pathfinder saw.
    floor = max(fit.log_evidence for fit in approximate) - NEGLIGIBLE
    # The width of a ridge would make one mode of all modes.
    others = [_around(fit.mean, approximate) if is_flat(fit) else fit for fit in others]
    others = [inside(fit, target.density) for fit in others if fit.log_evidence > floor]
    if not looked.ascents:  # too many dimensions for a search
        others += [_around(place, approximate) for place in hints.places]
    return [fit for fit in [*approximate, *others] if not needless(target, fit, near)]


def _by_curvature(
    target: ProgramTarget, looked: Search, seed: np.random.SeedSequence, nuts: Nuts
) -> tuple[list[LocalFit], list[LocalFit], int, int]:
    """The modes that curvature explains, what else is to be measured, and what that took.

    The last two are gradients and log densities. Of thousands of modes none is measured, because
    no base is made of them.
    """
    near, others, gradients = list[LocalFit](), list[LocalFit](), 0
    tried = looked.fits[: most_pilots(target.density.dimension)]
    if _are_thousands(looked, target.density.dimension):
        return [], list(tried), 0, 0
    for fit, child in zip(tried, seed.spawn(len(tried)), strict=True):
        found = measured(target, fit, child, threads=nuts.threads, known=looked.fits)
        gradients += found.gradients
        if found.fit is None:
            others += [fit, *([found.strays] if found.strays else [])]
        else:
            near.append(found.fit)
    return near, others, gradients, TRIAL * len(tried)


def _are_thousands(looked: Search, dimension: int) -> bool:
    """Whether nearly each ascent found another mode, so that the search was given up."""
    return dimension > FEW and bool(looked.ascents) and looked.unseen > THOUSANDS


def _that_count(modes: Modes, looked: Search, dimension: int) -> Modes:
    """The measured modes that are not negligible, and what the search says of further ones.

    Parameters
    ----------
    modes
        All measured modes. `unseen` is the probability without a search.
    """
    floor = max(fit.log_evidence for fit in modes.fits) - NEGLIGIBLE
    fits = sorted(
        (fit for fit in modes.fits if fit.log_evidence > floor), key=lambda fit: -fit.log_evidence
    )
    # Spikes that ascents found far below the mass are no modes that a start could find.
    known = [
        (fit, seen)
        for fit, seen in zip(looked.fits, looked.seen, strict=True)
        if fit.log_evidence > floor
    ]
    unseen = modes.unseen
    if looked.ascents:
        unseen = sum(seen == 1 for _, seen in known) / looked.ascents
    # In many dimensions a mode that was reached only once stands for many. Of Boltzmann machines
    # with 28 units, mixtures of all that were found lacked up to two thirds of the mass.
    likely = unseen <= UNSEEN if dimension <= FEW else unseen == 0
    likely = likely and not _are_thousands(looked, dimension)
    all_measured = (
        len(known) <= most_pilots(dimension) or _outside([fit for fit, _ in known], fits) < LEFT_OUT
    )
    peaks = (
        fit
        for fit, _ in known
        if not (is_flat(fit) or any(np.array_equal(fit.mean, one.mean) for one in fits))
    )
    return replace(
        modes,
        fits=tuple(fits),
        peaks=tuple(peaks),
        unseen=unseen,
        starts=looked.ascents,
        radius=looked.radius,
        finest=looked.finest,
        complete=likely and all_measured,
    )


def _outside(known: Sequence[LocalFit], fits: Sequence[LocalFit]) -> float:
    """Share of the mass of known modes, by their curvature, that no fit of a pilot encloses.

    Where a chain moves between modes, one fit encloses many.
    """
    left_out = [not any(encloses(one, fit) for one in fits) for fit in known]
    log_mass = np.array([fit.log_evidence for fit in known])
    mass = np.exp(log_mass - log_mass.max())
    return float(mass[left_out].sum() / mass.sum())


def _around(place: Array, fits: list[LocalFit]) -> LocalFit:
    """A fit at a place of which nothing else is known, so that a pilot starts there."""
    best = max(fit.log_evidence for fit in fits)
    return LocalFit(place, np.eye(place.size), best, place[None])


def _points(fits: list[LocalFit]) -> int:
    return sum(len(fit.points) for fit in fits)
