"""ArviZ's functions take a run as it is, and its groups hold what their names say."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from conftest import target_of
from runs import KINDS, line_run
from scipy.stats import norm
from targets import LINE, TWO_MODES

import stanct
from stanct.common.errors import StanctError
from stanct.runs.inference import groups_of
from stanct.runs.tempered import TemperedRun

GENERATED = """
generated quantities {
  array[N] real y_rep = normal_rng(X * b, 0.5);
  real sum_b = sum(b);
}
"""
SOURCE = LINE.source[: LINE.source.index("generated quantities")] + GENERATED


@pytest.fixture(scope="module")
def run(seed: int) -> TemperedRun:
    target = target_of(SOURCE, LINE.data)
    wide = stanct.GaussianBase(np.array([0.5, 0.5]), 0.8 * np.eye(2))
    as_given = stanct.Joint(bootstrap=0)
    found = stanct.sample(
        target, as_given, base=wide, log_zeta=LINE.log_z, draws=1500, seed=seed, progress=False
    )
    assert isinstance(found, TemperedRun)
    return found


@pytest.fixture(scope="module")
def container(run: TemperedRun) -> Any:
    return run.to_arviz()


@pytest.fixture
def arviz() -> Iterator[Any]:
    mpl.use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module("arviz")


def test_the_posterior_is_the_posterior(run: TemperedRun, container: Any) -> None:
    """Mean and sd are those of the user's density, and not of the tempered chain."""
    assert LINE.data is not None
    posterior = container["posterior"]
    sd = np.sqrt(np.diag(np.linalg.inv(np.eye(2) + LINE.data["X"].T @ LINE.data["X"] / 0.25)))
    assert np.asarray(posterior["b"].mean(("chain", "draw"))) == pytest.approx(
        LINE.means["b"], abs=0.06
    )
    assert np.asarray(posterior["b"].std(("chain", "draw"))) == pytest.approx(sd, rel=0.12)
    assert (run.variables["b"].std(axis=(0, 1)) > 1.25 * sd).all()
    assert np.array_equal(container["tempered"]["b"].values, run.variables["b"])


def test_groups(container: Any) -> None:
    assert set(container["posterior"].data_vars) == {"b", "sum_b"}
    assert container["posterior_predictive"]["y"].shape == (4, 375, 5)
    assert LINE.data is not None
    assert np.array_equal(container["observed_data"]["y"].values, LINE.data["y"])
    assert set(container["constant_data"].data_vars) == {"N", "X"}


def test_log_likelihood_and_prior_of_each_draw(container: Any) -> None:
    assert LINE.data is not None
    b = container["posterior"]["b"].values
    expected = norm.logpdf(LINE.data["y"], np.einsum("nk,cdk->cdn", LINE.data["X"], b), 0.5)
    assert container["log_likelihood"]["y"].values == pytest.approx(expected, abs=1e-8)
    prior = norm.logpdf(b).sum(axis=-1)
    assert container["log_prior"]["log_prior"].values == pytest.approx(prior, abs=1e-8)


def test_the_same_seed_gives_the_same_draws(run: TemperedRun, container: Any) -> None:
    again, other = run.to_arviz()["posterior"]["b"], run.to_arviz(seed=1)["posterior"]["b"]
    assert np.array_equal(again.values, container["posterior"]["b"].values)
    assert not np.array_equal(again.values, other.values)


def test_draws_and_names(run: TemperedRun) -> None:
    found = run.to_arviz(
        draws=50,
        log_likelihood=False,
        predictions={"sum_b": "y"},
        coords={"term": ["level", "slope"]},
        dims={"b": ["term"]},
    )
    assert found["posterior"]["b"].shape == (4, 50, 2)
    assert list(found["posterior"]["term"].values) == ["level", "slope"]
    assert list(found["posterior_predictive"].data_vars) == ["y"]
    assert set(found["posterior"].data_vars) == {"b", "y_rep"}
    assert "log_likelihood" not in found and "log_prior" not in found
    with pytest.raises(StanctError, match="no variable 'z_rep', which predictions= names"):
        run.to_arviz(predictions=["z_rep"])


def test_a_saved_run_has_the_same_groups(run: TemperedRun, container: Any, tmp_path: Any) -> None:
    run.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run").to_arviz()
    for group in ("posterior", "log_likelihood", "observed_data"):
        for name, values in container[group].data_vars.items():
            assert np.array_equal(again[group][name].values, values.values)


