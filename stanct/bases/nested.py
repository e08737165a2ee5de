"""Finds the few coordinates given which a target is simple, and fits a base in two stages.

The scales of a hierarchy, or of the noise beside latent values, make its necks. Given them, the
rest often is Gaussian, in any parametrisation. Third derivatives tell which coordinates these are:
moved, they change the curvature along others. Where data are not normal, the rest often is
independent, one effect for each group. Second derivatives tell. The marginal density of the few
coordinates follows at any place by Laplace's method or by quadrature, and
`stanct.bases.incremental` fits a mixture to it. Draws of both stages then have nearly the target's
density, in narrow necks as elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stanct.bases.incremental import MOST_POINTS, incremental_mixture
from stanct.bases.score import unexplained
from stanct.common.arrays import Array, even_share, largest_of, log_sum_exp
from stanct.common.errors import SamplingError, as_written
from stanct.path.conditional import Slices
from stanct.path.curvature import STEP, Colouring, Gradients
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.path.nested import NestedBase, NestedGaussian, NestedLowRank, NestedProduct
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget

# Dimensions of a target whose inner coordinates are Gaussian or independent, and outer coordinates.
MOST_DIMENSIONS, MOST_INDEPENDENT, MOST_OUTER = 100, 300, 5
# Draws at which third derivatives are taken.
LOOKS = 2
# Coordinates may be Gaussian, given the others, if the cubic terms of their log density have a
# smaller variance, in nats², than the first number. Where they are not, the second one asks for
# more outer coordinates.
CUBIC = (0.3, 0.003)
# They are Gaussian if log densities have a smaller variance about those of their Gaussian, on
# average over so many places with so many draws each.
GAUSSIAN, PLACES, ALONG = 1e-4, 12, 20
# Draws of the base that decide whether it is good enough, the least evenness of their weights, and
# the largest one relative to their mean.
TRIAL, EVEN, LARGEST = 500, 0.4, 10.0
# Where only the largest is too large, the mixture is fitted once more, with Gaussians around draws
# whose weights are larger than this. On a banana, one draw of 11 told of an arm without which log Z
# was low by three errors.
TRIES, HEAVY = 2, 4.0
# Draws of the pilots that the base has to explain.
COMPARED = 60
# Coordinates are coupled if a second derivative is larger, in units of the points' spread. All
# others must be at least so many times as many as the outer ones, given which they are independent.
COUPLED, TIMES = 1e-6, 2
# Most fits need so many products, of so many gradients each. Few need more than this times as many
# gradients.
OFTEN, EACH, LONGER = 1500, 40, 2


@dataclass(frozen=True)
class Nested:
    """A base in two stages, and what its fit cost.

    Attributes
    ----------
    log_weights : shape (n,)
        log p(x) − log q(x) at independent draws of the base. The mean of their exponentials is Z.
    form
        What all other coordinates are, given the outer ones: ``"Gaussian"`` or ``"independent"``.
    """

    base: NestedBase | None = field(default=None, repr=False)
    outer: tuple[str, ...] = ()
    log_weights: Array = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    gradients: int = 0
    evaluations: int = 0
    form: str = "Gaussian"

    @property
    def log_z(self) -> float:
        """log Z from the draws' weights."""
        return float(log_sum_exp(self.log_weights) - np.log(self.log_weights.size))

    def with_fit(self, fit: Fit, form: str = "Gaussian", limit: float = np.inf) -> Nested:
        """What a fit found, with the cost of all before; see `Fit.base`."""
        base = fit.base(limit)
        outer = np.array(fit.density.unconstrained_names)[fit.outer].tolist()
        names = tuple(map(as_written, outer))
        spent, evaluations = self.gradients + fit.gradients, self.evaluations + fit.evaluations
        return Nested(base, names, fit.log_weights, spent, evaluations, form)


def find_nested(
    target: ProgramTarget,
    points: Array,
    seed: np.random.SeedSequence,
    *,
    most: float = np.inf,
) -> Nested:
    """Fit a base in two stages, if the target is simple given a few coordinates.

    Parameters
    ----------
    points : shape (n, D)
        Unconstrained draws of pilots, from every mode.
    """
    found = _given_gaussian(target.density, points, seed, most)
    if found.base is not None:
        return found
    other = _given_product(target.density, points, seed.spawn(1)[0], most)
    return replace(
        other if other.outer else found,
        gradients=found.gradients + other.gradients,
        evaluations=found.evaluations + other.evaluations,
    )


