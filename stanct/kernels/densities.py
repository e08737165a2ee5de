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

    A problem is valid as long as the density from which it was made lives.

    Attributes
    ----------
    call, handle
        The C function and its first argument.
    mean : shape (D,)
        m.
    lower : shape (D, D)
        L if it is triangular; shape (0, 0) if it is diagonal plus low rank.
    diagonal, factors, stretch : shapes (D,), (r, D) and (r,)
        L = diag(d) (I + Σ_j stretch_j u_j u_jᵀ) with the rows u_j of `factors`.
    added
        Constant that is added to the value of the C function to give the log density of z: log det
        L plus the density's constant.
    components
        Mixture components in whitened coordinates; none for the standard normal.
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

    β_i = low + (high − low) logistic(u_i), with bounds 0 and 1 on the path from the base.

    Attributes
    ----------
    handover
        Whether the density is multiplied by Σ_i w_i / N, so that one of the copies follows the
        target.
    fixed : shape (N,)
        Fixed β_i; shape (0,) if the β_i are estimated.
    knots, value, path : shape (K,)
        Knots of β, and at the knots b(β) and the log prior density of β minus b(β).
    room : shape (N,)
        For the evaluation.
    masses : shape (K,)
        For the law of β.
    atom
        p₀, the weight of β = 0 against all other β; only without hand-overs. The density itself is
        that of the other β.
    from_base
        Whether copies follow the path from the base. Otherwise they follow powers of the target in
        the user's unconstrained coordinates, with 1 in place of the base's density.
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
    """Join a density, a base and a bias; a `CopyBias` makes the density pseudo-extended.

    With a `PowerBias` the base is a choice of coordinates alone.
    """
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
