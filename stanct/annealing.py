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
from typing import ClassVar

import numpy as np

from stanct import kernels
from stanct.bases import AnyBase
from stanct.embedded import NAME, Nuts
from stanct.errors import SamplingError
from stanct.lanes import Lane, run_blocks
from stanct.path import Array, sigmoidal_ladder
from stanct.rounds import Ledger, SampledTarget, first_base, provenance, run_seed
from stanct.runs.particle_run import ParticleRun
from stanct.settings import MoveSettings
from stanct.workspace import (
    Rungs,
    State,
    StepTable,
    copy_table,
    make_rungs,
    make_table,
    pool_tables,
)

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
    counts: Array


class Stream:
    """One chain: a lane that anneals one island after another.

    `state` is where the way back starts.
    """

    def __init__(self, lane: Lane, dimension: int) -> None:
        self.lane = lane
        self.table = make_table(dimension)
        self.state = State(np.zeros(dimension), np.zeros(dimension), np.full(1, -np.inf))

    def anneal(
        self, base: AnyBase, betas: Array, settings: AnnealingSettings, size: int, learn: bool
    ) -> Particles:
        """Take fresh particles from the base to the target."""
        problem = self.lane.problem(base)
        rungs = make_rungs(base.draw(self.lane.rng, size))
        for k in range(size):
            row = (rungs.z[k], rungs.gradient[k], rungs.value[k])
            kernels.evaluate(problem, *row, self.lane.scratch)
        log_weights, counts = np.zeros(size), np.zeros(5)
        counts[0] = size
        resample = settings.resample and not learn
        # Without resampling nothing happens between temperatures, so that one call does them all.
        segments = itertools.pairwise(betas) if resample else [betas]
        for segment in segments:
            kernels.anneal(
                problem,
                rungs,
                log_weights,
                np.asarray(segment, float),
                self.table,
                settings.moves(learn=learn),
                settings.transitions,
                self.lane.rng,
                self.lane.scratch,
                counts,
            )
            if resample:
                rungs, log_weights = _resampled(rungs, log_weights, self.lane.rng)
        return Particles(rungs.z.copy(), log_weights, counts)

    def reverse(
        self, base: AnyBase, betas: Array, settings: AnnealingSettings, size: int
    ) -> Particles:
        """Take particles from the target, where `state` is an exact draw, to the base.

        Between one particle's start and the next `state` is moved at β = 1, which leaves it exact.
        """
        problem, moves = self.lane.problem(base), settings.moves(learn=False)
        rungs, counts = make_rungs(np.zeros((size, base.dimension))), np.zeros(5)
        for k in range(size):
            for _ in range(SPACING):
                probability, status, gradients = kernels.tempered_move(
                    problem, self.state, 1.0, self.table, moves, self.lane.rng, self.lane.scratch
                )
                events = (status == kernels.DIVERGED, status == kernels.REJECTED)
                counts += (gradients, 1, probability, *events)
            rungs.z[k], rungs.gradient[k] = self.state.z, self.state.gradient
            rungs.value[k] = self.state.value
        log_weights = np.zeros(size)
        kernels.anneal(
            problem,
            rungs,
            log_weights,
            np.ascontiguousarray(betas[::-1]),
            self.table,
            moves,
            settings.transitions,
            self.lane.rng,
            self.lane.scratch,
            counts,
        )
        return Particles(rungs.z.copy(), log_weights, counts)


def _resampled(rungs: Rungs, log_weights: Array, rng: np.random.Generator) -> tuple[Rungs, Array]:
    """Resample systematically if too few particles carry the weight; keeps the mean weight."""
    top = log_weights.max()
    if not np.isfinite(top):
        return rungs, log_weights
    weights = np.exp(log_weights - top)
    share = weights.sum() ** 2 / np.square(weights).sum() / weights.size
    if share >= RESAMPLE_BELOW:
        return rungs, log_weights
    comb = (np.arange(weights.size) + rng.random()) / weights.size
    cumulative = weights.cumsum() / weights.sum()
    picked = np.minimum(np.searchsorted(cumulative, comb), weights.size - 1)
    chosen = make_rungs(rungs.z[picked])
    chosen.gradient[:], chosen.value[:] = rungs.gradient[picked], rungs.value[picked]
    return chosen, np.full(weights.size, top + np.log(weights.mean()))


def anneal(
    target: SampledTarget,
    settings: AnnealingSettings,
    *,
    seed: int | None,
    base: str | AnyBase,
    log_zeta: float | None,
    progress: bool,
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
    seed = run_seed(seed)
    ledger = Ledger()
    fit_seed, variable_seed, *lane_seeds = np.random.SeedSequence(seed).spawn(settings.chains + 2)
    nuts = Nuts() if settings.threads is None else Nuts(threads=settings.threads)
    start = first_base(
        target, base, log_zeta, chains=settings.chains, seed=fit_seed, nuts=nuts, sampled=True
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    betas = sigmoidal_ladder(settings.temperatures)
    streams = [Stream(Lane(target.density, child), start.base.dimension) for child in lane_seeds]
    table = _learn(streams, start.base, betas, settings, ledger, progress)
    ledger.lap("warmup")
    blocks, interrupted = run_blocks(
        lambda lane, size: streams[lane].anneal(start.base, betas, settings, size, False),
        settings.chains,
        [settings.island] * (settings.draws // settings.island),
        threads=settings.threads,
        label="particles",
        progress=progress,
        unit="particle",
    )
    ledger.lap("sampling")
    log_weights = np.stack([np.concatenate([b.log_weights for b in chain]) for chain in blocks])
    if not np.isfinite(log_weights).any():
        raise SamplingError(
            f"The target vanishes, or Stan rejects it, at all of {log_weights.size} particles.",
            remedy="Pass a base that overlaps the target's support.",
        )
    z = np.stack([np.concatenate([block.z for block in chain]) for chain in blocks])
    counts = np.array([np.sum([block.counts for block in chain], axis=0) for chain in blocks])
    ledger.gradients += int(counts[:, 0].sum())
    variables = target.variables(start.base.unwhiten(z), variable_seed)
    run = ParticleRun(
        method="smc" if settings.resample else "ais",
        engine=NAME if target.programs else "python",
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
            log_step=table.log_step.tolist(),
        ),
    )
    return run, streams


def _learn(
    streams: list[Stream],
    base: AnyBase,
    betas: Array,
    settings: AnnealingSettings,
    ledger: Ledger,
    progress: bool,
) -> StepTable:
    """Learn step sizes from pilot particles, pool them, and freeze them in every stream."""
    pooled = streams[0].table
    for _ in range(PILOT_ROUNDS):
        blocks, interrupted = run_blocks(
            lambda lane, size: streams[lane].anneal(base, betas, settings, size, True),
            len(streams),
            [settings.warmup],
            threads=settings.threads,
            label="pilot",
            progress=progress,
            unit="particle",
        )
        if interrupted:
            raise KeyboardInterrupt
        ledger.gradients += int(sum(block.counts[0] for chain in blocks for block in chain))
        pooled = pool_tables([stream.table for stream in streams])
        for stream in streams:
            stream.table = copy_table(pooled)
    return pooled
