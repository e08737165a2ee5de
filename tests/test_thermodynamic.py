"""Thermodynamic integration on paths with closed forms: values, errors, and failed checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from analytic import bimodal, gaussian
from sampled import sampled

from stanct.estimates.path import PathEstimator
from stanct.estimates.thermodynamic import ladder_integral, path_integral
from stanct.path.bias import Bias, LadderBias, sigmoidal_ladder
from stanct.path.course import beta_grid
from stanct.runs.diagnostics import agreement_check

# Base N(0, 1), target exp(1.5) N(1, 0.3²): π_β is normal with precision 1 + β (1/0.09 − 1).
LOG_Z, CENTRE, SD = 1.5, 1.0, 0.3


def delta_of(x: np.ndarray) -> np.ndarray:
    return 0.5 * ((x - CENTRE) / SD) ** 2 - 0.5 * x**2 + np.log(SD) - LOG_Z


def draws_at(beta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    precision = 1 + beta * (1 / SD**2 - 1)
    mean = beta * CENTRE / SD**2 / precision
    return mean + rng.standard_normal(beta.shape) / np.sqrt(precision)


def exact_curve(beta: np.ndarray) -> np.ndarray:
    """log z(β), from completing the square."""
    precision = 1 + beta * (1 / SD**2 - 1)
    mean = beta * CENTRE / SD**2 / precision
    square = 0.5 * (precision * mean**2 - beta * (CENTRE / SD) ** 2)
    return -0.5 * np.log(precision) + square + beta * (LOG_Z - np.log(SD))


def on_a_path(rng: np.random.Generator) -> tuple[PathEstimator, np.ndarray]:
    """β uniform, as under the best bias, and x exactly given β."""
    beta = rng.random((2, 1000))
    grid = beta_grid()
    bias = Bias.from_curve(grid, exact_curve(grid), tolerance=3e-3, most=60)
    base_delta = delta_of(rng.standard_normal(2000))
    return PathEstimator(delta_of(draws_at(beta, rng)), base_delta, bias), beta


def on_a_ladder(rng: np.random.Generator) -> tuple[PathEstimator, np.ndarray]:
    ladder = sigmoidal_ladder(16)
    beta = rng.choice(ladder, (2, 1000))
    bias = LadderBias(ladder, exact_curve(ladder))
    base_delta = delta_of(rng.standard_normal(2000))
    return PathEstimator(delta_of(draws_at(beta, rng)), base_delta, bias), beta


@pytest.mark.parametrize("make", [on_a_path, on_a_ladder], ids=["path", "ladder"])
def test_right_within_honest_errors(
    make: Callable[[np.random.Generator], tuple[PathEstimator, np.ndarray]], rng
) -> None:
    assert exact_curve(np.array([0.0, 1.0])) == pytest.approx([0, LOG_Z])
    found = [
        path_integral(estimator, beta, "test") for estimator, beta in (make(rng) for _ in range(40))
    ]
    values = np.array([one.log_z for one in found])
    spread = values.std(ddof=1)
    assert abs(values.mean() - LOG_Z) < 4 * spread / np.sqrt(40) < 0.05
    # The reported errors hold that of the discretisation too, so they are not too small.
    assert 0.85 * spread < np.mean([one.std_error for one in found]) < 2.5 * spread
    assert np.mean([one.within_error for one in found]) == pytest.approx(spread, rel=0.3)


def test_rungs_with_the_second_order_correction(rng) -> None:
    betas = np.linspace(0, 1, 8) ** 2
    found = []
    for _ in range(40):
        x = draws_at(np.broadcast_to(betas, (2, 500, betas.size)), rng)
        found.append(ladder_integral(betas, delta_of(x), "test"))
    values = np.array([one.log_z for one in found])
    spread = values.std(ddof=1)
    assert abs(values.mean() - LOG_Z) < 4 * spread / np.sqrt(40) < 0.05
    assert np.mean([one.within_error for one in found]) == pytest.approx(spread, rel=0.3)
    # Without its correction the rule is off by more than all of that, and every error says so.
    slope = -np.gradient(exact_curve(np.linspace(0, 1, 100_001)), 1e-5)
    mean = np.interp(betas, np.linspace(0, 1, 100_001), slope)
    assert abs(-np.trapezoid(mean, betas) - LOG_Z) > 0.05


def test_moments_of_delta_along_the_path(rng) -> None:
    estimator, _ = on_a_path(rng)
    for beta in (0.0, 0.2, 1.0):
        mean, variance = estimator.delta_moments(np.array([beta]))
        exact = delta_of(draws_at(np.full(400_000, beta), rng))
        assert mean == pytest.approx(exact.mean(), abs=0.15 * exact.std())
        assert variance == pytest.approx(exact.var(), rel=0.35)


def test_draws_at_the_wrong_beta_are_named(rng) -> None:
    estimator, beta = on_a_path(rng)
    evidence = estimator.evidence("test")
    assert agreement_check(evidence, path_integral(estimator, beta, "test")).passed
    wrong = path_integral(estimator, beta**1.5, "test")
    assert not agreement_check(evidence, wrong).passed


@pytest.mark.parametrize("make", [on_a_path, on_a_ladder], ids=["path", "ladder"])
def test_a_few_huge_values_at_the_base_do_not_matter(
    make: Callable[[np.random.Generator], tuple[PathEstimator, np.ndarray]], rng
) -> None:
    """Under the base the mean of δ need not exist; for counts with log-normal rates it is 10²⁷."""
    estimator, beta = make(rng)
    base_delta = estimator.base_delta.copy()
    base_delta[:3] = 1e27
    heavy = replace(estimator, base_delta=base_delta)
    found = path_integral(heavy, beta, "test")
    assert abs(found.log_z - LOG_Z) < 4 * found.std_error < 0.4
    assert agreement_check(heavy.evidence("test"), found).passed


def test_it_is_there_for_every_tempered_run(seed: int) -> None:
    settings = {"seed": seed, "draws": 200, "warmup": 120, "threads": 1, "progress": False}
    for case, method in ((bimodal(), "gibbs"), (gaussian(20), "parallel_tempering")):
        run = sampled(method, case.target, base=case.base, **settings)
        evidence = run.thermodynamic_evidence
        assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error < 1.2
        assert "thermodynamic" in [check.name for check in run.diagnostics]
        assert "thermodynamic" not in run.warnings and "thermodynamic" in evidence.method


def test_hard_support_is_taken_off(rng) -> None:
    # Target: the base's own density on x < 0, so that δ = 0 there and log Z = log ½.
    betas = np.linspace(0, 1, 6)
    delta = np.zeros((2, 400, 6))
    delta[..., 0] = np.where(rng.random((2, 400)) < 0.5, 0.0, np.inf)
    found = ladder_integral(betas, delta, "test")
    assert abs(found.log_z - np.log(0.5)) < 4 * found.std_error < 0.2
    base_delta = np.where(rng.random(4000) < 0.5, 0.0, np.inf)
    estimator = PathEstimator(np.zeros((2, 400)), base_delta, Bias.linear(0.0))
    found = path_integral(estimator, rng.random((2, 400)), "test")
    assert abs(found.log_z - np.log(0.5)) < 4 * found.std_error < 0.2


def test_draws_that_never_left_the_base_are_named(rng) -> None:
    estimator, beta = on_a_path(rng)
    estimator = replace(estimator, bias=replace(estimator.bias, atom=0.1))
    found = path_integral(estimator, np.zeros_like(beta), "joint")
    assert np.isnan(found.log_z) and found.std_error == np.inf
    check = agreement_check(estimator.evidence("joint"), found)
    assert not check.passed and "left β = 0" in check.message
    assert agreement_check(estimator.evidence("joint"), path_integral(estimator, beta, "")).passed
