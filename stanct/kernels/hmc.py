"""Hamiltonian Monte Carlo on the tempered density, with step sizes learned as a function of β.

The mass matrix is the identity. The loops do not return to the interpreter between leapfrog steps.
An energy error above `DIVERGENCE` is a *divergence*. Divergences and rejections end a trajectory
and leave the chain where it was.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, copy, inlined, shared
from stanct.kernels.densities import Problem
from stanct.kernels.evaluation import (
    DIVERGED,
    OK,
    Scratch,
    State,
    base_terms,
    evaluated,
    log_tempered,
    normals,
    triangular,
)

DIVERGENCE = 1000.0

JITTER = 0.2

# Share of the transitions with shortened steps, and the smallest factor. With the typical step size
# alone every method is biased low by 0.02 to 0.1 nat on a hierarchical model, and the error bars do
# not show it.
SHORT_SHARE, SHORTEST = 0.5, 0.1

# The step size is a table over β with log ε linear between knots. The knots are (k / (K − 1))²,
# because the step size changes fastest near β = 0.
STEP_KNOTS = 17


class Phase(NamedTuple):
    """A point in phase space that is moved in place: whitened z, momentum, ∇v and v there."""

    z: Array
    momentum: Array
    gradient: Array
    value: Array


class Trajectory(NamedTuple):
    """A trajectory to take: its β, step size, and number of leapfrog steps."""

    beta: float
    step: float
    steps: int


class StepTable(NamedTuple):
    """Step size as a function of β, learned in place by stochastic approximation.

    They are log ε, and the number of transitions that have informed each of `STEP_KNOTS` knots.
    """

    log_step: Array
    visits: Array


class Moves(NamedTuple):
    """Settings of transitions.

    `path_length` is the mean time of a trajectory; the period of a standard normal is 2π. Only
    where they `learn`, steps are tuned to `target_accept`, which they do before draws count.
    """

    path_length: float
    max_steps: int
    target_accept: float
    learn: bool


class Mover(NamedTuple):
    """What moves a chain's state, beside its random numbers; the table is learned in place.

    A generator inside a tuple would cost 0.15 ms for each call from Python.
    """

    moves: Moves
    table: StepTable
    scratch: Scratch


def make_table(dimension: int) -> StepTable:
    """Make an initial table with ε = D^(−1/4), as for a D-dimensional normal."""
    return StepTable(np.full(STEP_KNOTS, -0.25 * np.log(dimension)), np.zeros(STEP_KNOTS))


def pool_tables(tables: list[StepTable]) -> StepTable:
    """Average the tables of several chains; knots that no chain visited are interpolated."""
    visits = np.sum([table.visits for table in tables], axis=0)
    total = np.sum([table.visits * table.log_step for table in tables], axis=0)
    seen = visits >= 1
    if not seen.any():
        return StepTable(tables[0].log_step.copy(), visits)
    knots = np.arange(STEP_KNOTS)
    log_step = np.interp(knots, knots[seen], total[seen] / visits[seen])
    return StepTable(log_step, visits)


def copy_table(table: StepTable) -> StepTable:
    """Copy a table for further learning, with little weight on its past."""
    return StepTable(table.log_step.copy(), np.minimum(table.visits, 10.0))


@compiled
def leapfrog(
    problem: Problem, phase: Phase, trajectory: Trajectory, scratch: Scratch
) -> tuple[int, int]:
    """Take leapfrog steps on log π_β in place; put log q at both ends into `scratch.log_base`.

    Returned are OK, or the reason for an early end, and the gradients spent.
    """
    problem, phase, scratch = borrowed(problem), borrowed(phase), borrowed(scratch)
    beta, step, steps = trajectory.beta, trajectory.step, trajectory.steps
    z, momentum, gradient = phase.z, phase.momentum, phase.gradient
    pull, mixture = scratch.base_gradient, problem.components.share.size > 0
    scratch.log_base[0] = base_terms(problem, z, scratch)
    for i in range(z.size):
        momentum[i] += 0.5 * step * (beta * gradient[i] + (1 - beta) * pull[i])
    for n in range(steps):
        for i in range(z.size):
            z[i] += step * momentum[i]
        status = evaluated(problem, z, gradient, phase.value, scratch)
        if status != OK:
            return status, n + 1
        kick = step if n < steps - 1 else 0.5 * step
        if mixture:
            base_terms(problem, z, scratch)
            for i in range(z.size):
                momentum[i] += kick * (beta * gradient[i] + (1 - beta) * pull[i])
        else:
            for i in range(z.size):
                momentum[i] += kick * (beta * gradient[i] - (1 - beta) * z[i])
    scratch.log_base[1] = base_terms(problem, z, scratch)
    return OK, steps


@compiled
def transition(
    problem: Problem,
    state: State,
    trajectory: Trajectory,
    rng: np.random.Generator,
    scratch: Scratch,
) -> tuple[float, int, int]:
    """Make one HMC transition that leaves π_β invariant; update `state` if it is accepted.

    Step size and number of steps may depend on β and on fresh random numbers, but not on z.
    Returned are the acceptance probability; OK, REJECTED or DIVERGED; and the gradients spent.
    """
    state, scratch, rng = borrowed(state), borrowed(scratch), borrowed(rng)
    beta = trajectory.beta
    kinetic = normals(scratch.momentum, rng)
    copy(state.z, scratch.z)
    copy(state.gradient, scratch.gradient)
    phase = Phase(scratch.z, scratch.momentum, scratch.gradient, scratch.value)
    status, gradients = leapfrog(problem, phase, trajectory, scratch)
    uniform = rng.random()
    if status != OK:
        return 0.0, status, gradients
    start = log_tempered(state.value[0], scratch.log_base[0], beta) - kinetic
    kinetic = 0.0
    for i in range(state.z.size):
        kinetic += 0.5 * scratch.momentum[i] * scratch.momentum[i]
    end = log_tempered(scratch.value[0], scratch.log_base[1], beta) - kinetic
    gain = end - start
    # A NaN in the gradient shows only here, and makes this comparison fail as it should.
    if not gain > -DIVERGENCE:
        return 0.0, DIVERGED, gradients
    probability = 1.0 if gain >= 0 else math.exp(gain)
    if uniform < probability:
        copy(scratch.z, state.z)
        copy(scratch.gradient, state.gradient)
        state.value[0] = scratch.value[0]
    return probability, OK, gradients


@inlined
def below(place: float, parts: int) -> int:
    """Return which of so many unit parts a place from 0 on lies in; the last one beyond them."""
    return int(place) if place < parts else parts - 1


@compiled
def step_at(log_step: Array, beta: float) -> float:
    """Return ε(β) from its table."""
    place = math.sqrt(beta) * (log_step.size - 1)
    k = below(place, log_step.size - 1)
    return math.exp(log_step[k] + (place - k) * (log_step[k + 1] - log_step[k]))


@compiled
def learn_step(table: StepTable, beta: float, probability: float, target: float) -> None:
    """Move log ε at the knots next to β towards the target acceptance (Robbins–Monro)."""
    place = math.sqrt(beta) * (table.log_step.size - 1)
    k = below(place, table.log_step.size - 1)
    for knot in (k, k + 1):
        weight = 1 - (place - k) if knot == k else place - k
        table.visits[knot] += weight
        gain = 2.0 * weight / (table.visits[knot] + 10.0) ** 0.6
        table.log_step[knot] += gain * (probability - target)


@compiled
def tempered_move(
    problem: Problem, state: State, beta: float, mover: Mover, rng: np.random.Generator
) -> tuple[float, int, int]:
    """Make a transition with a jittered step size from the table, see `moved`."""
    return moved(borrowed(problem), borrowed(state), beta, borrowed(mover), borrowed(rng))


@shared()
def moved(
    problem: Problem, state: State, beta: float, mover: Mover, rng: np.random.Generator
) -> tuple[float, int, int]:
    """Make a transition with a jittered step size from the table and a random number of steps.

    Half of the transitions take shorter steps, for necks. The table learns from the other half.
    """
    moves, table = mover.moves, mover.table
    step = step_at(table.log_step, beta)
    longest = 2.0 * moves.path_length / step
    if longest > moves.max_steps:
        longest = moves.max_steps * 1.0
    steps = 1 + below((longest if longest > 1 else 1.0) * rng.random(), moves.max_steps)
    short = rng.random() < SHORT_SHARE
    if short:
        step *= SHORTEST ** rng.random()
    step *= 1.0 - JITTER + 2.0 * JITTER * rng.random()
    probability, status, gradients = transition(
        problem, state, Trajectory(beta, step, steps), rng, mover.scratch
    )
    if moves.learn and not short:
        learn_step(table, beta, probability, moves.target_accept)
    return probability, status, gradients


@compiled
def refresh(problem: Problem, state: State, rng: np.random.Generator, scratch: Scratch) -> None:
    """Draw the state afresh from the base, be it inside the target's support or not."""
    problem, state = borrowed(problem), borrowed(state)
    rng, scratch = borrowed(rng), borrowed(scratch)
    parts = problem.components
    normals(state.z, rng)
    if parts.share.size > 0:
        k, rest = 0, rng.random() - parts.share[0]
        while rest >= 0 and k < parts.share.size - 1:
            k += 1
            rest -= parts.share[k]
        copy(state.z, scratch.momentum)
        copy(parts.place[k], state.z)
        triangular(parts.root[k], scratch.momentum, state.z)
    evaluated(problem, state.z, state.gradient, state.value, scratch)
