"""The exact answers of `examples/calibration`, each against the density of its Stan program.

The answers come from conjugacy, enumeration and quadrature on paper. Here the program's own log
density is integrated instead: on a grid over all its unconstrained parameters where these are one
or two, and otherwise by importance sampling.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_t, norm

Array = np.ndarray
FOLDER = ROOT / "examples" / "calibration"
# Draws of the importance sampler, and the standard error of log Z that they must reach.
DRAWS = int(os.environ.get("STANCT_TEST_IMPORTANCE", "4000"))
LARGEST_ERROR = 0.05

# In one or two dimensions a grid is exact; the others are small enough for a fitted proposal.
ON_GRID = {
    "cauchy_data": 30,
    "changepoint": 6,
    "funnel": 25,
    "ode": 5,
    "process": 10,
    "separation": 60,
    "shells": 12,
    "skewed": 25,
}
HEAVY = ("tails_cauchy", "tails_t")
BY_IMPORTANCE = (
    *("banana", "boltzmann", "harmonic", "hierarchy_raw", "horseshoe_raw", "ill_conditioned"),
    *("labels", "mixture", "prior_scale", "rates", "regression", "simplex", "spike"),
    "items",
)
SAME = ("hierarchy_centred", "hierarchy_offset", "horseshoe_centred", "horseshoe_offset")
IN_GROUPS = ("poisson_100", "poisson_1000")
WITH_THEIR_OWN = (
    *("autoregression", "binomial_groups", "lines", "walk", "widths"),
    *("orbit", "orbit_eccentric", "orbit_pair"),
)


@pytest.fixture(scope="module")
def families() -> Iterator[ModuleType]:
    """The module `families`, which also brings `grouped` and `quadrature`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module("families")


@pytest.fixture(scope="module")
def quadrature(families: ModuleType) -> ModuleType:
    return sys.modules["quadrature"]


@dataclass(frozen=True)
class Problem:
    """A target with its density, in coordinates that suit a proposal or a grid.

    The coordinates from `head` on are in units of a scale, whose log is a function of the first
    ones, around a place that is another.
    """

    target: Any
    density: Any
    one: bool = False  # one mode, to which a wide proposal adapts
    head: int = 0
    around: Callable[[Array], tuple[Any, Any]] = lambda z: (0.0, 0.0)

    @property
    def dimension(self) -> int:
        return self.density.dimension

    def places(self, z: Array) -> tuple[Array, Any]:
        """Unconstrained parameters, shape (n, D), and the log Jacobian."""
        centre, log_scale = (np.reshape(a, (-1, 1)) for a in self.around(z))
        x = np.hstack([z[:, : self.head], centre + np.exp(log_scale) * z[:, self.head :]])
        return x, (self.dimension - self.head) * log_scale[:, 0]

    def log_p(self, z: Array) -> Array:
        """Log density at each row."""
        x, log_jacobian = self.places(z)
        return self.density.log_densities(x) + log_jacobian

    def values(self, z: Array) -> Array:
        """The quantity at each row."""
        return self.target.quantity(self.density.variables(self.places(z)[0], seed=1))

    def downhill(self, z: Array) -> tuple[float, Array]:
        """Minus the log density with its gradient."""
        value, gradient = self.density.log_density_gradient(z)
        return (-value, -gradient) if np.isfinite(value) else (1e10, np.zeros(z.size))


def small(families: ModuleType, name: str, largest: int, seed: int = 1) -> Problem:
    """The first target of a family with so few parameters, from this seed on."""
    for candidate in range(seed, seed + 100):
        target = families.drawn(name, candidate)
        density = target_of(target.stan, dict(target.data)).density
        if density.dimension <= largest:
            return Problem(target, density, name.endswith("raw"))
    raise AssertionError(f"{name} has no target with {largest} parameters")


def test_every_family_is_checked(families: ModuleType) -> None:
    others = (*IN_GROUPS, *WITH_THEIR_OWN)
    assert {*ON_GRID, *HEAVY, *BY_IMPORTANCE, *SAME, *others} == families.FAMILIES.keys()
    assert len(families.FAMILIES) >= 16


