"""Every method on an executor, and in one thread: the draws are the same, bit for bit.

The second command needs mpi4py. Of its three ranks, two are workers.

    python same.py --executor processes:2
    mpiexec -n 3 python -m mpi4py.futures same.py --executor mpi
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

import numpy as np

import stanct

PROGRAM = """
data { real y; }
parameters { real mu; real<lower=0> t; }
model { mu ~ normal(0, 2); t ~ gamma(3, 2); y ~ normal(mu, t); }
"""
SHORT: dict[str, tuple[stanct.Method[Any], int]] = {
    "joint": (stanct.Joint(), 130),
    "gibbs": (stanct.Gibbs(), 130),
    "simulated tempering": (stanct.SimulatedTempering(), 130),
    "parallel tempering": (stanct.ParallelTempering(), 130),
    "pseudo-extended": (stanct.PseudoExtended(copies=2), 120),
    "AIS": (stanct.AIS(temperatures=20), 96),
    "power posterior": (stanct.PowerPosterior(rungs=4), 60),
    "independence": (stanct.Independence(), 200),
    "adiabatic": (stanct.Adiabatic(), 12),
    "TACT-HMC": (stanct.TACT(), 50),
    "extended Hamiltonian": (stanct.ExtendedHamiltonian(), 130),
    "default": (stanct.Auto(max_gradients=0), 130),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--executor", default="processes:2", help="as in stanct, or mpi")
    options = parser.parse_args()
    executor: Any = options.executor
    if executor == "mpi":
        executor = importlib.import_module("mpi4py.futures").MPIPoolExecutor()
    target = stanct.temper(PROGRAM).target({"y": 1.5})
    base = stanct.GaussianBase(np.array([0.5, 0.2]), np.array([[1.5, 0.0], [0.2, 0.8]]))
    settings: dict[str, Any] = {"seed": 5, "warmup": 150, "progress": False}
    differ = 0
    for name, (method, draws) in SHORT.items():
        settings["base"] = "auto" if name == "extended Hamiltonian" else base
        there = stanct.sample(target, method, draws=draws, executor=executor, **settings)
        # Workers run compiled kernels, never CmdStan.
        here = stanct.sample(target, method, draws=draws, threads=1, engine="embedded", **settings)
        same = all(np.array_equal(getattr(there, a), getattr(here, a)) for a in there.arrays)
        differ += not same
        print(f"{name:<22}{'the same' if same else 'DIFFERENT'}", flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
