"""Runs do not depend on the number of threads of BLAS, on that of ours, or on processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from conftest import LONG
from threadpoolctl import threadpool_info, threadpool_limits

from stanct.samplers import METHODS
from stanct.work.blas import blas_in_words, one_blas_thread, with_one_blas_thread

# One process for each form: the variable counts when NumPy is imported.
SCRIPT = """
import hashlib, json, sys
import numpy as np
import stanct
from stanct.common.resources import resource_folder

def digest(run):
    found = hashlib.sha256()
    for array in (run.z, *run.variables.values()):
        found.update(np.ascontiguousarray(array))
    found.update(repr((run.warnings, getattr(run, "evidence", None))).encode())
    found.update(run.summary().to_numpy().tobytes())
    return found.hexdigest()

settings = json.loads(sys.argv[1])
units, dimension = 28, 26  # threads of BLAS split what is not tiny
model = stanct.temper(str(resource_folder("stan_models") / "boltzmann" / "boltzmann.stan"))
data = {
    "B": units, "D": dimension, "b": np.zeros(units),
    "Q": 0.35 * np.random.default_rng(1).standard_normal((units, dimension)),
}
found = {}
for method, options in settings["options"].items():
    for seed in settings["seeds"]:
        run = model.sample(
            data, method=method, seed=seed, progress=False, **options, **settings["given"]
        )
        found[f"{method} {seed}"] = digest(run)
print(json.dumps(found))
"""


def counts() -> list[int]:
    """The threads of each BLAS of this process."""
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_bodies_overlap_and_the_last_one_restores() -> None:
    with threadpool_limits(2, "blas"):
        assert set(counts()) == {2}
        assert ", 2 threads" in blas_in_words()
        outer, inner = one_blas_thread(), one_blas_thread()
        outer.__enter__()
        inner.__enter__()
        assert set(counts()) == {1}
        outer.__exit__(None, None, None)
        assert set(counts()) == {1}
        inner.__exit__(None, None, None)
        assert set(counts()) == {2}
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            assert set(counts()) == {1}
            raise ZeroDivisionError
        assert set(counts()) == {2}


def test_a_worker_has_one_thread_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        if (os.cpu_count() or 1) > 1:  # no more threads than cores
            assert set(pool.submit(counts).result()) == {2}
        assert set(pool.submit(with_one_blas_thread, counts).result()) == {1}


# The search's ends count in the default; in the other methods what follows a base does.
BRIEF: dict[str, Any] = {
    name: {"draws": 60, "warmup": 150} | ({} if name == "auto" else {"base": "laplace"})
    for name in METHODS
} | {
    name: {"draws": draws, "base": "laplace"}
    for name, draws in {"ais": 64, "tact": 20, "adiabatic": 8}.items()
}


def digests(
    blas: str | None, options: dict[str, Any], seeds: list[int], **given: object
) -> dict[str, str]:
    """What each method's run is, in a process where BLAS is told to have so many threads."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {"OPENBLAS_NUM_THREADS": blas} if blas else {}
    settings = {"options": options, "seeds": seeds, "given": {"chains": 2, **given}}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(settings)], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_is_the_same_with_two_threads_of_blas() -> None:
    gibbs = {"gibbs": BRIEF["gibbs"]}
    assert digests("2", gibbs, [1]) == digests("1", gibbs, [1])


@LONG
def test_runs_are_the_same_whatever_blas_and_executor_do() -> None:
    """All methods, three seeds, on a machine of 28 units; one of them in processes."""
    first = digests("1", BRIEF, [1, 2, 3], threads=1)
    assert len(first) == 3 * len(METHODS)
    assert digests("2", BRIEF, [1, 2, 3], threads=2) == first
    others = digests(None, BRIEF, [1], executor="processes:2")
    assert others.items() <= first.items() and len(others) == len(METHODS)
