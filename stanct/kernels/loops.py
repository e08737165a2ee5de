"""Compiled inner loops: Hamiltonian Monte Carlo on the tempered density in whitened coordinates.

At a fixed β the density over z, x = m + L z, is, up to a constant,

    log π_β(z) = β v(z) + (1 − β) log q(z),   v(z) = −φ(m + L z) + log det L,

with unit masses, q being the standard normal or a mixture of normals. Nothing here returns to the
interpreter between leapfrog steps: the density is a C function with the signature of BridgeStan's
``bs_log_density_gradient``, be it a Stan program's or the callback of a `FunctionDensity`.

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

from stanct.arrays import Array
from stanct.kernels.records import (
    Extended,
    Flow,
    GibbsOut,
    LadderOut,
    Moves,
    NutsOut,
    Problem,
    Rungs,
    Scratch,
    State,
    StepTable,
    Subtrees,
    Swarm,
    Tally,
    make_scratch,
)

DIVERGENCE = 1000.0
OK, REJECTED, DIVERGED = 0, 1, 2

# Columns of `Subtrees`' vectors and scalars, and its rows: the trajectory, whose two ends follow;
# where a step began; the way back from where it ended; parts.
FIRST, LAST, TOTAL, POINT, GRADIENT = range(5)
LOG_DENSITY, ENERGY, DELTA = range(3)
STATE, BEGIN, BACK, PARTS = 0, 3, 4, 5

# A step of NUTS is halved with probability (r / TOLERANCE)², r being the range of the energy in it,
# and what it is halved into again, at most HALVINGS times.
TOLERANCE, HALVINGS = 1.0, 8

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


# Sums may be reordered, which the vector unit needs. There is no cache of its own for what is
# compiled so: it becomes part of its callers' machine code.
summed = numba.njit(nogil=True, fastmath={"reassoc", "contract"})


# Becomes part of its callers too: a call hands over a tuple field by field, some hundreds of them.
inlined = numba.njit(nogil=True, forceinline=True)


def make_state(problem: Problem, z: Array) -> State:
    """The state at a whitened point, shape (D,), with its value and gradient."""
    state = State(np.array(z, float), np.zeros(z.size), np.full(1, -np.inf))
    evaluate(problem, state.z, state.gradient, state.value, make_scratch(z.size))
    return state


@summed
def _triangular(lower: Array, vector: Array, out: Array) -> None:
    """out += lower · vector, four rows at a time."""
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


@summed
def _transposed(lower: Array, vector: Array, out: Array) -> None:
    """out += lowerᵀ · vector, four rows of `lower` at a time."""
    i = 0
    while i + 4 <= vector.size:
        one, two, three, four = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for j in range(i + 4):
            out[j] += (
                lower[i, j] * one
                + lower[i + 1, j] * two
                + lower[i + 2, j] * three
                + lower[i + 3, j] * four
            )
        i += 4
    while i < vector.size:
        one = vector[i]
        for j in range(i + 1):
            out[j] += lower[i, j] * one
        i += 1


@compiled
def evaluate(problem: Problem, z: Array, gradient: Array, value: Array, scratch: Scratch) -> int:
    """Put v(z) and ∇v(z) into `value` and `gradient`; returns OK, REJECTED or DIVERGED."""
    return _evaluate(
        problem.call, problem.handle, problem.mean, problem.lower, problem.diagonal,
        problem.factors, problem.stretch, problem.added, z, gradient, value, scratch.x,
        scratch.x_gradient,
    )  # fmt: skip


@compiled
def _evaluate(
    call: Any,
    handle: int,
    mean: Array,
    lower: Array,
    diagonal: Array,
    factors: Array,
    stretch: Array,
    added: float,
    z: Array,
    gradient: Array,
    value: Array,
    x: Array,
    inner: Array,
) -> int:
    """`evaluate`, with the fields of its tuples."""
    dimension = z.size
    if lower.size > 0:
        for i in range(dimension):
            x[i] = mean[i]
        _triangular(lower, z, x)
    elif stretch.size == 0:
        for i in range(dimension):
            x[i] = mean[i] + diagonal[i] * z[i]
    else:
        # The call below fills `inner`; until then it is free.
        for i in range(dimension):
            inner[i] = z[i]
        _low_rank(factors, stretch, inner)
        for i in range(dimension):
            x[i] = mean[i] + diagonal[i] * inner[i]
    code = call(
        handle, True, True, x.ctypes.data, value.ctypes.data, inner.ctypes.data, np.uintp(0)
    )
    if code != 0 or not np.isfinite(value[0]):
        value[0] = -np.inf
        gradient[:] = 0.0
        # A trajectory that left for infinity is no fault of the program's.
        return REJECTED if np.isfinite(z.sum()) else DIVERGED
    value[0] += added
    if lower.size > 0:
        for i in range(dimension):
            gradient[i] = 0.0
        _transposed(lower, inner, gradient)
    else:
        for i in range(dimension):
            gradient[i] = diagonal[i] * inner[i]
        _low_rank(factors, stretch, gradient)
    return OK


@compiled
def _low_rank(factors: Array, stretch: Array, vector: Array) -> None:
    """vector ← (I + Σ_j stretch_j u_j u_jᵀ) vector for orthonormal u_j, in O(D r)."""
    for j in range(stretch.size):
        along = 0.0
        for i in range(vector.size):
            along += factors[j, i] * vector[i]
        along *= stretch[j]
        for i in range(vector.size):
            vector[i] += along * factors[j, i]


@summed
def base_terms(problem: Problem, z: Array, scratch: Scratch) -> float:
    """Log q(z) of the base; its gradient goes into `scratch.base_gradient`."""
    gradient, offset, centred = scratch.base_gradient, scratch.offset, scratch.centred
    parts = problem.components
    if parts.share.size == 0:
        total = 0.0
        for i in range(z.size):
            gradient[i] = -z[i]
            total += z[i] * z[i]
        return -0.5 * total - z.size * HALF_LOG_2PI
    top, total = -np.inf, 0.0
    gradient[:] = 0.0
    for k in range(parts.share.size):
        for i in range(z.size):
            centred[i] = z[i] - parts.place[k, i]
        offset[:] = 0.0
        _triangular(parts.inverse[k], centred, offset)
        square = 0.0
        for i in range(z.size):
            square += offset[i] * offset[i]
        term = parts.log_weight[k] - 0.5 * square
        # A running log-sum-exp: what was added so far is rescaled when a larger term comes.
        if term > top:
            scale = np.exp(top - term)
            total *= scale
            gradient *= scale
            top = term
        weight = np.exp(term - top)
        total += weight
        for i in range(z.size):
            offset[i] *= -weight
        _transposed(parts.inverse[k], offset, gradient)
    gradient /= total
    return top + np.log(total) - z.size * HALF_LOG_2PI


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
    """Take leapfrog steps on log π_β in place; log q at both ends goes into `scratch.log_base`.

    Returns
    -------
    status, gradients
        OK or what ended the trajectory early, and the gradients spent.
    """
    # Taken out here, because an array from a tuple costs a count of references each time.
    pull, x, inner = scratch.base_gradient, scratch.x, scratch.x_gradient
    call, handle, added = problem.call, problem.handle, problem.added
    mean, lower, diagonal = problem.mean, problem.lower, problem.diagonal
    factors, stretch = problem.factors, problem.stretch
    mixture = problem.components.share.size > 0
    scratch.log_base[0] = base_terms(problem, z, scratch)
    for i in range(z.size):
        momentum[i] += 0.5 * step * (beta * gradient[i] + (1 - beta) * pull[i])
    for n in range(steps):
        for i in range(z.size):
            z[i] += step * momentum[i]
        status = _evaluate(
            call, handle, mean, lower, diagonal, factors, stretch, added, z, gradient, value,
            x, inner,
        )  # fmt: skip
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
def log_tempered(value: float, log_base: float, beta: float) -> float:
    """log π_β; at β = 0 the target does not matter, even where it vanishes."""
    return (1 - beta) * log_base + (beta * value if beta > 0 else 0.0)


@compiled
def delta_of(problem: Problem, value: float, z: Array, scratch: Scratch) -> float:
    """δ = φ − ψ at a whitened point, from v."""
    return base_terms(problem, z, scratch) - value


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
    start = log_tempered(state.value[0], scratch.log_base[0], beta) - 0.5 * kinetic
    kinetic = 0.0
    for i in range(state.z.size):
        kinetic += scratch.momentum[i] ** 2
    end = log_tempered(scratch.value[0], scratch.log_base[1], beta) - 0.5 * kinetic
    gain = end - start
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
    parts = problem.components
    for i in range(state.z.size):
        state.z[i] = rng.standard_normal()
    if parts.share.size > 0:
        k, rest = 0, rng.random() - parts.share[0]
        while rest >= 0 and k < parts.share.size - 1:
            k += 1
            rest -= parts.share[k]
        scratch.momentum[:] = state.z
        state.z[:] = parts.place[k]
        _triangular(parts.root[k], scratch.momentum, state.z)
    evaluate(problem, state.z, state.gradient, state.value, scratch)


@compiled
def draw_beta(
    delta: float, knots: Array, values: Array, masses: Array, choose: float, place: float
) -> float:
    """β given x for a piecewise-linear bias by inversion ([GS] 17), from two uniforms."""
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
def bin_of(beta: float, bins: Array) -> int:
    """Which column of `bins`, equal parts of [0, 1], counts a transition at β."""
    return min(int(beta * bins.shape[1]), bins.shape[1] - 1)


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
            k = bin_of(beta, out.bins)
            out.bins[0, k] += 1
            out.bins[1, k] += probability
            delta = delta_of(problem, state.value[0], state.z, scratch)
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
            out.delta[n, k] = delta_of(problem, rungs.value[k, 0], rungs.z[k], scratch)
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
    tally: Tally,
) -> None:
    """Take a block of particles, one a row of `rungs`, from betas[0] along to betas[-1].

    Adds −(β_{n+1} − β_n) δ to a particle's log weight before it moves at β_{n+1} ([GS] 10). A
    particle outside the target's support has weight zero and stays.
    """
    for row in range(log_weights.size):
        state = State(rungs.z[row], rungs.gradient[row], rungs.value[row])
        for n in range(betas.size - 1):
            if not np.isfinite(state.value[0]):
                log_weights[row] = -np.inf
                break
            delta = delta_of(problem, state.value[0], state.z, scratch)
            log_weights[row] -= (betas[n + 1] - betas[n]) * delta
            k = bin_of(betas[n + 1], tally.bins)
            for _ in range(transitions):
                probability, status, gradients = tempered_move(
                    problem, state, betas[n + 1], table, moves, rng, scratch
                )
                tally.counts[0] += gradients
                tally.counts[1] += 1
                tally.counts[2] += probability
                tally.counts[3] += status == DIVERGED
                tally.counts[4] += status == REJECTED
                tally.bins[0, k] += 1
                tally.bins[1, k] += probability


@compiled
def _friction(
    flow: Flow, delta: float, beta: float, expected: float, time: float
) -> tuple[float, float, float]:
    """a, e^{−a t} and (1 − e^{−a t}) / a of ṗ = −β∇δ − a p, a = rate (β + offset) (δ − E)."""
    a = flow.rate * (beta + flow.offset) * (delta - expected)
    small = abs(a * time) < 1e-8
    return a, np.exp(-a * time), time if small else -np.expm1(-a * time) / a


@compiled
def _contact_kick(
    flow: Flow,
    z: Array,
    momentum: Array,
    gradient: Array,
    delta: float,
    beta: float,
    expected: float,
    time: float,
    first: bool,
) -> float:
    """The kicks of half a contact step, in place; returns their log Jacobian.

    The base's force before the exact flow of the rest where `first`, after it otherwise.
    """
    a, decay, reach = _friction(flow, delta, beta, expected, time)
    for i in range(z.size):
        if first:
            momentum[i] -= time * z[i]
        momentum[i] = decay * momentum[i] + beta * reach * (gradient[i] + z[i])
        if not first:
            momentum[i] -= time * z[i]
    return -z.size * a * time


@compiled
def _landing_time(
    flow: Flow,
    z: Array,
    momentum: Array,
    gradient: Array,
    delta: float,
    beta: float,
    expected: float,
    time: float,
    limit: float,
) -> float:
    """The whole time step, or the share of it with which β lands on `limit`.

    β moves by the momentum after the first kicks, whose square is known for any step from six inner
    products, so that no gradient is spent.
    """
    zz = zp = pp = zd = pd = dd = 0.0
    for i in range(z.size):
        slope = gradient[i] + z[i]
        zz += z[i] * z[i]
        zp += z[i] * momentum[i]
        pp += momentum[i] * momentum[i]
        zd += z[i] * slope
        pd += momentum[i] * slope
        dd += slope * slope
    wanted = abs(np.log((limit + flow.offset) / (beta + flow.offset)))
    low, high = 0.0, 1.0
    share = 1.0
    for _ in range(60):
        half = 0.5 * share * time
        _, decay, reach = _friction(flow, delta, beta, expected, half)
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
def expected_at(nodes: Array, means: Array, beta: float) -> float:
    """E_β[δ] between nodes."""
    k = min(max(np.searchsorted(nodes, beta) - 1, 0), nodes.size - 2)
    share = (beta - nodes[k]) / (nodes[k + 1] - nodes[k])
    return means[k] + share * (means[k + 1] - means[k])


@compiled
def contact_step(
    problem: Problem,
    flow: Flow,
    nodes: Array,
    means: Array,
    state: State,
    momentum: Array,
    beta: float,
    time: float,
    limit: float,
    scratch: Scratch,
) -> tuple[int, float, float, float]:
    """One step of the contact Hamiltonian's flow ([AMC] Algorithm 1), in place.

    Kicks, drift, kicks: symmetric, so that the step with −`time` undoes it. `time` above zero cools
    towards the target, below zero heats; the step is shortened where β would pass `limit`.

    Returns
    -------
    status, beta, time, log_jacobian
        OK, REJECTED or DIVERGED; β after the step; the time it took; and by how much it changed
        the volume of (z, p, log(β + offset)).
    """
    delta = delta_of(problem, state.value[0], state.z, scratch)
    expected = expected_at(nodes, means, beta)
    taken = _landing_time(
        flow, state.z, momentum, state.gradient, delta, beta, expected, time, limit
    )
    half = 0.5 * taken
    log_jacobian = _contact_kick(
        flow, state.z, momentum, state.gradient, delta, beta, expected, half, True
    )
    squared = 0.0
    for i in range(momentum.size):
        squared += momentum[i] * momentum[i]
        state.z[i] += taken * momentum[i]
    if taken == time:
        beta = (beta + flow.offset) * np.exp(taken * flow.rate * squared) - flow.offset
    else:
        beta = limit
    status = evaluate(problem, state.z, state.gradient, state.value, scratch)
    if status != OK:
        return status, beta, taken, log_jacobian
    delta = delta_of(problem, state.value[0], state.z, scratch)
    expected = expected_at(nodes, means, beta)
    log_jacobian += _contact_kick(
        flow, state.z, momentum, state.gradient, delta, beta, expected, half, False
    )
    return OK if np.isfinite(log_jacobian) else DIVERGED, beta, taken, log_jacobian


@compiled
def flux_momentum(momentum: Array, rng: np.random.Generator) -> None:
    """Draw p from |p|² N(p), with which trajectories cross a level of β: |p|² is χ² of D + 2."""
    squared = 0.0
    for i in range(momentum.size):
        momentum[i] = rng.standard_normal()
        squared += momentum[i] * momentum[i]
    extra = rng.standard_normal() ** 2 + rng.standard_normal() ** 2
    momentum *= np.sqrt((squared + extra) / squared)


@compiled
def contact_flow(
    problem: Problem,
    flow: Flow,
    nodes: Array,
    means: Array,
    start: int,
    stop: int,
    swarm: Swarm,
    rng: np.random.Generator,
    scratch: Scratch,
) -> None:
    """Take every trajectory of a swarm from node `start` to node `stop`, up or down, in place.

    Fills the swarm's records at the nodes on the way. A trajectory that leaves the support, blows
    up, or has not arrived after `flow.max_steps` steps is lost: its log weight is −∞ from there on.
    """
    turn = 1 if stop > start else -1
    for row in range(swarm.z.shape[0]):
        state = State(swarm.z[row], swarm.gradient[row], swarm.value[row])
        momentum, totals = swarm.momentum[row], swarm.totals[row]
        for k in range(nodes.size):
            if (k - start) * turn > 0:
                swarm.log_weights[row, k] = -np.inf
        k = start
        beta = nodes[k]
        while np.isfinite(totals[1]):
            kinetic = base = 0.0
            for i in range(momentum.size):
                kinetic += 0.5 * momentum[i] * momentum[i]
                base += 0.5 * state.z[i] * state.z[i]
            delta = delta_of(problem, state.value[0], state.z, scratch)
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
                    problem, flow, nodes, means, state, momentum, beta, turn * flow.step,
                    nodes[k], scratch,
                )  # fmt: skip
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
                        momentum[i] = rng.standard_normal()
                        totals[0] -= 0.5 * momentum[i] * momentum[i]


@inlined
def interpolated(knots: Array, values: Array, place: float) -> tuple[float, float]:
    """Value and slope of a piecewise-linear function."""
    k = 0
    while k < knots.size - 2 and place > knots[k + 1]:
        k += 1
    slope = (values[k + 1] - values[k]) / (knots[k + 1] - knots[k])
    return values[k] + slope * (place - knots[k]), slope


@compiled
def evaluate_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch
) -> float:
    """The log density of w; its gradient and the copies' δ, shape (N,), go into the arrays.

    By the chain rule over ∇v: L = Σ_i (log q_i − β_i δ_i + path(β_i) + log β_i + log(1 − β_i)), and
    with hand-overs log Σ_i w_i / N more, log w_i = −(1 − β_i) δ_i − b(1) + b(β_i). With r_i the
    share of w_i, ∂L/∂δ_i = −β_i − r_i (1 − β_i) and ∂L/∂β_i = −δ_i + path′ + r_i (δ_i + b′).
    """
    problem = extended.problem
    return _evaluate_extended(
        problem.call, problem.handle, problem.mean, problem.lower, problem.diagonal,
        problem.factors, problem.stretch, problem.added, extended.handover, extended.fixed,
        extended.knots, extended.value, extended.path, extended.room, w, gradient, delta,
        scratch.value, scratch.x, scratch.x_gradient,
    )  # fmt: skip


@compiled
def repeat_density(
    call: Any, handle: int, points: Array, value: Array, gradient: Array, times: int
) -> None:
    """Evaluate a density at all points, shape (n, D), as often, to be timed."""
    for _ in range(times):
        for k in range(len(points)):
            call(
                handle, True, True, points[k].ctypes.data, value.ctypes.data,
                gradient.ctypes.data, np.uintp(0),
            )  # fmt: skip


@compiled
def repeat_extended(
    extended: Extended, w: Array, gradient: Array, delta: Array, scratch: Scratch, times: int
) -> None:
    """Evaluate an extended density as often, to be timed."""
    for _ in range(times):
        evaluate_extended(extended, w, gradient, delta, scratch)


@inlined
def _evaluate_extended(
    call: Any,
    handle: int,
    mean: Array,
    lower: Array,
    diagonal: Array,
    factors: Array,
    stretch: Array,
    added: float,
    handover: bool,
    fixed: Array,
    knots: Array,
    bias: Array,
    path: Array,
    room: Array,
    w: Array,
    gradient: Array,
    delta: Array,
    value: Array,
    x: Array,
    inner: Array,
) -> float:
    """`evaluate_extended`, with the fields of its tuples."""
    dimension, copies, estimated = mean.size, delta.size, fixed.size == 0
    controls = copies * dimension
    total, top, share = 0.0, -np.inf, 0.0
    for i in range(copies):
        first = i * dimension
        z, slope = w[first : first + dimension], gradient[first : first + dimension]
        beta, rest = _tempering(w, controls + i) if estimated else (fixed[i], 1 - fixed[i])
        if estimated:
            u = abs(w[controls + i])
            total -= u + 2 * np.log1p(np.exp(-u))
        status = _evaluate(
            call, handle, mean, lower, diagonal, factors, stretch, added, z, slope, value, x, inner
        )
        log_base = -0.5 * _squared(z) - dimension * HALF_LOG_2PI
        delta[i] = log_base - value[0]
        total += log_base + interpolated(knots, path, beta)[0]
        if beta > 0:  # at β = 0 the target does not matter, even where it vanishes
            total -= beta * delta[i]
        if handover:
            room[i] = interpolated(knots, bias, beta)[0] - bias[-1]
            if rest > 0:
                room[i] -= rest * delta[i]
            top = max(top, room[i])
        elif status != OK:
            return -np.inf
    if handover:
        for i in range(copies):
            room[i] = np.exp(room[i] - top)
            share += room[i]
        total += top + np.log(share / copies)
    if not np.isfinite(total):
        return -np.inf
    for i in range(copies):
        first = i * dimension
        beta, rest = _tempering(w, controls + i) if estimated else (fixed[i], 1 - fixed[i])
        weight = room[i] / share if handover else 0.0
        pull = beta + weight * rest  # −∂L/∂δ
        z, slope = w[first : first + dimension], gradient[first : first + dimension]
        for j in range(dimension):  # not by offsets, which the compiler turns into no vectors
            slope[j] = pull * slope[j] - (1 - pull) * z[j]
        if estimated:
            by_beta = interpolated(knots, path, beta)[1] - delta[i]
            if handover:
                by_beta += weight * (delta[i] + interpolated(knots, bias, beta)[1])
            gradient[controls + i] = by_beta * beta * rest + rest - beta
    return total


@inlined
def _tempering(w: Array, i: int) -> tuple[float, float]:
    """β and 1 − β of a control u, which is w[i]."""
    return 1 / (1 + np.exp(-w[i])), 1 / (1 + np.exp(w[i]))


@summed
def _squared(vector: Array) -> float:
    total = 0.0
    for i in range(vector.size):
        total += vector[i] * vector[i]
    return total


@summed
def _goes_on(inverse: Array, a: Array, b: Array) -> bool:
    """Whether neither a part and the next one, nor one with the nearest point of the other, turns.

    Stan's generalised criterion (Betancourt 2017, appendix A.4.2): the velocities at both ends
    point along the sum of all momenta between. The parts are rows of `Subtrees.vectors`.
    """
    one = two = three = four = five = six = 0.0
    for i in range(inverse.size):
        whole = inverse[i] * (a[TOTAL, i] + b[TOTAL, i])
        beyond_a = inverse[i] * (a[TOTAL, i] + b[FIRST, i])
        beyond_b = inverse[i] * (b[TOTAL, i] + a[LAST, i])
        one += a[FIRST, i] * whole
        two += b[LAST, i] * whole
        three += a[FIRST, i] * beyond_a
        four += b[FIRST, i] * beyond_a
        five += a[LAST, i] * beyond_b
        six += b[LAST, i] * beyond_b
    return one > 0 and two > 0 and three > 0 and four > 0 and five > 0 and six > 0


@inlined
def _copy_point(vectors: Array, scalars: Array, row: int, to: int) -> None:
    """Copy the point of one part, with its gradient, energy and δ, to another part."""
    for i in range(vectors.shape[2]):
        vectors[to, POINT, i] = vectors[row, POINT, i]
        vectors[to, GRADIENT, i] = vectors[row, GRADIENT, i]
    for i in range(scalars.shape[1]):
        scalars[to, i] = scalars[row, i]


@inlined
def _log_add(a: float, b: float) -> float:
    top = max(a, b)
    return top if top == -np.inf else top + np.log1p(np.exp(min(a, b) - top))


@compiled
def draw_momentum(momentum: Array, inverse: Array, rng: np.random.Generator) -> float:
    """Draw a momentum for a diagonal inverse metric; returns its kinetic energy."""
    kinetic = 0.0
    for i in range(momentum.size):
        normal = rng.standard_normal()
        momentum[i] = normal / np.sqrt(inverse[i])
        kinetic += 0.5 * normal * normal
    return kinetic


@inlined
def _drift(w: Array, momentum: Array, gradient: Array, step: float, inverse: Array) -> None:
    """The first half of a leapfrog step, up to the new point."""
    for i in range(w.size):
        momentum[i] += 0.5 * step * gradient[i]
        w[i] += step * inverse[i] * momentum[i]


@inlined
def _kick(momentum: Array, gradient: Array, step: float, inverse: Array) -> float:
    """The rest of a leapfrog step; returns the kinetic energy."""
    kinetic = 0.0
    for i in range(momentum.size):
        momentum[i] += 0.5 * step * gradient[i]
        kinetic += 0.5 * inverse[i] * momentum[i] * momentum[i]
    return kinetic


@inlined
def _copy_phase(vectors: Array, row: int, to: int) -> None:
    """Copy a point with its gradient and momentum."""
    for i in range(vectors.shape[2]):
        vectors[to, POINT, i] = vectors[row, POINT, i]
        vectors[to, GRADIENT, i] = vectors[row, GRADIENT, i]
        vectors[to, LAST, i] = vectors[row, LAST, i]


@inlined
def _again(span: float) -> float:
    """Probability that a step over which the energy ranged so widely is halved."""
    return min((span / TOLERANCE) ** 2, 1.0)


@compiled
def small_steps(
    extended: Extended,
    trees: Subtrees,
    row: int,
    step: float,
    count: int,
    energy: float,
    enough: float,
    inverse: Array,
    scratch: Scratch,
) -> tuple[float, float, float, int]:
    """Leapfrog steps in place, until the energy has ranged over `enough` or is not finite.

    Returns
    -------
    log_density, energy, span, gradients
        The first two at the last point; `span` is the energy's largest value less its smallest.
    """
    w, gradient = trees.vectors[row, POINT], trees.vectors[row, GRADIENT]
    momenta, delta = trees.vectors[row, LAST], trees.scalars[row, DELTA:]
    low = high = energy
    log_density, taken = -np.inf, 0
    while taken < count and high - low < enough:
        _drift(w, momenta, gradient, step, inverse)
        log_density = evaluate_extended(extended, w, gradient, delta, scratch)
        energy = _kick(momenta, gradient, step, inverse) - log_density
        taken += 1
        if not np.isfinite(energy):
            return -np.inf, np.inf, np.inf, taken
        low, high = min(low, energy), max(high, energy)
    return log_density, energy, high - low, taken


@compiled
def energy_lost(
    extended: Extended,
    trees: Subtrees,
    step: float,
    inverse: Array,
    rng: np.random.Generator,
    scratch: Scratch,
) -> float:
    """The energy that one step from row `STATE` with a fresh momentum loses, −∞ if it fails."""
    _copy_phase(trees.vectors, STATE, BACK)
    before = draw_momentum(trees.vectors[BACK, LAST], inverse, rng)
    before -= trees.scalars[STATE, LOG_DENSITY]
    return before - small_steps(
        extended, trees, BACK, step, 1, before, np.inf, inverse, scratch
    )[1]  # fmt: skip


@compiled
def halve(
    extended: Extended,
    trees: Subtrees,
    end: int,
    step: float,
    before: float,
    span: float,
    inverse: Array,
    rng: np.random.Generator,
    scratch: Scratch,
) -> tuple[float, float, float, int]:
    """Take a step again from row `BEGIN` in 2, 4, … small ones, until one of these is kept.

    As in WALNUTS (Bou-Rabee, Carpenter, Kleppe & Liu 2025), whoever comes back from the other end
    must choose the same number: the weight of all points beyond changes by the ratio of the two
    probabilities. The chance to halve grows smoothly with the energy's range; with a threshold in
    its place the ratio would often be zero.

    Parameters
    ----------
    before, span
        The energy at the beginning, and its range over the whole step.

    Returns
    -------
    log_density, energy, log_ratio, gradients
        At the end, with an energy of +inf where the density vanishes, which no small step mends.
    """
    gradients, halvings = 0, 0
    log_ratio = -np.log(_again(span))
    while True:
        halvings += 1
        count = 1 << halvings
        last = halvings == HALVINGS
        _copy_phase(trees.vectors, BEGIN, end)
        log_density, energy, span, taken = small_steps(
            extended, trees, end, step / count, count, before, np.inf if last else TOLERANCE,
            inverse, scratch,
        )  # fmt: skip
        gradients += taken
        if energy == np.inf:
            return log_density, energy, 0.0, gradients
        if last or rng.random() >= _again(span):
            break
        log_ratio -= np.log(_again(span))
    for other in range(halvings):
        count = 1 << other
        _copy_phase(trees.vectors, end, BACK)
        _, _, span, taken = small_steps(
            extended, trees, BACK, -step / count, count, energy, TOLERANCE, inverse, scratch
        )
        gradients += taken
        # Where the density vanishes on the way back there is no way back.
        log_ratio += np.log(_again(span)) if span < np.inf else -np.inf
    return log_density, energy, log_ratio, gradients


@compiled
def nuts_draws(
    extended: Extended,
    step: float,
    inverse: Array,
    max_depth: int,
    halving: bool,
    rng: np.random.Generator,
    trees: Subtrees,
    scratch: Scratch,
    out: NutsOut,
) -> None:
    """Fill `out` with NUTS draws as Stan makes them, which go on from the point of row `STATE`.

    Multinomial draws from each trajectory, biased towards its newer half (Betancourt 2017, appendix
    A). With `halving` steps are halved where the energy ranges widely, see `halve`. Row `STATE` of
    `trees` is the whole trajectory as one part, the next two rows hold the points at its ends, with
    their momenta, and those from `PARTS` on what a doubling is made of: a point is a part of level
    0, and two of one level that follow each other become one.
    """
    problem, room = extended.problem, extended.room
    call, handle, added = problem.call, problem.handle, problem.added
    mean, lower, diagonal = problem.mean, problem.lower, problem.diagonal
    factors, stretch = problem.factors, problem.stretch
    handover, fixed = extended.handover, extended.fixed
    knots, bias, path = extended.knots, extended.value, extended.path
    vectors, scalars = trees.vectors, trees.scalars
    log_weight, level = trees.log_weight, trees.level
    value, x, inner = scratch.value, scratch.x, scratch.x_gradient
    size = vectors.shape[2]
    log_ratio = np.zeros(2)
    for n in range(out.w.shape[0]):
        start = draw_momentum(vectors[STATE, TOTAL], inverse, rng) - scalars[STATE, LOG_DENSITY]
        scalars[STATE, ENERGY] = start
        log_weight[STATE] = 0.0
        for i in range(size):
            momentum = vectors[STATE, TOTAL, i]
            vectors[STATE, FIRST, i] = vectors[STATE, LAST, i] = momentum
            vectors[STATE + 1, LAST, i] = vectors[STATE + 2, LAST, i] = momentum
        for end in (STATE + 1, STATE + 2):
            _copy_point(vectors, scalars, STATE, end)
        depth, steps, gradients, accepted, divergent, valid = 0, 0, 0, 0.0, False, True
        log_ratio[:] = 0.0
        while valid and depth < max_depth:
            forward = rng.random() > 0.5
            side, signed = (1, step) if forward else (0, -step)
            end = STATE + 1 + side
            w, gradient = vectors[end, POINT], vectors[end, GRADIENT]
            momenta, delta = vectors[end, LAST], scalars[end, DELTA:]
            top = PARTS - 1
            while valid and (top != PARTS or level[PARTS] < depth):
                before = scalars[end, ENERGY]
                _copy_phase(vectors, end, BEGIN)
                _drift(w, momenta, gradient, signed, inverse)
                log_density = _evaluate_extended(
                    call, handle, mean, lower, diagonal, factors, stretch, added, handover, fixed,
                    knots, bias, path, room, w, gradient, delta, value, x, inner,
                )  # fmt: skip
                energy = _kick(momenta, gradient, signed, inverse) - log_density
                steps += 1
                gradients += 1
                if halving and np.isfinite(energy) and rng.random() < _again(energy - before):
                    log_density, energy, more, taken = halve(
                        extended, trees, end, signed, before, energy - before, inverse, rng,
                        scratch,
                    )  # fmt: skip
                    gradients += taken
                    log_ratio[side] += more
                error = energy - start
                # A gradient that is not a number shows only here.
                if not error <= DIVERGENCE:
                    divergent, valid = True, False
                    break
                if log_ratio[side] == -np.inf:
                    valid = False
                    break
                accepted += 1.0 if error <= 0 else np.exp(-error)
                scalars[end, LOG_DENSITY], scalars[end, ENERGY] = log_density, energy
                top += 1
                log_weight[top], level[top] = log_ratio[side] - error, 0
                for i in range(size):
                    momentum = momenta[i]
                    vectors[top, FIRST, i] = vectors[top, LAST, i] = momentum
                    vectors[top, TOTAL, i] = momentum
                _copy_point(vectors, scalars, end, top)
                while valid and top > PARTS and level[top] == level[top - 1]:
                    top -= 1
                    valid = _join(vectors, inverse, top, top + 1)
                    level[top] += 1
                    both = _log_add(log_weight[top], log_weight[top + 1])
                    if rng.random() < np.exp(log_weight[top + 1] - both):
                        _copy_point(vectors, scalars, top + 1, top)
                    log_weight[top] = both
            if not valid:
                break
            depth += 1
            gain = log_weight[PARTS] - log_weight[STATE]
            if gain >= 0 or rng.random() < np.exp(gain):
                _copy_point(vectors, scalars, PARTS, STATE)
            log_weight[STATE] = _log_add(log_weight[STATE], log_weight[PARTS])
            # Backwards, the new part follows what lay there when that is read from its other end.
            if not forward:
                _turn(vectors[STATE])
            valid = _join(vectors, inverse, STATE, PARTS)
            if not forward:
                _turn(vectors[STATE])
        statistics = out.statistics[n]
        statistics[0] = scalars[STATE, LOG_DENSITY]
        statistics[1] = accepted / steps
        statistics[2] = step
        statistics[3] = depth
        statistics[4] = gradients
        statistics[5] = divergent
        statistics[6] = scalars[STATE, ENERGY]
        out.w[n] = vectors[STATE, POINT]
        out.delta[n] = scalars[STATE, DELTA:]


@inlined
def _join(vectors: Array, inverse: Array, a: int, b: int) -> bool:
    """Lengthen part a by the part b that follows it; returns whether the whole goes on."""
    goes_on = _goes_on(inverse, vectors[a], vectors[b])
    for i in range(inverse.size):
        vectors[a, LAST, i] = vectors[b, LAST, i]
        vectors[a, TOTAL, i] += vectors[b, TOTAL, i]
    return goes_on


@inlined
def _turn(part: Array) -> None:
    """Exchange the momenta at the ends of a part."""
    for i in range(part.shape[1]):
        part[FIRST, i], part[LAST, i] = part[LAST, i], part[FIRST, i]
