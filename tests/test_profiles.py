"""Densities of independent coordinates: of any shape, normalised, and those of their draws."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from stanct.common.arrays import Array, log_sum_exp
from stanct.path import profiles
from stanct.path.profiles import Profiles

# Coordinates of the target, each times exp(θ) and with θ added.
SHAPES: tuple[Any, ...] = (
    stats.norm(0, 1),
    stats.t(3, 0, 0.1),
    stats.laplace(2.013, 0.5),
    stats.skewnorm(8, -1, 3),
    stats.gumbel_l(0, 2),
)
LOG_FACTORS = np.array([0.0, 3.0, -20.0, 0.5, 700.0])
THETA = np.array([[0.0], [-5.0], [1.5]])
CENTRE, UNIT = np.array([0.0, 0.5, 2.0, 1.0, 0.0]), np.array([1.0, 0.5, 0.5, 2.0, 3.0])


def slopes(theta: Array, x: Array) -> tuple[Array, Array]:
    """Log densities of all coordinates together, with their factors, by finite differences."""
    scaled = (x - theta) * np.exp(-theta)

    def logs(at: Array) -> Array:
        columns = [one.logpdf(column) for one, column in zip(SHAPES, at.T, strict=True)]
        columns[2] = -np.abs(at[:, 2] - 2.013) / 0.5  # scipy's underflows
        return np.column_stack(columns)

    step = 1e-5
    slope = (logs(scaled + step) - logs(scaled - step)) / (2 * step) * np.exp(-theta)
    return (logs(scaled) - theta + LOG_FACTORS).sum(axis=1), slope


def picked(found: Profiles, place: int, columns: slice = slice(None)) -> Profiles:
    """Some densities at one place."""
    rows = slice(place, place + 1)
    return Profiles(
        nodes=found.nodes[rows, columns],
        log_tops=found.log_tops[rows, columns],
        rates=found.rates[rows, columns],
        upto=found.upto[rows, columns],
        log_mass=found.log_mass[rows],
    )


@pytest.fixture(scope="module")
def found() -> Profiles:
    return profiles.profiles(slopes, THETA, CENTRE, UNIT)


def test_masses_are_known(found: Profiles) -> None:
    """With scales from .7 % of the first mesh's unit to nine times of it."""
    np.testing.assert_allclose(found.log_mass, LOG_FACTORS.sum(), atol=0.04)


def test_finer_meshes_are_more_exact() -> None:
    rough, fine = (
        np.abs(profiles.profiles(slopes, THETA, CENTRE, UNIT, fine=at).log_mass - LOG_FACTORS.sum())
        for at in (2.0, 0.1)
    )
    assert fine.max() < 0.02 < rough.max() < 0.3


def test_densities_are_those_of_the_target(found: Profiles) -> None:
    rng = np.random.default_rng(0)
    for number, (theta,) in enumerate(THETA):
        one = picked(found, number)
        for _ in range(20):
            x = theta + np.exp(theta) * np.array([shape.rvs(random_state=rng) for shape in SHAPES])
            exact = slopes(THETA[number], x[None])[0][0] - LOG_FACTORS.sum()
            assert float(one.log_density(x[None])[0]) == pytest.approx(exact, abs=0.15)


def test_a_density_is_a_function_of_its_place_alone(found: Profiles) -> None:
    """Other places are refined beside it, some of them more often, with ends that move farther."""
    for number in range(len(THETA)):
        alone = profiles.profiles(slopes, THETA[number : number + 1], CENTRE, UNIT)
        assert alone.log_mass[0] == found.log_mass[number]
        u = np.random.default_rng(number).random((1, len(SHAPES)))
        np.testing.assert_array_equal(alone.drawn(u), picked(found, number).drawn(u))


def test_each_density_has_mass_one(found: Profiles) -> None:
    for number in range(len(THETA)):
        for k in range(len(SHAPES)):
            one = picked(found, number, slice(k, k + 1))

            def density(x: float, of: Profiles = one) -> float:
                return float(np.exp(of.log_density(np.array([[x]])))[0])

            nodes = one.nodes[0, 0]
            pieces = [
                (-np.inf, nodes[0]), *pairwise(nodes), (nodes[-1], np.inf)
            ]  # fmt: skip
            mass = sum(quad(density, *ends)[0] for ends in pieces)
            assert mass == pytest.approx(1, abs=1e-6)


def test_quantiles_invert_the_distribution(found: Profiles) -> None:
    uniforms = (np.arange(1000) + 0.5) / 1000
    for number, (theta,) in enumerate(THETA):
        for k, shape in enumerate(SHAPES):
            one = picked(found, number, slice(k, k + 1))
            x = np.array([one.drawn(np.array([[u]]))[0, 0] for u in uniforms])
            assert (np.diff(x) > 0).all()
            reached = shape.cdf((x - theta) * np.exp(-theta))
            assert np.abs(reached - uniforms).max() < 0.01


