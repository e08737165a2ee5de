"""Time of a gradient inside the compiled sampler against the bare C function in a loop.

    python examples/benchmark_kernels/run.py [MODEL.stan [DATA.json]]

Without arguments: the radon model. Both loops visit the same points in the same order, one along a
leapfrog trajectory at β = 0.5 and one without; processor time, fastest round of each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import stanct
from stanct import kernels
from stanct.kernels import Phase, Trajectory, make_problem, make_scratch

RADON = Path(__file__).resolve().parent.parent / "radon"
ROUNDS, STEPS = 300, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", type=Path, help="Stan program (default: radon)")
    parser.add_argument("data", nargs="?", type=Path, help="its data as JSON, if it has any")
    options = parser.parse_args()
    model, data = options.model, options.data
    if model is None:
        model, data = RADON / "radon.stan", RADON / "radon.data.json"
    density = stanct.temper(model).density(data)
    dimension = density.dimension
    rng = np.random.default_rng(1)
    scale = 0.05 * (np.eye(dimension) + np.tril(rng.normal(size=(dimension, dimension)), -1) / 30)
    base = stanct.GaussianBase(np.zeros(dimension), scale)
    problem, scratch = make_problem(density, base), make_scratch(dimension)
    start, momentum = rng.standard_normal((2, dimension))

    def trajectory(steps: int, keep: np.ndarray | None = None) -> float:
        state = kernels.make_state(problem, start)
        phase = Phase(state.z, momentum.copy(), state.gradient, state.value)
        begun = time.thread_time()
        if keep is None:
            kernels.leapfrog(problem, phase, Trajectory(0.5, 1e-3, steps), scratch)
        else:
            for row in keep:
                kernels.leapfrog(problem, phase, Trajectory(0.5, 1e-3, 1), scratch)
                row[:] = base.unwhiten(phase.z)
        return (time.thread_time() - begun) / steps * 1e6

    points = np.empty((STEPS, dimension))
    trajectory(STEPS, points)
    value, gradient = np.empty(1), np.empty(dimension)
    kernels.repeat_density(problem.call, problem.handle, points, value, gradient, 1)

    def bare() -> float:
        begun = time.thread_time()
        kernels.repeat_density(problem.call, problem.handle, points, value, gradient, 1)
        return (time.thread_time() - begun) / STEPS * 1e6

    times = np.array([(bare(), trajectory(STEPS)) for _ in range(ROUNDS)])
    outside, inside = times.min(axis=0)
    print(f"{model.name}: {dimension} dimensions")
    print(f"bare C call        {outside:8.3f} µs")
    print(f"inside the sampler {inside:8.3f} µs")
    print(f"added {inside - outside:.3f} µs, ratio {inside / outside:.3f}")


if __name__ == "__main__":
    main()
