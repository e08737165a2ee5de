"""Chains that move x given β and draw β given x, in turn, on a continuous path or on a ladder.

Gibbs continuous tempering and simulated tempering differ in what β | x is, and so in how the bias
follows from what a round has found; the rest is here. The bias is learned in rounds of doubling
length, and with it the step size as a function of β; `bootstrap` rounds refit the base too.
Everything is frozen before the draws that count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from stanct import kernels
from stanct.arrays import Array
from stanct.kernels import (
    Alternation,
    GibbsOut,
    Mover,
    State,
    StepTable,
    copy_table,
    make_gibbs_out,
    make_problem,
    make_scratch,
    make_table,
    pool_tables,
)
from stanct.path.bias import AnyBias, Course, LadderBias
from stanct.path.mixture import AnyBase
from stanct.runs.tempered_run import TemperedRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import (
    BaseDraws,
    Ledger,
    Round,
    SampledDensity,
    SampledTarget,
    acceptance_by_beta,
    base_deltas,
    course_under,
    engine_name,
    first_base,
    provenance,
    refit_base,
)
from stanct.samplers._settings import MoveSettings, check_precision
from stanct.samplers._watch import Watch
from stanct.work.execution import Borrow, Execution, executing
from stanct.work.progress import Bar

BLOCK = 100
# Shares of a warm-up after each of which the bias is learned anew.
DOUBLING = (1, 1, 2, 4, 8)
ROUND_DRAWS = 500


@dataclass(frozen=True, kw_only=True)
class AlternationSettings(MoveSettings):
    """How the chains are run; the samplers' `sample` says what each means."""

    least: ClassVar[Mapping[str, int]] = {**MoveSettings.least, "bootstrap": 0}

    bootstrap: int
    target_se: float | None = None
    max_draws: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_precision(self.target_se, self.max_draws)


@dataclass(frozen=True)
class BiasRule:
    """How a method's bias follows from what is known of log z(β).

    Attributes
    ----------
    start
        From log ζ.
    carried
        From the path under a base just refitted, and the uniform share of β's density.
    refitted
        From the draws of a round under the same base, and that share.
    sampled
        Whether x is drawn afresh from the base at β = 0.
    """

    start: Callable[[float], AnyBias]
    carried: Callable[[Course, float], AnyBias]
    refitted: Callable[[Round, float], AnyBias]
    sampled: bool


@dataclass
class _Chain:
    """A chain's random stream, state, β and step table, moved in place."""

    rng: np.random.Generator
    state: State
    beta: float
    table: StepTable

    @classmethod
    def start(cls, density: SampledDensity, base: AnyBase, seed: np.random.SeedSequence) -> _Chain:
        """A chain inside the target's support, with β uniform."""
        rng = lanes.stream(seed)
        state = lanes.start(density, base, rng)
        return cls(rng, state, float(rng.random()), make_table(base.dimension))

    def rebase(self, density: SampledDensity, old: AnyBase, new: AnyBase) -> None:
        """Keep the place x, express it in a new base's coordinates."""
        z = new.whiten(old.unwhiten(self.state.z))
        self.state = kernels.make_state(make_problem(density, new), z)


def _draw(
    borrow: Borrow,
    base: AnyBase,
    bias: AnyBias,
    settings: AlternationSettings,
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
            Alternation(
                chain.beta,
                bias.beta,
                bias.value,
                isinstance(bias, LadderBias),
                settings.transitions,
            ),
            Mover(settings.moves(learn=learn), chain.table, make_scratch(base.dimension)),
            chain.rng,
            out,
        )
    return out


@dataclass(frozen=True)
class _Draws:
    """Blocks of all chains joined: fields of shape (chains, draws, ...), bins summed."""

    out: GibbsOut = field(repr=False)
    interrupted: bool


