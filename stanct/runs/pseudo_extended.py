"""`PseudoExtendedRun`: draws of copies between a base and the target, and log Z from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.copies import CopyEstimator
from stanct.estimates.path import Evidence
from stanct.path.bias import CopyBias
from stanct.runs.copies import CopyRun, mixing_checks
from stanct.runs.diagnostics import (
    Check,
    support_check,
    tempered_check,
    transition_checks,
    weights_check,
)
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.storage import Stored
from stanct.runs.verdicts import least, most

LEAST_OVERLAP = 0.01
"""Least overlap with which error bars of log Z were honest, over bases ever farther away."""
MOST_APART = 4.5
"""Most standard errors by which copies and draws of the base may differ along the path."""
REACH = (
    "Pass a base that reaches the target, such as base='pilot', which is fitted, or use "
    "method='joint'."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PseudoExtendedRun(CopyRun, EvidenceRun):
    """Draws of a pseudo-extended chain, N weighted copies each, and the estimates from them.

    Attributes
    ----------
    delta : shape (chains, draws, N)
        δ = φ − ψ of every copy; +inf only at β = 0.
    base_delta : shape (base draws,)
        δ at independent draws of the base.
    bias
        The bias, frozen like the base.

    The other attributes are those of `CopyRun`: `beta` and `statistics`, and those of `Run`.
    """

    file_format: ClassVar[str] = "stanct copies 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n k d", "beta": "c n k", "delta": "c n k", "base_delta": "*"
    }  # fmt: skip

    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)
    bias: CopyBias = field(repr=False)

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

        The weights are those of [PE] 3 and 8. Where the β are estimated, the weights are averaged
        over the β given the copies.
        """
        return self.estimator.log_weights

    def _copy_statistics(self) -> dict[str, Array]:
        return {"beta": self.beta, "delta": self.delta}

    def _checks(self) -> tuple[Check, ...]:
        return _copy_checks(self, self.bare_evidence)

    def _joined(self, more: Any) -> dict[str, Any]:
        return {
            **super()._joined(more),
            "base_delta": np.concatenate([self.base_delta, more.base_delta]),
        }

    def _stored_arrays(self) -> dict[str, Array]:
        return super()._stored_arrays() | {
            "bias_beta": self.bias.beta,
            "bias_value": self.bias.value,
            "log_prior": self.bias.log_prior,
        }

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        return super()._restored(stored) | {
            "bias": CopyBias(
                stored.arrays["bias_beta"], stored.arrays["bias_value"], stored.arrays["log_prior"]
            )
        }


def _copy_checks(run: PseudoExtendedRun, evidence: Evidence) -> tuple[Check, ...]:
    """All checks of a pseudo-extended run."""
    overlap = run.estimator.overlap
    inside = np.isfinite(run.base_delta)
    spread = float(np.ptp(run.base_delta[inside]))
    scores = np.abs(run.estimator.path_scores)
    return (
        run._length_check(evidence),
        *mixing_checks(run, run.delta, "δ", "a wider base (base=)", evidence.effective_size),
        least("overlap", overlap, LEAST_OVERLAP,
              f"Copies and draws of the base overlap by {overlap:.2g}, of at most 1.",
              f"log Z and its error mean little. {REACH}"),
        *([] if scores.size == 0 else [
            most("base", scores.max(), MOST_APART,
                 "The copies off the target and draws of the base differ in δ by up to "
                 f"{scores.max():.1f} standard errors.",
                 "Copies miss a part of the base, and log Z is too high. Use the default, or "
                 "method='joint'.")
        ]),
        weights_check("pareto_k", evidence.tail, "The estimate's terms",
                      f"A few draws dominate. {REACH}"),
        tempered_check(spread, 1e-6, f"δ of the base's draws spreads over {spread:.3g}.",
                       run.settings),
        support_check(run.base_delta),
        *transition_checks(run.statistics, run.method_settings["max_depth"], run.method),
    )  # fmt: skip