def _given_gaussian(
    density: Density, points: Array, seed: np.random.SeedSequence, most: float
) -> Nested:
    """A base of a mixture and Gaussians."""
    dimension = points.shape[1]
    expected = (LOOKS * dimension + MOST_POINTS + TRIAL) * (dimension + 1)
    if not 2 <= dimension <= MOST_DIMENSIONS or expected > most:
        return Nested()
    rng = np.random.default_rng(seed)
    coupled = _couplings(density.log_density_gradients, points, rng)
    colouring = Colouring.of(coupled)
    squares = _squares(density.log_density_gradients, points, colouring, rng)
    moves = 1 + int(colouring.colours.max())
    found = Nested(gradients=LOOKS * (dimension + 1) * (3 + moves))
    if not np.isfinite(squares).all():
        return found
    tried: list[Array] = []
    for limit in CUBIC:
        outer = _chosen(squares, limit)
        if outer is None or any(np.array_equal(outer, other) for other in tried):
            continue
        tried.append(outer)
        inner = points[:, ~outer]
        fit = Fit(
            density, points, rng, NestedGaussian, outer,
            centre=inner.mean(axis=0), unit=inner.std(axis=0),
            **Colouring.of(coupled[np.ix_(~outer, ~outer)])._asdict(),
        )  # fmt: skip
        found = found.with_fit(fit, limit=GAUSSIAN)
        if found.log_weights.size:
            break
    return found


def _given_product(
    density: Density, points: Array, seed: np.random.SeedSequence, most: float
) -> Nested:
    """A base of a mixture and products."""
    dimension = points.shape[1]
    looks = 2 * LOOKS * (dimension + 1)
    expected = LONGER * (looks + (OFTEN + TRIAL + COMPARED) * EACH)
    if not 3 <= dimension <= MOST_INDEPENDENT or expected > most:
        return Nested()
    rng = np.random.default_rng(seed)
    outer = _cover(_couplings(density.log_density_gradients, points, rng))
    found = Nested(gradients=looks)
    if outer is None:
        return found
    inner = points[:, ~outer]
    fit = Fit(
        density, points, rng, NestedProduct, outer,
        centre=np.median(inner, axis=0), unit=inner.std(axis=0),
    )  # fmt: skip
    return found.with_fit(fit, "independent")


def _squares(
    gradients: Gradients, points: Array, colouring: Colouring, rng: np.random.Generator
) -> Array:
    """Mean squared third derivatives in units of the points' spread, shape (D, D, D)."""
    spread = points.std(axis=0)
    squares = np.zeros(3 * spread.shape)
    steps = np.concatenate([np.zeros((1, spread.size)), np.diag(STEP * spread)])
    with np.errstate(over="ignore", invalid="ignore"):
        for place in points[rng.choice(len(points), LOOKS)]:
            second = _second_derivatives(gradients, place + steps, spread, colouring)
            squares += np.square((second[1:] - second[0]) / STEP) / LOOKS
    return squares


def _second_derivatives(
    gradients: Gradients, places: Array, spread: Array, colouring: Colouring
) -> Array:
    """Second derivatives in units of `spread` at places of shape (m, D), shape (m, D, D)."""
    _, slopes = gradients(places)
    units = np.broadcast_to(spread, places.shape)
    return colouring.second_derivatives(gradients, places, slopes, units)


def _chosen(squares: Array, limit: float) -> Array | None:
    """The coordinates without which little of the squared third derivatives is left, shape (D,).

    They are taken one by one, always the one that takes most with it. None if there are none, too
    many, or no others.
    """
    turned = squares.transpose(1, 2, 0), squares.transpose(2, 0, 1)
    symmetric = (squares + turned[0] + turned[1]) / 3
    outer = np.zeros(len(squares), bool)
    while True:
        left = symmetric[np.ix_(~outer, ~outer, ~outer)]
        # The variance of Σ T_ijk x_i x_j x_k / 6 under a standard normal, for the most part.
        if left.sum() / 6 < limit:
            return outer if outer.any() else None
        if outer.sum() == min(MOST_OUTER, outer.size - 1):
            return None
        # All terms with an index i are three times those with i first, less those counted twice.
        twice = np.einsum("iij->i", left) + np.einsum("iji->i", left) + np.einsum("jii->i", left)
        own = 3 * left.sum(axis=(1, 2)) - twice + np.einsum("iii->i", left)
        outer[np.flatnonzero(~outer)[np.argmax(own)]] = True


