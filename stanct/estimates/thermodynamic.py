"""Thermodynamic integration, or path sampling (Gelman & Meng 1998): log Z = −∫₀¹ E_β[δ] dβ.

The derivative of log z(β) is −E_β[δ]. Here E_β[δ] is the average of δ over the draws made at β, not
over all draws weighted to β. This estimate therefore shares neither weights nor tails with the
others. If they disagree, the draws of β and of x do not belong to one density, or part of the path
has not converged.
"""

from __future__ import annotations

import math

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Evidence, PathEstimator, between_error
from stanct.path.bias import LadderBias
from stanct.path.course import beta_grid

THERMODYNAMIC = "thermodynamic integration"
"""Name of these estimates in runs."""

# Points at which the smooth curve is computed. Strata correct its errors between them.
GRID = 201
# Strata of a continuous path, and the fewest draws in one.
STRATA, FEWEST = 100, 20


def path_integral(estimator: PathEstimator, beta: Array, method: str) -> Evidence:
    """Log Z by thermodynamic integration along the draws of a continuous path or of a ladder.

    β of each draw has shape (chains, draws). The Rao–Blackwell curve s(β) of E_β[δ] is integrated
    on its own. The difference δ − s(β) is averaged over strata of draws with neighbouring β, or
    over rungs, and integrated over those. The curve s only smooths, and its own error cancels. On a
    ladder, the widths are those of the trapezoidal rule. The error of the discretisation is the
    change of the result when strata are joined in pairs.

    Draws in the first stratum of a continuous path, or on the first rung, tell nothing: near β = 0,
    δ has a heavy tail where the base is wider than the target, and its mean need not even exist. Up
    to the end of the stratum, or up to the second rung, the Rao–Blackwell estimate of log z stands
    in place of the integral, and its error is added, as is that of q(S), the base's mass inside the
    target's support. Without draws at β > 0, log Z is NaN and its error infinite.
    """
    bias, inside = estimator.bias, np.isfinite(estimator.delta)
    if isinstance(bias, LadderBias):
        labels = np.searchsorted(bias.beta, beta)
        start, inside = float(bias.beta[1]), inside & (labels > 0)
        widths = np.append(0.0, _trapezoid(bias.beta[1:]))
        # Every second rung, from the second on.
        halves = bias.beta[1:][_every_second(bias.beta.size - 1)]
        joined, wide = np.searchsorted(halves, beta), _trapezoid(halves)
        kept = inside & np.isin(beta, halves)
    else:
        inside &= (beta > 0) | (bias.atom == 0)
        if not inside.any():  # no draw has left the atom at β = 0
            return _evidence(math.nan, np.zeros(beta.shape), math.inf, method)
        count = max(min(STRATA, int(inside.sum()) // FEWEST), 2)
        labels, widths = _quantile_strata(beta, inside, count)
        start, widths[0] = float(widths[0]), 0.0
        # The same strata, joined in pairs from the second on.
        joined, wide = np.maximum(labels - 1, 0) // 2 + (labels > 0), widths[1:]
        wide = np.append(0.0, np.add.reduceat(wide, np.arange(0, wide.size, 2)))
        kept = inside
    grid = np.unique(np.append(beta_grid(GRID), start))
    grid = grid[grid >= start]
    slope, _ = estimator.delta_moments(grid)
    area = float(np.sum(np.diff(grid) * 0.5 * (slope[1:] + slope[:-1])))
    rest = np.where(inside, estimator.delta, 0.0) - np.interp(beta, grid, slope)
    fine = _stratified(rest, inside, labels, widths)
    coarse = _stratified(rest, kept, joined, wide)
    start_error = float(np.hypot(*estimator.error(start)[:2]))
    _, support_error = _support(estimator.base_delta)
    log_z = float(estimator.log_z(start) - area - fine[0])
    others = float(np.hypot(np.hypot(support_error, start_error), abs(fine[0] - coarse[0])))
    return _evidence(log_z, -fine[1], others, method)


def ladder_integral(betas: Array, delta: Array, method: str) -> Evidence:
    """Log Z by thermodynamic integration over the rungs of parallel tempering.

    The trapezoidal rule has a second-order correction, because −Var_β[δ] is the slope of E_β[δ]
    (Friel, Hurn & Wyse 2014):

        log Z = −Σ_k [ h_k (E_k + E_{k+1}) / 2 + h_k² (V_{k+1} − V_k) / 12 ].

    The error of the rule is estimated as a fifteenth of the difference to every second rung. δ,
    shape (chains, scans, K), is +inf only on rung 0, where the target may vanish.
    """
    inside = np.isfinite(delta)
    share = inside.mean(axis=(0, 1))
    safe = np.where(inside, delta, 0.0)
    mean = safe.mean(axis=(0, 1)) / share
    centred = np.where(inside, delta - mean, 0.0)
    variance = np.square(centred).mean(axis=(0, 1)) / share
    log_z, by_mean, by_variance = _corrected_trapezoid(betas, mean, variance)
    influence = (
        centred * by_mean + np.where(inside, np.square(centred) - variance, 0.0) * by_variance
    ) / share
    rungs = _every_second(betas.size)
    coarse, *_ = _corrected_trapezoid(betas[rungs], mean[rungs], variance[rungs])
    support, support_error = _support(delta[..., 0].ravel())
    rule = abs(log_z - coarse) / 15
    return _evidence(
        support + log_z, influence.sum(axis=-1), float(np.hypot(support_error, rule)), method
    )


def _corrected_trapezoid(betas: Array, mean: Array, variance: Array) -> tuple[float, Array, Array]:
    """The corrected rule, and its derivatives by the means and by the variances."""
    widths = np.diff(betas)
    by_mean = -_trapezoid(betas)
    by_variance = np.zeros(betas.size)
    by_variance[1:] -= widths**2 / 12
    by_variance[:-1] += widths**2 / 12
    return float(by_mean @ mean + by_variance @ variance), by_mean, by_variance


def _evidence(log_z: float, influence: Array, other_error: float, method: str) -> Evidence:
    """The estimate with the errors of the mean of `influence`, shape (chains, draws)."""
    size, by_chain = effective_size(influence), influence.mean(axis=1)
    return Evidence.from_chains(
        log_z, log_z + by_chain, f"{method}, thermodynamic",
        within=float(influence.std() / np.sqrt(size)), between=float(between_error(by_chain)),
        size=size, base=other_error, rounded=False,
    )  # fmt: skip


def _stratified(values: Array, kept: Array, labels: Array, widths: Array) -> tuple[float, Array]:
    """Σ_k width_k · mean of the kept values of stratum k, and each value's influence on it."""
    flat = labels[kept]
    counts = np.bincount(flat, minlength=widths.size)
    # A rung without draws adds no correction, as if s(β) were exact there.
    means = np.bincount(flat, values[kept], widths.size) / np.maximum(counts, 1)
    factor = values.size * widths / np.maximum(counts, 1)
    influence = np.zeros(values.shape)
    influence[kept] = factor[flat] * (values[kept] - means[flat])
    return float(widths @ means), influence


def _quantile_strata(beta: Array, kept: Array, count: int) -> tuple[Array, Array]:
    """Strata with equal numbers of kept draws: the stratum of every draw, and the widths."""
    edges = np.quantile(beta[kept], np.linspace(0, 1, count + 1))
    edges[0], edges[-1] = 0.0, 1.0
    return np.clip(np.searchsorted(edges, beta, side="right") - 1, 0, count - 1), np.diff(edges)


def _trapezoid(betas: Array) -> Array:
    """Weights of the trapezoidal rule on a ladder."""
    widths = np.diff(betas)
    return 0.5 * (np.append(widths, 0.0) + np.insert(widths, 0, 0.0))


def _every_second(rungs: int) -> Array:
    """Indices of every second rung, including the last."""
    return np.unique(np.append(np.arange(0, rungs, 2), rungs - 1))


def _support(base_delta: Array) -> tuple[float, float]:
    """Log q(S), with q(S) the base's mass inside the target's support, and its standard error."""
    share = float(np.isfinite(base_delta).mean())
    if share == 0:
        return -math.inf, math.inf
    return float(np.log(share)), float(np.sqrt((1 - share) / (share * base_delta.size)))
