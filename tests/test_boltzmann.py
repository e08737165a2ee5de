"""Boltzmann machines against brute force, and against the five published systems of [GS]."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from boltzmann_machine import BoltzmannMachine, Moments
from conftest import ROOT

import stanct
from stanct.bases.local import mixture_of, moment_match
from stanct.common.arrays import log_sum_exp
from stanct.common.errors import StanctError
from stanct.path.gaussian import LOG_2PI

PROGRAMS = ROOT / "stan_models" / "boltzmann"
PUBLISHED = ROOT / "examples" / "boltzmann" / "published.npz"


@pytest.fixture
def machine(rng: np.random.Generator) -> BoltzmannMachine:
    """Nine units, with biases that make nothing symmetric."""
    return BoltzmannMachine.random(9, rng, scale=2.0, bias_sd=0.4)


def states(units: int) -> np.ndarray:
    return np.array(list(itertools.product([-1.0, 1.0], repeat=units)))


def by_brute_force(machine: BoltzmannMachine) -> tuple[Moments, np.ndarray]:
    """Moments, and the probability of every state."""
    s = states(machine.units)
    energy = 0.5 * np.einsum("ni,ij,nj->n", s, machine.weights, s) + s @ machine.biases
    log_z = float(log_sum_exp(energy))
    p = np.exp(energy - log_z)
    mean = p @ s
    return Moments(log_z, mean, (s - mean).T @ ((s - mean) * p[:, None])), p


@pytest.mark.parametrize("units", [2, 5, 13])
def test_exact_moments_are_those_of_brute_force(units: int, rng: np.random.Generator) -> None:
    machine = BoltzmannMachine.random(units, rng, scale=2.0, bias_sd=0.4)
    exact, (truth, _) = machine.exact(), by_brute_force(machine)
    assert exact.log_z == pytest.approx(truth.log_z, abs=1e-10)
    np.testing.assert_allclose(exact.mean, truth.mean, atol=1e-10)
    np.testing.assert_allclose(exact.covariance, truth.covariance, atol=1e-10)


def test_relaxation_is_the_mixture_of_its_states(
    machine: BoltzmannMachine, rng: np.random.Generator
) -> None:
    """−φ(x) = log Z + log Σ_s P(s) N(x; Qᵀ s, I) at every x; its mean and covariance follow."""
    truth, p = by_brute_force(machine)
    places = states(machine.units) @ machine.factor
    relaxed = machine.relaxed(truth)
    for x in rng.normal(scale=3, size=(20, machine.dimension)):
        squares = np.square(x - places).sum(axis=1)
        mixture = log_sum_exp(np.log(p) - 0.5 * squares) - 0.5 * machine.dimension * LOG_2PI
        value, _ = machine.log_density_gradient(x)
        assert value == pytest.approx(relaxed.log_z + mixture, abs=1e-9)
    np.testing.assert_allclose(relaxed.mean, p @ places, atol=1e-10)
    centred = places - relaxed.mean
    covariance = (centred * p[:, None]).T @ centred + np.eye(machine.dimension)
    np.testing.assert_allclose(relaxed.covariance, covariance, atol=1e-9)


def test_the_diagonal_is_optimal(rng: np.random.Generator) -> None:
    """No feasible neighbour has a smaller top eigenvalue; the problem is convex."""
    machine = BoltzmannMachine.random(12, rng)
    lower = machine.weights + np.diag(machine.diagonal)
    bottom, top = np.linalg.eigvalsh(lower)[[0, -1]]
    assert bottom > -1e-9
    for size in (1e-3, 0.1, 1.0):
        for step in rng.normal(scale=size, size=(100, 12)):
            values = np.linalg.eigvalsh(lower + np.diag(step))
            assert values[-1] - min(values[0], 0.0) >= top - 1e-7
    pair = BoltzmannMachine(np.array([[0.0, -0.7], [-0.7, 0.0]]), np.zeros(2))
    np.testing.assert_allclose(pair.diagonal, 0.7, atol=1e-7)
    assert pair.dimension == 1


def test_the_diagonal_is_that_of_the_semi_definite_programme(rng: np.random.Generator) -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    machine = BoltzmannMachine.random(10, rng)
    diagonal = cvxpy.Variable(machine.units)
    lower = machine.weights + cvxpy.diag(diagonal)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.lambda_max(lower)), [lower >> 0])
    problem.solve()
    top = np.linalg.eigvalsh(machine.weights + np.diag(machine.diagonal))[-1]
    assert top == pytest.approx(problem.value, rel=1e-4)


def test_random_machines_have_the_spectrum_of_the_paper() -> None:
    """Before their diagonal is removed, eigenvalues are s₁ tanh(s₂ η), between −s₁ and s₁."""
    machines = [BoltzmannMachine.random(30, np.random.default_rng(k)) for k in range(20)]
    # Removing the diagonal keeps the sum of squares off it, and the rest is small.
    squares = np.mean([np.square(machine.weights).sum() for machine in machines]) / 30
    eta = np.random.default_rng(0).standard_normal(100_000)
    assert squares == pytest.approx(36 * np.mean(np.tanh(2 * eta) ** 2), rel=0.1)
    assert np.std([machine.biases for machine in machines]) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("form", ["boltzmann", "boltzmann_glm"])
def test_programs_have_the_density_of_the_relaxation(
    form: str, machine: BoltzmannMachine, rng: np.random.Generator
) -> None:
    density = stanct.temper(PROGRAMS / f"{form}.stan").density(machine.stan_data())
    for x in rng.normal(scale=3, size=(20, machine.dimension)):
        value, gradient = density.log_density_gradient(x)
        found, slope = machine.log_density_gradient(x)
        np.testing.assert_allclose([value, *gradient], [found, *slope], rtol=1e-8, atol=1e-8)


def test_shipped_data_have_the_truth_beside_them() -> None:
    data = json.loads((PROGRAMS / "boltzmann.data.json").read_text(encoding="utf-8"))
    truth = json.loads((PROGRAMS / "truth.json").read_text(encoding="utf-8"))
    q, b = np.array(data["Q"]), np.array(data["b"])
    places = states(data["B"]) @ q
    energy = 0.5 * np.square(places).sum(axis=1) + states(data["B"]) @ b
    log_z = log_sum_exp(energy) + 0.5 * data["D"] * LOG_2PI - data["B"] * np.log(2)
    assert log_z == pytest.approx(truth["log_z"], abs=1e-8)
    p = np.exp(energy - log_sum_exp(energy))
    np.testing.assert_allclose(p @ places, truth["mean"]["x"], atol=1e-8)
    sd = np.sqrt(p @ np.square(places - p @ places) + 1)
    np.testing.assert_allclose(sd, truth["sd"]["x"], atol=1e-8)


def test_mean_field_fits_bound_the_evidence_from_below(
    machine: BoltzmannMachine, rng: np.random.Generator
) -> None:
    """Each fit's ℓ is a lower bound; with weak weights the one fit is nearly exact."""
    truth = machine.relaxed(machine.exact())
    fits = machine.mean_field_fits(rng)
    assert all(fit.log_evidence < truth.log_z for fit in fits)
    assert abs(moment_match(fits)[1] - truth.log_z) < 2
    weak = BoltzmannMachine(0.05 * machine.weights, machine.biases)
    truth, fitted = weak.relaxed(weak.exact()), weak.mean_field(rng)
    assert len(weak.mean_field_fits(rng)) == 1
    assert fitted.log_zeta == pytest.approx(truth.log_z, abs=0.02)
    np.testing.assert_allclose(fitted.base.mean, truth.mean, atol=0.02)
    np.testing.assert_allclose(fitted.base.covariance, truth.covariance, atol=0.05)


