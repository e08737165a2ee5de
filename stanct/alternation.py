"""Chains that move x given β and draw β given x, in turn, on a continuous path or on a ladder.

Gibbs continuous tempering and simulated tempering differ in what β | x is, and so in how the bias
follows from what a round has found; the rest is here. The bias is learned in rounds of doubling
length, and with it the step size as a function of β; `bootstrap` rounds refit the base too.
Everything is frozen before the draws that count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from stanct import kernels
from stanct.bases import AnyBase
from stanct.embedded import NAME, Nuts
from stanct.lanes import Lane, block_sizes, run_blocks
from stanct.path import AnyBias, Array, LadderBias
from stanct.rounds import (
    Ledger,
    Round,
    SampledTarget,
    base_deltas,
    curve_under,
    first_base,
    provenance,
    refit_base,
    run_seed,
)
from stanct.runs.tempered_run import TemperedRun
from stanct.settings import MoveSettings
from stanct.workspace import GibbsOut, copy_table, make_gibbs_out, make_table, pool_tables

BLOCK = 100
# Shares of a warm-up after each of which the bias is learned anew.
DOUBLING = (1, 1, 2, 4, 8)
ROUND_DRAWS = 500


@dataclass(frozen=True, kw_only=True)
class AlternationSettings(MoveSettings):
    """How the chains are run; the samplers' `sample` says what each means."""

    least: ClassVar[Mapping[str, int]] = {**MoveSettings.least, "bootstrap": 0}

    bootstrap: int


@dataclass(frozen=True)
class BiasRule:
    """How a method's bias follows from what is known of log z(β).

    Attributes
    ----------
    start
        From log ζ.
    carried
        From the curve log z(β) under a base just refitted: grid and values.
    refitted
        From the draws of a round under the same base.
    sampled
        Whether x is drawn afresh from the base at β = 0.
    """

    start: Callable[[float], AnyBias]
    carried: Callable[[Array, Array], AnyBias]
    refitted: Callable[[Round], AnyBias]
    sampled: bool


class _Chain:
    """A chain's lane, state, β and step table, moved in place."""

    def __init__(self, lane: Lane, base: AnyBase) -> None:
        self.lane = lane
        self.state = lane.start(base)
        self.beta = float(lane.rng.random())
        self.table = make_table(base.dimension)

    def rebase(self, old: AnyBase, new: AnyBase) -> None:
        """Keep the place x, express it in a new base's coordinates."""
        z = new.whiten(old.unwhiten(self.state.z))
        self.state = kernels.make_state(self.lane.problem(new), z)

    def draw(
        self,
        base: AnyBase,
        bias: AnyBias,
        settings: AlternationSettings,
        draws: int,
        learn: bool,
    ) -> GibbsOut:
        """A block of draws under a frozen base and bias."""
        out = make_gibbs_out(draws, base.dimension)
        self.beta = kernels.gibbs_draws(
            self.lane.problem(base),
            self.state,
            self.beta,
            self.table,
            settings.moves(learn=learn),
            bias.beta,
            bias.value,
            isinstance(bias, LadderBias),
            settings.transitions,
            self.lane.rng,
            self.lane.scratch,
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
    seed, base, log_zeta, progress
        As the samplers take them.

    Raises
    ------
    SamplingError, EngineError, DataError, KeyboardInterrupt
        As the samplers' `sample` say.
    """
    seed = run_seed(seed)
    ledger = Ledger()
    fit_seed, base_seed, variable_seed, *lane_seeds = np.random.SeedSequence(seed).spawn(
        settings.chains + 3
    )
    nuts = Nuts() if settings.threads is None else Nuts(threads=settings.threads)
    start = first_base(
        target,
        base,
        log_zeta,
        chains=settings.chains,
        seed=fit_seed,
        nuts=nuts,
        progress=progress,
        bootstrap=settings.bootstrap,
        sampled=rule.sampled,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current, bias = start.base, rule.start(start.log_zeta)
    members = [_Chain(Lane(target.density, child), current) for child in lane_seeds]
    base_seeds = base_seed.spawn(settings.bootstrap + 1)
    for number in range(settings.bootstrap):
        bias = _learn(
            target, members, current, bias, rule, settings, ledger, base_seeds[number], progress
        )
        label = f"round {number + 1}"
        drawn = _run(members, current, bias, settings, ROUND_DRAWS, label, progress, ledger)
        if drawn.interrupted:
            raise KeyboardInterrupt
        done = _round(target, current, bias, drawn, base_seeds[number], ledger)
        new = refit_base(done)
        bias = rule.carried(*curve_under(done, new))
        for member in members:
            member.rebase(current, new)
        current = new
    ledger.lap("bootstrap")
    bias = _learn(target, members, current, bias, rule, settings, ledger, base_seeds[-1], progress)
    ledger.lap("warmup")
    drawn = _run(members, current, bias, settings, settings.draws, method, progress, ledger)
    final = _round(target, current, bias, drawn, base_seeds[-1].spawn(1)[0], ledger)
    ledger.lap("sampling")
    out = drawn.out
    x = current.unwhiten(out.z)
    variables = target.variables(x, variable_seed)
    ledger.lap("variables")
    return TemperedRun(
        method=method,
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
    base: AnyBase,
    bias: AnyBias,
    rule: BiasRule,
    settings: AlternationSettings,
    ledger: Ledger,
    seed: np.random.SeedSequence,
    progress: bool,
) -> AnyBias:
    """Warm up: bias and step sizes in rounds of doubling length; leaves one frozen step table."""
    for share, child in zip(DOUBLING, seed.spawn(len(DOUBLING)), strict=True):
        size = max(settings.warmup * share // sum(DOUBLING), 2)
        drawn = _run(members, base, bias, settings, size, "warm-up", progress, ledger, learn=True)
        if drawn.interrupted:
            raise KeyboardInterrupt
        bias = rule.refitted(_round(target, base, bias, drawn, child, ledger))
        pooled = pool_tables([member.table for member in members])
        for member in members:
            member.table = copy_table(pooled)
    return bias


def _run(
    members: list[_Chain],
    base: AnyBase,
    bias: AnyBias,
    settings: AlternationSettings,
    draws: int,
    label: str,
    progress: bool,
    ledger: Ledger,
    *,
    learn: bool = False,
) -> _Draws:
    """Draw from every chain, in blocks."""
    blocks, interrupted = run_blocks(
        lambda lane, size: members[lane].draw(base, bias, settings, size, learn),
        len(members),
        block_sizes(draws, BLOCK),
        threads=settings.threads,
        label=label,
        progress=progress,
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
    base: AnyBase,
    bias: AnyBias,
    drawn: _Draws,
    seed: np.random.SeedSequence,
    ledger: Ledger,
) -> Round:
    """The draws with as many of the base."""
    count = drawn.out.beta.size
    ledger.evaluations += count
    base_delta = base_deltas(target, base, count, seed)
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
