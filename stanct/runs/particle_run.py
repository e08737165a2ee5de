"""`ParticleRun`: weighted particles of annealed importance sampling, resampled or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from stanct.base import GaussianBase
from stanct.path import Array, log_sum_exp
from stanct.runs import weighted
from stanct.runs.arviz_bridge import inference_data, pareto_k
from stanct.runs.diagnostics import MOST_DIVERGENT, Check
from stanct.runs.estimates import Evidence, Expectation
from stanct.runs.storage import PARTICLES, reading, save_run

BOOTSTRAPS = 500


@dataclass(frozen=True)
class ParticleRun:
    """Weighted particles at β = 1; the mean of their weights is an unbiased estimate of Z.

    Attributes
    ----------
    method, engine
        Names of the sampler and of the engine it ran on.
    variables
        The program's variables by name, each of shape (chains, draws, ...).
    z : shape (chains, draws, D)
        Whitened unconstrained parameters, x = m + L z.
    log_weights : shape (chains, draws)
        Natural log; −inf for a particle that fell outside the target's support.
    island
        Particles in a row that were resampled among themselves; 1 without resampling. Islands are
        independent, and errors come from them.
    betas : shape (N + 1,)
        The annealing schedule, from 0 to 1.
    counts : shape (chains, 5)
        Gradients, transitions, sum of acceptance probabilities, divergences, rejections.
    base, programs, data, provenance
        As in `TemperedRun`.
    """

    method: str
    engine: str
    variables: Mapping[str, Array] = field(repr=False)
    z: Array = field(repr=False)
    log_weights: Array = field(repr=False)
    island: int
    betas: Array = field(repr=False)
    counts: Array = field(repr=False)
    base: GaussianBase = field(repr=False)
    programs: Mapping[str, str] = field(repr=False)
    data: str = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    @property
    def chains(self) -> int:
        """Number of random streams."""
        return self.log_weights.shape[0]

    @property
    def draws(self) -> int:
        """Particles of each stream."""
        return self.log_weights.shape[1]

    @property
    def gradients(self) -> int:
        """All gradients spent: base, pilot particles and particles."""
        return int(self.provenance["gradients"])

    @cached_property
    def _island_log_z(self) -> Array:
        """Log of each island's mean weight, shape (islands,)."""
        flat = self.log_weights.reshape(-1, self.island)
        return np.asarray(log_sum_exp(flat, axis=1)) - np.log(self.island)

    @cached_property
    def errors(self) -> tuple[float, float]:
        """Standard error of log Z over islands, by the delta method and by the bootstrap."""
        log_z = self._island_log_z
        means = np.exp(log_z - log_z.max())
        count = means.size
        delta = float(means.std(ddof=1) / means.mean() / np.sqrt(count))
        rng = np.random.default_rng(self.provenance["settings"]["seed"])
        picks = rng.integers(count, size=(BOOTSTRAPS, count))
        return delta, float(np.log(means[picks].mean(axis=1)).std(ddof=1))

    @cached_property
    def _bare_evidence(self) -> Evidence:
        delta, bootstrap = self.errors
        weights = np.exp(self.log_weights - self.log_weights.max())
        finite = self.log_weights[np.isfinite(self.log_weights)]
        by_chain = log_sum_exp(self.log_weights, axis=1) - np.log(self.draws)
        return Evidence(
            log_z=float(log_sum_exp(self.log_weights) - np.log(self.log_weights.size)),
            std_error=max(delta, bootstrap),
            method=f"{self.method}, importance weights",
            within_error=delta,
            between_error=bootstrap,
            effective_size=float(weights.sum() ** 2 / np.square(weights).sum()),
            pareto_k=pareto_k(finite),
            chain_log_z=tuple(float(value) for value in by_chain),
        )

    @cached_property
    def evidence(self) -> Evidence:
        """log Z; `within_error` is the delta method's, `between_error` the bootstrap's.

        Both know only what the particles have seen: where none has found a mode, they are too
        small, and log Z too low.
        """
        return replace(self._bare_evidence, warnings=self.warnings)

    @cached_property
    def diagnostics(self) -> tuple[Check, ...]:
        """Every check with value, threshold, verdict and remedy."""
        evidence = self._bare_evidence
        wanted = self.provenance["settings"]["draws"]
        _, tries, accepted, divergent, rejected = self.counts.sum(axis=0)
        accept, rejections = accepted / max(tries, 1), rejected / max(tries, 1)
        divergences = divergent / max(tries, 1)
        spread = float(np.ptp(self.log_weights[np.isfinite(self.log_weights)]))
        more = "Use more temperatures, then more particles (draws=)."

        def check(name: str, value: float, limit: float, passed: bool, *words: str) -> Check:
            return Check(name, float(value), limit, bool(passed), *words)

        return (
            check("interrupted", self.draws, wanted, self.draws >= wanted,
                  f"{self.draws} of {wanted} particles a chain were finished.",
                  "The estimates use the finished ones; run again for the rest."),
            check("effective_size", evidence.effective_size, 100, evidence.effective_size >= 100,
                  f"The weights are worth {evidence.effective_size:.0f} particles.", more),
            check("pareto_k", evidence.pareto_k, 0.7, evidence.pareto_k <= 0.7,
                  f"The weights have tail shape {evidence.pareto_k:.2f}.", more),
            check("std_error", evidence.std_error, 0.5, evidence.std_error <= 0.5,
                  f"The standard error of log Z is {evidence.std_error:.2f}; above 0.5 the log of "
                  "the mean weight is biased low and its error unreliable.", more),
            check("tempered", spread, 1e-6, spread > 1e-6,
                  f"The log weights spread over {spread:.3g}.",
                  "Nothing was tempered: the base is the target, or δ is constant."),
            check("acceptance", accept, 0.5, accept >= 0.5,
                  f"HMC accepts {accept:.0%} of its transitions.", "Use a longer warm-up."),
            check("divergences", divergences, MOST_DIVERGENT, divergences <= MOST_DIVERGENT,
                  f"{divergences:.1%} of the transitions diverged.", "Raise target_accept."),
            check("rejections", rejections, 0.1, rejections <= 0.1,
                  f"Stan rejected, or gave no finite number, in {rejections:.1%} of the "
                  "transitions.",
                  "Look for reject(), overflow, or a support that the declarations do not state."),
        )  # fmt: skip

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.diagnostics if not check.passed)

    def expect(self, quantity: weighted.Quantity) -> Expectation:
        """Weighted average of a variable, or of a function of the mapping `variables`.

        The function gets arrays of shape (chains, draws, ...); with resampling an island counts as
        a chain, since particles of one island have common ancestors.
        """
        return weighted.expect(*self._by_island, quantity)

    def summary(self, names: list[str] | None = None) -> pd.DataFrame:
        """Weighted mean, standard error, sd, quantiles and effective size of every scalar."""
        return weighted.summary(*self._by_island, names)

    @cached_property
    def _by_island(self) -> tuple[Mapping[str, Array], Array]:
        """Variables and log weights with independent rows."""
        if self.island == 1:
            return self.variables, self.log_weights
        variables = {
            name: values.reshape(-1, self.island, *values.shape[2:])
            for name, values in self.variables.items()
        }
        return variables, self.log_weights.reshape(-1, self.island)

    def to_arviz(self) -> Any:
        """ArviZ's container: weighted particles, `log_weight` in `sample_stats`."""
        attributes = {
            "inference_library": "stanct",
            "log_z": self.evidence.log_z,
            "log_z_std_error": self.evidence.std_error,
            "warnings": ", ".join(self.warnings),
            "weighted": 1,
        }
        statistics = {"log_weight": self.log_weights}
        groups = {"posterior": dict(self.variables), "sample_stats": statistics}
        return inference_data(groups, attributes)

    def __repr__(self) -> str:
        warned = f"; warnings: {', '.join(self.warnings)}" if self.warnings else ""
        return (
            f"{self.method} run of {self.provenance['program']}: {self.log_weights.size} particles "
            f"along {self.betas.size - 1} temperatures, {self.gradients} gradients\n"
            f"log Z = {self.evidence.log_z:.4f} ± {self.evidence.std_error:.4f}{warned}"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the run; the folder appears whole or not at all, see `TemperedRun.save`."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        save_run(folder, self, PARTICLES, arrays, island=self.island)


_ARRAYS = ("z", "log_weights", "betas", "counts")


def load_particles(folder: str | os.PathLike[str]) -> ParticleRun:
    """Bring back a run saved by `ParticleRun.save`.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    with reading(folder, PARTICLES) as stored:
        return ParticleRun(
            island=stored.head["island"],
            **{name: stored.arrays[name] for name in _ARRAYS},
            **stored.common,
        )
