"""Parallel tempering with non-reversible swaps (Syed, Bouchard-Côté, Deligiannidis & Doucet 2022).

Each chain is a ladder of its own: K rungs from the base at β = 0, drawn afresh in every scan, to
the target at β = 1. In a scan every rung moves by HMC, then neighbours are swapped, even pairs in
even scans and odd pairs in odd ones. Between warm-up rounds of doubling length the rungs are moved
to equal rejection and step sizes are pooled; `bootstrap` rounds refit the base. All is frozen then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from stanct import kernels
from stanct.base import GaussianBase, gaussian_moments
from stanct.embedded import NAME, Nuts
from stanct.errors import SamplingError
from stanct.lanes import Lane, block_sizes, run_blocks
from stanct.path import Array
from stanct.rounds import (
    LEAST_SHRINKAGE,
    Ledger,
    SampledTarget,
    first_base,
    provenance,
    run_seed,
)
from stanct.runs.ladder import equal_rejection
from stanct.runs.ladder_run import LadderRun
from stanct.settings import MoveSettings
from stanct.workspace import (
    LadderOut,
    copy_table,
    make_ladder_out,
    make_rungs,
    make_table,
    pool_tables,
)

BLOCK = 50
DOUBLING = (1, 1, 2, 4, 8)
FIRST_RUNGS = 12
# About 2 Λ rungs are best for round trips; a few more make the evidence's steps easier.
RUNGS_PER_BARRIER = 2.5
ROUND_DRAWS = 200


@dataclass(frozen=True, kw_only=True)
class LadderSettings(MoveSettings):
    """How parallel tempering is run; see `sample`."""

    least: ClassVar[Mapping[str, int]] = {**MoveSettings.least, "bootstrap": 0}

    rungs: int | None
    reversible: bool
    bootstrap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rungs is not None and self.rungs < 2:
            raise SamplingError(f"A ladder needs two or more rungs, not {self.rungs}.")


class _Ladder:
    """One chain: a lane, the states of its rungs and its step table, moved in place."""

    def __init__(self, lane: Lane, base: GaussianBase, rungs: int) -> None:
        self.lane = lane
        self.table = make_table(base.dimension)
        self.place(base, np.array([lane.start(base).z for _ in range(rungs)]))

    def place(self, base: GaussianBase, z: Array) -> None:
        """Put the rungs at whitened places, shape (K, D)."""
        self.rungs = make_rungs(z)
        problem = self.lane.problem(base)
        for k in range(len(z)):
            row = (self.rungs.z[k], self.rungs.gradient[k], self.rungs.value[k])
            kernels.evaluate(problem, *row, self.lane.scratch)

    def inside(self) -> Array:
        """Where its rungs are, with one inside the support for rung 0, shape (K, D)."""
        z = self.rungs.z.copy()
        z[0] = z[1]
        return z

    def scan(
        self, base: GaussianBase, betas: Array, settings: LadderSettings, scans: int, learn: bool
    ) -> LadderOut:
        """A block of scans."""
        out = make_ladder_out(scans, betas.size, base.dimension)
        kernels.ladder_scans(
            self.lane.problem(base),
            self.rungs,
            betas,
            self.table,
            settings.moves(learn=learn),
            settings.transitions,
            settings.reversible,
            self.lane.rng,
            self.lane.scratch,
            out,
        )
        return out


@dataclass(frozen=True)
class _Scans:
    """Blocks of all ladders joined, (chains, draws, ...) or (chains, ...)."""

    z: Array
    delta: Array
    rejection: Array
    counts: Array
    interrupted: bool


def sample(
    target: SampledTarget,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 300,
    seed: int | None = None,
    base: str | GaussianBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 0,
    rungs: int | None = None,
    transitions: int = 1,
    path_length: float = 1.5,
    max_steps: int = 64,
    target_accept: float = 0.8,
    reversible: bool = False,
    threads: int | None = None,
    progress: bool = True,
) -> LadderRun:
    """Sample by parallel tempering and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    chains, draws, warmup
        Independent ladders, and kept and adaptation scans of each.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own. It is sampled at β = 0, so a wide one does no harm.
    log_zeta
        Not needed here; accepted with a base of your own as by the other methods.
    bootstrap
        Rounds that refit the base to draws at β = 1 before the final ladder.
    rungs
        K; by default 2.5 times the barrier measured in the warm-up, at least 4.
    transitions
        HMC transitions of each rung in a scan.
    path_length, max_steps
        Mean length of a trajectory in whitened time, and most leapfrog steps in one.
    target_accept
        Acceptance that the step size at every β is tuned to.
    reversible
        Swap even or odd pairs by a coin instead of in turn; slower, for comparison.
    threads
        Ladders that run at once; as many as there are cores by default.
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
    KeyboardInterrupt
        Interrupted before the first block of kept draws; later, the finished ones are returned.
    """
    settings = LadderSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        transitions=transitions,
        path_length=path_length,
        max_steps=max_steps,
        target_accept=target_accept,
        rungs=rungs,
        reversible=reversible,
        bootstrap=bootstrap,
        threads=threads,
    )
    seed = run_seed(seed)
    ledger = Ledger()
    fit_seed, variable_seed, *lane_seeds = np.random.SeedSequence(seed).spawn(chains + 2)
    nuts = Nuts() if threads is None else Nuts(threads=threads)
    start = first_base(target, base, log_zeta, chains=chains, seed=fit_seed, nuts=nuts)
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current = start.base
    # Denser near the base, where the path of a poorly matching base is steep.
    betas = np.linspace(0, 1, rungs or FIRST_RUNGS) ** 2
    ladders = [_Ladder(Lane(target.density, child), current, betas.size) for child in lane_seeds]
    for number in range(bootstrap):
        betas = _adapt(ladders, current, betas, settings, progress, ledger)
        label = f"round {number + 1}"
        done = _run(ladders, current, betas, settings, ROUND_DRAWS, label, progress, ledger)
        if done.interrupted:
            raise KeyboardInterrupt
        new = _refit(current, done.z)
        for ladder in ladders:
            ladder.place(new, new.whiten(current.unwhiten(ladder.inside())))
        current = new
    ledger.lap("bootstrap")
    betas = _adapt(ladders, current, betas, settings, progress, ledger)
    for ladder in ladders:
        ladder.rungs.clock[:] = 0
        ladder.rungs.heading[:] = 0
    ledger.lap("warmup")
    done = _run(ladders, current, betas, settings, draws, "ladders", progress, ledger)
    ledger.lap("sampling")
    variables = target.variables(current.unwhiten(done.z), variable_seed)
    ledger.lap("variables")
    return LadderRun(
        method="parallel_tempering",
        engine=NAME if target.programs else "python",
        variables=variables,
        z=done.z,
        betas=betas,
        delta=done.delta,
        rejection=done.rejection,
        counts=done.counts,
        round_trips=np.array([ladder.rungs.clock[1] for ladder in ladders]),
        base=current,
        programs=target.programs,
        data=target.data_text,
        provenance=provenance(
            target,
            {**asdict(settings), "seed": seed, "base": base if isinstance(base, str) else "given"},
            ledger,
            interrupted=done.interrupted,
            log_step=ladders[0].table.log_step.tolist(),
        ),
    )


def _adapt(
    ladders: list[_Ladder],
    base: GaussianBase,
    betas: Array,
    settings: LadderSettings,
    progress: bool,
    ledger: Ledger,
) -> Array:
    """Warm up in rounds of doubling length; returns the frozen ladder."""
    for share in DOUBLING:
        size = max(settings.warmup * share // sum(DOUBLING), 2)
        done = _run(ladders, base, betas, settings, size, "warm-up", progress, ledger, learn=True)
        if done.interrupted:
            raise KeyboardInterrupt
        rejection = done.rejection.mean(axis=0)
        count = settings.rungs or int(np.clip(np.ceil(RUNGS_PER_BARRIER * rejection.sum()), 4, 64))
        new, _ = equal_rejection(betas, rejection, count + (settings.rungs is None))
        nearest = np.abs(new[:, None] - betas).argmin(axis=1)
        pooled = pool_tables([ladder.table for ladder in ladders])
        for ladder in ladders:
            ladder.table = copy_table(pooled)
            ladder.place(base, ladder.inside()[nearest])
        betas = new
    return betas


def _refit(base: GaussianBase, z: Array) -> GaussianBase:
    """The Gaussian with the moments of the draws at β = 1, no direction shrunk too far."""
    shift, covariance = gaussian_moments(z.reshape(-1, base.dimension))
    variances, axes = np.linalg.eigh(covariance)
    scale = base.scale @ (axes * np.sqrt(np.maximum(variances, LEAST_SHRINKAGE)))
    return GaussianBase.from_covariance(base.unwhiten(shift), scale @ scale.T)


def _run(
    ladders: list[_Ladder],
    base: GaussianBase,
    betas: Array,
    settings: LadderSettings,
    scans: int,
    label: str,
    progress: bool,
    ledger: Ledger,
    *,
    learn: bool = False,
) -> _Scans:
    """Scan every ladder, in blocks."""
    blocks, interrupted = run_blocks(
        lambda lane, size: ladders[lane].scan(base, betas, settings, size, learn),
        len(ladders),
        block_sizes(scans, BLOCK),
        threads=settings.threads,
        label=label,
        progress=progress,
        unit="scan",
    )
    ledger.gradients += int(sum(block.gradients.sum() for chain in blocks for block in chain))
    tries = np.array([np.sum([block.rejection for block in chain], axis=0) for chain in blocks])
    return _Scans(
        z=np.stack([np.concatenate([block.z for block in chain]) for chain in blocks]),
        delta=np.stack([np.concatenate([block.delta for block in chain]) for chain in blocks]),
        rejection=tries[:, 1] / np.maximum(tries[:, 0], 1),
        counts=np.array([np.sum([block.counts for block in chain], axis=0) for chain in blocks]),
        interrupted=interrupted,
    )
