"""Ctrl-C and SIGTERM end a run soon, whatever its compiled code is doing."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from test_execution import PROGRAM

from stanct import load, sample, temper
from stanct.bases.scouts import annealed_scouts
from stanct.common.deadline import OutOfTime, deadline
from stanct.common.errors import TooLittleTimeError
from stanct.engines import cmdstan
from stanct.engines.embedded import compile_program
from stanct.path.gaussian import GaussianBase
from stanct.runs.tempered import TemperedRun
from stanct.samplers import auto, independence
from stanct.samplers._lanes import DOUBLING
from stanct.samplers._rounds import BaseDraws
from stanct.samplers._variables import Later
from stanct.targets.function_target import FunctionDensity
from stanct.work.execution import executing
from stanct.work.interrupts import Pace, Threads, end_if_left_behind, heard, in_threads

SECONDS = 3.0
# A density that never returns.
NEVER = "parameters {{ real x; }} model {{ real s = 0; while ({0}) s *= 2; x ~ normal(s, 1); }}"
SCRIPT = """
import stanct
from stanct.targets.density import Density
evaluate = Density.log_density
def told(*given):
    print("inside", flush=True)
    return evaluate(*given)
Density.log_density = told
model = stanct.temper("never.stan")
print("begun", flush=True)
model.sample(method="gibbs", progress=False)
"""

RELEASED = threading.Event()
pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems have other signals")


@pytest.fixture(scope="module")
def target():
    return target_of(PROGRAM, {"y": 1.5})


def signalled(number: int) -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()


def hanging(lane: list[int], size: int) -> int:
    """The first lane hangs in its third block, and the second one is quick."""
    lane[0] += 1
    if lane == [3]:
        RELEASED.wait()
    return size


@pytest.fixture(autouse=True)
def release():
    """No thread of this process hangs longer than its test."""
    RELEASED.clear()
    yield
    RELEASED.set()


def test_finished_blocks_are_kept_while_others_hang(target) -> None:
    start = time.monotonic()
    signalled(signal.SIGINT)
    with executing(target, "test", {}, seed=1, progress=False) as run:
        found = run.blocks("count", hanging, [[0], [10]], [5, 6, 7], final=True)
    assert found == ([[5, 6], [5, 6]], True)
    assert time.monotonic() - start < SECONDS


def test_warm_up_ends_too_and_says_what_was_kept(target, tmp_path: Path) -> None:
    for checkpoint, words in (
        (None, "With checkpoint=FOLDER"),
        (tmp_path, "are in the checkpoint"),
    ):
        start = time.monotonic()
        signalled(signal.SIGINT)
        with (
            pytest.raises(KeyboardInterrupt) as caught,
            executing(target, "test", {}, seed=1, checkpoint=checkpoint, progress=False) as run,
        ):
            run.blocks("warm-up", hanging, [[0]], [5, 6, 7])
        assert words in caught.value.__notes__[0]
        assert time.monotonic() - start < SECONDS


def test_sigterm_writes_the_checkpoint(target, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signalled(signal.SIGTERM)
    with (
        pytest.raises(SystemExit, match="143"),
        executing(target, "test", {}, seed=1, checkpoint=tmp_path, progress=False) as run,
    ):
        run.blocks("count", hanging, [[0]], [5, 6, 7])
    assert signal.getsignal(signal.SIGTERM) is before
    with executing(target, "test", {}, seed=1, checkpoint=tmp_path, progress=False) as run:
        again = run.blocks("count", lambda lane, size: lane[0], [[0]], [5, 6, 7])
    assert again == ([[5, 6, 2]], False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("wait", [0.05, 0.2, 0.5])
def test_sigterm_in_a_compiler_ends_the_run(target, wait: float) -> None:
    """It is no RuntimeError of the compiler, wherever in it the signal comes.

    Python drops what is raised while it collects garbage, so that the signal may come again.
    """
    begun, ended = time.monotonic(), threading.Event()

    def kill() -> None:
        while not ended.wait(wait):
            os.kill(os.getpid(), signal.SIGTERM)

    with (
        pytest.raises(SystemExit, match="143"),
        executing(target, "test", {}, seed=1, progress=False),
    ):
        threading.Thread(target=kill).start()
        try:
            while time.monotonic() - begun < SECONDS:
                heard(lambda: numba.njit(lambda x: x + 1.0)(1.0))
                compile_program(
                    f"parameters {{ real x; }} model {{ x ~ normal({time.time()}, 1); }}"
                )
        finally:
            ended.set()
    assert time.monotonic() - begun < SECONDS


def test_a_handler_of_the_users_stays(target) -> None:
    told = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        with executing(target, "test", {}, seed=1, progress=False):
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == [signal.SIGTERM]


TERMINATED = """
import os, signal, threading
import stanct
model = stanct.temper("parameters { vector[3] x; } model { x ~ normal(0, 1); }")
base = stanct.GaussianBase([0.0] * 3, [[float(i == j) for i in range(3)] for j in range(3)])
options = dict(base=base, method=stanct.Gibbs(transitions=50), warmup=32, seed=1, progress=False)
model.sample(draws=32, **options)
threading.Timer(2.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
run = model.sample(draws=10**7, **options)
assert run.provenance["interrupted"] and run.draws > 0
run.save("kept")
print("kept", flush=True)
model.sample(draws=32, **options)
print("not reached", flush=True)
"""


def test_sigterm_returns_the_draws_and_ends_what_follows(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", TERMINATED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=120,
    )
    assert (found.stdout, found.returncode) == (b"kept\n", 143)
    assert load(tmp_path / "kept").draws > 0


def test_in_threads() -> None:
    assert in_threads(lambda k: k * k, 5, 2) == [0, 1, 4, 9, 16]
    with Threads(2) as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda k: 1 // k, 3, 2)
    ended = []

    def endless(k: int) -> None:
        try:
            while True:
                end_if_left_behind()
                time.sleep(1e-3)
        finally:
            ended.append(k)

    signalled(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        in_threads(endless, 2, 2)
    assert sorted(ended) == [0, 1]


def test_a_pace_covers_all_and_heeds_who_left() -> None:
    """Parts grow while they are quick, and are single items where they are slow."""
    pace = Pace()
    sizes = [part.stop - part.start for part in pace.parts(300)]
    assert sum(sizes) == 300 and sizes[:3] == [1, 2, 4] and max(sizes) <= 256
    assert [part for part in pace.parts(0)] == []
    slow = itertools.islice(pace.parts(600), 6)
    sizes = [part.stop - part.start for part in slow if not time.sleep(0.003)]
    assert sizes[0] > 1 and sizes[1:] == [1] * 5
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        try:
            for _ in Pace().parts(100):
                begun.set()
                go.wait(5)
        except KeyboardInterrupt:
            ended.set()

    pool = Threads(1)
    pool.submit(work)
    assert begun.wait(5)
    pool.shutdown()
    go.set()
    assert ended.wait(5)


@pytest.mark.parametrize(
    ("condition", "number", "status"),
    [
        ("1 < 2", signal.SIGINT, -signal.SIGINT),
        pytest.param("1 < 2", signal.SIGTERM, 143, marks=LONG),
        pytest.param("s < 1", signal.SIGINT, -signal.SIGINT, marks=LONG),
    ],
)
def test_a_program_that_never_returns(
    tmp_path: Path, condition: str, number: int, status: int
) -> None:
    (tmp_path / "never.stan").write_text(NEVER.format(condition))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            assert process.stdout and process.stdout.readline() == b"begun\n"
            if condition == "1 < 2":
                assert process.stdout.readline() == b"inside\n"
            time.sleep(1)
            process.send_signal(number)
            assert process.wait(3 * SECONDS) == status
        finally:
            process.kill()


def asked(target, method: str = "gibbs", warmup: int = 64) -> Any:
    options: dict[str, Any] = {"chains": 2, "draws": 600, "warmup": warmup, "seed": 1, "threads": 1}
    return sample(target, method, base="laplace", progress=False, **options)


def interrupting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int) -> None:
    """Let one call of a method be the moment of Ctrl-C."""
    made, calls = getattr(owner, name), itertools.count(1)

    def called(*args: Any, **settings: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return made(*args, **settings)

    monkeypatch.setattr(owner, name, called)


def test_what_follows_the_draws_can_be_cut_short(target, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(target)
    portion = BaseDraws.portion
    assert whole.base_delta.size > 2 * portion and not whole.provenance["interrupted"]
    with monkeypatch.context() as patch:
        # The rounds of the warm-up have one portion each, and the final draws begin with one.
        interrupting(patch, BaseDraws, "_make", len(DOUBLING) + 2)
        cut = asked(target)
    assert np.array_equal(cut.z, whole.z) and cut.provenance["interrupted"]
    assert np.array_equal(cut.base_delta, whole.base_delta[:portion])
    assert cut.evidence.std_error < 2 * whole.evidence.std_error
    with monkeypatch.context() as patch:
        interrupting(patch, type(target), "variables", 1)
        cut = asked(target)
    assert cut.provenance["interrupted"] and np.array_equal(cut.base_delta, whole.base_delta)
    # They are computed when they are asked for, and are those of the whole run.
    assert isinstance(cut.variables, Later) and cut.variables._all is None
    assert [*cut.variables] == [*whole.variables] and len(cut.variables) == len(whole.variables)
    assert all(np.array_equal(cut.variables[name], v) for name, v in whole.variables.items())
    assert type(pickle.loads(pickle.dumps(cut.variables))) is dict


def test_independent_draws_are_kept_while_they_are_put_together(
    target, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = asked(target, "independence")
    interrupting(monkeypatch, independence, "_draws", 1)
    cut = asked(target, "independence")
    assert cut.provenance["interrupted"] and np.array_equal(cut.z, whole.z)


def test_nobody_waits_for_checks_after_an_interrupt(
    target, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, type(target), "variables", 1)
    cut = asked(target, "auto", 150)
    assert "diagnostics" not in vars(cut) and cut.provenance["interrupted"]
    (step,) = cut.provenance["steps"]
    assert "failed" not in step and step["method"] == cut.method


@pytest.mark.parametrize("call", [1, 2])
def test_an_interrupt_of_the_checks_keeps_the_draws(
    target, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first run of the default, and after a further one."""
    made = auto.mendable
    monkeypatch.setattr(auto, "mendable", lambda checks: [*made(checks), "effective_size"])
    interrupting(monkeypatch, TemperedRun, "_checks", call)
    cut = asked(target, "auto", 150)
    assert cut.provenance["interrupted"] and cut.draws >= 600
    assert len(cut.provenance["steps"]) == call and "failed" not in cut.provenance["steps"][-1]
    assert cut.diagnostics


@pytest.mark.parametrize("listed", ["proc", "ps"])
def test_interrupted_chains_of_cmdstan_end(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to Python alone does not reach them, and Python waits for them in the end."""
    if listed == "ps":
        if shutil.which("ps") is None:
            pytest.skip("no ps on this machine")
        monkeypatch.setattr(cmdstan, "Path", lambda _: tmp_path / "nothing")
    data = str(tmp_path / "data.json")
    chain, other = (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"file={name}"])
        for name in (data, data + "x")
    )
    while not cmdstan._processes(f"file={data}"):
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt), cmdstan._ending_chains(data):
        raise KeyboardInterrupt
    assert chain.wait(5) == -signal.SIGTERM
    assert other.poll() is None
    other.kill()
    other.wait()


def left_at_work() -> list[threading.Thread]:
    """Threads that still work three seconds after everybody left them."""
    left = [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("stanct-") and thread.name != "stanct-tape"
    ]
    until = time.monotonic() + SECONDS
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in left if thread.is_alive()]


@pytest.mark.parametrize(
    "way", ["log_density", "log_density_gradient", "log_densities", "refusal", "function"]
)
def test_a_thread_that_was_left_ends_at_its_next_log_density(target, way: str) -> None:
    x = np.zeros(target.density.dimension)
    function = FunctionDensity(lambda x: (-0.5 * float(x @ x), -x), x.size)
    density: Any = function if way == "function" else target.density
    evaluate = getattr(density, "log_density" if way == "function" else way)

    def work() -> None:
        while not RELEASED.is_set():
            evaluate(x[None] if way == "log_densities" else x)

    with pytest.raises(OutOfTime), deadline(0.2):
        heard(work)
    assert left_at_work() == []
    evaluate(x[None] if way == "log_densities" else x)  # this thread goes on


def test_threads_end_with_the_one_that_made_them() -> None:
    """Nobody waits for what a thread waits for, once that thread was left behind."""
    begun = threading.Event()

    def endless(_: int) -> None:
        begun.set()
        while not RELEASED.is_set():
            end_if_left_behind()
            time.sleep(0.01)

    with Threads(1) as pool:
        future = pool.submit(in_threads, endless, 2, 2)
        assert begun.wait(5)
    assert isinstance(future.exception(timeout=5), KeyboardInterrupt)
    assert left_at_work() == []


def test_scouts_that_were_left_end(target) -> None:
    base = GaussianBase(np.zeros(target.density.dimension), np.eye(target.density.dimension))
    scouts = partial(
        annealed_scouts, target.density.borrow, base, seed=np.random.SeedSequence(1), threads=2
    )
    scouts(particles=8)  # compiles
    with pytest.raises(OutOfTime), deadline(0.5):
        scouts(particles=300_000)
    assert left_at_work() == []


# Far from its mode, an evaluation takes a third of a second.
DECAY = """
functions { vector decay(real t, vector y, real k) { return -k * y; } }
data { array[3] real y; }
parameters { real<lower=0> k; }
model {
  array[3] vector[1] s = ode_rk45(decay, [1.0]', 0.0, {1.0, 2.0, 3.0}, k);
  k ~ exponential(1);
  for (i in 1:3) y[i] ~ normal(s[i][1], 0.1);
}
"""


def test_a_search_ends_with_its_run() -> None:
    with pytest.raises(TooLittleTimeError, match="max_seconds=2 passed"):
        temper(DECAY).sample(
            {"y": [0.6, 0.35, 0.2]}, max_seconds=2, seed=1, progress=False, search_radius=100.0
        )
    assert left_at_work() == []


def ran(script: str | Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, which imports from these folders, too."""
    return subprocess.run(
        [sys.executable, *(["-c", script] if isinstance(script, str) else [script])],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *folders)))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "beside_it"),
    [("html", True), ("statistics", False),
     pytest.param("html", False, marks=LONG), pytest.param("statistics", True, marks=LONG)],
)  # fmt: skip
def test_a_script_named_as_a_standard_module_runs_or_is_an_error(
    name: str, beside_it: bool, tmp_path: Path
) -> None:
    """Where the module is needed. No thread of ours waits for what the script waits for."""
    file = tmp_path / f"{name}.py"
    file.write_text("import stanct\nstanct.temper('parameters { real x; } model { }')\n")
    if beside_it:
        shutil.copy(file, tmp_path / "other.py")
        file = tmp_path / "other.py"
    done = ran(file)
    told = done.returncode == 1 and "Error" in done.stderr and name in done.stderr
    assert told or (done.returncode == 0 and not done.stderr), done.stderr
