"""What compiled loops work on: the problem, a chain's state, its room, and its step sizes."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from stanct.arrays import Array
from stanct.engines.embedded import STATISTICS
from stanct.path.base import Base
from stanct.path.bias import Bias, CopyBias
from stanct.path.gaussian import GaussianBase

# int(handle, propto, jacobian, x, log density, gradient, error): see `Density.address`.
SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, *[ctypes.c_void_p] * 4
)

# The step size is a table over β, linear in log ε between knots (k / (K − 1))²: it changes fastest
# near β = 0.
STEP_KNOTS = 17

# Acceptances are reported in this many equal bins of β.
BETA_BINS = 10


class CallableDensity(Protocol):
    """The share of `Density` that compiled loops need."""

    @property
    def address(self) -> int:
        """Of the C function."""
        ...

    @property
    def handle(self) -> int:
        """Its first argument."""
        ...

    @property
    def constant(self) -> float:
        """What the log density has beside what the function returns."""
        ...


class Components(NamedTuple):
    """A mixture Σ_k π_k N(a_k, A_k A_kᵀ) in whitened coordinates; K = 0 is the standard normal.

    Attributes
    ----------
    share : shape (K,)
        π_k.
    log_weight : shape (K,)
        log π_k − log det A_k.
    place : shape (K, D)
        a_k.
    root, inverse : shape (K, D, D)
        A_k and its inverse, lower triangular.
    """

    share: Array
    log_weight: Array
    place: Array
    root: Array
    inverse: Array


class Problem(NamedTuple):
    """A density and a base in the form that compiled code takes.

    Valid as long as the density that it was made from lives.

    Attributes
    ----------
    call, handle
        The C function and its first argument.
    mean : shape (D,)
        m.
    lower : shape (D, D)
        L, where it is triangular; shape (0, 0) where it is a diagonal with a low rank.
    diagonal, factors, stretch : shapes (D,), (r, D) and (r,)
        L = diag(d) (I + Σ_j stretch_j u_j u_jᵀ) with the rows u_j of `factors`.
    added
        What the log density of z has beside what the function returns: log det L, and the density's
        constant.
    components
        Of a mixture, in whitened coordinates; none for the standard normal.
    """

    call: Any
    handle: int
    mean: Array
    lower: Array
    diagonal: Array
    factors: Array
    stretch: Array
    added: float
    components: Components


class State(NamedTuple):
    """Where a chain is, updated in place.

    Attributes
    ----------
    z, gradient : shape (D,)
        Whitened position and ∇v there.
    value : shape (1,)
        v(z); −inf where the target vanishes.
    """

    z: Array
    gradient: Array
    value: Array


class Scratch(NamedTuple):
    """Room for one trajectory, so that the loops allocate nothing.

    `log_base` holds log q at the two ends of a trajectory.
    """

    x: Array
    x_gradient: Array
    z: Array
    momentum: Array
    gradient: Array
    value: Array
    base_gradient: Array
    offset: Array
    centred: Array
    log_base: Array


class StepTable(NamedTuple):
    """Step size as a function of β, learned in place by stochastic approximation.

    Attributes
    ----------
    log_step, visits : shape (STEP_KNOTS,)
        log ε and the number of transitions that have informed each knot.
    """

    log_step: Array
    visits: Array


class Moves(NamedTuple):
    """How transitions are made; whether they also teach the step table.

    Attributes
    ----------
    path_length
        Mean length of a trajectory in whitened time; a standard normal's period is 2π.
    max_steps
        Most leapfrog steps of one trajectory.
    target_accept
        Acceptance that the step sizes are tuned to.
    learn
        Adapt the table; False once draws count.
    """

    path_length: float
    max_steps: int
    target_accept: float
    learn: bool


def make_problem(density: CallableDensity, base: Base) -> Problem:
    """Join a density and a base for compiled code."""
    scale = base.scale_factors
    return Problem(
        SIGNATURE(density.address),
        density.handle,
        np.ascontiguousarray(base.mean),
        _aligned(scale.lower),
        np.ascontiguousarray(scale.diagonal),
        np.ascontiguousarray(scale.vectors.T),
        np.ascontiguousarray(scale.stretch - 1),
        base.log_det_scale + density.constant,
        _make_components(base),
    )


def _aligned(matrix: Array) -> Array:
    """A copy that begins with a cache line; products with it take up to a quarter less time."""
    line = 64
    room = np.empty(matrix.size + line // matrix.itemsize)
    first = -room.ctypes.data % line // matrix.itemsize
    copy = room[first : first + matrix.size].reshape(matrix.shape)
    copy[:] = matrix
    return copy


def _make_components(base: Base) -> Components:
    dimension, mixture = base.dimension, base.components
    if mixture is None:
        square = np.zeros((0, dimension, dimension))
        none = np.zeros(0)
        return Components(none, none, np.zeros((0, dimension)), square, square)
    inverse = np.array(
        [solve_triangular(root, np.eye(dimension), lower=True) for root in mixture.roots]
    )
    return Components(
        np.ascontiguousarray(mixture.weights),
        np.log(mixture.weights) - mixture.log_det_roots,
        np.ascontiguousarray(mixture.places),
        np.ascontiguousarray(mixture.roots),
        np.ascontiguousarray(inverse),
    )


def make_scratch(dimension: int) -> Scratch:
    """Fresh room for trajectories in D dimensions."""
    one, two, three, four, five, six, seven, eight = np.zeros((8, dimension))
    value, log_base = np.zeros(1), np.zeros(2)
    return Scratch(one, two, three, four, five, value, six, seven, eight, log_base)


def make_table(dimension: int) -> StepTable:
    """A table to start learning from, at the D^(−1/4) of a D-dimensional normal."""
    return StepTable(np.full(STEP_KNOTS, -0.25 * np.log(dimension)), np.zeros(STEP_KNOTS))


def pool_tables(tables: list[StepTable]) -> StepTable:
    """Join what several chains learned; knots that none has seen follow their neighbours."""
    visits = np.sum([table.visits for table in tables], axis=0)
    total = np.sum([table.visits * table.log_step for table in tables], axis=0)
    seen = visits >= 1
    if not seen.any():
        return StepTable(tables[0].log_step.copy(), visits)
    knots = np.arange(STEP_KNOTS)
    log_step = np.interp(knots, knots[seen], total[seen] / visits[seen])
    return StepTable(log_step, visits)


def copy_table(table: StepTable) -> StepTable:
    """A table to go on learning from, with little weight on its past."""
    return StepTable(table.log_step.copy(), np.minimum(table.visits, 10.0))


class Extended(NamedTuple):
    """The joint or pseudo-extended density over w = (z_1, …, z_N, u_1, …, u_N).

    β_i = logistic(u_i).

    Attributes
    ----------
    problem
        Density and base.
    handover
        Whether the density is multiplied by Σ_i w_i / N, so that one of the copies is the target's.
    fixed : shape (N,)
        β_i where they are not estimated; shape (0,) otherwise.
    knots, value, path : shape (K,)
        Of β; there b(β), and the log prior density of β less b.
    room : shape (N,)
        For the evaluation.
    """

    problem: Problem
    handover: bool
    fixed: Array
    knots: Array
    value: Array
    path: Array
    room: Array


class Subtrees(NamedTuple):
    """Parts of a NUTS trajectory, one a row.

    Attributes
    ----------
    vectors : shape (rows, 5, dimension)
        Momenta where a part begins and ends, and the sum of all of its momenta; the point that was
        drawn from it, and the gradient of the log density there.
    scalars : shape (rows, 2 + N)
        Log density and energy of that point, and the δ of its copies.
    log_weight : shape (rows,)
        Log of the sum of its points' weights, exp(−energy error) where no step was halved.
    level : shape (rows,)
        A part has 2^level points.
    """

    vectors: Array
    scalars: Array
    log_weight: Array
    level: Array


class NutsOut(NamedTuple):
    """What a block of NUTS draws fills: w, δ, and statistics in the order of `STATISTICS`."""

    w: Array
    delta: Array
    statistics: Array


class GibbsOut(NamedTuple):
    """What a block of draws fills; every array begins with the draws' axis but `bins`."""

    z: Array
    beta: Array
    delta: Array
    accept: Array
    gradients: Array
    step: Array
    divergent: Array
    rejected: Array
    bins: Array


