"""The evidence and the posterior of a regression with 92 parameters, from a plain Stan program.

python run.py [--seed 1] [--save radon_run]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import stanct

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Radon: log Z and posterior means.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, default=Path("radon_run"), help="folder for the run")
    options = parser.parse_args()
    truth = json.loads((HERE / "truth.json").read_text(encoding="utf-8"))

    model = stanct.temper(HERE / "radon.stan")
    run = model.sample(HERE / "radon.data.json", chains=4, draws=2500, seed=options.seed)

    print(run.evidence)
    print(f"exact: {truth['log_z']:.4f}, by quadrature (exact.py)\n")

    # The draws follow the tempered density, and `summary` weights them to the posterior.
    table = run.summary(["mu_alpha", "beta", "sigma_alpha", "epsilon"])
    table = table[["mean", "std_error", "sd", "q5", "q95"]]
    mean = truth["mean"]
    exact = [mean["mu_alpha"], *mean["beta"], mean["sigma_alpha"], mean["epsilon"]]
    table.insert(1, "exact", exact)
    print(table.round(4).to_string())

    run.save(options.save)
    print(f"\nThe run took {run.gradients:,} gradients and {run.provenance['seconds']:.0f} s.")
    print(f"It is saved: stanct.load({str(options.save)!r}) loads it.")
