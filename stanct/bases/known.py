"""What is known before and after the search for modes: streams, hints, modes, and their survey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stanct.bases.ascents import Optimum
from stanct.bases.local import LocalFit
from stanct.common.arrays import Array

MOST_OPTIMA = 50
"""Places where ascents ended that a run remembers, those of the largest masses."""


class FitSeeds(NamedTuple):
    """Random streams of a fit, one for each stage."""

    starts: np.random.SeedSequence
    points: np.random.SeedSequence
    pilots: np.random.SeedSequence
    more_pilots: np.random.SeedSequence
    scouts: np.random.SeedSequence
    search: np.random.SeedSequence
    particles: np.random.SeedSequence
    tails: np.random.SeedSequence
    ridges: np.random.SeedSequence
    score: np.random.SeedSequence
    nested: np.random.SeedSequence
    wide: np.random.SeedSequence
    own: np.random.SeedSequence
    look: np.random.SeedSequence

    @classmethod
    def of(cls, seed: np.random.SeedSequence) -> FitSeeds:
        """The streams spawned from one seed, which should have no other children."""
        starts, chains, points, _, *later = seed.spawn(13)
        pilots, more_pilots, scouts = chains.spawn(3)
        return cls(starts, points, pilots, more_pilots, scouts, *later)


@dataclass(frozen=True)
class Hints:
    """What the user knows of modes: the largest radius around the origin of the unconstrained space
    at which the search starts (None for its own), and points, shape (D,), from which it also
    starts.
    """

    radius: float | None = None
    places: tuple[Array, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return self.radius is not None or bool(self.places)


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What a search tells of modes that it has not found.

    Attributes
    ----------
    unseen
        Estimated probability that one more start finds a new mode (Good 1953) that counts.
    finest
        How many times narrower than a mode a spike inside it may be, if it has as much mass, for
        the search to find it with a probability of 95 %; 1 if no draws looked for spikes.
    unseen_of_any
        Estimated probability that one more start ends at a new mode, however light.
    again
        Where modes are many, and that probability is large in few dimensions, how many starts led
        to the best mode or to others as good; otherwise None.
    particles
        Number of annealed particles that looked for mass outside of all known modes.
    settled
        Whether the last look of theirs found hardly any mass that was new, and all looks together
        nearly all that was known; None where there was no look.
    named
        How many components of mixtures that the program names were followed.
    whole
        Whether these are Gaussian and explain all that was seen, so that nothing else was looked
        for.
    """

    unseen: float = 1.0
    starts: int = 0
    radius: float = 0.0
    finest: float = 1.0
    complete: bool = False
    unseen_of_any: float = 1.0
    again: int | None = None
    particles: int = 0
    settled: bool | None = None
    named: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Modes:
    """The modes that were measured, best first, each by a fit; peaks where ascents ended, of which
    a fit may enclose several; and what is known of others.
    """

    fits: tuple[LocalFit, ...] = field(repr=False)
    peaks: tuple[LocalFit, ...] = field(default=(), repr=False)
    sought: Sought = Sought()


@dataclass(frozen=True)
class Optima:
    """Where ascents ended: the N optima of the largest masses, largest first.

    Attributes
    ----------
    place, spread : shape (N, D)
        Unconstrained points, and the standard deviations of the Gaussians of their curvature.
    log_density, log_mass : shape (N,)
        Their log densities, and the log masses of these Gaussians, natural logs.
    seen : shape (N,)
        How many of the search's ascents ended at each, 0 where only scans or particles did.
    ends
        Number of all optima.
    """

    place: Array
    spread: Array
    log_density: Array
    log_mass: Array
    seen: Array
    ends: int

    @classmethod
    def of(cls, found: Sequence[Optimum]) -> Optima | None:
        """The best of what a search found; None where that is nothing."""
        best = sorted(found, key=lambda one: -one.log_mass)[:MOST_OPTIMA]
        if not best:
            return None
        return cls(
            np.array([one.place for one in best]),
            np.array([np.linalg.norm(one.root, axis=1) for one in best]),
            np.array([one.value for one in best]),
            np.array([one.log_mass for one in best]),
            np.array([one.afar for one in best]),
            len(found),
        )


@dataclass(frozen=True)
class Survey:
    """The modes that a search found and pilots measured, as K Gaussians, best first.

    Attributes
    ----------
    place, spread : shape (K, D)
        Means and standard deviations of the Gaussians, unconstrained.
    log_evidence : shape (K,)
        Their log masses, natural log, with errors of about a tenth.
    sought
        What is known of others.
    optima
        Where ascents ended, of which a mode may enclose several.
    owner
        For each Gaussian, the place among them of that of its mode, where some are wide mass around
        others; empty where each is a mode.
    """

    place: Array
    spread: Array
    log_evidence: Array
    sought: Sought
    optima: Optima | None = None
    owner: tuple[int, ...] = ()

    @classmethod
    def of(cls, modes: Modes) -> Survey:
        """The survey of these modes."""
        place = np.array([fit.mean for fit in modes.fits])
        spread = np.array([np.sqrt(np.diag(fit.covariance)) for fit in modes.fits])
        wide = np.array([fit.around for fit in modes.fits])
        owner: tuple[int, ...] = ()
        if wide.any() and not wide.all():
            # The centre that is nearest by the width of the mass around it.
            away = np.square((place[:, None] - place) / spread[:, None]).sum(axis=-1)
            nearest = np.where(wide, np.inf, away).argmin(axis=1)
            owner = tuple(np.where(wide, nearest, np.arange(wide.size)).tolist())
        log_evidence = np.array([fit.log_evidence for fit in modes.fits])
        return cls(place, spread, log_evidence, modes.sought, owner=owner)

    @property
    def around(self) -> int:
        """How many of the Gaussians are wide mass around a mode."""
        return len(self.owner) - len(set(self.owner))

    def record(self) -> dict[str, Any]:
        """The survey for provenance, JSON values only."""
        own = {name: getattr(self, name).tolist() for name in ("place", "spread", "log_evidence")}
        if self.optima is not None:
            own["optima"] = {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in asdict(self.optima).items()
            }
        return own | {"owner": list(self.owner)} | asdict(self.sought)
