"""The compiled loop of thermostatted, tempered dynamics driven by noisy gradients ([TACT]).

The energy is U = −log density, the temperature is one, and masses are one. The continuous system is

    dθ  = v dt,   dv  = −λ(ξ) ∇U dt − λ² s v dt + λ √(2 c) dW,
    dξ  = w dt,   dw  = −(λ' U + W') dt − λ'² s_ξ w dt + λ' √(2 c_ξ) dW_ξ,
    ds  = λ² (|v|²/D − 1) dt / g,   ds_ξ = λ'² (w² − 1) dt / g_ξ,

The thermostats s and s_ξ absorb noise of unknown size in U and ∇U. The loop works with the
variables of [TACT] Algorithm 1: η = ε², r = ε v, z = ε s and γ = ε² g. It spends one gradient in
each step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import borrowed, compiled, copy
from stanct.kernels.noisy import Potential, Reading, estimated

# Biases of the tempering variable.
NO_BIAS, FORCE, HILLS = 0, 1, 2

# A chain whose kinetic energy is this many times its mean is running off to infinity.
RUNAWAY = 1000.0


class Walker(NamedTuple):
    """State of a chain, updated in place; positions and momenta, shape (D,), are whitened.

    `thermostat` is z_θ, shape (1,), (D,) or, a matrix by rows, (D²,). `tempering`: ξ, its momentum
    and its thermostat. `clock`: steps taken, points rejected, and resets of chains that ran off.
    """

    z: Array
    momentum: Array
    thermostat: Array
    tempering: Array
    clock: Array


class Bias(NamedTuple):
    """The bias on ξ, learned in place; bins divide 0 ≤ |ξ| ≤ W₀.

    Visits and the sum of U over them (adaptive biasing force), and the sum of hills at the bin's
    centre and minus its derivative (metadynamics).
    """

    visits: Array
    energy: Array
    height: Array
    force: Array


class Dynamics(NamedTuple):
    """Settings of the loop, see `stanct.samplers.tact.TACT`.

    `eta`, `friction` and `inertia` hold the values for θ and for ξ. `gaps` holds the steps between
    looks and between resamplings of the momenta (0: never).
    """

    eta: tuple[float, float]
    friction: tuple[float, float]
    inertia: tuple[float, float]
    plateau: float
    reach: float
    power: float
    wall: float
    tempered: bool
    thermostatted: bool
    symmetric: bool
    bias: int
    learn: bool
    hill: tuple[float, float, float]
    offset: float
    gaps: tuple[int, int]


class TactOut(NamedTuple):
    """Output of a block: `trace` has a row for every look, the others for every collected draw.

    A row has ξ, λ, mean of z_θ, z_ξ, U and |r_θ|² / (D η). `reading` is working memory.
    """

    z: Array
    energy: Array
    trace: Array
    reading: Reading


@compiled
def coupling(xi: float, plateau: float, reach: float, power: float) -> tuple[float, float]:
    """Return λ(ξ) and λ'(ξ).

    1/λ = 1 + ((|ξ| − ξ₀) / (ξ₁ − ξ₀))ⁿ outside the plateau |ξ| ≤ ξ₀, where λ = 1.
    """
    distance = abs(xi) - plateau
    if distance <= 0.0:
        return 1.0, 0.0
    width = reach - plateau
    u = distance / width
    value = 1.0 / (1.0 + u**power)
    slope = -(value**2) * power * u ** (power - 1.0) / width
    return value, slope if xi > 0 else -slope


@compiled
def bias_bin(xi: float, wall: float, bins: int) -> int:
    """Return the bin of ξ; ξ and −ξ share one because λ is even."""
    return min(int(abs(xi) / wall * bins), bins - 1)


@compiled
def push(bias: Bias, xi: float, slope: float, dynamics: Dynamics) -> float:
    """Return the force of the bias on ξ: λ' times the mean of U over the visits, or of hills."""
    k: int = bias_bin(xi, dynamics.wall, bias.visits.size)
    if dynamics.bias == FORCE:
        return slope * bias.energy[k] / bias.visits[k] if bias.visits[k] > 0 else 0.0
    if dynamics.bias == HILLS:
        return bias.force[k] if xi > 0 else -bias.force[k]
    return 0.0


@compiled
def teach(bias: Bias, xi: float, energy: float, dynamics: Dynamics) -> None:
    """Record a visit: an energy for the biasing force, or a hill with its images at 0 and the wall.

    A hill of well-tempered metadynamics shrinks by exp(−W(ξ)/ΔT). ΔT = inf is plain metadynamics.
    """
    bins = bias.visits.size
    k = bias_bin(xi, dynamics.wall, bins)
    bias.visits[k] += 1.0
    if dynamics.bias == FORCE:
        bias.energy[k] += energy
        return
    height, width, softening = dynamics.hill
    height *= math.exp(-bias.height[k] / softening)
    place = abs(xi)
    for i in range(bins):
        centre = (i + 0.5) * dynamics.wall / bins
        for image in (place, -place, 2 * dynamics.wall - place):
            u = (centre - image) / width
            hill = height * math.exp(-0.5 * u * u)
            bias.height[i] += hill
            bias.force[i] += hill * u / width


