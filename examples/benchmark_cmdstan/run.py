"""What a second thread, and what an OpenCL device gain or cost, in seconds per gradient.

CmdStan builds the density programs of a Boltzmann machine, of a decoder of images, and of a
logistic regression of many rows. `threads` runs them as written, and with the `reduce_sum` that
`stanct.temper(..., reduce_sum=True)` writes, by one thread and by two. `opencl` builds programs of
the same densities whose last layer moves to a device, with OpenCL and without. The script times two
runs of one chain that differ only in their number of draws. The difference between them leaves out
the time for starting up and reading data. The sides take turns, and the fastest timing of each
counts.

The joint programs use `reduce_sum` and OpenCL too. They are not timed, because the decoder has
thousands of dimensions: there a single thread multiplies by the base's dense scale matrix, and that
product would hide the gain.

The script needs CmdStan: run `stanct install-cmdstan` first. `stanct doctor` lists the OpenCL
devices of a machine.

    python run.py threads|opencl [--units 2000] [--images 100] [--rows 50000]
        [--repeats 3] [--programs boltzmann decoder logistic]
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import stanct
from stanct.common.resources import resource_folder
from stanct.engines import opencl
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts, Recipe

# The program, its data, the shape of its parameter x, and a number of draws that takes seconds.
Case = tuple[Path, dict[str, Any], tuple[int, ...], int]
SHORT = 5
PROGRAMS = ("boltzmann", "decoder", "logistic")
DEPTH = 4


def boltzmann(units: int, ending: str, rng: np.random.Generator) -> Case:
    """The relaxation of a random Boltzmann machine."""
    # A real relaxation has nearly as many dimensions as units. Fewer keep the data file small.
    dimension = max(2, units // 4)
    data = {
        "B": units,
        "D": dimension,
        "Q": rng.normal(scale=dimension**-0.5, size=(units, dimension)),
        "b": rng.normal(scale=0.1, size=units),
    }
    program = resource_folder("stan_models") / "boltzmann" / f"boltzmann{ending}.stan"
    return program, data, (dimension,), 600


def decoder(images: int, ending: str, rng: np.random.Generator) -> Case:
    """A decoder with random weights that has to explain random images."""
    sizes = (50, 200, 200, 784)
    weights = [rng.normal(scale=n**-0.5, size=(m, n)) for n, m in itertools.pairwise(sizes)]
    data = {
        **dict(zip(("N", "D", "H1", "H2", "P"), (images, *sizes), strict=True)),
        **{f"W{k}": matrix for k, matrix in enumerate(weights, 1)},
        **{f"b{k}": np.zeros(size) for k, size in enumerate(sizes[1:], 1)},
        "y": rng.integers(0, 2, size=(images, sizes[-1])),
    }
    program = resource_folder("stan_models") / "decoder" / f"decoder{ending}.stan"
    return program, data, (images, sizes[0]), 45


def logistic(rows: int, rng: np.random.Generator) -> Case:
    """A logistic regression of random outcomes on a hundred columns."""
    columns = 100
    data = {
        "N": rows,
        "K": columns,
        "X": rng.normal(size=(rows, columns)),
        "y": rng.integers(0, 2, size=rows),
    }
    return Path(__file__).parent / "logistic.stan", data, (columns,), 40


def clocks() -> np.ndarray:
    """Wall time, and processor time of the processes that have ended, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return np.array([time.perf_counter(), children.ru_utime + children.ru_stime])


def seconds_per_gradient(
    engine: CmdStan, recipe: Recipe, shape: tuple[int, ...], long: int, threads: int
) -> np.ndarray:
    """Wall and processor time of a program whose only parameter is x, of the given shape."""
    size = math.prod(shape)
    spent, gradients = [], []
    for draws in (SHORT, long):
        begun = clocks()
        block = engine.draw(
            recipe,
            np.zeros((1, size)),
            {"x": shape},
            step_size=1e-3,
            inv_metric=np.ones(size),
            seed=1,
            draws=draws,
            nuts=Nuts(max_depth=DEPTH, threads=threads),
        )
        spent.append(clocks() - begun)
        gradients.append(block.gradients)
    return (spent[1] - spent[0]) / (gradients[1] - gradients[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="Gradients by two threads or an OpenCL device.")
    parser.add_argument("kind", choices=["threads", "opencl"])
    parser.add_argument("--units", type=int, default=2000, help="units of the Boltzmann machine")
    parser.add_argument("--images", type=int, default=100, help="images for the decoder")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of the regression")
    parser.add_argument("--repeats", type=int, default=3, help="timings; the fastest counts")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    plain = CmdStan.here()
    print(plain.home)
    if options.kind == "threads":
        sides = {"as written": (plain, 1), "1 thread": (plain, 1), "2 threads": (plain, 2)}
        ending = ""
    else:
        found = opencl.devices()
        if not found:
            parser.error(f"no OpenCL device on this machine: apt-get install {opencl.PACKAGES}")
        device, ending = CmdStan.here(opencl=True), "_opencl"
        print(*(f"OpenCL {one}" for one in found), f"taken: {device.opencl}", sep="\n")
        sides = {"the processor": (plain, 1), "OpenCL": (device, 1)}
    makers = {
        "boltzmann": lambda: boltzmann(options.units, ending, rng),
        "decoder": lambda: decoder(options.images, ending, rng),
        "logistic": lambda: logistic(options.rows, rng),
    }
    for name in options.programs:
        program, data, shape, long = makers[name]()
        recipes = {
            side: stanct.temper(program, reduce_sum=side.endswith(("thread", "threads")))
            .target(data)
            .density_recipe
            for side in sides
        }
        for side, (engine, _) in sides.items():
            engine.compiled(recipes[side].source)
        times = {side: [] for side in sides}
        for _ in range(options.repeats):
            for side, (engine, threads) in sides.items():
                timed = seconds_per_gradient(engine, recipes[side], shape, long, threads)
                times[side].append(timed)
        for side in sides:
            wall, processor = 1e3 * np.min(times[side], axis=0)
            print(
                f"{program.stem}, {math.prod(shape)} parameters, {side}: {wall:.2f} ms a gradient, "
                f"processor {processor:.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
