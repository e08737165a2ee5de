"""Densities in compiled form: a target with its base, and the extended density of copies."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from stanct.common.arrays import Array
from stanct.path.base import Base
from stanct.path.bias import Bias, CopyBias, PowerBias

# int(handle, propto, jacobian, x, log density, gradient, error): see `Density.address`.
SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, *[ctypes.c_void_p] * 4
)


class CallableDensity(Protocol):
    """The part of `Density` that compiled loops need."""

    @property
    def address(self) -> int:
        """Address of the C function."""
        ...

    @property
    def handle(self) -> int:
        """First argument of the C function."""
        ...

    @property
    def constant(self) -> float:
        """Constant to add to the value that the C function returns."""
        ...


class Components(NamedTuple):
    """A mixture Σ_k π_k N(a_k, A_k A_kᵀ) in whitened coordinates; K = 0 is the standard normal.

    π_k, log π_k − log det A_k, a_k, and lower triangular A_k with its inverse, shape (K, D, D).
    """

    share: Array
    log_weight: Array
    place: Array
    root: Array
    inverse: Array


class Problem(NamedTuple):
    """A density and a base in the form that compiled code takes; valid while the density lives.

    `call` is the C function, with `handle`. `mean` is m, shape (D,). `lower`, (D, D), is a
    triangular L, or of shape (0, 0) for L = diag(d) (I + Σ_j stretch_j u_j u_jᵀ) with the rows u_j
    of `factors`, (r, D). `added` to the function's value gives the log density of z. No
    `components` stand for the standard normal.
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


class Extended(NamedTuple):
    """The joint or pseudo-extended density over w = (z_1, …, z_N, u_1, …, u_N).

    β_i = low + (high − low) logistic(u_i), or `fixed`, shape (N,). With `handover`, the density is
    multiplied by Σ_i w_i / N, so that one of the copies follows the target. At `knots`, (K,),
    `value` is b(β), and `path` the log prior of β minus b. `room`, (N,), and `masses`, (K,), are
    working memory. `atom` is p₀, the weight of β = 0 without hand-overs; the density is that of the
    other β. Unless `from_base`, copies follow powers of the target, with 1 in place of the base's
    density.
    """

    problem: Problem
    handover: bool
    fixed: Array
    knots: Array
    value: Array
    path: Array
    room: Array
    masses: Array
    atom: float
    from_base: bool
    low: float
    high: float


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
    """Copy a matrix to the start of a cache line, which saves up to a quarter of a product."""
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


def make_extended(
    density: CallableDensity, base: Base, bias: Bias | CopyBias, copies: int, fixed: Array
) -> Extended:
    """Join density, base and bias; with a `PowerBias`, the base is a choice of coordinates."""
    handover = isinstance(bias, CopyBias)
    path = bias.log_prior - bias.value if handover else -bias.value
    problem = make_problem(density, base)
    fixed, room = np.array(fixed, float), np.zeros(copies)
    from_base, low, high = True, 0.0, 1.0
    if isinstance(bias, PowerBias):
        from_base, (low, high) = False, bias.bounds
        problem = problem._replace(added=density.constant)
    # One layout for all biases, for which loops are compiled once.
    knots, value = np.ascontiguousarray(bias.beta), np.ascontiguousarray(bias.value)
    return Extended(
        problem, handover, fixed, knots, value, path, room, np.zeros(knots.size),
        0.0 if isinstance(bias, CopyBias) else bias.atom, from_base, low, high,
    )  # fmt: skip
