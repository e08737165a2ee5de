"""Compiled inner loops: Hamiltonian Monte Carlo on the tempered density in whitened coordinates.

At a fixed β the density over z, x = m + L z, is, up to a constant,

    log π_β(z) = β v(z) − (1 − β) ½ |z|²,   v(z) = −φ(m + L z) + log det L,

with unit masses. Nothing here returns to the interpreter between leapfrog steps: the density is a C
function with the signature of BridgeStan's ``bs_log_density_gradient``, be it a Stan program's or
the callback of a `FunctionDensity`.

What goes wrong numerically is counted, never raised: a point that Stan rejects, a value that is not
finite (both *rejections*), and an energy error above `DIVERGENCE` (a *divergence*) end a trajectory
and leave the chain where it was.

All compiled code lives in this one file: numba keeps machine code on disk by the file of the
function that was called, and would not notice a change in another file that it had compiled in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from stanct.workspace import (
    GibbsOut,
    LadderOut,
    Moves,
    Problem,
    Rungs,
    Scratch,
    State,
    StepTable,
    make_scratch,
)

Array = np.ndarray

DIVERGENCE = 1000.0
OK, REJECTED, DIVERGED = 0, 1, 2

JITTER = 0.2

# With a typical step size alone every method was biased low by a few hundredths to a tenth of a nat
# on a hierarchical model, with error bars that did not show it.
SHORT_SHARE, SHORTEST = 0.5, 0.1
HALF_LOG_2PI = float(0.5 * np.log(2 * np.pi))


def compiled(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter's lock; keep the machine code on disk where that works."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that numba could write to
        return numba.njit(nogil=True)(function)


def make_state(problem: Problem, z: Array) -> State:
    """The state at a whitened point, shape (D,), with its value and gradient."""
    state = State(np.array(z, float), np.zeros(z.size), np.full(1, -np.inf))
    evaluate(problem, state.z, state.gradient, state.value, make_scratch(z.size))
    return state


@numba.njit(nogil=True, fastmath={"reassoc", "contract"})
def _triangular(lower: Array, vector: Array, out: Array) -> None:
    """out += lower · vector, four rows at a time; sums are reordered to use the vector unit."""
    i = 0
    while i + 4 <= vector.size:
        one = two = three = four = 0.0
        for j in range(i + 4):  # what lies above the diagonal is zero
            v = vector[j]
            one += lower[i, j] * v
            two += lower[i + 1, j] * v
            three += lower[i + 2, j] * v
            four += lower[i + 3, j] * v
        out[i] += one
        out[i + 1] += two
        out[i + 2] += three
        out[i + 3] += four
        i += 4
    while i < vector.size:
        one = 0.0
        for j in range(i + 1):
            one += lower[i, j] * vector[j]
        out[i] += one
        i += 1


@compiled
def evaluate(problem: Problem, z: Array, gradient: Array, value: Array, scratch: Scratch) -> int:
    """Put v(z) and ∇v(z) into `value` and `gradient`; returns OK, REJECTED or DIVERGED."""
    dimension = z.size
    x, inner, turned = scratch.x, scratch.x_gradient, scratch.reversed_gradient
    x[:] = problem.mean
    _triangular(problem.lower, z, x)
    code = problem.call(
        problem.handle, True, True, x.ctypes.data, value.ctypes.data, inner.ctypes.data, np.uintp(0)
    )
    if code != 0 or not np.isfinite(value[0]):
        value[0] = -np.inf
        gradient[:] = 0.0
        # A trajectory that left for infinity is no fault of the program's.
        return REJECTED if np.isfinite(z.sum()) else DIVERGED
    value[0] += problem.log_det
    for i in range(dimension):
        turned[i] = inner[dimension - 1 - i]
    inner[:] = 0.0
    _triangular(problem.flipped, turned, inner)
    for i in range(dimension):
        gradient[i] = inner[dimension - 1 - i]
    return OK


@compiled
def leapfrog(
    problem: Problem,
    z: Array,
    momentum: Array,
    gradient: Array,
    value: Array,
    beta: float,
    step: float,
    steps: int,
    scratch: Scratch,
) -> tuple[int, int]:
    """Take leapfrog steps on log π_β in place.

    Returns
    -------
    status, gradients
        OK or what ended the trajectory early, and the gradients spent.
    """
    for i in range(z.size):
        momentum[i] += 0.5 * step * (beta * gradient[i] - (1 - beta) * z[i])
    for n in range(steps):
        for i in range(z.size):
            z[i] += step * momentum[i]
        status = evaluate(problem, z, gradient, value, scratch)
        if status != OK:
            return status, n + 1
        kick = step if n < steps - 1 else 0.5 * step
        for i in range(z.size):
            momentum[i] += kick * (beta * gradient[i] - (1 - beta) * z[i])
    return OK, steps


@compiled
def log_tempered(value: float, z: Array, beta: float) -> float:
    """log π_β up to a constant; at β = 0 the target does not matter, even where it vanishes."""
    total = 0.0
    for i in range(z.size):
        total += z[i] * z[i]
    return -0.5 * (1 - beta) * total + (beta * value if beta > 0 else 0.0)


@compiled
def delta_of(value: float, z: Array) -> float:
    """δ = φ − ψ at a whitened point, from v."""
    total = 0.0
    for i in range(z.size):
        total += z[i] * z[i]
    return -0.5 * total - z.size * HALF_LOG_2PI - value


@compiled
def transition(
    problem: Problem,
    state: State,
    beta: float,
    step: float,
    steps: int,
    rng: np.random.Generator,
    scratch: Scratch,
) -> tuple[float, int, int]:
    """One HMC transition that leaves π_β invariant; updates `state` if accepted.

    Step size and number of steps may depend on β and on fresh random numbers, not on z.

    Returns
    -------
    probability, status, gradients
        Of acceptance; OK, REJECTED or DIVERGED; gradients spent.
    """
    kinetic = 0.0
    for i in range(state.z.size):
        scratch.momentum[i] = rng.standard_normal()
        kinetic += scratch.momentum[i] ** 2
    scratch.z[:] = state.z
    scratch.gradient[:] = state.gradient
    start = log_tempered(state.value[0], state.z, beta) - 0.5 * kinetic
    status, gradients = leapfrog(
        problem,
        scratch.z,
        scratch.momentum,
        scratch.gradient,
        scratch.value,
        beta,
        step,
        steps,
        scratch,
    )
    uniform = rng.random()
    if status != OK:
        return 0.0, status, gradients
    kinetic = 0.0
    for i in range(state.z.size):
        kinetic += scratch.momentum[i] ** 2
    gain = log_tempered(scratch.value[0], scratch.z, beta) - 0.5 * kinetic - start
    # A gradient that is not a number shows only here; the comparison below then fails as it must.
    if not gain > -DIVERGENCE:
        return 0.0, DIVERGED, gradients
    probability = 1.0 if gain >= 0 else np.exp(gain)
    if uniform < probability:
        state.z[:] = scratch.z
        state.gradient[:] = scratch.gradient
        state.value[0] = scratch.value[0]
    return probability, OK, gradients


@compiled
def step_at(log_step: Array, beta: float) -> float:
    """ε(β) from its table."""
    place = np.sqrt(beta) * (log_step.size - 1)
    k = min(int(place), log_step.size - 2)
    return np.exp(log_step[k] + (place - k) * (log_step[k + 1] - log_step[k]))


@compiled
def learn_step(table: StepTable, beta: float, probability: float, target: float) -> None:
    """Move log ε at the knots next to β towards the wanted acceptance (Robbins–Monro)."""
    place = np.sqrt(beta) * (table.log_step.size - 1)
    k = min(int(place), table.log_step.size - 2)
    for knot, weight in ((k, 1 - (place - k)), (k + 1, place - k)):
        table.visits[knot] += weight
        gain = 2.0 * weight / (table.visits[knot] + 10.0) ** 0.6
        table.log_step[knot] += gain * (probability - target)


@compiled
def tempered_move(
    problem: Problem,
    state: State,
    beta: float,
    table: StepTable,
    moves: Moves,
    rng: np.random.Generator,
    scratch: Scratch,
) -> tuple[float, int, int]:
    """A transition with the table's step size, jittered, and a jittered length.

    The number of steps is uniform from 1 to 2 `path_length` / ε, at most `max_steps`. Half of the
    transitions take shorter steps, which reach into necks that the typical step size cannot enter;
    the table learns from the other half.
    """
    step = step_at(table.log_step, beta)
    longest = min(max(2.0 * moves.path_length / step, 1.0), moves.max_steps * 1.0)
    steps = min(1 + int(longest * rng.random()), moves.max_steps)
    short = rng.random() < SHORT_SHARE
    if short:
        step *= SHORTEST ** rng.random()
    step *= 1.0 - JITTER + 2.0 * JITTER * rng.random()
    probability, status, gradients = transition(problem, state, beta, step, steps, rng, scratch)
    if moves.learn and not short:
        learn_step(table, beta, probability, moves.target_accept)
    return probability, status, gradients


@compiled
def refresh(problem: Problem, state: State, rng: np.random.Generator, scratch: Scratch) -> None:
    """Draw the state afresh from the base, be it inside the target's support or not."""
    for i in range(state.z.size):
        state.z[i] = rng.standard_normal()
    evaluate(problem, state.z, state.gradient, state.value, scratch)


