"""The stopping rule of `target_se`: alone on known errors, then in whole runs."""

from __future__ import annotations

import io
import math
import sys

import numpy as np
import pytest
from conftest import SEED, target_of
from sampled import sampled
from targets import LINE, SKEWED

from stanct.common.errors import SamplingError
from stanct.path.gaussian import GaussianBase
from stanct.samplers._precision import FIRST_LOOK, LONG, Precision
from stanct.samplers._watch import live_text


def follow(precision: Precision, error, failed=lambda draws: ()) -> int:
    """Draws at the end, for an error that is a function of the draws."""
    draws = precision.first
    while ahead := precision.more(draws, error(draws), failed(draws)):
        assert ahead > 0 and draws + ahead <= precision.limit
        draws += ahead
    return draws


def test_without_a_target_there_is_one_look() -> None:
    precision = Precision(None, 700)
    assert (precision.first, precision.more(700, math.nan, ())) == (700, 0)
    assert precision.record()["reason"] == "draws" and precision.record()["looks"] == []


@pytest.mark.parametrize("target", [0.1, 0.05, 0.013])
def test_reaches_an_error_that_falls_as_it_should(target: float) -> None:
    precision = Precision(target, 2500)
    draws = follow(precision, lambda n: 2 / math.sqrt(n))
    assert precision.reason == "reached"
    assert 0.9 * target < 2 / math.sqrt(draws) <= target
    assert len(precision.looks) < 14


def test_one_small_error_is_not_enough() -> None:
    """An error that is small by chance at one look does not end the run."""
    lucky = {FIRST_LOOK}
    precision = Precision(0.05, 2500)
    draws = follow(precision, lambda n: 0.01 if n in lucky else 2 / math.sqrt(n))
    assert draws > 1600 and precision.reason == "reached"


def test_limit_and_warnings() -> None:
    precision = Precision(0.001, 2500, 1000)
    assert follow(precision, lambda n: 2 / math.sqrt(n)) == 1000
    assert precision.reason == "limit"
    precision = Precision(0.1, 2500, 1000)
    assert follow(precision, lambda n: 2 / math.sqrt(n), lambda n: ("pareto_k",)) == 1000
    assert precision.reason == "warnings"
    precision = Precision(0.1, 2500)
    draws = follow(precision, lambda n: 2 / math.sqrt(n), lambda n: ("r_hat",) * (n < 3000))
    assert precision.reason == "reached" and 3000 <= draws < 3500


def test_an_error_that_does_not_fall_stops_the_run() -> None:
    for error in (0.3, math.nan):
        precision = Precision(0.05, 2500)
        draws = follow(precision, lambda n, error=error: error)
        assert precision.reason == "stalled" and draws <= 2 * LONG * FIRST_LOOK


def simulated(values: np.ndarray) -> str:
    """Why a run stops whose error is that of the mean of four chains of such contributions."""
    sums = values.cumsum(axis=1)

    def error(n: int) -> float:
        between = (sums[:, n - 1] / n).std(ddof=1) / 2
        return max(float(between), values[:, :n].std() / math.sqrt(n))

    precision = Precision(2.5 / math.sqrt(10_000), 2500)
    follow(precision, error)
    return precision.reason


def test_errors_that_jump_do_not_stop_a_run(rng: np.random.Generator) -> None:
    """Chains that meet rare places, or are slow, are not mistaken for chains that disagree."""
    shape = (4, 50_000)
    heavy = [simulated(rng.standard_t(3, shape)) for _ in range(20)]
    slow = [simulated(np.repeat(rng.standard_normal((4, 2500)), 20, axis=1)) for _ in range(20)]
    apart = [simulated(rng.standard_normal(shape) + offset) for offset in APART]
    assert heavy.count("stalled") <= 1 and slow.count("stalled") <= 1
    assert set(apart) == {"stalled"}


