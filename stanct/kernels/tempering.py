"""Blocks of draws from chains that move in x and β, and from ladders of chains."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, copy
from stanct.kernels.densities import Problem
from stanct.kernels.evaluation import DIVERGED, OK, REJECTED, Scratch, State, delta_of
from stanct.kernels.hmc import Mover, below, moved, refresh, step_at
from stanct.kernels.inversion import BetaLaw, draw_beta, draw_rung

# Acceptances are reported in this many equal bins of β.
BETA_BINS = 10


class Alternation(NamedTuple):
    """Settings of chains that update x and β in turn, so many times for each draw.

    Whenever β = 0, x is drawn anew from the base. On a `ladder`, β stays on the knots.
    """

    beta: float
    law: BetaLaw
    ladder: bool
    transitions: int


class Scanning(NamedTuple):
    """Settings of the scans of a ladder of `betas`, shape (K,), from 0 to 1.

    Every rung but the first makes the transitions in each scan. Even or odd pairs are swapped in
    turn, or chosen at random if `reversible`.
    """

    betas: Array
    transitions: int
    reversible: bool


class GibbsOut(NamedTuple):
    """Output of a block of draws; the first axis of every array but `bins` is that of draws."""

    z: Array
    beta: Array
    delta: Array
    accept: Array
    gradients: Array
    step: Array
    divergent: Array
    rejected: Array
    bins: Array


class Rungs(NamedTuple):
    """The states of one ladder, rung k at β_k, updated in place.

    `z` and `gradient`, shape (K, D), and `value`, (K, 1). Swaps exchange walkers, and `walker` has
    the number of that on each rung. A walker's `heading` is 0 before it has reached the base, 1 if
    it was last there, 2 if it has reached the target since. `clock`: scans made, whose parity
    chooses the pairs to swap, and round trips finished.
    """

    z: Array
    gradient: Array
    value: Array
    walker: Array
    heading: Array
    clock: Array


class LadderOut(NamedTuple):
    """Output of a block of scans.

    Draws at β = 1, shape (scans, D); δ, (scans, K), +inf only on rung 0; gradients, (scans,);
    attempted swaps and the sum of their rejections, (2, K − 1); by rung, (4, K), transitions, sum
    of acceptances, divergences and rejections by Stan; and round trips since the clock was at zero,
    (1,).
    """

    z: Array
    delta: Array
    gradients: Array
    rejection: Array
    counts: Array
    round_trips: Array


def make_gibbs_out(draws: int, dimension: int) -> GibbsOut:
    """Allocate the output of a block of draws."""
    rows = np.zeros((7, draws))
    return GibbsOut(np.zeros((draws, dimension)), *rows, bins=np.zeros((2, BETA_BINS)))


def make_rungs(z: Array) -> Rungs:
    """Make rungs at whitened points, shape (K, D), without values and gradients."""
    count = len(z)
    return Rungs(
        np.array(z, float),
        np.zeros_like(z, float),
        np.full((count, 1), -np.inf),
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros(2, np.int64),
    )


def make_ladder_out(scans: int, rungs: int, dimension: int) -> LadderOut:
    """Allocate the output of a block of scans."""
    return LadderOut(
        np.zeros((scans, dimension)),
        np.zeros((scans, rungs)),
        np.zeros(scans),
        np.zeros((2, rungs - 1)),
        np.zeros((4, rungs)),
        np.zeros(1, np.int64),
    )


@compiled
def bin_of(beta: float, bins: Array) -> int:
    """Return the column of `bins`, equal parts of [0, 1], for a transition at β."""
    return below(beta * bins.shape[1], bins.shape[1])


@compiled
def gibbs_draws(
    problem: Problem,
    state: State,
    alternation: Alternation,
    mover: Mover,
    rng: np.random.Generator,
    out: GibbsOut,
) -> float:
    """Fill `out` with draws, each after `transitions` alternations; return the last β."""
    problem, state, mover = borrowed(problem), borrowed(state), borrowed(mover)
    alternation, rng, out = borrowed(alternation), borrowed(rng), borrowed(out)
    law, ladder = alternation.law, alternation.ladder
    beta, transitions, scratch = alternation.beta, alternation.transitions, mover.scratch
    delta = 0.0
    for n in range(out.beta.size):
        for _ in range(transitions):
            if beta == 0.0:
                refresh(problem, state, rng, scratch)
                probability, status, gradients = 1.0, OK, 1
            else:
                probability, status, gradients = moved(problem, state, beta, mover, rng)
                k = bin_of(beta, out.bins)
                out.bins[0, k] += 1
                out.bins[1, k] += probability
            out.accept[n] += probability / transitions
            out.gradients[n] += gradients
            out.step[n] += step_at(mover.table.log_step, beta) / transitions
            out.divergent[n] += status == DIVERGED
            out.rejected[n] += status == REJECTED
            delta = delta_of(problem, state.value[0], state.z, scratch)
            if ladder:
                beta = float(law.knots[draw_rung(delta, law, rng.random())])
            else:
                beta = draw_beta(delta, law, rng.random(), rng.random())
        copy(state.z, out.z[n])
        out.beta[n] = beta
        out.delta[n] = delta
    return beta


@compiled
def ladder_scans(
    problem: Problem,
    rungs: Rungs,
    scanning: Scanning,
    mover: Mover,
    rng: np.random.Generator,
    out: LadderOut,
) -> None:
    """Fill `out` with scans of parallel tempering: move every rung, then swap neighbours."""
    problem, rungs, mover = borrowed(problem), borrowed(rungs), borrowed(mover)
    scanning, rng, out = borrowed(scanning), borrowed(rng), borrowed(out)
    betas, scratch = scanning.betas, mover.scratch
    top = betas.size - 1
    for n in range(out.gradients.size):
        refresh(problem, State(rungs.z[0], rungs.gradient[0], rungs.value[0]), rng, scratch)
        out.gradients[n] += 1
        for k in range(1, top + 1):
            state = borrowed(State(rungs.z[k], rungs.gradient[k], rungs.value[k]))
            for _ in range(scanning.transitions):
                probability, status, gradients = moved(problem, state, betas[k], mover, rng)
                out.gradients[n] += gradients
                out.counts[0, k] += 1
                out.counts[1, k] += probability
                out.counts[2, k] += status == DIVERGED
                out.counts[3, k] += status == REJECTED
        for k in range(top + 1):
            out.delta[n, k] = delta_of(problem, rungs.value[k, 0], rungs.z[k], scratch)
        copy(rungs.z[top], out.z[n])
        parity = rungs.clock[0] % 2
        if scanning.reversible:
            parity = 1 if rng.random() < 0.5 else 0
        for k in range(parity, top, 2):
            # δ is +inf on rung 0 only, so inf − inf never occurs in this order.
            gain = (betas[k + 1] - betas[k]) * (out.delta[n, k + 1] - out.delta[n, k])
            probability = 1.0 if gain >= 0 else math.exp(gain)
            out.rejection[0, k] += 1
            out.rejection[1, k] += 1 - probability
            if rng.random() < probability:
                _swap(rungs, k, scratch)
        _follow(rungs)
        rungs.clock[0] += 1


@compiled
def _swap(rungs: Rungs, k: int, scratch: Scratch) -> None:
    """Exchange the states and walkers of rungs k and k + 1."""
    for array in (rungs.z, rungs.gradient):
        copy(array[k], scratch.z)
        copy(array[k + 1], array[k])
        copy(scratch.z, array[k + 1])
    value, walker = rungs.value[k, 0], rungs.walker[k]
    rungs.value[k, 0], rungs.walker[k] = rungs.value[k + 1, 0], rungs.walker[k + 1]
    rungs.value[k + 1, 0], rungs.walker[k + 1] = value, walker


@compiled
def _follow(rungs: Rungs) -> None:
    """Record which walkers are at the ends, and count base → target → base trips."""
    low, high = rungs.walker[0], rungs.walker[rungs.walker.size - 1]
    if rungs.heading[high] == 1:
        rungs.heading[high] = 2
    if rungs.heading[low] == 2:
        rungs.clock[1] += 1
    rungs.heading[low] = 1