@compiled
def draw_beta(
    delta: float, knots: Array, values: Array, masses: Array, choose: float, place: float
) -> float:
    """β given x for a piecewise-linear bias, as `Bias.sample_beta`, from two uniforms."""
    pieces = knots.size - 1
    top = -np.inf
    for k in range(pieces):
        start, end = -knots[k] * delta - values[k], -knots[k + 1] * delta - values[k + 1]
        size = abs(end - start)
        mean = -0.5 * size if size < 1e-5 else np.log(-np.expm1(-size) / size)
        masses[k] = np.log(knots[k + 1] - knots[k]) + max(start, end) + mean
        top = max(top, masses[k])
    total = 0.0
    for k in range(pieces):
        total += np.exp(masses[k] - top)
        masses[k] = total
    piece = 0
    while piece < pieces - 1 and masses[piece] <= choose * total:
        piece += 1
    width = knots[piece + 1] - knots[piece]
    r = -width * delta - (values[piece + 1] - values[piece])
    if abs(r) < 1e-12:
        t = place
    else:
        v = 1 - place if r > 0 else place
        t = np.log1p(max(v * np.expm1(-abs(r)), -1 + 1e-16)) / -abs(r)
        t = 1 - t if r > 0 else t
    return knots[piece] + width * min(max(t, 0.0), 1.0)