@pytest.mark.parametrize("kind", ["linear", "amplitude", "ellipse"])
def test_velocities_of_an_orbit(families: ModuleType, kind: str) -> None:
    """Given all other parameters, the mass over the linear ones follows from three gradients."""
    periods = families.periods
    rng = np.random.default_rng(5)
    data = periods._velocities(rng, 0.3)
    source = periods._ELLIPSE if kind == "ellipse" else periods._DATA + periods._CIRCLES["linear"]
    density = target_of(source, data).density
    for u in rng.normal(size=(5, density.dimension)):
        share = 1 / (1 + np.exp(-u[3:]))  # of the sides of the box in which the others lie
        jacobian = np.log(share * (1 - share)).sum() + np.log(np.log(100))
        x = 2 * np.pi * data["t"] / (data["shortest"] * 100 ** share[0])
        one, other = np.cos(x), np.sin(x)
        if kind == "ellipse":
            c, other = periods._shapes(x + 2 * np.pi * share[2], 0.8 * share[1])
            one = c + 0.8 * share[1]
        points = np.tile(u, (4, 1))
        points[:, :3] = np.vstack([np.zeros(3), np.eye(3)])
        values, slopes = density.log_density_gradients(points)
        curvature = slopes[0, :3] - slopes[1:, :3]
        top = values[0] + 0.5 * slopes[0, :3] @ np.linalg.solve(curvature, slopes[0, :3])
        log_mass = top + 1.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(curvature)[1]
        expected = periods._given(data, one[None], other[None])[0][0] + jacobian
        assert log_mass == pytest.approx(expected, abs=1e-6)
        if kind == "amplitude":
            length, phase = 2.5, 1.2
            a, b = length * np.cos(phase), length * np.sin(phase)
            polar = target_of(periods._DATA + periods._CIRCLES["amplitude"], data).density
            turn = np.log(phase / (2 * np.pi - phase))
            at = polar.log_densities(np.array([[np.log(length), turn, u[2], u[3]]]))[0]
            there = density.log_densities(np.array([[a, b, u[2], u[3]]]))[0]
            change = 2 * np.log(length) + np.log(phase * (2 * np.pi - phase) / (2 * np.pi))
            assert at == pytest.approx(there + change, abs=1e-6)


def test_velocities_of_two_orbits(families: ModuleType) -> None:
    """Given both periods, the mass over the linear parameters follows from their gradients."""
    target = families.drawn("orbit_pair", 3)
    density = target_of(target.stan, dict(target.data)).density
    low, high = np.log([target.data["shortest"], target.data["longest"]])
    rng = np.random.default_rng(5)
    for u in rng.normal(size=(5, density.dimension)):
        share = 1 / (1 + np.exp(-u[:2]))
        jacobian = np.log(share * (1 - share)).sum()
        points = np.tile(u, (u.size - 1, 1))
        points[:, 2:] = np.vstack([np.zeros(u.size - 2), np.eye(u.size - 2)])
        values, slopes = density.log_density_gradients(points)
        slopes = slopes[:, 2:]
        curvature = slopes[0] - slopes[1:]
        top = values[0] + 0.5 * slopes[0] @ np.linalg.solve(curvature, slopes[0])
        log_mass = top + 0.5 * slopes[0].size * np.log(2 * np.pi)
        log_mass -= 0.5 * np.linalg.slogdet(curvature)[1]
        f = np.exp(-(low + (high - low) * share))
        expected = families.periods._of_pairs(target.data, f)[0, 1] + jacobian
        assert log_mass == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ON_GRID)
