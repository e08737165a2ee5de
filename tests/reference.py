"""Plain NumPy forms of what compiled kernels do, written on their own, to compare them with."""

from __future__ import annotations

import numpy as np

from stanct.arrays import Array
from stanct.path.bias import Bias


def sample_beta(bias: Bias, delta: Array, uniforms: Array) -> Array:
    """Draw β given x exactly, by inversion ([GS] 17 for the linear bias).

    The first uniform picks a linear piece by its mass, the second a place inside it, where the
    density is a truncated exponential.

    Parameters
    ----------
    delta : any shape
        δ = φ − ψ, finite.
    uniforms : shape (2, *delta.shape)
        Independent and uniform on [0, 1).
    """
    delta = np.asarray(delta, float)
    at_knots = -bias.beta * delta[..., None] - bias.value
    rise = np.diff(at_knots, axis=-1)
    pieces = (
        np.log(np.diff(bias.beta))
        + np.maximum(at_knots[..., 1:], at_knots[..., :-1])
        + _log_mean_exp(np.abs(rise))
    )
    cumulative = np.exp(pieces - pieces.max(axis=-1, keepdims=True)).cumsum(axis=-1)
    mark = uniforms[0][..., None] * cumulative[..., -1:]
    piece = (cumulative <= mark).sum(axis=-1)
    r = np.take_along_axis(rise, piece[..., None], axis=-1)[..., 0]
    low, width = bias.beta[piece], np.diff(bias.beta)[piece]
    return low + width * _truncated_exponential(r, uniforms[1])


def _log_mean_exp(r: Array) -> Array:
    """Log of (1 − e^{−r}) / r for r ≥ 0, from its series where r is small."""
    small = r < 1e-3
    near, far = np.where(small, r, 0.0), np.where(small, 1.0, r)
    return np.where(small, near * (near / 24 - 0.5), np.log(-np.expm1(-far) / far))


def _truncated_exponential(r: Array, uniform: Array) -> Array:
    """Inverse distribution function of the density ∝ e^{r t} on [0, 1], for any sign of r."""
    small = np.abs(r) < 1e-12
    down = np.where(small, -1.0, -np.abs(r))
    # For r > 0 the mirror image: t → 1 − t turns r into −r and v into 1 − v.
    v = np.where(r > 0, 1 - uniform, uniform)
    # v = 1 is one rounding away from minus infinity at steep slopes; both mean the far end.
    t = np.log1p(np.maximum(v * np.expm1(down), -1 + 1e-16)) / down
    return np.where(small, uniform, np.clip(np.where(r > 0, 1 - t, t), 0.0, 1.0))
