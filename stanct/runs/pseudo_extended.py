"""`PseudoExtendedRun`: draws of N copies each, weighted within every draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from stanct.arrays import Array, joined_rows
from stanct.estimates import weighted
from stanct.estimates.arviz_bridge import effective_size, r_hat
from stanct.estimates.averages import Expectation
from stanct.estimates.copies import CopyEstimator
from stanct.estimates.path import Evidence
from stanct.path.base import Base
from stanct.path.bias import CopyBias
from stanct.runs.diagnostics import (
    MORE,
    Check,
    check,
    support_check,
    tempered_check,
    transition_checks,
    transition_counts,
    weights_check,
)
from stanct.runs.run import EvidenceRun
from stanct.runs.schema import ONE_OR_MORE, SHARE, Many, Maybe, Needed, Rule
from stanct.runs.storage import Stored

LEAST_OVERLAP = 0.01
"""Least overlap with which error bars of log Z were honest, over bases ever farther away."""
REACH = (
    "Pass a base that reaches the target, such as base='pilot', which is fitted, or use "
    "method='joint'."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PseudoExtendedRun(EvidenceRun):
    """Draws of a pseudo-extended chain, N weighted copies each, and the estimates from them.

    The weights of the copies of a draw add up to one. An average over the user's density is the
    mean over draws of the weighted mean over copies, as computed by `expect` and `summary`.

    Attributes
    ----------
    variables
        The program's own variables by name, each of shape (chains, draws × N, ...). The N copies of
        a draw are adjacent. `target_log_weights` has the same order.
    z : shape (chains, draws, N, D)
        Whitened unconstrained parameters of every copy, x = m + L z.
    beta, delta : shape (chains, draws, N)
        Inverse temperature and δ = φ − ψ of every copy; δ is +inf only at β = 0.
    base_delta : shape (base draws,)
        δ at independent draws of the base.
    bias
        The bias, frozen like the base.
    statistics
        NUTS statistics under CmdStan's names, each of shape (chains, draws).

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct copies 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n k d", "beta": "c n k [0,1]", "delta": "c n k +", "base_delta": "* +"
    }  # fmt: skip
    settings_rules: ClassVar[Mapping[str, Rule]] = {
        "fixed_beta": Needed(Maybe(Many(SHARE))), "max_depth": Needed(ONE_OR_MORE)
    }  # fmt: skip
    needs_base: ClassVar[bool] = True

    base: Base = field(repr=False)
    beta: Array = field(repr=False)
    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)
    bias: CopyBias = field(repr=False)
    statistics: Mapping[str, Array] = field(repr=False)

    @property
    def copies(self) -> int:
        """N, the number of copies in a draw."""
        return self.beta.shape[2]

    @cached_property
    def estimator(self) -> CopyEstimator:
        """The estimator of log Z from copies and base draws."""
        fixed = self.method_settings["fixed_beta"]
        beta = None if fixed is None else np.array(fixed)
        return CopyEstimator(self.delta, self.base_delta, self.bias, beta)

    def _estimate(self) -> Evidence:
        return self.estimator.evidence(self.method)

    @property
    def copy_log_weights(self) -> Array:
        """Log weights of the copies at β = 1, shape (chains, draws, N), normalised in each draw.

        The weights are those of [PE] 9. Where the β are estimated, the weights are averaged over
        the β given the copies.
        """
        return self.estimator.log_weights

    @property
    def target_log_weights(self) -> Array:
        """`copy_log_weights` in the shape of `variables`, (chains, draws × N)."""
        return self.copy_log_weights.reshape(self.chains, -1)

    def chain_counts(self) -> dict[str, Array]:
        """As `Run.chain_counts`."""
        return transition_counts(self.statistics)

    @property
    def shows(self) -> tuple[str, ...]:
        """As `Run.shows`."""
        return ("beta_occupancy", "copy_trace", *super().shows)

    def _checks(self) -> tuple[Check, ...]:
        return _copy_checks(self, self.bare_evidence)

    def expect(self, quantity: weighted.Quantity) -> Expectation:
        """Average of a quantity over the user's density, with its standard error.

        The error is that of the draws' weighted means, so copies of one draw count together.

        Parameters
        ----------
        quantity
            Name of one of `variables`, or a function of the mapping `variables` that returns an
            array of shape (chains, draws × N, ...).

        Raises
        ------
        StanctError
            The variable does not exist, or the result's shape does not begin with
            (chains, draws × N).
        """
        return weighted.expect(*self.rows, quantity, copies=self.copies)

    def summary(self, names: list[str] | None = None) -> pd.DataFrame:
        """Mean, its standard error, sd, quantiles and effective size of every scalar.

        Parameters
        ----------
        names
            Names of the variables to show; all by default.
        """
        return weighted.summary(*self.rows, names, copies=self.copies)

    def resample(self, draws: int | None = None, *, seed: int | None = None) -> dict[str, Array]:
        """Equally weighted draws of the user's density.

        Parameters
        ----------
        draws
            Draws from each chain, by systematic resampling over all copies. By default, one copy
            of each draw is picked by its weight.
        seed
            Seed of the resampling; a fresh one by default.

        Returns
        -------
        dict
            Variable name to shape (chains, draws, ...).
        """
        return super().resample(draws, seed=seed)

    def _picked(self, draws: int | None, seed: int | None) -> Array:
        # A systematic comb would also pick by weight, but with one shared offset for all draws.
        if draws is not None:
            return super()._picked(draws, seed)
        uniform = np.random.default_rng(seed).random((self.chains, self.draws, 1))
        cumulative = np.exp(self.copy_log_weights).cumsum(axis=2)
        picked = (cumulative <= uniform * cumulative[..., -1:]).sum(axis=2)
        return np.arange(self.draws) * self.copies + picked

    def _sample_statistics(self) -> dict[str, Array]:
        """Statistics of each copy; NUTS statistics of a draw are repeated for all its copies."""
        statistics = {name.rstrip("_"): values for name, values in self.statistics.items()}
        statistics["diverging"] = statistics.pop("divergent").astype(bool)
        repeated = {k: np.repeat(v, self.copies, axis=1) for k, v in statistics.items()}
        return repeated | {
            "beta": self.beta.reshape(self.chains, -1),
            "delta": self.delta.reshape(self.chains, -1),
            "log_weight": self.target_log_weights,
        }

    def _joined(self, more: Any) -> dict[str, Any]:
        return {
            "base_delta": np.concatenate([self.base_delta, more.base_delta]),
            "statistics": joined_rows(self.statistics, more.statistics),
        }

    def _check_rows(self) -> None:
        if np.any(~np.isfinite(self.delta) & (self.beta > 0)):
            raise ValueError("'delta' is infinite where β is not 0")
        if not np.isfinite(self.base_delta).any():
            raise ValueError("'base_delta' has no finite numbers")
        fixed = self.method_settings["fixed_beta"]
        if fixed is not None and len(fixed) != self.copies:
            raise ValueError("provenance.method_settings.fixed_beta has not one β for each copy")
        if "divergent__" not in self.statistics:
            raise ValueError("'statistic divergent__' is missing among its arrays")
        super()._check_rows()

    def _shape(self) -> str:
        return f"{self.chains} chains of {self.draws} draws of {self.copies} copies"

    def _stored_arrays(self) -> dict[str, Array]:
        return super()._stored_arrays() | {
            "bias_beta": self.bias.beta,
            "bias_value": self.bias.value,
            "log_prior": self.bias.log_prior,
        }

    def _stored_values(self) -> dict[str, Any]:
        return {"statistics": self.statistics}

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        return super()._restored(stored) | {
            "bias": CopyBias(
                stored.arrays["bias_beta"], stored.arrays["bias_value"], stored.arrays["log_prior"]
            ),
            "statistics": stored.statistics,
        }


