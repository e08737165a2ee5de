"""β given x: log mass and weights against integration; the bias and its simplification."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from stanct.common.errors import StanctError
from stanct.path.bias import Bias
from stanct.path.course import Course, beta_grid

LINEAR = Bias.linear(-3.0)
TABLE = Bias(np.array([0.0, 0.1, 0.35, 1.0]), np.array([0.0, -2.0, -2.5, 1.0]))


def log_mass_by_quadrature(bias: Bias, delta: float) -> float:
    """log ∫ exp(−β δ − b(β)) dβ, scaled by the integrand's peak, which lies at a knot."""
    knots = bias.beta
    peak = max(-k * delta - bias(k) for k in knots)
    total = sum(
        quad(lambda b: np.exp(-b * delta - bias(b) - peak), low, high, epsabs=0, epsrel=1e-12)[0]
        for low, high in itertools.pairwise(knots)
    )
    return peak + np.log(total)


@pytest.mark.parametrize("bias", [LINEAR, TABLE], ids=["linear", "table"])
@pytest.mark.parametrize("delta", [-40.0, -3.0, -1e-5, 0.0, 2.9999, 3.0, 3.0002, 7.5, 60.0])
def test_log_mass_is_the_integral_over_beta(bias: Bias, delta: float) -> None:
    assert bias.log_mass(np.array(delta)) == pytest.approx(
        log_mass_by_quadrature(bias, delta), rel=1e-10, abs=1e-10
    )


@pytest.mark.parametrize("delta", [1e300, 1e8, -1e8])
def test_log_mass_of_huge_delta_follows_its_asymptote(delta: float) -> None:
    # Only the end where −βδ peaks counts, and there ∫ exp(−|δ| t) dt = 1/|δ|.
    end = 0.0 if delta > 0 else -delta + 3.0
    expected = end - np.log(abs(delta + LINEAR.log_zeta))
    assert LINEAR.log_mass(np.array(delta)) == pytest.approx(expected, rel=1e-12)


def test_log_mass_where_the_target_vanishes() -> None:
    assert TABLE.log_mass(np.array([np.inf, 0.0]))[0] == -np.inf


@pytest.mark.parametrize("bias", [LINEAR, TABLE], ids=["linear", "table"])
def test_weights_integrate_to_one_over_beta(bias: Bias) -> None:
    delta = np.array([-5.0, 0.3, 12.0])
    grid = np.linspace(0, 1, 200_001)
    weights = np.exp([bias.log_weights(delta, b) for b in grid[::100]])
    assert np.trapezoid(weights, grid[::100], axis=0) == pytest.approx(np.ones(3), rel=1e-4)


def beta_by_quadrature(bias: Bias, delta: float, beta: np.ndarray) -> np.ndarray:
    """Distribution function of β given x on a grid, scaled by the integrand's peak."""
    grid = np.unique(np.concatenate([np.linspace(0, 1, 400_001), bias.beta]))
    log_density = -grid * delta - bias(grid)
    density = np.exp(log_density - log_density.max())
    mass = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    return np.interp(beta, grid, mass / mass[-1])


@pytest.mark.parametrize("bias", [LINEAR, TABLE], ids=["linear", "table"])
@pytest.mark.parametrize("delta", [-300.0, -40.0, -2.5, 0.0, 3.0, 3.0 + 1e-11, 3.001, 9.0, 400.0])
def test_beta_given_x_has_the_law_that_quadrature_says(
    bias: Bias, delta: float, rng: np.random.Generator
) -> None:
    uniforms = rng.random((2, 4000))
    beta = bias.sample_beta(np.full(4000, delta), uniforms)
    assert np.all((beta >= 0) & (beta <= 1))
    # The distribution function at draws is uniform; 1e-4 would catch a wrong piece of 2 % mass.
    assert kstest(beta_by_quadrature(bias, delta, beta), "uniform").pvalue > 1e-4