def make_extended(
    density: CallableDensity, base: GaussianBase, bias: Bias | CopyBias, copies: int, fixed: Array
) -> Extended:
    """Join a density, a base and a bias; one with a prior makes the density pseudo-extended."""
    handover = isinstance(bias, CopyBias)
    path = bias.log_prior - bias.value if handover else -bias.value
    problem = make_problem(density, base)
    fixed, room = np.array(fixed, float), np.zeros(copies)
    return Extended(problem, handover, fixed, bias.beta, bias.value, path, room)


def make_subtrees(max_depth: int, dimension: int, copies: int) -> Subtrees:
    """Room for a trajectory, its ends, a step, and the parts of its last doubling."""
    rows = max_depth + 6
    return Subtrees(
        np.zeros((rows, 5, dimension)),
        np.zeros((rows, 2 + copies)),
        np.zeros(rows),
        np.zeros(rows, np.int64),
    )


def make_nuts_out(draws: int, dimension: int, copies: int) -> NutsOut:
    """Room for a block of draws."""
    return NutsOut(
        np.zeros((draws, dimension)), np.zeros((draws, copies)), np.zeros((draws, len(STATISTICS)))
    )


def make_gibbs_out(draws: int, dimension: int) -> GibbsOut:
    """Room for a block of draws."""
    zeros = np.zeros((7, draws))
    return GibbsOut(
        np.zeros((draws, dimension)),
        zeros[0],
        zeros[1],
        zeros[2],
        zeros[3],
        zeros[4],
        zeros[5],
        zeros[6],
        np.zeros((2, BETA_BINS)),
    )


