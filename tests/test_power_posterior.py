"""The path from the prior: its evidence, curve and sensitivity against conjugate answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic import gaussian
from conftest import SEED, target_of
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm
from targets import TWO_MODES

import stanct
from stanct.api import sampling
from stanct.common.errors import ProgramError, SamplingError, StanctError
from stanct.stan.prior_mass import corrections
from stanct.stan.program import Program

N, WIDTH = 8, 2.0
Y = np.array([1.1, 2.3, 0.4, 1.9, 1.2, 0.7, 2.8, 1.6])
# The data are normal around m = log r, and so is the prior of m. `r` is bounded, so that log p in
# the program's own space differs from that in the unconstrained one.
SOURCE = """
data { int N; vector[N] y; real w; }
parameters { real<lower=0> r; real<lower=0> s; }
transformed parameters { real m = log(r); }
model { r ~ lognormal(0, w); s ~ gamma(3, 2); y ~ normal(m, 1); }
"""
DATA = {"N": N, "y": Y, "w": WIDTH}


def log_z(power: float, width: float, centre: float = 0.0) -> float:
    """log ∫ N(m | centre, width²) Π N(y | m, 1)^power dm."""
    if not power:
        return 0.0
    covariance = np.eye(N) / power + width**2
    scale = -0.5 * N * (np.log(2 * np.pi) * (power - 1) + np.log(power))
    normal: Any = multivariate_normal
    return float(scale + normal.logpdf(Y, np.full(N, centre), covariance))


@pytest.fixture(scope="module")
def run() -> stanct.PowerRun:
    method = stanct.PowerPosterior(rungs=13, exponent=4)
    return stanct.sample(
        target_of(SOURCE, DATA), method, draws=400, warmup=200, seed=SEED, progress=False
    )


def test_every_estimate_of_the_evidence(run: stanct.PowerRun) -> None:
    exact = log_z(1.0, WIDTH)
    # log Z is 2.0 errors low here, and draws in two stages tell.
    assert set(run.warnings) <= {"two_stages"}
    for evidence in (run.evidence, *run.extra_estimates().values()):
        assert abs(evidence.log_z - exact) < 4 * evidence.std_error < 0.4, evidence


@pytest.mark.parametrize(
    ("declared", "prior", "log_mass"),
    [
        ("real<lower=-a, upper=9> m;", "", math.log(18)),
        ("real<lower=0> m;", "m ~ normal(0, 2);", -math.log(2)),
        ("real<lower=0> m;", "m ~ normal(0, 2) T[0, ];", 0.0),
        ("real<lower=0> m;", "m ~ normal(-a, 2);", float(norm.logsf(4.5))),
        ("real<lower=0> m; simplex[3] p;", "m ~ normal(0, 2);", -math.log(4)),
    ],
)
def test_log_z_is_that_of_the_program_as_written(
    declared: str, prior: str, log_mass: float
) -> None:
    """The mass of a prior that is not normalised counts, as in the other methods."""
    source = f"""
    data {{ vector[3] y; real<lower=0> a; }} parameters {{ {declared} }}
    model {{ {prior} y ~ normal(m, 1); }}
    """
    method = stanct.PowerPosterior(rungs=7)
    data = {"y": [1.0, 2.0, 3.0], "a": 9.0}
    run = stanct.temper(source).sample(
        data, method, draws=300, warmup=150, seed=SEED, progress=False, base="laplace"
    )
    assert run.provenance["log_prior_mass"] == pytest.approx(log_mass)
    low = -9 if log_mass > 1 else 0
    scale, centre = (2.0, -9.0 if "-a" in prior else 0.0) if prior else (np.inf, 0.0)

    def joint(m: float) -> float:
        own = norm.pdf(m, centre, scale) if prior else 1.0
        return float(own * np.prod(norm.pdf([1, 2, 3], m)))

    exact = np.log(quad(joint, low, 9)[0])
    exact += math.log(2) * ("T[0" in prior) - math.log(2) * ("simplex" in declared)
    evidence = run.evidence
    assert abs(evidence.log_z - exact) < 4 * evidence.std_error + 0.01 and evidence.std_error < 0.1
    assert run.curve().log_z[0] == pytest.approx(log_mass)
    assert run.thermodynamic_evidence.log_z == pytest.approx(evidence.log_z, abs=0.5)


def test_a_prior_whose_mass_no_statement_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on the prior finds it; where that fails, the check `prior_mass` does."""
    source = """
    data { vector[3] y; } parameters { real<lower=0> m; real<lower=0> s; }
    model { s ~ exponential(1); m ~ normal(1, s); y ~ normal(m, 1); }
    """

    def sampled() -> stanct.PowerRun:
        return stanct.temper(source).sample(
            {"y": [1.0, 2.0, 3.0]}, stanct.PowerPosterior(rungs=4), draws=60, warmup=150,
            seed=SEED, progress=False,
        )  # fmt: skip

    run = sampled()
    exact = np.log(quad(lambda s: np.exp(-s) * norm.cdf(1 / s), 0, 40)[0])
    error = run.provenance["log_prior_mass_error"]
    assert run.log_prior_mass == pytest.approx(exact, abs=5 * error) and error < 0.05
    assert run.curve().log_z[0] == run.log_prior_mass and "prior_mass" not in run.warnings

    def broken(*_: object) -> None:
        raise stanct.StanctError("nothing works")

    monkeypatch.setattr(sampling, "prior_target", broken)
    run = sampled()
    assert "prior_mass" in run.warnings and run.provenance["log_prior_mass"] is None


