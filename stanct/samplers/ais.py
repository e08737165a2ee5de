"""Annealed importance sampling (Neal 2001; [GS] 10), optionally with resampling (adaptive SMC)."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import asdict

from stanct.path.mixture import AnyBase
from stanct.runs.particle import ParticleRun
from stanct.samplers._annealing import AnnealingSettings, anneal
from stanct.samplers._rounds import SampledTarget
from stanct.work.execution import executing


def sample(
    target: SampledTarget,
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
        run, _ = anneal(target, settings, base, log_zeta, execution)
        return run
