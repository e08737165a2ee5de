"""Fits of four ordinary NUTS chains, as other programs make them."""

from __future__ import annotations

import numpy as np

import stanct
from stanct.engines.embedded import Nuts, run_nuts

CHAINS, DRAWS = 4, 1000


def fit_of(
    model: stanct.TemperedModel, data: dict, seed: int, target_accept: float
) -> dict[str, np.ndarray]:
    """The parameters' draws of four ordinary NUTS chains, and which transitions diverged."""
    target = model.target(data)
    density = target.density
    rng = np.random.default_rng([seed, 1])
    starts: list[np.ndarray] = []
    while len(starts) < CHAINS:
        x = rng.uniform(-2, 2, density.dimension)
        if np.isfinite(density.log_density(x)):
            starts.append(x)
    nuts = Nuts(target_accept=target_accept)
    block, _ = run_nuts(
        target.density_recipe, np.array(starts), seed=seed, warmup=1000, draws=DRAWS, nuts=nuts
    )
    draws = {name: block.variables[name] for name in target.parameter_shapes}
    return {**draws, "divergent__": block.statistics["divergent__"]}
