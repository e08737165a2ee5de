"""Annealed importance sampling and its resampled form: exact answers, errors, threads, faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analytic import Analytic, bimodal, gaussian, skewed
from conftest import LONG
from sampled import sampled

import stanct
from stanct.common.errors import SamplingError
from stanct.path.bias import sigmoidal_ladder
from stanct.runs.particle import ParticleRun
from stanct.stan.program import Program
from stanct.targets.function_target import FunctionDensity, FunctionTarget

PROGRAM = """
data { real y; }
parameters { real mu; }
model { mu ~ normal(0, 2); y ~ normal(mu, 1); }
generated quantities { real twice = 2 * mu; }
"""


def run(case: Analytic, **settings: Any) -> ParticleRun:
    settings = {"draws": 96, "temperatures": 40, "threads": 1, "progress": False} | settings
    return sampled("ais", case.target, base=case.base, **settings)


def test_schedule_is_sigmoidal() -> None:
    betas = sigmoidal_ladder(10)
    assert betas[0] == 0 and betas[-1] == 1 and np.all(np.diff(betas) > 0)
    assert betas + betas[::-1] == pytest.approx(np.ones(11))
    logistic = 1 / (1 + np.exp(-4 * (2 * 0.3 - 1)))
    ends = 1 / (1 + np.exp(4)), 1 / (1 + np.exp(-4))
    assert betas[3] == pytest.approx((logistic - ends[0]) / (ends[1] - ends[0]))


@pytest.mark.parametrize("resample", [False, True], ids=["ais", "smc"])
@pytest.mark.parametrize(
    ("make", "log_z_bound", "mean_bound"),
    [
        (lambda: gaussian(1), 0.05, 0.06),
        (lambda: gaussian(20), 0.15, 0.25),
        (skewed, 0.08, 0.1),
        (bimodal, 0.15, 1.2),
    ],
    ids=["gaussian 1", "gaussian 20", "skewed", "bimodal"],
)
def test_exact_answers(
    make: Callable[[], Analytic], log_z_bound: float, mean_bound: float, resample: bool, seed: int
) -> None:
    case = make()
    done = run(case, seed=seed, resample=resample)
    evidence = done.evidence
    assert evidence.std_error < log_z_bound
    assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error
    mean, square = done.expect("x"), done.expect(lambda v: (v["x"] - case.mean) ** 2)
    assert np.all(mean.std_error < mean_bound)
    assert np.all(np.abs(mean.value - case.mean) < 4 * mean.std_error)
    assert np.all(np.abs(square.value - case.variance) < 4 * square.std_error)
    assert evidence.method.startswith("smc" if resample else "ais")


@pytest.mark.parametrize("resample", [False, True], ids=["ais", "smc"])
def test_acceptance_by_beta_adds_up(resample: bool, seed: int) -> None:
    done = run(gaussian(20), seed=seed, resample=resample)
    bins = done.provenance["acceptance"]
    tries, means = np.array(bins["transitions"]), np.array(bins["acceptance"], float)
    _, transitions, accepted, _, _ = done.counts.sum(axis=0)
    tenths = np.minimum((10 * done.betas[1:]).astype(int), 9)
    assert np.array_equal(tries, done.log_weights.size * np.bincount(tenths, minlength=10))
    assert tries.sum() == transitions and tries @ means == pytest.approx(accepted)
    assert np.all((means > 0.6) & (means < 0.98))


def test_two_errors_agree_when_the_weights_are_even(seed: int) -> None:
    evidence = run(skewed(), seed=seed).evidence
    assert evidence.within_error == pytest.approx(evidence.between_error, rel=0.25)


@LONG
@pytest.mark.parametrize("resample", [False, True], ids=["ais", "smc"])
def test_error_bars_are_calibrated(resample: bool) -> None:
    case = gaussian(5)
    scores = []
    for k in range(25):
        done = run(case, seed=100 + k, draws=64, temperatures=12, island=8, resample=resample)
        scores.append((done.evidence.log_z - case.log_z) / done.evidence.std_error)
    # Fewer than 20 within 1.96 would happen once in 150 correct samplers.
    assert sum(abs(score) < 1.96 for score in scores) >= 20
    assert np.std(scores) < 1.7


def test_resampling_happens_and_evens_the_weights(seed: int) -> None:
    case = gaussian(20)
    plain = run(case, seed=seed, temperatures=6)
    smc = run(case, seed=seed, temperatures=6, resample=True)
    assert smc.evidence.effective_size > plain.evidence.effective_size
    assert smc.island == 32 and plain.island == 1
    assert len(np.unique(smc.log_weights)) > 1


@pytest.mark.parametrize("resample", [False, True], ids=["ais", "smc"])
def test_threads_stan_and_saving(resample: bool, seed: int, tmp_path) -> None:
    model = stanct.TemperedModel(Program.from_source(PROGRAM, name="pair"))
    base = stanct.GaussianBase(np.array([0.5]), np.array([[1.5]]))
    runs = [
        model.sample(
            {"y": 1.5}, stanct.AIS(temperatures=20, resample=resample), base=base, seed=seed,
            draws=64, threads=threads, progress=False,
        )
        for threads in (1, 2, 4)
    ]  # fmt: skip
    one = runs[0]
    assert isinstance(one, ParticleRun)
    for other in runs[1:]:
        assert isinstance(other, ParticleRun)
        assert np.array_equal(one.log_weights, other.log_weights)
        assert np.array_equal(one.variables["mu"], other.variables["mu"])
    exact = -0.5 * np.log(2 * np.pi * 5) - 0.5 * 1.5**2 / 5
    assert abs(one.evidence.log_z - exact) < 4 * one.evidence.std_error < 0.2
    assert one.summary(["mu", "twice"]).loc["twice", "mean"] == pytest.approx(2.4, abs=0.5)
    one.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again, ParticleRun)
    assert again.evidence == one.evidence and again.summary().equals(one.summary())
    assert one.to_arviz() is not None and len(repr(one).splitlines()) <= 3


@pytest.mark.parametrize("resample", [False, True], ids=["ais", "smc"])
def test_half_of_the_base_outside_the_support(resample: bool, seed: int) -> None:
    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 0:
            raise ArithmeticError("right half")
        return -0.5 * float(x @ x) - 0.5 * np.log(2 * np.pi), -x

    target = FunctionTarget(FunctionDensity(function, 1))
    base = stanct.GaussianBase(np.array([0.3]), np.array([[1.3]]))
    done = sampled(
        "ais", target, base=base, seed=seed, draws=96, temperatures=30, resample=resample,
        threads=1, progress=False,
    )  # fmt: skip
    assert abs(done.evidence.log_z - np.log(0.5)) < 4 * done.evidence.std_error < 0.6
    assert done.counts[:, 4].sum() > 100
    # Dead particles stay dead without resampling, and an island with few of them keeps them.
    assert (np.isinf(done.log_weights).mean() > 0.4) != resample


def test_a_target_that_vanishes_everywhere() -> None:
    target = FunctionTarget(FunctionDensity(lambda x: (-np.inf, 0 * x), 1))
    base = stanct.GaussianBase(np.zeros(1), np.eye(1))
    with pytest.raises(SamplingError, match="vanishes"):
        sampled("ais", target, base=base, threads=1, progress=False)


def test_impossible_settings() -> None:
    with pytest.raises(SamplingError, match="multiple of island"):
        run(gaussian(1), draws=70)
    with pytest.raises(SamplingError, match="temperatures must be"):
        run(gaussian(1), temperatures=1)
