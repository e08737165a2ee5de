"""Low-rank and mixture bases: their algebra, their compiled form, fits from points, samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analytic import bimodal, gaussian
from conftest import LONG, target_of
from runs import line_run
from sampled import sampled
from scipy.stats import kstest, multivariate_normal
from targets import LINE, TWO_MODES

import stanct
from stanct import kernels
from stanct.bases.fits import MIXTURE_METHODS, fit_base
from stanct.bases.local import LocalFit, mixture_of
from stanct.bases.starts import _refuse_flat  # pyright: ignore[reportPrivateUsage]
from stanct.cli.main import main
from stanct.common.errors import SamplingError
from stanct.common.names import FITS, GAUSSIAN_BASES
from stanct.engines.embedded import Nuts
from stanct.path.base import Base, base_from_arrays
from stanct.path.gaussian import GaussianBase
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.samplers import METHODS
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
    columns = base.unwhiten(np.eye(7)) - base.mean
    assert base.covariance == pytest.approx(columns.T @ columns)
    assert base.spread == pytest.approx(np.sqrt(np.diag(columns.T @ columns)))
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
    base: Base = kind(dimension, 1, rng) if kind is low_rank else kind(dimension, rng)
    case = gaussian(dimension)
    density = FunctionDensity(case.function, dimension)
    problem, scratch = kernels.make_problem(density, base), kernels.make_scratch(dimension)
    z, small = rng.standard_normal(dimension), 1e-6
    state = kernels.make_state(problem, z)
    log_density = case.function(base.unwhiten(z))[0]
    assert state.value[0] == pytest.approx(log_density + base.log_det_scale, rel=1e-12)
    found = kernels.delta_of(problem, state.value[0], z, scratch)
    assert found == pytest.approx(float(base.delta(z[None], np.array([log_density]))[0]), rel=1e-10)
    log_q = kernels.delta_of(problem, 0.0, z, scratch)
    assert log_q == pytest.approx(float(base.log_density(base.unwhiten(z))) + base.log_det_scale)
    slope = scratch.base_gradient.copy()
    for k, e in enumerate(np.eye(dimension)):
        ends = [kernels.delta_of(problem, 0.0, z + s * e, scratch) for s in (small, -small)]
        assert slope[k] == pytest.approx((ends[0] - ends[1]) / (2 * small), rel=1e-5, abs=1e-6)
        ends = [case.function(base.unwhiten(z + s * e))[0] for s in (small, -small)]
        rise = (ends[0] - ends[1]) / (2 * small)
        assert state.gradient[k] == pytest.approx(rise, rel=1e-5, abs=1e-6)


def test_compiled_draws_follow_the_mixture(rng: np.random.Generator) -> None:
    base, case = mixture(2, rng), gaussian(2)
    density = FunctionDensity(case.function, 2)
    problem, scratch = kernels.make_problem(density, base), kernels.make_scratch(2)
    state = kernels.make_state(problem, np.zeros(2))
    draws = np.empty((3000, 2))
    for n in range(3000):
        kernels.refresh(problem, state, rng, scratch)
        draws[n] = state.z
    expected = base.draw(rng, 30_000)
    for direction in (np.array([1.0, 0]), np.array([0.0, 1]), np.array([0.6, -0.8])):
        assert kstest(draws @ direction, expected @ direction).pvalue > 1e-3


@pytest.mark.parametrize("beta", [pytest.param(0.0, marks=LONG), 0.5])
def test_transitions_leave_the_tempered_mixture_invariant(beta: float, rng) -> None:
    """Target and base are the same mixture, so that π_β is too at every β, and draws are exact."""
    base = mixture(2, rng)

    def function(x: Array) -> tuple[float, Array]:
        log_q = base.log_density(x + 1e-5 * np.vstack([np.zeros(2), np.eye(2), -np.eye(2)]))
        return float(log_q[0]), (log_q[1:3] - log_q[3:]) / 2e-5

    density = FunctionDensity(function, 2)
    problem, scratch = kernels.make_problem(density, base), kernels.make_scratch(2)
    points = base.draw(rng, 400)
    for n in range(400):
        state = kernels.make_state(problem, points[n])
        for _ in range(3):
            kernels.transition(problem, state, kernels.Trajectory(beta, 0.5, 3), rng, scratch)
        points[n] = state.z
    expected = base.draw(rng, 30_000)
    for direction in np.eye(2):
        assert kstest(points @ direction, expected @ direction).pvalue > 1e-3


SETTINGS = {"threads": 1, "progress": False}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ais", {"draws": 160, "temperatures": 40}),
        ("parallel_tempering", {"draws": 1000}),
        ("simulated_tempering", {"draws": 1200}),
    ],
)
def test_samplers_draw_from_a_mixture(
    method: str, settings: dict[str, int], seed: int, tmp_path
) -> None:
    case = bimodal()
    parts = [(-8.2, 1.3), (8.3, 3.0), (0.0, 140.0)]
    base = MixtureBase.of(
        [0.24, 0.56, 0.2],
        [GaussianBase(np.array([mean]), np.array([[np.sqrt(v)]])) for mean, v in parts],
    )
    done = sampled(method, case.target, base=base, seed=seed, **settings, **SETTINGS)
    assert abs(done.evidence.log_z) < 4 * done.evidence.std_error < 0.16
    weight = done.expect(lambda v: (v["x"][..., 0] < 0).astype(float))
    assert abs(weight.value - 0.6) < 4 * weight.std_error < 0.2
    done.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again, stanct.EvidenceRun)
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
    assert isinstance(again, stanct.EvidenceRun)
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
        sampled("gibbs", case.target, base=base, atom=0.0, **SETTINGS)
    with pytest.raises(SamplingError, match="not refitted"):
        sampled("parallel_tempering", case.target, base=base, bootstrap=1, **SETTINGS)
    with pytest.raises(SamplingError, match="one weight for each"):
        MixtureBase.of([1.0], [])
    with pytest.raises(SamplingError, match="positive and finite"):
        MixtureBase.of([0.0], [case.base])
    good = low_rank(3, 1, rng)
    with pytest.raises(SamplingError, match="orthonormal"):
        LowRankBase(good.mean, good.diagonal, 2 * good.vectors, good.stretch)
    with pytest.raises(SamplingError, match="positive"):
        LowRankBase(good.mean, -good.diagonal, good.vectors, good.stretch)
    with pytest.raises(SamplingError, match="needs a diagonal"):
        LowRankBase(good.mean, good.diagonal[:2], good.vectors, good.stretch)


@pytest.mark.parametrize("kind", ["dense", "diagonal", "low rank", "mixture"])
def test_every_base_comes_back_from_its_arrays(kind: str, rng: np.random.Generator) -> None:
    bases: dict[str, Base] = {
        "dense": low_rank(3, 1, rng).dense(),
        "diagonal": GaussianBase(np.ones(3), np.diag([1.0, 2.0, 3.0])),
        "low rank": low_rank(3, 1, rng),
        "mixture": mixture(3, rng),
    }
    base = bases[kind]
    again = base_from_arrays(base.arrays())
    assert type(again) is type(base)
    x = rng.standard_normal((5, 3))
    assert np.array_equal(again.log_density(x), base.log_density(x))
    assert np.array_equal(again.whiten(x), base.whiten(x))
    assert base.is_gaussian == (base.components is None) == (kind != "mixture")
    lower, diagonal, vectors, stretch = base.scale_factors
    scale = lower if lower.size else diagonal[:, None] * (
        np.eye(3) + (vectors * (stretch - 1)) @ vectors.T
    )  # fmt: skip
    z = base.whiten(x)
    assert base.mean + z @ scale.T == pytest.approx(x)
    assert (lower.size == 0) == (kind in ("diagonal", "low rank"))


def test_refits_are_of_the_same_kind_and_shrink_to_their_floor(rng: np.random.Generator) -> None:
    z = 0.1 * rng.standard_normal((4000, 3)) + 1
    for base in (low_rank(3, 1, rng), low_rank(3, 1, rng).dense()):
        new = base.refitted(z, least_shrinkage=0.0)
        assert type(new) is type(base)
        assert new.mean == pytest.approx(base.unwhiten(np.ones(3)), abs=0.05)
        assert np.diag(new.covariance) == pytest.approx(0.01 * np.diag(base.covariance), rel=0.15)
    dense = low_rank(3, 1, rng).dense()
    kept = dense.refitted(z, least_shrinkage=0.2)
    assert kept.covariance == pytest.approx(0.2 * dense.covariance)
    weighted = dense.refitted(z, np.where(z[:, 0] > 1, 1.0, 0.0), least_shrinkage=0.2)
    assert weighted.mean[0] > kept.mean[0]
    several = mixture(3, rng)
    with pytest.raises(SamplingError, match="not refitted"):
        several.refitted(z, least_shrinkage=0.2)
    with pytest.raises(SamplingError, match="no dense"):
        several.dense()


def test_a_mode_of_no_weight_is_no_component() -> None:
    """exp(−800) is zero, and a mixture with such a weight would be refused."""
    fits = [
        LocalFit(np.array([mean]), np.eye(1), log_evidence, np.zeros((0, 1)))
        for mean, log_evidence in [(-3.0, 1.0), (3.0, 2.0), (40.0, -798.0)]
    ]
    base, log_zeta = mixture_of(fits)
    assert base.weights == pytest.approx(np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum())
    assert log_zeta == pytest.approx(np.logaddexp(1.0, 2.0))


def test_mixture_by_name_is_the_target_s_own_modes(seed: int) -> None:
    """Two isolated modes of weights .7 and .3, each a Gaussian, so that q is nearly the target."""
    target = target_of(TWO_MODES.source)
    run = sampled("simulated_tempering", target, base="mixture", seed=seed, draws=500, **SETTINGS)
    assert isinstance(run.base, MixtureBase)
    assert np.sort(run.base.weights) == pytest.approx([0.3, 0.7], abs=0.1)
    assert abs(run.evidence.log_z - TWO_MODES.log_z) < 4 * run.evidence.std_error < 0.04
    mean = run.expect("x")
    assert np.all(np.abs(mean.value - TWO_MODES.means["x"]) < 4 * mean.std_error)
    assert np.all(mean.std_error < 0.6)


def correlated(dimension: int) -> tuple[str, Array, Array]:
    """A program of exp(5) N(mean, covariance), two of whose directions stand out."""
    rng = np.random.default_rng(3)
    factor = np.linalg.qr(rng.standard_normal((dimension, 2)))[0]
    covariance = np.eye(dimension) + factor @ np.diag([24.0, 8.0]) @ factor.T
    sd, mean = np.linspace(0.3, 3, dimension), np.linspace(-1, 2, dimension)
    covariance *= np.outer(sd, sd)
    source = """
    data { int D; vector[D] m; matrix[D, D] L; }
    parameters { vector[D] x; }
    model { target += 5 + multi_normal_cholesky_lpdf(x | m, L); }
    """
    return source, mean, covariance


def test_low_rank_by_name(seed: int) -> None:
    source, mean, covariance = correlated(30)
    data = {"D": 30, "m": mean, "L": np.linalg.cholesky(covariance)}
    run = sampled(
        "gibbs", target_of(source, data), base="low_rank", seed=seed, draws=500, **SETTINGS
    )
    assert isinstance(run.base, LowRankBase) and run.base.stretch.size >= 2
    # Without the two directions the largest would be 7.8.
    ratios = np.linalg.eigvals(np.linalg.solve(run.base.covariance, covariance)).real
    assert ratios.min() > 0.15 and ratios.max() < 2.5
    assert abs(run.evidence.log_z - 5) < 4 * run.evidence.std_error < 0.2
    found = run.expect("x")
    assert np.all(np.abs(found.value - mean) < 4 * found.std_error)
    assert np.all(found.std_error < 0.15 * np.sqrt(np.diag(covariance)))


def test_low_rank_where_pilots_stay_apart(seed: int) -> None:
    """Scouts give the width, as they do for the dense base of the same seed."""
    target = target_of(TWO_MODES.source)
    low, full = (
        fit_base(target, name, chains=2, seed=np.random.SeedSequence(seed), nuts=Nuts())
        for name in ("low_rank", "pilot")
    )
    assert low.separated and full.separated and low.log_zeta == full.log_zeta
    assert isinstance(low.base, LowRankBase)
    assert np.diag(low.base.covariance) == pytest.approx(np.diag(full.base.covariance))


@pytest.mark.parametrize("method", METHODS)
def test_what_messages_recommend_is_accepted(method: str) -> None:
    """A mixture where the method draws from its base; elsewhere the message says what will do."""
    if method in MIXTURE_METHODS:
        run = line_run(method, base="mixture", draws=32, warmup=150)
        assert isinstance(run.base, MixtureBase)
    else:
        with pytest.raises(SamplingError, match="would not cross") as refused:
            line_run(method, base="mixture")
        assert all(name in str(refused.value) for name in (*MIXTURE_METHODS, *GAUSSIAN_BASES))
    assert line_run(method, base="low_rank", draws=32, warmup=150).base.dimension == 2


def test_names_of_bases(seed: int, tmp_path, capsys) -> None:
    """Each is fitted; a wrong one is told of them all; and the command line takes them."""
    target = target_of(LINE.source, LINE.data)
    for name in FITS:
        fitted = fit_base(target, name, chains=2, seed=np.random.SeedSequence(seed), nuts=Nuts())
        assert fitted.log_zeta == pytest.approx(LINE.log_z, abs=0.2)
    with pytest.raises(SamplingError, match=r"base must be .*, not 'dense'") as refused:
        line_run("gibbs", base="dense")
    assert all(name in str(refused.value) for name in FITS)
    with pytest.raises(SamplingError, match="no base 'dense'") as refused:
        fit_base(target, "dense", chains=2, seed=np.random.SeedSequence(seed), nuts=Nuts())
    assert all(name in str(refused.value) for name in (*FITS, *MIXTURE_METHODS))
    program = tmp_path / "two.stan"
    program.write_text(TWO_MODES.source, encoding="utf-8")
    command = ["evidence", str(program), "--method", "ais", "--base", "mixture", "--json"]
    assert main([*command, "--quiet", "--seed", str(seed)]) == 0
    assert '"log_z": 3.' in capsys.readouterr().out


def test_a_flat_density_is_named() -> None:
    model = stanct.temper("parameters { real x; } model { x ~ uniform(-10, 10); }")
    with pytest.raises(SamplingError, match=r"flat around the origin.* on x.*declare its bounds"):
        model.sample(seed=1, progress=False, engine="embedded")


def test_a_prior_as_wide_as_numbers_asks_for_its_scale() -> None:
    """Its gradient is below all digits wherever starts are. With the scale it runs."""
    wide = "parameters { vector[2] a; real z; } model { a ~ normal(0, 1e13); z ~ normal(0, 1e15); }"
    with pytest.raises(
        SamplingError, match=r"along z at about 1e\+15 .* real<multiplier=1e\+15> z"
    ):
        _refuse_flat(target_of(wide).density, np.random.default_rng(1))
    half = wide.replace("z ~ normal(0, 1e15);", "")
    with pytest.raises(SamplingError, match=r"does not depend on a\.1, a\.2, z\. Give each"):
        _refuse_flat(target_of(half).density, np.random.default_rng(1))
