"""Gibbs continuous tempering: exact answers, the law of β, threads, faults, calibrated errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analytic import Analytic, bimodal, gaussian, skewed
from conftest import LONG
from sampled import sampled

import stanct
from stanct import kernels
from stanct.api.sampling import method_with
from stanct.common.errors import SamplingError
from stanct.path.bias import Bias
from stanct.runs.loading import load
from stanct.runs.tempered import TemperedRun
from stanct.stan.program import Program
from stanct.targets.function_target import FunctionDensity, FunctionTarget

TABLE = Bias(np.array([0.0, 0.1, 0.35, 1.0]), np.array([0.0, -2.0, -2.5, 1.0]))

# A conjugate pair with generated quantities: y ~ N(mu, 1), mu ~ N(0, 2²), so y ~ N(0, 5).
PROGRAM = """
data { real y; }
parameters { real mu; real<lower=0> t; }
transformed parameters { vector[2] both = [mu, 2 * mu]'; }
model { mu ~ normal(0, 2); y ~ normal(mu, 1); t ~ exponential(1); }
generated quantities { real ahead = normal_rng(mu, 1); }
"""


def run(case: Analytic, **settings: Any) -> TemperedRun:
    settings = {"draws": 500, "warmup": 160, "bootstrap": 1, "threads": 1} | settings
    return sampled("gibbs", case.target, base=case.base, progress=False, **settings)


@pytest.mark.parametrize("delta", [-300.0, -3.0, 0.0, 3.0, 3.0 + 1e-11, 9.0, 400.0])
@pytest.mark.parametrize("bias", [Bias.linear(-3.0), TABLE], ids=["linear", "table"])
def test_compiled_beta_is_the_library_s_beta(bias: Bias, delta: float, rng) -> None:
    uniforms = rng.random((2, 200))
    law = kernels.make_law(bias.beta, bias.value, bias.atom)
    found = [kernels.draw_beta(delta, law, one, two) for one, two in uniforms.T]
    assert found == pytest.approx(bias.sample_beta(np.full(200, delta), uniforms), abs=1e-9)


# Bounds on the standard error: twice what these runs show, so that a blow-up is seen.
@pytest.mark.parametrize(
    ("make", "log_z_bound", "mean_bound"),
    [
        (lambda: gaussian(1), 0.01, 0.02),
        (lambda: gaussian(20), 0.06, 0.1),
        (skewed, 0.03, 0.06),
        (bimodal, 0.12, 1.0),
    ],
    ids=["gaussian 1", "gaussian 20", "skewed", "bimodal"],
)
def test_exact_answers(
    make: Callable[[], Analytic], log_z_bound: float, mean_bound: float, seed: int
) -> None:
    case = make()
    done = run(case, seed=seed, draws=800, warmup=320)
    evidence = done.evidence
    assert evidence.std_error < log_z_bound
    assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error
    mean, square = done.expect("x"), done.expect(lambda v: (v["x"] - case.mean) ** 2)
    assert np.all(mean.std_error < mean_bound)
    assert np.all(np.abs(mean.value - case.mean) < 4 * mean.std_error)
    assert np.all(np.abs(square.value - case.variance) < 4 * square.std_error)
    acceptance = [a for a in done.provenance["acceptance"]["acceptance"] if a is not None]
    assert min(acceptance) > 0.6 and max(acceptance) < 0.95


def test_beta_is_uniform_under_the_learned_bias(seed: int) -> None:
    beta = run(skewed(), seed=seed, draws=1000).beta
    assert abs(np.mean(beta == 0) - 0.05) < 0.02
    beta = beta[beta > 0]
    counts = np.histogram(beta, bins=5, range=(0, 1))[0] / beta.size
    assert np.all(np.abs(counts - 0.2) < 0.06)


def test_a_wildly_wrong_guess_is_overcome(seed: int) -> None:
    case = gaussian(3)
    for guess in (-40.0, 60.0):
        evidence = run(case, seed=seed, log_zeta=guess).evidence
        assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error < 0.2


def test_draws_do_not_depend_on_threads(seed: int) -> None:
    target = stanct.TemperedModel(Program.from_source(PROGRAM, name="pair")).target({"y": 1.5})
    base = stanct.GaussianBase(np.array([0.5, -0.5]), 1.5 * np.eye(2))
    runs = [
        sampled(
            "gibbs",
            target,
            base=base,
            seed=seed,
            draws=150,
            warmup=64,
            threads=threads,
            progress=False,
        )
        for threads in (1, 2, 4)
    ]
    for other in runs[1:]:
        assert isinstance(runs[0], TemperedRun) and isinstance(other, TemperedRun)
        assert np.array_equal(runs[0].z, other.z) and np.array_equal(runs[0].beta, other.beta)
        assert all(
            np.array_equal(runs[0].variables[k], other.variables[k]) for k in other.variables
        )
        assert runs[0].evidence.log_z == other.evidence.log_z


def test_a_stan_program_from_its_own_pilot(seed: int, tmp_path) -> None:
    model = stanct.TemperedModel(Program.from_source(PROGRAM, name="pair"))
    done = model.sample({"y": 1.5}, method="gibbs", seed=seed, draws=500, progress=False)
    exact = -0.5 * np.log(2 * np.pi * 5) - 0.5 * 1.5**2 / 5
    evidence = done.evidence
    assert abs(evidence.log_z - exact) < 4 * evidence.std_error < 0.1
    assert set(done.variables) == {"mu", "t", "both", "ahead"}
    assert done.variables["both"].shape == (4, 500, 2)
    assert np.array_equal(done.variables["both"][..., 1], 2 * done.variables["mu"])
    ahead = done.expect("ahead")
    assert abs(float(ahead.value) - 1.2) < 4 * float(ahead.std_error) < 0.5
    done.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert isinstance(again, TemperedRun)
    assert again.evidence == evidence and again.method == "gibbs"
    assert set(again.programs) == {"density"}
    assert done.to_arviz() is not None
    assert "max_depth" not in [check.name for check in done.diagnostics]


@pytest.mark.parametrize("fault", ["nan", "raise"])
def test_faults_are_counted_and_the_rest_is_right(fault: str, seed: int) -> None:
    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 0:
            if fault == "raise":
                raise ArithmeticError("right half")
            return np.nan, -x
        return -0.5 * float(x @ x) - 0.5 * np.log(2 * np.pi), -x

    target = FunctionTarget(FunctionDensity(function, 1))
    base = stanct.GaussianBase(np.array([0.3]), np.array([[1.3]]))
    done = sampled(
        "gibbs",
        target,
        base=base,
        bootstrap=0,
        seed=seed,
        draws=800,
        warmup=160,
        threads=1,
        progress=False,
    )
    evidence = done.evidence
    assert abs(evidence.log_z - np.log(0.5)) < 4 * evidence.std_error < 0.2
    assert done.statistics["rejected__"].sum() > 100
    assert "rejections" in evidence.warnings
    assert np.all(done.variables["x"][done.beta > 0] <= 0)


@LONG
def test_error_bars_are_calibrated() -> None:
    case = skewed()
    scores = []
    for k in range(20):
        evidence = run(case, seed=1000 + k, draws=150, warmup=64, bootstrap=0, chains=2).evidence
        scores.append((evidence.log_z - case.log_z) / evidence.std_error)
    # 19 of 20 are expected within 1.96; fewer than 16 would happen once in 400 correct samplers.
    assert sum(abs(score) < 1.96 for score in scores) >= 16
    assert np.std(scores) < 1.8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"chains": 0}, "chains must be a whole number of at least 1"),
        ({"draws": 2}, "draws must be a whole number of at least 8"),
        ({"target_accept": 1.0}, "target_accept must be a number between 0 and 1"),
        ({"bootstrap": -1}, "bootstrap must be a whole number of at least 0"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        run(gaussian(1), **settings)


def test_a_function_needs_a_base() -> None:
    with pytest.raises(SamplingError, match="this target has none"):
        sampled("gibbs", gaussian(1).target, progress=False)


def test_a_setting_of_another_method_is_refused() -> None:
    model = stanct.TemperedModel(Program.from_source(PROGRAM, name="pair"))
    with pytest.raises(SamplingError, match="There is no option 'max_depth'"):
        model.sample({"y": 1.5}, method="gibbs", max_depth=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(SamplingError, match="There is no gibbs setting 'max_depth'"):
        method_with("gibbs", {"max_depth": 3})
