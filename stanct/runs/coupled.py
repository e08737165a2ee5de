"""`CoupledRun`: draws along a path without base: from the prior, or of an extended Hamiltonian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import counted
from stanct.estimates.pairs import PairEstimator
from stanct.estimates.path import Evidence
from stanct.path.base import Base
from stanct.path.coupled import CoupledBias
from stanct.runs.diagnostics import Check, transition_checks, transition_counts, weights_check
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.inference import for_arviz
from stanct.runs.normalised import prior_mass_checks, with_prior_mass
from stanct.runs.path_checks import mixing_checks, round_trips
from stanct.runs.storage import Stored

_REMEDY = (
    "A few draws dominate. Use the default method, whose path begins at a base that was fitted."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class CoupledRun(EvidenceRun):
    """Draws of a path whose tempering variable t sets β(t), and estimates from them.

    The draws are spread over all t, and need the weights that `expect` and `summary` apply.

    Attributes
    ----------
    t : shape (chains, draws)
        The tempering variable, in [0, 1]: β, or |ξ| of the extended Hamiltonian.
    value : shape (chains, draws)
        The log density v that β(t) multiplies: log p(y | θ), or log p(z).
    log_base : shape (chains, draws)
        Log of the density of known integral that is compared with the target, over what v is
        added to: 0 on the path from the prior, and log N(z; 0, I) of the extended Hamiltonian.
    bias
        β(t) and the bias, frozen.
    statistics
        Statistics of NUTS under CmdStan's names, each of shape (chains, draws).

    The other attributes are those of `Run`. `base` only gives coordinates on the path from the
    prior. Add log ∫ p dθ there, and the sum is log Z.
    """

    file_format: ClassVar[str] = "stanct coupled 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "t": "c n", "value": "c n", "log_base": "c n"
    }  # fmt: skip

    base: Base = field(repr=False)
    t: Array = field(repr=False)
    value: Array = field(repr=False)
    log_base: Array = field(repr=False)
    bias: CoupledBias = field(repr=False)
    statistics: Mapping[str, Array] = field(repr=False)

    @cached_property
    def estimator(self) -> PairEstimator:
        """The estimator of log Z, without the mass of the prior."""
        log_mass = self.bias.log_mass(self.value)
        return PairEstimator(self.value - log_mass, self.log_base - log_mass)

    @property
    def log_prior_mass(self) -> float:
        """log ∫ p(θ) dθ, natural log; 0 where it is not known or plays no part."""
        return self.provenance.get("log_prior_mass") or 0.0

    def _estimate(self) -> Evidence:
        return with_prior_mass(self.estimator.evidence(self.method), self.provenance)

    @property
    def target_log_weights(self) -> Array:
        """Log weights of the draws at β = 1, shape (chains, draws), natural log, unnormalised."""
        return self.estimator.above

    @property
    def beta(self) -> Array:
        """β of the draws, shape (chains, draws)."""
        return self.bias.beta_at(self.t)

    @property
    def shows(self) -> tuple[str, ...]:
        own = ("running_log_z", "beta_trace", *super().shows)
        # From the prior, the base gives coordinates alone.
        skipped = () if self.log_base.any() else ("base_against_posterior",)
        return tuple(name for name in own if name not in skipped)

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first draws of each chain alone, shape (chains, ends)."""
        return self.estimator.running_log_z(np.asarray(ends)) + self.log_prior_mass

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]:
        """Cost of the first draws of each chain, shape (chains, ends), and its unit."""
        spent = np.cumsum(self.statistics["n_leapfrog__"], axis=1)
        return spent[:, np.asarray(ends) - 1], "gradients"

    def chain_counts(self) -> dict[str, Array]:
        return {"round trips": round_trips(self.t), **transition_counts(self.statistics)}

    def _checks(self) -> tuple[Check, ...]:
        evidence, own = self.bare_evidence, self.method_settings
        return (
            self._length_check(evidence),
            *mixing_checks(self.t, evidence, own),
            weights_check("pareto_k", evidence.tail, "The weights", _REMEDY),
            *prior_mass_checks(self.provenance),
            *transition_checks(self.statistics, own.get("max_depth"), self.method),
        )

    def _sample_statistics(self) -> dict[str, Array]:
        return {
            **for_arviz(self.statistics),
            "beta": self.beta,
            "log_weight": self.target_log_weights,
        }

    def _shape(self) -> str:
        return f"{counted(self.chains, 'chain')} of {self.draws} draws"

    def _stored_arrays(self) -> dict[str, Array]:
        of_bias = {f"bias {name}": values for name, values in asdict(self.bias).items()}
        return super()._stored_arrays() | of_bias

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        own = {one.name: stored.arrays[f"bias {one.name}"] for one in fields(CoupledBias)}
        return super()._restored(stored) | {"bias": CoupledBias(**own)}
