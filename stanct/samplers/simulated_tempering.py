"""Simulated tempering (Marinari & Parisi 1992) as in [GS] 6–9: HMC on x | rung, rung | x exactly.

Given x the rung is drawn from all of the ladder at once, P(n | x) ∝ exp(−β_n δ − b_n), and at the
lowest rung x is drawn afresh from the base. The pseudo-prior b_n = log z(β_n) and the ladder are
learned in the warm-up. Estimates use P(n | x) in place of the rungs that the chain happened to
visit ([GS] 8, 9), joined with independent draws of the base.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.estimates.path import PathEstimator
from stanct.path.bias import LadderBias, beta_grid, sigmoidal_ladder
from stanct.path.mixture import AnyBase
from stanct.runs.tempered import TemperedRun
from stanct.samplers._alternation import AlternationSettings, BiasRule, alternate
from stanct.samplers._rounds import Round, SampledTarget
from stanct.settings import whole

LADDERS = ("equal", "sigmoidal")
FIRST_RUNGS = 32
# Neighbours a third of a standard deviation of δ apart all but make a continuous path; a rung costs
# one exponential a transition.
RUNGS_PER_LENGTH, FEWEST, MOST = 3.0, 10, 200


@dataclass(frozen=True, kw_only=True)
class SimulatedTemperingSettings(AlternationSettings):
    """How simulated tempering is run; see `sample`."""

    least: ClassVar[Mapping[str, int]] = AlternationSettings.least

    ladder: str
    rungs: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ladder not in LADDERS:
            raise SamplingError(
                f"There is no ladder {self.ladder!r}.", remedy=f"Use one of {', '.join(LADDERS)}."
            )
        if self.rungs is not None:
            whole("rungs", self.rungs, 2)

    def rule(self) -> BiasRule:
        """The pseudo-prior along what is known of log z(β)."""
        first = sigmoidal_ladder((self.rungs or FIRST_RUNGS) - 1)
        return BiasRule(
            lambda log_zeta: LadderBias.linear(first, log_zeta),
            lambda course, _: LadderBias(
                first, np.interp(first, course.beta, course.log_z - course.log_z[0])
            ),
            lambda done, _: self._refitted(done),
            sampled=True,
        )

    def _refitted(self, done: Round) -> LadderBias:
        """The ladder of equal length, or the sigmoidal one, with log z(β_n) of a round."""
        estimator = done.estimator
        grid, length = thermodynamic_length(estimator)
        wanted = int(np.clip(np.ceil(RUNGS_PER_LENGTH * length[-1]) + 1, FEWEST, MOST))
        count = self.rungs or wanted
        if self.ladder == "equal":
            betas = equal_length(grid, length, count)
        else:
            betas = sigmoidal_ladder(count - 1)
        log_z = np.array([estimator.log_z(beta) for beta in betas])
        return LadderBias(betas, log_z - log_z[0])


def thermodynamic_length(estimator: PathEstimator) -> tuple[Array, Array]:
    """∫₀^β sd_β′(δ) dβ′ on a grid of β, by the trapezoidal rule; (grid, lengths)."""
    grid = beta_grid(101)
    speed = np.sqrt(estimator.delta_moments(grid)[1])
    pieces = np.diff(grid) * 0.5 * (speed[1:] + speed[:-1])
    return grid, np.concatenate([[0.0], np.cumsum(pieces)])


def equal_length(grid: Array, length: Array, rungs: int) -> Array:
    """The ladder whose neighbours are equally far apart in thermodynamic length, shape (rungs,)."""
    # A path without length, where base and target agree, still needs distinct rungs.
    padded = length + 1e-3 * max(length[-1], 1e-3) * grid
    betas = np.interp(np.linspace(0, padded[-1], rungs), padded, grid)
    betas[0], betas[-1] = 0.0, 1.0
    return betas


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
    ladder: str = "equal",
    rungs: int | None = None,
    transitions: int = 5,
    path_length: float = 1.5,
    max_steps: int = 64,
    target_accept: float = 0.8,
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TemperedRun:
    """Sample by simulated tempering and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    chains, draws, warmup
        Chains, and kept and adaptation draws of each; a draw is `transitions` alternations of HMC
        and the rung. The warm-up learns the ladder, its bias and step sizes in rounds of doubling
        length.
    target_se, max_draws
        Standard error of log Z at which to stop, and the most draws of each chain that this may
        take, by default 20 × `draws`; `draws` has no other meaning then. The check ``"target_se"``
        says why the run stopped; see `stanct.samplers._precision`.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own. It is sampled at β = 0.
    log_zeta
        Guess at log Z that goes with a base of your own; it only starts the bias.
    bootstrap
        Rounds that refit the base before the final chains. With 0 the first base is final.
    ladder
        ``"equal"``: rungs at equal thermodynamic length ∫ sd_β(δ) dβ, learned in the warm-up;
        ``"sigmoidal"``: [GS] 7.2's.
    rungs
        By default three for each unit of thermodynamic length, from 10 to 200.
    transitions
        HMC transitions, each followed by a draw of the rung, for each draw that is kept.
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

    Returns
    -------
    TemperedRun
        Its `beta` are the rungs visited, its `bias` is a `LadderBias`; averages and log z are
        available at every β, also between rungs.

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
    settings = SimulatedTemperingSettings(
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
        ladder=ladder,
        rungs=rungs,
        threads=threads,
    )
    return alternate(
        target,
        settings,
        settings.rule(),
        method="simulated_tempering",
        seed=seed,
        base=base,
        log_zeta=log_zeta,
        executor=executor,
        checkpoint=checkpoint,
        progress=progress,
    )
