"""`max_seconds` ends a run in time, with honest errors or an error that says what there is."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from sampled import sampled
from test_execution import BASE, PROGRAM, assert_same

import stanct
from stanct.bases import local
from stanct.bases.fits import fit_base
from stanct.cli.main import main
from stanct.common.deadline import (
    OutOfTime,
    at_most,
    completed,
    deadline,
    ended_by,
    heed,
    out_of_time,
    result,
)
from stanct.common.errors import EngineError, TooLittleTimeError
from stanct.engines import cmdstan, embedded, native
from stanct.engines.tape import _TapeThread
from stanct.samplers import auto
from stanct.samplers._variables import Later
from stanct.work.interrupts import heard, in_threads

SLACK = 4.0
# Far more draws than the time allows, after a short warm-up.
MANY_DRAWS: dict[str, dict[str, Any]] = {
    "gibbs": {"draws": 10**6, "warmup": 32, "transitions": 50},
    "joint": {"draws": 10**6, "warmup": 150, "bootstrap": 0},
    "parallel_tempering": {"draws": 10**6, "warmup": 32},
    "ais": {"draws": 64 * 10**4, "temperatures": 20},
    "independence": {"draws": 10**6},
}
RELEASED = threading.Event()


@pytest.fixture(autouse=True)
def release():
    """No thread of this process hangs longer than its test."""
    RELEASED.clear()
    yield
    RELEASED.set()


@pytest.fixture(scope="module")
def target():
    return target_of(PROGRAM, {"y": 1.5})


def run(method: str, target: Any, **options: Any) -> Any:
    given = {"base": BASE, "seed": 5, "progress": False, **MANY_DRAWS[method], **options}
    return sampled(method, target, **given)


def enough(method: str, target: Any, **options: Any) -> float:
    """Seconds in which this machine, now, reaches the kept draws and makes some."""
    run(method, target, draws=128, **options)  # compiles the kernels, and imports ArviZ
    begun = time.monotonic()
    run(method, target, draws=128, **options)
    return 0.3 + 2 * (time.monotonic() - begun)


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("method", MANY_DRAWS)
def test_a_run_ends_in_time_with_honest_errors(target, method: str) -> None:
    limit = enough(method, target)
    begun = time.monotonic()
    found = run(method, target, max_seconds=limit)
    assert limit <= time.monotonic() - begun < 4 * limit + SLACK
    assert 0 < found.draws < MANY_DRAWS[method]["draws"]
    (check,) = [check for check in found.diagnostics if check.name == "max_seconds"]
    assert not check.passed and f"max_seconds={limit:g} passed: {found.draws} of" in check.message
    assert "interrupted" not in found.warnings and not found.provenance["interrupted"]
    assert 0 < found.evidence.std_error < 1
    assert found.settings["max_seconds"] == limit


def test_a_run_that_is_done_in_time_is_the_same_run(target) -> None:
    one, other = (run("gibbs", target, draws=64, max_seconds=limit) for limit in (None, 1e6))
    assert_same(one, other)
    assert other.time_limit is None


@pytest.mark.usefixtures("uncompared")
def test_target_se_tells_of_the_time(target) -> None:
    limit = enough("gibbs", target)
    found = run("gibbs", target, target_se=1e-6, max_draws=10**6, max_seconds=limit)
    (check,) = [check for check in found.diagnostics if check.name == "target_se"]
    assert not check.passed and "the time was over" in check.message
    assert found.provenance["stopping"]["reason"] == "max_seconds"


def slow(x: np.ndarray) -> tuple[float, np.ndarray]:
    RELEASED.wait(0.05)
    return -0.5 * float(x @ x), -x


@pytest.mark.parametrize(("folder", "words"), [(None, "checkpoint=FOLDER"), ("here", "finished")])
def test_too_little_time_for_any_draw(tmp_path: Path, folder: str | None, words: str) -> None:
    target = stanct.FunctionTarget(stanct.FunctionDensity(slow, 2))
    begun = time.monotonic()
    with pytest.raises(stanct.SamplingError, match=f"max_seconds=0.5 passed before .*{words}"):
        run(
            "gibbs",
            target,
            base=stanct.GaussianBase(np.zeros(2), np.eye(2)),
            max_seconds=0.5,
            checkpoint=folder and tmp_path / folder,
        )
    # The check of the function takes 50 of its calls.
    assert time.monotonic() - begun < 4 * SLACK


def test_a_bracket_needs_both_directions(target) -> None:
    exact = {"mu": 0.3, "t": 1.0}
    given = {"base": BASE, "seed": 5, "progress": False, "exact": exact, "temperatures": 20}
    with pytest.raises(stanct.SamplingError, match="max_seconds"):
        sampled("bidirectional", target, draws=64 * 10**4, max_seconds=0.5, **given)


@LONG
def test_more_time_goes_on_from_the_checkpoint(target, tmp_path: Path) -> None:
    long: Any = {"draws": 4000, "transitions": 60}
    begun = time.monotonic()
    whole = run("gibbs", target, **long)
    third = (time.monotonic() - begun) / 3
    part = None
    while part is None:  # a machine that is busy now has only finished steps, and goes on
        with contextlib.suppress(TooLittleTimeError):
            part = run("gibbs", target, **long, max_seconds=third, checkpoint=tmp_path)
    assert part.draws < 4000
    again = run("gibbs", target, **long, max_seconds=0, checkpoint=tmp_path)
    assert part.draws <= again.draws < 4000 and "interrupted" in again.warnings
    assert np.array_equal(again.z, whole.z[:, : again.draws])
    assert_same(run("gibbs", target, **long, checkpoint=tmp_path), whole)


@dataclass(frozen=True, kw_only=True)
class Hanging(stanct.Gibbs):
    """A method that never returns."""

    def run(self, job: Any) -> Any:
        in_threads(lambda _: RELEASED.wait(), 1, 1)


@pytest.mark.usefixtures("uncompared")
def test_it_bounds_the_escalation(target, monkeypatch: pytest.MonkeyPatch) -> None:
    first = auto._Step(stanct.Gibbs(transitions=1), 20, "test")
    monkeypatch.setattr(auto, "_choice", lambda job, start: first)
    monkeypatch.setattr(auto, "_next", lambda *given: auto._Step(Hanging(), 10**6, "test"))
    limit = 1 + enough("gibbs", target, warmup=150)
    begun = time.monotonic()
    options: Any = {"draws": 20, "warmup": 150, "seed": 5, "progress": False, "base": BASE}
    found = stanct.sample(target, stanct.Auto(), max_seconds=limit, **options)
    assert time.monotonic() - begun < 4 * limit + SLACK
    assert found.draws == 20 and len(found.provenance["steps"]) == 1
    (check,) = [check for check in found.diagnostics if check.name == "max_seconds"]
    assert "not what follows them, such as a further run" in check.message


@pytest.mark.usefixtures("uncompared")
def test_a_further_run_counts_only_where_it_is_better(target) -> None:
    short, longer = (run("gibbs", target, draws=draws) for draws in (16, 2500))
    assert len(longer.warnings) < len(short.warnings)

    class Ledger:
        ledger = type("Nothing", (), {"record": staticmethod(dict)})

    job: Any = Ledger()
    few, many = [*longer.warnings], [*short.warnings]
    assert auto._better(longer, few, short, many, job).draws == 2500
    found = auto._better(longer, few, short, many, job)
    # Nobody waits for the checks of the kept one.
    assert found.provenance["interrupted"] and "diagnostics" not in vars(found)
    assert auto._better(short, many, longer, few, job) is longer


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.stan").write_text(PROGRAM)
    (tmp_path / "data.json").write_text('{"y": 1.5}')
    files = [str(tmp_path / "model.stan"), str(tmp_path / "data.json")]
    words = ["--method", "gibbs", "--set", "transitions=200", "--warmup", "32", "--quiet"]
    words = ["evidence", *files, *words, "--base", "laplace", "--seed", "1", "--draws"]
    begun = time.monotonic()
    assert main([*words, "16"]) == 0
    limit = str(round(1 + time.monotonic() - begun))
    assert main([*words, "1000000", "--max-seconds", limit]) == 0
    told = capsys.readouterr()
    assert f"Warning, max_seconds: max_seconds={limit} passed" in told.err
    assert "log Z" in told.out


def test_a_deadline_is_heard_once() -> None:
    never = Future[int]()
    with deadline(0) as outer:
        with pytest.raises(OutOfTime):
            result(never)
        assert outer.heard and out_of_time() and ended_by() == "max_seconds"
        heed()
        with deadline(None) as inner, deadline(100):
            assert inner is outer and not out_of_time() and ended_by() == "interrupted"
    assert not out_of_time()
    done = Future[int]()
    done.set_result(3)
    with deadline(0):
        assert result(done) == 3
        with pytest.raises(OutOfTime):
            completed([done])
    failed = Future[int]()
    failed.set_exception(TimeoutError("its own"))
    with deadline(0), pytest.raises(TimeoutError, match="its own"):
        result(failed)


def test_a_call_of_the_engine_is_left_behind() -> None:
    begun, thread = time.monotonic(), _TapeThread()
    with deadline(0.1), pytest.raises(OutOfTime):
        thread.call(RELEASED.wait)
    assert not thread.works and time.monotonic() - begun < SLACK


def test_a_limit_within_a_deadline() -> None:
    """The earlier of the two ends the body, each with its own exception."""
    never = Future[int]()
    with deadline(100) as outer:
        with pytest.raises(TimeoutError), at_most(0.1):
            result(never)
        assert not outer.heard
    with deadline(0.1) as outer, pytest.raises(OutOfTime), at_most(100):
        result(never)
    assert outer.heard
    with pytest.raises(TimeoutError), at_most(0.1):
        result(never)


@LONG
def test_an_ascent_that_never_ends_is_left_out(target, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    ascend = embedded.pathfinder

    def pathfinder(*arguments: Any, **settings: Any) -> Any:
        calls.append(settings["seed"])
        return heard(never) if len(calls) == 2 else ascend(*arguments, **settings)

    monkeypatch.setattr(embedded, "pathfinder", pathfinder)
    monkeypatch.setattr(local, "LONGEST", 0.3)
    monkeypatch.setattr(local, "MOST_EVALUATIONS", 0)
    begun = time.monotonic()
    seed = np.random.SeedSequence(1)
    fitted = fit_base(target, "pathfinder", chains=2, seed=seed, nuts=embedded.Nuts())
    assert fitted.base.dimension == 2 and len(calls) > 2
    monkeypatch.setattr(embedded, "pathfinder", lambda *_, **__: heard(never))
    monkeypatch.setattr(local, "LONGEST", 0.01)
    with pytest.raises(EngineError, match="L-BFGS did not end"):
        fit_base(target, "pathfinder", chains=2, seed=seed, nuts=embedded.Nuts())
    assert time.monotonic() - begun < 6 * SLACK


LASSO = """
import sys
sys.path.insert(0, "examples/lasso_horseshoe")
import run as lasso
from stanct.bases import local
from stanct.bases.fits import fit_base
local.LONGEST, local.MOST_EVALUATIONS = 2.0, 1000
data = lasso.split(*lasso.simulate(40, 8, 1), 3, 1)
data |= lasso.settings_of("lasso", data)
model = lasso.stanct.temper(lasso.HERE / "lasso.stan")
for seed in (1, 2):
    run = model.sample(
        data, "joint", chains=2, draws=800, seed=seed, progress=False, engine="embedded"
    )
    print(run.evidence.log_z, run.evidence.std_error)
