"""Priors whose mass their text does not tell: a run on the prior alone measures it."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from boltzmann_machine import BoltzmannMachine
from conftest import ROOT, SEED

import stanct
from stanct.runs.screen import screen

HEAD = "data { int n; vector[n] y; } parameters { real mu; real<lower=0> s; real t; } model { "
LIKELIHOOD = " y ~ normal(mu + t, s); }"
DATA = {"n": 4, "y": [1.0, 2.0, 3.0, 2.5]}
THREE_WIDE = math.log(3 * math.sqrt(2 * math.pi))
PROPER = "mu ~ normal(0, 3); "
KERNEL = "target += -abs(t) / 2; s ~ exponential(1);"


@cache
def run_of(prior: str, **options: Any) -> stanct.EvidenceRun:
    model = stanct.temper(HEAD + prior + LIKELIHOOD)
    run = model.sample(DATA, seed=SEED, progress=False, **options)
    assert isinstance(run, stanct.EvidenceRun)
    return run


def check_of(run: stanct.Run, name: str) -> Any:
    return next(one for one in run.diagnostics if one.name == name)


@pytest.mark.parametrize(
    ("prior", "mass"),
    [
        # An inverse gamma density, whole, and a log normal one of log s with its Jacobian.
        ("target += -3 * log(s) - 1 / s; t ~ normal(0, 1);", 0.0),
        ("log(s) ~ normal(0, 1); target += -log(s); t ~ normal(0, 1);", 0.0),
        # Kernels of a normal, a Laplace and a half Cauchy density.
        ("target += -0.5 * square(t / 3); s ~ exponential(1);", THREE_WIDE),
        ("target += -abs(t) / 2; s ~ exponential(1);", math.log(4)),
        ("target += -log1p(square(s)); t ~ normal(0, 1);", math.log(math.pi / 2)),
        # A density of exp(t), whose Jacobian is there, and half of whose mass is not.
        ("target += normal_lpdf(exp(t) | 0, 1) + t; s ~ exponential(1);", math.log(0.5)),
        # A half prior, whose constant is known, beside a kernel.
        ("s ~ normal(0, 1); target += -0.5 * square(t / 3);",
         THREE_WIDE - math.log(2)),
    ],
)  # fmt: skip
def test_a_prior_written_by_hand_is_measured(prior: str, mass: float) -> None:
    run = run_of(PROPER + prior, method="independence", draws=200)
    found, error = run.provenance["prior_alone"]
    assert abs(found - mass) < 4 * error + 1e-6 and error < 0.05
    assert run.verdict.unchecked == ()
    check = check_of(run, "normalised")
    assert check.passed == (mass == 0) and check.value == pytest.approx(abs(found) * (mass != 0))
    assert f"{'not 0' if mass else 'as a normalised one'}" in check.message
    if mass:
        assert f"Add {-found:.4f} to log Z" in check.remedy


@pytest.mark.parametrize("prior", ["target += -log(s);", "target += -log(s + square(t));"])
def test_an_improper_prior_written_by_hand_is_found(prior: str) -> None:
    run = run_of(PROPER + "t ~ normal(0, 1); " + prior, draws=200)
    check = check_of(run, "proper_prior")
    assert not check.passed and "along s" in check.message and "`s` a proper prior" in check.remedy
    assert "no: proper_prior failed" in str(run.verdict)
    assert "no evidence: the prior is improper" in "\n".join(screen(run))
    if "square" in prior:  # one of them is enough for what two such runs say
        return
    other = run_of(PROPER + "t ~ normal(0, 2); " + prior, draws=200)
    with pytest.raises(stanct.StanctError, match=r"no proper prior: .*along s"):
        stanct.compare(run, other)
    allowed = stanct.compare(run, other, names=["a", "b"], improper="allow")
    assert math.isfinite(allowed.bayes_factor("a", "b").log)


WALK = """
data { int n; vector[n] y; } parameters { vector[n] x; }
model {
  target += -0.5 * dot_self(x[2:n] - x[1:(n - 1)]) - 0.5 * square(x[1]);MARK
  y ~ normal(x, 1);
}
"""


def test_a_term_that_may_be_either_is_measured_where_it_is_marked() -> None:
    """Data in an index alone do not tell whether a term is prior or likelihood."""
    data = {"n": 20, "y": [0.1 * k for k in range(20)]}
    plain, marked = (
        stanct.temper(WALK.replace("MARK", mark)).sample(data, seed=SEED, progress=False)
        for mark in ("", "  // stanct: prior")
    )
    assert "prior_alone" not in plain.provenance and plain.verdict.unchecked == (4,)
    assert marked.provenance["prior_alone"][0] == pytest.approx(10 * math.log(2 * math.pi))
    assert plain.warnings == () and marked.warnings == ("normalised",)


def test_what_the_priors_of_two_programs_lack_cancels_only_where_it_is_the_same() -> None:
    whole = "target += double_exponential_lpdf(t | 0, 2); s ~ exponential(1);"
    alike = [run_of(PROPER + KERNEL), run_of("mu ~ normal(0, 1); " + KERNEL)]
    said = "What log Z lacks is the same in all models"
    assert any(said in note for note in stanct.compare(*alike, names=["a", "b"]).notes)
    other = stanct.compare(alike[0], run_of(PROPER + whole), names=["a", "b"])
    assert not any(said in note for note in other.notes)
    assert any("A run on the prior alone" in note for note in other.notes)


def test_what_is_known_is_not_measured() -> None:
    """Sums of densities need no run, and a likelihood by hand is none of the prior's."""
    plain = run_of(PROPER + "s ~ exponential(1); t ~ normal(0, 1);", method="independence")
    assert "prior_alone" not in plain.provenance
    source = HEAD + PROPER + "s ~ exponential(1); t ~ normal(0, 1); target += -0.5 * "
    source += "dot_self(y - mu - t); }"
    by_hand = stanct.temper(source).sample(DATA, seed=SEED, draws=200, progress=False)
    assert "prior_alone" not in by_hand.provenance and by_hand.verdict.unchecked == (1,)
    machine = BoltzmannMachine.random(3, np.random.default_rng(1))
    program = stanct.temper(ROOT / "stan_models/boltzmann/boltzmann.stan")
    physics = program.sample(machine.stan_data(), seed=SEED, progress=False)
    assert "prior_alone" not in physics.provenance and not physics.warnings


@pytest.mark.parametrize("method", ["parallel_tempering", "joint", "power_posterior"])
def test_log_z_stays_that_of_the_program_as_it_stands(method: str) -> None:
    """The measured mass is told, and not added, by whatever path log Z came."""
    named, exact = run_of(PROPER + KERNEL, method=method, draws=500), run_of(PROPER + KERNEL)
    error = math.hypot(named.evidence.std_error, exact.evidence.std_error)
    assert abs(named.evidence.log_z - exact.evidence.log_z) < 4 * error < 0.5
    assert "normalised" in named.warnings


def test_a_bridge_measures_the_prior() -> None:
    frame = run_of(PROPER + KERNEL).draws_pd()
    fit = {name: frame[name].to_numpy() for name in ("mu", "s", "t")}
    run = stanct.bridge(stanct.temper(HEAD + PROPER + KERNEL + LIKELIHOOD), DATA, fit, seed=SEED)
    found, error = run.provenance["prior_alone"]
    assert abs(found - math.log(4)) < 4 * error < 0.2
