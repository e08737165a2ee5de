"""Particles that are moved along an annealing schedule from the base to the target, or back.

A particle's log weight gains −(β_{n+1} − β_n) δ before each HMC move at β_{n+1} ([GS] 10; Neal
2001). Step sizes are learned from pilot particles and frozen. With resampling, islands of particles
are resampled among themselves whenever their weights degenerate; islands stay independent of each
other, so errors come from the spread between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from stanct import kernels
from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.kernels import (
    Mover,
    Population,
    Schedule,
    State,
    StepTable,
    Tally,
    copy_table,
    make_population,
    make_problem,
    make_scratch,
    make_table,
    make_tally,
    pool_tables,
)
from stanct.path.bias import sigmoidal_ladder
from stanct.path.mixture import AnyBase
from stanct.runs.particle_run import ParticleRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._rounds import (
    Ledger,
    SampledTarget,
    acceptance_by_beta,
    engine_name,
    first_base,
    provenance,
)
from stanct.samplers._settings import MoveSettings
from stanct.work.execution import Borrow, Execution

PILOT_ROUNDS = 2
# Transitions at β = 1 between the starts of two particles on their way back.
SPACING = 5
# Effective share of an island's particles below which it is resampled.
RESAMPLE_BELOW = 0.5


@dataclass(frozen=True, kw_only=True)
class AnnealingSettings(MoveSettings):
    """How annealed importance sampling is run; see `sample`."""

    least: ClassVar[Mapping[str, int]] = {
        **MoveSettings.least,
        "warmup": 1,
        "temperatures": 2,
        "island": 2,
    }

    temperatures: int
    resample: bool
    island: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws % self.island or self.chains * self.draws < 2 * self.island:
            raise SamplingError(
                f"draws={self.draws} must be a multiple of island={self.island}, and there must be "
                "two or more islands."
            )


@dataclass(frozen=True)
class Particles:
    """Finished particles of one island."""

    z: Array
    log_weights: Array
    tally: Tally


@dataclass
class Stream:
    """One chain's random stream and step table; it anneals one island after another.

    `state` is where the way back starts.
    """

    rng: np.random.Generator
    table: StepTable
    state: State

    @classmethod
    def start(cls, seed: np.random.SeedSequence, dimension: int) -> Stream:
        """A stream that has moved no particle."""
        nowhere = State(np.zeros(dimension), np.zeros(dimension), np.full(1, -np.inf))
        return cls(lanes.stream(seed), make_table(dimension), nowhere)


def _up(
    borrow: Borrow,
    base: AnyBase,
    betas: Array,
    settings: AnnealingSettings,
    learn: bool,
    stream: Stream,
    size: int,
) -> Particles:
    """Take fresh particles from the base to the target."""
    population, tally = make_population(base.draw(stream.rng, size)), make_tally()
    scratch = make_scratch(base.dimension)
    mover = Mover(settings.moves(learn=learn), stream.table, scratch)
    tally.counts[0] = size
    resample = settings.resample and not learn
    # Without resampling nothing happens between temperatures, so that one call does them all.
    segments = itertools.pairwise(betas) if resample else [betas]
    with borrow() as density:
        problem = make_problem(density, base)
        for k in range(size):
            row = (population.z[k], population.gradient[k], population.value[k])
            kernels.evaluate(problem, *row, scratch)
        for segment in segments:
            schedule = Schedule(np.asarray(segment, float), settings.transitions)
            kernels.anneal(problem, population, schedule, mover, stream.rng, tally)
            if resample:
                population = _resampled(population, stream.rng)
    return Particles(population.z.copy(), population.log_weights, tally)


def down(
    borrow: Borrow,
    base: AnyBase,
    betas: Array,
    settings: AnnealingSettings,
    stream: Stream,
    size: int,
) -> Particles:
    """Take particles from the target, where `stream.state` is an exact draw, to the base.

    Between one particle's start and the next the state is moved at β = 1, which leaves it exact.
    """
    moves, scratch = settings.moves(learn=False), make_scratch(base.dimension)
    mover = Mover(moves, stream.table, scratch)
    population, tally = make_population(np.zeros((size, base.dimension))), make_tally()
    state = stream.state
    with borrow() as density:
        problem = make_problem(density, base)
        for k in range(size):
            for _ in range(SPACING):
                probability, status, gradients = kernels.tempered_move(
                    problem, state, 1.0, mover, stream.rng
                )
                events = (status == kernels.DIVERGED, status == kernels.REJECTED)
                tally.counts[:] += (gradients, 1, probability, *events)
            population.z[k], population.gradient[k] = state.z, state.gradient
            population.value[k] = state.value
        schedule = Schedule(np.ascontiguousarray(betas[::-1]), settings.transitions)
        kernels.anneal(problem, population, schedule, mover, stream.rng, tally)
    return Particles(population.z.copy(), population.log_weights, tally)


def _resampled(population: Population, rng: np.random.Generator) -> Population:
    """Resample systematically if too few particles carry the weight; keeps the mean weight."""
    log_weights = population.log_weights
    top = log_weights.max()
    if not np.isfinite(top):
        return population
    weights = np.exp(log_weights - top)
    share = weights.sum() ** 2 / np.square(weights).sum() / weights.size
    if share >= RESAMPLE_BELOW:
        return population
    comb = (np.arange(weights.size) + rng.random()) / weights.size
    cumulative = weights.cumsum() / weights.sum()
    picked = np.minimum(np.searchsorted(cumulative, comb), weights.size - 1)
    chosen = make_population(population.z[picked])
    chosen.gradient[:], chosen.value[:] = population.gradient[picked], population.value[picked]
    chosen.log_weights[:] = top + np.log(weights.mean())
    return chosen


def anneal(
    target: SampledTarget,
    settings: AnnealingSettings,
    base: str | AnyBase,
    log_zeta: float | None,
    execution: Execution,
) -> tuple[ParticleRun, list[Stream]]:
    """Fit a base, learn step sizes, freeze them, and take the particles to the target.

    Returns
    -------
    run, streams
        The streams as they are after the last particle, with frozen step sizes.

    Raises
    ------
    SamplingError, EngineError, DataError, KeyboardInterrupt
        As `samplers.ais.sample` says.
    """
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
        sampled=True,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    betas = sigmoidal_ladder(settings.temperatures)
    dimension, borrow = start.base.dimension, target.density.borrow
    streams = [Stream.start(child, dimension) for child in lane_seeds]
    table = _learn(borrow, streams, start.base, betas, settings, ledger, execution)
    ledger.lap("warmup")
    blocks, interrupted = execution.blocks(
        "particles",
        partial(_up, borrow, start.base, betas, settings, False),
        streams,
        [settings.island] * (settings.draws // settings.island),
        unit="particle",
        final=True,
    )
    ledger.lap("sampling")
    log_weights = np.stack([np.concatenate([b.log_weights for b in chain]) for chain in blocks])
    if not np.isfinite(log_weights).any():
        raise SamplingError(
            f"The target vanishes, or Stan rejects it, at all of {log_weights.size} particles.",
            remedy="Pass a base that overlaps the target's support.",
        )
    z = np.stack([np.concatenate([block.z for block in chain]) for chain in blocks])
    counts = np.array([np.sum([b.tally.counts for b in chain], axis=0) for chain in blocks])
    bins = np.sum([block.tally.bins for chain in blocks for block in chain], axis=0)
    ledger.gradients += int(counts[:, 0].sum())
    variables = target.variables(start.base.unwhiten(z), variable_seed)
    run = ParticleRun(
        method="smc" if settings.resample else "ais",
        engine=engine_name(target),
        variables=variables,
        z=z,
        log_weights=log_weights,
        island=settings.island if settings.resample else 1,
        betas=betas,
        counts=counts,
        base=start.base,
        programs=target.programs,
        data=target.data_text,
        provenance=provenance(
            target,
            {**asdict(settings), "seed": seed, "base": base if isinstance(base, str) else "given"},
            ledger,
            interrupted=interrupted,
            acceptance=acceptance_by_beta(bins),
            log_step=table.log_step.tolist(),
        ),
    )
    return run, streams


def _learn(
    borrow: Borrow,
    streams: list[Stream],
    base: AnyBase,
    betas: Array,
    settings: AnnealingSettings,
    ledger: Ledger,
    execution: Execution,
) -> StepTable:
    """Learn step sizes from pilot particles, pool them, and freeze them in every stream."""
    pooled = streams[0].table
    for _ in range(PILOT_ROUNDS):
        blocks, _ = execution.blocks(
            "pilot",
            partial(_up, borrow, base, betas, settings, True),
            streams,
            [settings.warmup],
            unit="particle",
        )
        ledger.gradients += int(sum(block.tally.counts[0] for chain in blocks for block in chain))
        pooled = pool_tables([stream.table for stream in streams])
        for stream in streams:
            stream.table = copy_table(pooled)
    return pooled