def test_the_curve_from_the_prior(run: stanct.PowerRun) -> None:
    curve = run.curve()
    exact = np.array([log_z(beta, WIDTH) for beta in curve.beta])
    assert curve.log_z[0] == 0
    errors = curve.std_error[1:]
    assert np.all(np.abs(curve.log_z - exact)[1:] < 4 * errors + 1e-9) and errors.max() < 0.1


def test_the_draws_are_the_posterior_s(run: stanct.PowerRun) -> None:
    variance = 1 / (N + WIDTH**-2)
    mean = run.expect("m")
    assert abs(mean.value - variance * Y.sum()) < 4 * mean.std_error < 0.1
    assert run.expect("s").value == pytest.approx(1.5, abs=0.1)


def test_power_scaling_of_the_prior(run: stanct.PowerRun) -> None:
    """LogNormal(0, w) to the power a is LogNormal((1 − a) w² / a, w / √a) up to a constant."""
    table = run.prior_sensitivity((0.8, 0.9, 1.0, 1.2))
    for power in table.index:
        row, centre = table.loc[power], (1 - power) * WIDTH**2 / power
        exact = log_z(1.0, WIDTH / np.sqrt(power), centre) - log_z(1.0, WIDTH)
        assert abs(row["change"] - exact) <= 4 * row["std_error"] < 0.2
        assert row["pareto_k"] < 0.7
    assert np.ptp(table["change"]) > 0.2
    assert table["change"].loc[1.0] == 0
    with pytest.raises(StanctError, match="must be positive"):
        run.prior_sensitivity([0.0])


@pytest.mark.usefixtures("words_alone")
def test_saved_and_loaded(run: stanct.PowerRun, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    loaded = stanct.load(tmp_path / "run")
    assert isinstance(loaded, stanct.PowerRun)
    assert loaded.evidence == run.evidence
    assert loaded.diagnostics == run.diagnostics
    assert "13 powers" in repr(loaded)
    page = str(loaded.report())
    assert "stepping stones up" in page and "power_posterior" in page


def test_modes_that_nuts_does_not_leave_are_told() -> None:
    model = stanct.temper(
        """
        data { real y; }
        parameters { real x; }
        model {
          x ~ normal(0, 9);
          target += log_sum_exp(normal_lpdf(y | x, 0.2), log(20) + normal_lpdf(-y | x, 0.2));
        }
        """
    )
    base = stanct.GaussianBase(np.zeros(1), 8 * np.eye(1))
    run = model.sample(
        {"y": 8.0}, stanct.PowerPosterior(rungs=5), base=base, draws=150, warmup=150, seed=3,
        progress=False,
    )  # fmt: skip
    assert {"r_hat"} <= set(run.warnings)


@pytest.mark.parametrize(
    ("source", "data", "message"),
    [
        (TWO_MODES.source, None, "No statement of the model is a likelihood"),
        ("data { real y; } parameters { real m; } model { y ~ normal(m, 1); }", {"y": 1.0},
         "`m` has no prior"),
    ],
)  # fmt: skip
def test_programs_without_a_prior_or_a_likelihood(source: str, data: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        stanct.temper(source).sample(data, method="power_posterior")


def test_a_function_has_no_prior() -> None:
    with pytest.raises(SamplingError, match="needs a Stan program with a prior and a likelihood"):
        stanct.sample(gaussian(2).target, stanct.PowerPosterior())


@pytest.mark.parametrize("space", [" ", "\n"])
def test_increments_of_one_line_are_told_apart(space: str) -> None:
    head = (
        "data { real y; } parameters { real m; } model { target += normal_lpdf(m | 0, 2);" + space
    )
    known, hidden = (
        Program.from_source(f"{head}target += {term}; }}")
        for term in ("-0.5 * square(y - m)", "-m * m")
    )
    assert corrections(known) == ()
    assert corrections(hidden) is None
