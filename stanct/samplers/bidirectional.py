"""Bidirectional Monte Carlo (Grosse, Ghahramani & Adams 2015): AIS upwards and downwards.

For data simulated from the program the parameters that they came from are an exact draw from the
posterior. Annealing from there to the base gives unbiased estimates of 1/Z, so that log Z lies
between two stochastic bounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from stanct import kernels
from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.kernels import make_problem
from stanct.path.mixture import AnyBase
from stanct.runs.bracket import Bracket
from stanct.samplers._annealing import AnnealingSettings, anneal, down
from stanct.samplers._rounds import SampledTarget
from stanct.targets.program_target import Target
from stanct.work.execution import executing

Point = Mapping[str, Any] | Array
Exact = Point | Callable[[np.random.Generator], Point]


def sample(
    target: SampledTarget,
    exact: Exact,
    *,
    chains: int = 4,
    draws: int = 128,
    warmup: int = 8,
    seed: int | None = None,
    base: str | AnyBase = "pilot",
    log_zeta: float | None = None,
    temperatures: int = 200,
    resample: bool = False,
    island: int = 32,
    transitions: int = 1,
    path_length: float = 1.5,
    max_steps: int = 64,
    target_accept: float = 0.8,
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Bracket:
    """Anneal particles from the base up and from exact draws down.

    Parameters
    ----------
    target
        Program and simulated data, or a `FunctionTarget`.
    exact
        An exact draw from the posterior: the parameters that the data were simulated from, name to
        value, or an unconstrained point of shape (D,), from which every chain starts. Or a function
        of a random generator that returns such a draw, called once for every chain.
    chains, draws
        Random streams, and particles of each, upwards and as many downwards.

    The other settings are those of `samplers.ais.sample`; downwards no particle is resampled.

    Raises
    ------
    SamplingError
        As `samplers.ais.sample`, or a draw that is outside the target's support.
    EngineError, DataError, KeyboardInterrupt
        As `samplers.ais.sample`.
    """
    settings = AnnealingSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        transitions=transitions,
        path_length=path_length,
        max_steps=max_steps,
        target_accept=target_accept,
        temperatures=temperatures,
        resample=resample,
        island=island,
        threads=threads,
    )
    if not callable(exact):
        _unconstrained(target, exact)
    with executing(
        target,
        "bidirectional",
        {**asdict(settings), "base": base, "log_zeta": log_zeta, "exact": _name(exact)},
        seed=seed,
        executor=executor,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        run, streams = anneal(target, settings, base, log_zeta, execution)
        for stream in streams:
            draw = exact(stream.rng) if callable(exact) else exact
            z = run.base.whiten(_unconstrained(target, draw))
            stream.state = kernels.make_state(make_problem(target.density, run.base), z)
        blocks, _ = execution.blocks(
            "particles down",
            partial(down, target.density.borrow, run.base, run.betas, settings),
            streams,
            [island] * (draws // island),
            unit="particle",
        )
    return Bracket(
        run,
        np.stack([np.concatenate([block.log_weights for block in chain]) for chain in blocks]),
        np.array([np.sum([block.tally.counts for block in chain], axis=0) for chain in blocks]),
    )


def _name(exact: Exact) -> Any:
    """What tells a draw, or a function that makes one, from another."""
    return getattr(exact, "__qualname__", type(exact).__qualname__) if callable(exact) else exact


def _unconstrained(target: SampledTarget, draw: Point) -> Array:
    """The draw as an unconstrained point, shape (D,), inside the target's support."""
    if isinstance(draw, Mapping):
        if not isinstance(target, Target):
            raise SamplingError(
                "Parameters by name belong to a Stan program, and this target has none.",
                remedy="Pass the unconstrained point, an array.",
            )
        try:
            x = target.density.unconstrain(draw)
        except ValueError as cause:
            raise SamplingError(
                f"The exact draw is no value of the program's parameters: {cause}",
                remedy="Pass every parameter that the data were simulated from, name to value.",
            ) from cause
    else:
        x = np.asarray(draw, float)
    if x.shape != (target.density.dimension,):
        raise SamplingError(
            f"An exact draw has shape ({target.density.dimension},), not {x.shape}.",
        )
    if not np.isfinite(target.density.log_densities(x[None])[0]):
        raise SamplingError(
            "The target vanishes, or Stan rejects it, at the exact draw.",
            remedy="Check that data and parameters come from the same simulation.",
        )
    return x
