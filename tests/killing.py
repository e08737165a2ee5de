"""Kills runs with SIGKILL while they write their checkpoints, and continues them until they end.

    python killing.py FOLDER METHOD...

Prints how often each method's run was killed. Ends with an error unless the result equals that of
an uninterrupted run bit for bit. Every run is a forked child, so the package is imported once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import test_execution
from conftest import ROOT, target_of
from sampled import sampled
from test_execution import BASE, PROGRAM, assert_same, normal

import stanct
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.work import checkpoint

METHODS = test_execution.METHODS | {
    "joint": partial(sampled, "joint", draws=220, warmup=150),
    "stored_gibbs": partial(sampled, "gibbs", draws=520, warmup=48, thin=3),
    "stored_joint": partial(sampled, "joint", draws=220, warmup=150, thin=3, bootstrap=0),
}
# A child dies at this synchronisation of a file or folder with the disk.
FATAL = {"gibbs": 45, "parallel_tempering": 45, "smc": 12, "joint": 14}
FATAL |= {"stored_gibbs": 25, "stored_joint": 9}


# So many more of them, whenever a child died without having made any further step.
MORE = 4


def survived(folder: Path, *methods: str) -> None:
    """Kill runs of these methods in a process of their own; each must survive three kills."""
    done = subprocess.run(
        [sys.executable, __file__, str(folder), *methods],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    kills = dict(line.split() for line in done.stdout.splitlines())
    assert list(kills) == [*methods] and all(int(count) >= 3 for count in kills.values()), kills


def run(method: str, folder: Path, name: str, *, fatal: int = 0, **settings: Any) -> int:
    """Make a run in a forked child and save it; returns the child's status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    synchronise, left = os.fsync, fatal

    def fsync(file: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        synchronise(file)

    os.fsync = fsync
    try:
        store = Path(settings.get("store", folder / "none"))
        if (store / "run.json").exists():  # the kill came after the end of the run
            stanct.load(store).save(folder / name)
            os._exit(0)
        target = target_of(PROGRAM, {"y": 1.5})
        base = "pathfinder" if method == "joint" else BASE
        METHODS[method](target, base=base, seed=5, progress=False, **settings).save(folder / name)
    except BaseException as failure:
        sys.excepthook(type(failure), failure, failure.__traceback__)
        os._exit(1)
    os._exit(0)


def kill_and_go_on(method: str, folder: Path) -> int:
    """Return how many kills a run has survived."""
    assert run(method, folder, "whole") == 0
    stored, there = method.startswith("stored"), folder / "checkpoint"
    kills, fatal, before = 0, FATAL[method], set[str]()
    where = {"store" if stored else "checkpoint": there}
    while status := run(method, folder, "resumed", fatal=fatal, **where):
        assert status == signal.SIGKILL, f"status {status}"
        kills += 1
        # What ends a run, such as saving it, is one step, in which it would die again and again.
        names = {path.name for path in there.iterdir()} if there.exists() else set()
        fatal, before = fatal + MORE * (names == before), names
    assert_same(stanct.load(folder / "whole"), stanct.load(folder / "resumed"))
    return kills


def main(folder: Path, methods: list[str]) -> None:
    warnings.simplefilter("ignore")
    checkpoint.SOONEST = checkpoint.SHARE = 0.0  # a segment for every block
    # What the children would otherwise load one by one; the engine's own chains must not start.
    target_of(PROGRAM, {"y": 1.5}).density.log_density(np.zeros(2))
    for method in set(methods) - {"joint", "stored_joint"}:
        target = FunctionTarget(FunctionDensity(normal, 2))
        METHODS[method](target, base=BASE, seed=5, progress=False)
    for method in methods:
        sys.stdout.write(f"{method} {kill_and_go_on(method, folder / method)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
