"""Diagnostics: good runs pass all checks, and each check fails on its own fault."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from conftest import SEED, target_of
from runs import far_run
from sampled import sampled
from targets import LINE, TWO_MODES

from stanct.path.gaussian import GaussianBase
from stanct.runs.diagnostics import Check, refit
from stanct.runs.path_checks import base_check, round_trips
from stanct.runs.tempered import TemperedRun
from stanct.runs.verdicts import failures


@pytest.fixture(scope="module")
def run() -> TemperedRun:
    return sampled("joint", target_of(LINE.source, LINE.data), seed=SEED, draws=800, progress=False)


def check(run: TemperedRun, name: str) -> Check:
    return next(c for c in run.diagnostics if c.name == name)


def changed(run: TemperedRun, **fields: object) -> TemperedRun:
    return dataclasses.replace(run, **fields)  # pyright: ignore[reportArgumentType]


def test_a_good_run_passes_everything(run: TemperedRun) -> None:
    assert run.warnings == (), run.diagnostics
    assert all(c.remedy and c.message for c in run.diagnostics)


@pytest.mark.parametrize(
    ("beta", "trips"),
    [
        ([0.05, 0.5, 0.95, 0.5, 0.05], 1),
        ([0.95, 0.05, 0.95, 0.05], 1),
        ([0.05, 0.95, 0.05, 0.95, 0.05], 2),
        ([0.5, 0.6, 0.4], 0),
        ([0.95, 0.05], 0),
        ([0.05, 0.95], 0),
        ([0.05, 0.4, 0.05, 0.95, 0.95, 0.2, 0.05], 1),
    ],
)
def test_round_trips(beta: list[float], trips: int) -> None:
    assert round_trips(np.array([beta])).tolist() == [trips]


def test_base_check_accepts_the_base_and_sees_a_shift(rng: np.random.Generator) -> None:
    z = rng.standard_normal((4, 1000, 5))
    good = base_check(z, np.zeros((4, 1000)))
    assert good.worst < good.limit
    shifted = base_check(z + np.array([0, 0, 0.3, 0, 0]), np.zeros((4, 1000)))
    assert np.abs(shifted.mean).argmax() == 2 and shifted.worst > shifted.limit
    wide = z.copy()
    wide[..., 3] *= 1.3
    seen = base_check(wide, np.zeros((4, 1000)))
    assert np.unravel_index(np.abs(seen.covariance).argmax(), (5, 5)) == (3, 3)
    assert seen.worst > seen.limit


def test_base_check_s_limit_holds_on_correct_draws(rng: np.random.Generator) -> None:
    worst = [base_check(rng.standard_normal((4, 200, 3)), np.zeros((4, 200))) for _ in range(300)]
    assert np.mean([c.worst > c.limit for c in worst]) < 0.02


def test_stuck_chains_are_seen() -> None:
    """A base that covers one mode only, and no round to mend it: nobody crosses."""
    base = GaussianBase(np.array([-6.0, -3.0]), np.array([[1.0, 0.0], [0.5, 1.0]]))
    run = sampled(
        "joint",
        target_of(TWO_MODES.source),
        seed=SEED,
        draws=400,
        base=base,
        log_zeta=3.0,
        bootstrap=0,
        progress=False,
    )
    stuck = changed(run, beta=np.full_like(run.beta, 0.5))
    assert not check(stuck, "round_trips").passed
    names = {one.name for one in stuck.diagnostics}
    assert not {"r_hat", "effective_size"} & names and "effective size" not in repr(stuck.evidence)
    apart = run.beta.copy()
    apart[0, 1:-1], apart[0, [0, -1]] = 0.99, 0.001
    failed = check(changed(run, beta=apart), "r_hat")
    # It is none of a parameter.
    assert not failed.passed and repr(failed).startswith("FAIL r_hat of β: Split R-hat")


def test_dominant_weights_are_seen(run: TemperedRun, rng: np.random.Generator) -> None:
    heavy = changed(run, delta=-np.exp(rng.standard_exponential(run.delta.shape) * 1.5))
    assert not check(heavy, "pareto_k").passed
    assert "pareto_k" in heavy.evidence.warnings


def test_statistics_are_seen(run: TemperedRun) -> None:
    statistics = dict(run.statistics)
    statistics["divergent__"] = np.ones_like(run.beta)
    statistics["treedepth__"] = np.full_like(run.beta, 10)
    bad = changed(run, statistics=statistics)
    assert {"divergences", "max_depth"} <= set(bad.warnings)


def test_support_and_disagreeing_estimators_are_seen(run: TemperedRun) -> None:
    outside = run.base_delta.copy()
    outside[: outside.size * 3 // 4] = np.inf
    bad = changed(run, base_delta=outside)
    assert not check(bad, "support").passed
    assert not check(bad, "estimators").passed


def test_a_remedy_goes_on_from_the_run_s_own_settings() -> None:
    settings = [{}, {"bootstrap": 0}, {"bootstrap": 1}, {"bootstrap": 4}]
    assert [refit(s).split("(")[1][:11] for s in settings] == [
        "bootstrap=2", "bootstrap=2", "bootstrap=2", "bootstrap=5"
    ]  # fmt: skip


@pytest.mark.parametrize(("draws", "advised"), [(200, True), (400, False)])
def test_chains_that_never_came_back_are_told_what_it_takes(
    run: TemperedRun, draws: int, advised: bool
) -> None:
    """A short run is told to be longer in the same breath as to refit its base."""
    kept = {name: getattr(run, name)[:, :draws] for name in ("z", "delta")}
    kept["kept"] = run.kept[:draws]
    statistics = {name: values[:, :draws] for name, values in run.statistics.items()}
    stuck = changed(run, **kept, statistics=statistics, beta=np.full((4, draws), 0.05))
    found = check(stuck, "round_trips")
    assert found.message == "The slowest chain never went from base to target and back."
    assert "(bootstrap=2)" in found.remedy and ("(draws=400)" in found.remedy) is advised


@pytest.mark.parametrize(("value", "bound"), [(3.0, "minimum"), (1.0, "maximum")])
def test_the_verdict_tells_the_bound_of_a_check_of_ones_own(value: float, bound: str) -> None:
    assert Check("own", value, 2.0, True, "", "").bound == bound
    assert Check("own", value, 2.0, False, "", "").bound != bound


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([2455000.5, 2455010.25, 2455031.5], True),
        ([0.5, 10.25, 31.5], False),
        ([100001, 100002, 100003], False),  # indices
        ([7.5, 7.5, 7.5], False),
    ],
)
def test_remedies_begin_with_data_far_from_zero(
    times: list[float], said: bool, run: TemperedRun
) -> None:
    bad = far_run()
    dated = changed(bad, data=json.dumps({**json.loads(bad.data), "t": times}))
    failed = failures(dated.diagnostics)
    assert failed and failed[0].remedy.startswith("Subtract the mean of `t`") is said
    dated = changed(run, data=json.dumps({**json.loads(run.data), "t": times}))
    assert dated.diagnostics == run.diagnostics
