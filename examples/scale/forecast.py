"""What runs foretell of themselves, beside what came, on targets drawn at random.

Every method runs on families of `examples/calibration`, each time on a new target, once for a fixed
number of draws and, with `--aims`, once until log Z has a standard error. A line has what came, and
for the first and for the last forecast with a standard error: at what share of the run's time it
was made, and the ratios of what was foretold to what came. The last lines say how many ratios lie
within a factor of two.

    python forecast.py [--runs 2] [--seed 1] [--methods joint ais] [--aims]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "calibration"))

from families import FAMILIES, drawn

import stanct

METHODS: dict[str, stanct.Method[Any] | str] = {
    "default": "auto",
    "joint": "joint",
    "gibbs": "gibbs",
    "simulated_tempering": "simulated_tempering",
    "parallel_tempering": "parallel_tempering",
    "pseudo_extended": "pseudo_extended",
    "ais": "ais",
    "smc": stanct.AIS(resample=True),
    "adiabatic": "adiabatic",
    "power_posterior": "power_posterior",
    "independence": "independence",
}
# Families whose prior and likelihood can be told apart, for the powers of the likelihood.
SPLIT = ("regression", "rates", "separation", "hierarchy_raw")
# With an aim, half of the error that a short run has is asked for.
SHORTER = 0.5


def ratios(told: Any, came: Any) -> list[float]:
    """What was foretold, relative to what came: seconds, draws and standard error."""
    return [float(told[name] / came[name]) for name in ("seconds", "draws", "std_error")]


def one(method: str, family: str, seed: int, *, aim: bool) -> tuple[str, list[list[float]]]:
    """A line of the table, and the ratios of the first and of the last forecast."""
    target = drawn(family, seed)
    model: Any = stanct.temper(target.stan)
    options: dict[str, Any] = {"seed": seed, "engine": "embedded", "progress": False}
    if aim:
        short = model.sample(target.data, METHODS[method], **options)
        options["target_se"] = SHORTER * short.evidence.std_error
    run = model.sample(target.data, METHODS[method], **options)
    table, came = run.forecast, run.forecast.loc["came"]
    told = table.drop(index="came")
    told = told[told["std_error"].notna()]
    found = [ratios(told.iloc[place], came) for place in (0, -1)]
    line = f"{method:<20}{family:<17}{'target_se' if aim else 'draws':<10}"
    line += f"{came['seconds']:>8.1f}{came['draws']:>8.0f}{came['std_error']:>9.2g}"
    for place, numbers in zip((0, -1), found, strict=True):
        line += f"{told.iloc[place]['at'] / came['at']:>7.0%}"
        line += "".join(f"{number:>6.2f}" for number in numbers)
    steps = len(run.provenance.get("steps", "x"))
    notes = [*[f"{steps} steps"] * (steps > 1)]
    if aim:
        notes.append(run.provenance["stopping"]["reason"])
    return f"{line}  {', '.join(notes)}".rstrip(), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=2, help="targets for each method")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--aims", action="store_true", help="also run until a standard error")
    options = parser.parse_args()
    np.seterr(all="ignore")
    rng = np.random.default_rng(options.seed)
    # Kernels are compiled, and modules imported, before a run is timed.
    model = stanct.temper("parameters { real x; } model { x ~ normal(0, 1); }")
    for method in options.methods:
        if method != "power_posterior":
            model.sample(None, METHODS[method], seed=1, progress=False)
    ratio = f"{'made':>7}{'time':>6}{'draws':>6}{'SE':>6}"
    print(
        f"{'method':<20}{'family':<17}{'until':<10}{'seconds':>8}{'draws':>8}{'SE':>9}"
        f"{ratio}{ratio}"
    )
    found: list[list[list[float]]] = []
    for aim in (False, True)[: 1 + options.aims]:
        for method in options.methods:
            names = SPLIT if method == "power_posterior" else tuple(FAMILIES)
            for number in range(options.runs):
                family = names[rng.integers(len(names))]
                try:
                    line, numbers = one(method, family, 100 * options.seed + number, aim=aim)
                except stanct.StanctError as problem:
                    print(f"{method:<20}{family:<17}{problem}"[:150], flush=True)
                    continue
                found.append(numbers)
                print(line, flush=True)
    within = np.mean((np.array(found) >= 0.5) & (np.array(found) <= 2), axis=0)
    for name, shares in zip(("first", "last"), within, strict=True):
        print(
            f"Within a factor of two, of {len(found)} runs, by the {name} forecast: seconds "
            f"{shares[0]:.0%}, draws {shares[1]:.0%}, standard errors {shares[2]:.0%}."
        )


if __name__ == "__main__":
    main()
