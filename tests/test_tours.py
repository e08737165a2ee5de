"""Tours and errors from them."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from targets import TWO_MODES

from stanct.estimates.averages import expectation
from stanct.estimates.path import PathEstimator
from stanct.estimates.tours import Tours, effective_number, student_factor
from stanct.path.bias import Bias
from stanct.runs.path_checks import tours_check


def test_tours_begin_after_a_regeneration() -> None:
    tours = Tours.after(np.array([[0, 1, 0, 0, 1], [1, 1, 0, 1, 0]], bool))
    assert tours.number.tolist() == [[0, 0, 1, 1, 1], [2, 3, 4, 4, 5]]
    assert tours.count == 6 and tours.lengths.tolist() == [2, 3, 1, 1, 2, 1]
    values = np.arange(10.0).reshape(2, 5)
    assert tours.totals(values).tolist() == [1, 9, 5, 6, 15, 9]
    assert tours.reached(values, 4.5) == 4


def test_one_tour_knows_no_error() -> None:
    one = Tours.after(np.zeros((1, 100), bool))
    assert one.error(np.random.default_rng(1).normal(size=(1, 100))) == np.inf


def test_errors_of_renewal_rewards(seed: int) -> None:
    """Chains that hold a value for a random time, and then draw a new one."""
    rng = np.random.default_rng(seed)
    means, errors = [], []
    for _ in range(200):
        fresh = rng.random((4, 2000)) < 0.05
        values = np.empty(fresh.shape)
        for chain in range(4):
            value = rng.normal()
            for n in range(2000):
                values[chain, n] = value
                if fresh[chain, n]:
                    value = rng.normal()
        means.append(values.mean())
        errors.append(Tours.after(fresh).error(values - values.mean()))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)
    assert np.std(errors) < 0.2 * np.mean(errors)


def test_tours_of_two_workers_pooled_are_those_of_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fresh, values = rng.random((4, 500)) < 0.1, rng.normal(size=(4, 500))
    whole = Tours.after(fresh)
    halves = [Tours.after(fresh[k : k + 2]) for k in (0, 2)]
    assert whole.count == sum(half.count for half in halves)
    totals = [half.totals(values[2 * k : 2 * k + 2]) for k, half in enumerate(halves)]
    assert whole.totals(values) == pytest.approx(np.concatenate(totals))


def test_a_ladder_regenerates_at_its_lowest_rung(seed: int) -> None:
    """The draw after one at β = 0 does not depend on it; others do."""
    target = target_of(TWO_MODES.source)
    run = sampled("simulated_tempering", target, seed=seed, draws=2000, progress=False)
    assert run.tours is not None
    assert run.tours.count == 4 + int((run.beta[:, :-1] == 0).sum())
    assert run.chain_counts()["tours"].sum() == run.tours.count
    before, after = run.z[:, :-1, 0], run.z[:, 1:, 0]
    fresh = run.beta[:, :-1] == 0
    held = run.beta[:, :-1] > 0.5
    assert abs(np.corrcoef(before[fresh], after[fresh])[0, 1]) < 4 / np.sqrt(fresh.sum())
    assert np.corrcoef(before[held], after[held])[0, 1] > 0.5
    assert sampled("gibbs", target, seed=seed, draws=200, atom=0.0, progress=False).tours is None


@pytest.mark.parametrize(("squares", "number"), [([3.0] * 7, 7.0), ([1e8, 1.0, 2.0], 1.0)])
def test_how_many_squares_make_up_a_sum(squares: list[float], number: float) -> None:
    assert effective_number(np.array(squares)) == pytest.approx(number, rel=1e-6)


@pytest.mark.parametrize(
    ("number", "factor"), [(0.5, 6.48), (1.0, 6.48), (4.0, 1.417), (30.0, 1.042), (1e6, 1.0)]
)
def test_few_squares_widen_an_error(number: float, factor: float) -> None:
    """The factors are t.isf(0.025, number) / 1.96, from a table of Student's t."""
    assert student_factor(number) == pytest.approx(factor, rel=2e-3)


def test_widened_errors_hold_where_few_tours_are_heavy(seed: int) -> None:
    """Totals with a long right tail: the error is too small where no draw is from there."""
    rng = np.random.default_rng(seed)
    tours = Tours.after(np.ones((1, 60), bool))
    plain, widened = [], []
    for _ in range(1500):
        values = rng.pareto(2.2, (1, 60)) - 1 / 1.2
        excess = values - values.mean()
        error = tours.error(excess)
        plain.append(abs(values.mean()) < 1.96 * error)
        widened.append(abs(values.mean()) < 1.96 * tours.widened(excess, 0.0))
    assert np.mean(plain) < 0.84
    assert 0.87 < np.mean(widened) < 0.97


def test_normal_tours_hardly_widen_an_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tours = Tours.after(rng.random((4, 2500)) < 0.1)
    values = rng.normal(size=(4, 2500))
    assert 1 < tours.widened(values, 0.0) / tours.error(values) < 1.03
    assert tours.widened(values, 1.0) == pytest.approx(1.0, rel=0.03) and tours.count > 800


def one_heavy_tour(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Tours]:
    """Normal numbers, the draws of one tour, and all tours."""
    fresh = rng.random((4, 500)) < 0.05
    fresh[1, 199] = fresh[1, 249] = True
    fresh[1, 200:249] = False
    there = np.zeros(fresh.shape, bool)
    there[1, 200:250] = True
    return rng.normal(size=fresh.shape), there, Tours.after(fresh)


def test_a_mean_that_rests_on_one_tour_says_so(seed: int) -> None:
    values, there, tours = one_heavy_tour(np.random.default_rng(seed))
    both = np.stack([values, values + 50 * there], axis=-1)
    log_weights = np.zeros(values.shape)
    good, bad = (expectation(both[..., k], log_weights, 1.0, tours=tours) for k in range(2))
    assert good.warnings == () and "warnings" not in repr(good)
    assert bad.warnings == ("few_tours",) and "warnings: few_tours" in repr(bad)
    assert bad.std_error > 2 * expectation(both[..., 1], log_weights, 1.0).std_error
    whole = expectation(both, log_weights, 1.0, tours=tours)
    assert whole.warnings == bad.warnings and "few_tours" in repr(whole)
    alone = np.array([good.effective_tours, bad.effective_tours], float)
    assert whole.effective_tours == pytest.approx(alone)
    assert expectation(both, log_weights, 1.0).effective_tours is None


def test_a_log_z_that_rests_on_one_tour_is_a_failed_check(seed: int) -> None:
    values, there, tours = one_heavy_tour(np.random.default_rng(seed))
    bias = Bias(np.array([0.0, 1.0]), np.zeros(2), atom=0.1)
    for delta, passed in ((0.3 * values, True), (0.01 * values - 6.0 * there, False)):
        (found,) = tours_check(PathEstimator(delta, np.zeros(0), bias, tours))
        assert (found.name, found.passed) == ("few_tours", passed)
    assert not [*tours_check(PathEstimator(values, np.zeros(0), bias))]
