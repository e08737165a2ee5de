"""Gibbs continuous tempering: HMC on x | β, exact draws of β | x ([GS] Graham & Storkey 2017, 5).

Given x, β follows a truncated exponential on every linear piece of the bias ([GS] 17 for one
piece), so it is drawn exactly and ranges over the whole of [0, 1] in one move.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor

from stanct.path.bias import Bias, Course
from stanct.path.mixture import AnyBase
from stanct.runs.tempered import TemperedRun
from stanct.samplers._alternation import AlternationSettings, BiasRule, alternate
from stanct.samplers._rounds import SampledTarget, refit_bias

RULE = BiasRule(Bias.linear, Course.bias, refit_bias, sampled=False)


def sample(
    target: SampledTarget,
    *,
    chains: int = 4,
    draws: int = 2500,
    warmup: int = 500,
    target_se: float | None = None,
    max_draws: int | None = None,
    seed: int | None = None,
    base: str | AnyBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 0,
    transitions: int = 5,
    path_length: float = 1.5,
    max_steps: int = 64,
    target_accept: float = 0.8,
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TemperedRun:
    """Sample by Gibbs continuous tempering and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    chains, draws, warmup
        Chains, and kept and adaptation draws of each; a draw is `transitions` alternations of HMC
        and β. The warm-up learns bias and step sizes in rounds of doubling length.
    target_se, max_draws
        Standard error of log Z at which to stop, and the most draws of each chain that this may
        take, by default 20 × `draws`; `draws` has no other meaning then. The check ``"target_se"``
        says why the run stopped; see `stanct.samplers._precision`.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own.
    log_zeta
        Guess at log Z that goes with a base of your own; it only starts the bias.
    bootstrap
        Rounds that refit the base before the final chains. With 0 the first base is final.
    transitions
        HMC transitions, each followed by a draw of β, for each draw that is kept.
    path_length, max_steps
        Mean length of a trajectory in whitened time, and most leapfrog steps in one.
    target_accept
        Acceptance that the step size at every β is tuned to.
    threads
        Chains that run at once; as many as there are cores by default.
    executor
        Who runs the chains' blocks instead of threads: any `concurrent.futures.Executor`, also
        Dask's ``client.get_executor()``. The draws do not depend on it. The base is fitted here.
    checkpoint
        Folder from which a run that was killed goes on: repeat the same call. It stays when the run
        is finished; delete it when the run is saved.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other, or a base at whose draws the target vanishes.
    EngineError
        No base could be fitted.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before the first block of kept draws; later, the finished ones are returned.
    """
    settings = AlternationSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        transitions=transitions,
        path_length=path_length,
        max_steps=max_steps,
        target_accept=target_accept,
        bootstrap=bootstrap,
        target_se=target_se,
        max_draws=max_draws,
        threads=threads,
    )
    return alternate(
        target,
        settings,
        RULE,
        method="gibbs",
        seed=seed,
        base=base,
        log_zeta=log_zeta,
        executor=executor,
        checkpoint=checkpoint,
        progress=progress,
    )
