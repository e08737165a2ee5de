"""Paths without a base: from the prior, and the extended Hamiltonian; and what programs average."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import LONG
from generated import load
from scipy import special, stats
from test_exporting import DATA, LOG_Z, MEAN_TAU, SOURCE

import stanct
from stanct import plots
from stanct.common.errors import ProgramError, SamplingError
from stanct.engines.cmdstan import CmdStan
from stanct.engines.homes import Home
from stanct.path.coupled import CoupledBias
from stanct.runs.coupled import CoupledRun
from stanct.stan.codegen import generate
from stanct.stan.program import Program

METHODS = {
    "prior": stanct.Joint(path="prior"),
    "extended_hamiltonian": stanct.ExtendedHamiltonian(),
}
LARGEST = {"prior": 0.2, "extended_hamiltonian": 0.03}
# The path from the prior has heavy weights, which take more draws to be told.
DRAWS = {"prior": 4000, "extended_hamiltonian": 1500}


def right(run: CoupledRun, name: str) -> None:
    """The run has the exact log Z and the exact mean, with errors that are small enough."""
    evidence = run.bare_evidence
    assert evidence.std_error < LARGEST[name]
    assert evidence.log_z == pytest.approx(LOG_Z, abs=4 * evidence.std_error)
    tau = run.expect("tau")
    assert abs(tau.value - MEAN_TAU) < 5 * tau.std_error


@pytest.mark.parametrize("name", METHODS)
def test_log_z_and_means_are_exact(name: str, seed: int, tmp_path: Path) -> None:
    model = stanct.temper(SOURCE)
    draws = DRAWS[name]
    run = model.sample(DATA, METHODS[name], draws=draws, seed=seed, progress=False)
    assert isinstance(run, CoupledRun)
    right(run, name)
    trips = run.chain_counts()["round trips"]
    assert trips.min() > 10
    beside = {text.get_text() for text in plots.beta_trace(run).texts}
    assert {f"{count} trips" for count in trips} <= beside
    assert run.is_reliable, run.diagnostics
    assert np.allclose(run.running_log_z([draws])[:, 0], run.bare_evidence.chain_log_z)
    longer = run.extend(300, progress=False)
    assert (longer.draws, longer.z.shape[1]) == (draws + 300, draws + 300)
    right(longer, name)
    longer.save(tmp_path / "run")
    assert CoupledRun.load(tmp_path / "run").evidence == longer.evidence


def test_two_modes_by_the_extended_hamiltonian() -> None:
    """A Gaussian over both modes is wide where no power of the density has draws."""
    source = """parameters { vector[2] x; } model {
    target += log_mix(0.3, normal_lpdf(x | 6, 1), normal_lpdf(x | -6, 1)); }"""
    model, method = stanct.temper(source), stanct.ExtendedHamiltonian()
    runs = [model.sample(None, method, draws=2400, seed=s, progress=False) for s in (1, 2, 3)]
    found = [run.bare_evidence for run in runs]
    assert np.mean([one.std_error for one in found]) < 0.2
    # Few draws cross, so that an error may be too small; the tail of the weights tells.
    for run, one in zip(runs, found, strict=True):
        assert abs(one.log_z) < 4 * one.std_error or "pareto_k" in run.warnings


@LONG
@pytest.mark.cmdstan
@pytest.mark.parametrize("name", METHODS)
def test_cmdstan_samples_them_too(name: str, cmdstan_home: Home, seed: int) -> None:
    engine = CmdStan(cmdstan_home)
    run = stanct.temper(SOURCE).sample(
        DATA, METHODS[name], engine=engine, draws=1500, seed=seed, progress=False
    )
    assert run.engine == "cmdstan"
    right(run, name)


def test_a_prior_that_is_not_normalised(seed: int) -> None:
    """log Z is that of the program as written, with half of a normal prior."""
    source = "parameters { real<lower=0> s; } model { s ~ normal(0, 1); 2.5 ~ normal(s, 0.5); }"
    source = source.replace("2.5 ~", "y ~").replace("parameters", "data { real y; } parameters", 1)
    grid = np.linspace(0, 9, 4001)
    log_joint = -0.5 * (grid**2 + ((2.5 - grid) / 0.5) ** 2) - np.log(2 * np.pi * 0.5)
    exact = np.log(np.trapezoid(np.exp(log_joint), grid))
    method = stanct.Joint(path="prior")
    run = stanct.temper(source).sample({"y": 2.5}, method, draws=1500, seed=seed, progress=False)
    assert run.log_prior_mass == pytest.approx(np.log(0.5), abs=1e-6)
    error = run.bare_evidence.std_error
    assert error < 0.1
    assert run.bare_evidence.log_z == pytest.approx(exact, abs=4 * error)


def test_a_prior_whose_mass_no_statement_tells(seed: int) -> None:
    """A run on the prior alone tells it; its error counts, and so does that of an import."""
    source = "data { real y; } parameters { real s; } model { target += -s^2; y ~ normal(s, 1); }"
    run = stanct.temper(source).sample(
        {"y": 2.5}, stanct.Joint(path="prior"), draws=1000, seed=seed, progress=False
    )
    # The prior is exp(-s²), whose integral is √π, and the joint density is a Gaussian in s.
    exact = np.log(np.pi) / 2 + stats.norm.logpdf(2.5, 0, np.sqrt(1.5))
    mass_error = run.provenance["log_prior_mass_error"]
    assert abs(run.log_prior_mass - np.log(np.pi) / 2) < 4 * mass_error + 1e-6
    evidence = run.bare_evidence
    assert "prior_mass" not in run.warnings
    assert abs(evidence.log_z - exact) < 4 * evidence.std_error and evidence.std_error < 0.1
    path_error = run.estimator.evidence(run.method).std_error
    assert evidence.std_error == pytest.approx(np.hypot(path_error, mass_error))
    assert np.mean(evidence.chain_log_z) == pytest.approx(evidence.log_z, abs=0.1)


def test_what_cannot_be_is_refused() -> None:
    flat = "data { real y; } parameters { real m; } model { y ~ normal(m, 1); }"
    with pytest.raises(ProgramError, match="no prior"):
        stanct.temper(flat).sample({"y": 1.0}, stanct.Joint(path="prior"))
    with pytest.raises(SamplingError, match="bias is learned"):
        stanct.temper(SOURCE).sample(DATA, stanct.Joint(path="prior"), thin=5)
    with pytest.raises(SamplingError, match="Did you mean path='prior'"):
        stanct.Joint(path="prio")  # pyright: ignore


def test_the_bias_of_a_gaussian_is_exact() -> None:
    """c(β) of a standard normal, and of its draws."""
    bias = CoupledBias.of_gaussian(2, 0.0, 0.3, 0.2)
    beta = bias.beta[-1]
    log_c = (1 - beta) * np.log(2 * np.pi) - np.log(beta)
    assert beta == pytest.approx(0.2)
    assert bias.value[-1] == pytest.approx(log_c)
    rng = np.random.default_rng(1)
    t = rng.random(40_000)
    z = rng.standard_normal((t.size, 2)) / np.sqrt(bias.beta_at(t))[:, None]
    log_p = -0.5 * np.square(z).sum(axis=1) - np.log(2 * np.pi)
    np.testing.assert_allclose(bias.refined(log_p).value, bias.value, atol=0.03)


@pytest.mark.parametrize("fixed", [[0.3, 0.8], [0.0, 1.0]])
def test_copies_average_to_log_z(fixed: list[float]) -> None:
    """`log_above` and `log_below` of two copies, integrated over the density of both."""
    source = "parameters { real x; } model { target += -0.5 * square((x - 1) / 0.7) + 2; }"
    log_z = np.log(0.7 * np.sqrt(2 * np.pi)) + 2
    data = {
        "ct_D": 1, "ct_base_mean": [0.2], "ct_is_dense": 0, "ct_base_scale": [[1.1]], "ct_N": 2,
        "ct_beta": fixed, "ct_bias": [1.5 * beta for beta in fixed],
    }  # fmt: skip
    model = load(generate(Program.from_source(source), "pseudo_extended", fixed=True), data)
    names = model.param_names(include_tp=True, include_gq=True)
    places = [names.index("ct_log_above"), names.index("ct_log_below")]
    grid = np.linspace(-7, 7, 71)
    points = np.array([[a, b] for a in grid for b in grid])
    log_density = np.array([model.log_density(point) for point in points])
    rng = model.new_rng(1)
    saved = np.array([
        model.param_constrain(point, include_tp=True, include_gq=True, rng=rng)[places]
        for point in points
    ])  # fmt: skip
    above, below = special.logsumexp(log_density[:, None] + saved, axis=0)
    assert above - below == pytest.approx(log_z, abs=1e-4)
