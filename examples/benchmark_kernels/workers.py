"""Sampling with two workers against one: wall time of the compiled samplers on the radon model.

    python examples/benchmark_kernels/workers.py

Draws are compared too: they are the same, bit for bit. A core that is not idle spoils the figure.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import stanct

RADON = Path(__file__).resolve().parent.parent / "radon"
DRAWS = {"gibbs": 2500, "parallel_tempering": 500, "ais": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description="Two workers against one.")
    parser.add_argument("--methods", nargs="+", choices=DRAWS, default=list(DRAWS))
    parser.add_argument("--rounds", type=int, default=3, help="the fastest of these counts")
    options = parser.parse_args()
    model = stanct.temper(RADON / "radon.stan")
    data = json.loads((RADON / "radon.data.json").read_text(encoding="utf-8"))
    base = model.sample(data, method="ais", draws=32, temperatures=10, seed=1, progress=False).base
    for method in options.methods:
        seconds = {1: np.inf, 2: np.inf}
        draws = {}
        for _ in range(options.rounds):
            for threads in seconds:
                run = model.sample(
                    data, method=method, draws=DRAWS[method], base=base, seed=1,
                    threads=threads, progress=False, engine="embedded",
                )  # fmt: skip
                spent = run.provenance["stage_seconds"]["sampling"]
                seconds[threads] = min(seconds[threads], spent)
                draws[threads] = run.variables["beta"]
        same = "equal" if np.array_equal(draws[1], draws[2]) else "DIFFERENT"
        print(
            f"{method:<20} one {seconds[1]:6.2f} s, two {seconds[2]:6.2f} s, "
            f"ratio {seconds[1] / seconds[2]:.2f}; draws {same}"
        )


if __name__ == "__main__":
    main()
