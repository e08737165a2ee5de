"""What a run foretells of itself: the two laws, every method, too little time, saved runs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SEED, target_of
from sampled import sampled
from targets import SKEWED
from test_deadline import BASE as PLAIN
from test_deadline import MANY_DRAWS, PROGRAM, enough
from test_execution import assert_same

import stanct
from stanct.cli.main import main
from stanct.common.deadline import deadline
from stanct.path.gaussian import GaussianBase
from stanct.runs.evidence_run import EvidenceRun
from stanct.samplers import _forecast
from stanct.samplers._forecast import Clock, Trial, foretell
from stanct.samplers._precision import Precision
from stanct.work.ledger import Ledger

BASE = GaussianBase(np.array([-0.7]), np.array([[1.5]]))
# Settings of a short run, and the events after which forecasts are made.
METHODS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "joint": (
        {"draws": 600, "warmup": 150, "engine": "embedded"},
        ["100 draws of round 1", "round 1", "100 draws of joint"],
    ),
    "pseudo_extended": (
        {"draws": 600, "warmup": 150, "copies": 2, "engine": "embedded"},
        ["100 draws of round 1", "round 1", "100 draws of pseudo-extended"],
    ),
    "gibbs": ({"draws": 1000, "warmup": 200}, ["the warm-up", "100 draws"]),
    "simulated_tempering": ({"draws": 1000, "warmup": 200}, ["the warm-up", "100 draws"]),
    "parallel_tempering": ({"draws": 600, "warmup": 200}, ["the warm-up", "100 scans"]),
    "ais": ({"draws": 128, "temperatures": 40}, ["the pilots", "32 particles"]),
    "adiabatic": ({"draws": 64}, ["the pilots"]),
    "power_posterior": (
        {"draws": 200, "warmup": 150, "rungs": 8},
        ["3 of 8 powers", "4 of 8 powers"],
    ),
    "independence": ({"draws": 2000}, ["500 draws"]),
}


def run(method: str, **options: Any) -> EvidenceRun:
    given = {"base": BASE, "seed": SEED, "progress": False, **METHODS[method][0], **options}
    return sampled(method, target_of(SKEWED.source, SKEWED.data), **given)


@pytest.fixture(scope="module")
def runs() -> dict[str, EvidenceRun]:
    return {method: run(method) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_foretells(method: str, runs: dict[str, EvidenceRun]) -> None:
    """Gradients and errors depend on the seed alone, and the seconds also on the machine."""
    table = runs[method].forecast
    assert table is not None and list(table.index) == [*METHODS[method][1], "came"]
    came = table.loc["came"]
    told: Any = table.drop(index="came")
    assert (told["draws"] == came["draws"]).all()
    assert came["gradients"] == runs[method].gradients
    assert came["std_error"] == runs[method].evidence.std_error
    assert told["gradients"].between(came["gradients"] / 1.5, 1.5 * came["gradients"]).all(), table
    known = told["std_error"].dropna()
    assert len(known) >= 1 and known.between(came["std_error"] / 3, 3 * came["std_error"]).all()
    assert (told["at"] <= told["seconds"]).all() and (told["at"] <= came["seconds"]).all()


def test_an_aim_is_foretold_in_draws() -> None:
    done = run("gibbs", target_se=0.01, draws=2500)
    table = done.forecast
    assert table is not None and done.provenance["stopping"]["reason"] == "reached"
    told: Any = table.iloc[0]
    assert done.draws / 2 < told["draws"] < 2 * done.draws
    assert 0.005 < told["std_error"] <= 0.01


def test_forecasts_change_no_draw(
    runs: dict[str, EvidenceRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("_alternation", "_chains", "_annealing"):
        monkeypatch.setattr(f"stanct.samplers.{module}.foretell", lambda *given: "")
    for method in ("gibbs", "joint", "ais"):
        assert_same(run(method), runs[method])


def test_an_estimator_that_fails_costs_no_draws(
    runs: dict[str, EvidenceRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: Any) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr("stanct.samplers._annealing._error", broken)
    done = run("ais")
    assert_same(done, runs["ais"])
    table: Any = done.forecast
    assert list(table["std_error"].isna()) == [True, True, False]


def told(
    trial: Trial,
    error: float = 0.2,
    *,
    aim: Precision | None = None,
    threads: int = 2,
    resumed: bool = False,
    spent: int = 1000,
    error_of: Callable[[], float] | None = None,
    effective: float | None = None,
) -> dict[str, Any]:
    """The record of a forecast in a run of four chains that has just begun."""
    ledger = Ledger()
    ledger.gradients = spent
    said: list[str] = []
    job: Any = SimpleNamespace(
        ledger=ledger,
        chains=4,
        plan=SimpleNamespace(threads=threads, max_seconds=None),
        execution=SimpleNamespace(executor=None, resumed=resumed, say=said.append),
        borrow=None,
    )
    foretell(
        job, aim or Precision(None, 1000), BASE, trial, error_of or (lambda: error),
        None if effective is None else lambda: effective,
    )  # fmt: skip
    (record,) = ledger.found["forecasts"]
    assert said[0].startswith(f"Forecast after {trial.after}: ")
    # What has passed since the run began depends on the machine.
    return {**record, "ahead": record["seconds"] - record["at"]}


def test_the_two_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    # 100 draws took 2,000 gradients in 4 seconds, and 1,000 are wanted.
    plain = told(Trial("x", 100, 2000, 4.0))
    assert plain["ahead"] == pytest.approx(40, abs=1e-2)
    assert plain["gradients"] == 1000 + 20_000 and plain["draws"] == 1000
    assert plain["std_error"] == pytest.approx(0.2 / math.sqrt(10))
    # 5,000 gradients come before, a kept draw costs twice as much, and 50 are there.
    more = told(Trial("x", 100, 2000, 4.0, planned=5000, factor=2, kept=50, uncounted=300))
    assert more["gradients"] == 1000 + 300 + 5000 + 40 * 950
    assert more["ahead"] == pytest.approx(10 + 950 * 0.08, abs=1e-2)
    # There are 4 × 1,000 × 8 draws of the base.
    monkeypatch.setattr(_forecast, "_value_seconds", lambda job, base: 0.001)
    base = told(Trial("x", 100, 2000, 4.0, beside=8))
    assert base["ahead"] == pytest.approx(40 + 32_000 * 0.001, abs=1e-2)
    # Densities without a gradient are no gradients.
    assert told(Trial("x", 100, 2000, 4.0, valued=True))["gradients"] == 1000
    nothing = told(Trial("x", 100, 2000, 4.0), math.nan)
    assert nothing["std_error"] is None and nothing["draws"] == 1000


def test_an_aim_in_numbers() -> None:
    # The error of 100 draws is .2, so that .05 takes 1,600, and a tenth more for a second look.
    found = told(Trial("x", 100, 2000, 4.0), aim=Precision(0.05, 1000))
    assert 1760 <= found["draws"] <= 1761
    assert found["std_error"] == pytest.approx(0.2 / math.sqrt(17.6), rel=1e-3)
    assert found["ahead"] == pytest.approx(17.6 * 4, abs=0.1)
    assert told(Trial("x", 100, 2000, 4.0), aim=Precision(0.05, 1000, 900))["draws"] == 900
    assert told(Trial("x", 100, 2000, 4.0), aim=Precision(5.0, 1000))["draws"] in (220, 221)
    assert told(Trial("x", 100, 2000, 4.0), math.nan, aim=Precision(0.05, 10))["draws"] == 200
    islands = Precision(0.05, 1000, unit=32, begin=64)
    assert told(Trial("x", 64, 2000, 4.0), aim=islands)["draws"] == 1152


def test_looks_take_time() -> None:
    """A look after 100 draws takes a twentieth of a second, and looks grow with the draws."""

    def slow() -> float:
        time.sleep(0.05)
        return 0.2

    looks = sum(Precision(0.05, 1000).looks_until(1760))
    found = told(Trial("x", 100, 2000, 4.0), aim=Precision(0.05, 1000), error_of=slow)
    assert found["ahead"] > 17.6 * 4 + looks * 0.05 / 100 - 0.1
    began = time.perf_counter()
    plain = told(Trial("x", 100, 2000, 4.0), error_of=slow)
    assert plain["ahead"] < 41 + time.perf_counter() - began


def test_a_checkpoint_gives_draws_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forecast, "_gradient_seconds", lambda job, base: 0.01)
    fast = Trial("x", 100, 2000, 1e-6)
    assert told(fast)["ahead"] == pytest.approx(0, abs=1e-2)
    assert told(fast, resumed=True)["ahead"] == pytest.approx(20_000 * 0.01 / 2, abs=1e-2)
    slow = Trial("x", 100, 2000, 40.0)
    assert told(slow, resumed=True)["ahead"] == pytest.approx(400, abs=1e-2)


def test_densities_are_timed() -> None:
    calls: list[int] = []

    def slow(x: np.ndarray) -> tuple[float, np.ndarray]:
        time.sleep(0.005)
        calls.append(1)
        return -0.5 * float(x @ x), -x

    density = stanct.FunctionDensity(slow, 1)
    job: Any = SimpleNamespace(borrow=density.borrow, density=density)
    assert _forecast._value_seconds(job, BASE) >= 0.005
    assert 2 <= len(calls) <= _forecast.ROUNDS, "a few calls of a slow function are enough"
    calls.clear()

    def held_up(x: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(1)
        time.sleep(0.5 if len(calls) == 1 else 0)
        return -0.5 * float(x @ x), -x

    once: Any = SimpleNamespace(density=stanct.FunctionDensity(held_up, 1))
    assert _forecast._value_seconds(once, BASE) < 0.1
    quick: Any = SimpleNamespace(density=target_of(SKEWED.source, SKEWED.data).density)
    assert 0 < _forecast._value_seconds(quick, BASE) < 0.005
    assert _forecast._gradient_seconds(job, BASE) >= 0.005


def test_a_clock_leaves_out_what_it_is_told() -> None:
    clock = Clock()
    with clock.paused():
        time.sleep(0.2)
    clock.stop()
    first = clock.seconds
    time.sleep(0.01)
    assert first == clock.seconds < 0.2
    clock.restart()
    assert clock.seconds < 0.2


@pytest.mark.usefixtures("uncompared")
def test_too_little_time_is_told_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    target = target_of(PROGRAM, {"y": 1.5})
    limit = enough("gibbs", target)
    options = {**MANY_DRAWS["gibbs"], "base": PLAIN, "seed": 5}
    done = sampled("gibbs", target, max_seconds=limit, **options)
    err = capsys.readouterr().err
    assert f"max_seconds={limit:g} ends the run " in err and "of 1000000" not in err
    first = done.provenance["forecasts"][0]
    assert first["enough_time"] is False and first["draws"] == 10**6
    assert 0 <= first["draws_in_time"] < 10**6
    assert "max_seconds" in done.warnings
    calm = sampled("gibbs", target, max_seconds=10**5, **{**options, "draws": 64})
    assert all(one["enough_time"] is True for one in calm.provenance["forecasts"])
    assert "max_seconds" not in capsys.readouterr().err


def test_what_the_time_allows() -> None:
    with deadline(100):
        found = told(Trial("x", 100, 2000, 4.0, planned=1000, kept=50), aim=Precision(None, 10_000))
    # 1,000 gradients take 2 of 100 seconds, and each draw .04.
    assert found["enough_time"] is False
    assert found["draws_in_time"] == pytest.approx(50 + 98 / 0.04, rel=0.05)
    with deadline(1):
        assert told(Trial("x", 100, 2000, 4.0, planned=1000))["draws_in_time"] == 0
    with deadline(1000):
        assert told(Trial("x", 100, 2000, 4.0))["enough_time"] is True
    assert told(Trial("x", 100, 2000, 4.0))["enough_time"] is None


def test_words() -> None:
    record = {
        "seconds": 1234.0, "draws": 2500, "std_error": 0.0312, "enough_time": True, "bound": False,
    }  # fmt: skip
    words = _forecast.in_words(record, Precision(None, 2500), None)
    assert words == "log Z ± 0.031, 2500 draws a chain, 21 min in all"
    words = _forecast.in_words({**record, "seconds": 9.87}, Precision(0.01, 125), None)
    assert words.endswith("9.9 s in all; these are the most draws allowed, and target_se=0.01 is "
                          "not reached")  # fmt: skip
    late = {**record, "enough_time": False, "draws_in_time": 700}
    words = _forecast.in_words(late, Precision(None, 2500), 60)
    assert words.endswith("max_seconds=60 ends the run after some 700 draws a chain")
    words = _forecast.in_words({**late, "draws_in_time": 0}, Precision(None, 2500), 60)
    assert words.endswith("ends the run before there are draws that count")
    assert _forecast._time(7200 * 60) == "1.2e+02 h"


def test_means_are_foretold_where_they_are_an_aim() -> None:
    """Ten effective draws of a hundred: a thousand take ten thousand, and a tenth more."""
    aim = Precision(0.02, 2500, effective=1000)
    record = told(Trial("x", 100, 2000, 4.0), 0.02, aim=aim, effective=10)
    words = _forecast.in_words(record, aim, None)
    assert record["draws"] == pytest.approx(11_000, abs=1)
    assert words.startswith("log Z ± 0.0019, means from 1,100 effective draws, 1100")


def test_without_an_error_an_aim_gives_a_bound() -> None:
    trial, none = Trial("x", 100, 2000, 4.0), lambda: math.nan
    record = told(trial, aim=Precision(0.01, 2500), error_of=none)
    words = _forecast.in_words(record, Precision(0.01, 2500), None)
    assert words.startswith("at most 50000 draws a chain, ")
    record = told(trial, aim=Precision(None, 2500), error_of=none)
    assert _forecast.in_words(record, Precision(None, 2500), None)[:4] == "2500"
    late = {**record, "enough_time": False, "draws_in_time": 700, "bound": True}
    words = _forecast.in_words(late, Precision(0.01, 125), 60)
    assert words.endswith("max_seconds=60 may end the run after some 700 draws a chain")


def test_before_the_base_is_refitted_an_aim_gives_a_bound() -> None:
    """The draws that count were worth up to ten of those before."""
    trial = Trial("round 1", 100, 2000, 4.0, refitted=True)
    aim = Precision(0.01, 5000)
    words = _forecast.in_words(told(trial, 0.1, aim=aim), aim, None)
    assert words.startswith("log Z ± 0.0095, at most 11001 draws a chain, ")
    assert not told(trial, 0.1, aim=Precision(None, 2500))["bound"]
    assert not told(replace(trial, refitted=False), 0.1, aim=aim)["bound"]


def test_islands_that_are_resampled_tell_a_bound_first(capsys: pytest.CaptureFixture[str]) -> None:
    done = run("ais", target_se=0.2, resample=True, progress=True)
    first, second = (
        line for line in capsys.readouterr().err.splitlines() if line.startswith("Forecast")
    )
    assert first.startswith("Forecast after the pilots: at most 2560 draws a chain, ")
    assert second.startswith("Forecast after 32 particles: log Z ± ") and "most" not in second
    table: Any = done.forecast
    assert table["draws"].iloc[0] == 2560 and table["draws"].iloc[1] == table["draws"].iloc[2]


def test_it_is_saved(runs: dict[str, EvidenceRun], tmp_path: Path) -> None:
    done = runs["gibbs"]
    done.save(tmp_path / "run")
    again: Any = stanct.load(tmp_path / "run")
    assert again.forecast.equals(done.forecast)
    path = tmp_path / "run" / "run.json"
    head = json.loads(path.read_text())
    del head["provenance"]["forecasts"]
    path.write_text(json.dumps(head))
    older: Any = stanct.load(tmp_path / "run")
    assert older.forecast is None


def test_the_command_line_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.stan").write_text(SKEWED.source)
    data = {name: np.asarray(value).tolist() for name, value in (SKEWED.data or {}).items()}
    (tmp_path / "data.json").write_text(json.dumps(data))
    words = ["evidence", str(tmp_path / "model.stan"), str(tmp_path / "data.json"), "--seed", "1"]
    assert main([*words, "--method", "gibbs", "--draws", "300", "--warmup", "64"]) == 0
    err = capsys.readouterr().err
    assert "Forecast after the warm-up: log Z ± " in err and "300 draws a chain" in err
    assert "; came " not in err  # `run.forecast` has it
