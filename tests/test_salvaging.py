"""The draws of a killed run are read from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, target_of
from sampled import sampled
from test_execution import BASE, PROGRAM, assert_same

import stanct
from stanct.targets.program_target import ProgramTarget
from stanct.work import checkpoint

LONG: dict[str, Any] = {"base": BASE, "seed": 5, "draws": 3000, "transitions": 30, "warmup": 32}
SCRIPT = """
import sys
import numpy as np
import stanct
from stanct.work import checkpoint
checkpoint.SOONEST = checkpoint.SHARE = 0.0
model = stanct.temper("model.stan", prefix="my_", hierarchies="as written")
base = stanct.GaussianBase(np.array([0.5, 0.2]), np.array([[1.5, 0.0], [0.2, 0.8]]))
print("begun", flush=True)
model.sample({"y": 1.5}, stanct.Gibbs(transitions=30), base=base, seed=5, draws=3000, warmup=32,
             checkpoint="here", progress=False)
"""


pytestmark = pytest.mark.usefixtures("uncompared")


@pytest.fixture(scope="module")
def target() -> ProgramTarget:
    return target_of(PROGRAM, {"y": 1.5})


@pytest.fixture(autouse=True)
def every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SOONEST", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0.0)


@pytest.mark.skipif(os.name != "posix", reason="other systems have other signals")
def test_the_draws_of_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.stan").write_text(PROGRAM)
    folder = tmp_path / "here"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        assert process.stdout and process.stdout.readline() == b"begun\n"
        # The kept draws follow a warm-up of unknown length.
        for _ in range(200):
            time.sleep(0.1)
            process.send_signal(signal.SIGSTOP)
            if len(list(folder.glob("segment-*"))) > 44:
                process.kill()
                break
            process.send_signal(signal.SIGCONT)
        assert process.wait() == -signal.SIGKILL
    model = stanct.temper("model.stan", prefix="my_", hierarchies="as written")
    base = stanct.GaussianBase(np.array([0.5, 0.2]), np.array([[1.5, 0.0], [0.2, 0.8]]))
    found: Any = model.sample(
        {"y": 1.5}, stanct.Gibbs(transitions=30), base=base, seed=5, draws=3000, warmup=32,
        checkpoint=folder, max_seconds=0, progress=False,
    )  # fmt: skip
    assert isinstance(found, stanct.TemperedRun) and 100 <= found.draws < 3000
    assert found.method == "gibbs" and found.method_settings["transitions"] == 30
    assert 0 < found.evidence.std_error < 1 and "my_beta" not in found.variables
    (check,) = [check for check in found.diagnostics if check.name == "interrupted"]
    assert check.message == f"{found.draws} of 3000 draws a chain were kept in the checkpoint."
    # The draws of the run that nobody killed begin with these.
    given = {**LONG, "draws": found.draws, "progress": False}
    whole = sampled("gibbs", target_of(PROGRAM, {"y": 1.5}), **given)
    assert np.array_equal(found.z, whole.z)


def test_a_finished_run_is_returned_whole(target, tmp_path: Path) -> None:
    for method, base in (("gibbs", "laplace"), ("ais", BASE)):
        short: Any = {"base": base, "draws": 64, "seed": 5, "checkpoint": tmp_path / method}
        done = sampled(method, target, **short, progress=False)
        assert_same(sampled(method, target, **short, progress=False, max_seconds=0), done)


def test_a_run_without_draws_that_count(target, tmp_path: Path) -> None:
    with pytest.raises(stanct.SamplingError, match="max_seconds=0 passed"):
        sampled("gibbs", target, **LONG, max_seconds=0, checkpoint=tmp_path, progress=False)
    with pytest.raises(stanct.SavedRunError, match="It is a checkpoint: repeat"):
        stanct.load(tmp_path)