APART = 0.4 * np.array([[-1.0, 0.2, 1.1, 0.1], [0.5, -0.9, 0.3, -0.2]])[..., None]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_se": 0.0}, "target_se must be a finite number above 0"),
        ({"target_se": math.nan}, "target_se must be a finite number above 0"),
        ({"max_draws": 100}, "there is none"),
        ({"target_se": 0.1, "max_draws": 0}, "max_draws must be a whole number of at least 8"),
    ],
)
@pytest.mark.parametrize("method", ["joint", "gibbs"])
def test_impossible_settings(method: str, settings: dict, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        sampled(method, target_of(LINE.source, LINE.data), **settings)


BASE = GaussianBase(np.array([-0.7]), np.array([[1.5]]))


@pytest.mark.parametrize("method", ["joint", "gibbs"])
def test_runs_reach_their_target(method: str) -> None:
    run = sampled(
        method,
        target_of(SKEWED.source, SKEWED.data),
        seed=SEED,
        target_se=0.008,
        base=BASE,
        bootstrap=0,
        progress=False,
    )
    assert run.provenance["stopping"]["reason"] == "reached" and run.is_reliable
    assert 0.8 * 0.008 <= run.evidence.std_error <= 0.008
    assert abs(run.evidence.log_z - SKEWED.log_z) < 4 * run.evidence.std_error
    looks = run.provenance["stopping"]["looks"]
    assert looks[0][0] == FIRST_LOOK and looks[-1] == [run.draws, run.evidence.std_error]
    found = {check.name: check for check in run.diagnostics}
    assert found["target_se"].passed and "interrupted" not in found


def test_a_run_that_cannot_says_why() -> None:
    target = target_of(SKEWED.source, SKEWED.data)
    run = sampled(
        "gibbs",
        target,
        seed=SEED,
        target_se=1e-4,
        max_draws=400,
        base=BASE,
        bootstrap=0,
        progress=False,
    )
    assert run.draws == 400 and run.warnings == ("target_se",)
    (failed,) = (check for check in run.diagnostics if not check.passed)
    assert "wanted 0.0001, after 400 draws a chain: these are the most allowed" in failed.message


@pytest.mark.parametrize("method", ["joint", "gibbs"])
def test_what_is_shown_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live view comes to stderr, and the draws are the same without it."""
    target = target_of(SKEWED.source, SKEWED.data)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("stanct.work.progress._can_draw", lambda: True)
    monkeypatch.setattr("stanct.work.progress.LEAST", 0.0)
    monkeypatch.setattr("stanct.samplers._watch.LEAST_WAIT", 0.0)
    monkeypatch.setattr("stanct.samplers._watch.MOST_SHARE", 1.0)
    settings = {"seed": SEED, "draws": 400, "base": BASE, "bootstrap": 0}
    shown = sampled(method, target, **settings)
    stream.seek(0)
    text = stream.read()
    quiet = sampled(method, target, **settings, progress=False)
    assert "log Z -" in text and "β " in text
    assert np.array_equal(shown.z, quiet.z) and shown.evidence == quiet.evidence


def test_a_broken_view_costs_no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("stanct.samplers._watch.live_text", broken)
    monkeypatch.setattr("stanct.samplers._watch.LEAST_WAIT", 0.0)
    target = target_of(SKEWED.source, SKEWED.data)
    run = sampled("gibbs", target, seed=SEED, draws=200, base=BASE, bootstrap=0)
    assert run.draws == 200


def test_live_text() -> None:
    run = sampled(
        "gibbs",
        target_of(SKEWED.source, SKEWED.data),
        seed=SEED,
        draws=200,
        base=BASE,
        bootstrap=0,
        progress=False,
    )
    text = live_text(np.array([[0.01, 0.02, 0.03, 0.99]]), run.evidence, 1_234_567.0)
    assert text.startswith("β █▁▁▁▁▁▁▄, log Z ") and text.endswith(" ± " + text.split("± ")[1])
    assert f"{run.evidence.log_z:.2f} ± {run.evidence.std_error:.2g}, 1.23M gradients/s" in text
