"""What `reduce_sum` gains from threads: seconds a gradient with 1 thread and with 2.

The tempered (joint) programs of a Boltzmann machine and of a decoder of images, built by CmdStan.
Two runs of one chain that differ only in their number of draws are timed, so that reading data and
starting up drop out. Needs a CmdStan: `stanct install-cmdstan`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

import stanct
from stanct.base import GaussianBase
from stanct.cmdstan import CmdStan
from stanct.embedded import Nuts, Recipe
from stanct.path import Bias
from stanct.resources import resource_folder

SHORT, LONG = 5, 45
DEPTH = 4


def boltzmann(units: int, rng: np.random.Generator) -> tuple[Path, dict[str, Any]]:
    dimension = max(2, units // 10)
    data = {
        "B": units,
        "D": dimension,
        "Q": rng.normal(scale=dimension**-0.5, size=(units, dimension)),
        "b": rng.normal(scale=0.1, size=units),
    }
    return resource_folder("stan_models") / "boltzmann" / "boltzmann_reduce_sum.stan", data


def decoder(images: int, rng: np.random.Generator) -> tuple[Path, dict[str, Any]]:
    sizes = (50, 200, 200, 784)
    weights = [rng.normal(scale=n**-0.5, size=(m, n)) for n, m in itertools.pairwise(sizes)]
    data = {
        **dict(zip(("N", "D", "H1", "H2", "P"), (images, *sizes), strict=True)),
        **{f"W{k}": matrix for k, matrix in enumerate(weights, 1)},
        **{f"b{k}": np.zeros(size) for k, size in enumerate(sizes[1:], 1)},
        "y": rng.integers(0, 2, size=(images, sizes[-1])),
    }
    return resource_folder("stan_models") / "decoder" / "decoder_reduce_sum.stan", data


def seconds_per_gradient(engine: CmdStan, recipe: Recipe, size: int, threads: int) -> float:
    """Of the joint program, which has a base with identity scale and `size` + 1 parameters."""
    spent, gradients = [], []
    for draws in (SHORT, LONG):
        begun = time.perf_counter()
        block = engine.draw(
            recipe,
            np.zeros((1, size + 1)),
            {"ct_z": (size,), "ct_u": ()},
            step_size=1e-3,
            inv_metric=np.ones(size + 1),
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
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    engine = CmdStan.here()
    print(engine.home)
    for program, data in (boltzmann(options.units, rng), decoder(options.images, rng)):
        target = stanct.temper(program).target(data)
        size = target.density.dimension
        base = GaussianBase.from_covariance(np.zeros(size), np.eye(size))
        recipe = target.joint_recipe(base, Bias.linear(0.0))
        engine.compiled(recipe.source)
        one, two = (seconds_per_gradient(engine, recipe, size, threads) for threads in (1, 2))
        print(
            f"{program.stem}, {size} parameters: {1e3 * one:.2f} ms a gradient with 1 thread, "
            f"{1e3 * two:.2f} ms with 2: {one / two:.2f} times faster"
        )


if __name__ == "__main__":
    main()
