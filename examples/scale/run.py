"""Tours as the unit of work: what thousands of workers would do, by simulation.

A run of eight schools gives the costs: seconds of a tour, and how they vary. Recording a result of
that size in a checkpoint is timed, and sending a task to a worker process. The simulation then has
one process that sends tasks and records results, and W workers that are idle while they wait.

    python run.py [--workers 10 100 1000 10000] [--tours 1 100 10000] [--seed 1]
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stanct
from stanct.work.checkpoint import Journal

SCHOOLS = Path(__file__).resolve().parent.parent / "eight_schools"
TASKS = 20  # for each worker


@dataclass(frozen=True)
class Costs:
    """Seconds of tours, of recording a result, and of sending a task."""

    tours: np.ndarray
    record: float
    send: float

    def task(self, tours: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """Seconds of so many tasks; sums of many tours are normal."""
        if tours < 100:
            return rng.choice(self.tours, size=(count, tours)).sum(axis=1)
        mean, spread = self.tours.mean() * tours, self.tours.std() * tours**0.5
        return rng.normal(mean, spread, count)


def measured(seed: int) -> Costs:
    """Costs on this machine."""
    model = stanct.temper(SCHOOLS / "non_centred.stan", hierarchies="as written")
    data = SCHOOLS / "eight_schools.data.json"
    options: dict[str, Any] = {"engine": "embedded", "threads": 1, "progress": False}
    model.sample(data, stanct.Joint(), seed=seed, draws=100, **options)  # compiles the kernels
    run = model.sample(data, stanct.Joint(), seed=seed, draws=20_000, chains=1, **options)
    leapfrogs = run.statistics["n_leapfrog__"]
    per_gradient = run.provenance["stage_seconds"]["sampling"] / leapfrogs.sum()
    tours = run.tours.totals(leapfrogs)[1:-1] * per_gradient
    # A result is the draws of a hundred tours: z, beta, delta and statistics.
    draws = round(100 * run.tours.lengths.mean())
    result = [np.ones((draws, run.z.shape[-1])), *(np.ones(draws) for _ in range(8))]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(folder, {"seed": 1})
        began = time.perf_counter()
        for number in range(500):
            journal.put((0, 0, number), "tours", result)
        journal.flush()
        record = (time.perf_counter() - began) / 500
        journal.close()
    with ProcessPoolExecutor(1) as pool:
        list(pool.map(abs, range(100)))
        began = time.process_time()
        for future in [pool.submit(abs, number) for number in range(2000)]:
            future.result()
        send = (time.process_time() - began) / 2000
    return Costs(tours, record, send)


def at_work(costs: Costs, workers: int, tours: int, rng: np.random.Generator) -> float:
    """Share of the workers' time in which they work, with tasks of so many tours."""
    times = costs.task(tours, TASKS * workers, rng)
    free = [0.0] * workers
    dispatcher = 0.0
    ends = []
    for seconds in times:
        dispatcher = max(dispatcher, heapq.heappop(free)) + costs.record + costs.send
        ends.append(dispatcher + seconds)
        heapq.heappush(free, ends[-1])
    return float(times.sum() / (workers * max(ends)))


def in_rounds(costs: Costs, workers: int, tours: int, rng: np.random.Generator) -> float:
    """The same where each worker has one task a round, and rounds wait for their slowest task."""
    times = costs.task(tours, TASKS * workers, rng).reshape(TASKS, workers)
    sent = (costs.record + costs.send) * np.arange(1, workers + 1)
    return float(times.sum() / (workers * (sent + times).max(axis=1).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--tours", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    costs = measured(options.seed)
    mean, spread = costs.tours.mean(), costs.tours.std() / costs.tours.mean()
    print(f"A tour: {1e6 * mean:.0f} µs, varies by {spread:.0%} of that ({costs.tours.size} tours)")
    print(f"A record: {1e6 * costs.record:.0f} µs. Sending a task: {1e6 * costs.send:.0f} µs.\n")
    heads = [f"{n:,} tours a task" for n in options.tours] + ["rounds of 10,000 tours"]
    print("| workers | " + " | ".join(heads) + " |\n|" + "---|" * (len(heads) + 1))
    rng = np.random.default_rng(options.seed)
    for workers in options.workers:
        shares = [at_work(costs, workers, tours, rng) for tours in options.tours]
        shares.append(in_rounds(costs, workers, 10_000, rng))
        print(f"| {workers:,} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")


if __name__ == "__main__":
    main()