def alternate(
    target: SampledTarget,
    settings: AlternationSettings,
    rule: BiasRule,
    *,
    method: str,
    seed: int | None,
    base: str | AnyBase,
    log_zeta: float | None,
    executor: Executor | None,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool,
) -> TemperedRun:
    """Fit a base, learn bias and step sizes, freeze them, and draw.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    settings, rule
        How chains are run, and how the bias follows from what they find.
    method
        The sampler's name.
    seed, base, log_zeta, executor, checkpoint, progress
        As the samplers take them.

    Raises
    ------
    SamplingError, EngineError, DataError, CheckpointError, KeyboardInterrupt
        As the samplers' `sample` say.
    """
    with executing(
        target,
        method,
        {**asdict(settings), "base": base, "log_zeta": log_zeta},
        seed=seed,
        executor=executor,
        threads=settings.threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        return _sample(target, settings, rule, method, base, log_zeta, execution)


def _sample(
    target: SampledTarget,
    settings: AlternationSettings,
    rule: BiasRule,
    method: str,
    base: str | AnyBase,
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
        bootstrap=settings.bootstrap,
        sampled=rule.sampled,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current, bias = start.base, rule.start(start.log_zeta)

    def refit(done: Round) -> AnyBias:
        return rule.refitted(done, start.uniform)

    density = target.density
    members = [_Chain.start(density, current, child) for child in lane_seeds]
    base_seeds = base_seed.spawn(settings.bootstrap + 1)
    for number in range(settings.bootstrap):
        bias = _learn(
            target, members, current, bias, refit, settings, ledger, base_seeds[number], execution
        )
        label = f"round {number + 1}"
        drawn = _run(
            density, members, current, bias, settings, ROUND_DRAWS, label, execution, ledger
        )
        done = _round(target, current, bias, drawn, base_seeds[number], ledger, execution)
        new = refit_base(done, start.least_shrinkage)
        bias = rule.carried(course_under(done, new), start.uniform)
        for member in members:
            member.rebase(density, current, new)
        current = new
    ledger.lap("bootstrap")
    bias = _learn(
        target, members, current, bias, refit, settings, ledger, base_seeds[-1], execution
    )
    ledger.lap("warmup")
    base_draws = BaseDraws(target, current, base_seeds[-1].spawn(1)[0])
    precision = Precision(settings.target_se, settings.draws, settings.max_draws)
    drawn = _final(
        density,
        members,
        current,
        bias,
        settings,
        method,
        base_draws,
        precision,
        execution,
        ledger,
    )
    out = drawn.out
    base_delta = base_draws.kept(out.beta.size, execution)
    ledger.evaluations += base_delta.size
    ledger.lap("sampling")
    x = current.unwhiten(out.z)
    variables = target.variables(x, variable_seed)
    ledger.lap("variables")
    return TemperedRun(
        method=method,
        engine=engine_name(target),
        variables=variables,
        z=out.z,
        beta=out.beta,
        delta=out.delta,
        base_delta=base_delta,
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
            stopping=precision.record(),
            acceptance=acceptance_by_beta(out.bins),
            log_step=members[0].table.log_step.tolist(),
        ),
    )


def _learn(
    target: SampledTarget,
    members: list[_Chain],
    base: AnyBase,
    bias: AnyBias,
    refit: Callable[[Round], AnyBias],
    settings: AlternationSettings,
    ledger: Ledger,
    seed: np.random.SeedSequence,
    execution: Execution,
) -> AnyBias:
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
        bias = refit(_round(target, base, bias, drawn, child, ledger, execution))
        pooled = pool_tables([member.table for member in members])
        for member in members:
            member.table = copy_table(pooled)
    return bias


def _final(
    density: SampledDensity,
    members: list[_Chain],
    base: AnyBase,
    bias: AnyBias,
    settings: AlternationSettings,
    method: str,
    base_draws: BaseDraws,
    precision: Precision,
    execution: Execution,
    ledger: Ledger,
) -> _Draws:
    """The draws that count, with a look at log Z wherever `precision` wants one."""
    work = partial(_draw, density.borrow, base, bias, settings, False)
    done: list[list[GibbsOut]] = [[] for _ in members]
    total = len(members) * precision.first
    with Bar(total, method, unit="draw", shown=execution.progress) as bar:
        watch = Watch(base_draws, 1, bias, precision, bar)

        def seen(results: list[list[GibbsOut]]) -> None:
            watch.show(partial(_so_far, done, results))

        out, ahead, interrupted = None, precision.first, False
        while out is None or ahead:
            try:
                blocks, interrupted = execution.blocks(
                    method,
                    work,
                    members,
                    lanes.block_sizes(ahead, BLOCK),
                    final=True,
                    bar=bar,
                    seen=seen,
                )
            except KeyboardInterrupt:
                if out is None:
                    raise
                execution.seal()
                interrupted = True
                break
            done = [[*a, *b] for a, b in zip(done, blocks, strict=True)]
            out = _joined(done)
            ahead = 0 if interrupted else watch.more(out.z, out.beta, out.delta)
    if interrupted:
        precision.reason = "interrupted"
    ledger.gradients += int(out.gradients.sum())
    return _Draws(out, interrupted)


def _so_far(done: list[list[GibbsOut]], latest: list[list[GibbsOut]]) -> tuple[Array, Array, int]:
    """β, δ and gradients of the blocks that every chain has finished."""
    level = min(map(len, latest))
    out = _joined([[*a, *b[:level]] for a, b in zip(done, latest, strict=True)])
    return out.beta, out.delta, int(out.gradients.sum())


def _joined(blocks: list[list[GibbsOut]]) -> GibbsOut:
    """Blocks of all chains as one, fields of shape (chains, draws, ...), bins summed."""
    joined = {
        name: np.stack(
            [np.concatenate([getattr(block, name) for block in chain]) for chain in blocks]
        )
        for name in GibbsOut._fields[:-1]
    }
    bins = np.sum([block.bins for chain in blocks for block in chain], axis=0)
    return GibbsOut(bins=bins, **joined)


def _run(
    density: SampledDensity,
    members: list[_Chain],
    base: AnyBase,
    bias: AnyBias,
    settings: AlternationSettings,
    draws: int,
    label: str,
    execution: Execution,
    ledger: Ledger,
    *,
    learn: bool = False,
) -> _Draws:
    """Draw from every chain, in blocks, for a round."""
    blocks, interrupted = execution.blocks(
        label,
        partial(_draw, density.borrow, base, bias, settings, learn),
        members,
        lanes.block_sizes(draws, BLOCK),
    )
    out = _joined(blocks)
    ledger.gradients += int(out.gradients.sum())
    return _Draws(out, interrupted)


def _round(
    target: SampledTarget,
    base: AnyBase,
    bias: AnyBias,
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
