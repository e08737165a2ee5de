"""Draws of exported programs by the embedded engine, in files as CmdStan writes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stanct.engines.embedded import DrawBlock, Nuts, Recipe, run_nuts
from stanct.targets.density import Density


def draw(folder: Path) -> None:
    """Sample the program of an export, and write the draws to its folder `output`."""
    (program,) = folder.glob("*.stan")
    recipe = Recipe(program.read_text(), (folder / "data.json").read_text())
    own = Density(recipe)
    starts = [json.loads((folder / f"inits_{k}.json").read_text()) for k in (1, 2, 3, 4)]
    places = np.array([own.unconstrain(start) for start in starts])
    block, _ = run_nuts(recipe, places, seed=2, warmup=600, draws=2500, nuts=Nuts(0.9))
    (folder / "output").mkdir()
    names, draws = flat(block)
    for chain, rows in enumerate(draws):
        lines = [",".join(f"{value:.17g}" for value in row) for row in rows]
        text = "\n".join([",".join(names), *lines])
        (folder / "output" / f"chain_{chain + 1}.csv").write_text(f"{text}\n")


def flat(block: DrawBlock) -> tuple[list[str], np.ndarray]:
    """Names of columns as CmdStan writes them, and draws, shape (chains, draws, columns)."""
    names, columns = list[str](), list[np.ndarray]()
    for name, values in {**block.statistics, **block.variables}.items():
        for place in np.ndindex(values.shape[2:][::-1]):  # the first index is the fastest
            index = place[::-1]
            names.append(".".join([name, *(str(i + 1) for i in index)]))
            columns.append(values[(..., *index)])
    return names, np.stack(columns, axis=-1)
