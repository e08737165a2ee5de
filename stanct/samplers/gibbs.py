"""Gibbs continuous tempering: HMC on x | β, exact draws of β | x ([GS] Graham & Storkey 2017, 5).

Given x, β follows a truncated exponential on every linear piece of the bias ([GS] 17 for one
piece), so it is drawn exactly and ranges over the whole of [0, 1] in one move. The bias is learned
in rounds of doubling length, and with it the step size as a function of β; `bootstrap` rounds refit
the base too. Everything is frozen before the draws that count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stanct import kernels, lanes
from stanct.base import GaussianBase
from stanct.embedded import NAME
from stanct.execution import Borrow, Execution, executing
from stanct.path import Array, Bias
from stanct.rounds import (
    Ledger,
    Round,
    SampledDensity,
    SampledTarget,
    base_deltas,
    curve_under,
    first_base,
    provenance,
    refit_base,
    refit_bias,
)
from stanct.runs.tempered_run import TemperedRun
from stanct.settings import MoveSettings
from stanct.workspace import (
    GibbsOut,
    State,
    StepTable,
    copy_table,
    make_gibbs_out,
    make_problem,
    make_scratch,
    make_table,
    pool_tables,
)

BLOCK = 100
# Shares of a warm-up after each of which the bias is learned anew.
DOUBLING = (1, 1, 2, 4, 8)
ROUND_DRAWS = 500


@dataclass(frozen=True, kw_only=True)
class GibbsSettings(MoveSettings):
    """How Gibbs continuous tempering is run; see `sample`."""

    least: ClassVar[Mapping[str, int]] = {**MoveSettings.least, "bootstrap": 0}

    bootstrap: int


@dataclass
class _Chain:
    """A chain's random stream, state, β and step table, moved in place."""

    rng: np.random.Generator
    state: State
    beta: float
    table: StepTable

    @classmethod
    def start(
        cls, density: SampledDensity, base: GaussianBase, seed: np.random.SeedSequence
    ) -> _Chain:
        """A chain inside the target's support, with β uniform."""
        rng = lanes.stream(seed)
        state = lanes.start(density, base, rng)
        return cls(rng, state, float(rng.random()), make_table(base.dimension))

    def rebase(self, density: SampledDensity, old: GaussianBase, new: GaussianBase) -> None:
        """Keep the place x, express it in a new base's coordinates."""
        z = new.whiten(old.unwhiten(self.state.z))
        self.state = kernels.make_state(make_problem(density, new), z)


def _draw(
    borrow: Borrow,
    base: GaussianBase,
    bias: Bias,
    settings: GibbsSettings,
    learn: bool,
    chain: _Chain,
    draws: int,
) -> GibbsOut:
    """A block of a chain's draws under a frozen base and bias."""
    out = make_gibbs_out(draws, base.dimension)
    with borrow() as density:
        chain.beta = kernels.gibbs_draws(
            make_problem(density, base),
            chain.state,
            chain.beta,
            chain.table,
            settings.moves(learn=learn),
            bias.beta,
            bias.value,
            settings.transitions,
            chain.rng,
            make_scratch(base.dimension),
            out,
        )
    return out


@dataclass(frozen=True)
class _Draws:
    """Blocks of all chains joined: fields of shape (chains, draws, ...), bins summed."""

    out: GibbsOut = field(repr=False)
    interrupted: bool


