"""Chains of TACT-HMC: their starts, the bias that they learn together, and their draws.

A chain is a walker of [TACT] Algorithm 1 with its random streams. It makes looks at regular
intervals, and a look at λ = 1 collects a draw. Blocks of looks run on threads. During the warm-up,
chains share the learned bias between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.kernels import noisy
from stanct.kernels import tact as compiled
from stanct.kernels.tact import Bias, Dynamics, TactOut, Walker
from stanct.runs.tact import ENERGY
from stanct.samplers._job import Job
from stanct.samplers._lanes import START_TRIES, block_sizes
from stanct.samplers._tact_settings import TactSettings
from stanct.targets.batches import Source, make_potential
from stanct.targets.function_target import FunctionDensity

# Most looks in a block. Short runs use a tenth of the draws, as noise is measured at block ends.
BLOCK = 100
# Number of looks after which chains share the learned bias.
SHARED = 25
# Points of the chains at which the noise is measured, and batches at each point.
SPREAD_POINTS, SPREAD_BATCHES = 64, 16
# Looks at λ = 1 before the warm-up.
SETTLE = 50


@dataclass
class Chain:
    """Random streams, state and bias of a chain, updated in place; `noise` draws the batches."""

    rng: np.random.Generator
    noise: np.random.Generator
    walker: Walker
    bias: Bias
    collected: int = 0


@dataclass(frozen=True)
class Block:
    """Draws and trace of a chain in a block, and its position at the end."""

    z: Array
    energy: Array
    trace: Array
    place: Array
    xi: float


def _look(source: Source, dynamics: Dynamics, wanted: int, chain: Chain, looks: int) -> Block:
    """Make a block of looks, which ends once `wanted` draws have been collected."""
    walker = chain.walker
    room = max(0, min(wanted - chain.collected, looks))
    size = walker.z.size
    reading = noisy.make_reading(size)
    out = TactOut(np.empty((room, size)), np.empty(room), np.empty((looks, 6)), reading)
    found, seen = 0, 0
    if room > 0:
        with source.potential(chain.noise) as potential:
            found, seen = compiled.run_looks(
                potential, walker, chain.bias, dynamics, chain.rng, out
            )
    chain.collected += found
    # Copies release the memory of draws that were not collected.
    return Block(
        out.z[:found].copy(),
        out.energy[:found].copy(),
        out.trace[:seen].copy(),
        walker.z.copy(),
        float(walker.tempering[0]),
    )


def started(
    source: Source,
    settings: TactSettings,
    place: Array | None,
    rng: np.random.Generator,
    noise: np.random.Generator,
) -> Chain:
    """A chain at its start: the whitened `place`, shape (D,), or a draw from the base if None."""
    z = _place(source, place, rng, noise)
    momentum = settings.step * rng.standard_normal(z.size)
    speed = settings.tempering_step * rng.standard_normal()
    tempering = np.array([0.0, speed, settings.tempering_friction])
    walker = Walker(z, momentum, _thermostat(settings, z.size), tempering, np.zeros(3, np.int64))
    return Chain(rng, noise, walker, _new_bias(settings.bins))


def _thermostat(settings: TactSettings, dimension: int) -> Array:
    """z_θ at rest, in the shape that the kernels take for its kind."""
    if settings.thermostat == "full":
        return settings.friction * np.eye(dimension).ravel()
    return np.full(dimension if settings.thermostat == "diagonal" else 1, settings.friction)


def _place(
    source: Source, place: Array | None, rng: np.random.Generator, noise: np.random.Generator
) -> Array:
    """A start with finite energy: the given one, or a draw from the base."""
    dimension = source.mean.size
    reading = noisy.make_reading(dimension)
    with source.lend(noise) as lent:
        potential = make_potential(
            lent, source.mean, source.scale, source.corrections, source.noise
        )
        for _ in range(START_TRIES if place is None else 1):
            z = rng.standard_normal(dimension) if place is None else np.array(place, float)
            if noisy.energy_at(potential, z, rng, reading):
                return z
        density = lent.shards[0]
        failure = density.failure if isinstance(density, FunctionDensity) else None
    if failure is not None:
        raise SamplingError(
            f"The function fails where a chain is to start: {type(failure).__name__}: {failure}"
        ) from failure
    raise SamplingError(
        "The target vanishes, or Stan rejects it, where a chain is to start.",
        remedy="Pass a base that overlaps the target's support, or another start.",
    )


def typical_energy(job: Job, settings: TactSettings, source: Source, members: list[Chain]) -> float:
    """Mean energy of chains at λ = 1: the zero of the tempered one, for a small bias."""
    still = replace(settings, tempering=False).dynamics(learn=False, offset=0.0)
    work = partial(_look, source, still, SETTLE + 1)
    blocks, _ = job.blocks("settling", work, members, [SETTLE], unit="look")
    return float(np.mean([block.trace[SETTLE // 2 :, ENERGY] for (block,) in blocks]))


def _new_bias(bins: int) -> Bias:
    room = np.zeros((4, bins))
    return Bias(room[0], room[1], room[2], room[3])


def learn(
    job: Job, settings: TactSettings, source: Source, members: list[Chain], offset: float
) -> None:
    """Warm up: learn the bias, pooled over the chains after every block."""
    pooled = _new_bias(settings.bins)
    dynamics = settings.dynamics(learn=True, offset=offset)
    for size in block_sizes(job.warmup, SHARED):
        for member in members:
            member.collected = 0
        work = partial(_look, source, dynamics, size + 1)
        job.blocks("warm-up", work, members, [size], unit="look")
        # Add the contributions of each chain in this block to the previous pooled bias.
        pooled = Bias(
            *(
                old + sum(getattr(member.bias, name) - old for member in members)
                for name, old in pooled._asdict().items()
            )
        )
        for member in members:
            member.bias = Bias(*(part.copy() for part in pooled))
    for member in members:
        member.collected = 0


def collect(
    job: Job, settings: TactSettings, source: Source, members: list[Chain], offset: float
) -> tuple[list[list[Block]], bool]:
    """Collect the draws of all chains, and say whether the user interrupted them."""
    draws, coupling = job.draws, settings.coupling
    work = partial(_look, source, settings.dynamics(learn=False, offset=offset), draws)
    blocks: list[list[Block]] = [[] for _ in members]
    left = settings.patience * draws
    block = int(np.clip(draws // 10, 10, BLOCK))
    looks = draws if not settings.tempering else int(draws * coupling.wall / coupling.plateau)
    while left > 0 and min(member.collected for member in members) < draws:
        sizes = block_sizes(min(looks, left), block)
        try:
            more, interrupted = job.blocks("tact", work, members, sizes, unit="look", final=True)
        except KeyboardInterrupt:
            if not all(blocks):
                raise
            job.execution.seal()
            return blocks, True
        for chain, new in zip(blocks, more, strict=True):
            chain += new
        if interrupted:
            return blocks, True
        left -= looks
        looks = max(looks // 4, BLOCK)
    return blocks, False


def noise_spread(
    source: Source, blocks: list[list[Block]], settings: TactSettings, seed: np.random.SeedSequence
) -> Array:
    """Variances of U and ∇U between batches, with λ and λ', shape (points, 4)."""
    coupling = settings.coupling
    order, luck, noise = map(np.random.default_rng, seed.spawn(3))
    ends = [block for chain in blocks for block in chain if len(block.trace)]
    picked = [ends[k] for k in order.permutation(len(ends))[:SPREAD_POINTS]]
    spread = np.zeros((len(picked), 2))
    with source.potential(noise) as potential:
        points = np.array([block.place for block in picked])
        reading = noisy.make_reading(source.mean.size)
        noisy.batch_spread(potential, points, SPREAD_BATCHES, luck, reading, spread)
    at = (coupling.plateau, coupling.reach, coupling.power)
    return np.column_stack([spread, [compiled.coupling(block.xi, *at) for block in picked]])


def joined(blocks: list[list[Block]], name: str, count: int) -> Array:
    """Join one array of the blocks of all chains, cut to `count` entries."""
    return np.stack(
        [np.concatenate([getattr(block, name) for block in chain])[:count] for chain in blocks]
    )
