"""stanct.bridge against exact evidences, and side by side with R's bridgesampling.

For every posterior, NUTS makes fits of 4 chains of 1,000 draws. The script prints log Z of the
first fit with its error, the median time of a bridge, how many fits have the exact value in their
95 % interval, and how many passed all checks, and how many missed silently. R's bridgesampling
gets the draws of the first fit, and its own density in R:

    apt-get install r-base-core r-cran-bridgesampling
    python run.py [--fits 50] [--only radon skewed] [--target-accept 0.8] [--rscript Rscript]
        [--seed 1] [--json FILE]

Without an Rscript the columns of R stay empty.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fits import fit_of
from posteriors import POSTERIORS, Posterior

import stanct


def r_value(value: Any) -> str:
    """A JSON value as an R expression."""
    return f"c({', '.join(map(repr, value))})" if isinstance(value, list) else repr(value)


def bridgesampling(posterior: Posterior, run: stanct.BridgeRun, rscript: str) -> dict[str, list]:
    """Method to log Z, relative error and seconds, from R."""
    x = run.base.unwhiten(run.z)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        data = ", ".join(f"{name} = {r_value(v)}" for name, v in posterior.data.items())
        (place / "density.R").write_text(
            f"data <- list({data})\nlog_density <- function(x, data) {posterior.r}\n"
        )
        chain = np.repeat(np.arange(len(x)), x.shape[1])
        table = np.column_stack([chain, x.reshape(-1, x.shape[-1])])
        names = ",".join(["chain", *(f"x{d + 1}" for d in range(x.shape[-1]))])
        np.savetxt(place / "draws.csv", table, delimiter=",", header=names, comments="")
        script = Path(__file__).resolve().parent / "bridge.R"
        done = subprocess.run(
            [rscript, str(script), folder], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return {
        words[0]: [float("nan" if word == "NA" else word) for word in words[1:]]
        for words in map(str.split, done.stdout.splitlines())
        if len(words) == 4
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=50)
    parser.add_argument("--only", nargs="+", choices=POSTERIORS, default=list(POSTERIORS))
    parser.add_argument("--target-accept", type=float, default=0.8, help="adapt_delta of the fits")
    parser.add_argument("--rscript", default=shutil.which("Rscript"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every fit there")
    options = parser.parse_args()
    print(
        f"{'posterior':<16} {'D':>3} {'exact':>11} {'stanct':>20} {'s':>5} {'cover':>7} "
        f"{'passed':>7} {'silent':>6} {'R normal':>20} {'s':>5} {'R warp3':>11} {'s':>5}"
    )
    record = {}
    for name in options.only:
        posterior = POSTERIORS[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.stan"
            path.write_text(posterior.stan, encoding="utf-8")
            model = stanct.temper(path)
        runs = []
        for number in range(options.fits):
            seed = options.seed + number
            fit = fit_of(model, posterior.data, seed, options.target_accept)
            before = time.perf_counter()
            run = stanct.bridge(model, posterior.data, fit, seed=seed, search=number == 0)
            run.diagnostics  # noqa: B018
            runs.append((run, time.perf_counter() - before))
        first = runs[0][0]
        scores = [(r.evidence.log_z - posterior.log_z) / r.evidence.std_error for r, _ in runs]
        covered = sum(abs(score) < 1.96 for score in scores)
        passed = [r.is_reliable for r, _ in runs]
        silent = sum(abs(s) >= 1.96 and good for s, good in zip(scores, passed, strict=True))
        seconds = np.median([spent for _, spent in runs])
        row = (
            f"{name:<16} {first.z.shape[-1]:3d} {posterior.log_z:11.4f} "
            f"{first.evidence.log_z:11.4f} ± {first.evidence.std_error:.4f} {seconds:5.1f} "
            f"{covered:3d}/{len(runs):<3d} {sum(passed):3d}/{len(runs):<3d} {silent:3d}"
        )
        if options.rscript:
            found = bridgesampling(posterior, first, options.rscript)
            normal, warp = found["normal"], found["warp3"]
            row += (
                f" {normal[0]:11.4f} ± {normal[1]:.4f} {normal[2]:5.1f} {warp[0]:11.4f} "
                f"{warp[2]:5.1f}"
            )
        print(row, flush=True)
        record[name] = {
            "scores": scores,
            "warnings": [r.warnings for r, _ in runs],
            "std_errors": [r.evidence.std_error for r, _ in runs],
        }
    if options.json:
        options.json.write_text(json.dumps(record, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
