"""Faults that were planted in the code, and that no other test saw."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from generated import load
from runs import line_run
from scipy.stats import t as student_t

from stanct import AIS, kernels
from stanct.common.errors import SamplingError
from stanct.estimates.averages import weighted_quantile
from stanct.estimates.ladder import LadderEstimator, equal_rejection
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import ROUNDING, Evidence, PathEstimator, between_error, with_rounding
from stanct.estimates.thermodynamic import _quantile_strata, ladder_integral
from stanct.kernels import make_population, make_problem
from stanct.path.bias import Bias, LadderBias, sigmoidal_ladder
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.runs.diagnostics import agreement, support_check, tempered_check
from stanct.runs.path_checks import BATCHES_PER_CHAIN, MOST_PAIRED, base_check
from stanct.runs.verdicts import check, failures
from stanct.samplers._annealing import Down, Stream, _resampled
from stanct.samplers._precision import Precision
from stanct.samplers.parallel_tempering import _Ladders
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.work import checkpoint
from stanct.work.checkpoint import Journal, fingerprint


def test_resampled_particles_keep_their_gradients(rng: np.random.Generator) -> None:
    population = make_population(rng.standard_normal((64, 3)))
    population.gradient[:] = -2 * population.z
    population.value[:, 0] = population.z.sum(axis=1)
    population.log_weights[:] = 9 * population.z[:, 0]
    chosen = _resampled(population, rng)
    assert len(np.unique(chosen.z[:, 0])) < 40
    np.testing.assert_array_equal(chosen.gradient, -2 * chosen.z)
    np.testing.assert_array_equal(chosen.value[:, 0], chosen.z.sum(axis=1))


@pytest.mark.parametrize("error", [np.inf, np.nan, 0.0])
def test_an_unknown_error_excuses_no_gap(error: float) -> None:
    assert agreement(5.0, error) == (np.inf, 3, False)
    assert agreement(0.5, 0.25) == (2.0, 3, True)


def test_the_identity_is_weighted_like_the_draws(rng: np.random.Generator) -> None:
    """z² is 1.2 everywhere, so a batch's excess is 0.2 times its weight."""
    batches, length = BATCHES_PER_CHAIN, 50
    z = np.sqrt(1.2) * rng.choice([-1.0, 1.0], (2, batches * length, 1))
    log_weights = np.repeat(rng.normal(size=(2, batches)), length, axis=1)
    weights = np.exp(log_weights).reshape(2 * batches, length).mean(axis=1)
    weights /= weights.mean()
    wanted = np.sqrt(2 * batches) / weights.std(ddof=1)
    assert base_check(z, log_weights).covariance[0, 0] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("way", ["forward", "backward", "bridge"])
def test_influences_on_steps_are_those_of_a_jackknife(way: str, rng: np.random.Generator) -> None:
    """Also of the share of draws of the base that are inside the support."""
    delta = rng.normal([1.0, 0.5, 0.2], 0.5, (1, 400, 3))
    delta[0, rng.random(400) < 0.3, 0] = np.inf
    estimator = LadderEstimator(np.array([0.0, 0.4, 1.0]), delta)
    influence = estimator._influences(way)[0]
    for scan in range(20):
        without = LadderEstimator(estimator.betas, np.delete(delta, scan, axis=1))
        change = 399 * (estimator.steps[way] - without.steps[way])
        np.testing.assert_allclose(influence[scan], change, atol=0.03)


def test_the_error_of_the_trapezoidal_rule_counts() -> None:
    """Nothing varies here but the curve, so the rule's error is all there is."""
    betas = np.linspace(0, 1, 5)
    delta = np.broadcast_to(np.exp(-3 * betas), (2, 100, 5))
    fine = ladder_integral(betas, delta, "ladders")
    coarse = ladder_integral(betas[::2], delta[..., ::2], "ladders")
    assert fine.std_error == pytest.approx(abs(fine.log_z - coarse.log_z) / 15)
    assert fine.std_error > 1e-4


def test_errors_of_the_curve_are_those_of_its_points(rng: np.random.Generator) -> None:
    """Chains that disagree at β = 1 may agree well at a small β."""
    delta = rng.normal(0, 0.1, (4, 500)) + np.array([-2.0, 0.0, 1.0, 3.0])[:, None]
    estimator = PathEstimator(delta, np.zeros(0), Bias.linear(0.0))
    points = np.array([0.05, 0.5, 1.0])
    wanted = [between_error(estimator.chain_log_z(b)) for b in points]
    np.testing.assert_allclose(estimator.curve(points).std_error, wanted, rtol=1e-9)
    assert wanted[0] < 0.2 * wanted[2]


