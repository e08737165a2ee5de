"""TACT-HMC: tempered dynamics whose thermostats take up the noise of mini-batches.

[TACT] is Luo, Wang, Yang, Zhu & Wang 2018, Algorithm 1, with these corrections: draws are collected
where λ = 1 (line 16 has 0), the biasing force averages over each bin's own visits, and every buffer
is its own. What differs on purpose: friction acts between two halves of the force by default
(``integrator="published"`` brings back the Euler step), the bias of all chains is pooled, and it is
frozen before the first draw that counts. With parts switched off the same loop is SGNHT, SGHMC and
SGLD, see `VARIANTS`.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import asdict, replace

import numpy as np

from stanct.arrays import Array
from stanct.engines.embedded import Nuts
from stanct.errors import SamplingError
from stanct.kernels.tact import Bias
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import LowRankBase
from stanct.runs.tact import TactRun
from stanct.samplers._lanes import stream
from stanct.samplers._rounds import Ledger, SampledTarget, engine_name, first_base, provenance
from stanct.samplers._tact_settings import VARIANTS, Coupling, Hills, TactSettings
from stanct.samplers._walkers import (
    SPREAD_BATCHES,
    collect,
    joined,
    learn,
    noise_spread,
    started,
    typical_energy,
)
from stanct.targets import batches
from stanct.targets.batches import Batches, Source, StochasticTarget
from stanct.targets.minibatch import MiniBatch, program_batches
from stanct.targets.program_target import Target
from stanct.work.execution import Execution, executing

__all__ = ["VARIANTS", "Coupling", "Hills", "MiniBatch", "StochasticTarget", "sample"]


def sample(
    target: SampledTarget | StochasticTarget,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 1000,
    seed: int | None = None,
    base: str | GaussianBase | None = None,
    start: Array | None = None,
    minibatch: MiniBatch | None = None,
    thin: int = 10,
    step: float = 0.1,
    tempering_step: float = 0.05,
    friction: float = 0.1,
    tempering_friction: float = 0.1,
    inertia: float = 1.0,
    tempering_inertia: float = 1.0,
    tempering: bool = True,
    thermostat: str | None = "scalar",
    bias: str | None = "force",
    bins: int = 100,
    hills: Hills | None = None,
    coupling: Coupling | None = None,
    integrator: str = "symmetric",
    resample_every: int = 0,
    patience: int = 50,
    noise: tuple[float, float] = (0.0, 0.0),
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TactRun:
    """Sample by TACT-HMC, or by one of its parts, and return the run.

    Nothing is accepted or rejected, so the draws are as exact as the step is short; the
    thermostats' means tell when it is not.

    Parameters
    ----------
    target
        Program and data, a `FunctionTarget`, or a `StochasticTarget` of your own.
    chains, draws
        Chains, and draws that each collects where λ = 1; it looks every `thin` steps.
    warmup
        Looks of each chain, `thin` steps each, in which the bias is learned; it is frozen after.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        What whitens the coordinates and where chains start: fitted by ``"pilot"``,
        ``"pathfinder"`` or ``"laplace"``, or a `GaussianBase` of your own. By default a Stan
        program has ``"pilot"``, or ``"laplace"`` with mini-batches, fitted to all data; a function
        is sampled in its own coordinates.
    start : shape (D,) or (chains, D)
        Unconstrained points to start from instead.
    minibatch
        The size that counts observations and how many make a batch, see `MiniBatch`.
    thin
        Steps between looks ([TACT]'s K).
    step, tempering_step
        ε = √η for θ (whitened) and for ξ: a step moves them by about ε.
    friction, tempering_friction
        c of the injected noise, by step.
    inertia, tempering_inertia
        γ of the thermostats; z_θ has variance η / γ, divided by D for the scalar one.
    tempering
        Let ξ move; without it λ = 1 throughout.
    thermostat
        ``"scalar"``, ``"diagonal"`` (one for each coordinate) or None: friction stays at c and the
        noise of the gradient is not compensated.
    bias
        ``"force"`` (adaptive biasing force), ``"hills"`` (metadynamics) or None.
    bins
        In which the bias is kept, over 0 ≤ |ξ| ≤ W₀.
    hills, coupling
        `Hills` and `Coupling`.
    integrator
        ``"symmetric"``: exact friction between two halves of the force; ``"published"``: Algorithm
        1's Euler step, whose variances are too small by about z_θ / 2.
    resample_every
        Steps after which momenta are drawn afresh; 0 for never.
    patience
        A chain looks no more than `patience` × `draws` times; the run has as many draws as the
        chain that collected fewest. With 1 all variants cost the same.
    noise
        Standard deviations of Gaussian noise that is added to the energy and to each component of
        its gradient in whitened coordinates, for experiments; the sampler is not told.
    threads
        Chains that run at once; as many as there are cores by default.
    executor
        Who runs the chains' blocks instead of threads: any `concurrent.futures.Executor`, also
        Dask's ``client.get_executor()``. The draws do not depend on it. The base is fitted here,
        and with mini-batches all shards travel with every block.
    checkpoint
        Folder from which a run that was killed goes on: repeat the same call. It stays when the run
        is finished; delete it when the run is saved.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other or the target, or no chain that reaches λ = 1.
    EngineError
        No base could be fitted.
    DataError, ProgramError
        Stan refuses the data, or the program cannot be cut into batches, with the place.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before the first block of kept draws; later, the finished ones are returned.
    """
    settings = TactSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        thin=thin,
        step=step,
        tempering_step=tempering_step,
        friction=friction,
        tempering_friction=tempering_friction,
        inertia=inertia,
        tempering_inertia=tempering_inertia,
        tempering=tempering,
        thermostat=thermostat,
        bias=bias if tempering else None,
        bins=bins,
        hills=Hills() if hills is None else hills,
        coupling=Coupling() if coupling is None else coupling,
        integrator=integrator,
        resample_every=resample_every,
        patience=patience,
        noise=(float(noise[0]), float(noise[1])),
        threads=threads,
    )
    with executing(
        target,
        "tact",
        {
            **asdict(settings),
            "base": base,
            "start": None if start is None else np.asarray(start, float),
            "minibatch": None if minibatch is None else minibatch.settings,
        },
        seed=seed,
        executor=executor,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        return _sample(target, settings, base, start, minibatch, execution)


def _sample(
    target: SampledTarget | StochasticTarget,
    settings: TactSettings,
    base: str | GaussianBase | None,
    start: Array | None,
    minibatch: MiniBatch | None,
    execution: Execution,
) -> TactRun:
    """Base, batches, warm-up, draws."""
    ledger = Ledger()
    seed, draws = execution.seed, settings.draws
    fit_seed, batch_seed, spread_seed, variable_seed, *lane_seeds = np.random.SeedSequence(
        seed
    ).spawn(settings.chains + 4)
    shards = None if minibatch is None else _shards(target, minibatch, batch_seed)
    ledger.lap("batches")
    fitted = _base(target, base, minibatch, settings, fit_seed, execution, ledger)
    ledger.lap("base")
    if shards is not None and minibatch is not None and minibatch.control and fitted is not None:
        shards = replace(shards, reference=fitted.mean)
    source = _source(target, fitted, shards, settings, execution, ledger)
    starts = _starts(start, fitted, settings.chains, source.mean.size)
    noises = batch_seed.spawn(settings.chains)
    members = [
        started(source, settings, starts[lane], stream(child), stream(noises[lane]))
        for lane, child in enumerate(lane_seeds)
    ]
    ledger.lap("starts")
    offset = typical_energy(source, members, settings, execution)
    learn(source, members, settings, offset, execution)
    ledger.lap("warmup")
    blocks, interrupted = collect(source, members, settings, offset, execution)
    kept = min(min(member.collected for member in members), draws)
    if kept == 0:
        raise SamplingError(
            f"A chain was never at temperature 1 in {settings.patience * draws} looks.",
            remedy="Learn the bias for longer (warmup=), or pass a wider plateau (coupling=).",
        )
    ledger.gradients += int(sum(member.walker.clock[0] for member in members))
    ledger.lap("sampling")
    spread = execution.once("noise", lambda: noise_spread(source, blocks, settings, spread_seed))
    ledger.gradients += len(spread) * SPREAD_BATCHES
    means, errors = settings.thermostat_means(spread)
    ledger.lap("noise")
    z = joined(blocks, "z", kept)
    x = z if fitted is None else fitted.unwhiten(z)
    variables = dict(target.variables(x, variable_seed))
    ledger.lap("variables")
    looks = min(sum(len(block.trace) for block in chain) for chain in blocks)
    asked = {
        **asdict(settings),
        "seed": seed,
        "base": base if isinstance(base, str | None) else "given",
        "minibatch": None if minibatch is None else minibatch.settings,
    }
    return TactRun(
        method="tact",
        engine=engine_name(target),
        variables=variables,
        z=z,
        base=fitted,
        programs=target.programs,
        data=target.data_text,
        energy=joined(blocks, "energy", kept),
        trace=joined(blocks, "trace", looks),
        noise=spread,
        thermostat_means=means,
        thermostat_errors=errors,
        bias=_summary(members[0].bias, settings),
        counts=np.array([member.walker.clock for member in members]),
        provenance=provenance(
            target, asked, ledger, interrupted=interrupted, hottest=settings.coupling.hottest
        ),
    )


def _base(
    target: SampledTarget | StochasticTarget,
    base: str | GaussianBase | None,
    minibatch: MiniBatch | None,
    settings: TactSettings,
    seed: np.random.SeedSequence,
    execution: Execution,
    ledger: Ledger,
) -> GaussianBase | None:
    """What whitens; None for functions that are sampled in their own coordinates."""
    if isinstance(target, StochasticTarget):
        if isinstance(base, str):
            raise SamplingError(
                f"The base {base!r} is fitted to a Stan program, and this target has none.",
                remedy="Pass a GaussianBase, or none.",
            )
        if base is not None and base.dimension != target.dimension:
            raise SamplingError(
                f"The base has {base.dimension} dimensions, the target {target.dimension}."
            )
        return base
    if base is None and not isinstance(target, Target):
        return None
    if base == "low_rank" or isinstance(base, LowRankBase):
        raise SamplingError(
            "TACT-HMC moves in coordinates that a dense or no base whitens.",
            remedy='Use base="pilot", "pathfinder" or "laplace", or a GaussianBase.',
        )
    fit = base if base is not None else ("pilot" if minibatch is None else "laplace")
    nuts = Nuts() if settings.threads is None else Nuts(threads=settings.threads)
    found = first_base(
        target, fit, 0.0 if isinstance(fit, GaussianBase) else None,
        chains=settings.chains, seed=seed, nuts=nuts, execution=execution,
    )  # fmt: skip
    ledger.gradients += found.gradients
    ledger.evaluations += found.evaluations
    assert isinstance(found.base, GaussianBase)  # the other kinds have been refused
    return found.base


def _shards(
    target: SampledTarget | StochasticTarget, minibatch: MiniBatch, seed: np.random.SeedSequence
) -> Batches:
    """The data cut into batches; refused, where it must be, before anything is fitted."""
    if isinstance(target, StochasticTarget):
        raise SamplingError("A stochastic target makes its own batches.")
    if not isinstance(target, Target):
        raise SamplingError(
            "Mini-batches are cut from the data of a Stan program, and this target has none.",
            remedy="Pass a StochasticTarget that draws its own batches.",
        )
    return program_batches(target, minibatch, None, np.random.default_rng(seed))


def _source(
    target: SampledTarget | StochasticTarget,
    base: GaussianBase | None,
    shards: Batches | None,
    settings: TactSettings,
    execution: Execution,
    ledger: Ledger,
) -> Source:
    """Where the chains' estimates come from."""
    dimension = target.density.dimension
    corrections = np.zeros(0), np.zeros((0, dimension))
    if isinstance(target, StochasticTarget):
        lend = batches.estimates(target.function, dimension)
    elif shards is None:
        lend = batches.whole(target.density.borrow)
    else:
        if shards.reference is not None:
            corrections = execution.once("batches", shards.corrections)
            ledger.gradients += len(shards.shards)
        lend = batches.cut(shards)
    if base is None:
        return Source(
            lend, np.zeros(dimension), np.ones((1, dimension)), corrections, settings.noise
        )
    return Source(lend, base.mean, base.scale, corrections, settings.noise)


def _starts(
    start: Array | None, base: GaussianBase | None, chains: int, dimension: int
) -> list[Array | None]:
    """Whitened starts, one a chain; None to draw it."""
    if start is None:
        return [None] * chains
    x = np.asarray(start, float)
    if x.shape not in ((dimension,), (chains, dimension)):
        raise SamplingError(
            f"start has shape {x.shape}; it must be ({dimension},) or ({chains}, {dimension})."
        )
    x = np.broadcast_to(x, (chains, dimension))
    return list(x.copy() if base is None else base.whiten(x))


def _summary(bias: Bias, settings: TactSettings) -> Array:
    """Visits and what was learned, shape (2, bins)."""
    if settings.bias == "force":
        return np.array([bias.visits, bias.energy / np.maximum(bias.visits, 1)])
    return np.array([bias.visits, bias.height])
