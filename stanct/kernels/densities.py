"""What compiled loops evaluate: a density with its base, and the density of copies with their β."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from stanct.arrays import Array
from stanct.path.base import Base
from stanct.path.bias import Bias, CopyBias
from stanct.path.gaussian import GaussianBase

# int(handle, propto, jacobian, x, log density, gradient, error): see `Density.address`.
SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, *[ctypes.c_void_p] * 4
)


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


def make_extended(
    density: CallableDensity, base: GaussianBase, bias: Bias | CopyBias, copies: int, fixed: Array
) -> Extended:
    """Join a density, a base and a bias; one with a prior makes the density pseudo-extended."""
    handover = isinstance(bias, CopyBias)
    path = bias.log_prior - bias.value if handover else -bias.value
    problem = make_problem(density, base)
    fixed, room = np.array(fixed, float), np.zeros(copies)
    return Extended(problem, handover, fixed, bias.beta, bias.value, path, room)