"""


@LONG
def test_stans_own_line_search_may_never_end() -> None:
    """With the second seed, an ascent of the non-centred lasso does not."""
    found = subprocess.run(
        [sys.executable, "-c", LASSO],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
    )
    assert found.returncode == 0
    one, other = (tuple(map(float, line.split())) for line in found.stdout.splitlines())
    assert abs(one[0] - other[0]) < 4 * math.hypot(one[1], other[1]) < 0.8


def test_the_time_counts_from_its_beginning() -> None:
    with deadline(5, since=time.monotonic() - 10), pytest.raises(OutOfTime):
        heed()


ENDLESS = {
    "transformed data": (
        "transformed data { real s = 0; for (i in 1:2000000000) s += sqrt(i * 1.0); }"
        "parameters { real x; } model { x ~ normal(s, 1); }",
        "TooLittleTimeError",
    ),
    "model": (
        "parameters { real x; } model { int k = 0; while (k < 1) k = 0; x ~ normal(k, 1); }",
        "TooLittleTimeError",
    ),
    "generated quantities": (
        "parameters { real x; } model { x ~ normal(0, 1); }"
        "generated quantities { int k = 0; while (k < 1) k = 0; }",
        "max_seconds|TooLittleTimeError",  # on a machine that is busy now
    ),
}
SCRIPT = """
import sys, time
import stanct
model = stanct.temper(sys.argv[1])
begun = time.monotonic()
try:
    run = model.sample(draws=50, max_seconds=2, seed=1, progress=False)
    told = [*run.warnings, run.expect("x")]  # a parameter waits for nothing