def test_a_conditional_bound_keeps_its_parentheses() -> None:
    """`x < (a ? b : c)` is not `(x < a) ? b : c`."""
    source = "data {{ int a; }} parameters {{ real x; }} model {{ x ~ normal(0, 1) T[{}, ]; }}"
    code = generate(Program.from_source(source.format("a ? 0 : 1")), "density")
    assert "(a ? 0 : 1)" in code
    for a, b in ((1, 0), (0, 1)):
        plain = generate(Program.from_source(source.format(b)), "density")
        for x in (-0.5, 0.5, 1.5):
            at = np.array([x])
            found = load(code, {"a": a}).log_density(at)
            assert found == load(plain, {"a": a}).log_density(at)


def test_a_users_discrete_distribution_has_an_inclusive_lower_bound() -> None:
    source = """
    functions {
      real coin_lpmf(int n, real p) { return poisson_lpmf(n | p); }
      real coin_lcdf(int n, real p) { return poisson_lcdf(n | p); }
      real coin_lccdf(int n, real p) { return poisson_lccdf(n | p); }
    }
    data { int n; } parameters { real<lower=0> p; } model { n ~ coin(p) T[2, ]; }
    """
    theirs = source.replace("coin(p)", "poisson(p)")
    at, data = np.array([0.3]), {"n": 3}
    ours = load(generate(Program.from_source(source), "density"), data).log_density(at)
    assert "coin_lccdf(1 |" in generate(Program.from_source(source), "density").replace(
        "2 - 1", "1"
    )
    stan = load(generate(Program.from_source(theirs), "density"), data).log_density(at)
    assert ours == pytest.approx(stan, rel=1e-12)


def test_fingerprints_tell_type_and_shape() -> None:
    values = np.arange(6.0)
    prints = [
        fingerprint(values),
        fingerprint(values.reshape(2, 3)),
        fingerprint(values.reshape(3, 2)),
        fingerprint(np.frombuffer(values.tobytes(), np.int64)),
    ]
    assert len(set(prints)) == len(prints)


def test_round_trips_of_the_warm_up_do_not_count() -> None:
    run = line_run("parallel_tempering", draws=20, warmup=600)
    rungs = len(run.betas)
    most = 20 * rungs / (2 * (rungs - 1))
    assert run.round_trips.max() <= most
    assert line_run("parallel_tempering", draws=600, warmup=600).round_trips.min() > 2 * most


