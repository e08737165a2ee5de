"""`CopyRun`: draws of N copies each, weighted within every draw, of whatever instrument."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import counted
from stanct.estimates import weighted
from stanct.estimates.averages import Expectation
from stanct.estimates.mixing import effective_size, r_hat
from stanct.path.base import Base
from stanct.runs.diagnostics import MORE, Check, transition_counts
from stanct.runs.inference import for_arviz
from stanct.runs.run import Run
from stanct.runs.verdicts import least, most


@dataclass(frozen=True, kw_only=True, repr=False)
class CopyRun(Run):
    """Draws of N copies each, and averages over the user's density from them.

    The weights of the copies of a draw add up to one. An average over the user's density is the
    mean over draws of the weighted mean over copies, as computed by `expect` and `summary`. By
    default, `resample` picks one copy of each draw by its weight.

    Attributes
    ----------
    variables
        The program's own variables by name, each of shape (chains, draws × N, ...). The N copies of
        a draw are adjacent. `target_log_weights` has the same order.
    z : shape (chains, draws, N, D)
        Whitened unconstrained parameters of every copy, x = m + L z.
    beta : shape (chains, draws, N)
        Inverse temperature of every copy.
    statistics
        NUTS statistics under CmdStan's names, each of shape (chains, draws).

    The other attributes are those of `Run`.
    """

    base: Base = field(repr=False)
    beta: Array = field(repr=False)
    statistics: Mapping[str, Array] = field(repr=False)

    @property
    def copies(self) -> int:
        """N, the number of copies in a draw."""
        return self.beta.shape[2]

    @property
    @abstractmethod
    def copy_log_weights(self) -> Array:
        """Log weights of the copies at β = 1, shape (chains, draws, N), normalised in each draw."""

    @abstractmethod
    def _copy_statistics(self) -> dict[str, Array]:
        """Statistics of each copy, of shape (chains, draws, N)."""

    @property
    def target_log_weights(self) -> Array:
        """`copy_log_weights` in the shape of `variables`, (chains, draws × N)."""
        return self.copy_log_weights.reshape(self.chains, -1)

    def chain_counts(self) -> dict[str, Array]:
        return transition_counts(self.statistics)

    @property
    def shows(self) -> tuple[str, ...]:
        return ("beta_occupancy", "copy_trace", *super().shows)

    def expect(self, quantity: weighted.Quantity) -> Expectation:
        """Average over the user's density, as `Run.expect`, of shape (chains, draws × N, ...).

        The error is that of the draws' weighted means, so copies of one draw count together.
        """
        found = weighted.expect(*self.rows, quantity, **self.alike)
        return replace(found, failed=self.verdict.draws)

    @property
    def alike(self) -> dict[str, Any]:
        return {"copies": self.copies}

    def picked(self, draws: int | None, seed: int | None) -> Array:
        # A systematic comb would also pick by weight, but with one shared offset for all draws.
        if draws is not None:
            return super().picked(draws, seed)
        uniform = np.random.default_rng(seed).random((self.chains, self.draws, 1))
        cumulative = np.exp(self.copy_log_weights).cumsum(axis=2)
        picked = (cumulative <= uniform * cumulative[..., -1:]).sum(axis=2)
        return np.arange(self.draws) * self.copies + picked

    def _sample_statistics(self) -> dict[str, Array]:
        """Statistics of each copy; NUTS statistics of a draw are repeated for all its copies."""
        statistics = for_arviz(self.statistics)
        repeated = {k: np.repeat(v, self.copies, axis=1) for k, v in statistics.items()}
        own = {k: v.reshape(self.chains, -1) for k, v in self._copy_statistics().items()}
        return repeated | own | {"log_weight": self.target_log_weights}

    def _shape(self) -> str:
        return f"{counted(self.chains, 'chain')} of {self.draws} draws of {self.copies} copies"


def hand_overs(log_weights: Array) -> Array:
    """How often another copy became the heaviest in each chain, from weights (chains, draws, N)."""
    heaviest = log_weights.argmax(axis=2)
    return (np.diff(heaviest, axis=1) != 0).sum(axis=1)


def largest_r_hat(watched: Array) -> float:
    """The largest finite split R-hat of quantities, shape (quantities, chains, draws)."""
    rates = np.array([r_hat(values) for values in watched])
    return float(rates[np.isfinite(rates)].max(initial=1.0))


def mixing_checks(
    run: CopyRun, energy: Array, named: str, wider: str, evidence_size: float | None = None
) -> list[Check]:
    """Check that copies hand the target over, and that chains agree at β = 1.

    `energy`, shape (chains, draws, N), is δ or φ, as `named`. `wider` helps beside more copies.
    """
    weights = np.exp(run.copy_log_weights)
    # Watch every coordinate at β = 1, since modes may differ in any of them. Copies without weight
    # may lie outside the support, where 0·inf would be NaN.
    inside = np.where(weights > 0, energy, 0.0)
    watched = np.concatenate(
        [np.einsum("cdn,cdnk->kcd", weights, run.z), (weights * inside).sum(axis=2)[None]]
    )
    rate = largest_r_hat(watched)
    sizes = [effective_size(values) for values in watched]
    if evidence_size is not None:
        sizes.append(evidence_size)
    of_all = f"{named} and the coordinates"
    handed = int(hand_overs(run.copy_log_weights).min())
    return [
        least("hand_overs", handed, 20,
              f"In the slowest chain another copy became the heaviest {handed} times.",
              f"{MORE} If that does not help, use more copies (copies=) or {wider}."),
        most("r_hat", rate, 1.05,
             f"The largest split R-hat, of {named} and of the coordinates at β = 1, is "
             f"{rate:.3f}.", MORE),
        least("effective_size", min(sizes), 100,
              f"The least effective size, of {'' if evidence_size is None else 'log Z, '}{of_all}, "
              f"is {min(sizes):.0f}.", MORE),
    ]  # fmt: skip
