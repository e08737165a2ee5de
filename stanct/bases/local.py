"""Local fits, each a Gaussian fitted to one mode of the target, and how they are combined."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.deadline import at_most
from stanct.common.errors import EngineError
from stanct.path.gaussian import LOG_2PI, GaussianBase, mixture_moments
from stanct.path.mixture import MixtureBase
from stanct.targets.protocols import BatchDensity, SampledDensity

# With more parameters, bases are diagonal plus low rank unless the user gives another. A dense one
# costs D² numbers a gradient: 114 µs at D = 1,000, where the other costs 5.
MOST_DENSE = 250

# A mode's bulk ends so many standard deviations from its centre.
BULK = 3.0

# Fits whose means differ by less than this many standard deviations in every coordinate are of one
# mode. Two fits of one mode must not count its evidence twice.
SAME_MODE = 2.0

# A fit encloses another one if the mean square of its points, in standard deviations, is smaller,
# and its draws go as far with a chance that is no more nats below one.
ENCLOSED, FAR_OUT = 3.0, 3.0

# Variances of a fit that differ by this factor are those of a ridge.
FLAT = 1e6
# Curvatures that are smaller than this, relative to the largest, are lifted.
LEAST_CURVED = 1e-8

# A component with a smaller weight would be drawn once in a million runs, but costs time at every
# step.
LEAST_WEIGHT = 1e-9

# Stan's L-BFGS may never end, as it did under a lasso whose scale went to exp(-4000): its line
# search finds no step. One that ends takes at most 1,000 iterations of some 30 evaluations. Time in
# seconds, and evaluations beyond it, that an ascent may take.
LONGEST, MOST_EVALUATIONS = 15.0, 100_000


@dataclass(frozen=True)
class LocalFit:
    """A Gaussian fit to one mode of the target.

    Attributes
    ----------
    log_evidence
        ℓ, an estimate of the log mass of the mode, or a lower bound on it.
    points : shape (n, D)
        Unconstrained points drawn from the fit or from the mode.
    around
        Whether it is wide mass around a mode, where no ascent ends.
    """

    mean: Array = field(repr=False)
    covariance: Array = field(repr=False)
    log_evidence: float
    points: Array = field(repr=False)
    around: bool = False

    @cached_property
    def gaussian(self) -> GaussianBase:
        """The Gaussian, normalised."""
        return GaussianBase.from_covariance(self.mean, self.covariance)


@contextmanager
def bounded(density: BatchDensity) -> Iterator[None]:
    """End the ascent by Stan's L-BFGS that the body makes, with an `EngineError`, if it takes much
    longer than any that ends. Three gradients tell how long it may take.
    """
    points = np.random.default_rng(0).uniform(-1, 1, (3, density.dimension))
    begun = time.perf_counter()
    for x in points:
        density.log_density_gradient(x)
    each = (time.perf_counter() - begun) / len(points)
    try:
        with at_most(LONGEST + MOST_EVALUATIONS * each):
            yield
    except TimeoutError:
        raise EngineError(
            "Stan's L-BFGS did not end.", remedy="Pass another seed, or `inits=` near a mode."
        ) from None


def in_reach(x: Array, mean: Array, spread: Array, reach: float) -> Array:
    """Whether points, shape (n, D), are near enough to a mode to ask for the density there, (n,).

    They are if each coordinate is within reach, or in the bulk of the mode, to which chains go.
    """
    return np.all(np.abs(x - mean) <= np.maximum(reach, BULK * spread), axis=1)


def moment_match(fits: Sequence[LocalFit]) -> tuple[GaussianBase, float]:
    """The Gaussian base with the moments of local fits weighted by their evidences, and log ζ.

    log ζ = log Σ exp ℓ_i ([GS] 25).
    """
    mean, covariance, log_zeta = mixture_moments(
        [fit.log_evidence for fit in fits],
        [fit.mean for fit in fits],
        [fit.covariance for fit in fits],
    )
    return GaussianBase.from_covariance(mean, covariance), log_zeta


def mixture_of(
    fits: Sequence[LocalFit],
    *,
    wide_share: float = 0.0,
    width: float = 1.0,
    beside: Sequence[tuple[float, GaussianBase]] = (),
) -> tuple[MixtureBase, float]:
    """The mixture of local fits weighted by their evidences, and log ζ as in `moment_match`.

    Parameters
    ----------
    wide_share
        Share of one further Gaussian, which has the moments of the modes at equal weights.
    beside
        Further Gaussians, each with its weight relative to 1 for all of the others.
    """
    log_evidence = np.array([fit.log_evidence for fit in fits])
    log_zeta = float(log_sum_exp(log_evidence))
    weights = np.exp(log_evidence - log_zeta)
    kept = weights > LEAST_WEIGHT
    components = [fit.gaussian for fit, keep in zip(fits, kept, strict=True) if keep]
    weights = weights[kept]
    if wide_share:
        mean, covariance, _ = mixture_moments(
            np.zeros(len(components)),
            [one.mean for one in components],
            [one.covariance for one in components],
        )
        components.append(GaussianBase.from_covariance(mean, width * covariance))
        weights = np.append((1 - wide_share) * weights / weights.sum(), wide_share)
    shares, further = [share for share, _ in beside], [one for _, one in beside]
    return MixtureBase.of([*(weights / weights.sum()), *shares], [*components, *further]), log_zeta


def distinct_modes(fits: Sequence[LocalFit]) -> list[list[int]]:
    """Group fits that describe the same mode, best evidence first."""
    moments = [(fit.mean, np.diag(fit.covariance)) for fit in fits]
    best = sorted(range(len(fits)), key=lambda i: -fits[i].log_evidence)
    return grouped(best, lambda i, j: distance(moments[i], moments[j]) < SAME_MODE)


def grouped(numbers: Iterable[int], alike: Callable[[int, int], bool]) -> list[list[int]]:
    """Groups of numbers, each of which is like another one of its group."""
    groups: list[list[int]] = []
    for i in numbers:
        for group in groups:
            if any(alike(i, j) for j in group):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def best_of_each_mode(fits: Sequence[LocalFit]) -> tuple[LocalFit, ...]:
    """The fit of the highest evidence for each distinct mode, best first."""
    return tuple(fits[group[0]] for group in distinct_modes(fits))


def distance(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """Largest difference of two means in any coordinate, in pooled standard deviations.

    Each argument is a mean and its variances, both of shape (D,).
    """
    pooled = np.sqrt(0.5 * (one[1] + other[1]))
    return float(np.max(np.abs(one[0] - other[0]) / np.maximum(pooled, 1e-300)))


def explains(one: LocalFit, other: LocalFit) -> bool:
    """Whether another fit's points lie where draws of one Gaussian do, and it adds nothing.

    The mean square of whitened coordinates is 1 for the Gaussian's own draws.
    """
    squares = _squares(one, other)
    return bool(np.mean(np.median(squares, axis=1)) < 1.0 and squares.mean() < 2.0)


def encloses(one: LocalFit, other: LocalFit) -> bool:
    """Whether another fit's points lie among those of one Gaussian, or a little outside.

    Its draws have a mean square of m or more with a chance below exp(−D (m − 1 − ln m) / 2). In
    many dimensions no draw, and no chain that had such draws, goes to two standard deviations in
    every coordinate.
    """
    squares = _squares(one, other)
    mean = max(float(squares.mean()), 1.0)
    chance = 0.5 * len(squares) * (mean - 1 - math.log(mean))
    return mean < ENCLOSED and chance < FAR_OUT


def _squares(one: LocalFit, other: LocalFit) -> Array:
    """Squares of another fit's points in coordinates in which one Gaussian is standard normal."""
    scale = np.linalg.cholesky(one.covariance)
    return np.square(solve_triangular(scale, (other.points - one.mean).T, lower=True))