@compiled
def draw_rung(delta: float, betas: Array, values: Array, masses: Array, choose: float) -> int:
    """The rung given x, P(n | x) ∝ exp(−β_n δ − b_n), from a uniform ([GS] 6)."""
    top = -values[0]
    for n in range(betas.size):
        masses[n] = -values[n] - (betas[n] * delta if n > 0 else 0.0)
        top = max(top, masses[n])
    total = 0.0
    for n in range(betas.size):
        total += np.exp(masses[n] - top)
        masses[n] = total
    rung = 0
    while rung < betas.size - 1 and masses[rung] <= choose * total:
        rung += 1
    return rung


@compiled
def gibbs_draws(
    problem: Problem,
    state: State,
    beta: float,
    table: StepTable,
    moves: Moves,
    knots: Array,
    values: Array,
    ladder: bool,
    transitions: int,
    rng: np.random.Generator,
    scratch: Scratch,
    out: GibbsOut,
) -> float:
    """Fill `out` with draws of `transitions` alternations each; returns the last β.

    With `ladder` β stays on the knots, and x is drawn afresh from the base whenever β = 0.
    """
    masses = np.empty(knots.size)
    delta = 0.0
    for n in range(out.beta.size):
        for _ in range(transitions):
            if ladder and beta == 0.0:
                refresh(problem, state, rng, scratch)
                probability, status, gradients = 1.0, OK, 1
            else:
                probability, status, gradients = tempered_move(
                    problem, state, beta, table, moves, rng, scratch
                )
            out.accept[n] += probability / transitions
            out.gradients[n] += gradients
            out.step[n] += step_at(table.log_step, beta) / transitions
            out.divergent[n] += status == DIVERGED
            out.rejected[n] += status == REJECTED
            k = min(int(beta * out.bins.shape[1]), out.bins.shape[1] - 1)
            out.bins[0, k] += 1
            out.bins[1, k] += probability
            delta = delta_of(state.value[0], state.z)
            if ladder:
                beta = float(knots[draw_rung(delta, knots, values, masses, rng.random())])
            else:
                beta = draw_beta(delta, knots, values, masses, rng.random(), rng.random())
        out.z[n] = state.z
        out.beta[n] = beta
        out.delta[n] = delta
    return beta