@compiled
def resample(walker: Walker, dynamics: Dynamics, rng: np.random.Generator) -> None:
    """Draw the momenta from their equilibrium distribution."""
    for i in range(walker.z.size):
        walker.momentum[i] = math.sqrt(dynamics.eta[0]) * rng.standard_normal()
    walker.tempering[1] = math.sqrt(dynamics.eta[1]) * rng.standard_normal()


@compiled
def heat(walker: Walker, dynamics: Dynamics, lam: float, slope: float, share: float) -> None:
    """Move the thermostats by the excess kinetic energy."""
    momentum, eta = walker.momentum, dynamics.eta[0]
    gain = share * lam * lam / dynamics.inertia[0]
    if walker.thermostat.size == 1:
        total = 0.0
        for i in range(momentum.size):
            total += momentum[i] ** 2
        walker.thermostat[0] += gain * (total / momentum.size - eta)
    elif walker.thermostat.size > momentum.size:
        for i in range(momentum.size):
            for j in range(momentum.size):
                excess = momentum[i] * momentum[j] - (eta if i == j else 0.0)
                walker.thermostat[i * momentum.size + j] += gain * excess
    else:
        for i in range(momentum.size):
            walker.thermostat[i] += gain * (momentum[i] ** 2 - eta)
    gain = share * slope * slope / dynamics.inertia[1]
    walker.tempering[2] += gain * (walker.tempering[1] ** 2 - dynamics.eta[1])


@compiled
def spread_of(coupled: float, friction: float, eta: float, symmetric: bool) -> float:
    """Return the standard deviation of the noise in a step, scaled by λ or λ' (`coupled`)."""
    square = coupled * coupled
    if symmetric:
        return math.sqrt(-eta * math.expm1(-2.0 * square * friction))
    return math.sqrt(2.0 * square * friction * eta)


@compiled
def kept_of(coupled: float, thermostat: float, symmetric: bool) -> float:
    """Return the share of a momentum that remains after a step's friction."""
    loss = coupled * coupled * thermostat
    return math.exp(-loss) if symmetric else 1.0 - loss


@compiled
def damped(momentum: Array, matrix: Array, square: float, symmetric: bool, room: Array) -> None:
    """Apply the friction of a matrix, (D²,), to a momentum; eight terms are right to 1e-6."""
    size, term, new = momentum.size, room[0], room[1]
    copy(momentum, term)
    for order in range(1, 9 if symmetric else 2):
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += matrix[i * size + j] * term[j]
            new[i] = -square * total / order
        for i in range(size):
            term[i] = new[i]
            momentum[i] += new[i]


@compiled
def rest(thermostat: Array, dimension: int, friction: float) -> None:
    """Put z_θ at the friction that is injected."""
    for i in range(thermostat.size):
        own = thermostat.size <= dimension or i % (dimension + 1) == 0
        thermostat[i] = friction if own else 0.0


@compiled
def mean_friction(thermostat: Array, dimension: int) -> float:
    """Return the mean of z_θ over the coordinates."""
    apart = dimension + 1 if thermostat.size > dimension else 1
    total, count = 0.0, 0
    for i in range(0, thermostat.size, apart):
        total += thermostat[i]
        count += 1
    return total / count


@compiled
def kicked(momentum: float, kick: float, kept: float, noise: float, symmetric: bool) -> float:
    """Return a momentum after the force's kick, the friction, and the injected noise.

    The symmetric form, half a kick on either side, makes the variance of a Gaussian target exact.
    """
    if symmetric:
        return kept * (momentum + 0.5 * kick) + 0.5 * kick + noise
    return kept * momentum + kick + noise


