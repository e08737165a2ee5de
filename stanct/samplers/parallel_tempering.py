"""Parallel tempering with non-reversible swaps (Syed, Bouchard-Côté, Deligiannidis & Doucet 2022).

Each chain is a ladder of its own: K rungs from the base at β = 0, drawn afresh in every scan, to
the target at β = 1. In a scan every rung moves by HMC, then neighbours are swapped, even pairs in
even scans and odd pairs in odd ones. Between warm-up rounds of doubling length the rungs are moved
to equal rejection and step sizes are pooled; `bootstrap` rounds refit the base. All is frozen then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from stanct import kernels
from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.estimates.ladder import equal_rejection
from stanct.kernels import (
    LadderOut,
    Mover,
    Rungs,
    Scanning,
    StepTable,
    copy_table,
    make_ladder_out,
    make_problem,
    make_rungs,
    make_scratch,
    make_table,
    pool_tables,
)
from stanct.path.mixture import AnyBase
from stanct.runs.ladder_run import LadderRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._rounds import (
    Ledger,
    SampledDensity,
    SampledTarget,
    engine_name,
    first_base,
    provenance,
    refitted,
)
from stanct.samplers._settings import MoveSettings
from stanct.work.execution import Borrow, Execution, executing

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


@dataclass
class _Ladder:
    """One chain's random stream, states of its rungs and step table, moved in place."""

    rng: np.random.Generator
    rungs: Rungs
    table: StepTable

    @classmethod
    def start(
        cls, density: SampledDensity, base: AnyBase, rungs: int, seed: np.random.SeedSequence
    ) -> _Ladder:
        """A ladder with every rung inside the target's support."""
        rng = lanes.stream(seed)
        z = np.array([lanes.start(density, base, rng).z for _ in range(rungs)])
        return cls(rng, _placed(density, base, z), make_table(base.dimension))

    def place(self, density: SampledDensity, base: AnyBase, z: Array) -> None:
        """Put the rungs at whitened places, shape (K, D)."""
        self.rungs = _placed(density, base, z)

    def inside(self) -> Array:
        """Where its rungs are, with one inside the support for rung 0, shape (K, D)."""
        z = self.rungs.z.copy()
        z[0] = z[1]
        return z


def _placed(density: SampledDensity, base: AnyBase, z: Array) -> Rungs:
    """Rungs at whitened places, shape (K, D), with values and gradients."""
    rungs = make_rungs(z)
    problem, scratch = make_problem(density, base), make_scratch(base.dimension)
    for k in range(len(z)):
        kernels.evaluate(problem, rungs.z[k], rungs.gradient[k], rungs.value[k], scratch)
    return rungs


def _scan(
    borrow: Borrow,
    base: AnyBase,
    betas: Array,
    settings: LadderSettings,
    learn: bool,
    ladder: _Ladder,
    scans: int,
) -> LadderOut:
    """A block of a ladder's scans."""
    out = make_ladder_out(scans, betas.size, base.dimension)
    with borrow() as density:
        kernels.ladder_scans(
            make_problem(density, base),
            ladder.rungs,
            Scanning(betas, settings.transitions, settings.reversible),
            Mover(settings.moves(learn=learn), ladder.table, make_scratch(base.dimension)),
            ladder.rng,
            out,
        )
    out.round_trips[0] = ladder.rungs.clock[1]
    return out


@dataclass(frozen=True)
class _Scans:
    """Blocks of all ladders joined, (chains, draws, ...) or (chains, ...)."""

    z: Array
    delta: Array
    rejection: Array
    counts: Array
    round_trips: Array
    interrupted: bool


