"""Time of a gradient inside every method against the bare C function, and two workers against one.

    python methods.py [--model radon] [--base low_rank] [--methods joint gibbs] [--rounds 3]

Both columns rest on processor time, and therefore hold on a machine that others use as well.

*A gradient*: each method runs with one worker. The processor time of its work, warm-up included, is
divided by its gradients. Before and after each run the bare C function is timed at draws of that
run. The median over the rounds counts.

*Two workers*: the processor time of every piece of work of the kept draws is recorded, and that of
the main thread. These pieces are then given to two workers in the order in which the run would give
them, with the run's own waiting: a lane's next block waits for its last one, and where chains meet,
also until all chains have ended the block before the last. The wall time of one worker, divided by
that of two, is what an idle machine would gain at most, if its two cores do not slow each other
down. `--wall` measures wall times instead; they mean little unless both cores are otherwise idle.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import stanct
from stanct import kernels
from stanct.kernels import make_problem
from stanct.samplers._rounds import BaseDraws
from stanct.work import execution
from stanct.work.execution import Execution
from stanct.work.ledger import Ledger

RADON = Path(__file__).resolve().parent.parent / "radon"
LOGISTIC = """
data { int N; int D; matrix[N, D] X; array[N] int<lower=0, upper=1> y; }
parameters { real a; vector[D] b; }
model { a ~ normal(0, 2); b ~ normal(0, 1); y ~ bernoulli_logit_glm(X, a, b); }
"""
METHODS: dict[str, tuple[stanct.Method[Any], dict[str, int]]] = {
    "joint": (stanct.Joint(bootstrap=0), {"draws": 1000}),
    "gibbs": (stanct.Gibbs(), {"draws": 1000}),
    "simulated_tempering": (stanct.SimulatedTempering(), {"draws": 1000}),
    "parallel_tempering": (stanct.ParallelTempering(), {"draws": 400}),
    "pseudo_extended": (stanct.PseudoExtended(bootstrap=0), {"draws": 200}),
    "ais": (stanct.AIS(), {"draws": 128}),
    "smc": (stanct.AIS(resample=True), {"draws": 128}),
    "adiabatic": (stanct.Adiabatic(), {"draws": 64, "warmup": 16}),
    "independence": (stanct.Independence(), {"draws": 20_000}),
}


@dataclass
class Pieces:
    """Seconds of processor time of the pieces of work of one run.

    Attributes
    ----------
    stages
        For each call of the execution: the seconds of each lane's blocks, in order.
    main
        Processor time of the main thread by stage of the ledger.
    marks
        Number of calls before each stage of the ledger ended.
    base
        Numbers of the calls that evaluated draws of the base.
    """

    stages: list[list[list[float]]] = field(default_factory=list)
    main: dict[str, float] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    began: float = 0.0
    base: set[int] = field(default_factory=set)

    def spent(self) -> float:
        """Processor time of all pieces with gradients."""
        moves = (stage for number, stage in enumerate(self.stages) if number not in self.base)
        return sum(sum(lane) for stage in moves for lane in stage)

    def wall(self, stage: str, workers: int) -> float:
        """Wall time of a stage of the ledger on so many workers that do nothing else."""
        names = list(self.marks)
        before = self.marks[names[names.index(stage) - 1]] if names.index(stage) else 0
        calls = range(before, self.marks[stage])
        made = (makespan(self.stages[k], workers) for k in calls)
        return self.main[stage] + sum(made)


def recording(pieces: Pieces) -> Callable[[], None]:
    """Record the pieces of the runs to come; returns what ends it."""
    blocks, each, lap, moved = Execution.blocks, Execution.each, Ledger.lap, execution._moved
    kept, times = BaseDraws.kept, list[float]()

    def timed(work: Any, lane: Any, size: int) -> Any:
        began = time.thread_time()
        block, after = moved(work, lane, size)
        times.append(time.thread_time() - began)
        return block, after

    def blocks_(self: Execution, label: str, work: Any, lanes: Any, sizes: Any, **more: Any) -> Any:
        found, early = blocks(self, label, work, lanes, sizes, **more)
        # One worker does the next block of every lane in turn.
        pieces.stages.append([times[lane :: len(lanes)] for lane in range(len(lanes))])
        times.clear()
        return found, early

    def each_(self: Execution, label: str, work: Any, items: Any) -> Any:
        seconds = [0.0] * len(items)

        def one(pair: tuple[int, Any], stopped: Any) -> Any:
            began = time.thread_time()
            result = work(pair[1], stopped)
            seconds[pair[0]] = time.thread_time() - began
            return result

        found = each(self, label, one, list(enumerate(items)))
        pieces.stages.append([[value] for value in seconds])
        return found

    def kept_(self: BaseDraws, count: int, execution: Execution, **more: Any) -> Any:
        began = time.thread_time()
        found = kept(self, count, execution, **more)
        spent = time.thread_time() - began
        portions = -(-count // self.portion)
        # One worker evaluates them in the main thread, whose time this then is not.
        pieces.base.add(len(pieces.stages))
        pieces.stages.append([[spent / portions]] * portions)
        pieces.began += spent
        return found

    def lap_(self: Ledger, stage: str) -> None:
        lap(self, stage)
        now = time.thread_time()
        pieces.main[stage] = now - pieces.began
        pieces.marks[stage] = len(pieces.stages)
        pieces.began = now

    Execution.blocks, Execution.each, Ledger.lap = blocks_, each_, lap_
    BaseDraws.kept = kept_
    execution._moved = timed
    pieces.began = time.thread_time()

    def end() -> None:
        Execution.blocks, Execution.each, Ledger.lap = blocks, each, lap
        BaseDraws.kept = kept
        execution._moved = moved

    return end


def makespan(lanes: list[list[float]], workers: int) -> float:
    """Wall time of the pieces of one call on so many workers."""
    queue = [(0.0, 0, lane) for lane in range(len(lanes)) if lanes[lane]]
    heapq.heapify(queue)
    free = [0.0] * workers
    while queue:
        ready, block, lane = heapq.heappop(queue)
        worker = min(range(workers), key=free.__getitem__)
        free[worker] = max(ready, free[worker]) + lanes[lane][block]
        if block + 1 < len(lanes[lane]):
            heapq.heappush(queue, (free[worker], block + 1, lane))
    return max(free)


def target_of(model: str) -> Any:
    """Radon, whose gradient takes five microseconds, or a regression whose gradient is slower."""
    if model == "radon":
        data = (RADON / "radon.data.json").read_text(encoding="utf-8")
        return stanct.temper(RADON / "radon.stan").target(json.loads(data))
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 20))
    y = (rng.random(2000) < 1 / (1 + np.exp(-x @ rng.normal(size=20)))).astype(int)
    return stanct.temper(LOGISTIC).target({"N": 2000, "D": 20, "X": x, "y": y})


def bare(density: Any, points: np.ndarray) -> float:
    """Microseconds of a gradient by the bare C function."""
    base = stanct.GaussianBase(np.zeros(density.dimension), np.eye(density.dimension))
    problem = make_problem(density, base)
    value, gradient = np.empty(1), np.empty(density.dimension)
    began = time.thread_time()
    kernels.repeat_density(problem.call, problem.handle, points, value, gradient, 1)
    return (time.thread_time() - began) / len(points) * 1e6


def measured(
    target: Any, method: stanct.Method[Any], base: Any, options: dict[str, int], rounds: int
) -> tuple[float, float, float, float]:
    """Bare microseconds, the ratio inside the method, the gain of two workers, and base draws."""
    ratios, gains, singles, shares = [], [], [], []
    for number in range(rounds + 1):
        pieces = Pieces()
        end = recording(pieces)
        try:
            run = stanct.sample(
                target, method, base=base, seed=number, threads=1, engine="embedded",
                progress=False, **options,
            )  # fmt: skip
        finally:
            end()
        if number == 0:
            continue  # it may have waited for a compiler
        x = base.unwhiten(run.z.reshape(-1, base.dimension))
        points = np.ascontiguousarray(x[np.linspace(0, len(x) - 1, 2000).astype(int)])
        seconds = [bare(target.density, points) for _ in range(5)]
        singles.append(statistics.median(seconds))
        if run.gradients:
            ratios.append(pieces.spent() * 1e6 / run.gradients / singles[-1])
        alone, main = pieces.wall("sampling", 1), pieces.main["sampling"]
        gains.append(alone / pieces.wall("sampling", 2))
        shares.append(main / alone)
    ratio = statistics.median(ratios) if ratios else float("nan")
    return statistics.median(singles), ratio, statistics.median(gains), statistics.median(shares)


def wall(target: Any, method: Any, base: Any, options: dict[str, int], rounds: int) -> float:
    """Wall time of the kept draws with one worker divided by that with two; the fastest count."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for number in range(rounds):
        for threads, found in seconds.items():
            run = stanct.sample(
                target, method, base=base, seed=number, threads=threads, engine="embedded",
                progress=False, **options,
            )  # fmt: skip
            found.append(run.provenance["stage_seconds"]["sampling"])
    return min(seconds[1]) / min(seconds[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--model", choices=["radon", "logistic"], default="radon")
    parser.add_argument("--base", default="pilot", help="a dense base, or low_rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--draws-factor", type=float, default=1.0, help="longer or shorter runs")
    parser.add_argument("--wall", action="store_true", help="wall times of two workers as well")
    options = parser.parse_args()
    target = target_of(options.model)
    # A short run is the simplest way to a base that all methods can share.
    base = stanct.sample(
        target, stanct.AIS(temperatures=10), draws=32, base=options.base, seed=1, progress=False
    ).base
    print(f"{options.model}, {base.dimension} dimensions, base {options.base}")
    print(f"{'method':<22}{'bare':>8}{'inside':>8}{'two':>7}{'main':>7}")
    for name in options.methods:
        method, length = METHODS[name]
        length = {k: max(64, int(v * options.draws_factor)) for k, v in length.items()}
        single, ratio, gain, share = measured(target, method, base, length, options.rounds)
        line = f"{name:<22}{single:>5.2f} µs{ratio:>8.3f}{gain:>7.2f}{share:>7.1%}"
        if options.wall:
            line += f"{wall(target, method, base, length, options.rounds):>7.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
