"""Gaussians of hundreds of coordinates, given a few, that are narrow along some directions alone.

Given its scales, a Gaussian process has the density of its prior but for the directions that the
data tell, a dozen of a thousand. The curvature is then a diagonal and a matrix of low rank, which
a gradient for each direction gives, in place of one for each coordinate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.path.conditional import Slices
from stanct.path.gaussian import LOG_2PI
from stanct.path.low_rank import LowRankBase

# The step of differences of gradients, in units of the frame. Slices are Gaussian, so that it may
# be long.
STEP = 1e-2
# Newton's steps at most, the expected gain, in nats, below which they have arrived, and the one
# above which the last place is no top.
MOST_STEPS, ARRIVED, NEARLY = 6, 1e-6, 1e-3
# Curvatures along a direction that are smaller than the first number are of none, or of rounding
# where A times the direction is so many times as long. The smallest precision, relative to that of
# the frame.
LEAST, LONGEST, FLATTEST = 1e-6, 30.0, 1e-4


class Frame(NamedTuple):
    """The coordinates in which Gaussians of n inner coordinates are nearly standard normal.

    Newton's steps start at `centre`, in units of `diagonal`. Orthonormal `vectors`, shape (n, r),
    span, nearly, the directions in which curvatures are not 1.
    """

    centre: Array
    diagonal: Array
    vectors: Array


class Narrowed(NamedTuple):
    """A Gaussian of the inner coordinates, and their log mass: −inf where a slice has no top."""

    gaussian: LowRankBase
    log_mass: float

    def made(self, noise: Array) -> tuple[Array, Array]:
        """Draws from standard normal noise of shape (m, n), and their log densities."""
        inner = self.gaussian.unwhiten(noise)
        return inner, self.gaussian.log_density(inner)

    def log_density(self, inner: Array) -> Array:
        """The Gaussian's log densities, shape (m,), at inner coordinates of shape (m, n)."""
        return self.gaussian.log_density(inner)


def frame_of(mean: Array, precision: Array, *, sweeps: int, tolerance: float) -> Frame:
    """The frame of a Gaussian of `mean` (n,) and `precision` (n, n), by factor analysis in sweeps.

    Directions belong to it whose curvatures differ from 1 by more than the tolerance.
    """
    own, variance = np.diag(precision), np.diag(np.linalg.inv(precision))
    diagonal, directions = np.sqrt(variance), np.zeros((mean.size, 0))
    for _ in range(sweeps):
        values, vectors = np.linalg.eigh(precision * np.outer(diagonal, diagonal))
        narrow = values > 1 + tolerance
        explained = np.square(vectors[:, narrow]) @ (values[narrow] - 1) / np.square(diagonal)
        diagonal = 1 / np.sqrt(np.maximum(own - explained, FLATTEST / variance))
    values, vectors = np.linalg.eigh(precision * np.outer(diagonal, diagonal))
    directions = vectors[:, np.abs(values - 1) > tolerance]
    return Frame(mean, diagonal, directions)


def narrowed(slices: Slices, theta: Array, frame: Frame) -> Narrowed:
    """The Gaussian at the top of a slice, a function of `theta`, shape (k,), and `frame` alone.

    Nyström's curvature is exact if its rank is no larger than the number of the frame's directions.
    """
    mean, diagonal = frame.centre, frame.diagonal
    points = np.concatenate([mean[None], mean + STEP * diagonal * frame.vectors.T])
    with np.errstate(over="ignore", invalid="ignore"):
        values, slopes = slices.slopes(theta, points)
        products = (slopes[0] - slopes[1:]).T * diagonal[:, None] / STEP - frame.vectors
    if not (np.isfinite(values).all() and np.isfinite(products).all()):
        return _none(frame)
    curvature, vectors = _nystroem(frame.vectors, products)
    if np.any(curvature < FLATTEST - 1):
        return _none(frame)
    stretch = 1 / np.sqrt(1 + curvature)
    value, slope, gain = values[0], diagonal * slopes[0], np.inf
    for _ in range(MOST_STEPS):
        step = slope + vectors @ ((np.square(stretch) - 1) * (slope @ vectors))
        gain = 0.5 * float(slope @ step)
        if gain < ARRIVED:
            break
        mean = mean + diagonal * step
        (value,), (slope,) = slices.slopes(theta, mean[None])
        slope = diagonal * slope
    if not (np.isfinite(value) and gain < NEARLY):
        return _none(frame)
    gaussian = LowRankBase(mean, diagonal, vectors, stretch)
    return Narrowed(gaussian, value + gaussian.log_det_scale + 0.5 * mean.size * LOG_2PI)


def _none(frame: Frame) -> Narrowed:
    """What stands for a slice without a top."""
    ones = np.ones(frame.vectors.shape[1])
    return Narrowed(LowRankBase(frame.centre, frame.diagonal, frame.vectors, ones), -np.inf)


def _nystroem(directions: Array, products: Array) -> tuple[Array, Array]:
    """Eigenvalues, shape (r,), and vectors, shape (n, r), of A, from A times orthonormal columns.

    A ≈ Y (QᵀY)⁻¹ Yᵀ with Y = A Q (Halko, Martinsson & Tropp 2011, section 5.5).
    """
    inner = directions.T @ products
    values, turned = np.linalg.eigh((inner + inner.T) / 2)
    products = products @ turned
    lengths = np.sqrt(np.square(products).sum(axis=0))
    told = (np.abs(values) > LEAST) & (lengths < LONGEST * np.abs(values))
    roots = products[:, told] / np.sqrt(np.abs(values[told]))
    span, factor = np.linalg.qr(roots)
    values, turned = np.linalg.eigh((factor * np.sign(values[told])) @ factor.T)
    return values, span @ turned
