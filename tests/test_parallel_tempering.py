"""Parallel tempering: exact answers, the ladder, both directions, threads, faults, saving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analytic import Analytic, bimodal, gaussian, skewed
from sampled import sampled

import stanct
from stanct.common.errors import SamplingError
from stanct.estimates.ladder import LadderEstimator, equal_rejection
from stanct.runs.ladder import LadderRun
from stanct.stan.program import Program
from stanct.targets.function_target import FunctionDensity, FunctionTarget

PROGRAM = """
data { real y; }
parameters { real mu; }
model { mu ~ normal(0, 2); y ~ normal(mu, 1); }
generated quantities { real twice = 2 * mu; }
"""


def run(case: Analytic, **settings: Any) -> LadderRun:
    settings = {"draws": 500, "warmup": 160, "threads": 1, "progress": False} | settings
    return sampled("parallel_tempering", case.target, base=case.base, **settings)


@pytest.mark.parametrize(
    ("make", "log_z_bound", "mean_bound"),
    [
        (lambda: gaussian(1), 0.03, 0.03),
        (lambda: gaussian(20), 0.12, 0.1),
        (skewed, 0.08, 0.06),
        (bimodal, 0.12, 1.6),
    ],
    ids=["gaussian 1", "gaussian 20", "skewed", "bimodal"],
)
def test_exact_answers(
    make: Callable[[], Analytic], log_z_bound: float, mean_bound: float, seed: int
) -> None:
    case = make()
    done = run(case, seed=seed)
    for evidence in (done.evidence, done.forward_evidence, done.backward_evidence):
        assert evidence.std_error < 2 * log_z_bound
        assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error
    assert done.evidence.std_error < log_z_bound
    mean, square = done.expect("x"), done.expect(lambda v: (v["x"] - case.mean) ** 2)
    assert np.all(mean.std_error < mean_bound)
    assert np.all(np.abs(mean.value - case.mean) < 4 * mean.std_error)
    assert np.all(np.abs(square.value - case.variance) < 4 * square.std_error)
    assert np.all((done.acceptance > 0.6) & (done.acceptance < 0.95))
    assert done.round_trips.min() >= 5


def test_ladder_has_equal_rejection(seed: int) -> None:
    case = gaussian(20)
    base = stanct.GaussianBase(case.mean + 1.0, np.diag(4 * np.sqrt(case.variance)))
    done = sampled(
        "parallel_tempering",
        case.target,
        base=base,
        seed=seed,
        draws=400,
        warmup=400,
        threads=1,
        progress=False,
    )
    rejection = done.rejection.mean(axis=0)
    assert rejection.max() - rejection.min() < 0.2
    assert done.betas[1] < 0.05  # an evenly spaced ladder would reject nearly always at its foot


def test_equal_rejection_inverts_the_barrier() -> None:
    new, barrier = equal_rejection(np.array([0, 0.2, 1.0]), np.array([0.6, 0.2]), 5)
    assert barrier == pytest.approx(0.8)
    assert new == pytest.approx([0, 0.2 / 3, 0.4 / 3, 0.2, 1.0])


def test_non_reversible_swaps_make_more_round_trips(seed: int) -> None:
    case = gaussian(20)
    trips = {
        reversible: run(case, seed=seed, rungs=12, reversible=reversible).round_trips.sum()
        for reversible in (False, True)
    }
    assert trips[False] > 1.5 * trips[True]


def test_influence_adds_up_to_the_spread_over_independent_data(rng) -> None:
    # δ of a shifted Gaussian against the base: π_β is N(β s, 1), δ = s²/2 − s x, log Z = 0.
    betas, shift = np.array([0.0, 0.3, 0.6, 1.0]), 1.5
    found: dict[str, list[float]] = {"bridge": [], "forward": [], "backward": []}
    errors: dict[str, list[float]] = {way: [] for way in found}
    for _ in range(200):
        x = rng.standard_normal((1, 200, 4)) + betas * shift
        estimator = LadderEstimator(betas, shift**2 / 2 - shift * x)
        for way in found:
            found[way].append(estimator.steps[way].sum())
            errors[way].append(estimator.within_errors(way)[0][-1])
    for way, values in found.items():
        spread = np.std(values)
        assert abs(np.mean(values)) < 4 * spread / np.sqrt(200) + 0.01
        assert np.mean(errors[way]) == pytest.approx(spread, rel=0.2)
    assert np.std(found["bridge"]) < np.std(found["forward"])


def test_half_of_the_base_outside_the_support(seed: int) -> None:
    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 0:
            raise ArithmeticError("right half")
        return -0.5 * float(x @ x) - 0.5 * np.log(2 * np.pi), -x

    target = FunctionTarget(FunctionDensity(function, 1))
    base = stanct.GaussianBase(np.array([0.3]), np.array([[1.3]]))
    done = sampled(
        "parallel_tempering",
        target,
        base=base,
        seed=seed,
        draws=500,
        warmup=160,
        threads=1,
        progress=False,
    )
    for evidence in (done.evidence, done.forward_evidence, done.backward_evidence):
        assert abs(evidence.log_z - np.log(0.5)) < 4 * evidence.std_error < 0.4
    assert np.isinf(done.delta[..., 0]).mean() > 0.4
    assert done.counts[:, 3].sum() > 100 and "rejections" in done.warnings


def test_threads_stan_and_saving(seed: int, tmp_path) -> None:
    model = stanct.TemperedModel(Program.from_source(PROGRAM, name="pair"))
    base = stanct.GaussianBase(np.array([0.5]), np.array([[1.5]]))
    runs = [
        model.sample(
            {"y": 1.5}, stanct.ParallelTempering(bootstrap=1), base=base, seed=seed, draws=300,
            warmup=96, threads=threads, progress=False,
        )
        for threads in (1, 2, 4)
    ]  # fmt: skip
    one = runs[0]
    assert isinstance(one, LadderRun)
    for other in runs[1:]:
        assert isinstance(other, LadderRun)
        assert np.array_equal(one.delta, other.delta) and np.array_equal(one.betas, other.betas)
        assert np.array_equal(one.variables["mu"], other.variables["mu"])
    exact = -0.5 * np.log(2 * np.pi * 5) - 0.5 * 1.5**2 / 5
    assert abs(one.evidence.log_z - exact) < 4 * one.evidence.std_error < 0.1
    assert one.summary(["mu", "twice"]).loc["twice", "mean"] == pytest.approx(2.4, abs=0.3)
    one.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again, LadderRun)
    assert again.evidence == one.evidence and again.summary().equals(one.summary())
    assert one.to_arviz() is not None
    assert "log Z" in repr(one) and len(repr(one).splitlines()) <= 3


def test_nothing_tempered_is_named(seed: int) -> None:
    case = gaussian(1)
    exact = stanct.GaussianBase(case.mean, np.sqrt(case.variance)[:, None])
    done = sampled(
        "parallel_tempering",
        case.target,
        base=exact,
        seed=seed,
        draws=100,
        warmup=64,
        threads=1,
        progress=False,
    )
    assert done.evidence.log_z == pytest.approx(case.log_z, abs=1e-6)
    assert "tempered" in done.warnings


def test_error_bars_are_calibrated() -> None:
    case = skewed()
    scores = []
    for k in range(20):
        evidence = run(case, seed=500 + k, draws=150, warmup=64, chains=2).evidence
        scores.append((evidence.log_z - case.log_z) / evidence.std_error)
    # Fewer than 16 within 1.96 would happen once in 400 correct samplers.
    assert sum(abs(score) < 1.96 for score in scores) >= 16
    assert np.std(scores) < 1.8


def test_impossible_settings() -> None:
    with pytest.raises(SamplingError, match="rungs must be a whole number of at least 2"):
        run(gaussian(1), rungs=1)
    with pytest.raises(SamplingError, match="chains must be a whole number of at least 1"):
        run(gaussian(1), chains=True)


def test_rungs_without_overlap_have_no_error_bar() -> None:
    """Draws of the upper rung all lie thousands of nats above those of the lower one."""
    delta = np.random.default_rng(1).normal(0, 1, (2, 50, 3))
    delta[..., 1:] -= 5000.0
    found = LadderEstimator(np.array([0.0, 0.5, 1.0]), delta)
    errors, size = found.within_errors("bridge")
    assert np.isinf(errors).all() and size == 0
    assert np.isfinite(found.steps["bridge"]).all()
