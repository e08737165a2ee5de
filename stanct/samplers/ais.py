"""Annealed importance sampling (Neal 2001; [GS] 10), optionally with resampling (adaptive SMC).

Particles start at the base and are moved by HMC along an annealing schedule; a particle's log
weight gains −(β_{n+1} − β_n) δ before each move. Step sizes are learned from pilot particles and
frozen. With resampling, islands of particles are resampled among themselves whenever their weights
degenerate; islands stay independent of each other, so errors come from the spread between them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from stanct import kernels, lanes
from stanct.base import GaussianBase
from stanct.embedded import NAME
from stanct.errors import SamplingError
from stanct.execution import Borrow, Execution, executing
from stanct.path import Array
from stanct.rounds import Ledger, SampledTarget, first_base, provenance
from stanct.runs.particle_run import ParticleRun
from stanct.settings import MoveSettings
from stanct.workspace import (
    Rungs,
    StepTable,
    copy_table,
    make_problem,
    make_rungs,
    make_scratch,
    make_table,
    pool_tables,
)

PILOT_ROUNDS = 2
# Effective share of an island's particles below which it is resampled.
RESAMPLE_BELOW = 0.5


def sigmoidal_schedule(temperatures: int) -> Array:
    """β_n ∝ logistic(4 (2n/N − 1)), rescaled to run from 0 to 1, shape (N + 1,) ([GS] 7.2)."""
    raw = 1 / (1 + np.exp(-4 * np.linspace(-1, 1, temperatures + 1)))
    schedule = (raw - raw[0]) / (raw[-1] - raw[0])
    schedule[-1] = 1.0
    return schedule


@dataclass(frozen=True, kw_only=True)
class AnnealingSettings(MoveSettings):
    """How annealed importance sampling is run; see `sample`."""

    least: ClassVar[Mapping[str, int]] = {
        **MoveSettings.least,
        "warmup": 1,
        "temperatures": 2,
        "island": 2,
    }

    temperatures: int
    resample: bool
    island: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws % self.island or self.chains * self.draws < 2 * self.island:
            raise SamplingError(
                f"draws={self.draws} must be a multiple of island={self.island}, and there must be "
                "two or more islands."
            )


@dataclass(frozen=True)
class _Particles:
    """Finished particles of one island."""

    z: Array
    log_weights: Array
    counts: Array


@dataclass
class _Stream:
    """One chain's random stream and step table; it anneals one island after another."""

    rng: np.random.Generator
    table: StepTable


def _anneal(
    borrow: Borrow,
    base: GaussianBase,
    betas: Array,
    settings: AnnealingSettings,
    learn: bool,
    stream: _Stream,
    size: int,
) -> _Particles:
    """Take fresh particles from the base to the target."""
    rungs = make_rungs(stream.rng.standard_normal((size, base.dimension)))
    scratch = make_scratch(base.dimension)
    log_weights, counts = np.zeros(size), np.zeros(5)
    counts[0] = size
    resample = settings.resample and not learn
    # Without resampling nothing happens between temperatures, so that one call does them all.
    segments = itertools.pairwise(betas) if resample else [betas]
    with borrow() as density:
        problem = make_problem(density, base)
        for k in range(size):
            kernels.evaluate(problem, rungs.z[k], rungs.gradient[k], rungs.value[k], scratch)
        for segment in segments:
            kernels.anneal(
                problem,
                rungs,
                log_weights,
                np.asarray(segment, float),
                stream.table,
                settings.moves(learn=learn),
                settings.transitions,
                stream.rng,
                scratch,
                counts,
            )
            if resample:
                rungs, log_weights = _resampled(rungs, log_weights, stream.rng)
    return _Particles(rungs.z.copy(), log_weights, counts)


def _resampled(rungs: Rungs, log_weights: Array, rng: np.random.Generator) -> tuple[Rungs, Array]:
    """Resample systematically if too few particles carry the weight; keeps the mean weight."""
    top = log_weights.max()
    if not np.isfinite(top):
        return rungs, log_weights
    weights = np.exp(log_weights - top)
    share = weights.sum() ** 2 / np.square(weights).sum() / weights.size
    if share >= RESAMPLE_BELOW:
        return rungs, log_weights
    comb = (np.arange(weights.size) + rng.random()) / weights.size
    cumulative = weights.cumsum() / weights.sum()
    picked = np.minimum(np.searchsorted(cumulative, comb), weights.size - 1)
    chosen = make_rungs(rungs.z[picked])
    chosen.gradient[:], chosen.value[:] = rungs.gradient[picked], rungs.value[picked]
    return chosen, np.full(weights.size, top + np.log(weights.mean()))