@compiled
def move(
    potential: Potential,
    walker: Walker,
    bias: Bias,
    dynamics: Dynamics,
    rng: np.random.Generator,
    reading: Reading,
) -> None:
    """Take one step of Algorithm 1: thermostats, gradient, bias, momenta, positions, wall."""
    potential, rng, reading = borrowed(potential), borrowed(rng), borrowed(reading)
    state, value = walker.tempering, reading.value
    lam, slope = coupling(state[0], dynamics.plateau, dynamics.reach, dynamics.power)
    share = 0.5 if dynamics.symmetric else 1.0
    if dynamics.thermostatted:
        heat(walker, dynamics, lam, slope, share)
    if not estimated(potential, walker.z, rng, reading):
        # An elastic reflection back into the support.
        walker.clock[1] += 1
        for i in range(walker.z.size):
            walker.z[i] -= walker.momentum[i]
            walker.momentum[i] = -walker.momentum[i]
        return
    value[1] = value[0] - dynamics.offset
    if dynamics.tempered:
        if dynamics.learn and dynamics.bias == FORCE:
            teach(bias, state[0], value[1], dynamics)
        force = push(bias, state[0], slope, dynamics) - slope * value[1]
        spread = spread_of(slope, dynamics.friction[1], dynamics.eta[1], dynamics.symmetric)
        kept = kept_of(slope, state[2], dynamics.symmetric)
        state[1] = kicked(
            state[1], dynamics.eta[1] * force, kept, spread * rng.standard_normal(),
            dynamics.symmetric,
        )  # fmt: skip
        if slope == 0.0 and dynamics.bias == HILLS:
            # Nothing else acts on ξ here. The hills make wells, which it would not leave or enter.
            kept = math.exp(-dynamics.friction[1])
            spread = math.sqrt(dynamics.eta[1] * (1.0 - kept * kept))
            state[1] = kept * state[1] + spread * rng.standard_normal()
    full = walker.thermostat.size > walker.z.size
    diagonal = walker.thermostat.size > 1 and not full
    spread = spread_of(lam, dynamics.friction[0], dynamics.eta[0], dynamics.symmetric)
    kept = kept_of(lam, walker.thermostat[0], dynamics.symmetric)
    if full:
        # The friction of a matrix stands between the two halves of the kick, too.
        half = 0.5 if dynamics.symmetric else 0.0
        for i in range(walker.z.size):
            walker.momentum[i] -= half * lam * dynamics.eta[0] * reading.rows[0, i]
        damped(walker.momentum, walker.thermostat, lam * lam, dynamics.symmetric, reading.rows[1:3])
        for i in range(walker.z.size):
            walker.momentum[i] += (
                spread * rng.standard_normal()
                - (1.0 - half) * lam * dynamics.eta[0] * reading.rows[0, i]
            )
    for i in range(0 if full else walker.z.size):
        if diagonal:
            kept = kept_of(lam, walker.thermostat[i], dynamics.symmetric)
        walker.momentum[i] = kicked(
            walker.momentum[i], -lam * dynamics.eta[0] * reading.rows[0, i], kept,
            spread * rng.standard_normal(), dynamics.symmetric,
        )  # fmt: skip
    if dynamics.thermostatted and dynamics.symmetric:
        heat(walker, dynamics, lam, slope, share)
    for i in range(walker.z.size):
        walker.z[i] += walker.momentum[i]
    if dynamics.tempered:
        state[0] += state[1]
        if abs(state[0]) > dynamics.wall:
            state[0] = np.sign(state[0]) * 2.0 * dynamics.wall - state[0]
            state[1] = -state[1]


@compiled
def run_looks(
    potential: Potential,
    walker: Walker,
    bias: Bias,
    dynamics: Dynamics,
    rng: np.random.Generator,
    out: TactOut,
) -> tuple[int, int]:
    """Look at the chain every `gaps[0]` steps and collect a draw where λ = 1.

    The loop ends when `out` is full of draws or of looks. Returns the numbers of draws and looks.
    """
    potential, walker, bias = borrowed(potential), borrowed(walker), borrowed(bias)
    dimension, rng, out = walker.z.size, borrowed(rng), borrowed(out)
    dynamics, reading = borrowed(dynamics), out.reading
    value, home = reading.value, reading.rows[4]
    copy(walker.z, home)
    found, kinetic = 0, 1.0
    for look in range(out.trace.shape[0]):
        for _ in range(dynamics.gaps[0]):
            move(potential, walker, bias, dynamics, rng, reading)
            walker.clock[0] += 1
            if dynamics.gaps[1] > 0 and walker.clock[0] % dynamics.gaps[1] == 0:
                resample(walker, dynamics, rng)
            kinetic = 0.0
            for i in range(dimension):
                kinetic += walker.momentum[i] ** 2
            kinetic /= dimension * dynamics.eta[0]
            if not (kinetic < RUNAWAY and abs(walker.tempering[0]) <= dynamics.wall):
                # The step was too long: restart from the last look.
                walker.clock[2] += 1
                copy(home, walker.z)
                walker.tempering[0] = 0.0
                rest(walker.thermostat, dimension, dynamics.friction[0])
                walker.tempering[2] = dynamics.friction[1]
                resample(walker, dynamics, rng)
        copy(walker.z, home)
        if dynamics.tempered and dynamics.learn and dynamics.bias == HILLS:
            teach(bias, walker.tempering[0], 0.0, dynamics)
        lam, _ = coupling(walker.tempering[0], dynamics.plateau, dynamics.reach, dynamics.power)
        out.trace[look, 0] = walker.tempering[0]
        out.trace[look, 1] = lam
        out.trace[look, 2] = mean_friction(walker.thermostat, dimension)
        out.trace[look, 3] = walker.tempering[2]
        out.trace[look, 4] = value[1] + dynamics.offset
        out.trace[look, 5] = kinetic
        if lam == 1.0:
            copy(walker.z, out.z[found])
            out.energy[found] = value[1] + dynamics.offset
            found += 1
            if found == out.energy.size:
                return found, look + 1
    return found, out.trace.shape[0]
