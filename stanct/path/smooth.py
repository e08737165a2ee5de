"""Gaussians of hundreds of coordinates that change smoothly with a few others.

Newton's method takes a gradient for each narrow direction, at every place. Some dozens of places
tell of all others: means and logarithms of precisions are interpolated by cubic radial functions
and a quadratic (Wendland 2005, section 8). Logarithms are nearly linear in the log of a scale, and
their exponentials are precisions, whatever lies between (Arsigny et al. 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.path.conditional import Slices
from stanct.path.gaussian import LOG_2PI
from stanct.path.narrowed import Frame, Narrowed

# Directions count along which the mean square of the log precision is larger.
LEAST = 1e-5
# Gaussians that are computed at once.
_AT_ONCE = 32


class Smoothed(NamedTuple):
    """Gaussians of n inner coordinates at m places, with precisions exp(G) in units of `diagonal`.

    G = Q U diag(g) Uᵀ Qᵀ with `directions` Q, shape (n, R), `turned` U, (m, R, R), and `logs` g,
    (m, R). `mean` has shape (m, n). `log_mass`, (m,), is NaN where nobody asked for it.
    """

    mean: Array
    diagonal: Array
    directions: Array
    turned: Array
    logs: Array
    log_mass: Array

    def made(self, noise: Array) -> tuple[Array, Array]:
        """Draws from standard normal noise of shape (m, n), and their log densities."""
        along = self._along(noise) * np.expm1(-0.5 * self.logs)
        moved = _rows(_rows(along, self.turned.transpose(0, 2, 1)), self.directions.T)
        inner = self.mean + self.diagonal * (noise + moved)
        return inner, self.log_peak - 0.5 * np.square(noise).sum(axis=1)

    def log_density(self, inner: Array) -> Array:
        """The Gaussians' log densities, shape (m,), at inner coordinates of shape (m, n)."""
        away = (inner - self.mean) / self.diagonal
        along = np.square(self._along(away)) * np.expm1(self.logs)
        return self.log_peak - 0.5 * (np.square(away).sum(axis=1) + along.sum(axis=1))

    @property
    def log_peak(self) -> Array:
        """The Gaussians' log densities at their means, shape (m,)."""
        half = np.log(self.diagonal).sum() + 0.5 * self.diagonal.size * LOG_2PI
        return 0.5 * self.logs.sum(axis=1) - half

    def _along(self, rows: Array) -> Array:
        return _rows(_rows(rows, self.directions), self.turned)


class Smooth(NamedTuple):
    """What tells Gaussians of n coordinates at places θ = middle + unit · u, of k coordinates.

    `nodes` are M places u, shape (M, k), and `spline`, (M + q, M), turns the functions at u into
    weights of what is known at the nodes: means, `offsets` from `centre` in units of `diagonal`,
    (M, n), and logarithms of precisions along `directions`, `logs`, (M, R, R).
    """

    centre: Array
    diagonal: Array
    directions: Array
    middle: Array
    unit: Array
    nodes: Array
    spline: Array
    offsets: Array
    logs: Array

    @classmethod
    def of(
        cls, frame: Frame, moments: tuple[Array, Array], nodes: Array, known: Sequence[Narrowed]
    ) -> Smooth:
        """From Gaussians at nodes u, shape (M, k), of a frame; moments are `middle` and `unit`."""
        gaussians = [one.gaussian for one in known]
        roots = [q.vectors * np.log(q.stretch) * 2 for q in gaussians]
        squares = sum(root @ root.T for root in roots) / len(roots)
        values, vectors = np.linalg.eigh(squares)
        directions = np.ascontiguousarray(vectors[:, values > LEAST])
        logs = np.empty((len(nodes), directions.shape[1], directions.shape[1]))
        for n, q in enumerate(gaussians):
            inner = directions.T @ q.vectors
            logs[n] = (inner * (-2 * np.log(q.stretch))) @ inner.T
        offsets = np.array([(q.mean - frame.centre) / frame.diagonal for q in gaussians])
        return cls(
            frame.centre, frame.diagonal, directions, *moments, nodes, _spline(nodes), offsets, logs
        )

    def at(self, theta: Array) -> Iterator[tuple[slice, Smoothed]]:
        """The Gaussians at places of shape (m, k), each a function of its own alone."""
        inverse = np.linalg.inv(self.unit).T
        reach = np.sqrt(np.square(self.nodes).sum(axis=1).max())
        for start in range(0, len(theta), _AT_ONCE):
            batch = slice(start, start + _AT_ONCE)
            u = _rows(theta[batch] - self.middle, inverse)
            # Beyond the nodes there are the Gaussians of the edge.
            far = np.maximum(np.sqrt(np.square(u).sum(axis=1, keepdims=True)) / reach, 1.0)
            weights = _rows(_functions(u / far, self.nodes), self.spline)
            curved = _rows(weights, self.logs.reshape(len(self.nodes), -1))
            logs, turned = np.linalg.eigh(curved.reshape(-1, *self.logs.shape[1:]))
            mean = self.centre + self.diagonal * _rows(weights, self.offsets)
            unknown = np.full(len(u), np.nan)
            yield batch, Smoothed(mean, self.diagonal, self.directions, turned, logs, unknown)

    def massed(self, slices: Slices, theta: Array) -> Iterator[tuple[slice, Smoothed]]:
        """The same with log masses, for a gradient each; too low where the mean is not the top."""
        for batch, found in self.at(theta):
            values, _ = slices.slopes(theta[batch], found.mean)
            yield batch, found._replace(log_mass=values - found.log_peak)


def interpolated(nodes: Array, values: Array, u: Array) -> Array:
    """Values at u, shape (m, k), from those at nodes of shape (M, k)."""
    return _functions(u, nodes) @ (_spline(nodes) @ values)


def _rows(rows: Array, matrices: Array) -> Array:
    """Each row, of shape (m, n), times its matrix; bits do not depend on the other rows."""
    return (rows[:, None] @ matrices)[:, 0]


def _functions(u: Array, nodes: Array) -> Array:
    """Cubes of distances to nodes, and monomials up to squares, at u, shape (m, M + q)."""
    squares = np.square(u[:, None] - nodes).sum(axis=2)
    first, second = np.triu_indices(u.shape[1])
    ones, products = np.ones((len(u), 1)), u[:, first] * u[:, second]
    return np.concatenate([squares * np.sqrt(squares), ones, u, products], axis=1)


def _spline(nodes: Array) -> Array:
    """What turns the functions at u into weights of the nodes, shape (M + q, M)."""
    functions, count = _functions(nodes, nodes), len(nodes)
    system = np.zeros((functions.shape[1],) * 2)
    system[:count] = functions
    system[count:, :count] = functions[:, count:].T
    # The least one where nodes do not tell all squares.
    return np.ascontiguousarray(np.linalg.pinv(system)[:, :count])
