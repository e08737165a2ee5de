"""`LadderRun`: what parallel tempering returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from stanct.base import GaussianBase
from stanct.path import Array
from stanct.runs import weighted
from stanct.runs.arviz_bridge import effective_size, inference_data, r_hat
from stanct.runs.diagnostics import MOST_DIVERGENT, Check
from stanct.runs.estimates import Curve, Evidence, Expectation
from stanct.runs.ladder import LadderEstimator
from stanct.runs.storage import LADDER, reading, save_run


@dataclass(frozen=True)
class LadderRun:
    """Draws of parallel tempering; those at β = 1 follow the user's density and need no weights.

    Attributes
    ----------
    method, engine
        Names of the sampler and of the engine it ran on.
    variables
        The program's variables at β = 1 by name, each of shape (chains, draws, ...); a chain is
        a ladder of its own.
    z : shape (chains, draws, D)
        Whitened unconstrained parameters at β = 1, x = m + L z.
    betas : shape (K,)
        The ladder, from 0 to 1, frozen before the first of these draws.
    delta : shape (chains, draws, K)
        δ = φ − ψ on every rung; +inf on rung 0 where the target vanishes.
    rejection : shape (chains, K − 1)
        Mean rejection probability of the swaps of each pair of neighbours.
    counts : shape (chains, 4, K)
        By rung: transitions, sum of acceptance probabilities, divergences, rejections by Stan.
    round_trips : shape (chains,)
        Base → target → base trips, all walkers of a ladder together.
    base
        Frozen too.
    programs, data, provenance
        As in `TemperedRun`.
    """

    method: str
    engine: str
    variables: Mapping[str, Array] = field(repr=False)
    z: Array = field(repr=False)
    betas: Array = field(repr=False)
    delta: Array = field(repr=False)
    rejection: Array = field(repr=False)
    counts: Array = field(repr=False)
    round_trips: Array = field(repr=False)
    base: GaussianBase = field(repr=False)
    programs: Mapping[str, str] = field(repr=False)
    data: str = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    @property
    def chains(self) -> int:
        """Number of independent ladders."""
        return self.delta.shape[0]

    @property
    def draws(self) -> int:
        """Kept scans of each ladder."""
        return self.delta.shape[1]

    @property
    def gradients(self) -> int:
        """All gradients spent: base, adaptation and draws, on all rungs."""
        return int(self.provenance["gradients"])

    @property
    def barrier(self) -> float:
        """Λ, the global communication barrier: the sum of rejection rates along the ladder."""
        return float(self.rejection.mean(axis=0).sum())

    @property
    def acceptance(self) -> Array:
        """Mean acceptance of the HMC transitions on rungs 1 … K − 1."""
        tries, sums = self.counts.sum(axis=0)[:2, 1:]
        return sums / np.maximum(tries, 1)

    @cached_property
    def estimator(self) -> LadderEstimator:
        """The estimator of everything along the ladder."""
        return LadderEstimator(self.betas, self.delta)

    @cached_property
    def _bare_evidence(self) -> Evidence:
        return self.estimator.evidence(self.method)

    @cached_property
    def evidence(self) -> Evidence:
        """log Z by bridges between neighbours, with its standard error and warnings."""
        return replace(self._bare_evidence, warnings=self.warnings)

    @cached_property
    def forward_evidence(self) -> Evidence:
        """log Z by stepping stones from the base up."""
        return self.estimator.evidence(self.method, "forward")

    @cached_property
    def backward_evidence(self) -> Evidence:
        """log Z by stepping stones from the target down."""
        return self.estimator.evidence(self.method, "backward")

    @cached_property
    def diagnostics(self) -> tuple[Check, ...]:
        """Every check with value, threshold, verdict and remedy."""
        return _checks(self, self._bare_evidence)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.diagnostics if not check.passed)

    def curve(self) -> Curve:
        """The free-energy curve log z at the rungs, with errors."""
        return self.estimator.curve()

    def expect(self, quantity: weighted.Quantity) -> Expectation:
        """Average at β = 1 of a variable, or of a function of the mapping `variables`."""
        return weighted.expect(self.variables, np.zeros((self.chains, self.draws)), quantity)

    def summary(self, names: list[str] | None = None) -> pd.DataFrame:
        """Mean, its standard error, sd, quantiles and effective size of every scalar at β = 1."""
        return weighted.summary(self.variables, np.zeros((self.chains, self.draws)), names)

    def to_arviz(self) -> Any:
        """ArviZ's container with the draws at β = 1."""
        attributes = {
            "inference_library": "stanct",
            "log_z": self.evidence.log_z,
            "log_z_std_error": self.evidence.std_error,
            "warnings": ", ".join(self.warnings),
        }
        groups = {"posterior": dict(self.variables), "sample_stats": {"delta": self.delta[..., -1]}}
        return inference_data(groups, attributes)

    def __repr__(self) -> str:
        warned = f"; warnings: {', '.join(self.warnings)}" if self.warnings else ""
        return (
            f"{self.method} run of {self.provenance['program']}: {self.chains} ladders of "
            f"{self.betas.size} rungs, {self.draws} draws, {self.gradients} gradients\n"
            f"log Z = {self.evidence.log_z:.4f} ± {self.evidence.std_error:.4f}, "
            f"barrier {self.barrier:.2f}{warned}"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the run; the folder appears whole or not at all, see `TemperedRun.save`."""
        save_run(folder, self, LADDER, {name: getattr(self, name) for name in _ARRAYS})


_ARRAYS = ("z", "betas", "delta", "rejection", "counts", "round_trips")


def load_ladder(folder: str | os.PathLike[str]) -> LadderRun:
    """Bring back a run saved by `LadderRun.save`.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    with reading(folder, LADDER) as stored:
        return LadderRun(**{name: stored.arrays[name] for name in _ARRAYS}, **stored.common)


def _checks(run: LadderRun, evidence: Evidence) -> tuple[Check, ...]:
    """Every check of a ladder."""
    more = "Run longer chains (draws=)."
    wanted = run.provenance["settings"]["draws"]
    trips = int(run.round_trips.min())
    worst_swap = float(run.rejection.mean(axis=0).max())
    target_delta = run.delta[..., -1]
    rate = r_hat(target_delta)
    size = min(effective_size(target_delta, method="bulk"), evidence.effective_size)
    gap = abs(run.forward_evidence.log_z - run.backward_evidence.log_z)
    gap_error = float(np.hypot(run.forward_evidence.std_error, run.backward_evidence.std_error))
    tries, _, divergent, rejected = run.counts.sum(axis=0)[:, 1:].sum(axis=1)
    diverging = divergent / max(tries, 1)
    outside = float(np.mean(~np.isfinite(run.delta[..., 0])))
    low, high = float(run.acceptance.min()), float(run.acceptance.max())

    def check(name: str, value: float, limit: float, passed: bool, *words: str) -> Check:
        return Check(name, value, limit, bool(passed), *words)

    return (
        check("interrupted", run.draws, wanted, run.draws >= wanted,
              f"{run.draws} of {wanted} draws a ladder were kept.",
              "The estimates use the finished draws; run again for the rest."),
        check("round_trips", trips, 5, trips >= 5,
              f"The slowest ladder made {trips} trips from base to target and back.", more),
        check("swaps", worst_swap, 0.9, worst_swap <= 0.9,
              f"The worst pair of rungs rejects {worst_swap:.0%} of its swaps.",
              "Use more rungs (rungs=) or a longer warm-up."),
        check("tempered", run.barrier, 0.01, run.barrier >= 0.01,
              f"The barrier between base and target is {run.barrier:.2f}.",
              "Nothing was tempered: the base is the target, or δ is constant."),
        check("r_hat", rate, 1.05, not rate > 1.05,
              f"Split R-hat of δ at β = 1 is {rate:.3f}.", more),
        check("effective_size", size, 100, size >= 100,
              f"The least effective size, of log Z and of δ at β = 1, is {size:.0f}.", more),
        check("directions", gap / gap_error if gap_error > 0 else 0.0, 3,
              gap <= 3 * gap_error or gap < 1e-9,
              f"Stepping stones up and down differ by {gap:.3f} in log Z.",
              "Use more rungs or longer chains."),
        check("acceptance", low, 0.5, low >= 0.5,
              f"HMC accepts between {low:.0%} and {high:.0%} on every rung.",
              "Use a longer warm-up."),
        check("divergences", diverging, MOST_DIVERGENT, diverging <= MOST_DIVERGENT,
              f"{diverging:.1%} of the transitions diverged.",
              "Raise target_accept."),
        check("rejections", rejected / max(tries, 1), 0.1, rejected <= 0.1 * tries,
              f"Stan rejected, or gave no finite number, in {rejected / max(tries, 1):.1%} of the "
              "transitions.",
              "Look for reject(), overflow, or a support that the declarations do not state."),
        check("support", outside, 0.5, outside <= 0.5,
              f"The target vanishes at {outside:.1%} of the base's draws.",
              "The base lies mostly outside the target's support: pass one that fits."),
    )  # fmt: skip