def hand_overs(log_weights: Array) -> Array:
    """Number of times another copy became the heaviest, in each chain, shape (chains,).

    Parameters
    ----------
    log_weights : shape (chains, draws, N)
    """
    heaviest = log_weights.argmax(axis=2)
    return (np.diff(heaviest, axis=1) != 0).sum(axis=1)


def _copy_checks(run: PseudoExtendedRun, evidence: Evidence) -> tuple[Check, ...]:
    """All checks of a pseudo-extended run."""
    weights = np.exp(run.copy_log_weights)
    # Watch δ and every coordinate at β = 1, since modes may differ in any of them. Copies without
    # weight may lie outside the support, where 0·inf would be NaN.
    watched = np.concatenate(
        [
            np.einsum("cdn,cdnk->kcd", weights, run.z),
            (weights * np.where(weights > 0, run.delta, 0.0)).sum(axis=2)[None],
        ]
    )
    rates = np.array([r_hat(values) for values in watched])
    rate = float(rates[np.isfinite(rates)].max(initial=1.0))
    size = min(evidence.effective_size, *(effective_size(values) for values in watched))
    handed = int(hand_overs(run.copy_log_weights).min())
    overlap = run.estimator.overlap
    inside = np.isfinite(run.base_delta)
    spread = float(np.ptp(run.base_delta[inside]))
    return (
        run._length_check(evidence),
        check("hand_overs", handed, 20, handed >= 20,
              f"In the slowest chain another copy became the heaviest {handed} times.",
              f"{MORE} If that does not help, use more copies (copies=) or a wider base (base=)."),
        check("r_hat", rate, 1.05, rate <= 1.05,
              f"The largest split R-hat, of δ and of the coordinates at β = 1, is {rate:.3f}.",
              MORE),
        check("effective_size", size, 100, size >= 100,
              f"The least effective size, of log Z, δ and the coordinates, is {size:.0f}.", MORE),
        check("overlap", overlap, LEAST_OVERLAP, overlap >= LEAST_OVERLAP,
              f"Copies and draws of the base overlap by {overlap:.2g}, of at most 1.",
              f"log Z and its error mean little. {REACH}"),
        weights_check("pareto_k", evidence.tail, "The estimate's terms",
                      f"A few draws dominate. {REACH}"),
        tempered_check(spread, 1e-6, f"δ of the base's draws spreads over {spread:.3g}.",
                       run.settings),
        support_check(run.base_delta),
        *transition_checks(run.statistics, run.method_settings["max_depth"]),
    )  # fmt: skip
