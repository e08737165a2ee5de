"""Ctrl-C ends `sample_many` soon, keeps finished data sets, and leaves no worker behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, ROOT
from test_many import QUICK, datasets, model, simulator  # noqa: F401
from test_pools import descendants, parents

import stanct
from stanct.api import many as many_sets

SECONDS = 15.0
# Data sets "a" and "b" take no time, and the others never end.
SCRIPT = """
import os, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import stanct
from stanct.work.isolation import end_with_parent

model = stanct.temper('''
data { int N; } parameters { real x; }
model {
  real s = 0;
  for (i in 1:N) for (j in 1:N) for (k in 1:N) s += 1e-30;
  x ~ normal(s, 1);
}
''')

if __name__ == "__main__":
    data = {"a": {"N": 1}, "b": {"N": 1}, **{f"slow {k}": {"N": 100_000} for k in range(9)}}
    options = {"base": stanct.GaussianBase([0.0], [[1.0]]), "draws": 64, "seed": 1}
    found = model.sample_many(
        data, "independence", folder="results", progress=False, executor=EXECUTOR, **options
    )
    print(list(found.table.index), found.complete, flush=True)
    EXIT
"""
OWN = {
    "own processes": "ProcessPoolExecutor(2, initializer=end_with_parent)",
    "own threads": "ThreadPoolExecutor(2)",
}
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="needs /proc and signals"
)


def finished(folder: Path, process: subprocess.Popen[str]) -> int:
    """Number of lines of results, once both quick data sets have theirs, or the process ended."""
    file, until = folder / "results" / "results.jsonl", time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if file.exists() and (lines := file.read_bytes().count(b"\n")) == 3:
            return lines
        time.sleep(0.05)
    return 0


@pytest.mark.parametrize(
    ("executor", "group"),
    [
        (None, False),
        pytest.param("threads:2", False, marks=LONG),
        ("processes:2", False),
        pytest.param("processes:2", True, marks=LONG),
        pytest.param("own processes", True, marks=LONG),
        ("own threads", False),
    ],
)
def test_ctrl_c_keeps_finished_data_sets(executor: str | None, group: bool, tmp_path: Path) -> None:
    """Sent to Python alone, or to the workers too, as a terminal does."""
    script = tmp_path / "script.py"
    # Workers of the user's own cannot be ended, and Python would wait for them.
    text = SCRIPT.replace("EXIT", "os._exit(0)" if executor in OWN else "")
    script.write_text(text.replace("EXECUTOR", OWN.get(str(executor), repr(executor))))
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        try:
            assert finished(tmp_path, process) == 3
            time.sleep(0.5)
            left, begun = descendants(process.pid), time.monotonic()
            os.killpg(process.pid, signal.SIGINT) if group else process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            assert time.monotonic() - begun < SECONDS, err
        finally:
            process.kill()
    assert out == "['a', 'b'] False\n", err
    assert "Stopped after 2 data sets." in err and "The same call goes on." in err
    assert ("still works on" in err and "them: slow " in err) == (executor in OWN), err
    assert "Traceback" not in err
    until = time.monotonic() + 5
    while (left & parents().keys()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left & parents().keys()


def test_a_run_that_was_cut_short_is_no_row(
    model: stanct.TemperedModel,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C lets a run return the draws that it has; no further data set is begun."""
    made, calls = many_sets.sample, []

    def cut(*given: Any, **options: Any) -> Any:
        run = made(*given, **options)
        calls.append(run)
        if len(calls) < 3:
            return run
        return dataclasses.replace(run, provenance={**run.provenance, "interrupted": True})

    data = datasets(5)
    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="after 2 data sets"):
        patch.setattr(many_sets, "sample", cut)
        part = model.sample_many(data, folder=tmp_path, **QUICK)
    assert len(calls) == 3 and list(part.table.index) == list(data)[:2] and not part.complete
    whole = model.sample_many(data, folder=tmp_path, **QUICK)
    assert list(whole.table.index) == list(data) and whole.complete


def test_ctrl_c_ends_a_comparison_of_models(
    model: stanct.TemperedModel,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def stopped(*_given: Any, **_options: Any) -> Any:
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(many_sets, "sample", stopped)
    two = {"one": (model, simulator(1.0)), "two": (model, simulator(1.0))}
    with pytest.warns(UserWarning, match="after 0 data sets"):
        found = stanct.calibrate(two, repeats=2, **QUICK)
    assert len(calls) == 1 and not found.passed
