"""A perceptron learned from permuted labels, by TACT-HMC, its relatives and two optimisers.

The script follows section 5.2 of Luo, Wang, Yang, Zhu & Wang (2018), with Fashion-MNIST instead of
EMNIST. The perceptron has 784 inputs and 100 hidden units. A share of the labels is permuted anew
in each epoch. All methods start from the same points and use the same number of gradients of
batches of 128 images. Samplers are judged by their average prediction, optimisers by their last
point.

    python run.py [--quick] [--data FOLDER] [--steps 2000] [--repeats 3] [--seed 1] [--workers 2]
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from images import FOLDER, Images, fashion, few, synthetic
from network import DIMENSION, NoisyPosterior, accuracy, adam, momentum_sgd
from threadpoolctl import threadpool_limits

import stanct

BATCH = 128
# A sampler's chain has this many looks. In the first half it settles for `SETTLE` looks, as every
# chain of TACT-HMC does, and then learns its bias. In the second half it collects draws.
LOOKS, SETTLE = 200, 50
PERMUTED = (0.0, 0.2, 0.3)
OPTIMISERS = {"Adam": adam, "momentum SGD": momentum_sgd}
# For the weights η = (step × prior sd of the first layer)² = 9e-8 = 0.0054 / 60,000. For the
# tempering variable η is 0.0015 / 60,000 as in the paper. It can move much faster where the path
# goes only to T = 1.02.
TACT = stanct.TACT(step=0.006, friction=0.05, tempering_friction=0.05, patience=1)
SAMPLERS: Mapping[str, stanct.TACT] = {
    "SGHMC": replace(TACT, tempering=False, thermostat=None),
    "SGNHT": replace(TACT, tempering=False),
    "TACT-HMC, T ≤ 9": replace(TACT, tempering_step=1.6e-4),
    "TACT-HMC, T ≤ 1.02": replace(
        TACT,
        tempering_step=0.006,
        coupling=stanct.Coupling(plateau=1 / 3, reach=10.0, power=2.0),
    ),
}


@dataclass(frozen=True)
class Job:
    """One run: a method at a share of permuted labels, with one seed."""

    method: str
    permuted: float
    seed: int
    steps: int
    data: Path
    rows: int | None


@dataclass(frozen=True)
class Outcome:
    """Accuracy on the test images, the number of draws averaged, gradients and warnings.

    The accuracy is NaN if the chain was never at temperature 1 in the second half of its looks.
    """

    accuracy: float
    draws: int
    gradients: int
    warned: tuple[str, ...] = ()
    range_of_xi: tuple[float, float] = (0.0, 0.0)


@functools.cache
def images(data: Path, rows: int | None) -> Images:
    """Load the images, once per process.

    With `rows` only that many are used, of synthetic images if Fashion-MNIST is missing.
    """
    if rows is None:
        return fashion(data)
    there = (data / "train-images-idx3-ubyte.gz").is_file()
    return few(fashion(data) if there else synthetic(0), rows)


@threadpool_limits.wrap(limits=1, user_api="blas")
def carry_out(job: Job) -> Outcome:
    """Learn the weights and measure the accuracy on the test images."""
    known = images(job.data, job.rows)
    posterior = NoisyPosterior(known, job.permuted, BATCH)
    rng = np.random.default_rng(job.seed)
    start = rng.standard_normal(DIMENSION)
    if job.method in OPTIMISERS:
        end = OPTIMISERS[job.method](posterior, start, job.steps, len(known.train_labels), rng)
        return Outcome(accuracy(end[None], known), 1, posterior.calls)
    try:
        run = stanct.sample(
            stanct.StochasticTarget(posterior, DIMENSION, label="perceptron"),
            replace(SAMPLERS[job.method], thin=job.steps // LOOKS, start=start),
            chains=1,
            warmup=LOOKS // 2 - SETTLE,
            draws=LOOKS // 2,
            seed=job.seed,
            progress=False,
        )
    except stanct.SamplingError:
        return Outcome(np.nan, 0, job.steps, ("no draws",))
    xi = run.trace[0, :, 0]
    return Outcome(
        accuracy(run.z[0], known),
        run.draws,
        int(run.counts[0, 0]),
        run.warnings,
        (float(xi.min()), float(xi.max())),
    )


def report(found: Mapping[tuple[str, float], list[Outcome]], shares: tuple[float, ...]) -> None:
    """Print mean accuracies with their standard errors over the repetitions, in per cent."""
    print("\naccuracy in %, for each share of permuted labels")
    print(f"{'':20s}" + "".join(f"{share:>14.0%}" for share in shares) + "    draws")
    for method in (*OPTIMISERS, *SAMPLERS):
        line = f"{method:20s}"
        for share in shares:
            values = 100 * np.array([one.accuracy for one in found[method, share]])
            values = values[np.isfinite(values)]
            if values.size < 2:
                line += f"{values[0]:8.2f}      " if values.size else f"{'none':>8s}      "
                continue
            error = values.std(ddof=1) / np.sqrt(values.size)
            line += f"{values.mean():8.2f} ± {error:.2f}"
        draws = [one.draws for share in shares for one in found[method, share]]
        print(f"{line}    {min(draws)} to {max(draws)}")
    for method in SAMPLERS:
        every = [one for share in shares for one in found[method, share]]
        names = sorted({name for one in every for name in one.warned})
        low = min(one.range_of_xi[0] for one in every)
        high = max(one.range_of_xi[1] for one in every)
        print(
            f"{method}: ξ from {low:.2f} to {high:.2f}; warned of {', '.join(names) or 'nothing'}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A perceptron learned from permuted labels.")
    parser.add_argument("--quick", action="store_true", help="few images and steps, seconds")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder with Fashion-MNIST")
    parser.add_argument(
        "--steps", type=int, default=2000, help="gradients of each run, a multiple of 200"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each cell of the table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    steps, rows = (LOOKS, 1000) if options.quick else (options.steps // LOOKS * LOOKS, None)
    repeats, shares = (1, PERMUTED[-1:]) if options.quick else (options.repeats, PERMUTED)
    print(f"{images(options.data, rows).label}; {steps} gradients per run")
    seeds = [
        int(s.generate_state(1)[0]) for s in np.random.SeedSequence(options.seed).spawn(repeats)
    ]
    jobs = [
        Job(method, share, seed, steps, options.data, rows)
        for seed in seeds
        for method in (*OPTIMISERS, *SAMPLERS)
        for share in shares
    ]
    started = time.perf_counter()
    found: dict[tuple[str, float], list[Outcome]] = {}
    with ProcessPoolExecutor(
        options.workers, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        for job, outcome in zip(jobs, pool.map(carry_out, jobs), strict=True):
            found.setdefault((job.method, job.permuted), []).append(outcome)
            print(f"{job.method}, {job.permuted:.0%}: {outcome.accuracy:.2%}", flush=True)
    assert {one.gradients for cell in found.values() for one in cell} == {steps}
    report(found, shares)
    print(f"\n{len(jobs)} runs in {time.perf_counter() - started:.0f} s")
