"""`ParticleRun`: weighted particles of annealed importance sampling, resampled or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from stanct.arrays import Array, log_sum_exp
from stanct.estimates.arviz_bridge import pareto_k
from stanct.estimates.path import Evidence
from stanct.path.mixture import AnyBase
from stanct.runs.diagnostics import MOST_DIVERGENT, Check, check, interrupted_check
from stanct.runs.run import Run
from stanct.runs.storage import PARTICLES, Stored

BOOTSTRAPS = 500


@dataclass(frozen=True, kw_only=True, repr=False)
class ParticleRun(Run):
    """Weighted particles at β = 1; the mean of their weights is an unbiased estimate of Z.

    A chain is a random stream, its draws are particles. `bare_evidence.within_error` is the delta
    method's, `between_error` the bootstrap's. Both know only what the particles have seen: where
    none has found a mode, they are too small, and log Z too low.

    Attributes
    ----------
    log_weights : shape (chains, draws)
        Natural log; −inf for a particle that fell outside the target's support.
    island
        Particles in a row that were resampled among themselves; 1 without resampling. Islands are
        independent, and errors come from them.
    betas : shape (N + 1,)
        The annealing schedule, from 0 to 1.
    counts : shape (chains, 5)
        Gradients, transitions, sum of acceptance probabilities, divergences, rejections.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = PARTICLES
    arrays: ClassVar[tuple[str, ...]] = ("z", "log_weights", "betas", "counts")

    base: AnyBase = field(repr=False)
    log_weights: Array = field(repr=False)
    island: int
    betas: Array = field(repr=False)
    counts: Array = field(repr=False)

    @property
    def target_log_weights(self) -> Array:
        """The particles' log weights."""
        return self.log_weights

    def _estimate(self) -> Evidence:
        seed = self.provenance["settings"]["seed"]
        return mean_weight_evidence(self.log_weights, self.island, seed, self.method)

    def _checks(self) -> tuple[Check, ...]:
        evidence = self.bare_evidence
        _, tries, accepted, divergent, rejected = self.counts.sum(axis=0)
        divergences, rejections = divergent / max(tries, 1), rejected / max(tries, 1)
        # Runs saved by earlier versions have the mean alone.
        bins = self.provenance.get("acceptance", {}).get("acceptance", [])
        accept = min((a for a in bins if a is not None), default=accepted / max(tries, 1))
        spread = float(np.ptp(self.log_weights[np.isfinite(self.log_weights)]))
        more = "Use more temperatures, then more particles (draws=)."

        return (
            interrupted_check(self.draws, self.provenance),
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
                  f"HMC accepts {accept:.0%} of its transitions in the worst tenth of β.",
                  "Use a longer warm-up."),
            check("divergences", divergences, MOST_DIVERGENT, divergences <= MOST_DIVERGENT,
                  f"{divergences:.1%} of the transitions diverged.", "Raise target_accept."),
            check("rejections", rejections, 0.1, rejections <= 0.1,
                  f"Stan rejected, or gave no finite number, in {rejections:.1%} of the "
                  "transitions.",
                  "Look for reject(), overflow, or a support that the declarations do not state."),
        )  # fmt: skip

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first particles of each chain alone, shape (chains, ends).

        Parameters
        ----------
        ends
            Numbers of particles, each from 2 to `draws`.
        """
        totals = np.logaddexp.accumulate(self.log_weights, axis=1)
        return totals[:, np.asarray(ends) - 1] - np.log(ends)

    @property
    def _rows(self) -> tuple[Mapping[str, Array], Array]:
        if self.island == 1:
            return self.variables, self.log_weights
        variables = {
            name: values.reshape(-1, self.island, *values.shape[2:])
            for name, values in self.variables.items()
        }
        return variables, self.log_weights.reshape(-1, self.island)

    def _shape(self) -> str:
        return f"{self.log_weights.size} particles along {self.betas.size - 1} temperatures"

    def _stored_values(self) -> dict[str, Any]:
        return {"island": self.island}

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        return super()._restored(stored) | {"island": stored.head["island"]}


def mean_weight_evidence(log_weights: Array, island: int, seed: int, method: str) -> Evidence:
    """log Z from the mean weight; errors over islands by the delta method and by the bootstrap.

    Parameters
    ----------
    log_weights : shape (chains, draws)
        Natural log; −inf counts as a weight of zero.
    island
        Particles in a row that are not independent of each other.
    seed
        Of the bootstrap.
    method
        Name of the sampler.
    """
    by_island = np.asarray(log_sum_exp(log_weights.reshape(-1, island), axis=1)) - np.log(island)
    means = np.exp(by_island - by_island.max())
    count = means.size
    delta = float(means.std(ddof=1) / means.mean() / np.sqrt(count))
    picks = np.random.default_rng(seed).integers(count, size=(BOOTSTRAPS, count))
    bootstrap = float(np.log(means[picks].mean(axis=1)).std(ddof=1))
    weights = np.exp(log_weights - log_weights.max())
    by_chain = log_sum_exp(log_weights, axis=1) - np.log(log_weights.shape[1])
    return Evidence(
        log_z=float(log_sum_exp(log_weights) - np.log(log_weights.size)),
        std_error=max(delta, bootstrap),
        method=f"{method}, importance weights",
        within_error=delta,
        between_error=bootstrap,
        effective_size=float(weights.sum() ** 2 / np.square(weights).sum()),
        pareto_k=pareto_k(log_weights[np.isfinite(log_weights)]),
        chain_log_z=tuple(float(value) for value in by_chain),
    )
