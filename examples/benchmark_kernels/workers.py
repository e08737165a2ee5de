"""Wall time of the compiled samplers with one worker and with two, on the radon model.

    python workers.py [--methods gibbs parallel_tempering ais] [--rounds 3]

The script also compares the draws, which are the same bit for bit. The times mean little unless
both cores are otherwise idle.
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
    parser = argparse.ArgumentParser(description="One worker and two.")
    parser.add_argument("--methods", nargs="+", choices=DRAWS, default=list(DRAWS))
    parser.add_argument("--rounds", type=int, default=3, help="timings; the fastest counts")
    options = parser.parse_args()
    model = stanct.temper(RADON / "radon.stan")
    data = json.loads((RADON / "radon.data.json").read_text(encoding="utf-8"))
    # A short run is the simplest way to a base that all timed runs can share.
    base = model.sample(data, stanct.AIS(temperatures=10), draws=32, seed=1, progress=False).base
    for method in options.methods:
        seconds = {1: np.inf, 2: np.inf}
        draws = {}
        for _ in range(options.rounds):
            for threads in seconds:
                run = model.sample(
                    data, method, draws=DRAWS[method], base=base, seed=1, threads=threads,
                    progress=False,
                )  # fmt: skip
                spent = run.provenance["stage_seconds"]["sampling"]
                seconds[threads] = min(seconds[threads], spent)
                draws[threads] = run.variables["beta"]
        same = "equal" if np.array_equal(draws[1], draws[2]) else "DIFFERENT"
        print(
            f"{method:<20} one worker {seconds[1]:6.2f} s, two {seconds[2]:6.2f} s, "
            f"ratio {seconds[1] / seconds[2]:.2f}, draws {same}"
        )


if __name__ == "__main__":
    main()
