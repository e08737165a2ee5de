"""Runs from threads that did not import the package, and in forked children."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time

import pytest
from conftest import LONG, ROOT

from stanct.engines.tape import _SERVE

# Without a guard for `__main__`, as in notebooks and in servers.
SCRIPT = """
import asyncio, multiprocessing, subprocess, sys, threading
print("executed")
{before}
import stanct

started = []
original = subprocess.Popen.__init__
def counted(self, *args, **settings):
    started.append(args)
    original(self, *args, **settings)
subprocess.Popen.__init__ = counted
multiprocessing.Process.start = multiprocessing.process.BaseProcess.start = None

model = stanct.temper("model.stan")
def run():
    settings = dict(draws=64, warmup=32, chains=1, seed=1, progress=False, base="pathfinder")
    return float(model.sample(method="gibbs", **settings).z.sum()).hex()

{call}
print(len(started))
"""
CALLS = {
    "main": "print(run())",
    "thread": "async def main(): return await asyncio.to_thread(run)\nprint(asyncio.run(main()))",
    "fork": "import os\nread, write = os.pipe()\nif os.fork() == 0:\n"
    "    os.write(write, run().encode())\n    os._exit(0)\nprint(os.read(read, 99).decode())\n",
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory):
    tmp_path = tmp_path_factory.mktemp("tape")
    (tmp_path / "model.stan").write_text(
        "parameters { vector[3] x; } model { x ~ student_t(2, 0, 1); }"
    )

    def run(call: str, before: str = "") -> tuple[int, str, int]:
        """Executions of the script, the sum of its draws, and the processes that it started."""
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(call=CALLS[call], before=before))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
        *first, total, count = done.stdout.split()
        return len(first), total, int(count)

    return run


@pytest.fixture(scope="module")
def total(executed) -> str:
    """What a run in the main thread gives, with no process started and the script run once."""
    once, total, processes = executed("main")
    assert (once, processes) == (1, 0)
    return total


def test_a_thread_runs_like_the_main_thread(executed, total: str) -> None:
    """No process is started, and the user's script runs once."""
    assert executed("thread") == (1, total, 0)


@LONG
def test_one_helper_at_most_where_the_engine_was_loaded_before(executed, total: str) -> None:
    assert executed("thread", "import stanli") == (1, total, 1)
    assert executed("main", "import stanli") == (1, total, 0)


@LONG
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_runs_too(executed, total: str) -> None:
    assert executed("fork")[:2] == (1, total)


def test_a_helper_ends_with_its_parent_in_the_middle_of_a_call() -> None:
    helper = subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert helper.stdin and helper.stdout
    try:
        for call in ((abs, (-1,)), (time.sleep, (60,))):
            pickle.dump(call, helper.stdin)
        helper.stdin.flush()
        assert pickle.load(helper.stdout) == (True, 1)
        time.sleep(0.2)
        assert helper.poll() is None
        helper.stdin.close()
        helper.wait(5)
    finally:
        helper.kill()
        helper.stdout.close()
