"""Cases by name: programs on which error bars used to fail, and what they cost, by the default.

    python cases.py                       # all cases, three seeds each: some minutes
    python cases.py --cases far forms     # some of them
    python cases.py --seeds 10

For each case the script prints the root mean square error of log Z over the seeds, the mean of the
reported standard errors, the largest error in standard errors, the same for a posterior mean,
gradients and processor time. `warned` counts runs with a failed check.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from families import drawn
from target import Target, element

import stanct
from stanct.runs.verdicts import OF_THE_PROGRAM  # what the text tells is not counted

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXAMPLES / name) for name in ("boltzmann", "mixture20")]

Cases = Iterator[tuple[str, Target, dict[str, Any]]]
CASES: dict[str, Callable[[int], Cases]] = {}

NORMALS = """
data { int K; int d; simplex[K] w; array[K] vector[d] m; vector[K] s; }
parameters { vector[d] x; }
model {
  vector[K] lp;
  for (k in 1:K) lp[k] = log(w[k]) + normal_lpdf(x | m[k], s[k]);
  target += log_sum_exp(lp);
}
"""
COLUMNS = (
    "case", "n", "RMSE", "mean SE", "max |z|", "mean's RMSE", "mean's max |z|", "warned",
    "gradients", "CPU s",
)  # fmt: skip


def case(function: Callable[[int], Cases]) -> Callable[[int], Cases]:
    """Enter a function of the seed, which yields targets by label with options of the run."""
    CASES[function.__name__] = function
    return function


def normals(weights: Any, places: Any, scales: Any) -> Target:
    """A normalised mixture of round normals."""
    w, m = np.asarray(weights, float), np.asarray(places, float)
    data = {"K": w.size, "d": m.shape[1], "w": w, "m": m, "s": np.asarray(scales, float)}
    return Target(NORMALS, data, 0.0, element("x", 0), float(w @ m[:, 0]))


@case
def three(seed: int) -> Cases:
    """Three normals in five dimensions, of weights .5, .3 and .2, at random places."""
    rng = np.random.default_rng([seed, 3])
    places = 4 * rng.normal(size=(3, 5))
    yield "three modes", normals([0.5, 0.3, 0.2], places, rng.uniform(0.7, 1.6, 3)), {}


@case
def far(seed: int) -> Cases:
    """Two modes thirty standard deviations apart, near and far from the origin."""
    del seed
    for place in (0.0, 100.0, 1000.0):
        target = normals([0.1, 0.9], [[place, place], [place + 30, place]], [1.0, 1.0])
        yield f"modes at {place:g} and {place + 30:g}", target, {}


@case
def wide(seed: int) -> Cases:
    """A base of sd 20 that the user gave, which refits must not narrow."""
    del seed
    base = stanct.GaussianBase(np.zeros(2), 20 * np.eye(2))
    target = normals([0.5, 0.5], [[-15.0, 0], [15, 0]], [1.0, 1.0])
    yield "a given base of sd 20", target, {"base": base, "method": "joint"}


@case
def groups(seed: int) -> Cases:
    """A thousand Poisson groups, and a centred normal hierarchy."""
    yield "centred normal groups", drawn("hierarchy_centred", 900 + seed), {}
    yield "1,000 Poisson groups", drawn("poisson_1000", 900 + seed), {}


@case
def forms(seed: int) -> Cases:
    """Three ways to write a hierarchy, of which none should matter."""
    for family in ("hierarchy", "horseshoe"):
        for form in ("centred", "offset", "raw"):
            yield f"{family}, {form}", drawn(f"{family}_{form}", 950 + seed), {}
    folder = EXAMPLES / "eight_schools"
    schools, raw = (
        (folder / name).read_text(encoding="utf-8") for name in ("centred.stan", "non_centred.stan")
    )
    data = json.loads((folder / "eight_schools.data.json").read_text(encoding="utf-8"))
    exact = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    offset = schools.replace("vector[J] theta", "vector<offset=mu, multiplier=tau>[J] theta")
    assert offset != schools
    for form, text in (("centred", schools), ("offset", offset), ("raw", raw)):
        target = Target(text, data, exact["log_z"], element("mu"), exact["mean"]["mu"])
        yield f"eight schools, {form}", target, {}


@case
def boltzmann(seed: int) -> Cases:
    """The five published systems of Graham & Storkey (2017)."""
    del seed
    from systems import PROGRAM, published

    for number in range(5):
        system = published(number)
        data = system.machine.stan_data()
        truth = system.truth
        target = Target(
            Path(PROGRAM).read_text(encoding="utf-8"),
            data,
            float(truth.log_z),
            element("x", 0),
            float(truth.mean[0]),
        )
        yield "Boltzmann machines", target, {}


@case
def twenty(seed: int) -> Cases:
    """Twenty isolated modes, of equal weights and narrow, or of unequal weights."""
    del seed
    text = (EXAMPLES / "mixture20" / "centres.json").read_text(encoding="utf-8")
    centre = np.array(json.loads(text)["centre"])
    distance = np.linalg.norm(centre - 5, axis=1)
    unequal = 1 / distance / np.sum(1 / distance)
    for name, weights, scales in (
        ("a", np.full(20, 0.05), np.full(20, 0.1)),
        ("b", unequal, np.sqrt(distance / 20)),
    ):
        target = normals(weights, centre, scales)
        yield f"twenty modes ({name}), E[x₁]", target, {}
        square = float(weights @ (centre[:, 0] ** 2 + scales**2))
        squared = replace(target, quantity=lambda v: v["x"][..., 0] ** 2, mean=square)
        yield f"twenty modes ({name}), E[x₁²]", squared, {}


@dataclass(frozen=True)
class Row:
    """One run beside the exact answers."""

    label: str
    error: float
    std_error: float
    mean_error: float
    mean_std_error: float
    warned: bool
    gradients: int
    seconds: float


def sampled(label: str, target: Target, seed: int, options: dict[str, Any]) -> Row:
    """Run a case once."""
    started = time.process_time()
    run: Any = stanct.temper(target.stan).sample(
        target.data, seed=seed, progress=False, engine="embedded", **options
    )
    mean = run.expect(target.quantity)
    return Row(
        label,
        run.bare_evidence.log_z - target.log_z,
        run.bare_evidence.std_error,
        float(mean.value) - target.mean,
        float(mean.std_error),
        not set(run.warnings) <= set(OF_THE_PROGRAM),
        run.gradients,
        time.process_time() - started,
    )


def line(rows: list[Row]) -> str:
    """A row of the table for all runs of one case."""

    def of(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], float)

    def rms(values: np.ndarray) -> float:
        return float(np.sqrt(np.square(values).mean()))

    z, mean_z = of("error") / of("std_error"), of("mean_error") / of("mean_std_error")
    return (
        f"| {rows[0].label} | {len(rows)} | {rms(of('error')):.4f} | {of('std_error').mean():.4f} "
        f"| {np.abs(z).max():.1f} | {rms(of('mean_error')):.3g} | {np.abs(mean_z).max():.1f} "
        f"| {int(of('warned').sum())} | {of('gradients').mean():,.0f} "
        f"| {of('seconds').mean():.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each case")
    asked = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for name in asked.cases:
        rows: dict[str, list[Row]] = {}
        for seed in range(1, asked.seeds + 1):
            for label, target, options in CASES[name](seed):
                rows.setdefault(label, []).append(sampled(label, target, seed, options))
        for found in rows.values():
            print(line(found), flush=True)


if __name__ == "__main__":
    main()
