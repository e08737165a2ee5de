"""Pseudo-extended MCMC: NUTS on N copies that hand the target over to each other ([PE] 8).

Each copy has an inverse temperature of its own, estimated beside it or fixed. While one copy is the
target's the others roam the tempered path between base and target, and any that comes to another
mode can take over. The stages are those of joint tempering: a base, rounds that refit base and
log ζ, everything frozen, and the draws that count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from stanct.arrays import Array
from stanct.engines.cmdstan import CmdStan
from stanct.errors import SamplingError
from stanct.estimates.copies import CopyEstimator
from stanct.path.bias import CopyBias, beta_grid
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import AnyBase
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.samplers._chains import Chains, ChainSettings, StepSizes, refuse_executor, run_chains
from stanct.samplers._nuts import generated, nuts_sampler
from stanct.samplers._rounds import (
    Ledger,
    SampledTarget,
    base_deltas,
    dense,
    draws_inside,
    engine_name,
    first_base,
    provenance,
    refitted,
)
from stanct.settings import whole
from stanct.work.execution import Execution, executing
from stanct.work.progress import Bar

ROUND_WARMUP, ROUND_DRAWS = 300, 500

# Independent draws of the base for each draw of the chains; one costs a density.
BASE_DRAWS = 4

# Share of the prior of β that is uniform whatever the speed of the path. Few draws near β = 1
# do, since every copy counts.
UNIFORM = 0.05


@dataclass(frozen=True)
class _Stage:
    """The chains of one round: z (chains, draws, N, D), β and δ (chains, draws, N)."""

    chains: Chains
    z: Array = field(repr=False)
    beta: Array = field(repr=False)
    estimator: CopyEstimator = field(repr=False)


def sample(
    target: SampledTarget,
    *,
    engine: CmdStan | None = None,
    copies: int = 5,
    fixed_beta: Sequence[float] | None = None,
    chains: int = 4,
    draws: int = 2500,
    warmup: int = 500,
    seed: int | None = None,
    base: str | AnyBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 1,
    target_accept: float = 0.9,
    max_depth: int = 10,
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> PseudoExtendedRun:
    """Sample the pseudo-extended program and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    engine
        A `CmdStan` runs NUTS on the pseudo-extended program and fits the bases ``"pathfinder"``,
        ``"laplace"`` and ``"advi"``; pilots are embedded. By default compiled kernels run NUTS by
        the gradient of the density program, which is that of the other by the chain rule.
    copies
        N, at least 2; every gradient costs N of the target's.
    fixed_beta : shape (N,)
        Inverse temperatures of the copies in [0, 1], not all 1; estimated by default.
    chains, draws, warmup
        Chains, and kept and adaptation iterations of each.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own.
    log_zeta
        Guess at log Z that goes with a base of your own; found by the bootstrap rounds if omitted.
    bootstrap
        Rounds that refit base and log ζ before the final chains. With 0 the first base is final.
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
        The transformed data are random, or the program has no pseudo-extended form.
    EngineError
        No chain could start.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before every chain had finished draws; later, the finished ones are returned.
    """
    settings = ChainSettings(chains, warmup, draws, target_accept, max_depth, threads)
    if bootstrap < 0:
        raise SamplingError(f"bootstrap must not be negative, not {bootstrap}.")
    refuse_executor("pseudo_extended", executor)
    beta = _check_copies(copies, fixed_beta)
    programs = generated(target, "pseudo_extended")
    chosen = {
        **{k: v for k, v in asdict(settings).items() if k not in ("target_se", "max_draws")},
        "copies": copies,
        "fixed_beta": None if beta is None else beta.tolist(),
        "bootstrap": bootstrap,
    }
    with executing(
        target,
        "pseudo_extended",
        {**chosen, "engine": engine_name(target, engine), "base": base, "log_zeta": log_zeta},
        seed=seed,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        chosen |= {"seed": execution.seed, "base": base if isinstance(base, str) else "given"}
        return _sample(target, engine, programs, settings, chosen, beta, base, log_zeta, execution)


def _sample(
    target: SampledTarget,
    engine: CmdStan | None,
    programs: dict[str, str],
    settings: ChainSettings,
    chosen: dict[str, Any],
    beta: Array | None,
    base: str | AnyBase,
    log_zeta: float | None,
    execution: Execution,
) -> PseudoExtendedRun:
    """First base, rounds, draws; `chosen` holds all settings as they are recorded."""
    seed, chains, bootstrap = execution.seed, settings.chains, chosen["bootstrap"]
    fit_seed, variable_seed, *round_seeds = np.random.SeedSequence(seed).spawn(bootstrap + 3)
    ledger = Ledger()
    start = first_base(
        target,
        base,
        log_zeta,
        chains=chains,
        seed=fit_seed,
        nuts=settings.nuts,
        execution=execution,
        engine=engine,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current, bias = dense(start.base), CopyBias.linear(start.log_zeta)
    places: Array | None = None
    short = replace(settings, warmup=ROUND_WARMUP, draws=ROUND_DRAWS)
    stage_of = _Stages(target, engine, chosen["copies"], beta, ledger, execution)
    for number in range(bootstrap):
        stage = stage_of(current, bias, short, places, round_seeds[number], f"round {number + 1}")
        if stage.chains.interrupted:
            raise KeyboardInterrupt
        weights = np.exp(stage.estimator.log_weights)
        new = current
        if isinstance(base, str):
            flat = stage.z.reshape(-1, current.dimension)
            new = dense(refitted(current, flat, weights.ravel(), start.least_shrinkage))
        bias = _prior_by_speed(stage.estimator)
        z = new.whiten(current.unwhiten(stage.z[:, -1])).reshape(chains, -1)
        places = np.concatenate([z, _logit(stage.beta[:, -1])], axis=1) if beta is None else z
        current = new
    ledger.lap("bootstrap")
    final = stage_of(current, bias, settings, places, round_seeds[-1], "pseudo-extended")
    ledger.lap("sampling")
    flat = final.z.reshape(chains, -1, current.dimension)
    variables = target.variables(current.unwhiten(flat), variable_seed)
    return PseudoExtendedRun(
        method="pseudo_extended",
        engine=engine_name(target, engine),
        variables=variables,
        z=final.z,
        beta=final.beta,
        delta=final.estimator.delta,
        base_delta=final.estimator.base_delta,
        base=current,
        bias=bias,
        statistics=final.chains.statistics,
        programs=programs,
        data=target.data_text,
        provenance=provenance(
            target,
            chosen,
            ledger,
            interrupted=final.chains.interrupted,
            step_size=final.chains.step_size,
        ),
    )


def _check_copies(copies: int, fixed_beta: Sequence[float] | None) -> Array | None:
    """The fixed β as an array of shape (N,), or None; raises `SamplingError` if they cannot be."""
    # A single copy would be NUTS on the target itself.
    whole("copies", copies, 2)
    if fixed_beta is None:
        return None
    beta = np.asarray(fixed_beta, float)
    if beta.shape != (copies,) or not np.all((beta >= 0) & (beta <= 1)):
        raise SamplingError(
            f"fixed_beta must hold {copies} numbers in [0, 1], one a copy, not {fixed_beta!r}.",
            remedy=f"Use e.g. fixed_beta={[0.1] * (copies - 1) + [1.0]}, or leave it out.",
        )
    if np.all(beta == 1):
        raise SamplingError(
            "With fixed_beta all 1 nothing is tempered.", remedy="Give some copies a smaller β."
        )
    return beta


@dataclass(frozen=True)
class _Stages:
    """Runs the program under one frozen base and bias after another."""

    target: SampledTarget
    engine: CmdStan | None
    copies: int
    fixed_beta: Array | None
    ledger: Ledger
    execution: Execution
    steps: StepSizes = field(default_factory=StepSizes)

    def __call__(
        self,
        base: GaussianBase,
        bias: CopyBias,
        settings: ChainSettings,
        starts: Array | None,
        seed: np.random.SeedSequence,
        label: str,
    ) -> _Stage:
        """Run the chains, and draw from the base."""
        prefix = self.target.prefix
        start_seed, base_seed, chain_seed = seed.spawn(3)
        if starts is None:
            rng = np.random.default_rng(start_seed)
            starts = self._starts(base, settings.chains, rng)
        draws = settings.draws
        with Bar(settings.chains * draws, label, unit="draw", shown=self.execution.progress) as bar:
            chains = run_chains(
                nuts_sampler(
                    self.target,
                    self.engine,
                    base,
                    bias,
                    copies=self.copies,
                    fixed_beta=self.fixed_beta,
                ),
                starts,
                settings,
                self.steps,
                draws=draws,
                seed=chain_seed,
                label=label,
                execution=self.execution,
                bar=bar,
                seen=lambda blocks: None,
                more=lambda blocks: 0,
            )
        z = np.swapaxes(chains.variables[f"{prefix}z"], 2, 3)  # a column a copy in the program
        if self.fixed_beta is None:
            beta = expit(chains.variables[f"{prefix}u"])
        else:
            beta = np.broadcast_to(self.fixed_beta, z.shape[:3]).copy()
        delta = chains.variables[f"{prefix}delta"]
        # A gradient of the program is one of the target for each copy.
        self.ledger.gradients += self.copies * chains.gradients
        count = BASE_DRAWS * z.shape[0] * z.shape[1]
        self.ledger.evaluations += count
        base_delta = base_deltas(self.target, base, count, base_seed, self.execution)
        return _Stage(chains, z, beta, CopyEstimator(delta, base_delta, bias, self.fixed_beta))

    def _starts(self, base: GaussianBase, chains: int, rng: np.random.Generator) -> Array:
        """Copies drawn from the base inside the target's support, then u unless β is fixed."""
        inside = draws_inside(self.target, base, chains * self.copies, rng)
        places = np.reshape(inside, (chains, -1))
        if self.fixed_beta is not None:
            return places
        return np.concatenate([places, rng.logistic(size=(chains, self.copies))], axis=1)


def _prior_by_speed(estimator: CopyEstimator) -> CopyBias:
    """The bias b = log z, and a prior under which the copies stay longer where the path is faster.

    The target's copy, whose β nothing else determines, has the prior too: when another takes over
    it is set free where the modes meet.
    """
    course = estimator.course(beta_grid(101))
    return CopyBias.from_curves(course.beta, course.log_z, course.log_density(UNIFORM))


def _logit(beta: Array) -> Array:
    """The control u of β, kept finite where β has rounded to an end."""
    inside = np.clip(beta, 1e-15, 1 - 1e-15)
    return np.log(inside) - np.log1p(-inside)
