"""`TemperedRun`: draws of a continuous tempering method, spread over all β."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, counted
from stanct.estimates import weighted
from stanct.estimates.averages import Expectation
from stanct.estimates.counts import COUNTS, count_evidence
from stanct.estimates.naming import Names
from stanct.estimates.path import Curve, Evidence, PathEstimator
from stanct.estimates.thermodynamic import THERMODYNAMIC, path_integral
from stanct.estimates.tours import Tours
from stanct.path.base import Base, batch_of
from stanct.path.bias import AnyBias, Bias, LadderBias
from stanct.path.nested import NestedBase
from stanct.runs.diagnostics import (
    Check,
    agreement_check,
    base_tail_check,
    transition_checks,
    transition_counts,
)
from stanct.runs.evidence_run import EvidenceRun, scans
from stanct.runs.inference import for_arviz
from stanct.runs.path_checks import BaseCheck, base_check, path_checks, round_trips, tours_check
from stanct.runs.storage import Stored
from stanct.runs.surveyed import AGAIN

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, repr=False)
class TemperedRun(EvidenceRun):
    """Draws of a continuous tempering method, and the estimates that follow from them.

    The draws are spread over all β. Averages over the user's density need the weights of
    `log_weights()`, which `expect`, `summary` and `evidence` apply.

    Attributes
    ----------
    beta, delta : shape (chains, draws)
        Inverse temperature and δ = φ − ψ. δ is +inf only for draws at β = 0.
    base_delta : shape (base draws,)
        δ at independent draws of the base.
    bias
        Bias of the continuous path, or of a ladder (simulated tempering), frozen like the base.
    statistics
        Statistics of the transitions, under CmdStan's names where it has them, each of shape
        (chains, draws).
    kept : shape (kept draws,)
        Positions of the draws whose x was kept, increasing; by default all. `z` and `variables`
        have these draws alone. log Z, β and δ are of all draws.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct run 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c m d", "beta": "c n", "delta": "c n", "base_delta": "*", "kept": "m"
    }  # fmt: skip
    lost_remedy: ClassVar[str] = AGAIN

    base: Base = field(repr=False)
    beta: Array = field(repr=False)
    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)
    bias: AnyBias = field(repr=False)
    statistics: Mapping[str, Array] = field(repr=False)
    kept: Array = field(default_factory=lambda: np.zeros(0, int), repr=False)

    def __post_init__(self) -> None:
        if self.kept.size == 0:
            object.__setattr__(self, "kept", np.arange(self.z.shape[1]))

    @property
    def draws(self) -> int:
        """Draws of each chain, whether their x was kept or not."""
        return self.beta.shape[1]

    @property
    def is_thinned(self) -> bool:
        """Whether x was kept of some draws only."""
        return self.kept.size < self.draws

    @cached_property
    def tours(self) -> Tours | None:
        """The stretches between draws at β = 0, where x is drawn afresh from the base.

        β = 0 is the lowest rung of a ladder, or the atom of a continuous path. None without both.
        """
        batch = batch_of(self.base) if self.method == "independence" else 1
        return Tours.of(self.beta, self.bias, batch)

    @cached_property
    def estimator(self) -> PathEstimator:
        """The estimator of everything along the path, base draws included."""
        return PathEstimator(
            self.delta, self.base_delta, self.bias, self.tours, batch_of(self.base)
        )

    def _estimate(self) -> Evidence:
        return self.estimator.evidence(self.method)

    @cached_property
    def rao_blackwell_evidence(self) -> Evidence:
        """log Z from the tempered chains alone ([GS] 20–22), without the base draws."""
        return self._without_base.evidence(self.method)

    @cached_property
    def _without_base(self) -> PathEstimator:
        return PathEstimator(self.delta, np.zeros(0), self.bias, self.tours)

    @cached_property
    def thermodynamic_evidence(self) -> Evidence:
        """log Z by thermodynamic integration of the average of δ at the β of the draws."""
        return path_integral(self._without_batches, self.beta, self.method)

    @cached_property
    def _without_batches(self) -> PathEstimator:
        """The estimator with the errors of draws that make up for no others.

        The thermodynamic integral knows only these. Its own error is too small where few draws
        tell how δ varies, and no smaller one of the other estimate may show that.
        """
        if batch_of(self.base) == 1:
            return self.estimator
        tours = None if self.tours is None else Tours(self.tours.number)
        return replace(self.estimator, tours=tours, batch=1)

    @property
    def made_by(self) -> str:
        return f"{self.method} in two stages" if isinstance(self.base, NestedBase) else self.method

    @cached_property
    def count_evidence(self) -> Evidence | None:
        """log Z from the visits of the ends of a ladder ([GS] 8); None on a continuous path."""
        if not isinstance(self.bias, LadderBias):
            return None
        return count_evidence(self.beta, self.bias, self.tours, self.method)

    def extra_estimates(self) -> dict[str, Evidence]:
        counted = self.count_evidence
        return {
            "Rao–Blackwell, tempered chains alone": self.rao_blackwell_evidence,
            THERMODYNAMIC: self.thermodynamic_evidence,
            **({COUNTS: counted} if counted and np.isfinite(counted.std_error) else {}),
        }

    def chain_counts(self) -> dict[str, Array]:
        counts = {"round trips": round_trips(self.beta), **transition_counts(self.statistics)}
        if self.tours is not None:
            counts["tours"] = 1 + np.ptp(self.tours.number, axis=1)
        return counts

    @property
    def shows(self) -> tuple[str, ...]:
        own = ("free_energy", "running_log_z", "beta_occupancy", "beta_trace", "base_scores")
        return (*own, *super().shows)

    def _checks(self) -> tuple[Check, ...]:
        evidence, own = self.bare_evidence, self.method_settings
        return (
            self._length_check(evidence),
            *path_checks(
                self.estimator,
                evidence,
                self.standardised,
                self.beta,
                own,
                kept=self.kept,
                rao_blackwell=self.rao_blackwell_evidence,
            ),
            *(
                # Draws of the base are all that moves, or trajectories do.
                [base_tail_check(self.base_delta)]
                if self.method == "independence"
                else transition_checks(self.statistics, own.get("max_depth"), self.method)
            ),
            *tours_check(self.estimator),
            agreement_check(
                self._without_batches.evidence(self.method), self.thermodynamic_evidence
            ),
        )

    @cached_property
    def standardised(self) -> Array:
        """`z` in coordinates in which the base is standard normal, shape (chains, kept, D)."""
        return self.base.standardised(self.z)

    @cached_property
    def at_base(self) -> BaseCheck:
        """The kept draws, reweighted to β = 0, against the base."""
        return base_check(self.standardised, self._row_weights(0.0))

    def log_weights(self, beta: float = 1.0) -> Array:
        """Rao–Blackwell log weights at `beta`, shape (chains, draws), natural log, unnormalised.

        They are those of all draws; ``[:, run.kept]`` are those of `variables`.
        """
        if not 0 <= beta <= 1:
            raise StanctError(f"β must lie between 0 and 1, not {beta!r}.")
        return self.estimator.log_weights(float(beta))

    def _row_weights(self, beta: float) -> Array:
        """The log weights of the rows of `z` and `variables`, shape (chains, kept)."""
        weights = self.log_weights(beta)
        return np.ascontiguousarray(weights[:, self.kept]) if self.is_thinned else weights

    @property
    def target_log_weights(self) -> Array:
        """Log weights of the kept draws at β = 1, shape (chains, kept)."""
        return self._row_weights(1.0)

    @property
    def alike(self) -> dict[str, Any]:
        return {"tours": None if self.tours is None else self.tours.at(self.kept)}

    def curve(self, beta: Array | None = None) -> Curve:
        """The free-energy curve log z(β) with errors, at `beta` or at 0, 0.02, …, 1."""
        return self.estimator.curve(np.linspace(0, 1, 51) if beta is None else np.asarray(beta))

    def rao_blackwell_curve(self, beta: Array | None = None) -> Curve:
        """As `curve`, from the tempered chains alone ([GS] 20–22)."""
        grid = np.linspace(0, 1, 51) if beta is None else np.asarray(beta)
        return self._without_base.curve(grid)

    def curves(self, beta: Array | None = None) -> dict[str, Curve]:
        """`curve` and `rao_blackwell_curve` by the name of their estimator."""
        return {"bridge": self.curve(beta), "Rao–Blackwell": self.rao_blackwell_curve(beta)}

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first draws of each chain alone, at least 2, shape (chains, ends)."""
        return self.estimator.running_log_z(ends)

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]:
        """Cost of the first draws of each chain, shape (chains, ends), and its unit."""
        if "n_leapfrog__" not in self.statistics:
            return scans(self.chains, ends)
        spent = np.cumsum(self.statistics["n_leapfrog__"], axis=1)
        return spent[:, np.asarray(ends) - 1], "gradients"

    def expect(self, quantity: weighted.Quantity, *, beta: float = 1.0) -> Expectation:
        """Weighted average of a quantity, as in `Run.expect`, at any β ([GS] 21, 22).

        β = 1 is the user's density, and 0 the base.
        """
        found = weighted.expect(
            self.variables, self._row_weights(beta), quantity, beta, **self.alike
        )
        return replace(found, failed=self.verdict.draws)

    def summary(
        self,
        names: Names = None,
        *,
        prob: float = 0.9,
        by: str | None = None,
        beta: float = 1.0,
    ) -> pd.DataFrame:
        """As `Run.summary`, also of the densities along the path, at any β."""
        weights, inside = self._row_weights(beta), self._inside(by)
        return weighted.summary(
            self.variables, weights, names, beta, prob=prob, inside=inside, **self.alike
        )

    def resample(
        self, draws: int | None = None, *, beta: float = 1.0, seed: int | None = None
    ) -> dict[str, Array]:
        """Equally weighted draws of the density at one β, as in `Run.resample`."""
        picked = weighted.resampled_rows(self._row_weights(beta), draws, seed)
        return weighted.rows_of(self.variables, picked)

    def _sample_statistics(self) -> dict[str, Array]:
        statistics = for_arviz(self.statistics) | {
            "beta": self.beta,
            "delta": self.delta,
            "log_weight": self.log_weights(1.0),
            "log_weight_base": self.log_weights(0.0),
        }
        return {name: values[:, self.kept] for name, values in statistics.items()}

    def facts(self) -> dict[str, float]:
        own = {"draws of each chain with x": float(self.kept.size)} if self.is_thinned else {}
        return {**super().facts(), **own}

    def _shape(self) -> str:
        kept = f" ({self.kept.size} with x)" if self.is_thinned else ""
        return f"{counted(self.chains, 'chain')} of {self.draws} draws{kept}"

    def _joined(self, more: Any) -> dict[str, Any]:
        return super()._joined(more) | {
            "z": np.concatenate([self.z, more.z], axis=1),
            "kept": np.concatenate([self.kept, self.draws + more.kept]),
            "base_delta": np.concatenate([self.base_delta, more.base_delta]),
        }

    def _stored_arrays(self) -> dict[str, Array]:
        return super()._stored_arrays() | {
            "bias_beta": self.bias.beta,
            "bias_value": self.bias.value,
        }

    @property
    def smooth_bias(self) -> Bias:
        """The bias of a run whose method has no ladder."""
        assert isinstance(self.bias, Bias)
        return self.bias

    def _stored_values(self) -> dict[str, Any]:
        atom = self.bias.atom if isinstance(self.bias, Bias) else 0.0
        return {"ladder": isinstance(self.bias, LadderBias), "atom": atom}

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        knots = stored.arrays["bias_beta"], stored.arrays["bias_value"]
        ladder, atom = stored.head.get("ladder"), stored.head.get("atom", 0.0)
        return super()._restored(stored) | {
            "bias": LadderBias(*knots) if ladder else Bias(*knots, atom=atom)
        }
