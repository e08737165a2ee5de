"""Particles that move along an annealing schedule from the base to the target, or back.

A particle's log weight gains −(β_{n+1} − β_n) δ before each HMC move at β_{n+1} ([GS] 10; Neal
2001). Step sizes are learned from pilot particles and frozen. With resampling, the particles of an
island are resampled among themselves whenever their weights degenerate. Islands stay independent of
each other, so errors come from the spread between them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.names import MODES
from stanct.common.settings import Flag, Ladder, Whole
from stanct.path.base import Base
from stanct.path.bias import sigmoidal_ladder
from stanct.runs.particle import ParticleRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._job import Job, Plan
from stanct.samplers._looks import until_precise
from stanct.samplers._method import HmcMethod
from stanct.samplers._rounds import acceptance_by_beta
from stanct.work.execution import Borrow
from stanct.work.progress import Bar

Result = TypeVar("Result", covariant=True)

PILOT_ROUNDS = 2
# Particles of each chain before the first look at a `target_se`.
FIRST_LOOK = 64
# Transitions at β = 1 between the starts of two successive reverse particles.
SPACING = 5
# Effective share of its particles below which an island is resampled.
RESAMPLE_BELOW = 0.5


@dataclass(frozen=True, kw_only=True)
class Annealing(HmcMethod[Result]):
    """A method that anneals particles from the base to the target; `AIS` has the settings."""

    default_draws: ClassVar[int] = 128
    loops: ClassVar[tuple[str, ...]] = "evaluate", "anneal"
    default_warmup: ClassVar[int] = 8
    default_base: ClassVar[str] = MODES
    least_warmup: ClassVar[int] = 1

    temperatures: Annotated[int | tuple[float, ...], Ladder(2)] = 200
    resample: Annotated[bool, Flag()] = False
    island: Annotated[int, Whole(2)] = 32

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse numbers of particles that islands do not divide, or that make fewer than two."""
        if plan.draws % self.island or plan.chains * plan.draws < 2 * self.island:
            raise SamplingError(
                f"draws must be a multiple of island={self.island} and make two or more islands, "
                f"not {plan.draws}.",
                remedy=f"Did you mean draws={max(1, round(plan.draws / self.island)) * self.island}"
                f"{'' if plan.chains > 1 else ' and chains=4'}?",
            )
        most = plan.max_draws
        if most is not None and (most < self.island or plan.chains * most < 2 * self.island):
            raise SamplingError(
                f"max_draws must allow two or more islands of {self.island} particles, and "
                f"{most} do not.",
                remedy=f"Did you mean max_draws={(1 + (plan.chains == 1)) * self.island}?",
            )

    def anneal(self, job: Job) -> tuple[ParticleRun, list[Stream]]:
        """Fit a base, learn step sizes, freeze them, and anneal; the run, and its streams."""
        start = job.start(sampled=True)
        up, streams = self._streams(job, start.base)
        table = _learn(job, replace(up, moves=self.moves(learn=True), resample=False), streams)
        job.lap("warmup")
        return self._annealed(job, up, streams, table), streams

    def _streams(self, job: Job, base: Base) -> tuple[Up, list[Stream]]:
        """What moves the particles of a base, and new streams of them."""
        own, moves = self.temperatures, self.moves(learn=False)
        betas = sigmoidal_ladder(own) if isinstance(own, int) else np.array(own)
        up = Up(job.borrow, base, betas, moves, self.transitions, self.resample)
        streams = [Stream.start(job.seeds("stream", k), base.dimension) for k in range(job.chains)]
        return up, streams

    def more_particles(self, job: Job, run: ParticleRun) -> ParticleRun:
        """Anneal new particles from the base of a run, with its step sizes."""
        up, streams = self._streams(job, run.base)
        table = lanes.pool(streams, lanes.frozen_table(run))
        return self._annealed(job, up, streams, table)

    def _annealed(
        self, job: Job, up: Up, streams: list[Stream], table: kernels.StepTable
    ) -> ParticleRun:
        """Move particles along the schedule with frozen step sizes, and make the run."""
        precision = replace(job.precision, unit=self.island, begin=FIRST_LOOK)
        blocks: list[list[Particles]] = [[] for _ in streams]

        def fields() -> dict[str, Any]:
            return {
                "method": "smc" if self.resample else "ais",
                "z": np.stack([np.concatenate([block.z for block in chain]) for chain in blocks]),
                "log_weights": joined_weights(blocks),
                "island": self.island if self.resample else 1,
                "betas": up.betas,
                "counts": joined_counts(blocks),
                "base": up.base,
            }

        def make(particles: int, bar: Bar) -> bool:
            sizes = [self.island] * (particles // self.island)
            more, early = job.blocks("particles", up, streams, sizes, final=True, bar=bar)
            for chain, further in zip(blocks, more, strict=True):
                chain.extend(further)
            job.ledger.gradients += int(joined_counts(more)[:, 0].sum())
            return early

        found, early = until_precise(
            job, precision, make, ParticleRun, fields, "particles", unit="particle"
        )
        bins = np.sum([block.tally.bins for chain in blocks for block in chain], axis=0)
        return job.finish(
            ParticleRun,
            interrupted=early,
            x=up.base.unwhiten(found["z"]),
            **found,
            facts={
                "stopping": precision.record(),
                "acceptance": acceptance_by_beta(bins),
                "log_step": table.log_step.tolist(),
            },
        )


@dataclass(frozen=True)
class Particles:
    """Finished particles of one island."""

    z: Array
    log_weights: Array
    tally: kernels.Tally


@dataclass
class Stream:
    """Random stream and step table of a chain; `state` is where its reverse particles start."""

    rng: np.random.Generator
    table: kernels.StepTable
    state: kernels.State

    @classmethod
    def start(cls, seed: np.random.SeedSequence, dimension: int) -> Stream:
        """A new stream, which has not moved any particle."""
        nowhere = kernels.State(np.zeros(dimension), np.zeros(dimension), np.full(1, -np.inf))
        return cls(lanes.stream(seed), kernels.make_table(dimension), nowhere)


@dataclass(frozen=True)
class Up:
    """Moves new particles from the base to the target; it is sent to workers."""

    borrow: Borrow
    base: Base
    betas: Array
    moves: kernels.Moves
    transitions: int
    resample: bool

    def mover(self, stream: Stream) -> kernels.Mover:
        """What moves the particles of a stream."""
        scratch = kernels.make_scratch(self.base.dimension)
        return kernels.Mover(self.moves, stream.table, scratch)

    def __call__(self, stream: Stream, size: int) -> Particles:
        population = kernels.make_population(self.base.draw(stream.rng, size))
        mover, tally = self.mover(stream), kernels.make_tally()
        tally.counts[0] = size
        # Without resampling, nothing happens between temperatures, so one call covers them all.
        segments = itertools.pairwise(self.betas) if self.resample else [self.betas]
        with self.borrow() as density:
            problem = kernels.make_problem(density, self.base)
            for k in range(size):
                row = (population.z[k], population.gradient[k], population.value[k])
                kernels.evaluate(problem, *row, mover.scratch)
            for segment in segments:
                schedule = kernels.Schedule(np.asarray(segment, float), self.transitions)
                kernels.anneal(problem, population, schedule, mover, stream.rng, tally)
                if self.resample:
                    population = _resampled(population, stream.rng)
        return Particles(population.z.copy(), population.log_weights, tally)


class Down(Up):
    """Moves particles to the base from `stream.state`, an exact draw that moves on at β = 1."""

    def __call__(self, stream: Stream, size: int) -> Particles:
        population = kernels.make_population(np.zeros((size, self.base.dimension)))
        mover, tally, state = self.mover(stream), kernels.make_tally(), stream.state
        with self.borrow() as density:
            problem = kernels.make_problem(density, self.base)
            for k in range(size):
                for _ in range(SPACING):
                    probability, status, gradients = kernels.tempered_move(
                        problem, state, 1.0, mover, stream.rng
                    )
                    events = (status == kernels.DIVERGED, status == kernels.REJECTED)
                    tally.counts[:] += (gradients, 1, probability, *events)
                population.z[k], population.gradient[k] = state.z, state.gradient
                population.value[k] = state.value
            schedule = kernels.Schedule(np.ascontiguousarray(self.betas[::-1]), self.transitions)
            kernels.anneal(problem, population, schedule, mover, stream.rng, tally)
        return Particles(population.z.copy(), population.log_weights, tally)


def joined_weights(blocks: list[list[Particles]]) -> Array:
    """Log weights of all particles, shape (chains, particles); some of them must be finite."""
    log_weights = np.stack([np.concatenate([b.log_weights for b in chain]) for chain in blocks])
    if not np.isfinite(log_weights).any():
        raise SamplingError(
            f"The target vanishes, or Stan rejects it, at all of {log_weights.size} particles.",
            remedy="Pass a base that overlaps the target's support.",
        )
    return log_weights


def joined_counts(blocks: list[list[Particles]]) -> Array:
    """The counts of `Tally.counts` for each chain, shape (chains, 5)."""
    return np.array([np.sum([b.tally.counts for b in chain], axis=0) for chain in blocks])


def _resampled(population: kernels.Population, rng: np.random.Generator) -> kernels.Population:
    """Resample systematically if too few particles carry the weight; keep the mean weight."""
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
    chosen = kernels.make_population(population.z[picked])
    chosen.gradient[:], chosen.value[:] = population.gradient[picked], population.value[picked]
    chosen.log_weights[:] = top + np.log(weights.mean())
    return chosen


def _learn(job: Job, pilot: Up, streams: list[Stream]) -> kernels.StepTable:
    """Learn step sizes from pilot particles, pool them, and freeze them in every stream."""
    pooled = streams[0].table
    for _ in range(PILOT_ROUNDS):
        blocks, _ = job.blocks("pilot", pilot, streams, [job.warmup], unit="particle")
        job.ledger.gradients += int(joined_counts(blocks)[:, 0].sum())
        pooled = lanes.pool(streams)
    return pooled
