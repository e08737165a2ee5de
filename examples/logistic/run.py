"""Logistic regression on 100,000 rows: TACT-HMC on mini-batches, and NUTS on all rows.

python run.py [--quick] [--seed 1] [--rows 100000] [--batch 1000]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import stanct
from stanct.engines.embedded import Nuts, run_nuts
from stanct.estimates.mixing import effective_size

HERE = Path(__file__).resolve().parent
WEIGHTS = np.array([1.0, -0.5, 0.25, 0.0, 0.8])
CHAINS = 2


def simulate(rows: int, seed: int) -> dict[str, object]:
    """Simulate data with standard normal predictors, the intercept 0.3 and `WEIGHTS`."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, WEIGHTS.size))
    y = rng.random(rows) < 1 / (1 + np.exp(-0.3 - x @ WEIGHTS))
    return {"N": rows, "K": WEIGHTS.size, "X": x, "y": y.astype(int)}


def moments(draws: np.ndarray) -> tuple[float, float, float, float]:
    """Mean and sd of a (chains, draws) array, each followed by its standard error."""
    mean, sd = float(draws.mean()), float(draws.std())
    squares = (draws - mean) ** 2
    error = squares.std() / np.sqrt(effective_size(squares)) / (2 * sd)
    return mean, sd / np.sqrt(effective_size(draws)), sd, float(error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Mini-batches and all rows.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the data")
    parser.add_argument("--batch", type=int, default=1000, help="rows in a mini-batch")
    parser.add_argument("--quick", action="store_true", help="2,000 rows in batches of 100")
    options = parser.parse_args()
    rows, batch = (2000, 100) if options.quick else (options.rows, options.batch)
    data = simulate(rows, options.seed)
    model = stanct.temper(HERE / "logistic.stan")

    started = time.perf_counter()
    run = model.sample(
        data, stanct.TACT(minibatch=stanct.MiniBatch("N", batch)), chains=CHAINS,
        draws=500 if options.quick else 2000, warmup=500, seed=options.seed, progress=False,
    )  # fmt: skip
    print(f"TACT-HMC, batches of {batch} of {rows} rows: {time.perf_counter() - started:.1f} s")
    print(run)
    print(f"{run.gradients * batch / rows:.0f} passes through the data\n")

    started = time.perf_counter()
    block, _ = run_nuts(
        model.target(data).density_recipe, np.zeros((CHAINS, 1 + WEIGHTS.size)),
        seed=options.seed, warmup=300, draws=700, nuts=Nuts(),
    )  # fmt: skip
    passes = int(block.statistics["n_leapfrog__"].sum())
    print(f"NUTS on all rows: {time.perf_counter() - started:.1f} s")
    print(f"{passes} passes through the data, not counting warm-up\n")

    print("            mean, TACT-HMC        NUTS            z     sd, TACT-HMC         NUTS   z")
    worst = 0.0
    for name in ["alpha", *(f"beta[{k + 1}]" for k in range(WEIGHTS.size))]:
        stem, _, index = name.rstrip("]").partition("[")
        pick = (..., int(index) - 1) if index else ...
        ours, theirs = (moments(v[stem][pick]) for v in (run.variables, block.variables))
        z = [(ours[k] - theirs[k]) / np.hypot(ours[k + 1], theirs[k + 1]) for k in (0, 2)]
        worst = max(worst, *map(abs, z))
        print(
            f"{name:8s} {ours[0]:9.5f} ± {ours[1]:.5f}  {theirs[0]:9.5f} ± {theirs[1]:.5f} "
            f"{z[0]:+5.1f}  {ours[2]:.5f} ± {ours[3]:.5f}  {theirs[2]:.5f} ± {theirs[3]:.5f} "
            f"{z[1]:+5.1f}"
        )
    print(f"\nlargest |z| of 12: {worst:.1f}")
