"""Runs the tests as other processors would.

    python tests/elsewhere.py [--forms Nehalem generic] [--files auto gibbs | --all] [-- -x -k WORD]

A chain follows the last bit of every number, and these bits differ from processor to processor, so
that each form makes other chains. A form sets which of a library's routines are used, for the tests
of `FILES` or for all, and the rest of the line goes to pytest. Prints what failed; exits with 1
where anything did. Forms that this machine cannot take are skipped.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What these tests assert depends on where chains go.
FILES = """
    adiabatic ais atom auto bases bidirectional bridge chains comparison extending
    function_target gibbs inference joint looks many minibatch outskirts parallel_tempering
    power_copies power_posterior precision pseudo_extended_sampling remedies report ridges rounds
    scouts search simulated_tempering tact tails tempered_run thermodynamic tours two_stages wide
"""
CORES = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "SkylakeX")
umath: Any = importlib.import_module("numpy._core._multiarray_umath")
# numpy's own loops without what this processor has beyond the least.
BEYOND = " ".join(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name])
FORMS: dict[str, dict[str, str]] = {
    **{core: {"OPENBLAS_CORETYPE": core} for core in CORES},
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "numpy": {"NPY_DISABLE_CPU_FEATURES": BEYOND},
    "one_thread": {"OPENBLAS_NUM_THREADS": "1"},
    "two_threads": {"OPENBLAS_NUM_THREADS": "2"},
}
# A product and a factorisation in the routines of a form, whose name OpenBLAS tells.
PROBE = """
import numpy as np, scipy.linalg, threadpoolctl
a = np.eye(64) + np.ones((64, 64))
scipy.linalg.cho_factor(a @ a)
print(*{pool.get("architecture") for pool in threadpoolctl.threadpool_info()})
"""
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)


def possible(form: str, environment: dict[str, str]) -> bool:
    """Whether this machine can run in a form."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False
    )
    # OpenBLAS's least routines have another name.
    named = form in done.stdout or (form == "Prescott" and "Katmai" in done.stdout)
    return done.returncode == 0 and (form not in CORES or named)


def run(form: str, arguments: list[str]) -> tuple[str, list[str]]:
    """The outcome of the tests in a form in a line, and the names of those that failed."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **FORMS[form]}
        if form == "generic":  # its machine code is not for other runs
            environment["NUMBA_CACHE_DIR"] = cache
        if not possible(form, environment):
            return "not on this machine", []
        started = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    failed = FAILED.findall(done.stdout)
    if done.returncode and not failed:
        failed = [f"pytest: {(done.stdout + done.stderr)[-2000:]}"]
    told = f"{len(failed)} failed" if failed else "passed"
    return f"{told}, {time.monotonic() - started:.0f} s", failed


def say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the chosen tests in the chosen forms; returns 1 if any fails."""
    parser = argparse.ArgumentParser(description="Run the tests as other processors would.")
    parser.add_argument("--forms", nargs="+", choices=tuple(FORMS), default=list(FORMS))
    parser.add_argument("--files", nargs="+", default=FILES.split(), metavar="NAME")
    parser.add_argument("--all", action="store_true", help="all files of tests")
    parser.add_argument("arguments", nargs="*", help="after --, for pytest")
    options = parser.parse_args()
    files = [] if options.all else [f"tests/test_{name}.py" for name in options.files]
    table = {}
    for form in options.forms:
        table[form], failed = run(form, [*files, *options.arguments])
        say(f"{form}: {table[form]}", *(f"  {name}" for name in failed))
    say("", *(f"{form:12} {outcome}" for form, outcome in table.items()))
    return int(any("failed" in outcome for outcome in table.values()))


if __name__ == "__main__":
    sys.exit(main())