except stanct.SamplingError as error:
    told = type(error).__name__
print(told, time.monotonic() - begun, flush=True)
sys.exit(3)
"""


@LONG
@pytest.mark.parametrize("block", ENDLESS)
def test_blocks_without_an_end(block: str) -> None:
    """The process then ends with its own status, though a thread is left in compiled code."""
    source, words = ENDLESS[block]
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, source],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert re.search(words, found.stdout) and found.returncode == 3
    assert float(found.stdout.split()[-1]) < 2 + 2 * SLACK


def test_compilers_end_with_the_time(cmdstan_home) -> None:
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(native._output, ["sh", "-c", "sleep 60; true"], cmdstan_home)
        while not native._compilers and not waiting.done():
            time.sleep(0.01)
        native.end_compilers()
        with pytest.raises(EngineError, match="could not compile"):
            waiting.result()
    assert time.monotonic() - begun < SLACK and not native._compilers


@LONG
def test_a_cmdstan_that_compiles_ends_with_the_time(
    cmdstan_home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that nobody has compiled, whose compilation takes longer than the run may."""
    monkeypatch.setenv("CMDSTAN", str(cmdstan_home.path))
    monkeypatch.setenv("STANCT_CACHE", str(tmp_path))
    name = f"x{time.time_ns()}"
    model = stanct.temper(f"parameters {{ real {name}; }} model {{ {name} ~ std_normal(); }}")
    begun = time.monotonic()
    with pytest.raises(TooLittleTimeError, match="max_seconds=4 passed"):
        model.sample(method="joint", engine="cmdstan", max_seconds=4, progress=False)
    assert time.monotonic() - begun < 4 + SLACK
    assert not cmdstan._processes(str(tmp_path))


