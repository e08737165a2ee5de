"""Gaussians of some coordinates of a target, given the others, by Laplace's method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from stanct.common.arrays import Array
from stanct.path.curvature import Colouring, Gradients
from stanct.path.gaussian import LOG_2PI

# Halvings of a step of Newton's method, and the expected gain, in nats, below which it has arrived.
HALVINGS, ARRIVED = 8, 1e-3
# The smallest curvature of a direction, in the units in which second derivatives are taken.
FLATTEST = 1e-4
# Numbers in the matrices of a batch of Gaussians, about.
_BATCH = 2**18

_cholesky, _solve = get_lapack_funcs(("potrf", "trtrs"))


class Newton(NamedTuple):
    """When steps of Newton's method end.

    Second derivatives are taken so many times at most. Where a whole step leaves less than `exact`
    nats to gain, the curvature counts as constant. `longest` is in the larger one of the first and
    the slice's standard deviations.
    """

    curvatures: int = 6
    exact: float = 1e-9
    longest: float = np.inf


NEWTON = Newton()


class Conditionals(NamedTuple):
    """Gaussians of the n inner coordinates, given the outer ones at m places.

    `mean`, shape (m, n), and lower triangular `factor` F, shape (m, n, n), where the precision is F
    Fᵀ. `log_top`, shape (m,), is the target's log density at the mean. `is_top` says whether
    Newton's method arrived and the target falls off in every direction.
    """

    mean: Array
    factor: Array
    log_top: Array
    is_top: Array

    @property
    def log_mass(self) -> Array:
        """Log of the target's mass over the inner coordinates (Tierney & Kadane 1986)."""
        return self.log_top - self._log_peak

    @property
    def spread(self) -> Array:
        """Standard deviations, shape (m, n)."""
        return _spread(self.factor)

    def drawn(self, noise: Array) -> Array:
        """m + F⁻ᵀ e for noise e of shape (m, n), a draw if the noise is standard normal."""
        return self.mean + _solved(self.factor, noise, transposed=True)

    def noise(self, inner: Array) -> Array:
        """Fᵀ (x − m) for inner coordinates x of shape (m, n)."""
        return ((inner - self.mean)[:, None] @ self.factor)[:, 0]

    def made(self, noise: Array) -> tuple[Array, Array]:
        """Draws from standard normal noise of shape (m, n), and their log densities."""
        return self.drawn(noise), self._log_peak - 0.5 * np.square(noise).sum(axis=1)

    def log_density(self, inner: Array) -> Array:
        """The Gaussians' log densities, shape (m,), at inner coordinates of shape (m, n)."""
        return self._log_peak - 0.5 * np.square(self.noise(inner)).sum(axis=1)

    @property
    def _log_peak(self) -> Array:
        """The Gaussians' log densities at their means."""
        diagonal = np.diagonal(self.factor, axis1=1, axis2=2)
        return np.log(diagonal).sum(axis=1) - 0.5 * self.mean.shape[1] * LOG_2PI


