"""`LadderRun`: what parallel tempering returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.ladder import LadderEstimator
from stanct.estimates.mixing import effective_size, r_hat
from stanct.estimates.path import Curve, Evidence
from stanct.estimates.thermodynamic import THERMODYNAMIC, ladder_integral
from stanct.path.base import Base
from stanct.runs.diagnostics import (
    LOOK_FOR_REJECTIONS,
    MORE,
    MOST_DIVERGENT,
    Check,
    agreement_check,
    check,
    refit,
    support_check,
    tempered_check,
    weights_check,
)
from stanct.runs.evidence_run import EvidenceRun, scans
from stanct.runs.normalised import with_prior_mass
from stanct.runs.surveyed import AGAIN
from stanct.runs.verdicts import least, most


@dataclass(frozen=True, kw_only=True, repr=False)
class RungsRun(EvidenceRun):
    """Draws at each of some β from 0 to 1, with δ of shape (chains, draws, β)."""

    base: Base = field(repr=False)
    betas: Array = field(repr=False)
    delta: Array = field(repr=False)

    @cached_property
    def estimator(self) -> LadderEstimator:
        """The estimator of everything along the β."""
        return LadderEstimator(self.betas, self.delta)

    @property
    def log_prior_mass(self) -> float:
        """log ∫ p(θ) dθ, natural log; 0 where it is not known or plays no part."""
        return self.provenance.get("log_prior_mass") or 0.0

    def _whole(self, evidence: Evidence) -> Evidence:
        return with_prior_mass(evidence, self.provenance)

    def _estimate(self) -> Evidence:
        return self._whole(self.estimator.evidence(self.method))

    @property
    def target_log_weights(self) -> Array:
        """Zero: the draws at β = 1 need no weights."""
        return np.zeros((self.chains, self.draws))

    @cached_property
    def forward_evidence(self) -> Evidence:
        """log Z by stepping stones from β = 0 up."""
        return self._whole(self.estimator.evidence(self.method, "forward"))

    @cached_property
    def backward_evidence(self) -> Evidence:
        """log Z by stepping stones from β = 1 down."""
        return self._whole(self.estimator.evidence(self.method, "backward"))

    @cached_property
    def thermodynamic_evidence(self) -> Evidence:
        """log Z by thermodynamic integration over the β, with its second-order correction."""
        return self._whole(ladder_integral(self.betas, self.delta, self.method))

    def extra_estimates(self) -> dict[str, Evidence]:
        return {
            THERMODYNAMIC: self.thermodynamic_evidence,
            "stepping stones up": self.forward_evidence,
            "stepping stones down": self.backward_evidence,
        }

    @property
    def shows(self) -> tuple[str, ...]:
        return ("free_energy", "running_log_z", "stepping_stones", "schedule", *super().shows)

    def curve(self) -> Curve:
        """The free-energy curve at the β, with errors; `log_prior_mass` at β = 0."""
        found = self.estimator.curve()
        return replace(found, log_z=found.log_z + self.log_prior_mass)

    def curves(self, beta: Array | None = None) -> dict[str, Curve]:
        """`curve` by the name of its estimator. Its β are the run's: `beta` has no effect."""
        return {"bridge": self.curve()}

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first draws of each chain alone, at least 2, shape (chains, ends)."""
        return self.estimator.running_log_z(ends) + self.log_prior_mass

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]:
        """Cost of the first draws of each chain, shape (chains, ends), and its unit."""
        return scans(self.chains, ends)

    def _sample_statistics(self) -> dict[str, Array]:
        return {"delta": self.delta[..., -1]}

    def _averaged(self, more: Any, *names: str) -> dict[str, Array]:
        """Shares of this run's draws and of those of another, taken together."""
        share = more.draws / (self.draws + more.draws)
        return {
            name: (1 - share) * getattr(self, name) + share * getattr(more, name) for name in names
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class LadderRun(RungsRun):
    """Draws of parallel tempering. Those at β = 1 follow the user's density and need no weights.

    `variables` and `z` are those at β = 1. Each chain is a separate ladder.

    Attributes
    ----------
    betas : shape (K,)
        The ladder, from 0 to 1, frozen before the first of these draws.
    delta : shape (chains, draws, K)
        δ = φ − ψ on every rung; +inf on rung 0 where the target vanishes.
    rejection : shape (chains, K − 1)
        Mean rejection probability of the swaps of each pair of neighbours.
    counts : shape (chains, 4, K)
        For each rung: transitions, sum of acceptance probabilities, divergences, rejections by
        Stan.
    round_trips : shape (chains,)
        Base → target → base trips of all walkers of a ladder together.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct ladder 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "betas": "k", "delta": "c n k", "rejection": "c *",
        "counts": "c 4 k", "round_trips": "c",
    }  # fmt: skip
    lost_remedy: ClassVar[str] = AGAIN

    rejection: Array = field(repr=False)
    counts: Array = field(repr=False)
    round_trips: Array = field(repr=False)

    @property
    def barrier(self) -> float:
        """The global communication barrier Λ: the sum of rejection rates along the ladder."""
        return float(self.rejection.mean(axis=0).sum())

    @property
    def acceptance(self) -> Array:
        """Mean acceptance of the HMC transitions on rungs 1 … K − 1."""
        tries, sums = self.counts.sum(axis=0)[:2, 1:]
        return sums / np.maximum(tries, 1)

    def facts(self) -> dict[str, float]:
        return {"Barrier Λ": self.barrier}

    def chain_counts(self) -> dict[str, Array]:
        return {"round trips": self.round_trips}

    @property
    def shows(self) -> tuple[str, ...]:
        shown = super().shows
        return (*shown[:3], "swap_rejection", *shown[3:])

    def _checks(self) -> tuple[Check, ...]:
        return _ladder_checks(self, self.bare_evidence)

    def _joined(self, more: Any) -> dict[str, Any]:
        return {
            **self._averaged(more, "rejection"),
            "counts": self.counts + more.counts,
            "round_trips": self.round_trips + more.round_trips,
        }

    def _shape(self) -> str:
        return (
            f"{self.chains} ladders of {self.betas.size} rungs, {self.draws} draws, "
            f"barrier {self.barrier:.2f}"
        )


def _ladder_checks(run: LadderRun, evidence: Evidence) -> tuple[Check, ...]:
    """All checks of a ladder."""
    trips = int(run.round_trips.min())
    worst_swap = float(run.rejection.mean(axis=0).max())
    target_delta = run.delta[..., -1]
    rate = r_hat(target_delta)
    size = min(effective_size(target_delta, method="bulk"), evidence.effective_size)
    gap = abs(run.forward_evidence.log_z - run.backward_evidence.log_z)
    gap_error = float(np.hypot(run.forward_evidence.std_error, run.backward_evidence.std_error))
    tries, _, divergent, rejected = run.counts.sum(axis=0)[:, 1:].sum(axis=1)
    diverging = divergent / max(tries, 1)
    rungs = "Use more rungs (rungs=), then longer chains (draws=)."
    low, high = float(run.acceptance.min()), float(run.acceptance.max())

    # Without a round trip, rungs may agree because all ladders stayed where they began.
    mixed = (
        check("r_hat", rate, 1.05, not rate > 1.05,
              f"Split R-hat of δ at β = 1 is {rate:.3f}.", MORE),
        least("effective_size", size, 100,
              f"The least effective size, of log Z and of δ at β = 1, is {size:.0f}.", MORE),
    )  # fmt: skip
    return (
        run._length_check(evidence),
        least("round_trips", trips, 5,
              f"The slowest ladder made {trips} trips from base to target and back.",
              MORE if trips else refit(run.method_settings).capitalize()),
        most("swaps", worst_swap, 0.9,
             f"The worst pair of rungs rejects {worst_swap:.0%} of its swaps.",
             "Use more rungs (rungs=) or a longer warm-up."),
        weights_check("pareto_k", evidence.tail, "The bridges' terms", rungs),
        tempered_check(run.barrier, 0.01,
                       f"The barrier between base and target is {run.barrier:.2f}.",
                       run.settings),
        *(mixed if trips else ()),
        check("directions", gap / gap_error if gap_error > 0 else 0.0, 3,
              gap <= 3 * gap_error or gap < 1e-9,
              f"Stepping stones up and down differ by {gap:.3g} in log Z.",
              rungs),
        agreement_check(evidence, run.thermodynamic_evidence, rungs),
        least("acceptance", low, 0.5,
              f"HMC accepts between {low:.0%} and {high:.0%} on every rung.",
              "Use a longer warm-up."),
        most("divergences", diverging, MOST_DIVERGENT,
             f"{diverging:.1%} of the transitions diverged.",
             "Raise target_accept."),
        check("rejections", rejected / max(tries, 1), 0.1, rejected <= 0.1 * tries,
              f"Stan rejected, or gave no finite number, in {rejected / max(tries, 1):.1%} of the "
              "transitions.",
              LOOK_FOR_REJECTIONS),
        support_check(run.delta[..., 0]),
    )  # fmt: skip