def test_beta_within_one_piece_inverts_the_distribution_function() -> None:
    v = np.linspace(0, 0.999, 50)
    for delta in (-40.0, -0.2, 3.0, 2.9, 11.0):
        beta = LINEAR.sample_beta(np.full(50, delta), np.stack([np.zeros(50), v]))
        assert beta_by_quadrature(LINEAR, delta, beta) == pytest.approx(v, abs=2e-6)


def test_beta_at_extreme_delta_stays_at_the_right_end() -> None:
    beta = TABLE.sample_beta(np.array([1e300, 1e8, -1e8, -1e300]), np.full((2, 4), 0.5))
    assert beta == pytest.approx([0, 0, 1, 1], abs=1e-7)


def test_linear_bias_gives_the_papers_weights() -> None:
    # [GS] 20 with Δ = δ + log ζ: w_0 = Δ / (1 − e^{−Δ}), w_1 = Δ / (e^{Δ} − 1).
    delta = np.array([-6.0, 0.5, 4.0])
    rate = delta - 3.0
    assert np.exp(LINEAR.log_weights(delta, 0.0)) == pytest.approx(rate / -np.expm1(-rate))
    assert np.exp(LINEAR.log_weights(delta, 1.0)) == pytest.approx(rate / np.expm1(rate))


def test_from_curve_stays_within_its_tolerance() -> None:
    grid = beta_grid()
    curve = -10 * np.sqrt(grid) + 4 * grid**2 + 7.0
    bias = Bias.from_curve(grid, curve, tolerance=0.1)
    assert np.abs(bias(grid) - (curve - curve[0])).max() <= 0.1
    assert 4 < bias.beta.size < 32


def test_from_curve_of_a_line_has_two_knots() -> None:
    grid = beta_grid()
    assert Bias.from_curve(grid, 3 * grid).beta.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("beta", "value", "words"),
    [
        ([0.0, 0.5], [0.0, 1.0], "from 0 to 1"),
        ([0.0, 0.6, 0.5, 1.0], [0.0, 1.0, 1.0, 1.0], "increase"),
        ([0.0, 1.0], [0.1, 1.0], "b\\(0\\) = 0"),
        ([0.0, 1.0], [0.0, np.nan], "finite"),
        ([0.0, 1.0], [0.0], "one value for each"),
    ],
)
def test_impossible_bias(beta: list[float], value: list[float], words: str) -> None:
    with pytest.raises(StanctError, match=words):
        Bias(np.array(beta), np.array(value))


def test_beta_grid_is_strictly_increasing_and_closed() -> None:
    grid = beta_grid(101)
    assert grid.size == 101 and grid[0] == 0 and grid[-1] == 1
    assert np.all(np.diff(grid) > 0)


def test_time_goes_where_the_path_is_fast() -> None:
    grid = beta_grid(101)
    speed = 1 / np.maximum(grid, 0.01)
    course = Course(grid, -3 * grid, speed)
    density = np.exp(course.log_density(0.25))
    assert np.trapezoid(density, grid) == pytest.approx(1)
    assert density.min() > 0.25
    ratio = (density[0] - 0.25) / (density[-1] - 0.25)
    assert ratio == pytest.approx(100**1.3)
    bias = course.bias(0.25, tolerance=0.01)
    assert bias(grid) - bias(0.0) == pytest.approx(
        -3 * grid - np.log(density / density[0]), abs=0.011
    )
    assert course.bias().beta.size == 2 and course.bias().log_zeta == -3.0


def test_a_path_that_stands_still_has_no_fast_part() -> None:
    """From draws of one δ, as when the base is the target."""
    course = Course.weighted(beta_grid(101), np.zeros(3), np.full(3, 2.0))
    assert course.log_z == pytest.approx(np.log(3) - 2 * course.beta)
    assert not course.speed.any() and not course.log_density(0.5).any()
