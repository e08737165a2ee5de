"""`ParticleRun`: weighted particles of annealed importance sampling, resampled or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.mean_weight import mean_weight_evidence
from stanct.estimates.path import Evidence
from stanct.path.base import Base
from stanct.runs.diagnostics import (
    LOOK_FOR_REJECTIONS,
    MOST_DIVERGENT,
    Check,
    mean_weight_checks,
    tempered_check,
)
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.storage import Stored
from stanct.runs.verdicts import least, most


@dataclass(frozen=True, kw_only=True, repr=False)
class ParticleRun(EvidenceRun):
    """Weighted particles at β = 1; the mean of their weights is an unbiased estimate of Z.

    A chain is a random stream, and its draws are particles. `bare_evidence.within_error` comes from
    the delta method, `between_error` from the bootstrap. Both see only where the particles went. If
    no particle found a mode, both errors are too small and log Z is too low.

    Attributes
    ----------
    log_weights : shape (chains, draws)
        Natural log; −inf for a particle that fell outside the target's support.
    island
        Number of consecutive particles that were resampled among themselves; 1 without resampling.
        Islands are independent, and errors come from the spread between them.
    betas : shape (N + 1,)
        The annealing schedule, from 0 to 1.
    counts : shape (chains, 5)
        Gradients, transitions, sum of acceptance probabilities, divergences, rejections.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct particles 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "log_weights": "c n", "betas": "*", "counts": "c 5"
    }  # fmt: skip

    base: Base = field(repr=False)
    log_weights: Array = field(repr=False)
    island: int
    betas: Array = field(repr=False)
    counts: Array = field(repr=False)

    @property
    def target_log_weights(self) -> Array:
        """The particles' log weights."""
        return self.log_weights

    def _estimate(self) -> Evidence:
        return mean_weight_evidence(
            self.log_weights, self.island, self.settings["seed"], self.method
        )

    @property
    def shows(self) -> tuple[str, ...]:
        return ("running_log_z", "schedule", *super().shows)

    def _checks(self) -> tuple[Check, ...]:
        evidence = self.bare_evidence
        _, tries, accepted, divergent, rejected = self.counts.sum(axis=0)
        divergences, rejections = divergent / max(tries, 1), rejected / max(tries, 1)
        # Some saved runs have only the mean acceptance.
        bins = self.provenance.get("acceptance", {}).get("acceptance", [])
        accept = min((a for a in bins if a is not None), default=accepted / max(tries, 1))
        spread = float(np.ptp(self.log_weights[np.isfinite(self.log_weights)]))
        more = "Use more temperatures, then more particles (draws=)."

        return (
            self._length_check(evidence),
            *mean_weight_checks(evidence, "particles", more),
            tempered_check(spread, 1e-6, f"The log weights spread over {spread:.3g}.",
                           self.settings),
            least("acceptance", accept, 0.5,
                  f"HMC accepts {accept:.0%} of its transitions in the worst tenth of β.",
                  "Use a longer warm-up."),
            most("divergences", divergences, MOST_DIVERGENT,
                 f"{divergences:.1%} of the transitions diverged.", "Raise target_accept."),
            most("rejections", rejections, 0.1,
                 f"Stan rejected, or gave no finite number, in {rejections:.1%} of the "
                 "transitions.",
                 LOOK_FOR_REJECTIONS),
        )  # fmt: skip

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first particles of each chain alone, at least 2, shape (chains, ends)."""
        totals = np.logaddexp.accumulate(self.log_weights, axis=1)
        return totals[:, np.asarray(ends) - 1] - np.log(ends)

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]:
        """Cost of the first particles of each chain, shape (chains, ends), and its unit."""
        return self.counts[:, :1] * np.asarray(ends) / self.draws, "gradients"

    @property
    def rows(self) -> tuple[Mapping[str, Array], Array]:
        if self.island == 1:
            return self.variables, self.log_weights
        variables = {
            name: values.reshape(-1, self.island, *values.shape[2:])
            for name, values in self.variables.items()
        }
        return variables, self.log_weights.reshape(-1, self.island)

    def _joined(self, more: Any) -> dict[str, Any]:
        return {"counts": self.counts + more.counts}

    def _shape(self) -> str:
        return f"{self.log_weights.size} particles along {self.betas.size - 1} temperatures"

    def _stored_values(self) -> dict[str, Any]:
        return {"island": self.island}

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        return super()._restored(stored) | {"island": stored.head["island"]}