def test_extreme_uniforms_give_finite_draws(found: Profiles) -> None:
    for u in (0.0, 1e-300, 1 - 1e-16, 1.0):
        x = found.drawn(np.full((3, 5), u))
        assert np.isfinite(x).all() and np.isfinite(found.log_density(x)).all()


@pytest.mark.parametrize("s", [0.3, 0.05])
def test_peaks_on_both_sides_of_a_deep_valley(s: float) -> None:
    """y ~ normal(x², s): peaks at ±√y, hundreds of nats above zero where s is small."""
    y = np.array([0.5, 2.0, -0.3])

    def squared(theta: Array, x: Array) -> tuple[Array, Array]:
        off = (y - x**2) / s
        return (-0.5 * off**2 - 0.5 * (x - theta) ** 2).sum(axis=1), 2 * x * off / s - (x - theta)

    theta = np.array([[0.4]])
    found = profiles.profiles(squared, theta, np.zeros(3), np.array([0.5, 1.4, 0.2]))
    grid = np.linspace(-4, 4, 200_001)
    logs = -0.5 * ((y[:, None] - grid**2) / s) ** 2 - 0.5 * (grid - 0.4) ** 2
    total = log_sum_exp(logs, axis=1)
    exact = (total + np.log(grid[1] - grid[0])).sum()
    assert found.log_mass[0] == pytest.approx(exact, abs=0.3)
    right = np.exp(log_sum_exp(logs[:2, 100_001:], axis=1) - total[:2])
    uniforms = (np.arange(400) + 0.5) / 400
    x = np.array([found.drawn(np.full((1, 3), u))[0, :2] for u in uniforms])
    np.testing.assert_allclose((x > 0).mean(axis=0), right, atol=0.1)


def test_a_bound_is_approached_in_shorter_and_shorter_steps() -> None:
    """A flat density ends at ±3, between the first mesh's last finite node, 1.9, and its next."""

    def flat(_: Array, x: Array) -> tuple[Array, Array]:
        return np.where(np.abs(x[:, 0]) < 3, 0.0, -np.inf), np.zeros_like(x)

    found = profiles.profiles(flat, np.zeros((1, 1)), np.zeros(1), np.full(1, 0.1))
    assert 2.6 < found.nodes.max() < 3 and -3 < found.nodes.min() < -2.6


def test_a_target_that_is_not_finite_everywhere() -> None:
    """A beta density on the logit scale, beyond whose 3 the program overflows."""

    def bounded(theta: Array, x: Array) -> tuple[Array, Array]:
        del theta
        values = (0.2 * x - 4 * np.logaddexp(0, x)).sum(axis=1)
        steep = 0.2 - 4 / (1 + np.exp(-x))
        inside = (x.max(axis=1) < 3)[:, None]
        return np.where(inside[:, 0], values, -np.inf), np.where(inside, steep, np.nan)

    found = profiles.profiles(bounded, np.zeros((2, 1)), np.full(3, -1.0), np.full(3, 2.0))
    exact, _ = quad(lambda x: np.exp(0.2 * x - 4 * np.logaddexp(0, x)), -200, 50)
    np.testing.assert_allclose(found.log_mass, 3 * np.log(exact), atol=0.05)


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize("slope", [np.nan, 0.0])
def test_where_nothing_is_finite_the_density_is_a_gaussian(value: float, slope: float) -> None:
    def nowhere(theta: Array, x: Array) -> tuple[Array, Array]:
        del theta
        return np.full(len(x), value), np.full(x.shape, slope)

    found = profiles.profiles(nowhere, np.zeros((1, 1)), np.ones(2), np.full(2, 3.0))
    assert found.log_mass[0] == -np.inf
    x = np.array([[2.0, -1.0]])
    assert found.log_density(x)[0] == pytest.approx(
        -0.5 * (((x - 1) / 3) ** 2).sum() - 2 * np.log(3 * np.sqrt(2 * np.pi)), abs=0.1
    )


def test_a_peak_that_is_not_found_has_no_mass() -> None:
    """It is narrower than all rounds together resolve."""

    def spike(theta: Array, x: Array) -> tuple[Array, Array]:
        del theta
        return -np.abs(x - 0.123).sum(axis=1) * 1e30, -np.sign(x - 0.123) * 1e30

    found = profiles.profiles(spike, np.zeros((1, 1)), np.zeros(1), np.ones(1))
    assert found.log_mass[0] == -np.inf
    assert np.isfinite(found.drawn(np.full((1, 1), 0.3))).all()