def is_flat(fit: LocalFit) -> bool:
    """Whether a fit of curvatures is wide in some direction beyond anything they can tell.

    On a ridge or a shell, the curvature along it is zero up to rounding.
    """
    variances = np.linalg.eigvalsh(fit.covariance)
    return bool(variances[-1] > FLAT * variances[0])


def unit_wide(fit: LocalFit) -> LocalFit:
    """A fit of curvatures whose variances are at most 1 in all directions, and its place alone."""
    variances, axes = np.linalg.eigh(fit.covariance)
    within = np.minimum(variances, 1.0)
    log_evidence = fit.log_evidence + 0.5 * float(np.log(within / variances).sum())
    return LocalFit(fit.mean, (axes * within) @ axes.T, log_evidence, fit.mean[None])


def inside(fit: LocalFit, density: SampledDensity) -> LocalFit:
    """The fit with those of its points at which the density is finite, or its mean if none is."""
    points = fit.points[np.isfinite(density.log_densities(fit.points))]
    return replace(fit, points=points if len(points) else fit.mean[None])


def laplace_fit(
    mode: Array, log_density: float, precision: Array, rng: np.random.Generator, draws: int = 25
) -> LocalFit:
    """The Gaussian of a mode's curvature, its evidence, and draws of it."""
    covariance = positive_covariance(precision)
    log_evidence = log_density + 0.5 * (np.linalg.slogdet(covariance)[1] + mode.size * LOG_2PI)
    scale = np.linalg.cholesky(covariance)
    points = mode + rng.standard_normal((draws, mode.size)) @ scale.T
    return LocalFit(mode, covariance, float(log_evidence), points)


def positive_covariance(precision: Array) -> Array:
    """Inverse of a precision matrix whose smallest eigenvalues are lifted to be positive.

    They are those in units of each coordinate's own curvature, because a year and a slope per year
    may differ by a factor of a million in scale.
    """
    own = precision.diagonal()
    unit = np.sqrt(np.maximum(own, max(LEAST_CURVED * own.max(), 1e-8)))
    values, vectors = np.linalg.eigh(precision / np.outer(unit, unit))
    lifted = np.maximum(values, max(LEAST_CURVED * values.max(), 1e-8))
    return ((vectors / lifted) @ vectors.T) / np.outer(unit, unit)
