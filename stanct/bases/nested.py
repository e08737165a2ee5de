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

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from stanct.bases.incremental import MOST_POINTS, incremental_mixture
from stanct.bases.score import unexplained
from stanct.common.arrays import Array, even_share, largest_of, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.conditional import Conditionals, Slices
from stanct.path.curvature import STEP, Colouring, Gradients
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.path.nested import NestedBase, NestedGaussian, NestedProduct, given_in_batches
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget

# Dimensions of a target whose inner coordinates are Gaussian or independent, and outer coordinates.
MOST_DIMENSIONS, MOST_INDEPENDENT, MOST_OUTER = 100, 300, 5
# Gradients that a fit may cost.
MOST_GRADIENTS = 520_000
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
# Draws of the pilots that the base has to explain.
COMPARED = 60
# Coordinates are coupled if a second derivative is larger, in units of the points' spread. All
# others must be at least so many times as many as the outer ones, given which they are independent.
COUPLED, TIMES = 1e-6, 2
# How many nats log densities may be off where a product only guides the mixture. Most fits need so
# many products, of so many gradients each. Few need more than this times as many gradients.
ROUGH, OFTEN, EACH, LONGER = 2.0, 1500, 40, 2


@dataclass(frozen=True)
class Nested:
    """A base in two stages, and what its fit cost.

    Attributes
    ----------
    base
        The base; None if the target does not have that form.
    outer
        Names of the outer coordinates.
    log_weights : shape (n,)
        log p(x) − log q(x) at independent draws of the base. The mean of their exponentials is Z.
    gradients, evaluations
        Gradients spent, and log densities without a gradient.
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

    def with_fit(self, fit: Fit) -> Nested:
        """What a fit found, with the cost of all before."""
        base = fit.base()
        names = tuple(np.array(fit.density.unconstrained_names)[fit.outer].tolist())
        spent, evaluations = self.gradients + fit.gradients, self.evaluations + fit.evaluations
        return Nested(base, names, fit.log_weights, spent, evaluations, fit.form)


def find_nested(
    target: ProgramTarget,
    points: Array,
    seed: np.random.SeedSequence,
    *,
    effort: float = 1.0,
) -> Nested:
    """Fit a base in two stages, if the target is simple given a few coordinates.

    Parameters
    ----------
    points : shape (n, D)
        Unconstrained draws of pilots, from every mode.
    effort
        Share of `MOST_GRADIENTS` that may be spent.
    """
    found = _given_gaussian(target.density, points, seed, effort)
    if found.base is not None:
        return found
    other = _given_product(target.density, points, seed.spawn(1)[0], effort)
    return replace(
        other if other.outer else found,
        gradients=found.gradients + other.gradients,
        evaluations=found.evaluations + other.evaluations,
    )


def _given_gaussian(
    density: Density, points: Array, seed: np.random.SeedSequence, effort: float
) -> Nested:
    """A base of a mixture and Gaussians."""
    dimension = points.shape[1]
    expected = (LOOKS * dimension + MOST_POINTS + TRIAL) * (dimension + 1)
    if not 2 <= dimension <= MOST_DIMENSIONS or expected > effort * MOST_GRADIENTS:
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
        inner = Colouring.of(coupled[np.ix_(~outer, ~outer)])
        fit = _GaussianFit(density, outer, points, rng, inner)
        found = found.with_fit(fit)
        if fit.is_gaussian:
            break
    return found


def _given_product(
    density: Density, points: Array, seed: np.random.SeedSequence, effort: float
) -> Nested:
    """A base of a mixture and products."""
    dimension = points.shape[1]
    looks = 2 * LOOKS * (dimension + 1)
    expected = LONGER * (looks + (OFTEN + TRIAL + COMPARED) * EACH)
    if not 3 <= dimension <= MOST_INDEPENDENT or expected > effort * MOST_GRADIENTS:
        return Nested()
    rng = np.random.default_rng(seed)
    outer = _cover(_couplings(density.log_density_gradients, points, rng))
    found = Nested(gradients=looks)
    return found if outer is None else found.with_fit(_ProductFit(density, outer, points, rng))


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


class Fit(ABC):
    """The fit of a base whose outer coordinates are known.

    Attributes
    ----------
    density
        The target's density.
    outer : shape (D,)
        Whether a coordinate is an outer one.
    evaluations
        Log densities without a gradient so far.
    log_weights : shape (n,)
        Log weights of the draws by which the base was tried.
    """

    form: ClassVar[str]

    def __init__(
        self, density: Density, outer: Array, points: Array, rng: np.random.Generator
    ) -> None:
        self.density, self.outer = density, outer
        self._points, self._rng = points, rng
        self._slices = Slices(density.log_density_gradients, outer)
        self._theta = points[:, outer]
        self._tried_gradients = 0
        self.evaluations = 0
        self.log_weights = np.zeros(0)

    @abstractmethod
    def base(self) -> NestedBase | None:
        """The base; None if there is none that is good enough."""

    @abstractmethod
    def _log_masses(self, theta: Array) -> Array:
        """Log masses of the target over the inner coordinates, shape (m,), at m places θ."""

    @property
    def gradients(self) -> int:
        """Gradients spent."""
        return self._slices.spent + self._tried_gradients

    def _marginal(self) -> MixtureBase | None:
        """A mixture that is near to the marginal density of the outer coordinates."""
        try:
            return incremental_mixture(self._log_masses, *gaussian_moments(self._theta), self._rng)
        except SamplingError:
            return None

    def _whitening(self, x: Array, weights: Array | None = None) -> GaussianBase | LowRankBase:
        """A Gaussian with the moments of points."""
        return GaussianBase.from_covariance(*gaussian_moments(x, weights=weights))

    def _common(self, marginal: MixtureBase) -> dict[str, Any]:
        """What bases of each form have."""
        return {
            "whitening": self._whitening(self._points),
            "marginal": marginal,
            "outer": np.flatnonzero(self.outer),
            "gradients": 0.0,
            "lend": self.density.borrow,
        }

    def _tried(self, base: NestedBase) -> NestedBase | None:
        """The base with the moments of its draws and its cost; None if it is not good enough.

        It misses mass where it does not explain draws of the pilots.
        """
        made = base.valued(self._rng, TRIAL)
        x = base.unwhiten(made.z)
        log_weights = self.density.log_densities(x) - made.log_density
        self.log_weights = log_weights
        log_z = float(log_sum_exp(log_weights) - np.log(TRIAL))
        even = even_share(log_weights) > EVEN and largest_of(log_weights) < LARGEST
        seen = self._points[self._rng.choice(len(self._points), COMPARED)]
        missed = unexplained(self.density.log_densities(seen), base.log_density(seen), log_z)
        self._tried_gradients = round(made.gradients * (TRIAL + COMPARED) / TRIAL)
        self.evaluations += TRIAL + COMPARED
        if not even or missed.any():
            return None
        whitening = self._whitening(x, np.exp(log_weights - log_weights.max()))
        return replace(base, whitening=whitening, gradients=made.gradients / TRIAL, lend=None)


class _GaussianFit(Fit):
    """A fit with Gaussians of the inner coordinates.

    Attributes
    ----------
    is_gaussian
        Whether the inner coordinates are Gaussian given the outer ones.
    """

    form = "Gaussian"

    def __init__(
        self,
        density: Density,
        outer: Array,
        points: Array,
        rng: np.random.Generator,
        colouring: Colouring,
    ) -> None:
        super().__init__(density, outer, points, rng)
        self._colouring, inner = colouring, points[:, ~outer]
        self._start = inner.mean(axis=0)[None], inner.std(axis=0)[None]
        self.is_gaussian = False

    def base(self) -> NestedBase | None:
        """The base; None if there is none that is good enough."""
        self.is_gaussian = self._fits()
        marginal = self._marginal() if self.is_gaussian else None
        if marginal is None:
            return None
        return self._tried(
            NestedGaussian(
                **self._common(marginal),
                **self._colouring._asdict(),
                places=self._theta.mean(axis=0)[None],
                means=self._start[0],
                spreads=self._start[1],
            )
        )

    def _fits(self) -> bool:
        """Whether log densities at draws of the conditional Gaussians are those of Gaussians."""
        theta = self._theta[self._rng.choice(len(self._theta), PLACES)]
        difference = np.empty((PLACES, ALONG))
        self.evaluations += difference.size
        for batch, given in self._given(theta):
            many = given.of(np.repeat(np.arange(len(given.mean)), ALONG))
            noise = self._rng.standard_normal(many.mean.shape)
            x = self._slices.joined(np.repeat(theta[batch], ALONG, axis=0), many.drawn(noise))
            log_ratio = self.density.log_densities(x) - many.log_density(noise)
            difference[batch] = log_ratio.reshape(-1, ALONG)
        # Infinite ones have no variance.
        with np.errstate(invalid="ignore"):
            return bool(np.var(difference, axis=1).mean() < GAUSSIAN)

    def _given(self, theta: Array) -> Iterator[tuple[slice, Conditionals]]:
        """The Gaussians at outer coordinates, from the moments of the pilots' draws."""
        mean, spread = (np.repeat(one, len(theta), axis=0) for one in self._start)
        return self._slices.gaussians(theta, mean, spread, self._colouring)

    def _log_masses(self, theta: Array) -> Array:
        log_mass = np.empty(len(theta))
        for batch, given in self._given(theta):
            log_mass[batch] = given.log_mass
        return np.where(np.isnan(log_mass), -np.inf, log_mass)


class _ProductFit(Fit):
    """A fit with independent inner coordinates."""

    form = "independent"

    def base(self) -> NestedBase | None:
        """The base; None if there is none that is good enough."""
        marginal = self._marginal()
        if marginal is None:
            return None
        return self._tried(
            NestedProduct(**self._common(marginal), centre=self._centre, unit=self._unit)
        )

    @property
    def _centre(self) -> Array:
        return np.median(self._points[:, ~self.outer], axis=0)

    @property
    def _unit(self) -> Array:
        return self._points[:, ~self.outer].std(axis=0)

    def _log_masses(self, theta: Array) -> Array:
        log_mass = np.empty(len(theta))
        given = given_in_batches(self._slices, theta, self._centre, self._unit, fine=ROUGH)
        for batch, found in given:
            log_mass[batch] = found.log_mass
        return log_mass
