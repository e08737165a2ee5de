"""How much `reduce_sum` gains from a second thread, in seconds per gradient.

CmdStan builds the density programs of a Boltzmann machine and of a decoder of images. The script
times two runs of one chain that differ only in their number of draws. The difference between them
leaves out the time for starting up and reading data. Runs with 1 and with 2 threads take turns, and
the fastest of each counts.

The joint programs use `reduce_sum` too. They are not timed, because the decoder has thousands of
dimensions: there a single thread multiplies by the base's dense scale matrix, and that product
would hide the gain.

The script needs CmdStan: run `stanct install-cmdstan` first.

    python run.py [--units 2000] [--images 100] [--repeats 3]
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import stanct
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts, Recipe
from stanct.resources import resource_folder

# The program, its data, the shape of its parameter x, and a number of draws that takes seconds.
Case = tuple[Path, dict[str, Any], tuple[int, ...], int]
SHORT = 5
DEPTH = 4


def boltzmann(units: int, rng: np.random.Generator) -> Case:
    """The relaxation of a random Boltzmann machine."""
    # A real relaxation has nearly as many dimensions as units. Fewer keep the data file small.
    dimension = max(2, units // 4)
    data = {
        "B": units,
        "D": dimension,
        "Q": rng.normal(scale=dimension**-0.5, size=(units, dimension)),
        "b": rng.normal(scale=0.1, size=units),
    }
    program = resource_folder("stan_models") / "boltzmann" / "boltzmann_reduce_sum.stan"
    return program, data, (dimension,), 600


def decoder(images: int, rng: np.random.Generator) -> Case:
    """A decoder with random weights that has to explain random images."""
    sizes = (50, 200, 200, 784)
    weights = [rng.normal(scale=n**-0.5, size=(m, n)) for n, m in itertools.pairwise(sizes)]
    data = {
        **dict(zip(("N", "D", "H1", "H2", "P"), (images, *sizes), strict=True)),
        **{f"W{k}": matrix for k, matrix in enumerate(weights, 1)},
        **{f"b{k}": np.zeros(size) for k, size in enumerate(sizes[1:], 1)},
        "y": rng.integers(0, 2, size=(images, sizes[-1])),
    }
    program = resource_folder("stan_models") / "decoder" / "decoder_reduce_sum.stan"
    return program, data, (images, sizes[0]), 45


def seconds_per_gradient(
    engine: CmdStan, recipe: Recipe, shape: tuple[int, ...], long: int, threads: int
) -> float:
    """Time a program whose only parameter is x, of the given shape."""
    size = math.prod(shape)
    spent, gradients = [], []
    for draws in (SHORT, long):
        begun = time.perf_counter()
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
        spent.append(time.perf_counter() - begun)
        gradients.append(block.gradients)
    return (spent[1] - spent[0]) / (gradients[1] - gradients[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="Gradients with one thread and with two.")
    parser.add_argument("--units", type=int, default=2000, help="units of the Boltzmann machine")
    parser.add_argument("--images", type=int, default=100, help="images for the decoder")
    parser.add_argument("--repeats", type=int, default=3, help="timings; the fastest counts")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    engine = CmdStan.here()
    print(engine.home)
    for program, data, shape, long in (boltzmann(options.units, rng), decoder(options.images, rng)):
        recipe = stanct.temper(program).target(data).density_recipe
        engine.compiled(recipe.source)
        seconds = {1: [], 2: []}
        for _ in range(options.repeats):
            for threads, found in seconds.items():
                found.append(seconds_per_gradient(engine, recipe, shape, long, threads))
        one, two = min(seconds[1]), min(seconds[2])
        print(
            f"{program.stem}, {math.prod(shape)} parameters: {1e3 * one:.2f} ms per gradient with "
            f"1 thread, {1e3 * two:.2f} ms with 2, a speed-up of {one / two:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