def test_mean_field_fits_make_a_mixture(
    machine: BoltzmannMachine, rng: np.random.Generator
) -> None:
    fits = machine.mean_field_fits(rng)
    (mixture, of_the_mixture), (base, log_zeta) = mixture_of(fits), moment_match(fits)
    assert mixture.weights.size == len(fits) > 1
    assert of_the_mixture == pytest.approx(log_zeta)
    np.testing.assert_allclose(mixture.mean, base.mean, atol=1e-9)
    np.testing.assert_allclose(mixture.covariance, base.covariance, atol=1e-9)


def test_published_systems() -> None:
    """Spectrum of Cov[x], |E[x]| and Tr D as published, up to their loosely solved D."""
    published = np.load(PUBLISHED)
    for k in range(5):
        machine = BoltzmannMachine(published["weights"][k], published["biases"][k])
        assert machine.units == 30
        signs = Moments(*(published[name][k] for name in ("log_z", "mean", "covariance")))
        relaxed = machine.relaxed(signs)
        variances = np.sort(np.linalg.eigvalsh(relaxed.covariance))[::-1][:20]
        np.testing.assert_allclose(variances, published["published_variances"][k], rtol=0.02)
        assert np.linalg.norm(relaxed.mean) == pytest.approx(
            published["published_mean_norm"][k], rel=2e-3
        )
        dimension = published["published_dimension"][k]
        trace = 2 * (published["published_log_z"][k] - signs.log_z + 30 * np.log(2))
        trace -= dimension * LOG_2PI
        assert machine.diagonal.sum() == pytest.approx(trace, rel=2e-3)


@pytest.mark.parametrize(
    ("weights", "biases", "words"),
    [
        (np.zeros((3, 2)), np.zeros(3), "are no Boltzmann machine"),
        (np.zeros((1, 1)), np.zeros(1), "are no Boltzmann machine"),
        (np.full((2, 2), np.nan), np.zeros(2), "must be finite"),
        (np.eye(2), np.zeros(2), "zero diagonal"),
        (np.triu(np.ones((2, 2)), 1), np.zeros(2), "symmetric"),
    ],
)
def test_refused_machines(weights: np.ndarray, biases: np.ndarray, words: str) -> None:
    with pytest.raises(StanctError, match=words):
        BoltzmannMachine(weights, biases)


def test_sums_that_would_take_days_are_refused() -> None:
    with pytest.raises(StanctError, match="would take days"):
        BoltzmannMachine(np.zeros((40, 40)), np.zeros(40)).exact()
    with pytest.raises(StanctError, match="two or more units"):
        BoltzmannMachine.random(1, np.random.default_rng(0))