class Tally(NamedTuple):
    """What became of the transitions of a block of particles.

    Attributes
    ----------
    counts : shape (5,)
        Gradients, transitions, sum of acceptance probabilities, divergences, rejections.
    bins : shape (2, bins)
        In equal bins of β: transitions, sum of acceptance probabilities.
    """

    counts: Array
    bins: Array


def make_tally() -> Tally:
    """A tally of nothing."""
    return Tally(np.zeros(5), np.zeros((2, BETA_BINS)))


class Rungs(NamedTuple):
    """The states of one ladder, rung k at β_k, updated in place.

    Attributes
    ----------
    z, gradient : shape (K, D)
    value : shape (K, 1)
    walker : shape (K,)
        Which walker stands on each rung; swaps exchange walkers.
    heading : shape (K,)
        By walker: 0 before it has met the base, 1 since it last met the base, 2 since it last met
        the target, coming from the base.
    clock : shape (2,)
        Scans made, whose parity chooses the pairs to swap, and round trips finished.
    """

    z: Array
    gradient: Array
    value: Array
    walker: Array
    heading: Array
    clock: Array


class LadderOut(NamedTuple):
    """What a block of scans fills.

    Attributes
    ----------
    z : shape (scans, D)
        At β = 1.
    delta : shape (scans, K)
        +inf only on rung 0, where the target may vanish.
    gradients : shape (scans,)
    rejection : shape (2, K − 1)
        Number of swaps tried, and the sum of their rejection probabilities.
    counts : shape (4, K)
        By rung: transitions, sum of acceptance probabilities, divergences, rejections by Stan.
    round_trips : shape (1,)
        Finished since the ladder's clock was set to zero, earlier blocks included.
    """

    z: Array
    delta: Array
    gradients: Array
    rejection: Array
    counts: Array
    round_trips: Array


def make_rungs(z: Array) -> Rungs:
    """Rungs at whitened places, shape (K, D); values and gradients are yet to be computed."""
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
    """Room for a block of scans."""
    return LadderOut(
        np.zeros((scans, dimension)),
        np.zeros((scans, rungs)),
        np.zeros(scans),
        np.zeros((2, rungs - 1)),
        np.zeros((4, rungs)),
        np.zeros(1, np.int64),
    )


class Flow(NamedTuple):
    """How a contact flow is run.

    Attributes
    ----------
    rate, offset
        dβ/ds = rate (β + offset) |p|².
    step
        Largest time step, in whitened time.
    refresh
        Time between momentum resamplings; infinite for none.
    max_steps
        Most steps of one trajectory.
    """

    rate: float
    offset: float
    step: float
    refresh: float
    max_steps: int


class Swarm(NamedTuple):
    """A block of trajectories of a contact flow and its records, updated in place.

    Attributes
    ----------
    z, gradient, momentum : shape (T, D)
    value : shape (T, 1)
    totals : shape (T, 4)
        H₀ (NaN before the start), log Jacobian, time since the momentum was drawn, steps.
    delta, kinetic, flow_log_z, log_weights : shape (T, K)
        At the nodes: δ; T = ½ |p|²; −(T + V_B + β δ + H₀); and that plus the log Jacobian. NaN, and
        −∞ for the weights, where a trajectory has not been.
    counts : shape (5,)
        Gradients, momentum resamplings, trajectories that stalled, left the support, diverged.
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
    """Trajectories at whitened places, shape (T, D), yet without values and momenta."""
    count = len(z)
    totals = np.zeros((count, 4))
    totals[:, 0] = np.nan
    blank = np.full((3, count, nodes), np.nan)
    return Swarm(
        np.array(z, float),
        np.zeros_like(z, float),
        np.zeros_like(z, float),
        np.full((count, 1), -np.inf),
        totals,
        blank[0],
        blank[1],
        blank[2],
        np.full((count, nodes), -np.inf),
        np.zeros(5),
    )
