"""Joint continuous tempering: NUTS on (z, u), β = logistic(u) (Graham & Storkey 2017, section 4).

The run has four stages: a base is fitted, one or more short rounds of the joint program refit base
and bias to what they found, everything is frozen, and the draws that count are made.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np
from scipy.special import expit

from stanct.arrays import Array
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import DrawBlock
from stanct.errors import SamplingError
from stanct.path.bias import Bias, Course
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import AnyBase
from stanct.runs.tempered_run import TemperedRun
from stanct.samplers._chains import (
    Chains,
    ChainSettings,
    StepSizes,
    joined,
    refuse_executor,
    run_chains,
)
from stanct.samplers._nuts import generated, nuts_sampler
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import (
    BaseDraws,
    Ledger,
    Round,
    SampledTarget,
    course_under,
    dense,
    draws_inside,
    engine_name,
    first_base,
    provenance,
    refit_base,
)
from stanct.samplers._watch import Watch
from stanct.targets.program_target import Target
from stanct.work.execution import Execution, executing
from stanct.work.progress import Bar

ROUND_WARMUP, ROUND_DRAWS = 300, 800

# A linear bias is kept while log z(β) stays within this many nats of it: the chain then still
# passes the least likely β, and the kinks of a table cost NUTS some of its step size.
MOST_DIP = 5.0

# Independent draws of the base for each draw of the chains. One costs a density, a draw of NUTS
# many gradients, and where chains move well the base has the larger share of the error.
BASE_DRAWS = 4


@dataclass(frozen=True)
class _Stage:
    """The chains of one round beside what is estimated from them; u of shape (chains, draws)."""

    round: Round
    chains: Chains
    u: Array = field(repr=False)


def sample(
    target: SampledTarget,
    *,
    engine: CmdStan | None = None,
    chains: int = 4,
    draws: int = 2500,
    warmup: int = 500,
    target_se: float | None = None,
    max_draws: int | None = None,
    seed: int | None = None,
    base: str | AnyBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 1,
    target_accept: float = 0.9,
    max_depth: int = 10,
    threads: int | None = None,
    executor: None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TemperedRun:
    """Sample the joint program and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    engine
        A `CmdStan` runs NUTS on the joint program and fits the bases ``"pathfinder"``,
        ``"laplace"`` and ``"advi"``; pilots are embedded. By default compiled kernels run NUTS by
        the gradient of the density program, which is that of the joint program by the chain rule.
    chains, draws, warmup
        Chains, and kept and adaptation iterations of each.
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
        Guess at log Z that goes with a base of your own; found by the bootstrap rounds if omitted.
    bootstrap
        Rounds that refit base and bias before the final chains. With 0 the first base is final.
    target_accept, max_depth
        Of NUTS.
    threads
        Chains that run at once; as many as there are cores by default.
    executor
        Not for this method: all its chains move together, block by block, on threads.
    checkpoint
        Folder from which a run that was killed goes on: repeat the same call. It stays when the run
        is finished; delete it when the run is saved.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other, or an executor.
    ProgramError
        The transformed data are random.
    EngineError
        No chain could start.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before every chain had finished draws; later, the finished ones are returned.
    """
    settings = ChainSettings(
        chains, warmup, draws, target_accept, max_depth, threads, target_se, max_draws
    )
    if bootstrap < 0:
        raise SamplingError(f"bootstrap must not be negative, not {bootstrap}.")
    refuse_executor("joint", executor)
    with executing(
        target,
        "joint",
        {
            **asdict(settings),
            "bootstrap": bootstrap,
            "base": base,
            "log_zeta": log_zeta,
            "engine": engine_name(target, engine),
        },
        seed=seed,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        return _sample(target, engine, settings, base, log_zeta, bootstrap, execution)


def _sample(
    target: SampledTarget,
    engine: CmdStan | None,
    settings: ChainSettings,
    base: str | AnyBase,
    log_zeta: float | None,
    bootstrap: int,
    execution: Execution,
) -> TemperedRun:
    """First base, rounds, draws."""
    seed = execution.seed
    fit_seed, variable_seed, *round_seeds = np.random.SeedSequence(seed).spawn(bootstrap + 3)
    ledger, steps = Ledger(), StepSizes()
    start = first_base(
        target,
        base,
        log_zeta,
        chains=settings.chains,
        seed=fit_seed,
        nuts=settings.nuts,
        execution=execution,
        engine=engine,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current, bias = dense(start.base), Bias.linear(start.log_zeta)
    places: Array | None = None
    short = replace(settings, warmup=ROUND_WARMUP)
    for number in range(bootstrap):
        label = f"round {number + 1}"
        stage = _stage(
            target,
            engine,
            current,
            bias,
            short,
            Precision(None, ROUND_DRAWS),
            places,
            round_seeds[number],
            ledger,
            steps,
            label,
            execution,
        )
        if stage.chains.interrupted:
            raise KeyboardInterrupt
        new = dense(refit_base(stage.round, start.least_shrinkage))
        bias = _coarse_bias(course_under(stage.round, new), start.uniform)
        x = current.unwhiten(stage.round.z[:, -1])
        places = np.concatenate([new.whiten(x), stage.u[:, -1:]], axis=1)
        current = new
    ledger.lap("bootstrap")
    precision = Precision(settings.target_se, settings.draws, settings.max_draws)
    final = _stage(
        target,
        engine,
        current,
        bias,
        settings,
        precision,
        places,
        round_seeds[-1],
        ledger,
        steps,
        "joint",
        execution,
    )
    ledger.lap("sampling")
    # CmdStan saves the user's variables with the draws.
    drawn = final.chains.variables
    variables = target.user_variables(drawn) if isinstance(target, Target) else {}
    if not variables:
        variables = target.variables(current.unwhiten(final.round.z), variable_seed)
    return TemperedRun(
        method="joint",
        engine=engine_name(target, engine),
        variables=variables,
        z=final.round.z,
        beta=expit(final.u),
        delta=final.round.delta,
        base_delta=final.round.base_delta,
        base=current,
        bias=bias,
        statistics=final.chains.statistics,
        programs=generated(target, "joint"),
        data=target.data_text,
        provenance=provenance(
            target,
            {
                **asdict(settings),
                "seed": seed,
                "base": base if isinstance(base, str) else "given",
                "bootstrap": bootstrap,
            },
            ledger,
            interrupted=final.chains.interrupted,
            stopping=precision.record(),
            step_size=final.chains.step_size,
        ),
    )


def _stage(
    target: SampledTarget,
    engine: CmdStan | None,
    base: GaussianBase,
    bias: Bias,
    settings: ChainSettings,
    precision: Precision,
    starts: Array | None,
    seed: np.random.SeedSequence,
    ledger: Ledger,
    steps: StepSizes,
    label: str,
    execution: Execution,
) -> _Stage:
    """Run the joint program under one frozen base and bias, and draw from the base."""
    start_seed, base_seed, chain_seed = seed.spawn(3)
    if starts is None:
        starts = _starts(target, base, settings.chains, np.random.default_rng(start_seed))
    base_draws = BaseDraws(target, base, base_seed)
    with Bar(
        settings.chains * precision.first, label, unit="draw", shown=execution.progress
    ) as bar:
        watch = Watch(base_draws, BASE_DRAWS, bias, precision, bar)
        chains = run_chains(
            nuts_sampler(target, engine, base, bias),
            starts,
            settings,
            steps,
            draws=precision.first,
            seed=chain_seed,
            label=label,
            execution=execution,
            bar=bar,
            seen=lambda blocks: watch.show(partial(_so_far, target.prefix, blocks)),
            more=lambda blocks: watch.more(*_path(target.prefix, _variables(blocks))),
        )
    if chains.interrupted:
        precision.reason = "interrupted"
    z, _, delta = _path(target.prefix, chains.variables)
    ledger.gradients += chains.gradients
    base_delta = base_draws.kept(BASE_DRAWS * delta.size, execution)
    ledger.evaluations += base_delta.size
    return _Stage(
        Round(base, bias, z, delta, base_delta), chains, chains.variables[target.prefix + "u"]
    )


def _variables(blocks: list[DrawBlock]) -> dict[str, Array]:
    return joined([block.variables for block in blocks])


def _path(prefix: str, variables: dict[str, Array]) -> tuple[Array, Array, Array]:
    """z, β and δ of draws of the joint program."""
    z, u, delta = (variables[prefix + name] for name in ("z", "u", "delta"))
    return z, expit(u), delta


def _so_far(prefix: str, blocks: list[DrawBlock]) -> tuple[Array, Array, int]:
    """β, δ and gradients of the finished blocks."""
    _, beta, delta = _path(prefix, _variables(blocks))
    return beta, delta, sum(block.gradients for block in blocks)


def _coarse_bias(course: Course, uniform: float) -> Bias:
    """The linear bias where it will do, and otherwise a table along the curve."""
    log_zeta = float(course.log_z[-1])
    dip = np.max(np.abs(course.log_z - course.beta * log_zeta))
    linear = uniform == 1 and dip <= MOST_DIP
    return Bias.linear(log_zeta) if linear else course.bias(uniform)


def _starts(
    target: SampledTarget, base: GaussianBase, chains: int, rng: np.random.Generator
) -> Array:
    """Draws of the base inside the target's support, each with a logistic u, (chains, D + 1)."""
    z = draws_inside(target, base, chains, rng)
    return np.concatenate([z, rng.logistic(size=(chains, 1))], axis=1)
