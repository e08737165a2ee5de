"""The time of a gradient inside the compiled sampler, and of the bare C function in a loop.

    python run.py [MODEL.stan DATA.json]

Without arguments the script times the radon model. Both loops visit the same points in the same
order. One follows a leapfrog trajectory at β = 0.5, and the other only calls the density. The
script measures processor time, and the fastest round of each loop counts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import stanct
from stanct.kernels import loops as kernels
from stanct.kernels.records import Problem, make_problem, make_scratch

ROUNDS, STEPS = 300, 300


@kernels.compiled
def bare_loop(
    problem: Problem, points: np.ndarray, value: np.ndarray, gradient: np.ndarray
) -> float:
    """Call the density at every row of `points` and do nothing else."""
    total = 0.0
    for n in range(points.shape[0]):
        x = points[n]
        problem.call(
            problem.handle, True, True, x.ctypes.data, value.ctypes.data, gradient.ctypes.data,
            np.uintp(0),
        )  # fmt: skip
        total += value[0]
    return total


def main() -> None:
    here = Path(__file__).resolve().parent.parent / "radon"
    paths = sys.argv[1:] or [str(here / "radon.stan"), str(here / "radon.data.json")]
    density = stanct.temper(paths[0]).density(*paths[1:2])
    dimension = density.dimension
    rng = np.random.default_rng(1)
    scale = 0.05 * (np.eye(dimension) + np.tril(rng.normal(size=(dimension, dimension)), -1) / 30)
    base = stanct.GaussianBase(np.zeros(dimension), scale)
    problem, scratch = make_problem(density, base), make_scratch(dimension)
    start, momentum = rng.standard_normal((2, dimension))

    def trajectory(steps: int, keep: np.ndarray | None = None) -> float:
        state, p = kernels.make_state(problem, start), momentum.copy()
        begun = time.thread_time()
        if keep is None:
            kernels.leapfrog(
                problem, state.z, p, state.gradient, state.value, 0.5, 1e-3, steps, scratch
            )
        else:
            for row in keep:
                kernels.leapfrog(
                    problem, state.z, p, state.gradient, state.value, 0.5, 1e-3, 1, scratch
                )
                row[:] = base.unwhiten(state.z)
        return (time.thread_time() - begun) / steps * 1e6

    points = np.empty((STEPS, dimension))
    trajectory(STEPS, points)
    value, gradient = np.empty(1), np.empty(dimension)
    bare_loop(problem, points[:1], value, gradient)

    def bare() -> float:
        begun = time.thread_time()
        bare_loop(problem, points, value, gradient)
        return (time.thread_time() - begun) / STEPS * 1e6

    times = np.array([(bare(), trajectory(STEPS)) for _ in range(ROUNDS)])
    outside, inside = times.min(axis=0)
    print(f"{Path(paths[0]).name}: {dimension} dimensions")
    print(f"bare C call        {outside:8.3f} µs per gradient")
    print(f"inside the sampler {inside:8.3f} µs per gradient")
    print(f"The sampler adds {inside - outside:.3f} µs, a ratio of {inside / outside:.3f}.")


if __name__ == "__main__":
    main()