def sample(
    target: SampledTarget,
    *,
    chains: int = 4,
    draws: int = 2500,
    warmup: int = 500,
    seed: int | None = None,
    base: str | GaussianBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 1,
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
    settings = GibbsSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        transitions=transitions,
        path_length=path_length,
        max_steps=max_steps,
        target_accept=target_accept,
        bootstrap=bootstrap,
        threads=threads,
    )
    with executing(
        target,
        "gibbs",
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
    settings: GibbsSettings,
    base: str | GaussianBase,
    log_zeta: float | None,
    execution: Execution,
) -> TemperedRun:
    """First base, rounds, warm-up, draws."""
    ledger = Ledger()
    chains, seed = settings.chains, execution.seed
    fit_seed, base_seed, variable_seed, *lane_seeds = np.random.SeedSequence(seed).spawn(chains + 3)
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
    current, bias = start.base, Bias.linear(start.log_zeta)
    density = target.density
    members = [_Chain.start(density, current, child) for child in lane_seeds]
    base_seeds = base_seed.spawn(settings.bootstrap + 1)
    for number in range(settings.bootstrap):
        bias = _learn(
            target, members, current, bias, settings, ledger, base_seeds[number], execution
        )
        label = f"round {number + 1}"
        drawn = _run(
            density, members, current, bias, settings, ROUND_DRAWS, label, execution, ledger
        )
        done = _round(target, current, bias, drawn, base_seeds[number], ledger, execution)
        new = refit_base(done)
        bias = Bias.from_curve(*curve_under(done, new))
        for member in members:
            member.rebase(density, current, new)
        current = new
    ledger.lap("bootstrap")
    bias = _learn(target, members, current, bias, settings, ledger, base_seeds[-1], execution)
    ledger.lap("warmup")
    drawn = _run(
        density,
        members,
        current,
        bias,
        settings,
        settings.draws,
        "gibbs",
        execution,
        ledger,
        final=True,
    )
    child = base_seeds[-1].spawn(1)[0]
    final = _round(target, current, bias, drawn, child, ledger, execution)
    ledger.lap("sampling")
    out = drawn.out
    x = current.unwhiten(out.z)
    variables = target.variables(x, variable_seed)
    ledger.lap("variables")
    return TemperedRun(
        method="gibbs",
        engine=NAME if target.programs else "python",
        variables=variables,
        z=out.z,
        beta=out.beta,
        delta=out.delta,
        base_delta=final.base_delta,
        base=current,
        bias=bias,
        statistics=_statistics(out),
        programs=target.programs,
        data=target.data_text,
        provenance=provenance(
            target,
            {**asdict(settings), "seed": seed, "base": base if isinstance(base, str) else "given"},
            ledger,
            interrupted=drawn.interrupted,
            acceptance=_acceptance(out.bins),
            log_step=members[0].table.log_step.tolist(),
        ),
    )


def _learn(
    target: SampledTarget,
    members: list[_Chain],
    base: GaussianBase,
    bias: Bias,
    settings: GibbsSettings,
    ledger: Ledger,
    seed: np.random.SeedSequence,
    execution: Execution,
) -> Bias:
    """Warm up: bias and step sizes in rounds of doubling length; leaves one frozen step table."""
    for share, child in zip(DOUBLING, seed.spawn(len(DOUBLING)), strict=True):
        size = max(settings.warmup * share // sum(DOUBLING), 2)
        drawn = _run(
            target.density,
            members,
            base,
            bias,
            settings,
            size,
            "warm-up",
            execution,
            ledger,
            learn=True,
        )
        bias = refit_bias(_round(target, base, bias, drawn, child, ledger, execution))
        pooled = pool_tables([member.table for member in members])
        for member in members:
            member.table = copy_table(pooled)
    return bias


def _run(
    density: SampledDensity,
    members: list[_Chain],
    base: GaussianBase,
    bias: Bias,
    settings: GibbsSettings,
    draws: int,
    label: str,
    execution: Execution,
    ledger: Ledger,
    *,
    learn: bool = False,
    final: bool = False,
) -> _Draws:
    """Draw from every chain, in blocks."""
    blocks, interrupted = execution.blocks(
        label,
        partial(_draw, density.borrow, base, bias, settings, learn),
        members,
        lanes.block_sizes(draws, BLOCK),
        final=final,
    )
    joined = {
        name: np.stack(
            [np.concatenate([getattr(block, name) for block in chain]) for chain in blocks]
        )
        for name in GibbsOut._fields[:-1]
    }
    bins = np.sum([block.bins for chain in blocks for block in chain], axis=0)
    out = GibbsOut(bins=bins, **joined)
    ledger.gradients += int(out.gradients.sum())
    return _Draws(out, interrupted)


def _round(
    target: SampledTarget,
    base: GaussianBase,
    bias: Bias,
    drawn: _Draws,
    seed: np.random.SeedSequence,
    ledger: Ledger,
    execution: Execution,
) -> Round:
    """The draws with as many of the base."""
    count = drawn.out.beta.size
    ledger.evaluations += count
    base_delta = base_deltas(target, base, count, seed, execution)
    return Round(base, bias, drawn.out.z, drawn.out.delta, base_delta)


def _statistics(out: GibbsOut) -> dict[str, Array]:
    """Per-draw statistics, under CmdStan's names where it has them."""
    return {
        "accept_stat__": out.accept,
        "stepsize__": out.step,
        "n_leapfrog__": out.gradients,
        "divergent__": out.divergent,
        "rejected__": out.rejected,
    }


def _acceptance(bins: Array) -> dict[str, Any]:
    """Mean acceptance in equal bins of β, None where no transition was made."""
    tries, sums = bins
    return {
        "transitions": [int(count) for count in tries],
        "acceptance": [
            float(total / count) if count else None
            for count, total in zip(tries, sums, strict=True)
        ],
    }
