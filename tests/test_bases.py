"""Low-rank and mixture bases: their algebra, their compiled form, fits from points, samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analytic import bimodal, gaussian
from sampled import sampled
from scipy.stats import kstest, multivariate_normal

import stanct
from stanct.errors import SamplingError
from stanct.kernels import loops as kernels
from stanct.kernels import records as workspace
from stanct.path.gaussian import GaussianBase, LocalFit
from stanct.path.mixture import AnyBase, LowRankBase, MixtureBase
from stanct.targets.function_target import FunctionDensity

Array = np.ndarray


def low_rank(dimension: int, rank: int, rng: np.random.Generator) -> LowRankBase:
    vectors = np.linalg.qr(rng.standard_normal((dimension, rank)))[0]
    diagonal, stretch = np.exp(0.3 * rng.standard_normal(dimension)), 1 + rng.random(rank) * 3
    return LowRankBase(rng.standard_normal(dimension), diagonal, vectors, stretch)


def mixture(dimension: int, rng: np.random.Generator) -> MixtureBase:
    parts = []
    for _ in range(3):
        root = np.tril(0.3 * rng.standard_normal((dimension, dimension)))
        np.fill_diagonal(root, 0.5 + rng.random(dimension))
        parts.append(GaussianBase(2 * rng.standard_normal(dimension), root))
    return MixtureBase.of([2.0, 1.0, 3.0], parts)


def test_low_rank_is_the_dense_gaussian(rng: np.random.Generator) -> None:
    base = low_rank(7, 2, rng)
    dense = base.dense()
    x = base.mean + rng.standard_normal((4, 5, 7))
    assert base.unwhiten(base.whiten(x)) == pytest.approx(x)
    assert base.log_density(x) == pytest.approx(dense.log_density(x))
    assert base.log_det_scale == pytest.approx(0.5 * np.linalg.slogdet(dense.covariance)[1])
    assert base.delta(base.whiten(x), np.ones((4, 5))) == pytest.approx(base.log_density(x) - 1)


def test_mixture_density_moments_and_draws(rng: np.random.Generator) -> None:
    one, two = GaussianBase(np.array([-3.0, 1]), np.eye(2)), GaussianBase(
        np.array([2.0, 0]), np.array([[0.5, 0], [0.4, 1.5]])
    )  # fmt: skip
    base = MixtureBase.of([1, 3], [one, two])
    x = 2 * rng.standard_normal((6, 5, 2))
    truth = np.log(
        0.25 * multivariate_normal(one.mean, one.covariance).pdf(x)  # pyright: ignore[reportArgumentType]
        + 0.75 * multivariate_normal(two.mean, two.covariance).pdf(x)  # pyright: ignore[reportArgumentType]
    )
    assert base.log_density(x) == pytest.approx(truth)
    assert base.delta(base.whiten(x), np.ones((6, 5))) == pytest.approx(truth - 1)
    draws = base.draw(rng, 200_000)
    assert draws.mean(axis=0) == pytest.approx(np.zeros(2), abs=0.02)  # whitened by its moments
    assert np.cov(draws.T) == pytest.approx(np.eye(2), abs=0.02)
    assert np.mean(base.unwhiten(draws)[:, 0] < -1) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("dimension", [1, 2, 5, 9])
@pytest.mark.parametrize("kind", [low_rank, mixture])
def test_compiled_form_agrees(kind: Any, dimension: int, rng: np.random.Generator) -> None:
    base: AnyBase = kind(dimension, 1, rng) if kind is low_rank else kind(dimension, rng)
    case = gaussian(dimension)
    density = FunctionDensity(case.function, dimension)
    problem, scratch = workspace.make_problem(density, base), workspace.make_scratch(dimension)
    z, small = rng.standard_normal(dimension), 1e-6
    state = kernels.make_state(problem, z)
    log_density = case.function(base.unwhiten(z))[0]
    assert state.value[0] == pytest.approx(log_density + base.log_det_scale, rel=1e-12)
    found = kernels.delta_of(problem, state.value[0], z, scratch)
    assert found == pytest.approx(float(base.delta(z[None], np.array([log_density]))[0]), rel=1e-10)
    log_q = kernels.base_terms(problem, z, scratch)
    assert log_q == pytest.approx(float(base.log_density(base.unwhiten(z))) + base.log_det_scale)
    slope = scratch.base_gradient.copy()
    for k, e in enumerate(np.eye(dimension)):
        ends = [kernels.base_terms(problem, z + s * e, scratch) for s in (small, -small)]
        assert slope[k] == pytest.approx((ends[0] - ends[1]) / (2 * small), rel=1e-5, abs=1e-6)
        ends = [case.function(base.unwhiten(z + s * e))[0] for s in (small, -small)]
        rise = (ends[0] - ends[1]) / (2 * small)
        assert state.gradient[k] == pytest.approx(rise, rel=1e-5, abs=1e-6)


def test_compiled_draws_follow_the_mixture(rng: np.random.Generator) -> None:
    base, case = mixture(2, rng), gaussian(2)
    density = FunctionDensity(case.function, 2)
    problem, scratch = workspace.make_problem(density, base), workspace.make_scratch(2)
    state = kernels.make_state(problem, np.zeros(2))
    draws = np.empty((3000, 2))
    for n in range(3000):
        kernels.refresh(problem, state, rng, scratch)
        draws[n] = state.z
    expected = base.draw(rng, 30_000)
    for direction in (np.array([1.0, 0]), np.array([0.0, 1]), np.array([0.6, -0.8])):
        assert kstest(draws @ direction, expected @ direction).pvalue > 1e-3


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_transitions_leave_the_tempered_mixture_invariant(beta: float, rng) -> None:
    """Target and base are the same mixture, so that π_β is too at every β, and draws are exact."""
    base = mixture(2, rng)

    def function(x: Array) -> tuple[float, Array]:
        def log_q(at: Array) -> float:
            return float(base.log_density(at[None])[0])

        ends = [(log_q(x + e), log_q(x - e)) for e in 1e-5 * np.eye(2)]
        return log_q(x), np.array([up - down for up, down in ends]) / 2e-5

    density = FunctionDensity(function, 2)
    problem, scratch = workspace.make_problem(density, base), workspace.make_scratch(2)
    points = base.draw(rng, 400)
    for n in range(400):
        state = kernels.make_state(problem, points[n])
        for _ in range(3):
            kernels.transition(problem, state, beta, 0.5, 3, rng, scratch)
        points[n] = state.z
    expected = base.draw(rng, 30_000)
    for direction in np.eye(2):
        assert kstest(points @ direction, expected @ direction).pvalue > 1e-3


SETTINGS = {"threads": 1, "progress": False}


@pytest.mark.parametrize("method", ["ais", "parallel_tempering", "simulated_tempering"])
def test_samplers_draw_from_a_mixture(method: str, seed: int, tmp_path) -> None:
    case = bimodal()
    fits = [
        LocalFit(np.array([-8.2]), np.array([[1.3]]), np.log(0.3), np.zeros((0, 1))),
        LocalFit(np.array([8.3]), np.array([[3.0]]), np.log(0.7), np.zeros((0, 1))),
    ]
    base = MixtureBase.defensive(fits)
    done = sampled(method, case.target, base=base, seed=seed, **SETTINGS)
    assert abs(done.evidence.log_z) < 4 * done.evidence.std_error < 0.16
    weight = done.expect(lambda v: (v["x"][..., 0] < 0).astype(float))
    assert abs(weight.value - 0.6) < 4 * weight.std_error < 0.2
    done.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again.base, MixtureBase) and again.evidence == done.evidence
    assert np.array_equal(again.base.roots, base.roots)


@pytest.mark.parametrize("method", ["ais", "gibbs", "parallel_tempering"])
def test_samplers_move_in_a_low_rank_base(method: str, seed: int, rng, tmp_path) -> None:
    case = gaussian(12)
    vectors = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    sd = np.sqrt(case.variance)
    base = LowRankBase(case.mean + 0.3 * sd, 1.2 * sd, vectors, np.array([1.5, 0.8]))
    done = sampled(method, case.target, base=base, seed=seed, **SETTINGS)
    assert abs(done.evidence.log_z - case.log_z) < 4 * done.evidence.std_error < 0.4
    done.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again.base, LowRankBase) and again.evidence == done.evidence


def test_low_rank_from_points_keeps_what_stands_out(rng: np.random.Generator) -> None:
    dimension, count = 200, 400
    factor = np.linalg.qr(rng.standard_normal((dimension, 2)))[0]
    truth = np.eye(dimension) + factor @ np.diag([30.0, 15.0]) @ factor.T
    sd = np.linspace(0.1, 10, dimension)
    points = rng.multivariate_normal(np.zeros(dimension), truth, count) * sd
    base = LowRankBase.from_points(points)
    assert base.stretch.size == 2
    assert np.diag(base.covariance) == pytest.approx(points.var(axis=0, ddof=1))
    exact = truth * np.outer(sd, sd)

    # Kullback–Leibler divergence of the truth from the fit, against the fit by variances alone.
    def divergence(covariance: Array) -> float:
        ratio = np.linalg.solve(covariance, exact)
        return 0.5 * float(np.trace(ratio) - dimension - np.linalg.slogdet(ratio)[1])

    assert divergence(base.covariance) < 0.6 * divergence(np.diag(np.diag(base.covariance)))
    independent = LowRankBase.from_points(rng.standard_normal((count, dimension)))
    assert independent.stretch.size <= 1


def test_weighted_points(rng: np.random.Generator) -> None:
    points = rng.standard_normal((100_000, 2))
    base = LowRankBase.from_points(points, weights=np.exp(points[:, 0]))
    assert base.mean == pytest.approx([1, 0], abs=0.05)
    assert np.diag(base.covariance) == pytest.approx([1, 1], abs=0.07)


def test_what_bases_refuse(rng: np.random.Generator) -> None:
    case, base = bimodal(), mixture(1, rng)
    with pytest.raises(SamplingError, match="would not cross"):
        sampled("gibbs", case.target, base=base, **SETTINGS)
    with pytest.raises(SamplingError, match="not refitted"):
        sampled("parallel_tempering", case.target, base=base, bootstrap=1, **SETTINGS)
    with pytest.raises(SamplingError, match="one weight for each"):
        MixtureBase.of([1.0], [])
    with pytest.raises(SamplingError, match="positive and finite"):
        MixtureBase.of([0.0], [case.base])
    with pytest.raises(SamplingError, match="share"):
        MixtureBase.defensive([], share=1.0)
    good = low_rank(3, 1, rng)
    with pytest.raises(SamplingError, match="orthonormal"):
        LowRankBase(good.mean, good.diagonal, 2 * good.vectors, good.stretch)
    with pytest.raises(SamplingError, match="positive"):
        LowRankBase(good.mean, -good.diagonal, good.vectors, good.stretch)
    with pytest.raises(SamplingError, match="needs a diagonal"):
        LowRankBase(good.mean, good.diagonal[:2], good.vectors, good.stretch)
