"""Gaussians of some coordinates of a target, given the others, by Laplace's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from stanct.arrays import Array
from stanct.path.gaussian import LOG_2PI

# The step of differences of gradients, in standard deviations.
DIFFERENCE = 1e-3
# Newton's method: how often second derivatives are taken at most, halvings of a step, and the
# expected gain, in nats, below which it has arrived. Where a whole step leaves so small a share of
# its gain, the curvature is constant.
MOST_CURVATURES, HALVINGS, ARRIVED, EXACT = 6, 8, 1e-3, 1e-6
# The smallest curvature of a direction, relative to that of the Gaussian from which Newton's method
# starts.
FLATTEST = 1e-4

Gradients = Callable[[Array], tuple[Array, Array]]


class Conditional(NamedTuple):
    """A Gaussian of the n inner coordinates, given the outer ones.

    Attributes
    ----------
    mean : shape (n,)
    root : shape (n, n)
        L, where the covariance is L Lᵀ. It need not be triangular.
    log_det
        log |det L|.
    log_top
        Log density of the target at the mean.
    """

    mean: Array
    root: Array
    log_det: float
    log_top: float

    @classmethod
    def of_points(cls, points: Array) -> Conditional:
        """The Gaussian with the moments of points of shape (count, n), its top unknown."""
        covariance = np.cov(points.T).reshape(2 * points.shape[1:])
        spread = np.sqrt(np.diag(covariance))
        values, vectors = np.linalg.eigh(covariance / np.outer(spread, spread))
        values = np.maximum(values, FLATTEST)
        root = spread[:, None] * vectors * np.sqrt(values)
        log_det = float(np.log(spread).sum() + 0.5 * np.log(values).sum())
        return cls(points.mean(axis=0), root, log_det, -np.inf)

    @property
    def log_mass(self) -> float:
        """Log of the target's mass over the inner coordinates (Tierney & Kadane 1986)."""
        return self.log_top + self.log_det + 0.5 * self.mean.size * LOG_2PI

    def noise(self, inner: Array) -> Array:
        """L⁻¹ (x − m) for inner coordinates x of shape (n,)."""
        return np.linalg.solve(self.root, inner - self.mean)

    def log_density(self, noise: Array) -> float:
        """The Gaussian's log density at m + L e, for noise e of shape (n,)."""
        return float(-0.5 * noise @ noise - self.log_det - 0.5 * noise.size * LOG_2PI)


class Slices:
    """The slices of a target at fixed outer coordinates.

    Parameters
    ----------
    gradients
        Log densities and their gradients, shapes (m,) and (m, D), at unconstrained points of shape
        (m, D).
    outer : shape (D,)
        Whether a coordinate is an outer one.

    Attributes
    ----------
    spent
        Gradients so far.
    """

    def __init__(self, gradients: Gradients, outer: Array) -> None:
        self._gradients, self._outer, self._inner = gradients, outer, ~outer
        self.spent = 0

    def joined(self, theta: Array, inner: Array) -> Array:
        """The points with these outer and inner coordinates, shape (m, D).

        Parameters
        ----------
        theta : shape (k,) or (m, k)
        inner : shape (m, n)
        """
        points = np.empty((len(inner), self._outer.size))
        points[:, self._outer], points[:, self._inner] = theta, inner
        return points

    def at(self, theta: Array, near: Conditional) -> Conditional:
        """The Gaussian at the top of a slice, by Newton's method from another slice's Gaussian.

        Where the slice has no top, it is the last Gaussian on the way there. Every Gaussian is a
        function of `theta` and `near` alone.

        Parameters
        ----------
        theta : shape (k,)
            Values of the outer coordinates.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._newton(theta, near)

    def _newton(self, theta: Array, near: Conditional) -> Conditional:
        mean, root, log_det, _ = near
        value, slope = self._at(theta, mean)
        for _ in range(MOST_CURVATURES):
            curvature = self._curvature(theta, mean, root, slope)
            if curvature is None:
                break
            factor, log_factor = _inverse_root(curvature)
            root, log_det = root @ factor, log_det + log_factor
            step = root.T @ slope
            gain = 0.5 * float(step @ step)
            fraction = 1.0
            for _ in range(HALVINGS):
                further = mean + fraction * (root @ step)
                reached, there = self._at(theta, further)
                # Rounding may hide how much higher a point is that is hardly higher.
                if reached > value or (gain < ARRIVED and np.isfinite(reached)):
                    break
                fraction /= 2
            else:
                break
            mean, value, slope = further, reached, there
            left = root.T @ slope
            exact = fraction == 1.0 and 0.5 * left @ left < EXACT * max(gain, ARRIVED)
            if exact or gain < ARRIVED:
                break
        return Conditional(mean, root, log_det, value)

    def _at(self, theta: Array, inner: Array) -> tuple[float, Array]:
        values, slopes = self.slopes(theta, inner[None])
        return float(values[0]), slopes[0]

    def slopes(self, theta: Array, inner: Array) -> tuple[Array, Array]:
        """Log densities, shape (m,), and their slopes along the inner coordinates, shape (m, n).

        Parameters
        ----------
        theta, inner
            As in `joined`.
        """
        self.spent += len(inner)
        values, gradients = self._gradients(self.joined(theta, inner))
        return values, gradients[:, self._inner]

    def _curvature(self, theta: Array, mean: Array, root: Array, slope: Array) -> Array | None:
        """Minus the second derivatives along the columns of a root; None where there are none."""
        values, slopes = self.slopes(theta, mean + DIFFERENCE * root.T)
        curvature = (slope - slopes) @ root / DIFFERENCE
        if not (np.isfinite(values).all() and np.isfinite(curvature).all()):
            return None
        return (curvature + curvature.T) / 2


def _inverse_root(curvature: Array) -> tuple[Array, float]:
    """A with A Aᵀ = C⁻¹, and log |det A|; for C with the absolute eigenvalues of a curvature."""
    try:
        lower = np.linalg.cholesky(curvature)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(np.abs(values), FLATTEST)
        return vectors / np.sqrt(values), -0.5 * float(np.log(values).sum())
    upper = solve_triangular(lower, np.eye(len(lower)), lower=True).T
    return upper, -float(np.log(np.diag(lower)).sum())
