"""What the first run of each method costs beyond a later one, in seconds of processor time.

    python methods.py                     # all methods
    python methods.py gibbs ais

A first run finds no machine code of earlier ones. The program has two parameters, and few draws are
asked for. Processor time is that of the run and of the process that compiles ahead of it. It holds
on a machine that others use as well.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

RUN = """
import numpy as np, stanct
program = '''
data { vector[2] place; }
parameters { vector[2] x; }
model { x ~ normal(place, 1); x ~ normal(0, 2); }
'''
data = {"place": [0.5, -0.5]}
METHODS
stanct.temper(program).sample(data, method=method, draws=DRAWS, seed=1, progress=False)
"""
# Methods with settings, and draws.
METHODS: dict[str, tuple[str, int]] = {
    "auto": ("'auto'", 400),
    "joint": ("'joint'", 400),
    "gibbs": ("'gibbs'", 400),
    "simulated_tempering": ("'simulated_tempering'", 400),
    "parallel_tempering": ("'parallel_tempering'", 400),
    "pseudo_extended": ("'pseudo_extended'", 200),
    "ais": ("'ais'", 128),
    "smc": ("stanct.AIS(resample=True)", 128),
    "bidirectional": ("'bidirectional'", 128),
    "power_posterior": ("'power_posterior'", 200),
    "extended_hamiltonian": ("'extended_hamiltonian'", 400),
    "independence": ("'independence'", 1000),
    "adiabatic": ("'adiabatic'", 64),
    "tact": ("'tact'", 200),
}


def spent(method: str, draws: int, kept: str) -> tuple[float, float]:
    """Processor time and wall time of a run whose machine code is in a folder."""
    text = RUN.replace("METHODS", f"method = {method}").replace("DRAWS", str(draws))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "NUMBA_CACHE_DIR": kept},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{method}\n{done.stderr}")
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> int:
    print("| method | first run | later run | first − later | and of wall time |")
    print("|---|---|---|---|---|")
    for name in sys.argv[1:] or METHODS:
        with tempfile.TemporaryDirectory() as kept:
            (first, began), (later, ended) = (spent(*METHODS[name], kept) for _ in range(2))
        cells = [f"{value:.2f} s" for value in (first, later, first - later, began - ended)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