def test_a_new_base_leaves_every_rung_where_it_is(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = GaussianBase(np.array([1.0, 2.0]), np.array([[2.0, 0.0], [1.0, 3.0]]))
    new = GaussianBase(np.array([-1.0, 0.5]), np.array([[0.5, 0.0], [-1.0, 2.0]]))
    z = rng.standard_normal((5, 2))
    member: Any = SimpleNamespace(inside=lambda: z)
    monkeypatch.setattr("stanct.samplers.parallel_tempering._placed", lambda *given: given)
    job: Any = SimpleNamespace(density="density")
    method: Any = None
    ladders = _Ladders(job, method, old, np.linspace(0, 1, 5), [member])
    ladders.rebase(new)
    density, base, moved = member.rungs
    assert (density, base, ladders.base) == ("density", new, new)
    np.testing.assert_allclose(new.unwhiten(moved), old.unwhiten(z), rtol=1e-12)


def test_moments_along_a_path_of_normals(rng: np.random.Generator) -> None:
    """With base N(0, 1) and target N(1, 1), δ = ½ − z has mean ½ − β and variance 1 at β."""
    grid = np.linspace(0, 1, 41)
    bias = Bias(grid, -grid / 2 + np.square(grid) / 2)  # log z(β), so that β is uniform
    z = rng.random((4, 20_000)) + rng.standard_normal((4, 20_000))
    estimator = PathEstimator(0.5 - z, 0.5 - rng.standard_normal(5_000), bias)
    beta = np.array([0.0, 0.5, 1.0])
    mean, variance = estimator.delta_moments(beta)
    np.testing.assert_allclose(mean, 0.5 - beta, atol=0.03)
    np.testing.assert_allclose(variance, 1, atol=0.05)
    # A draw of the base far out, as under a horseshoe, changes nothing, although its square is inf.
    far = np.append(0.5 - rng.standard_normal(4_999), 1e185)
    again = PathEstimator(0.5 - z, far, bias).delta_moments(beta)
    np.testing.assert_allclose(again, (mean, variance), atol=0.03)


def test_every_moment_of_the_base_is_one_of_the_tests(rng: np.random.Generator) -> None:
    found = base_check(rng.standard_normal((4, 400, 3)), np.zeros((4, 400)))
    tests = 3 + 6  # means, and variances and covariances
    wanted = student_t.isf(0.0005 / tests, 4 * BATCHES_PER_CHAIN - 1)
    assert np.isclose(found.limit, wanted, rtol=1e-12)


def test_half_of_a_support_is_enough() -> None:
    assert support_check(np.array([np.inf, 0.0])).passed
    assert not support_check(np.array([np.inf, np.inf, 0.0])).passed


def test_strata_hold_equally_many_draws(rng: np.random.Generator) -> None:
    beta = np.square(rng.random(1000))
    kept = rng.random(1000) < 0.5
    kept[np.flatnonzero(kept)[: kept.sum() % 10]] = False
    stratum, widths = _quantile_strata(beta, kept, 10)
    np.testing.assert_array_equal(np.bincount(stratum[kept]), np.full(10, kept.sum() // 10))
    assert np.isclose(widths.sum(), 1)
    for k in range(9):
        assert beta[stratum == k].max() <= beta[stratum == k + 1].min()


def test_most_draws_are_twenty_times_those_asked_for() -> None:
    assert Precision(0.1, 100).limit == 2000


def test_the_mass_of_a_ladder_is_a_sum_over_its_rungs(rng: np.random.Generator) -> None:
    ladder = sigmoidal_ladder(6)
    raw = 1 / (1 + np.exp(-4 * (2 * np.arange(7) / 6 - 1)))
    np.testing.assert_allclose(ladder, (raw - raw[0]) / (raw[-1] - raw[0]), atol=1e-15)
    assert ladder[0] == 0 and ladder[-1] == 1
    bias = LadderBias(ladder, np.append(0.0, rng.standard_normal(6)))
    delta = rng.standard_normal(5)
    terms = np.exp(-ladder * delta[:, None] - bias.value)
    np.testing.assert_allclose(bias.log_mass(delta), np.log(terms.sum(axis=1)))
    assert np.isclose(bias.log_mass(np.array(np.inf)), -bias.value[0])


def test_failures_are_the_checks_that_failed_causes_first() -> None:
    names = ("interrupted", "passing", "another", "support")
    found = failures([check(name, 1, 0, name == "passing", "", "") for name in names])
    assert [one.name for one in found] == ["support", "interrupted", "another"]


def test_what_is_left_of_an_error_without_that_of_the_chains() -> None:
    evidence = Evidence(
        log_z=0.0,
        std_error=5.0,
        method="",
        within_error=3.0,
        between_error=np.nan,
        effective_size=1.0,
        pareto_k=0.0,
        chain_log_z=(),
    )
    assert evidence.base_error == pytest.approx(4.0, rel=1e-12)
    assert replace(evidence, between_error=9.0).base_error == 0.0


def test_particles_start_down_from_draws_of_the_target() -> None:
    """Between two starts the state moves at β = 1, so that its variance stays the target's, ¼."""
    target = target_of("parameters { real x; } model { x ~ normal(0, 0.5); }")
    base = GaussianBase(np.zeros(1), np.eye(1))
    moves = AIS().moves(learn=False)
    down = Down(target.density.borrow, base, np.array([0.0, 1.0]), moves, 1, False)
    stream = Stream.start(np.random.SeedSequence(7), 1)
    stream.state = kernels.make_state(make_problem(target.density, base), np.array([0.3]))
    starts = np.empty(1500)
    for k in range(starts.size):
        down(stream, 1)
        starts[k] = stream.state.z[0]
    squares = starts**2
    error = np.sqrt(squares.var() / effective_size(squares[None]))
    assert abs(squares.mean() - 0.25) < 4 * error < 0.08


@pytest.mark.parametrize("log_z", [-0.25, 3.0])
def test_an_error_without_any_other_part_is_that_of_rounding(log_z: float) -> None:
    assert with_rounding(0.0, log_z) == pytest.approx(ROUNDING * (1 + abs(log_z)))
    assert with_rounding(0.0, 0.0) == 0.0


def test_results_reach_the_disk_after_a_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    record = Journal(tmp_path / "steps", {"seed": 1})
    segments = []
    for k in range(1, 1600):
        clock[0] = 1000 + k * checkpoint.SOONEST / 4
        record.put((k, 0, 0), "step", k)
        segments.append(len([*(tmp_path / "steps").glob("*.npz")]))
    record.close()
    assert segments[:4] == [0, 0, 0, 0] and segments[5] == 1
    written = np.flatnonzero(np.diff(segments)) * checkpoint.SOONEST / 4
    gaps = np.diff(written)
    assert gaps[0] < 2 * checkpoint.SOONEST and gaps.max() <= checkpoint.LATEST + 1
    assert gaps[-1] > 4 * gaps[0]  # a longer run writes less often


def test_shapes_of_bases_are_checked() -> None:
    whitening = GaussianBase(np.zeros(2), np.eye(2))
    with pytest.raises(SamplingError, match=r"needs weights \(K,\)"):
        MixtureBase(whitening, np.array([0.5, 0.5]), np.zeros((1, 2)), np.eye(2)[None])
    one = LowRankBase(np.zeros(3), np.ones(3), np.eye(3)[:, :1], np.array([2.0]))
    for change in (
        {"diagonal": np.ones(2)}, {"vectors": np.eye(3)[:, :2]}, {"vectors": np.eye(3)[:2, :1]},
        {"stretch": np.array([[2.0]])}, {"mean": np.zeros((3, 1))},
    ):  # fmt: skip
        with pytest.raises(SamplingError, match="low-rank base"):
            replace(one, **change)


@pytest.mark.parametrize("shift", [0.0, 900.0, -900.0])
def test_quantiles_of_weights_of_any_size(shift: float) -> None:
    values = np.arange(10.0).reshape(2, 5)
    log_weights = np.log(np.repeat([[3.0], [1.0]], 5, axis=1)) + shift
    found = weighted_quantile(values, log_weights, np.array([0.1, 0.5, 0.8]))
    assert found.tolist() == [0, 3, 5]


def test_new_ladders_run_from_base_to_target() -> None:
    betas = np.array([0.0, 0.1, 0.4, 1.0])
    new, barrier = equal_rejection(betas, np.array([0.2, 0.0, 0.4]), 5)
    assert new[0] == 0 and new[-1] == 1 and np.all(np.diff(new) > 0)
    assert barrier == pytest.approx(0.6)
    assert equal_rejection(betas, np.ones(3), 4)[0] == pytest.approx(betas)


@pytest.mark.parametrize(
    ("chains", "most", "fits"), [(4, 32, True), (1, 64, True), (4, 31, False), (1, 63, False)]
)
def test_a_limit_must_allow_two_islands(chains: int, most: int, fits: bool) -> None:
    plan: Any = SimpleNamespace(chains=chains, draws=64, max_draws=most)
    with nullcontext() if fits else pytest.raises(SamplingError, match="two or more") as told:
        AIS(resample=True).check(plan, None)
    if told is not None:
        assert f"max_draws={64 if chains == 1 else 32}?" in str(told.value)


@pytest.mark.parametrize(("apart", "passed"), [(0.2, False), (0.5, True), (0.7, True)])
def test_a_base_of_the_users_own_must_leave_something_to_temper(apart: float, passed: bool) -> None:
    assert tempered_check(apart, 0.5, "", {"base": "given"}).passed is passed
    assert tempered_check(apart, 0.5, "", {"base": "pilot"}).passed


def test_a_coordinate_that_never_moved_keeps_a_positive_variance() -> None:
    points = np.column_stack([np.arange(4.0), np.full(4, 3.0)])
    covariance = gaussian_moments(points)[1]
    assert 0 < covariance[1, 1] <= 1e-20 and covariance[0, 1] == 0


@pytest.mark.parametrize(("dimension", "tests"), [(3, 9), (MOST_PAIRED + 1, 2 * MOST_PAIRED + 2)])
def test_the_limit_of_the_base_check_counts_its_tests(dimension: int, tests: int) -> None:
    z = np.random.default_rng(1).standard_normal((2, 5 * BATCHES_PER_CHAIN, dimension))
    found = base_check(z, np.zeros(z.shape[:2]))
    count = 2 * BATCHES_PER_CHAIN
    assert found.limit == pytest.approx(-student_t.ppf(0.0005 / tests, count - 1))
