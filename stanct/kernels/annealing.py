"""Particles that are annealed from the base to the target, with their weights."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled
from stanct.kernels.densities import Problem
from stanct.kernels.evaluation import DIVERGED, REJECTED, State, delta_of
from stanct.kernels.hmc import Mover, moved
from stanct.kernels.tempering import BETA_BINS, bin_of


class Schedule(NamedTuple):
    """The temperatures of an annealing, shape (K,), and the transitions at each but the first."""

    betas: Array
    transitions: int


class Population(NamedTuple):
    """A block of particles, updated in place.

    Whitened `z` and ∇v there, shape (n, D); v, (n, 1), −inf where the target vanishes;
    `log_weights`.
    """

    z: Array
    gradient: Array
    value: Array
    log_weights: Array


class Tally(NamedTuple):
    """Counts of the transitions of a block of particles, updated in place.

    `counts`, shape (5,), are gradients, transitions, sum of acceptance probabilities, divergences
    and rejections. `bins`, shape (2, bins), are transitions and that sum in equal bins of β.
    """

    counts: Array
    bins: Array


def make_population(z: Array) -> Population:
    """Make particles at whitened points, shape (n, D), without values and gradients."""
    z = np.array(z, float)
    return Population(z, np.zeros_like(z), np.full((len(z), 1), -np.inf), np.zeros(len(z)))


def make_tally() -> Tally:
    """Make a tally of zeros."""
    return Tally(np.zeros(5), np.zeros((2, BETA_BINS)))


@compiled
def anneal(
    problem: Problem,
    population: Population,
    schedule: Schedule,
    mover: Mover,
    rng: np.random.Generator,
    tally: Tally,
) -> None:
    """Take every particle of a block from the first β of a schedule along to the last.

    Its log weight grows by −(β_{n+1} − β_n) δ before it moves at β_{n+1} ([GS] 10). Outside the
    target's support it has weight zero and does not move.
    """
    problem, population, mover = borrowed(problem), borrowed(population), borrowed(mover)
    schedule, rng, tally = borrowed(schedule), borrowed(rng), borrowed(tally)
    betas, log_weights = schedule.betas, population.log_weights
    for row in range(log_weights.size):
        state = borrowed(State(population.z[row], population.gradient[row], population.value[row]))
        for n in range(betas.size - 1):
            if not math.isfinite(state.value[0]):
                log_weights[row] = -np.inf
                break
            delta = delta_of(problem, state.value[0], state.z, mover.scratch)
            log_weights[row] -= (betas[n + 1] - betas[n]) * delta
            k = bin_of(betas[n + 1], tally.bins)
            for _ in range(schedule.transitions):
                probability, status, gradients = moved(problem, state, betas[n + 1], mover, rng)
                tally.counts[0] += gradients
                tally.counts[1] += 1
                tally.counts[2] += probability
                tally.counts[3] += status == DIVERGED
                tally.counts[4] += status == REJECTED
                tally.bins[0, k] += 1
                tally.bins[1, k] += probability
