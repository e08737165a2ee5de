"""Local fits, each a Gaussian fitted to one mode of the target, and how they are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stanct.arrays import Array, log_sum_exp
from stanct.path.gaussian import GaussianBase, mixture_moments
from stanct.path.mixture import MixtureBase

# Fits whose means differ by less than this many standard deviations in every coordinate are of one
# mode. Two fits of one mode must not count its evidence twice.
SAME_MODE = 2.0

# A component with a smaller weight would be drawn once in a million runs, but costs time at every
# step.
LEAST_WEIGHT = 1e-9


@dataclass(frozen=True)
class LocalFit:
    """A Gaussian fit to one mode of the target.

    Attributes
    ----------
    mean, covariance : shapes (D,) and (D, D)
    log_evidence
        ℓ, an estimate of the log mass of the mode, or a lower bound on it.
    points : shape (n, D)
        Unconstrained points drawn from the fit or from the mode.
    """

    mean: Array = field(repr=False)
    covariance: Array = field(repr=False)
    log_evidence: float
    points: Array = field(repr=False)


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


def mixture_of(fits: Sequence[LocalFit]) -> tuple[MixtureBase, float]:
    """The mixture of local fits weighted by their evidences, and log ζ as in `moment_match`."""
    log_evidence = np.array([fit.log_evidence for fit in fits])
    log_zeta = float(log_sum_exp(log_evidence))
    weights = np.exp(log_evidence - log_zeta)
    kept = weights > LEAST_WEIGHT
    components = [
        GaussianBase.from_covariance(fit.mean, fit.covariance)
        for fit, keep in zip(fits, kept, strict=True)
        if keep
    ]
    return MixtureBase.of(weights[kept], components), log_zeta


def distinct_modes(fits: Sequence[LocalFit]) -> list[list[int]]:
    """Group fits that describe the same mode, best evidence first."""
    groups: list[list[int]] = []
    for i in sorted(range(len(fits)), key=lambda i: -fits[i].log_evidence):
        for group in groups:
            if any(_distance(fits[i], fits[j]) < SAME_MODE for j in group):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def best_of_each_mode(fits: Sequence[LocalFit]) -> tuple[LocalFit, ...]:
    """The fit of the highest evidence for each distinct mode, best first."""
    return tuple(fits[group[0]] for group in distinct_modes(fits))


def _distance(one: LocalFit, other: LocalFit) -> float:
    """Largest difference of the means in any coordinate, in pooled standard deviations."""
    variance = 0.5 * (np.diag(one.covariance) + np.diag(other.covariance))
    return float(np.max(np.abs(one.mean - other.mean) / np.sqrt(variance)))


def hessian(gradient_at: Callable[[Array], Array], point: Array) -> Array:
    """Symmetric matrix of second derivatives from central differences of a gradient function."""
    dimension = point.size
    result = np.empty((dimension, dimension))
    for k in range(dimension):
        offset = np.zeros(dimension)
        offset[k] = 1e-4 * max(1.0, abs(point[k]))
        result[k] = (gradient_at(point + offset) - gradient_at(point - offset)) / (2 * offset[k])
    return 0.5 * (result + result.T)


def positive_covariance(precision: Array) -> Array:
    """Inverse of a precision matrix whose smallest eigenvalues are lifted to be positive."""
    values, vectors = np.linalg.eigh(precision)
    floor = max(values.max() * 1e-8, 1e-8)
    return (vectors / np.maximum(values, floor)) @ vectors.T