def sample(
    target: SampledTarget,
    *,
    chains: int = 4,
    draws: int = 128,
    warmup: int = 8,
    seed: int | None = None,
    base: str | GaussianBase = "pilot",
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
) -> ParticleRun:
    """Anneal particles from the base to the target and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    chains, draws
        Random streams, which can run at once, and particles of each.
    warmup
        Pilot particles of each stream in each of two rounds, from which step sizes are learned.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The particles are the same for
        any number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own. It is only sampled, so a wide one does no harm.
    log_zeta
        Not needed here; accepted with a base of your own as by the other methods.
    temperatures
        Steps of the sigmoidal schedule.
    resample
        Resample islands whose weights degenerate: adaptive sequential Monte Carlo.
    island
        Particles of an island; divides `draws`.
    transitions
        HMC transitions at each temperature.
    path_length, max_steps
        Mean length of a trajectory in whitened time, and most leapfrog steps in one.
    target_accept
        Acceptance that the step size at every β is tuned to.
    threads
        Streams that run at once; as many as there are cores by default.
    executor
        Who runs the streams' blocks instead of threads: any `concurrent.futures.Executor`, also
        Dask's ``client.get_executor()``. The particles do not depend on it. The base is fitted
        in this process.
    checkpoint
        Folder from which a run that was killed goes on: repeat the same call. It stays when the run
        is finished; delete it when the run is saved.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other, or a target that vanishes at every particle.
    EngineError
        No base could be fitted.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before every stream had finished an island; later, finished ones are returned.
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
    with executing(
        target,
        "ais",
        {**asdict(settings), "base": base, "log_zeta": log_zeta},
        seed=seed,
        executor=executor,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        return _sample(target, settings, base, log_zeta, execution)


def _sample(
    target: SampledTarget,
    settings: AnnealingSettings,
    base: str | GaussianBase,
    log_zeta: float | None,
    execution: Execution,
) -> ParticleRun:
    """First base, pilot particles, particles."""
    ledger = Ledger()
    chains, seed = settings.chains, execution.seed
    fit_seed, variable_seed, *lane_seeds = np.random.SeedSequence(seed).spawn(chains + 2)
    start = first_base(
        target,
        base,
        log_zeta,
        chains=chains,
        seed=fit_seed,
        nuts=settings.nuts,
        execution=execution,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    betas = sigmoidal_schedule(settings.temperatures)
    dimension, borrow = start.base.dimension, target.density.borrow
    streams = [_Stream(lanes.stream(child), make_table(dimension)) for child in lane_seeds]
    table = _learn(borrow, streams, start.base, betas, settings, ledger, execution)
    ledger.lap("warmup")
    blocks, interrupted = execution.blocks(
        "particles",
        partial(_anneal, borrow, start.base, betas, settings, False),
        streams,
        [settings.island] * (settings.draws // settings.island),
        unit="particle",
        final=True,
    )
    ledger.lap("sampling")
    log_weights = np.stack([np.concatenate([b.log_weights for b in chain]) for chain in blocks])
    if not np.isfinite(log_weights).any():
        raise SamplingError(
            f"The target vanishes, or Stan rejects it, at all of {log_weights.size} particles.",
            remedy="Pass a base that overlaps the target's support.",
        )
    z = np.stack([np.concatenate([block.z for block in chain]) for chain in blocks])
    counts = np.array([np.sum([block.counts for block in chain], axis=0) for chain in blocks])
    ledger.gradients += int(counts[:, 0].sum())
    variables = target.variables(start.base.unwhiten(z), variable_seed)
    return ParticleRun(
        method="smc" if settings.resample else "ais",
        engine=NAME if target.programs else "python",
        variables=variables,
        z=z,
        log_weights=log_weights,
        island=settings.island if settings.resample else 1,
        betas=betas,
        counts=counts,
        base=start.base,
        programs=target.programs,
        data=target.data_text,
        provenance=provenance(
            target,
            {**asdict(settings), "seed": seed, "base": base if isinstance(base, str) else "given"},
            ledger,
            interrupted=interrupted,
            log_step=table.log_step.tolist(),
        ),
    )


def _learn(
    borrow: Borrow,
    streams: list[_Stream],
    base: GaussianBase,
    betas: Array,
    settings: AnnealingSettings,
    ledger: Ledger,
    execution: Execution,
) -> StepTable:
    """Learn step sizes from pilot particles, pool them, and freeze them in every stream."""
    pooled = streams[0].table
    for _ in range(PILOT_ROUNDS):
        blocks, _ = execution.blocks(
            "pilot",
            partial(_anneal, borrow, base, betas, settings, True),
            streams,
            [settings.warmup],
            unit="particle",
        )
        ledger.gradients += int(sum(block.counts[0] for chain in blocks for block in chain))
        pooled = pool_tables([stream.table for stream in streams])
        for stream in streams:
            stream.table = copy_table(pooled)
    return pooled
