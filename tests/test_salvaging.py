"""The draws of a killed run are read from its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
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
from stanct.cli.main import main
from stanct.common.errors import CheckpointError
from stanct.targets.program_target import ProgramTarget
from stanct.work import checkpoint
from stanct.work.checkpoint import recorded_call

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
def test_the_draws_of_a_killed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        found: Any = None
        # The kept draws follow a warm-up of unknown length.
        for _ in range(200):
            time.sleep(0.1)
            process.send_signal(signal.SIGSTOP)
            if len(list(folder.glob("segment-*"))) > 44:
                process.kill()
                break
            process.send_signal(signal.SIGCONT)
        assert process.wait() == -signal.SIGKILL
    found = stanct.salvage(folder)
    assert isinstance(found, stanct.TemperedRun) and 100 <= found.draws < 3000
    assert found.method == "gibbs" and found.method_settings["transitions"] == 30
    assert 0 < found.evidence.std_error < 1 and "my_beta" not in found.variables
    (check,) = [check for check in found.diagnostics if check.name == "interrupted"]
    assert "max_seconds" not in {one.name for one in found.diagnostics}  # nobody set a limit
    assert check.message == f"{found.draws} of 3000 draws a chain were kept in the checkpoint."
    # The draws of the run that nobody killed begin with these.
    given = {**LONG, "draws": found.draws, "progress": False}
    whole = sampled("gibbs", target_of(PROGRAM, {"y": 1.5}), **given)
    assert np.array_equal(found.z, whole.z)
    assert main(["salvage", str(folder)]) == 0  # again: the run can still go on
    assert "kept in the checkpoint" in capsys.readouterr().err


def test_a_finished_run_is_returned_whole(target, tmp_path: Path) -> None:
    for method, base in (("gibbs", "laplace"), ("ais", BASE)):
        folder = tmp_path / method
        short: Any = {"base": base, "draws": 64, "progress": False, "checkpoint": folder}
        done = sampled(method, target, **short)
        assert_same(stanct.salvage(folder), done)


def test_a_run_without_draws_that_count(target, tmp_path: Path) -> None:
    with pytest.raises(stanct.SamplingError, match="max_seconds=0 passed"):
        sampled("gibbs", target, **LONG, max_seconds=0, checkpoint=tmp_path, progress=False)
    with pytest.raises(stanct.SamplingError, match="has no draws that count"):
        stanct.salvage(tmp_path)


def test_folders_that_are_no_checkpoint(target, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it has no checkpoint\.json"):
        stanct.salvage(tmp_path)
    (tmp_path / "checkpoint.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"does not tell the call.*max_seconds=0"):
        stanct.salvage(tmp_path)
    with pytest.raises(stanct.SavedRunError, match=r"stanct\.salvage reads its draws"):
        stanct.load(tmp_path)


def normal(x: np.ndarray) -> tuple[float, np.ndarray]:
    return -0.5 * float(x @ x), -x


def test_a_python_function_is_salvaged_by_its_own_call(tmp_path: Path) -> None:
    target = stanct.FunctionTarget(stanct.FunctionDensity(normal, 2))
    base = stanct.GaussianBase(np.zeros(2), np.eye(2))
    short: Any = {"base": base, "seed": 5, "draws": 64, "checkpoint": tmp_path, "progress": False}
    done = sampled("gibbs", target, **short)
    with pytest.raises(CheckpointError, match="a Python function"):
        stanct.salvage(tmp_path)
    assert_same(sampled("gibbs", target, **short, max_seconds=0), done)


@pytest.fixture(scope="module")
def finished(target: ProgramTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that ended."""
    folder = tmp_path_factory.mktemp("finished")
    short: Any = {"base": BASE, "seed": 5, "draws": 64, "progress": False}
    sampled("gibbs", target, **short, checkpoint=folder)
    return folder


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("method",), {"class": "stanct.samplers.gibbs:Gibbs", "fields": {"transitions": -1}}),
        (("method",), {"class": "os:system", "fields": {}}),
        (("target", "program"), 3),
        (("target", "path"), "/etc/passwd"),
        (("target", "program"), "#include passwd"),
        (("target", "data"), "[1"),
        (("options",), [1]),
        (("engine",), 7),
        ((), [1, 2]),
    ],
)
def test_a_hostile_call_is_named(
    finished: Path, tmp_path: Path, place: tuple[str, ...], value: Any
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    assert recorded_call(tmp_path)["target"]["path"] is None
    first = tmp_path / "segment-000000.npz"
    with np.load(first) as stored:
        arrays = dict(stored)
    steps = json.loads(arrays["steps"].tobytes())
    call = steps["-1,0,0"][1]
    if place:
        *above, last = place
        there = call
        for name in above:
            there = there["mapping"][name]
        there["mapping"][last] = value
    else:
        steps["-1,0,0"][1] = value
    arrays["steps"] = np.frombuffer(json.dumps(steps).encode(), np.uint8)
    np.savez(first, **arrays)
    # A path is a name here, and no file is read by it.
    with pytest.raises(stanct.StanctError) as caught:
        stanct.salvage(tmp_path)
    assert "root:" not in str(caught.value)