@compiled
def ladder_scans(
    problem: Problem,
    rungs: Rungs,
    betas: Array,
    table: StepTable,
    moves: Moves,
    transitions: int,
    reversible: bool,
    rng: np.random.Generator,
    scratch: Scratch,
    out: LadderOut,
) -> None:
    """Fill `out` with scans of parallel tempering: move every rung, then swap neighbours.

    Rung 0 is drawn afresh from the base. Even and odd pairs are swapped in turn (Syed et al. 2022,
    non-reversible), or a parity chosen by a coin (reversible).
    """
    top = betas.size - 1
    for n in range(out.gradients.size):
        refresh(problem, State(rungs.z[0], rungs.gradient[0], rungs.value[0]), rng, scratch)
        out.gradients[n] += 1
        for k in range(1, top + 1):
            state = State(rungs.z[k], rungs.gradient[k], rungs.value[k])
            for _ in range(transitions):
                probability, status, gradients = tempered_move(
                    problem, state, betas[k], table, moves, rng, scratch
                )
                out.gradients[n] += gradients
                out.counts[0, k] += 1
                out.counts[1, k] += probability
                out.counts[2, k] += status == DIVERGED
                out.counts[3, k] += status == REJECTED
        for k in range(top + 1):
            out.delta[n, k] = delta_of(rungs.value[k, 0], rungs.z[k])
        out.z[n] = rungs.z[top]
        parity = rungs.clock[0] % 2
        if reversible:
            parity = 1 if rng.random() < 0.5 else 0
        for k in range(parity, top, 2):
            # Not the other way round: δ may be +inf on rung 0 only, and inf − inf never occurs.
            gain = (betas[k + 1] - betas[k]) * (out.delta[n, k + 1] - out.delta[n, k])
            probability = 1.0 if gain >= 0 else np.exp(gain)
            out.rejection[0, k] += 1
            out.rejection[1, k] += 1 - probability
            if rng.random() < probability:
                _swap(rungs, k, scratch)
        _follow(rungs)
        rungs.clock[0] += 1


@compiled
def _swap(rungs: Rungs, k: int, scratch: Scratch) -> None:
    """Exchange what stands on rungs k and k + 1."""
    for array in (rungs.z, rungs.gradient):
        scratch.z[:] = array[k]
        array[k] = array[k + 1]
        array[k + 1] = scratch.z
    value, walker = rungs.value[k, 0], rungs.walker[k]
    rungs.value[k, 0], rungs.walker[k] = rungs.value[k + 1, 0], rungs.walker[k + 1]
    rungs.value[k + 1, 0], rungs.walker[k + 1] = value, walker


@compiled
def _follow(rungs: Rungs) -> None:
    """Note which walkers have met the ends, and count base → target → base trips."""
    low, high = rungs.walker[0], rungs.walker[rungs.walker.size - 1]
    if rungs.heading[high] == 1:
        rungs.heading[high] = 2
    if rungs.heading[low] == 2:
        rungs.clock[1] += 1
    rungs.heading[low] = 1


@compiled
def anneal(
    problem: Problem,
    rungs: Rungs,
    log_weights: Array,
    betas: Array,
    table: StepTable,
    moves: Moves,
    transitions: int,
    rng: np.random.Generator,
    scratch: Scratch,
    counts: Array,
) -> None:
    """Take a block of particles, one a row of `rungs`, from betas[0] along to betas[-1].

    Adds −(β_{n+1} − β_n) δ to a particle's log weight before it moves at β_{n+1} ([GS] 10). A
    particle outside the target's support has weight zero and stays.

    Parameters
    ----------
    counts : shape (5,)
        Gradients, transitions, sum of acceptance probabilities, divergences, rejections.
    """
    for row in range(log_weights.size):
        state = State(rungs.z[row], rungs.gradient[row], rungs.value[row])
        for n in range(betas.size - 1):
            if not np.isfinite(state.value[0]):
                log_weights[row] = -np.inf
                break
            delta = delta_of(state.value[0], state.z)
            log_weights[row] -= (betas[n + 1] - betas[n]) * delta
            for _ in range(transitions):
                probability, status, gradients = tempered_move(
                    problem, state, betas[n + 1], table, moves, rng, scratch
                )
                counts[0] += gradients
                counts[1] += 1
                counts[2] += probability
                counts[3] += status == DIVERGED
                counts[4] += status == REJECTED
