"""Simulated tempering: exact answers, the law of the rungs, ladders, hard support, saving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analytic import Analytic, bimodal, funnel, gaussian, skewed
from sampled import sampled

import stanct
from stanct import kernels
from stanct.common.errors import SamplingError
from stanct.estimates.path import PathEstimator
from stanct.path.bias import LadderBias, sigmoidal_ladder
from stanct.runs.tempered import TemperedRun
from stanct.samplers.simulated_tempering import equal_length, thermodynamic_length
from stanct.stan.program import Program
from stanct.targets.function_target import FunctionDensity, FunctionTarget

PROGRAM = """
data { real y; }
parameters { real mu; }
model { mu ~ normal(0, 2); y ~ normal(mu, 1); }
"""


def run(case: Analytic, **settings: Any) -> TemperedRun:
    settings = {
        "draws": 400, "warmup": 160, "bootstrap": 0, "threads": 1, "progress": False
    } | settings  # fmt: skip
    return sampled("simulated_tempering", case.target, base=case.base, **settings)


# Bounds on the standard error: twice what these runs show, so that a blow-up is seen.
@pytest.mark.parametrize(
    ("make", "log_z_bound", "mean_bound"),
    [
        (lambda: gaussian(1), 0.03, 0.03),
        (lambda: gaussian(20), 0.14, 0.1),
        (lambda: gaussian(100), 0.4, 0.3),
        (skewed, 0.05, 0.06),
        (bimodal, 0.08, 1.0),
        (funnel, 0.1, 0.15),
    ],
    ids=["gaussian 1", "gaussian 20", "gaussian 100", "skewed", "bimodal", "funnel"],
)
def test_exact_answers(
    make: Callable[[], Analytic], log_z_bound: float, mean_bound: float, seed: int
) -> None:
    case = make()
    done = run(case, seed=seed + 1)
    for evidence in (done.evidence, done.rao_blackwell_evidence):
        assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error
    assert done.evidence.std_error < log_z_bound
    mean, square = done.expect("x"), done.expect(lambda v: (v["x"] - case.mean) ** 2)
    assert np.all(mean.std_error < mean_bound)
    assert np.all(np.abs(mean.value - case.mean) < 4 * mean.std_error)
    assert np.all(np.abs(square.value - case.variance) < 4 * square.std_error)


@pytest.mark.parametrize("delta", [-300.0, -2.0, 0.0, 3.0, 500.0, np.inf])
def test_compiled_rung_follows_its_law(delta: float, rng) -> None:
    bias = LadderBias(np.array([0.0, 0.1, 0.5, 1.0]), np.array([0.0, -0.4, 0.3, -1.0]))
    law, count = kernels.make_law(bias.beta, bias.value), 20_000
    rungs = [kernels.draw_rung(delta, law, u) for u in rng.random(count)]
    exact = np.exp(
        np.where(bias.beta > 0, -bias.beta * delta, 0.0)
        - bias.value
        - bias.log_mass(np.array(delta))
        if np.isfinite(delta)
        else np.array([0.0, -np.inf, -np.inf, -np.inf])
    )
    assert exact.sum() == pytest.approx(1)
    found = np.bincount(rungs, minlength=4) / count
    assert np.all(np.abs(found - exact) <= 4 * np.sqrt(exact * (1 - exact) / count) + 1e-12)


@pytest.mark.parametrize("ladder", ["equal", "sigmoidal"])
def test_rungs_are_uniform_under_the_learned_bias(ladder: str, seed: int) -> None:
    done = run(skewed(), seed=seed, draws=1000, ladder=ladder, rungs=6)
    assert isinstance(done.bias, LadderBias)
    assert np.array_equal(np.unique(done.beta), done.bias.beta)
    share = np.mean(done.beta[..., None] == done.bias.beta, axis=(0, 1))
    assert np.all(np.abs(share - 1 / 6) < 0.05)
    if ladder == "sigmoidal":
        assert done.bias.beta == pytest.approx(sigmoidal_ladder(5))


def test_equal_length_of_a_gaussian_path(rng) -> None:
    # Base N(0, 1), target N(0, v): δ = x² (1/v − 1)/2 + …, precision p = 1 + β (1/v − 1), and the
    # length is ∫ |1/v − 1| / (√2 p) dβ = |log v| / √2.
    variance = 25.0
    delta_of = lambda x: 0.5 * x**2 * (1 / variance - 1) + 0.5 * np.log(variance)  # noqa: E731
    ladder = sigmoidal_ladder(10)
    precision = 1 + ladder * (1 / variance - 1)
    bias = LadderBias(ladder, -0.5 * np.log(precision) - ladder * 0.5 * np.log(variance))
    x = rng.standard_normal((4, 20_000)) / np.sqrt(rng.choice(precision, (4, 20_000)))
    estimator = PathEstimator(delta_of(x), delta_of(rng.standard_normal(80_000)), bias)
    grid, length = thermodynamic_length(estimator)
    assert length[-1] == pytest.approx(np.log(variance) / np.sqrt(2), rel=0.05)
    betas = equal_length(grid, length, 5)
    assert np.diff(np.log(1 + betas * (1 / variance - 1))) == pytest.approx(
        np.full(4, -np.log(variance) / 4), rel=0.1
    )


def test_half_of_the_base_outside_the_support(seed: int) -> None:
    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 0:
            raise ArithmeticError("right half")
        return -0.5 * float(x @ x) - 0.5 * np.log(2 * np.pi), -x

    target = FunctionTarget(FunctionDensity(function, 1))
    base = stanct.GaussianBase(np.array([0.3]), np.array([[1.3]]))
    done = sampled(
        "simulated_tempering",
        target,
        base=base,
        seed=seed,
        draws=600,
        warmup=160,
        threads=1,
        progress=False,
    )
    # Draws at β = 0 see the hole, so here the chain alone is right too.
    for evidence in (done.evidence, done.rao_blackwell_evidence):
        assert abs(evidence.log_z - np.log(0.5)) < 4 * evidence.std_error < 0.3
    outside = ~np.isfinite(done.delta)
    assert outside.any() and np.all(done.beta[outside] == 0)
    assert done.curve().log_z[0] == pytest.approx(0, abs=1e-6)
    mean = done.expect("x")
    assert abs(mean.value[0] + np.sqrt(2 / np.pi)) < 4 * mean.std_error[0] < 0.3


def test_threads_stan_and_saving(seed: int, tmp_path) -> None:
    model = stanct.TemperedModel(Program.from_source(PROGRAM, name="pair"))
    base = stanct.GaussianBase(np.array([0.5]), np.array([[1.5]]))
    one, two = (
        model.sample(
            {"y": 1.5}, method="simulated_tempering", base=base, seed=seed, draws=200, warmup=64,
            threads=threads, progress=False,
        )
        for threads in (1, 4)
    )  # fmt: skip
    assert np.array_equal(one.z, two.z) and np.array_equal(one.beta, two.beta)
    exact = -0.5 * np.log(2 * np.pi * 5) - 0.5 * 1.5**2 / 5
    assert abs(one.evidence.log_z - exact) < 4 * one.evidence.std_error < 0.2
    one.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again, TemperedRun) and isinstance(again.bias, LadderBias)
    assert again.evidence == one.evidence and again.summary().equals(one.summary())


def test_error_bars_are_calibrated() -> None:
    case = skewed()
    scores = []
    for k in range(20):
        evidence = run(case, seed=2000 + k, draws=120, warmup=64, chains=2).evidence
        scores.append((evidence.log_z - case.log_z) / evidence.std_error)
    # Fewer than 16 within 1.96 would happen once in 400 correct samplers.
    assert sum(abs(score) < 1.96 for score in scores) >= 16
    assert np.std(scores) < 1.8


def test_impossible_settings() -> None:
    with pytest.raises(SamplingError, match="ladder must be 'equal' or 'sigmoidal', not"):
        run(gaussian(1), ladder="straight")
    with pytest.raises(SamplingError, match="rungs must be a whole number of at least 2"):
        run(gaussian(1), rungs=1)
