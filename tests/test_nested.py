"""A base in two stages: what it finds, what it refuses, and that its density is its draws'."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import LONG
from scipy import stats
from scipy.special import log_ndtr, logsumexp
from scipy.stats import kstest, norm
from states import STATES, log_z_of_states, states

import stanct
from stanct.bases import nested
from stanct.bases.incremental import incremental_mixture, largest_of
from stanct.bases.known import FitSeeds
from stanct.bases.makers import Given
from stanct.common.arrays import Array, even_share
from stanct.common.errors import SamplingError
from stanct.path.base import base_from_arrays
from stanct.path.conditional import Slices
from stanct.path.curvature import Colouring
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase
from stanct.path.nested import NestedBase
from stanct.samplers._job import Job
from stanct.work.blas import one_blas_thread

# One observation of each effect: sparse effects of unknown scale, noise of unknown scale.
SPARSE = """
data { int n; vector[n] y; }
parameters { real<lower=0> lam; real<lower=0> s; vector[n] b; }
model {
  lam ~ normal(0, 1);
  s ~ normal(0, 1);
  b ~ double_exponential(0, lam);
  y ~ normal(b, s);
}
"""
SPARSE_Y = np.array([0.3, -1.9, 0.1, 2.6, -0.4, 0.2, 0.7, -0.1, 0.2, 1.1])

# Given tau, all is Gaussian but for a second mode, which the data do not rule out.
TWO_MODES = """
parameters { real<lower=0> tau; vector[3] x; }
model {
  target += exponential_lpdf(tau | 1);
  target += log_sum_exp(log(.5) + normal_lpdf(x | 0, tau), log(.5) + normal_lpdf(x | 40, 1));
}
"""


@pytest.fixture(autouse=True, scope="module")
def _as_in_a_run() -> Iterator[None]:
    """One thread of BLAS, as in a run, whose inside these tests call."""
    with one_blas_thread():
        yield


def log_z_of_sparse(y: Array) -> float:
    """log Z of `SPARSE`, with the effects integrated out, on a grid of the logs of the scales."""
    grid = np.linspace(-14, 2.2, 500)
    log_lam, log_s = np.meshgrid(grid, grid, indexing="ij")
    lam, s = np.exp(log_lam)[..., None], np.exp(log_s)[..., None]
    # The normal density convolved with each half of the double exponential one.
    halves = np.logaddexp(
        -y / lam + log_ndtr(y / s - s / lam), y / lam + log_ndtr(-y / s - s / lam)
    )  # fmt: skip
    log_likelihood = 0.5 * s**2 / lam**2 - np.log(2 * lam) + halves
    # Where the double exponential is much narrower than the noise, both terms overflow.
    narrow = -0.5 * (y / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
    log_likelihood = np.where(s / lam > 1e4, narrow, log_likelihood).sum(axis=-1)
    log_prior = norm.logpdf(lam[..., 0]) + norm.logpdf(s[..., 0]) + log_lam + log_s
    return float(logsumexp(log_prior + log_likelihood) + 2 * np.log(grid[1] - grid[0]))


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, nested.Nested, float]:
    y = states(3, 12)
    target = stanct.temper(STATES).target({"T": 12, "y": y})
    rng = np.random.default_rng(0)
    x = y + 0.2 * rng.normal(size=(300, 12))
    scales = rng.normal([0.6, -0.7, -0.9], 0.5, (300, 3))
    found = nested.find_nested(target, np.column_stack([scales, x]), np.random.SeedSequence(1))
    return target, found, log_z_of_states(y)


def lent(target: Any, found: nested.Nested) -> NestedBase:
    assert found.base is not None
    return dataclasses.replace(found.base, lend=target.density.borrow)


@pytest.fixture(scope="module")
def sparse() -> tuple[Any, nested.Nested]:
    target = stanct.temper(SPARSE).target({"n": SPARSE_Y.size, "y": SPARSE_Y})
    rng = np.random.default_rng(0)
    points = np.column_stack(
        [rng.normal(-0.5, 0.6, (300, 2)), SPARSE_Y + 0.5 * rng.normal(size=(300, SPARSE_Y.size))]
    )
    return target, nested.find_nested(target, points, np.random.SeedSequence(1))


def test_finds_the_parameters_given_which_effects_are_independent(sparse: Any) -> None:
    target, found = sparse
    assert (found.form, found.outer) == ("independent", ("lam", "s"))
    made = lent(target, found).valued(np.random.default_rng(2), 4000)
    log_weights = target.density.log_densities(lent(target, found).unwhiten(made.z))
    share = np.exp(log_weights - made.log_density - log_z_of_sparse(SPARSE_Y))
    error = share.std() / np.sqrt(share.size)
    assert error < 0.01
    assert abs(share.mean() - 1) < 4 * error
    assert share.max() < 5
    assert made.gradients < 60 * 4000


def test_only_a_few_coordinates_may_couple_the_others() -> None:
    star = np.zeros((9, 9), bool)
    star[2] = star[:, 2] = True
    star[5] = star[:, 5] = True
    outer = nested._cover(star)  # pyright: ignore[reportPrivateUsage]
    assert outer is not None and np.flatnonzero(outer).tolist() == [2, 5]
    chain = np.eye(12, k=1, dtype=bool) | np.eye(12, k=-1, dtype=bool)
    assert nested._cover(chain) is None  # pyright: ignore[reportPrivateUsage]
    assert nested._cover(np.eye(9, dtype=bool)) is None  # pyright: ignore[reportPrivateUsage]
    few = star[np.ix_([2, 5, 0, 1, 3], [2, 5, 0, 1, 3])]
    assert nested._cover(few) is None  # pyright: ignore[reportPrivateUsage]


# Given tau, x is Gaussian. Two of its elements are correlated where tau is positive.
SOMETIMES = """
parameters { real tau; vector[3] x; }
model {
  real r = tau > 0 ? 0.9 * (1 - exp(-4 * square(tau))) : 0;
  tau ~ normal(0, 0.4);
  x[1] ~ normal(0, exp(tau));
  x[2] ~ normal(r * x[1], exp(tau) * sqrt(1 - square(r)));
  x[3] ~ normal(0, exp(tau));
}
"""


def test_couplings_that_some_places_alone_have_count() -> None:
    """Where one of four places tells of them, curvature is taken in all directions."""
    target = stanct.temper(SOMETIMES).target()
    rng = np.random.default_rng(0)
    tau = rng.normal(0, 0.4, 300)
    points = np.column_stack([tau, np.exp(tau)[:, None] * rng.standard_normal((300, 3))])
    seeds = np.random.SeedSequence(2).spawn(24)
    # With these, the first looks are where no two are correlated, and one of the others is not.
    for number in (16, 20, 22):
        found = nested.find_nested(target, points, seeds[number])
        assert found.base is not None and found.form == "Gaussian"
        assert abs(found.log_z) < 0.05


def test_the_scale_is_held_and_not_what_it_scales() -> None:
    """Both effects have cubic terms with the scale, and it is the one that takes most with it."""
    target = stanct.temper(
        "parameters { real tau; vector[2] x; }"
        "model { tau ~ normal(0, 0.5); x ~ normal(0, exp(tau)); }"
    ).target()
    rng = np.random.default_rng(0)
    tau = rng.normal(0, 0.5, 300)
    points = np.column_stack([tau, np.exp(tau)[:, None] * rng.standard_normal((300, 2))])
    for seed in np.random.SeedSequence(3).spawn(3):
        found = nested.find_nested(target, points, seed)
        assert found.base is not None and "tau" in found.outer and found.form == "Gaussian"
        assert abs(found.log_z) < 0.05


def test_finds_the_parameters_given_which_the_states_are_gaussian(fitted: Any) -> None:
    target, found, log_z = fitted
    assert found.outer == ("phi", "sg", "tau")
    base = lent(target, found)
    made = base.valued(np.random.default_rng(2), 4000)
    log_weights = target.density.log_densities(base.unwhiten(made.z)) - made.log_density
    share = np.exp(log_weights - log_z)
    error = share.std() / np.sqrt(share.size)
    assert error < 0.02
    assert abs(share.mean() - 1) < 4 * error
    assert even_share(log_weights) > 0.5
    assert largest_of(log_weights) < 30


@pytest.mark.parametrize("fit", ["fitted", "sparse"])
def test_density_is_that_of_the_draws(fit: str, request: pytest.FixtureRequest) -> None:
    target, found, *_ = request.getfixturevalue(fit)
    base = lent(target, found)
    made = base.valued(np.random.default_rng(5), 500)
    x = base.unwhiten(made.z)
    # Deep in a neck no digits are left.
    plain = made.log_density < 200
    assert plain.sum() > 490
    found_there, log_target = base.log_density(x), target.density.log_densities(x)
    np.testing.assert_allclose(found_there[plain], made.log_density[plain], rtol=1e-7, atol=1e-6)
    delta = base.delta(made.z, log_target)[plain]
    np.testing.assert_allclose(delta, (made.log_density - log_target)[plain], atol=1e-4)
    assert made.gradients == pytest.approx(500 * base.gradients, rel=0.2)
    outer = base.standardised(base.draw(np.random.default_rng(6), 2000))
    assert outer.shape == (2000, len(found.outer))
    assert kstest(outer[:, 1], "norm").pvalue > 1e-3


@pytest.mark.parametrize("fit", ["fitted", "sparse"])
def test_base_is_restored_without_its_program(fit: str, request: pytest.FixtureRequest) -> None:
    target, found, *_ = request.getfixturevalue(fit)
    base = lent(target, found)
    restored = base_from_arrays(base.arrays())
    assert isinstance(restored, NestedBase)
    z = base.draw(np.random.default_rng(7), 3)
    np.testing.assert_array_equal(restored.unwhiten(z), base.unwhiten(z))
    with pytest.raises(SamplingError, match="no program to draw with"):
        restored.draw(np.random.default_rng(7), 3)
    again = dataclasses.replace(restored, lend=target.density.borrow)
    np.testing.assert_array_equal(again.draw(np.random.default_rng(7), 3), z)
    for refused in (lambda: base.components, base.dense):
        with pytest.raises(SamplingError, match="Nested"):
            refused()


def test_a_base_that_misses_a_mode_of_the_pilots_is_refused() -> None:
    target = stanct.temper(TWO_MODES).target()
    rng = np.random.default_rng(0)
    near = np.column_stack([rng.normal(-0.3, 0.5, 200), rng.normal(0, 0.7, (200, 3))])
    seed = np.random.SeedSequence(1)
    alone = nested.find_nested(target, near, seed)
    assert alone.base is not None
    assert alone.outer == ("tau",)
    far = np.column_stack([rng.normal(-0.3, 0.5, 200), rng.normal(40, 1, (200, 3))])
    assert nested.find_nested(target, np.concatenate([near, far[:20]]), seed).base is None


@pytest.mark.parametrize(
    "program",
    [
        "parameters { vector[4] x; } model { target += student_t_lpdf(x | 2, 0, 1); }",
        "parameters { vector[4] x; } model { target += std_normal_lpdf(x); }",
        "parameters { vector[3] x; } model { target += -sum(square(square(x))); }",
    ],
)
def test_no_base_where_nothing_else_is_gaussian(program: str) -> None:
    target = stanct.temper(program).target()
    dimension = target.density.dimension
    points = np.random.default_rng(0).normal(size=(200, dimension))
    assert nested.find_nested(target, points, np.random.SeedSequence(1)).base is None


def test_slow_densities_are_left_alone() -> None:
    target = stanct.temper(STATES).target({"T": 12, "y": states(3, 12)})
    points = np.random.default_rng(0).normal(size=(200, 15))
    found = nested.find_nested(target, points, np.random.SeedSequence(1), most=5000)
    assert found == nested.Nested()


def test_conditional_gaussian_from_a_start_that_is_far_off() -> None:
    scale = 1e-3
    precision = np.array([[2.0, 1.0], [1.0, 3.0]])

    def gradients(points: Array) -> tuple[Array, Array]:
        offset = (points[:, 1:] - points[:, :1]) / scale
        slopes = -offset @ precision / scale
        values = -0.5 * np.einsum("ij,jk,ik->i", offset, precision, offset)
        return values, np.column_stack([-slopes.sum(axis=1), slopes])

    slices = Slices(gradients, np.array([True, False, False]))
    starts = np.full((1, 2), 50.0), np.full((1, 2), 10.0)
    ((_, found),) = slices.gaussians(np.array([[7.0]]), *starts, Colouring.dense(2))
    np.testing.assert_allclose(found.mean, [[7, 7]], rtol=1e-9)
    np.testing.assert_allclose(found.factor[0] @ found.factor[0].T * scale**2, precision, rtol=1e-6)
    np.testing.assert_allclose(
        found.spread[0] / scale, np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-6
    )
    exact = np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(precision)) + 2 * np.log(scale)
    assert found.log_mass[0] == pytest.approx(exact, abs=1e-6)
    noise = np.array([[0.3, -1.2]])
    np.testing.assert_allclose(found.noise(found.drawn(noise)), noise, atol=1e-6)


def test_mixture_follows_a_neck_and_two_modes() -> None:
    def log_densities(points: Array) -> Array:
        v, x = points.T
        arm = -v - np.exp(-v) - 0.5 * (x / 2) ** 2 - np.log(2) - 0.5 * np.log(2 * np.pi)
        spot = GaussianBase(np.array([6.0, 5.0]), 0.3 * np.eye(2)).log_density(points)
        return np.logaddexp(np.log(0.8) + arm, np.log(0.2) + spot)

    rng = np.random.default_rng(0)
    mixture = incremental_mixture(log_densities, np.zeros(2), 4 * np.eye(2), rng)
    points = mixture.unwhiten(mixture.draw(rng, 20_000))
    log_weights = log_densities(points) - mixture.log_density(points)
    share = np.exp(log_weights)
    assert even_share(log_weights) > 0.5
    assert abs(share.mean() - 1) < 4 * share.std() / np.sqrt(share.size)
    in_spot = np.linalg.norm(points - [6, 5], axis=1) < 1.5
    assert (share * in_spot).mean() == pytest.approx(0.2, abs=0.02)


def test_a_place_where_draws_were_too_few_gets_a_gaussian() -> None:
    """A fiftieth of the mass is far from all else, and one draw told of it."""
    spot = GaussianBase(np.array([10.0, 0.0]), np.eye(2))

    def log_densities(points: Array) -> Array:
        rest = GaussianBase(np.zeros(2), np.eye(2)).log_density(points)
        return np.logaddexp(np.log(0.98) + rest, np.log(0.02) + spot.log_density(points))

    at, lacking = spot.unwhiten(np.random.default_rng(0).standard_normal((200, 2))), []
    for seed in range(10):
        for thin in (None, spot.mean[None]):
            rng = np.random.default_rng(seed)
            found = incremental_mixture(log_densities, np.zeros(2), np.eye(2), rng, thin)
            lacking.append(float(np.mean(log_densities(at) - found.log_density(at))))
    assert sum(lack > 2 for lack in lacking[::2]) > 2 and max(lacking[1::2]) < 1.5


# Given t, whose tails are heavy, all else is Gaussian.
FAR_OUT = """
data { real nu; }
parameters { real t; vector[6] y; }
model {
  target += student_t_lpdf(t | nu, 0, 1);
  target += normal_lpdf(y | 0, exp(0.2 * tanh(t)));
}
"""


@LONG
def test_heavy_tails_within_reach_are_drawn_in_two_stages() -> None:
    """Log Z = 0, and P(|t| > 20) = .0084."""
    beyond = []
    for seed in (1, 2, 3):
        run: Any = stanct.temper(FAR_OUT).sample(
            {"nu": 1.5}, seed=seed, engine="embedded", progress=False
        )
        if run.provenance["steps"][0]["method"] == "independence":
            assert run.gradients < 300_000
            assert abs(run.evidence.log_z) < 4.5 * run.evidence.std_error < 0.1
            beyond.append(run.expect(lambda v: np.abs(v["t"]) > 20))
    error = np.sqrt(sum(float(one.std_error) ** 2 for one in beyond)) / len(beyond)
    mean = np.mean([float(one.value) for one in beyond])
    assert abs(mean - 2 * stats.t.sf(20, 1.5)) < 4 * error < 0.008


@pytest.mark.parametrize(("spread", "kept"), [((1.5,), False), ((1.5, 12.0, 100.0, 900.0), True)])
def test_heavy_tails_beyond_reach_leave_no_base(spread: tuple[float, ...], kept: bool) -> None:
    target = stanct.temper(FAR_OUT).target({"nu": 1.5})
    rng = np.random.default_rng(0)
    t = rng.standard_t(1.5, 300)
    points = np.column_stack([t, np.exp(0.2 * np.tanh(t))[:, None] * rng.normal(size=(300, 6))])
    found = nested.find_nested(target, points, np.random.SeedSequence(1))
    assert found.base is not None and found.outer == ("t",)
    parts = [GaussianBase(np.zeros(1), np.array([[sd]])) for sd in spread]
    weights = [0.8, 0.15, 0.04, 0.01][: len(parts)]
    base = dataclasses.replace(found.base, marginal=MixtureBase.of(weights, parts))
    tails = ((0.1, GaussianBase(np.zeros(7), np.diag([sd, *np.ones(6)]))) for sd in (20.0, 80.0))
    state: Any = SimpleNamespace(
        target=target, parts=tuple(tails), seeds=FitSeeds.of(np.random.SeedSequence(2))
    )
    reaching = Given().reaching(state, found, base)
    assert (reaching.base is not None) == kept and reaching.gradients > found.gradients


def test_a_target_that_vanishes_has_no_mixture() -> None:
    def nowhere(points: Array) -> Array:
        return np.full(len(points), -np.inf)

    with pytest.raises(SamplingError, match="vanishes at all points"):
        incremental_mixture(nowhere, np.zeros(1), np.eye(1), np.random.default_rng(0))


@pytest.mark.parametrize("program", ["states", "sparse"])
def test_default_draws_in_two_stages(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Job, "base_delta")  # the bias is learned from draws that the fit made
    if program == "states":
        y = states(8, 15)
        model, data, log_z = STATES, {"T": 15, "y": y}, log_z_of_states(y)
        because = "all other parameters are Gaussian given phi, sg, tau"
    else:
        y = SPARSE_Y
        model, data, log_z = SPARSE, {"n": y.size, "y": y}, log_z_of_sparse(y)
        because = "all other parameters are independent given lam, s"
    run: Any = stanct.temper(model).sample(
        data, seed=3, draws=400, engine="embedded", progress=False
    )
    (step,) = run.provenance["steps"]
    assert step["because"] == because
    assert "two_stages" not in run.provenance  # these are its draws
    assert run.verdict.draws == ()  # the scales of the other program have half priors
    assert run.evidence.std_error < 0.02
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error
    run.save(tmp_path / "run")
    loaded: Any = stanct.load(tmp_path / "run")
    assert loaded.evidence == run.evidence
    assert isinstance(loaded.base, NestedBase)
    longer = loaded.extend(200, progress=False)
    assert longer.draws == run.draws + 200
    assert abs(longer.evidence.log_z - log_z) < 4 * longer.evidence.std_error
    assert longer.gradients > run.gradients