class Slices:
    """The slices of a target at fixed outer coordinates.

    `gradients` gives log densities and gradients, shapes (m,) and (m, D), at points of shape (m,
    D); `outer`, shape (D,), says which coordinates are outer ones.
    """

    def __init__(self, gradients: Gradients, outer: Array) -> None:
        self._gradients, self._outer, self._inner = gradients, outer, ~outer
        self.spent = 0

    def joined(self, theta: Array, inner: Array) -> Array:
        """Points, shape (m, D), of outer θ, (k,) or (m, k), and inner coordinates (m, n)."""
        points = np.empty((len(inner), self._outer.size))
        points[:, self._outer], points[:, self._inner] = theta, inner
        return points

    def slopes(self, theta: Array, inner: Array) -> tuple[Array, Array]:
        """Log densities, shape (m,), and their slopes along the inner coordinates, shape (m, n)."""
        self.spent += len(inner)
        values, gradients = self._gradients(self.joined(theta, inner))
        return values, gradients[:, self._inner]

    def gaussians(
        self, theta: Array, mean: Array, spread: Array, colouring: Colouring, rules: Newton = NEWTON
    ) -> Iterator[tuple[slice, Conditionals]]:
        """The Gaussians at the tops of slices at θ, shape (m, k), by Newton's method.

        It starts at `mean` with standard deviations `spread`, both of shape (m, n). Where a slice
        has no top, it is the last Gaussian on the way there. Each is a function of its own θ, mean
        and spread.
        """
        size = max(_BATCH // mean.shape[1] ** 2, 1)
        for start in range(0, len(theta), size):
            batch = slice(start, start + size)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found = self._newton(theta[batch], mean[batch], spread[batch], colouring, rules)
            yield batch, found

    def _newton(
        self, theta: Array, mean: Array, spread: Array, colouring: Colouring, rules: Newton
    ) -> Conditionals:
        """The Gaussians at the tops of slices, all in lock-step."""
        mean, spread, left = mean.copy(), spread.copy(), np.arange(len(theta))
        is_top, first = np.zeros(len(theta), bool), spread.copy()
        factor = np.eye(mean.shape[1]) / spread[:, None]
        value, slope = self.slopes(theta, mean)
        for _ in range(rules.curvatures):
            curved = self._curvature(theta[left], mean[left], slope[left], spread[left], colouring)
            known = np.isfinite(curved).all(axis=(1, 2))
            scaled, falling = _factored(curved[known])
            found = scaled / spread[left[known]][..., None]
            # The least curvature may be lost in the rounding of the largest.
            regular = np.diagonal(found, axis1=1, axis2=2).all(axis=1)
            left, falling = left[known][regular], falling[regular]
            factor[left] = found[regular]
            half = _solved(factor[left], slope[left])
            step = _solved(factor[left], half, transposed=True)
            gain = 0.5 * np.square(half).sum(axis=1)
            far = (np.abs(step) / first[left]).max(axis=1, initial=1e-300)
            if (long := far > rules.longest).any():
                widest = np.maximum(first[left[long]], _spread(factor[left[long]]))
                far[long] = (np.abs(step[long]) / widest).max(axis=1)
            fraction, rising = np.minimum(1.0, rules.longest / far), np.arange(len(left))
            for _ in range(HALVINGS):
                at = left[rising]
                further = mean[at] + fraction[rising, None] * step[rising]
                reached, there = self.slopes(theta[at], further)
                # Rounding may hide how much higher a point is that is hardly higher.
                risen = (reached > value[at]) | ((gain[rising] < ARRIVED) & np.isfinite(reached))
                at = at[risen]
                mean[at], value[at], slope[at] = further[risen], reached[risen], there[risen]
                rising = rising[~risen]
                if not rising.size:
                    break
                fraction[rising] /= 2
            rest = 0.5 * np.square(_solved(factor[left], slope[left])).sum(axis=1)
            arrived = (gain < ARRIVED) | ((fraction == 1.0) & (rest < rules.exact))
            is_top[left] = arrived & falling
            arrived[rising] = True
            left = left[~arrived]
            if not left.size:
                break
            spread[left] = _spread(factor[left])
        return Conditionals(mean, factor, value, is_top)

    def _curvature(
        self, theta: Array, mean: Array, slope: Array, spread: Array, colouring: Colouring
    ) -> Array:
        """Minus the second derivatives in units of the spreads, NaN where there are none."""

        def beside(inner: Array) -> tuple[Array, Array]:
            return self.slopes(np.repeat(theta, len(inner) // len(theta), axis=0), inner)

        return -colouring.second_derivatives(beside, mean, slope, spread)


def _factored(matrices: Array) -> tuple[Array, Array]:
    """F with F Fᵀ = C, of absolute eigenvalues, and whether C was positive definite."""
    factors, positive = np.empty_like(matrices), np.ones(len(matrices), bool)
    for number, matrix in enumerate(matrices):
        upper, failed = _cholesky(matrix)
        positive[number] = not failed
        if failed:
            values, vectors = np.linalg.eigh(matrix)
            root = vectors * np.sqrt(np.maximum(np.abs(values), FLATTEST))
            upper = np.linalg.qr(root.T).R
            upper *= np.sign(upper.diagonal())[:, None]
        factors[number] = upper.T
    return factors, positive


def _solved(factors: Array, vectors: Array, *, transposed: bool = False) -> Array:
    """F⁻¹ v, or F⁻ᵀ v, for each of some lower triangular matrices and vectors."""
    solved = np.empty_like(vectors)
    for n, (factor, vector) in enumerate(zip(factors, vectors, strict=True)):
        # LAPACK takes the memory of F for that of Fᵀ, an upper triangular matrix.
        solved[n] = _solve(factor.T, vector, trans=not transposed)[0]
    return solved


def _spread(factors: Array) -> Array:
    """Standard deviations of Gaussians with the precisions F Fᵀ."""
    return np.linalg.norm(np.linalg.inv(factors), axis=1)
