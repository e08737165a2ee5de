"""Incremental mixture importance sampling (Raftery & Bao 2010), in a few dimensions.

Points of a wide Gaussian are weighted by a target. A Gaussian joins the mixture around the heaviest
point, begets points of its own, and all points are weighted anew by the whole mixture. So it goes
on until the weights are even. Skewed shapes, necks and modes that the first points reach are
followed with some thousand log densities. At last, expectation maximisation moves all Gaussians
to where the weighted points are (Cappé et al. 2008).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stanct.bases.weights import belonging, maximised
from stanct.common.arrays import Array, even_share, largest_of, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase

# Variances of the first two Gaussians relative to the given covariance, and how many points each of
# them and each later one begets.
WIDTHS, FIRST, EACH = (2.0, 9.0), (150, 80), 30
# A later Gaussian has the moments of so many points, or of so many times the dimension, around the
# heaviest one. Its covariance is wider by a factor, and by a share of the given one.
AROUND, TIMES, WIDER, FLOOR = 40, 6, 1.3, 1e-4
# Gaussians that join, at least and at most. Points are enough where weights are so even, and none
# is larger than this times their mean.
LEAST, MOST, EVEN, BOUNDED = 8, 16, 0.5, 4.0
# Rounds that try the mixture with draws of its own, how many Gaussians join after a failure, and
# after how many rounds in a row without one the mixture is good.
ROUNDS, DRAWS, JOINING, PASSES = 6, 500, 4, 2
# The share of the heaviest weights that are cut to the smallest of these, the share that a part
# keeps of its first weight, and the least weight of the first two.
CUT, KEPT, DEFENSIVE = 0.002, 0.15, 0.03
# Times that the parts are fitted, and the effective points for each dimension that count as much as
# what a part was before.
FITS, PRIOR = 3, 5.0
# Shares and variances of the Gaussians that make up each part. They give it the tails of Student's
# t, because the log of a scale has exponential ones. The first two have fewer of them.
SHARES, VARIANCES, FEWER = (0.8, 0.14, 0.045, 0.015), (1.0, 3.0, 12.0, 50.0), 2

MOST_POINTS = sum(FIRST) + MOST * EACH + ROUNDS * (DRAWS + JOINING * EACH)
"""The most log densities of a fit."""


def incremental_mixture(
    log_densities: Callable[[Array], Array],
    mean: Array,
    covariance: Array,
    rng: np.random.Generator,
    thin: Array | None = None,
) -> MixtureBase:
    """A mixture that is near to a target in k dimensions.

    Parameters
    ----------
    log_densities
        Log densities of the target at points of shape (n, k), natural log, −inf where it vanishes.
    mean, covariance : shapes (k,) and (k, k)
        Moments of a Gaussian that overlaps the target.
    thin : shape (m, k)
        Places where an earlier mixture had too few draws. A Gaussian joins around each.

    Raises
    ------
    SamplingError
        The target vanishes at all points of the first two Gaussians, or a part has no extent.
    """
    points = _Points(log_densities, mean, covariance, rng)
    for width, count in zip(WIDTHS, FIRST, strict=True):
        points.join(GaussianBase.from_covariance(mean, width * covariance), count)
    if not np.isfinite(points.log_weights).any():
        raise SamplingError("The target vanishes at all points of a Gaussian that overlaps it.")
    for place in () if thin is None else thin:
        points.join(points.around(place), EACH)
    for number in range(MOST):
        log_weights = points.log_weights
        if number >= LEAST and _enough(log_weights):
            break
        points.join(points.around(points.at[np.argmax(log_weights)]), EACH)
    passed = 0
    for _ in range(ROUNDS):
        mixture = points.mixture()
        first, log_weights = points.tried(mixture)
        if _enough(log_weights):
            passed += 1
            if passed == PASSES:
                break
            continue
        passed = 0
        for heavy in np.argsort(-log_weights)[:JOINING]:
            points.join(points.around(points.at[first + heavy]), EACH)
    return points.mixture()


def _enough(log_weights: Array) -> bool:
    """Whether weights are even and bounded."""
    return even_share(log_weights) > EVEN and largest_of(log_weights) < BOUNDED


class _Points:
    """Points, shape (n, k), that mixtures begot, weighted by a target and by all of these mixtures
    together.
    """

    def __init__(
        self,
        log_densities: Callable[[Array], Array],
        mean: Array,
        covariance: Array,
        rng: np.random.Generator,
    ) -> None:
        self._log_densities, self._covariance, self._rng = log_densities, covariance, rng
        self._precision = np.linalg.inv(covariance)
        self.at = np.zeros((0, mean.size))
        self._log_target = np.zeros(0)
        # Σ counts × densities of all that begot points, at the points.
        self._begetters: list[tuple[int, GaussianBase | MixtureBase]] = []
        self._log_begot = np.zeros(0)
        self._parts: list[GaussianBase] = []

    def join(self, part: GaussianBase, count: int) -> None:
        """Let a Gaussian join, with points of its own."""
        self._parts.append(part)
        self._beget(part, count)

    def around(self, place: Array) -> GaussianBase:
        """A Gaussian around a place, of the shape of the weighted points near it."""
        offset = self.at - place
        distance = np.einsum("ij,jk,ik->i", offset, self._precision, offset)
        near = np.argsort(distance)[: max(AROUND, TIMES * offset.shape[1])]
        log_weights = self.log_weights
        share = np.exp(log_weights[near] - log_sum_exp(log_weights)) + 1 / log_weights.size
        moments = (offset[near] * (share / share.sum())[:, None]).T @ offset[near]
        return GaussianBase.from_covariance(place, WIDER * moments + FLOOR * self._covariance)

    def tried(self, mixture: MixtureBase) -> tuple[int, Array]:
        """The number of the first of new points of a mixture, and the log weights of these."""
        first = len(self.at)
        self._beget(mixture, DRAWS)
        return first, self._log_target[first:] - mixture.log_density(self.at[first:])

    def mixture(self) -> MixtureBase:
        """The mixture whose weights, means and covariances bring it near to the target."""
        log_weights = self.log_weights
        share = np.exp(log_weights - log_weights.max())
        share = np.minimum(share, np.quantile(share, 1 - CUT))
        share /= share.sum()
        before = np.full(len(self._parts), 1 / len(self._parts))
        parts, weights = self._parts, before
        for _ in range(FITS):
            log_parts = np.array([part.log_density(self.at) for part in parts])
            weights = maximised(weights, log_parts, share)
            belongs = belonging(weights, log_parts)
            parts = [
                self._moved(part, share * one) for part, one in zip(parts, belongs, strict=True)
            ]
        weights = (1 - KEPT) * weights + KEPT * before
        # The first two are wide. With the widest tails, they would reach where programs round.
        first = self._parts[: len(FIRST)]
        tailed = [(part, weight, len(SHARES)) for part, weight in zip(parts, weights, strict=True)]
        tailed += [(part, DEFENSIVE, FEWER) for part in first]
        shares = [weight * np.array(SHARES[:n]) / sum(SHARES[:n]) for _, weight, n in tailed]
        return MixtureBase.of(
            np.concatenate(shares),
            [
                GaussianBase(part.mean, part.scale * np.sqrt(times))
                for part, _, n in tailed
                for times in VARIANCES[:n]
            ],
        )

    def _moved(self, part: GaussianBase, share: Array) -> GaussianBase:
        """A part with the moments of the points that belong to it, as far as they are many."""
        total = share.sum()
        if not total > 0:
            return part
        share = share / total
        many = 1 / np.square(share).sum()
        new = many / (many + PRIOR * part.dimension)
        mean = share @ self.at
        offset = self.at - mean
        covariance = (offset * share[:, None]).T @ offset
        mean = new * mean + (1 - new) * part.mean
        return GaussianBase.from_covariance(
            mean, WIDER * new * covariance + (1 - new) * part.covariance + FLOOR * self._covariance
        )

    @property
    def log_weights(self) -> Array:
        """Log weights of all points, shape (n,)."""
        return self._log_target - self._log_begot

    def _beget(self, begetter: GaussianBase | MixtureBase, count: int) -> None:
        """Add points of a density."""
        made = begetter.unwhiten(begetter.draw(self._rng, count))
        begot = np.full(count, -np.inf)
        for number, other in self._begetters:
            begot = np.logaddexp(begot, np.log(number) + other.log_density(made))
        self._begetters.append((count, begetter))
        self.at = np.concatenate([self.at, made])
        self._log_begot = np.append(self._log_begot, begot)
        self._log_begot = np.logaddexp(
            self._log_begot, np.log(count) + begetter.log_density(self.at)
        )
        self._log_target = np.append(self._log_target, self._log_densities(made))