@LONG
def test_variables_that_a_run_left_for_later_heed_ctrl_c(target) -> None:
    """Their computation may never end."""
    run = sampled("gibbs", target, draws=20, progress=False)

    waiting = replace(run, variables=Later(never, never, None))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        waiting.expect("mu")
    assert time.monotonic() - begun < SLACK


def never() -> dict[str, np.ndarray]:
    RELEASED.wait(60)
    return {}


@pytest.mark.parametrize("patience", [pytest.param(0.3, marks=LONG), None])
def test_nobody_waits_for_ever_for_generated_quantities(
    target, tmp_path: Path, patience: float | None
) -> None:
    """Parameters come at once, and a run is saved with what there is."""
    run = sampled("gibbs", target, draws=20, progress=False)
    waiting = replace(run, variables=Later(never, lambda: run.variables, patience))
    begun = time.monotonic()
    assert waiting.expect("mu").value == run.expect("mu").value
    if patience is None:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.warns(RuntimeWarning, match="goes on without them"):
        waiting.save(tmp_path / "run")
    assert time.monotonic() - begun < SLACK
    assert_same(stanct.load(tmp_path / "run"), run)
    assert set(waiting.variables) == set(run.variables)


@LONG
def test_generated_quantities_are_waited_for_where_they_return(target) -> None:
    run = sampled("gibbs", target, draws=20, progress=False)
    more = {**run.variables, "y": np.ones((4, 20))}
    later = Later(lambda: more, lambda: run.variables, 10.0)
    assert later["y"] is more["y"] and "y" in later and "typo" not in later
    assert list(later) == list(more)
