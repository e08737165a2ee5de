"""Pools by name, and executors that are closed, broken, without workers or without a parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from sampled import sampled

import stanct
from stanct.common.errors import LostExecutorError, SamplingError, TooLittleTimeError
from stanct.path.gaussian import GaussianBase
from stanct.work import pools, workers

PROGRAM = "parameters { real x; } model { x ~ normal(0, 1); }"
BASE = GaussianBase(np.zeros(1), np.ones((1, 1)))
# Two workers of a pool are at work.
BUSY = """
import time
from stanct.work.pools import opened

if __name__ == "__main__":
    with opened("processes:2") as pool:
        for _ in range(2):
            pool.submit(time.sleep, 300)
        time.sleep(300)
"""


@pytest.fixture(scope="module")
def target() -> Any:
    return target_of(PROGRAM)


def drawn(target: Any, executor: Any, **options: Any) -> Any:
    settings = {"draws": 100, "base": BASE, "seed": 1, "progress": False, **options}
    return sampled("independence", target, executor=executor, **settings)


def many(executor: Any, **options: Any) -> Any:
    settings = {"draws": 100, "base": BASE, "seed": 1, "progress": False, **options}
    model = stanct.temper(PROGRAM)
    return model.sample_many([{}, {}], "independence", executor=executor, **settings)


def parents() -> dict[int, int]:
    """The parent of every process of this machine that is not a zombie."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state not in "ZX":
                found[int(entry.name)] = int(parent)
    return found


def descendants(pid: int) -> set[int]:
    above, found = parents(), {pid}
    while more := {child for child, parent in above.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY, encoding="utf-8")
    process = subprocess.Popen([sys.executable, str(script)])
    until = time.monotonic() + 60
    # The resource tracker, and the forkserver with two workers.
    while len(left := descendants(process.pid)) < 4 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(left) >= 4
    time.sleep(1.0)
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while (left & parents().keys()) and time.monotonic() < until:
        time.sleep(0.1)
    remaining = left & parents().keys()
    for pid in remaining:
        os.kill(pid, signal.SIGKILL)
    assert not remaining


def test_workers_leave_ctrl_c_to_their_parent() -> None:
    with pools.opened("processes:1") as pool:
        assert pool is not None
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_a_closed_executor_is_refused(kind: type[Executor], target: Any) -> None:
    closed: Any = kind(1)  # pyright: ignore[reportCallIssue]
    closed.shutdown()
    for work in (lambda: drawn(target, closed), lambda: many(closed)):
        with pytest.raises(SamplingError, match=r"takes no work: .*Make a new executor"):
            work()


class Failing(Executor):
    """Fails as a pool does whose process that starts workers was killed."""

    def __init__(self, after: int) -> None:
        self.left = after

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        if self.left < 0:
            raise EOFError("unexpected EOF")
        future = Future[Any]()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize("after", [0, 2])
def test_a_pool_that_cannot_start_workers_is_lost(after: int, target: Any) -> None:
    for work in (lambda: drawn(target, Failing(after)), lambda: many(Failing(after))):
        with pytest.raises(LostExecutorError, match="unexpected EOF"):
            work()


class Late(Executor):
    """Has a worker only after some seconds, or none at all."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        if self.seconds is not None:
            answer = lambda: future.set_result(fn(*args, **kwargs))  # noqa: E731
            threading.Timer(self.seconds, answer).start()
        return future


def test_no_worker_ends_in_time(target: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(TooLittleTimeError, match=r"max_seconds=1 passed before a worker.*Start"):
        drawn(target, Late(None), max_seconds=1)
    assert time.monotonic() - begun < 5


def test_a_worker_that_is_late_is_told_of_once(
    target: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.1)
    told = "No worker of the executor has answered for 0.1 s"
    drawn(target, Late(0.4), progress=True)
    assert capsys.readouterr().err.count(told) == 1
    many(Late(0.4), progress=True)
    assert capsys.readouterr().err.count(told) == 1
    drawn(target, Late(0.4))
    assert told not in capsys.readouterr().err


ON_STDIN = """
import stanct
model = stanct.temper("parameters { real x; } model { x ~ normal(0, 1); }")
options = {"base": "laplace", "seed": 1, "draws": 64, "progress": False}
print(model.sample({}, "independence", executor="processes:1", **options).draws)
print(__file__)
"""


@LONG
def test_a_script_on_stdin_starts_processes() -> None:
    done = subprocess.run(
        [sys.executable, "-"], input=ON_STDIN, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "64\n<stdin>\n"), done.stderr


@LONG
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_without_workers_ends_in_time(target: Any) -> None:
    distributed: Any = pytest.importorskip("distributed", reason="needs the extra `dask`")
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        begun = time.monotonic()
        closed = distributed.Client(cluster)
        executor = closed.get_executor()
        closed.close()
        with pytest.raises(SamplingError, match="takes no work: Client is closed"):
            drawn(target, executor)
        for executor in (client.get_executor(), f"dask:{cluster.scheduler_address}"):
            with pytest.raises(TooLittleTimeError, match="before a worker of the executor"):
                drawn(target, executor, max_seconds=3)
        assert time.monotonic() - begun < 20


def test_numbers_of_workers() -> None:
    assert pools.check_executor("processes:004") == ("processes", "4")
    for text in ("processes:-1", "processes:0", "processes:two", "processes:²"):
        with pytest.raises(SamplingError, match="There is no executor"):
            pools.check_executor(text)
