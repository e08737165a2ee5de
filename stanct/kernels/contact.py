"""The contact Hamiltonian flow of adiabatic Monte Carlo ([AMC] Algorithm 1)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, inlined, number_below
from stanct.kernels.densities import Problem
from stanct.kernels.evaluation import DIVERGED, OK, REJECTED, Scratch, delta_of, evaluated, normals
from stanct.kernels.hmc import Phase


class Flow(NamedTuple):
    """Settings of a contact flow, dβ/ds = rate (β + offset) |p|².

    `step` is the largest time step, `refresh` the time between momentum resamplings, infinite for
    none, and `means`, shape (K,), are E_β[δ] at `nodes` of β.
    """

    rate: float
    offset: float
    step: float
    refresh: float
    max_steps: int
    nodes: Array
    means: Array


class Level(NamedTuple):
    """State of a trajectory: β, δ, and the interpolated E_β[δ]."""

    beta: float
    delta: float
    expected: float


class Leg(NamedTuple):
    """A requested step: its β, the time, negative to heat, and the β that it must not pass."""

    beta: float
    time: float
    limit: float


class Swarm(NamedTuple):
    """A block of trajectories of a contact flow with its records, updated in place.

    `z`, `gradient`, `momentum`, shape (T, D), and `value`, (T, 1). `totals`, (T, 4): H₀ (NaN before
    the start), log Jacobian, time since the momentum was drawn, steps. At nodes, (T, K): `delta`, ½
    |p|², −(T + V_B + β δ + H₀), and that plus the log Jacobian; NaN, or −∞ for weights, where a
    trajectory has not been. `counts`, (5,): gradients, resamplings, and trajectories that stalled,
    left or diverged.
    """

    z: Array
    gradient: Array
    momentum: Array
    value: Array
    totals: Array
    delta: Array
    kinetic: Array
    flow_log_z: Array
    log_weights: Array
    counts: Array


def make_swarm(z: Array, nodes: int) -> Swarm:
    """Make trajectories at whitened points, shape (T, D), without values and momenta."""
    count = len(z)
    totals = np.zeros((count, 4))
    totals[:, 0] = np.nan
    delta, kinetic, flow_log_z = np.full((3, count, nodes), np.nan)
    return Swarm(
        np.array(z, float),
        np.zeros_like(z, float),
        np.zeros_like(z, float),
        np.full((count, 1), -np.inf),
        totals,
        delta,
        kinetic,
        flow_log_z,
        np.full((count, nodes), -np.inf),
        np.zeros(5),
    )


@inlined
def _friction(flow: Flow, level: Level, time: float) -> tuple[float, float, float]:
    """Return a, e^{−a t} and (1 − e^{−a t}) / a for ṗ = −β∇δ − a p."""
    a = flow.rate * (level.beta + flow.offset) * (level.delta - level.expected)
    small = abs(a * time) < 1e-8
    return a, math.exp(-a * time), time if small else -math.expm1(-a * time) / a


@compiled
def _contact_kick(flow: Flow, phase: Phase, level: Level, time: float, first: bool) -> float:
    """Kick for half a step, by the base first or last, and return the log Jacobian."""
    z, momentum, gradient = phase.z, phase.momentum, phase.gradient
    a, decay, reach = _friction(flow, level, time)
    for i in range(z.size):
        if first:
            momentum[i] -= time * z[i]
        momentum[i] = decay * momentum[i] + level.beta * reach * (gradient[i] + z[i])
        if not first:
            momentum[i] -= time * z[i]
    return -z.size * a * time


@compiled
def _landing_time(flow: Flow, phase: Phase, level: Level, leg: Leg) -> float:
    """The time step, or the part after which β lands on the limit, by six inner products."""
    z, momentum, gradient = phase.z, phase.momentum, phase.gradient
    beta, time, limit = leg.beta, leg.time, leg.limit
    zz = zp = pp = zd = pd = dd = 0.0
    for i in range(z.size):
        slope = gradient[i] + z[i]
        zz += z[i] * z[i]
        zp += z[i] * momentum[i]
        pp += momentum[i] * momentum[i]
        zd += z[i] * slope
        pd += momentum[i] * slope
        dd += slope * slope
    wanted = abs(math.log((limit + flow.offset) / (beta + flow.offset)))
    low, high = 0.0, 1.0
    share = 1.0
    for _ in range(60):
        half = 0.5 * share * time
        _, decay, reach = _friction(flow, level, half)
        push = beta * reach
        squared = decay * decay * (pp - 2 * half * zp + half * half * zz)
        squared += 2 * decay * push * (pd - half * zd) + push * push * dd
        if abs(share * time) * flow.rate * squared > wanted:
            high = share
        elif share == 1.0:
            return time
        else:
            low = share
        share = 0.5 * (low + high)
    return share * time


@compiled
def expected_at(flow: Flow, beta: float) -> float:
    """Interpolate E_β[δ] between nodes."""
    nodes, means = flow.nodes, flow.means
    k = min(max(number_below(nodes, beta, False) - 1, 0), nodes.size - 2)
    share = (beta - nodes[k]) / (nodes[k + 1] - nodes[k])
    return means[k] + share * (means[k + 1] - means[k])


@compiled
def contact_step(
    problem: Problem, flow: Flow, phase: Phase, leg: Leg, scratch: Scratch
) -> tuple[int, float, float, float]:
    """Take one symmetric step of the contact Hamiltonian flow ([AMC] Algorithm 1) in place.

    It is shortened where β would pass the limit. Returned are OK, REJECTED or DIVERGED; the new β;
    the time that it took; and its log Jacobian in (z, p, log(β + offset)).
    """
    z, momentum, value, beta = phase.z, phase.momentum, phase.value, leg.beta
    delta = delta_of(problem, value[0], z, scratch)
    level = Level(beta, delta, expected_at(flow, beta))
    taken = _landing_time(flow, phase, level, leg)
    half = 0.5 * taken
    log_jacobian = _contact_kick(flow, phase, level, half, True)
    squared = 0.0
    for i in range(momentum.size):
        squared += momentum[i] * momentum[i]
        z[i] += taken * momentum[i]
    if taken == leg.time:
        beta = (beta + flow.offset) * math.exp(taken * flow.rate * squared) - flow.offset
    else:
        beta = leg.limit
    status = evaluated(problem, z, phase.gradient, value, scratch)
    if status != OK:
        return status, beta, taken, log_jacobian
    delta = delta_of(problem, value[0], z, scratch)
    level = Level(beta, delta, expected_at(flow, beta))
    log_jacobian += _contact_kick(flow, phase, level, half, False)
    return OK if math.isfinite(log_jacobian) else DIVERGED, beta, taken, log_jacobian


@compiled
def flux_momentum(momentum: Array, rng: np.random.Generator) -> None:
    """Draw p ∝ |p|² N(p) at a level of β: |p|² is χ² with D + 2 degrees of freedom."""
    squared = 0.0
    for i in range(momentum.size):
        momentum[i] = rng.standard_normal()
        squared += momentum[i] * momentum[i]
    extra = rng.standard_normal() ** 2 + rng.standard_normal() ** 2
    momentum *= math.sqrt((squared + extra) / squared)


@compiled
def contact_flow(
    problem: Problem,
    flow: Flow,
    swarm: Swarm,
    span: tuple[int, int],
    rng: np.random.Generator,
    scratch: Scratch,
) -> None:
    """Move every trajectory of a swarm from the first node of `span` to the last, up or down.

    One that leaves the support, diverges, or stalls has a log weight of −∞ from there on.
    """
    problem, flow = borrowed(problem), borrowed(flow)
    swarm, rng, scratch = borrowed(swarm), borrowed(rng), borrowed(scratch)
    nodes, (start, stop) = flow.nodes, span
    turn = 1 if stop > start else -1
    for row in range(swarm.z.shape[0]):
        phase = Phase(swarm.z[row], swarm.momentum[row], swarm.gradient[row], swarm.value[row])
        z, momentum, totals = phase.z, phase.momentum, swarm.totals[row]
        for k in range(nodes.size):
            if (k - start) * turn > 0:
                swarm.log_weights[row, k] = -np.inf
        k = start
        beta = nodes[k]
        while math.isfinite(totals[1]):
            kinetic = base = 0.0
            for i in range(momentum.size):
                kinetic += 0.5 * momentum[i] * momentum[i]
                base += 0.5 * z[i] * z[i]
            delta = delta_of(problem, phase.value[0], z, scratch)
            energy = kinetic + base + (beta * delta if beta > 0 else 0.0)
            if np.isnan(totals[0]):
                totals[0] = -energy
            swarm.delta[row, k] = delta
            swarm.kinetic[row, k] = kinetic
            swarm.flow_log_z[row, k] = -energy - totals[0]
            swarm.log_weights[row, k] = -energy - totals[0] + totals[1]
            if k == stop:
                break
            k += turn
            while beta != nodes[k]:
                if totals[3] >= flow.max_steps:
                    swarm.counts[2] += 1
                    totals[1] = -np.inf
                    break
                status, beta, taken, log_jacobian = contact_step(
                    problem, flow, phase, Leg(beta, turn * flow.step, nodes[k]), scratch
                )
                swarm.counts[0] += 1
                totals[1] += log_jacobian
                totals[2] += abs(taken)
                totals[3] += 1
                if status != OK:
                    swarm.counts[3 if status == REJECTED else 4] += 1
                    totals[1] = -np.inf
                    break
                if totals[2] >= flow.refresh:
                    totals[2] = 0.0
                    swarm.counts[1] += 1
                    for i in range(momentum.size):
                        totals[0] += 0.5 * momentum[i] * momentum[i]
                        normals(momentum[i : i + 1], rng)
                        totals[0] -= 0.5 * momentum[i] * momentum[i]
