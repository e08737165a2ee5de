"""Variational fits on the embedded engine: the Gaussian that is nearest to the target in KL.

ADVI (Kucukelbir et al. 2017) maximises the evidence lower bound ∫ q log(π / q), which minimises
KL(q ‖ π) and therefore keeps to one mode. Here Adam follows the gradient of Roeder, Wu & Duvenaud
(2017), whose noise vanishes where q fits. It works in the whitened coordinates of a first fit,
such as Pathfinder's, so that its step size needs no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import solve_triangular

from stanct.bases.local import LocalFit, best_of_each_mode, encloses
from stanct.bases.pilots import FAINT
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.path.gaussian import GaussianBase
from stanct.targets.protocols import SampledDensity
from stanct.work.blas import one_blas_thread

STEPS, BATCH = 1000, 10
"""Steps of Adam, and draws of q at each."""
RATE = 0.05
"""Step size of Adam. It is constant for the first half of the steps, and then falls to zero."""
FIRST, SECOND = 0.9, 0.99
"""Memory of Adam for the gradient and for its square."""


def variational_fits(
    density: SampledDensity, starts: Sequence[LocalFit], most: int, draws: int,
    rng: np.random.Generator,
) -> tuple[list[LocalFit], int]:  # fmt: skip
    """ADVI from the best start of each mode, and the gradients that it took; see `advi`.

    Starts of negligible mass, and those whose centre lies within an earlier result, are left out.
    Not more than `most` are tried. If none leads to a Gaussian on which the density is finite, that
    is an `EngineError`.
    """
    found, tried, failure = list[LocalFit](), 0, None
    modes = best_of_each_mode(starts)
    for start in modes:
        centre = replace(start, points=start.mean[None])
        negligible = start.log_evidence < modes[0].log_evidence - FAINT
        if tried == most or negligible or any(encloses(one, centre) for one in found):
            continue
        tried += 1
        try:
            found.append(advi(density, start, rng, draws=draws))
        except EngineError as cause:
            failure = cause
    if failure and not found:
        raise failure
    return found, tried * STEPS * BATCH


def advi(
    density: SampledDensity, start: LocalFit, rng: np.random.Generator, *, draws: int
) -> LocalFit:
    """The Gaussian q with the largest evidence lower bound, which is its log evidence, found from a
    first fit, whose Gaussian is the unit of the coordinates.

    It takes `STEPS` × `BATCH` gradients. So many draws of it give the bound. If the density is
    finite at too few of them, that is an `EngineError`.
    """
    unit = start.gaussian
    with one_blas_thread():  # threads would wait for each other in every small product
        mean, scale = _ascended(density, unit, rng)
    base = GaussianBase(unit.unwhiten(mean), unit.scale @ scale)
    points = base.unwhiten(base.draw(rng, draws))
    values = density.log_densities(points)
    finite = np.isfinite(values)
    if finite.sum() < 2:
        raise EngineError("The density is not finite where ADVI's approximation lies.")
    bound = float((values - base.log_density(points))[finite].mean())
    return LocalFit(base.mean, base.covariance, bound, points[finite])


def _ascended(
    density: SampledDensity, unit: GaussianBase, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Mean and lower triangular scale of q in whitened coordinates, averaged over the last half.

    The diagonal of the scale moves on the log scale.
    """
    size, place = unit.dimension, np.zeros((unit.dimension + 1, unit.dimension))
    memory, squares, kept = np.zeros_like(place), np.zeros_like(place), np.zeros_like(place)
    diagonal, shape = np.arange(size), np.tri(size)
    for k in range(1, STEPS + 1):
        scale = _scale(place)
        noise = rng.standard_normal((BATCH, size))
        values, slopes = density.log_density_gradients(unit.unwhiten(place[0] + noise @ scale.T))
        # −∇ log q is S⁻ᵀ ε; the part of the gradient that has mean zero is left out.
        slopes = slopes @ unit.scale + solve_triangular(scale, noise.T, lower=True, trans=1).T
        slopes = np.where(np.isfinite(values)[:, None], slopes, 0.0)
        gradient = np.concatenate([slopes.mean(axis=0)[None], slopes.T @ noise / BATCH * shape])
        gradient[1 + diagonal, diagonal] *= np.diag(scale)
        memory = FIRST * memory + (1 - FIRST) * gradient
        squares = SECOND * squares + (1 - SECOND) * gradient**2
        rate = RATE * min(1.0, 2 * (1 - k / STEPS))
        place = place + rate * (memory / (1 - FIRST**k)) / (
            np.sqrt(squares / (1 - SECOND**k)) + 1e-8
        )
        if k > STEPS // 2:
            kept += place / (STEPS - STEPS // 2)
    return kept[0], _scale(kept)


def _scale(place: Array) -> Array:
    """The scale of q, whose diagonal is kept as a log."""
    scale = place[1:].copy()
    np.fill_diagonal(scale, np.exp(np.diag(scale)))
    return scale
