"""Tours and errors from them."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from targets import TWO_MODES

from stanct.estimates.tours import Tours


def test_tours_begin_after_a_regeneration() -> None:
    tours = Tours.after(np.array([[0, 1, 0, 0, 1], [1, 1, 0, 0, 0]], bool))
    assert tours.number.tolist() == [[0, 0, 1, 1, 1], [2, 3, 4, 4, 4]]
    assert tours.count == 5 and tours.lengths.tolist() == [2, 3, 1, 1, 3]
    values = np.arange(10.0).reshape(2, 5)
    assert tours.totals(values).tolist() == [1, 9, 5, 6, 24]
    assert tours.reached(values, 4.5) == 3


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