class TestArviz:
    """Functions of ArviZ that users call on a fit, without another word."""

    def test_summary(self, arviz: Any, container: Any) -> None:
        table = arviz.summary(container, var_names=["b"])
        means = table["mean"].to_numpy(dtype=float)
        assert means == pytest.approx(LINE.means["b"], abs=0.06)

    def test_loo_and_compare(self, arviz: Any, container: Any) -> None:
        """Leaving one out agrees with its closed form in a Gaussian model."""
        assert LINE.data is not None
        x, y = LINE.data["X"], LINE.data["y"]
        exact = 0.0
        for n in range(5):
            rest = [k for k in range(5) if k != n]
            covariance = np.linalg.inv(np.eye(2) + x[rest].T @ x[rest] / 0.25)
            mean = covariance @ x[rest].T @ y[rest] / 0.25
            sd = np.sqrt(0.25 + x[n] @ covariance @ x[n])
            exact += norm.logpdf(y[n], x[n] @ mean, sd)
        found = arviz.loo(container)
        elpd = found["elpd_loo"] if hasattr(found, "index") else found.elpd
        assert elpd == pytest.approx(exact, abs=0.35)
        table = arviz.compare({"one": container, "two": container})
        assert len(table) == 2

    def test_predictive_check(self, arviz: Any, container: Any) -> None:
        if hasattr(arviz, "plot_ppc"):
            assert arviz.plot_ppc(container, num_pp_samples=50) is not None
        else:
            assert arviz.plot_ppc_dist(container, num_samples=50) is not None
        importlib.import_module("matplotlib.pyplot").close("all")

    def test_sensitivity_to_the_prior(self, arviz: Any, container: Any) -> None:
        """The prior of b pulls its mean, so power-scaling shows."""
        scaled = arviz.psens if hasattr(arviz, "psens") else arviz.psense
        found = scaled(container, var_names=["b"])
        values = found["b"] if hasattr(found, "data_vars") else found
        assert 0.02 < float(np.max(np.asarray(values))) < 1


def groups(source: str, variables: dict[str, np.ndarray], data: dict | None = None) -> Any:
    target = target_of(source, data)
    x = np.zeros((2, 3, target.density.dimension))
    return groups_of(variables, x, target.code("density"), target.data.text)


def test_log_likelihoods_that_the_program_generates() -> None:
    source = "data { vector[2] y; } parameters { real a; } model { y ~ normal(a, 1); }"
    own = {"a": np.zeros((2, 3)), "log_lik": np.ones((2, 3, 2))}
    found = groups(source, own, {"y": [1, 2]}).drawn
    assert np.array_equal(found["log_likelihood"]["y"], own["log_lik"])
    assert set(found["posterior"]) == {"a"}
    named = groups(source, {"log_lik_w": np.ones((2, 3, 2))}, {"y": [1, 2]}).drawn
    assert list(named["log_likelihood"]) == ["w"]


def test_what_cannot_be_split_has_no_groups_of_its_own() -> None:
    found = groups(TWO_MODES.source, {"x": np.zeros((2, 3, 2))})
    assert set(found.drawn) == {"posterior", "log_prior"}
    source = "data { int N; } parameters { real a; } model { target += -square(a) + N; }"
    with pytest.warns(UserWarning, match="one sum has prior and likelihood"):
        found = groups(source, {"a": np.zeros((2, 3))}, {"N": 2})
    assert found.data == {"constant_data": {"N": np.array(2)}}


def test_a_term_without_observations_is_named() -> None:
    source = "data { vector[2] y; } parameters { real a; } model { target += -dot_self(y - a); }"
    with pytest.warns(UserWarning, match="no known density"):
        found = groups(source, {"a": np.zeros((2, 3))}, {"y": [1, 2]})
    assert "`-dot_self(y - a)`" in found.attributes["no_log_likelihood"]


def test_branches_that_the_data_rule_out_have_no_likelihood() -> None:
    source = """
    data { vector[2] y; int prior_only; } parameters { real a; }
    model { if (!prior_only) { vector[2] m = rep_vector(a, 2); target += normal_lpdf(y | m, 1); }
    target += std_normal_lpdf(a); }
    """
    for prior_only in (0, 1):
        found = groups(source, {"a": np.zeros((2, 3))}, {"y": [1, 2], "prior_only": prior_only})
        assert ("log_likelihood" in found.drawn) == (not prior_only)
        assert found.attributes == {}


def test_a_function_has_draws_alone() -> None:
    found = groups_of({"x": np.zeros((2, 3, 1))}, None, None, "{}")
    assert set(found.drawn) == {"posterior"} and found.data == {}


@pytest.mark.parametrize("method", KINDS)
def test_every_kind_of_run_fills_the_groups(method: str) -> None:
    """Likelihoods are those of the same draws as in `posterior`, whatever rows the run has."""
    assert LINE.data is not None
    found = line_run(method).to_arviz()
    b = found["posterior"]["b"].values
    expected = norm.logpdf(LINE.data["y"], np.einsum("nk,cdk->cdn", LINE.data["X"], b), 0.5)
    assert found["log_likelihood"]["y"].values == pytest.approx(expected, abs=1e-6)
    assert found["sample_stats"].sizes["draw"] == b.shape[1]