def sample(
    target: SampledTarget,
    *,
    chains: int = 4,
    draws: int = 2000,
    warmup: int = 300,
    seed: int | None = None,
    base: str | AnyBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 0,
    rungs: int | None = None,
    transitions: int = 1,
    path_length: float = 1.5,
    max_steps: int = 64,
    target_accept: float = 0.8,
    reversible: bool = False,
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
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
    executor
        Who runs the ladders' blocks instead of threads: any `concurrent.futures.Executor`, also
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
    with executing(
        target,
        "parallel_tempering",
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
    settings: LadderSettings,
    base: str | AnyBase,
    log_zeta: float | None,
    execution: Execution,
) -> LadderRun:
    """First base, rounds, warm-up, draws."""
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
        bootstrap=settings.bootstrap,
        sampled=True,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current = start.base
    # Denser near the base, where the path of a poorly matching base is steep.
    betas = np.linspace(0, 1, settings.rungs or FIRST_RUNGS) ** 2
    density = target.density
    ladders = [_Ladder.start(density, current, betas.size, child) for child in lane_seeds]
    for number in range(settings.bootstrap):
        betas = _adapt(density, ladders, current, betas, settings, execution, ledger)
        label = f"round {number + 1}"
        done = _run(
            density, ladders, current, betas, settings, ROUND_DRAWS, label, execution, ledger
        )
        flat = done.z.reshape(-1, current.dimension)
        new = refitted(current, flat, least_shrinkage=start.least_shrinkage)
        for ladder in ladders:
            ladder.place(density, new, new.whiten(current.unwhiten(ladder.inside())))
        current = new
    ledger.lap("bootstrap")
    betas = _adapt(density, ladders, current, betas, settings, execution, ledger)
    for ladder in ladders:
        ladder.rungs.clock[:] = 0
        ladder.rungs.heading[:] = 0
    ledger.lap("warmup")
    done = _run(
        density,
        ladders,
        current,
        betas,
        settings,
        settings.draws,
        "ladders",
        execution,
        ledger,
        final=True,
    )
    ledger.lap("sampling")
    variables = target.variables(current.unwhiten(done.z), variable_seed)
    ledger.lap("variables")
    return LadderRun(
        method="parallel_tempering",
        engine=engine_name(target),
        variables=variables,
        z=done.z,
        betas=betas,
        delta=done.delta,
        rejection=done.rejection,
        counts=done.counts,
        round_trips=done.round_trips,
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
    density: SampledDensity,
    ladders: list[_Ladder],
    base: AnyBase,
    betas: Array,
    settings: LadderSettings,
    execution: Execution,
    ledger: Ledger,
) -> Array:
    """Warm up in rounds of doubling length; returns the frozen ladder."""
    for share in DOUBLING:
        size = max(settings.warmup * share // sum(DOUBLING), 2)
        done = _run(
            density, ladders, base, betas, settings, size, "warm-up", execution, ledger, learn=True
        )
        rejection = done.rejection.mean(axis=0)
        count = settings.rungs or int(np.clip(np.ceil(RUNGS_PER_BARRIER * rejection.sum()), 4, 64))
        new, _ = equal_rejection(betas, rejection, count + (settings.rungs is None))
        nearest = np.abs(new[:, None] - betas).argmin(axis=1)
        pooled = pool_tables([ladder.table for ladder in ladders])
        for ladder in ladders:
            ladder.table = copy_table(pooled)
            ladder.place(density, base, ladder.inside()[nearest])
        betas = new
    return betas


def _run(
    density: SampledDensity,
    ladders: list[_Ladder],
    base: AnyBase,
    betas: Array,
    settings: LadderSettings,
    scans: int,
    label: str,
    execution: Execution,
    ledger: Ledger,
    *,
    learn: bool = False,
    final: bool = False,
) -> _Scans:
    """Scan every ladder, in blocks."""
    blocks, interrupted = execution.blocks(
        label,
        partial(_scan, density.borrow, base, betas, settings, learn),
        ladders,
        lanes.block_sizes(scans, BLOCK),
        unit="scan",
        final=final,
    )
    ledger.gradients += int(sum(block.gradients.sum() for chain in blocks for block in chain))
    tries = np.array([np.sum([block.rejection for block in chain], axis=0) for chain in blocks])
    return _Scans(
        z=np.stack([np.concatenate([block.z for block in chain]) for chain in blocks]),
        delta=np.stack([np.concatenate([block.delta for block in chain]) for chain in blocks]),
        rejection=tries[:, 1] / np.maximum(tries[:, 0], 1),
        counts=np.array([np.sum([block.counts for block in chain], axis=0) for chain in blocks]),
        round_trips=np.array([chain[-1].round_trips[0] for chain in blocks]),
        interrupted=interrupted,
    )