def test_a_grid_over_the_program_finds_the_answer(
    families: ModuleType, quadrature: ModuleType, name: str
) -> None:
    """`integrate` is itself tested against closed forms below."""
    problem, side, points = small(families, name, 2), (-ON_GRID[name], ON_GRID[name]), 121
    if name == "funnel":
        problem = replace(problem, head=1, around=lambda z: (0.0, 0.5 * z[:, 0]))
    found = quadrature.integrate(
        lambda *z: problem.log_p(np.column_stack(z)),
        lambda *z: problem.values(np.column_stack(z)),
        [side] * problem.dimension,
        61 if name == "ode" else points,
    )
    assert found.log_z == pytest.approx(problem.target.log_z, abs=2e-3)
    assert found.mean == pytest.approx(problem.target.mean, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails(families: ModuleType, quadrature: ModuleType, name: str) -> None:
    """One dimension, x = sinh(u) from -10^12 to 10^12."""
    problem = small(families, name, 1)
    found = quadrature.integrate(
        lambda u: problem.log_p(np.sinh(u)[:, None]) + np.log(np.cosh(u)),
        lambda u: problem.values(np.sinh(u)[:, None]),
        [(-28, 28)],
        20001,
    )
    assert found.log_z == pytest.approx(problem.target.log_z, abs=1e-6)
    assert found.mean == pytest.approx(problem.target.mean, abs=2e-3)


def test_a_box_around_a_narrow_integrand_is_not_cut_off(quadrature: ModuleType) -> None:
    """On a coarse grid it is highest beside its mode, where it is wide."""
    found = quadrature.integrate(
        lambda m, w: norm.logpdf(m, 0.31, 0.02 * np.exp(w)) + norm.logpdf(w, -1, 0.3),
        lambda m, w: w,
        [(-16, 16), (-9, 9)],
        161,
    )
    assert found.log_z == pytest.approx(0, abs=1e-5)
    assert found.mean == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("name", BY_IMPORTANCE)
def test_importance_sampling_finds_the_answer(families: ModuleType, name: str, seed: int) -> None:
    check_by_importance(small(families, name, 20 if name == "regression" else 7), seed)


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_of_counts(families: ModuleType, groups: int, seed: int) -> None:
    target = families.grouped.poisson_groups(np.random.default_rng(groups), groups, (161, 161))
    density = target_of(target.stan, dict(target.data)).density
    check_by_importance(Problem(target, density, True, 2, lambda z: (z[:, 0], z[:, 1])), seed)


class Walk(Problem):
    """Steps in units of their scale in place of the places of a random walk."""

    def places(self, z: Array) -> tuple[Array, Any]:
        steps = np.hstack([z[:, 1:2], np.exp(z[:, :1]) * z[:, 2:]])
        return np.hstack([z[:, :1], steps.cumsum(axis=1)]), (self.dimension - 2) * z[:, 0]


def test_a_walk_in_units_of_its_scale(families: ModuleType, seed: int) -> None:
    plain = small(families, "walk", 7)
    check_by_importance(Walk(plain.target, plain.density, True), seed)


def test_groups_of_trials(families: ModuleType, seed: int) -> None:
    target = families.latent.binomial(np.random.default_rng(3), 3)
    density = target_of(target.stan, dict(target.data)).density
    check_by_importance(Problem(target, density, True, 2, lambda z: (z[:, 0], z[:, 1])), seed)


def test_points_on_two_lines(families: ModuleType, rng: np.random.Generator) -> None:
    """Draws of the prior, weighted by the program's density over that of the prior."""
    drawn = (families.drawn("lines", seed) for seed in range(1, 200))
    target = next(one for one in drawn if one.data["n"] == 4 and one.data["noise"] > 0.7)
    density = target_of(target.stan, dict(target.data)).density
    count = 100_000
    share, tau, m = rng.beta(2, 2, count), rng.exponential(1, count), rng.normal(size=count)
    a = rng.normal(0, 2, (count, 2))
    b = rng.normal(m[:, None], tau[:, None], (count, 2))
    x = np.column_stack([np.log(share) - np.log1p(-share), m, np.log(tau), a, b])
    log_prior = np.log(6) + 2 * (np.log(share) + np.log1p(-share)) - tau + np.log(tau)
    log_prior += norm.logpdf(m) + norm.logpdf(a, 0, 2).sum(axis=1)
    log_prior += norm.logpdf(b, m[:, None], tau[:, None]).sum(axis=1)
    log_weight = density.log_densities(x) - log_prior
    weight = np.exp(log_weight - target.log_z)
    error = weight.std() / np.sqrt(count)
    assert abs(weight.mean() - 1) < 4 * error < 0.2
    excess = weight * (b[:, 0] ** 2 - target.mean)
    assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(count) < 0.4 * target.mean


@pytest.mark.parametrize("drawn", [5, 15])
def test_an_autoregression(families: ModuleType, drawn: int, rng: np.random.Generator) -> None:
    """Draws of the prior; given the three scales the program's density is Gaussian in the states.

    The integral over the states then follows from the gradients at the origin and at unit vectors.
    """
    target = families.drawn("autoregression", drawn)
    density = target_of(target.stan, dict(target.data)).density
    count, n = 20_000, target.data["n"]
    phi, sigma, tau = rng.uniform(-1, 1, count), *rng.exponential(1, (2, count))
    place = np.zeros((count, n + 1, n + 3))
    place[:, :, :3] = np.stack([np.log1p(phi) - np.log1p(-phi), np.log(sigma), np.log(tau)], 1)[
        :, None
    ]
    place[:, 1:, 3:] = np.eye(n)
    values, slopes = density.log_density_gradients(place.reshape(-1, n + 3))
    value, slope = values.reshape(count, n + 1)[:, 0], slopes.reshape(count, n + 1, -1)[:, :, 3:]
    precision = slope[:, :1] - slope[:, 1:]
    step = np.linalg.solve(precision, slope[:, 0, :, None])[..., 0]
    log_weight = value + 0.5 * (slope[:, 0] * step).sum(axis=1) + 0.5 * n * np.log(2 * np.pi)
    log_weight -= 0.5 * np.linalg.slogdet(precision)[1]
    # The prior in unconstrained space.
    log_weight -= np.log1p(phi) + np.log1p(-phi) - np.log(4)
    log_weight -= -sigma + np.log(sigma) - tau + np.log(tau)
    weight = np.exp(log_weight - target.log_z)
    error = weight.std() / np.sqrt(count)
    assert abs(weight.mean() - 1) < 4 * error < 0.1
    excess = weight * (target.quantity({"phi": phi, "tau": tau}) - target.mean)
    assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(count) < 0.1


def test_a_mixture_in_many_dimensions(families: ModuleType, rng: np.random.Generator) -> None:
    """The program's density is that of SciPy, whose integral and mean are known."""
    target = families.drawn("widths", 5)
    data, density = target.data, target_of(target.stan, dict(target.data)).density
    for x in rng.normal(size=(5, data["d"])):
        parts = [
            np.log(w) + norm.logpdf(x, m, s).sum()
            for w, m, s in zip(data["w"], data["m"], data["s"], strict=True)
        ]
        assert density.log_density(x) == pytest.approx(target.log_z + logsumexp(parts), abs=1e-8)
    assert target.mean == pytest.approx(data["w"] @ data["m"][:, 0])


@pytest.mark.parametrize("name", ["spike", "spikes"])
def test_mixtures_that_no_text_names(
    families: ModuleType, name: str, rng: np.random.Generator
) -> None:
    """The density is that of the program which names its components."""
    pair = families.drawn(name, 3), families.drawn(f"{name}_unnamed", 3)
    named, unnamed = (target_of(one.stan, dict(one.data)) for one in pair)
    assert named.one_component is not None and unnamed.one_component is None
    assert pair[0].log_z == pair[1].log_z and pair[0].mean == pair[1].mean
    for x in 3 * rng.normal(size=(5, named.density.dimension)):
        exact = named.density.log_density(x)
        assert unnamed.density.log_density(x) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("name", ["slabs", "light"])
def test_gaussians_beside_others(families: ModuleType, name: str, rng: np.random.Generator) -> None:
    """The program's density is that of SciPy, whose integral and mean are known."""
    target = families.drawn(name, 5)
    data, density = target.data, target_of(target.stan, dict(target.data)).density
    rest = 1 - data["w"].sum()
    assert (abs(rest) < 1e-9) == (name == "slabs")
    for x in rng.normal(size=(5, data["d"])):
        parts = [
            np.log(w) + norm.logpdf(x, m, s).sum()
            for w, m, s in zip(data["w"], data["m"], data["s"], strict=True)
        ]
        if name == "light":
            t = multivariate_t.logpdf(x, np.zeros(data["d"]), data["S"], data["nu"])
            parts.append(np.log(rest) + t)
        assert density.log_density(x) == pytest.approx(target.log_z + logsumexp(parts), abs=1e-8)
    assert target.mean == pytest.approx(data["w"] @ data["m"][:, 0])


@pytest.mark.parametrize("name", ["hierarchy", "horseshoe"])
def test_forms_are_one_target(families: ModuleType, name: str, rng: np.random.Generator) -> None:
    """The centred density is the raw one by a change of variables, and the offset form is it."""
    forms = ("raw", "offset", "centred")
    raw, offset, centred = (families.drawn(f"{name}_{form}", 3) for form in forms)
    assert raw.log_z == offset.log_z == centred.log_z and raw.mean == centred.mean == offset.mean
    at, same, other = (target_of(f.stan, dict(f.data)).density for f in (raw, offset, centred))
    for x in rng.normal(size=(5, at.dimension)):
        assert same.log_density(x) == pytest.approx(at.log_density(x), abs=1e-9)
        units, y = raw.data["J" if name == "hierarchy" else "p"], x.copy()
        centre, log_scale = (x[0], x[1]) if name == "hierarchy" else (0.0, x[0] + x[1:-units])
        y[-units:] = centre + np.exp(log_scale) * x[-units:]
        jacobian = np.sum(log_scale * np.ones(units))
        assert other.log_density(y) + jacobian == pytest.approx(at.log_density(x), abs=1e-9)


@LONG
def test_answers_are_exact_at_other_seeds_too(families: ModuleType) -> None:
    """`drawn` refuses a target whose quadrature is too coarse."""
    for name in families.FAMILIES.keys() - {"poisson_1000"}:
        seed = 3 if name == "orbit_eccentric" else 12  # narrow peaks of a period take minutes
        assert families.drawn(name, seed).tolerance < 1e-3


def test_fixed_targets(families: ModuleType) -> None:
    """Their answers are those of the folders' own tests; here only that each can be run."""
    for name in families.FIXED:
        target = families.drawn(name, 1)
        density = target_of(target.stan, dict(target.data)).density
        values = target.quantity(density.variables(np.zeros((2, 3, density.dimension)), seed=1))
        assert values.shape == (2, 3) and np.isfinite(target.mean)


def test_the_same_seed_draws_the_same_target(families: ModuleType) -> None:
    first, again, other = (families.drawn("mixture", seed) for seed in (4, 4, 5))
    assert first.log_z == again.log_z != other.log_z
    np.testing.assert_array_equal(first.data["m"], again.data["m"])


def test_integrals_with_closed_forms(quadrature: ModuleType) -> None:
    """A Gaussian far from the middle of its box, and a Gamma density over log x."""
    integral = quadrature.integrate(
        lambda x, y: -0.5 * ((x - 40) ** 2 / 0.01 + (y + 3) ** 2),
        lambda x, y: x * y,
        [(-100, 100)] * 2,
        101,
    )
    assert integral.log_z == pytest.approx(np.log(2 * np.pi * 0.1), abs=1e-9)
    assert integral.mean == pytest.approx(-120, abs=1e-6) and integral.tolerance < 1e-4
    gamma = quadrature.integrate(lambda u: 2.5 * u - np.exp(u), np.exp, [(-60, 10)], 401)
    assert gamma.log_z == pytest.approx(0.284682870472919, abs=1e-9)
    assert gamma.mean == pytest.approx(2.5, abs=1e-9)


def test_many_log_concave_integrals(quadrature: ModuleType) -> None:
    """∫ exp(k x − e^x) dx = Γ(k), of which the left tail is long and the right one short."""
    shapes = np.array([0.5, 2.0, 30.0])
    found = quadrature.log_concave(
        lambda x: shapes[:, None] * x - np.exp(x), np.log(shapes), np.full(3, 100.0), 201
    )
    np.testing.assert_allclose(found, gammaln(shapes), atol=1e-7)


# ------------------------------------------------------------------------- importance sampling


def check_by_importance(problem: Problem, seed: int) -> None:
    log_z, error, mean, mean_error = importance(problem, np.random.default_rng(seed))
    exact = problem.target
    assert abs(log_z - exact.log_z) < 4 * error < 4 * LARGEST_ERROR
    assert abs(mean - exact.mean) < 4 * mean_error


def importance(problem: Problem, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """log Z and the mean, each with its standard error."""
    size = np.eye(problem.dimension)
    scattered = [(0.1, z, 4 * size) for z in rng.normal(size=(10, problem.dimension))]
    parts = scattered if problem.one else local_fits(problem, rng)
    for _ in range(6 if problem.one else 3):
        parts = refitted(problem, parts, rng)
    z, log_weight = weighed(problem, parts, DRAWS, rng)
    weight = np.exp(log_weight - logsumexp(log_weight)) * DRAWS
    values = problem.values(z)
    mean = float(np.mean(weight * values))
    return (
        float(logsumexp(log_weight) - np.log(DRAWS)),
        float(weight.std() / np.sqrt(DRAWS)),
        mean,
        float((weight * (values - mean)).std() / np.sqrt(DRAWS)),
    )


Part = tuple[float, Array, Array]  # share, centre, covariance


def local_fits(problem: Problem, rng: np.random.Generator) -> list[Part]:
    """A Gaussian for each mode that descents from scattered points find."""
    found: list[Part] = []
    for scale in np.repeat([0.5, 3.0, 10.0, 25.0], 4):
        start = scale * rng.normal(size=problem.dimension)
        top = minimize(problem.downhill, start, jac=True, method="L-BFGS-B").x
        if all((top - m) @ np.linalg.solve(c, top - m) > 4 for _, m, c in found):
            values, axes = np.linalg.eigh(curvature(problem, top))
            covariance = (axes / np.clip(values, 0.02, 1e6)) @ axes.T
            height = 0.5 * np.linalg.slogdet(covariance)[1] - problem.downhill(top)[0]
            found.append((height, top, covariance))
    heights = np.array([height for height, *_ in found])
    shares = np.exp(heights - logsumexp(heights)) + 0.02
    return [(float(s), m, c) for s, (_, m, c) in zip(shares / shares.sum(), found, strict=True)]


def curvature(problem: Problem, z: Array, step: float = 1e-4) -> Array:
    """Minus the Hessian by central differences of the gradient."""
    rows = [problem.downhill(z + a)[1] - problem.downhill(z - a)[1] for a in step * np.eye(z.size)]
    return (np.array(rows) + np.transpose(rows)) / (4 * step)


def weighed(
    problem: Problem, parts: list[Part], draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws of a mixture of t densities with their log weights."""
    which = rng.choice(len(parts), draws, p=[share for share, *_ in parts])
    z = np.empty((draws, problem.dimension))
    for k, (_, centre, covariance) in enumerate(parts):
        own = which == k
        noise = rng.normal(size=(own.sum(), problem.dimension))
        noise *= np.sqrt(5 / rng.chisquare(5, own.sum()))[:, None]
        z[own] = centre + np.einsum("nd,ed->ne", noise, np.linalg.cholesky(covariance))
    return z, problem.log_p(z) - logsumexp(log_parts(parts, z), axis=0)


def log_parts(parts: list[Part], z: Array) -> Array:
    """Log density of each part, a t with five degrees of freedom, with its share: (parts, n)."""
    d, rows = z.shape[1], []
    constant = gammaln(0.5 * (5 + d)) - gammaln(2.5) - 0.5 * d * np.log(5 * np.pi)
    for share, centre, covariance in parts:
        lower = np.linalg.cholesky(covariance)
        # einsum starts no threads, which would wait for those of other tests.
        square = np.square(np.einsum("nd,ed->ne", z - centre, np.linalg.inv(lower))).sum(axis=1)
        log_det = np.log(np.diag(lower)).sum()
        rows.append(np.log(share) + constant - log_det - 0.5 * (5 + d) * np.log1p(square / 5))
    return np.array(rows)


def refitted(problem: Problem, parts: list[Part], rng: np.random.Generator) -> list[Part]:
    """The parts with the weighted moments of draws that each is responsible for."""
    z, log_weight = weighed(problem, parts, 4000 if problem.one else 1500, rng)
    while effective(log_weight) < 30 * problem.dimension:
        log_weight = 0.7 * log_weight
    each = log_parts(parts, z)
    log_share = each - logsumexp(each, axis=0) + log_weight
    total: Any = logsumexp(log_share)
    new = []
    for row, (_, old, covariance) in zip(log_share, parts, strict=True):
        weight = np.exp(row - logsumexp(row))
        share = np.exp(logsumexp(row) - total)
        if effective(row) < 10 * problem.dimension:
            new.append((float(share), old, covariance))
            continue
        centre = weight @ z
        spread = np.einsum("n,nd,ne->de", weight, z - centre, z - centre)
        new.append((float(share), centre, spread + 1e-9 * np.eye(centre.size)))
    kept = [part for part in new if part[0] > 1e-3]
    left = sum(share for share, *_ in kept)
    return [(share / left, centre, covariance) for share, centre, covariance in kept]


def effective(log_weight: Array) -> float:
    """Effective number of weighted draws."""
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.sum() ** 2 / (weight @ weight))
