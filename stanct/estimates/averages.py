"""Weighted averages over draws, with errors along autocorrelated chains and over tours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.digits import in_line, with_error
from stanct.estimates.path import between_error
from stanct.estimates.tours import ENOUGH_TOURS, FEWEST_TOURS, Tours, effective_draws


@dataclass(frozen=True)
class Expectation:
    """A weighted average over the draws with its error.

    Attributes
    ----------
    value, std_error, effective_size : shape of one draw of the quantity
        `std_error` is the larger of the within-chain and the between-chain error.
    beta
        The inverse temperature; 1 is the user's own density.
    effective_tours : shape of one draw of the quantity
        Effective number of tours that make up the error (`Tours.effective`); None where the chains
        do not regenerate.
    failed
        Checks of the run that failed.
    """

    value: Array
    std_error: Array
    effective_size: Array
    beta: float
    effective_tours: Array | None = None
    failed: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The run's failed checks, and ``"few_tours"`` where it is about this average.

        Then hardly more than one stretch of the chains makes up an error.
        """
        few = self.effective_tours is not None and np.any(self.effective_tours < FEWEST_TOURS)
        return tuple(dict.fromkeys([*self.failed, *(["few_tours"] if few else [])]))

    def __repr__(self) -> str:
        doubt = f"; warnings: {', '.join(self.warnings)}" if self.warnings else ""
        place = "" if self.beta == 1 else f" at β = {self.beta:g}"
        if np.ndim(self.value) == 0:
            rests = f"effective size {float(self.effective_size):.0f}"
            tours = np.inf if self.effective_tours is None else np.min(self.effective_tours)
            if tours < ENOUGH_TOURS:
                rests += f"; its error rests on {tours:.1f} effective tours and is widened for that"
            return f"{with_error(float(self.value), float(self.std_error))}{place} ({rests}{doubt})"
        value, error = in_line(self.value, 5), in_line(self.std_error, 2)
        shape = f"{np.shape(self.value)}{place}{doubt}"
        return f"Expectation of shape {shape}:\n  {value}\n± {error}"

    def _repr_html_(self) -> str:
        words = repr(self).replace("\n", "<br>")
        return f"<p>{words}</p>"


def expectation(
    values: Array, log_weights: Array, beta: float, copies: int = 1, *, tours: Tours | None = None
) -> Expectation:
    """Self-normalised weighted average of `values`, shape (chains, draws, ...) ([GS] 21, 22).

    With weights w and average f̂, a draw contributes w (f − f̂) / mean(w). The error is that of the
    mean of these contributions along autocorrelated chains. So many `copies` in a row belong to one
    draw, and are added before. With `tours`, if the chains regenerate, the error is at least that
    of their totals, and wider where few tours make it up.
    """
    values = np.asarray(values, float)
    chains, draws = log_weights.shape
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.mean()
    flat = values.reshape(chains, draws, -1)
    mean = np.einsum("cd,cdk->k", weights, flat) / weights.size
    contribution = weights[..., None] * (flat - mean)
    contribution = contribution.reshape(chains, draws // copies, copies, -1).mean(axis=2)
    size = np.array([effective_draws(part, tours) for part in np.moveaxis(contribution, -1, 0)])
    within = contribution.std(axis=(0, 1)) / np.sqrt(size)
    few = None
    if tours is not None:
        parts = np.moveaxis(contribution, -1, 0)
        within = np.array([tours.widened(*part) for part in zip(parts, within, strict=True)])
        few = np.array([tours.effective(part) for part in parts]).reshape(values.shape[2:])
    total = weights.sum(axis=1)
    told = total > 0  # all trajectories of a chain may be lost
    by_chain = np.einsum("cd,cdk->ck", weights[told], flat[told]) / total[told][:, None]
    shape = values.shape[2:]
    return Expectation(
        value=mean.reshape(shape),
        std_error=np.fmax(within, between_error(by_chain)).reshape(shape),
        effective_size=size.reshape(shape),
        beta=beta,
        effective_tours=few,
    )


def weighted_quantile(values: Array, log_weights: Array, probabilities: Array) -> Array:
    """Quantiles of weighted draws, shape (probabilities, ...) for `values` (chains, draws, ...)."""
    chains, draws = log_weights.shape
    weights = np.exp(log_weights - log_weights.max()).ravel()
    flat = np.asarray(values, float).reshape(chains * draws, -1)
    result = np.empty((len(probabilities), flat.shape[1]))
    for k, column in enumerate(flat.T):
        order = column.argsort()
        cumulative = weights[order].cumsum()
        at = np.searchsorted(cumulative, np.asarray(probabilities) * cumulative[-1])
        result[:, k] = column[order][np.minimum(at, order.size - 1)]
    return result.reshape(len(probabilities), *values.shape[2:])
