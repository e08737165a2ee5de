"""Mass where a parameter rounds to its bound is noticed, and nothing else is taken for it."""

import numpy as np
import pytest
from conftest import LONG, target_of
from scipy.special import betainc
from scipy.stats import loggamma

import stanct
from stanct.runs.diagnostics import beyond_checks

BETA = "data { real a; } parameters { real<lower=0, upper=1> p; } model { p ~ beta(a, a); }"
# 1 − 1.1e-16 and above are 1 in double precision.
LAST = 2.0**-53


def logits(a: float, count: int, seed: int) -> np.ndarray:
    """Logits of draws of beta(a, a), from logarithms of gamma variables."""
    first, second = loggamma(a).rvs((2, count), random_state=np.random.default_rng(seed))
    return (first - second)[:, None]


@pytest.mark.parametrize(("a", "seed"), [(0.02, 1), (0.05, 2), (0.08, 3), (0.05, 4), (0.03, 5)])
def test_draws_short_of_a_bound_tell_the_mass_beyond(a: float, seed: int) -> None:
    target = target_of(BETA, {"a": a})
    x = logits(a, 40_000, seed)
    weights = target.density.log_densities(x)  # −∞ where p is 1
    inside = np.where(np.isfinite(weights), 0.0, -np.inf)
    assert np.isinf(inside).mean() > 0.5 * betainc(a, a, LAST)
    found = target.rounding(x, inside)
    assert found is not None
    assert found.along == ("p",)
    lost = betainc(a, a, LAST)
    assert 0.6 < found.lost / (lost / (1 - lost)) < 1.7


@pytest.mark.parametrize("a", [0.3, 0.5, 1.0, 7.0])
def test_mild_poles_lose_nothing(a: float) -> None:
    target = target_of(BETA, {"a": a})
    found = target.rounding(logits(a, 20_000, 1), np.zeros(20_000))
    assert found is None or found.lost < 1e-4


@pytest.mark.parametrize(
    "declared",
    [
        "real<lower=0>", "real<offset=1e6, multiplier=3>", "vector[3]", "simplex[3]", "ordered[3]",
        "positive_ordered[3]", "unit_vector[3]", "corr_matrix[3]", "cov_matrix[3]",
        "cholesky_factor_corr[3]", "real<lower=5>", "vector<lower=-1, upper=1>[3]",
        "sum_to_zero_vector[3]", "array[2] unit_vector[3]",
    ],
)  # fmt: skip
def test_draws_of_ordinary_size_come_back_from_every_type(declared: str) -> None:
    target = target_of(f"parameters {{ {declared} x; }} model {{ }}")
    rng = np.random.default_rng(1)
    x = 2 * rng.standard_normal((500, target.density.dimension))
    assert target.rounding(x, np.zeros(500)) is None


def test_draws_at_a_bound_where_the_density_is_finite_are_no_loss() -> None:
    target = target_of("parameters { real<lower=0, upper=1> p; } model { }")
    # Logits with an exponential tail across all distances, at the bound too.
    y = np.random.default_rng(2).exponential(20.0, (20_000, 1))
    assert target.rounding(y, np.zeros(20_000)) is None
    cut = np.where(y[:, 0] < 36.7, 0.0, -np.inf)
    found = target.rounding(y, cut)
    assert found is not None
    assert found.lost == pytest.approx(np.exp(-36.7 / 20) / -np.expm1(-36.7 / 20), rel=0.4)


@LONG
def test_the_default_says_that_mass_is_lost_and_the_logit_has_it() -> None:
    a = 0.05
    run = stanct.temper(BETA).sample({"a": a}, seed=3, progress=False)
    assert "rounding" in run.warnings
    lost = -np.log1p(-betainc(a, a, LAST))
    assert run.evidence.log_z == pytest.approx(-lost, abs=4 * run.evidence.std_error)
    (found,) = [check for check in run.diagnostics if check.name == "rounding"]
    assert found.value == pytest.approx(lost, rel=0.6)
    assert "logit" in found.remedy


def test_a_run_that_loses_less_than_its_error_passes() -> None:
    passed, failed = (
        next(beyond_checks({"rounding": {"lost": 0.01, "along": ["p"]}}, error)).passed
        for error in (0.03, 0.01)
    )
    assert passed
    assert not failed
    assert not [*beyond_checks({}, 0.01)]
    assert not next(beyond_checks({"rounding": {"lost": np.inf, "along": ["p"]}}, 9.0)).passed


def test_a_saved_run_keeps_the_check(tmp_path) -> None:
    run = stanct.temper(BETA).sample(
        {"a": 0.05}, method="joint", base="laplace", engine="embedded", draws=200, seed=1,
        progress=False,
    )  # fmt: skip
    run.save(tmp_path / "run")
    assert "rounding" in stanct.load(tmp_path / "run").warnings
