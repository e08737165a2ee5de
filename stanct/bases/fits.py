"""Fits a base by name, and guesses log Z."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stanct.bases.local import LocalFit, mixture_of, moment_match
from stanct.bases.modes import FitSeeds, Hints, Modes, effort_of, find_modes
from stanct.bases.nested import Nested
from stanct.bases.ridges import SAMPLE, Ridges, find_ridges, reweighted
from stanct.bases.scouts import Scouts, annealed_scouts
from stanct.bases.starts import reach_of
from stanct.bases.tails import Tails, find_tails
from stanct.bases.wide import MOST_DENSE, RADII, STARTS, fit_wide
from stanct.common.arrays import Array
from stanct.common.errors import EngineError, SamplingError
from stanct.common.names import FITS, GAUSSIAN_BASES, MODES
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.path.gaussian import GaussianBase, gaussian_moments, mixture_moments
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.targets.program_target import ProgramTarget
from stanct.work.interrupts import heard
from stanct.work.progress import Bar

SEARCHED = ("pilot", "low_rank", "mixture", MODES)
"""The fits that begin with a search for modes, and can therefore heed `Hints`."""
MIXTURE_METHODS = (
    "gibbs", "simulated_tempering", "parallel_tempering", "ais", "independence", "auto"
)  # fmt: skip
"""Methods that draw from their base, and can therefore use a mixture."""

# Number of annealed scouts for each dimension where pilots stay apart, and its bounds.
SCOUTS_PER_DIMENSION, FEWEST_SCOUTS, MOST_SCOUTS = 4, 128, 512
# Only the spread of scouts counts. On five Boltzmann machines that of 100 steps was no better.
SCOUT_TEMPERATURES = 50
# Scouts start around the known modes with twice their variance. In up to `FEW` dimensions, where
# this costs little, they start with four times the variance if more modes are likely. Scouts from
# too far away all end in broad modes. They start again while their spread grows, up to `MOST_LOOKS`
# times.
FEW, MOST_LOOKS = 4, 4

# A low-rank base is fitted to at least so many points.
LOW_RANK_DRAWS = 600

# A refit never shrinks the base's variance in any direction below this factor, because a round that
# missed a corner must not lock it out.
LEAST_SHRINKAGE = 0.2

# Share of the density of β that is uniform where modes lie apart; the rest follows the speed of the
# path. Elsewhere all of it is uniform: draws near β = 1 are worth more than trips to the base.
UNIFORM = 0.5


# Draws that are kept of each mode's pilots, to within a factor of two.
POINTS = 200

# Share of a mixture base that is one wide Gaussian, and its covariance relative to the mixture's. A
# mode that was missed is within its reach.
WIDE_SHARE, WIDTH = 0.1, 2.0


@dataclass(frozen=True)
class Survey:
    """The modes that a search found and pilots measured, K of them, best first.

    Attributes
    ----------
    place, spread : shape (K, D)
        Means and standard deviations of the modes, unconstrained.
    log_evidence : shape (K,)
        Their log masses, natural log, with errors of about a tenth.
    unseen
        Estimated probability that one more start finds a new mode (Good 1953).
    starts, radius
        Number of starts behind that probability, and the largest radius at which they began.
    finest
        How many times narrower than a mode a spike inside it may be, if it has as much mass, for
        the search to find it with a probability of 95 %; 1 if no draws looked for spikes.
    complete
        Whether every mode that was found was measured, and `unseen` is small.
    """

    place: Array
    spread: Array
    log_evidence: Array
    unseen: float
    starts: int
    radius: float
    finest: float
    complete: bool

    @classmethod
    def of(cls, modes: Modes) -> Survey:
        """The survey of these modes."""
        return cls(
            np.array([fit.mean for fit in modes.fits]),
            np.array([np.sqrt(np.diag(fit.covariance)) for fit in modes.fits]),
            np.array([fit.log_evidence for fit in modes.fits]),
            modes.unseen,
            modes.starts,
            modes.radius,
            modes.finest,
            modes.complete,
        )

    def record(self) -> dict[str, Any]:
        """The survey for provenance, JSON values only."""
        return {
            "place": self.place.tolist(),
            "spread": self.spread.tolist(),
            "log_evidence": self.log_evidence.tolist(),
            "unseen": self.unseen,
            "starts": self.starts,
            "radius": self.radius,
            "finest": self.finest,
            "complete": self.complete,
        }


@dataclass(frozen=True)
class FittedBase:
    """A base with the guess log ζ at log Z, and the cost of both.

    Attributes
    ----------
    base
        The base.
    log_zeta
        Guess at log Z, natural log. For a fitted base, the log of the modes' total evidence.
    gradients, evaluations
        Gradients spent, and log densities without a gradient.
    separated
        Whether pilots stayed in modes of their own.
    survey
        The modes behind a base that pilots fitted.
    tails
        Where tails are heavy, by the names of `Tails.along`.
    ridges
        Coordinates along which the base follows ridges, by the names of `Ridges.along`.
    points : shape (n, D)
        Unconstrained draws of pilots, from every mode; None where no pilots ran.
    given
        Whether the base is the user's own.
    nested
        The base in two stages of a target with more than `MOST_DENSE` parameters, if it has one.
    """

    base: Base
    log_zeta: float
    gradients: int = 0
    evaluations: int = 0
    separated: bool = False
    survey: Survey | None = None
    tails: tuple[str, ...] = ()
    ridges: tuple[str, ...] = ()
    points: Array | None = field(default=None, repr=False)
    given: bool = False
    nested: Nested | None = field(default=None, repr=False)

    @property
    def least_shrinkage(self) -> float:
        """The smallest factor by which refits may shrink the base's variance in any direction.

        The factor is 1 where modes lie apart, because a round that missed some of them would lock
        them out. Nor does a refit narrow a base that the user gave, who may know of more modes.
        """
        return 1.0 if self.separated or self.given else LEAST_SHRINKAGE

    @property
    def uniform(self) -> float:
        """Share of the density of β that is uniform; see `Course.log_density`."""
        return UNIFORM if self.separated else 1.0


def fit_base(
    target: ProgramTarget,
    name: str,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    engine: CmdStan | None = None,
    progress: bool = False,
    hints: Hints | None = None,
) -> FittedBase:
    """Fit the base that a name stands for, and log ζ.

    Parameters
    ----------
    name
        ``"pilot"``: Pathfinder finds the modes from several starts, short NUTS chains from there
        measure their shape, and bridge sampling measures their mass. If the chains stay apart,
        annealed scouts explore between and beyond them, and the base takes their spread.
        ``"pathfinder"``: Pathfinder's own Gaussians, weighted by evidence lower bounds.
        ``"laplace"``: Gaussians at the modes that L-BFGS finds. This is a poor choice for
        hierarchical programs, whose mode lies in the neck of a funnel.
        ``"low_rank"``: as ``"pilot"``, but with a diagonal and a low rank in place of a dense
        covariance, from the pilots' draws or the endpoints of the scouts.
        ``"mixture"``: a Gaussian for each mode of the pilots, weighted by its mass. No scouts
        search for more modes. Only for methods that draw from their base.
        ``"modes"``: ``"mixture"`` with a wide part where pilots stay apart and no further modes
        are likely, and with Gaussians that reach into heavy tails and along ridges. Otherwise it is
        ``"pilot"``.
        Only for methods that draw from their base.

        With more than `MOST_DENSE` parameters, ``"pilot"``, ``"modes"`` and ``"low_rank"`` are one
        (`stanct.bases.wide`): diagonal plus low rank, from pilots without a search. ``"modes"``
        then is the Gaussian of the only mode's curvature where that explains the target.
        ``"advi"``: full-rank variational fits, on CmdStan only.
    engine
        A `CmdStan` runs its own Pathfinder, ADVI and Laplace. Pilots always run on the embedded
        engine, because starting a process for each would take longer than the pilots.
    chains
        Smallest number of pilots.
    nuts
        Settings of the pilots. Their acceptance target is Stan's own 0.8.
    progress
        Whether a bar on stderr counts the starts.
    hints
        Where the search for modes starts besides, for the fits of `SEARCHED`.

    Raises
    ------
    SamplingError
        The base does not exist, or not on this engine.
    EngineError
        No start worked.
    """
    _check_name(name, engine, target)
    if name in SEARCHED and target.density.dimension > MOST_DENSE and not target.by_cmdstan:
        return _wide(
            target, name, chains=chains, seed=seed, nuts=nuts, progress=progress, hints=hints
        )
    method = "pilot" if name in SEARCHED else name
    seeds = FitSeeds.of(seed)
    modes = find_modes(
        target, method, chains=chains, seeds=seeds, nuts=nuts, engine=engine, progress=progress,
        hints=hints,
    )  # fmt: skip
    if not modes.fits:
        raise EngineError(
            "No start led to a mode whose mass could be measured.",
            remedy="Write parameters in units in which their scales are neither tiny nor huge.",
        )
    tails = Tails()
    if method == "pilot":
        names = target.density.unconstrained_names
        reach = reach_of(target)
        tails = find_tails(target.density, names, modes.fits, seeds.tails, reach=reach)
    separated = method == "pilot" and len(modes.fits) > 1
    if name == "mixture":
        found = FittedBase(*mixture_of(modes.fits, beside=tails.wide))
    elif name == MODES and (modes.complete or not separated):
        found = _of_modes(target, modes, tails, seeds)
    elif separated:
        scouts = _scouted(
            target,
            (*modes.fits, *modes.peaks),
            unseen=not modes.complete,
            seed=seeds.scouts,
            nuts=nuts,
            progress=progress,
        )
        found = FittedBase(_around(scouts.points, name), scouts.log_z, scouts.gradients)
    elif name == "low_rank":
        best = next(iter(modes.fits))
        found = FittedBase(LowRankBase.from_points(_enough(best)), best.log_evidence)
    else:
        found = FittedBase(*moment_match(modes.fits))
    return replace(
        found,
        gradients=modes.gradients + found.gradients,
        evaluations=modes.evaluations + tails.evaluations + found.evaluations,
        separated=separated,
        survey=Survey.of(modes) if method == "pilot" else None,
        tails=tails.along,
        points=_few_points(modes.fits) if method == "pilot" else None,
    )


def _few_points(fits: tuple[LocalFit, ...]) -> Array:
    """Some draws of the pilots of each mode, spread over each, shape (n, D)."""
    return np.concatenate([fit.points[:: max(len(fit.points) // POINTS, 1)] for fit in fits])


def _of_modes(target: ProgramTarget, modes: Modes, tails: Tails, seeds: FitSeeds) -> FittedBase:
    """The base of the name `MODES`, where no further modes are likely."""
    ridges = _ridges(target, modes, tails)
    beside = (*tails.wide, *ridges.parts)
    best, *others = modes.fits
    base: Base
    if others:
        base, log_zeta = mixture_of(modes.fits, wide_share=WIDE_SHARE, width=WIDTH, beside=beside)
    elif beside:
        base, log_zeta = mixture_of([best], beside=beside)
    else:
        base, log_zeta = moment_match(modes.fits)
    evaluations = 0
    if ridges.parts and isinstance(base, MixtureBase):
        rng = np.random.default_rng(seeds.ridges)
        base = reweighted(base, target.density.log_densities, rng)
        evaluations = sum(SAMPLE)
    return FittedBase(base, log_zeta, ridges.gradients, evaluations, ridges=ridges.along)


def _ridges(target: ProgramTarget, modes: Modes, tails: Tails) -> Ridges:
    density = target.density
    look = partial(
        find_ridges,
        density.log_density_gradients,
        density.unconstrained_names,
        modes.fits,
        peaks=modes.peaks,
        beside=tails.wide,
        effort=effort_of(target),
    )
    return heard(look)


def _wide(
    target: ProgramTarget,
    name: str,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    progress: bool,
    hints: Hints | None,
) -> FittedBase:
    """The base of a target with more than `MOST_DENSE` parameters."""
    if name == "mixture":
        raise SamplingError(
            f"A mixture base has {MOST_DENSE} dimensions at most, and {target.program.label} has "
            f"{target.density.dimension} unconstrained parameters with these data.",
            remedy="Use base='low_rank', or a base of your own.",
        )
    places = () if hints is None else hints.places
    with Bar(STARTS, "base", unit="start", shown=progress) as bar:
        found = fit_wide(
            target,
            chains=chains,
            seed=seed,
            nuts=nuts,
            bar=bar,
            places=places,
            curved=name == MODES,
        )
    separated = len(found.place) > 1
    survey = Survey(
        found.place,
        found.spread,
        found.log_evidence + np.log(found.weight),
        found.unseen,
        found.starts,
        max(RADII),
        finest=1.0,
        complete=not separated,
    )
    return FittedBase(
        found.base,
        found.log_evidence,
        found.gradients,
        found.evaluations,
        separated,
        survey,
        nested=found.nested,
    )


def _check_name(name: str, engine: CmdStan | None, target: ProgramTarget) -> None:
    if name in ("pathfinder", "laplace") and engine is None and target.by_cmdstan:
        raise SamplingError(
            f"The base {name!r} is fitted by the embedded engine, which cannot run "
            f"{target.program.label}.",
            remedy="Use base='pilot', or method 'joint' with engine='cmdstan'.",
        )
    if name == "advi" and engine is None:
        raise SamplingError(
            "The base 'advi' is fitted by CmdStan, and this run is on the embedded engine.",
            remedy='Pass engine="cmdstan" (methods joint and pseudo_extended), or another base.',
        )
    if name not in (*FITS, "advi"):
        raise SamplingError(
            f"There is no base {name!r}.",
            remedy=f"Use one of {', '.join(GAUSSIAN_BASES)}, or a GaussianBase; with the methods "
            f"{', '.join(MIXTURE_METHODS)} also mixture and modes.",
        )


def _around(points: Array, name: str) -> Base:
    """The base of the named kind with the moments of points, shape (n, D)."""
    if name == "low_rank":
        return LowRankBase.from_points(points)
    return GaussianBase.from_covariance(*gaussian_moments(points))


def _enough(fit: LocalFit) -> Array:
    """Points of a fit, or draws of its Gaussian where its points are few, shape (n, D)."""
    if len(fit.points) >= LOW_RANK_DRAWS:
        return fit.points
    q = GaussianBase.from_covariance(fit.mean, fit.covariance)
    rng = np.random.default_rng(0)
    return q.unwhiten(rng.standard_normal((LOW_RANK_DRAWS, fit.mean.size)))


def _scouted(
    target: ProgramTarget,
    fits: tuple[LocalFit, ...],
    *,
    unseen: bool,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    progress: bool = False,
) -> Scouts:
    """Run annealed scouts from a Gaussian around and beyond the known modes.

    Every mode has the same weight, because the next one to be found may outweigh all known ones. If
    scouts end farther apart than their starts, new scouts start from a Gaussian around and beyond
    them. If `unseen` modes are likely, the first Gaussian is wider, and there is a second look. The
    function returns the last scouts, with the gradients of all.
    """
    mean, covariance, _ = mixture_moments(
        np.zeros(len(fits)), [fit.mean for fit in fits], [fit.covariance for fit in fits]
    )
    count = int(np.clip(SCOUTS_PER_DIMENSION * mean.size, FEWEST_SCOUTS, MOST_SCOUTS))
    # The largest of D ratios of two such variances typically errs by √(2 ln D) standard errors.
    noise = (1.5 + np.sqrt(2 * np.log(mean.size))) * np.sqrt(4 / count)
    more = 1 + 2 * unseen * min(1.0, FEW / mean.size) ** 2
    looks, gradients = seed.spawn(MOST_LOOKS), 0
    with Bar(MOST_LOOKS, "scouts", unit="look", shown=progress) as bar:
        while True:
            before = np.diag(covariance)
            wide = GaussianBase.from_covariance(mean, covariance + more * np.diag(before))
            scouts = annealed_scouts(
                target.density.borrow, wide, particles=count, seed=looks.pop(),
                threads=nuts.threads, temperatures=SCOUT_TEMPERATURES,
            )  # fmt: skip
            bar.update()
            gradients += scouts.gradients
            mean, covariance = gaussian_moments(scouts.points)
            done = MOST_LOOKS - len(looks)
            settled = done > unseen and np.all(np.diag(covariance) < (1 + noise) * before)
            if settled or not looks:
                return Scouts(scouts.points, scouts.log_z, gradients)
