"""What `reduce_sum` gains from threads: seconds a gradient with 1 thread and with 2.

The density programs of a Boltzmann machine and of a decoder of images, built by CmdStan. Joint
programs keep `reduce_sum`, but in the decoder's thousands of dimensions the product with the base's
dense scale, which one thread does, would hide what it gains. Two runs of one chain that differ only
in their number of draws are timed, so that reading data and starting up drop out; both numbers of
threads take turns, and the best of each counts. Needs a CmdStan: `stanct install-cmdstan`.
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

# Program, data, shape of its parameter x, and draws that take some seconds.
Case = tuple[Path, dict[str, Any], tuple[int, ...], int]
SHORT = 5
DEPTH = 4


def boltzmann(units: int, rng: np.random.Generator) -> Case:
    dimension = max(2, units // 4)  # relaxations have nearly as many as units; less data to write
    data = {
        "B": units,
        "D": dimension,
        "Q": rng.normal(scale=dimension**-0.5, size=(units, dimension)),
        "b": rng.normal(scale=0.1, size=units),
    }
    program = resource_folder("stan_models") / "boltzmann" / "boltzmann_reduce_sum.stan"
    return program, data, (dimension,), 600


def decoder(images: int, rng: np.random.Generator) -> Case:
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
    """Of a program with the one parameter x of that shape."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=2000, help="of the Boltzmann machine")
    parser.add_argument("--images", type=int, default=100, help="that the decoder explains")
    parser.add_argument("--repeats", type=int, default=3, help="of each, in turn; the best counts")
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
            f"{program.stem}, {math.prod(shape)} parameters: {1e3 * one:.2f} ms a gradient with 1 "
            f"thread, {1e3 * two:.2f} ms with 2: {one / two:.2f} times faster",
            flush=True,
        )


if __name__ == "__main__":
    main()
