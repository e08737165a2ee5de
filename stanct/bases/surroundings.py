"""Wide mass around a spike, which the Gaussian of the spike's curvature says nothing of.

A spike on a wide bulk is the bulk's only mode, and its own Gaussian fits. Draws of the same shape
and many widths find the bulk, and a Gaussian is fitted to what the known modes leave of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from stanct.bases.local import LocalFit, in_reach
from stanct.bases.score import unexplained
from stanct.common.arrays import Array, even_share, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.gaussian import GaussianBase

# Draws are so many times as wide as the mode, so many of each.
WIDTHS, DRAWS = tuple(2.0 ** (k / 2) for k in range(2, 11)), 40
# A draw tells of mass outside of all known modes only if its weight is no further below all known
# mass than this, in nats.
WEIGHTY = 6.0
# The bulk's Gaussian is fitted in so many rounds of draws of it, this much wider, so many for each
# dimension and at least. It holds if this share of the last draws counts.
ROUNDS, WIDER, FOR_EACH, FEWEST, EVEN = 6, 1.1, 50, 500, 0.3
# What the known modes leave of the target is where it exceeds their Gaussians by so many nats.
APART = 1.0
# Weights are flattened by no smaller a power.
LEAST_POWER = 1e-3


@dataclass(frozen=True)
class Surroundings:
    """What wide draws around a mode tell: draws, shape (n, D), in mass outside of all known modes
    that no Gaussian holds, a Gaussian that holds the rest, and the log densities spent.
    """

    strays: Array = field(repr=False)
    fit: LocalFit | None
    evaluations: int


def log_mass(fits: Sequence[LocalFit], x: Array) -> Array:
    """Log of the sum of the fits' Gaussians times their evidences at points, shape (n,)."""
    terms = [fit.log_evidence + fit.gaussian.log_density(x) for fit in fits]
    return np.asarray(log_sum_exp(np.array(terms), axis=0))


def surroundings(
    log_densities: Callable[[Array], Array],
    fit: LocalFit,
    known: Sequence[LocalFit],
    rng: np.random.Generator,
    reach: float = math.inf,
) -> Surroundings:
    """Look around a mode for mass outside of all known ones, of which it is one. Beyond `reach` the
    density counts as nothing; see `in_reach`.
    """
    log_densities = partial(_near, log_densities, fit, reach)
    total = float(log_sum_exp(np.array([one.log_evidence for one in known])))
    wide = [GaussianBase.from_covariance(fit.mean, width**2 * fit.covariance) for width in WIDTHS]
    x = np.concatenate([q.unwhiten(q.draw(rng, DRAWS)) for q in wide])
    log_q = np.concatenate(
        [q.log_density(own) for q, own in zip(wide, np.split(x, len(wide)), strict=True)]
    )
    beyond, log_weights = _left_over(log_densities, known, log_q, x)
    evaluations = len(x)
    strays = x[beyond & (log_weights > total - WEIGHTY)]
    if not len(strays):
        return Surroundings(strays, None, evaluations)
    masses = log_sum_exp(log_weights.reshape(len(wide), DRAWS), axis=1)
    width = WIDTHS[int(np.argmax(masses))]
    try:
        found, spent = _bulk(log_densities, known, fit.mean, width**2 * fit.covariance, rng)
        explained = None if found is None else log_mass([*known, found], strays)
    except SamplingError:  # no double holds a covariance, as of scales 1e12 apart
        return Surroundings(strays, None, evaluations)
    if explained is None:
        return Surroundings(strays, None, evaluations + spent)
    still = unexplained(log_densities(strays), explained)
    return Surroundings(strays[still], found, evaluations + spent + len(strays))


def _bulk(
    log_densities: Callable[[Array], Array],
    known: Sequence[LocalFit],
    mean: Array,
    covariance: Array,
    rng: np.random.Generator,
) -> tuple[LocalFit | None, int]:
    """A Gaussian that holds what the known modes leave, begun from one, and densities spent."""
    count = max(FEWEST, FOR_EACH * mean.size)
    even, x, log_weights, share = 0.0, mean[None], np.zeros(1), np.ones(1)
    for k in range(ROUNDS):
        q = GaussianBase.from_covariance(mean, WIDER * covariance)
        x = q.unwhiten(q.draw(rng, count))
        _, log_weights = _left_over(log_densities, known, q.log_density(x), x)
        if not np.isfinite(log_weights).any():
            return None, (k + 1) * count
        even, share = even_share(log_weights), _flattened(log_weights, 5 * mean.size / count)
        mean = share @ x
        covariance = (share * (x - mean).T) @ (x - mean)
    if even < EVEN:
        return None, ROUNDS * count
    mass = float(log_sum_exp(log_weights) - np.log(count))
    points = x[rng.choice(count, 100, p=share)]
    return LocalFit(mean, covariance, mass, points, around=True), ROUNDS * count


def _near(log_densities: Callable[[Array], Array], fit: LocalFit, reach: float, x: Array) -> Array:
    near, found = in_reach(x, fit.mean, fit.gaussian.spread, reach), np.full(len(x), -np.inf)
    found[near] = log_densities(x[near])
    return found


def _flattened(log_weights: Array, least: float) -> Array:
    """Weights of sum one, of which at least a share counts: powers of those that are given."""
    power = 1.0
    while even_share(power * log_weights) < least and power > LEAST_POWER:
        power /= 2
    flat = power * log_weights
    return np.exp(flat - log_sum_exp(flat))


def _left_over(
    log_densities: Callable[[Array], Array], known: Sequence[LocalFit], log_q: Array, x: Array
) -> tuple[Array, Array]:
    """Whether draws are outside of all known modes, and log weights of what these leave there.

    `log_q` is the log density at each of the draws of that from which it comes.
    """
    log_density, explained = log_densities(x), log_mass(known, x)
    left = np.where(log_density - explained > APART, log_density, -np.inf)
    return unexplained(log_density, explained), left - log_q