def _couplings(gradients: Gradients, points: Array, rng: np.random.Generator) -> Array:
    """Whether second derivatives are not zero at some of the points, shape (D, D).

    If further points tell of others, those depend on the place, and all count as not zero.
    """
    places, spread = points[rng.choice(len(points), 2 * LOOKS)], points.std(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        dense = Colouring.dense(spread.size)
        second = np.abs(_second_derivatives(gradients, places, spread, dense))
    coupled = ~(second <= COUPLED)
    either = np.logical_or.reduce
    first, further = either(coupled[:LOOKS]), either(coupled[LOOKS:])
    return np.ones_like(first) if (further & ~first).any() else first


def _cover(coupled: Array) -> Array | None:
    """The coordinates without which no two are coupled, shape (D,).

    They are taken one by one, always the one that is coupled with most others. None if there are
    none, too many, or too few others.
    """
    left = coupled & ~np.eye(len(coupled), dtype=bool)
    outer = np.zeros(len(left), bool)
    while left.any():
        if outer.sum() == MOST_OUTER:
            return None
        most = left.sum(axis=1).argmax()
        outer[most] = True
        left[most] = left[:, most] = False
    return outer if outer.any() and (~outer).sum() >= TIMES * outer.sum() else None


class Fit:
    """The fit of a base whose outer coordinates are known.

    Parameters
    ----------
    kind, outer, own
        The class of the base, whether a coordinate is an outer one, shape (D,), and what the class
        has of its own.

    Attributes
    ----------
    log_weights : shape (n,)
        Log weights of the draws by which the base was tried.
    """

    def __init__(
        self, density: Density, points: Array, rng: np.random.Generator,
        kind: type[NestedBase], outer: Array, **own: Any,
    ) -> None:  # fmt: skip
        self.density, self.outer = density, outer
        self._points, self._rng = points, rng
        self._slices = Slices(density.log_density_gradients, outer)
        self._moments = gaussian_moments(points[:, outer])
        self._kind, self._own = kind, own
        self._tried_gradients = self.evaluations = 0
        self.log_weights = np.zeros(0)

    @property
    def gradients(self) -> int:
        """Gradients spent."""
        return self._slices.spent + self._tried_gradients

    def base(self, limit: float = np.inf) -> NestedBase | None:
        """The base; None if there is none that is good enough.

        `limit` is the largest variance of log densities, in nats², about those of what the inner
        coordinates have in the base.
        """
        try:
            rough = self._kind(
                whitening=self._whitening(self._points),
                marginal=MixtureBase.of([1.0], [GaussianBase.from_covariance(*self._moments)]),
                outer=np.flatnonzero(self.outer),
                gradients=0.0,
                lend=self.density.borrow,
                **self._own,
            )
            if np.isfinite(limit) and not self._fits(rough) < limit:
                return None
            log_masses, thin = partial(self._log_masses, rough), self._points[:0, self.outer]
            for _ in range(TRIES):
                marginal = incremental_mixture(log_masses, *self._moments, self._rng, thin)
                base, thin = self._tried(replace(rough, marginal=marginal))
                if base is not None or not len(thin):
                    return base
        except SamplingError:
            pass
        return None

    def _fits(self, rough: NestedBase) -> float:
        """The variance of log densities about those of the base, given the outer coordinates."""
        theta = self._points[self._rng.choice(len(self._points), PLACES)][:, self.outer]
        difference = np.empty((ALONG, PLACES))
        self.evaluations += difference.size
        for batch, given in rough.given(self._slices, theta):
            for row in difference:
                shape = len(theta[batch]), int((~self.outer).sum())
                inner, log_q = given.made(self._rng.standard_normal(shape))
                x = self._slices.joined(theta[batch], inner)
                row[batch] = self.density.log_densities(x) - log_q
        with np.errstate(invalid="ignore"):  # infinite ones have none
            return float(np.var(difference, axis=0).mean())

    def _log_masses(self, rough: NestedBase, theta: Array) -> Array:
        """Log masses of the target over the inner coordinates, shape (m,), at m places θ."""
        log_mass = np.empty(len(theta))
        for batch, given in rough.given(self._slices, theta, rough=True):
            log_mass[batch] = given.log_mass
        return np.where(np.isnan(log_mass), -np.inf, log_mass)

    def _whitening(self, x: Array, weights: Array | None = None) -> GaussianBase | LowRankBase:
        """A Gaussian with the moments of points."""
        if self._kind is not NestedLowRank:
            return GaussianBase.from_covariance(*gaussian_moments(x, weights=weights))
        # Other methods than that of independent draws take it for their base.
        self._slices.spent += len(x)
        scores = self.density.log_density_gradients(x)[1]
        return LowRankBase.from_points(x, weights=weights).narrowed(x, scores)

    def _tried(self, base: NestedBase) -> tuple[NestedBase | None, Array]:
        """The base with the moments of its draws and its cost; None if it is not good enough.

        It misses mass where it does not explain draws of the pilots. Where only a few of its own
        draws are too heavy, the second value has their outer coordinates, shape (m, k).
        """
        made = base.valued(self._rng, TRIAL)
        x = base.unwhiten(made.z)
        log_weights = self.density.log_densities(x) - made.log_density
        self.log_weights = log_weights
        log_z = float(log_sum_exp(log_weights) - np.log(TRIAL))
        seen = self._points[self._rng.choice(len(self._points), COMPARED)]
        missed = unexplained(self.density.log_densities(seen), base.log_density(seen), log_z)
        self._tried_gradients += round(made.gradients * (TRIAL + COMPARED) / TRIAL)
        self.evaluations += TRIAL + COMPARED
        if even_share(log_weights) <= EVEN or missed.any():
            return None, x[:0, self.outer]
        if largest_of(log_weights) >= LARGEST:
            return None, x[log_weights - log_z > np.log(HEAVY)][:, self.outer]
        whitening = self._whitening(x, np.exp(log_weights - log_weights.max()))
        base = replace(base, whitening=whitening, gradients=made.gradients / TRIAL, lend=None)
        return base, x[:0, self.outer]
