"""`PowerRun`: draws of every power posterior p(θ) p(y | θ)^β from the prior to the posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import StanctError, counted
from stanct.estimates.mixing import effective_size, r_hat
from stanct.estimates.tail import Tail
from stanct.runs.diagnostics import MORE, Check, agreement, agreement_check, check, weights_check
from stanct.runs.ladder import RungsRun
from stanct.runs.normalised import prior_mass_checks
from stanct.runs.verdicts import least, most

if TYPE_CHECKING:
    import pandas as pd

# NUTS on an ordinary density should hardly diverge.
MOST_DIVERGENT, MOST_LOST = 0.01, 0.01


@dataclass(frozen=True, kw_only=True, repr=False)
class PowerRun(RungsRun):
    """Draws of p(θ) p(y | θ)^β at every β of a schedule, each by NUTS of its own.

    `variables` and `z` are those at β = 1, which follow the posterior and need no weights.
    `evidence` adds up bridges between neighbours, and `thermodynamic_evidence` is ∫ E_β[log L] dβ.
    Both add log ∫ p dθ, which the program's statements tell, to log ∫ p L dθ / ∫ p dθ. They are the
    log Z of the other methods. A check fails where the statements do not tell it.

    Attributes
    ----------
    betas : shape (K,)
        The schedule, from 0, the prior, to 1.
    delta : shape (chains, draws, K)
        −log p(y | θ) with all constants at the draws of every β; +inf only at β = 0.
    log_prior : shape (chains, draws, 2)
        log p(θ) in the program's own space, with all constants, at the draws of the prior and of
        the posterior.
    divergent, lost : shape (chains, K)
        Share of the transitions that diverged, and of the draws that the transform cannot invert.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct powers 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "betas": "k", "delta": "c n k", "log_prior": "c n 2",
        "divergent": "c k", "lost": "c k",
    }  # fmt: skip

    log_prior: Array = field(repr=False)
    divergent: Array = field(repr=False)
    lost: Array = field(repr=False)

    def prior_sensitivity(self, powers: Sequence[float] = (0.8, 0.9, 1.1, 1.25)) -> pd.DataFrame:
        """How log Z changes when the prior p(θ) becomes p(θ)^a / ∫ p(θ)^a dθ (power-scaling).

        With weights p^(a − 1), log Z(a) = log Z + log E_posterior[p^(a−1)] − log E_prior[p^(a−1)]
        (as Kallioinen et al. 2023 scale posteriors). At a = 1 its slope is
        E_posterior[log p] − E_prior[log p]. A larger a makes the prior narrower.

        Parameters
        ----------
        powers
            Powers a > 0, near 1.

        Returns
        -------
        DataFrame
            For each power: `log_z`; its `change`, in nats, with the `std_error` of the change;
            `pareto_k`, the larger tail shape of the weights of both ends; and `reliable`, which is
            False where a few draws decide, so that the power is too far from 1 for these draws.

        Raises
        ------
        StanctError
            A power is not positive and finite.
        """
        import pandas as pd

        rows = []
        for power in powers:
            if not (math.isfinite(power) and power > 0):
                raise StanctError(f"A power of the prior must be positive, not {power!r}.")
            logs = (power - 1) * self.log_prior
            ends = [_log_mean(logs[..., end]) for end in range(2)]
            change = ends[1][0] - ends[0][0]
            rows.append(
                {
                    "log_z": self.bare_evidence.log_z + change,
                    "change": change,
                    "std_error": math.hypot(ends[0][1], ends[1][1]),
                    "pareto_k": max(tail.shape for _, _, tail in ends),
                    "reliable": not any(tail.is_heavy for _, _, tail in ends),
                }
            )
        return pd.DataFrame(rows, index=pd.Index(list(powers), name="power"))

    def _checks(self) -> tuple[Check, ...]:
        evidence = self.bare_evidence
        inside = np.where(np.isfinite(self.delta), self.delta, np.nan)
        rates = [r_hat(inside[..., k]) for k in range(1, self.betas.size)]
        sizes = [effective_size(inside[..., k], method="bulk") for k in range(1, self.betas.size)]
        rate, size = float(np.max(rates)), float(np.min(sizes))
        up, down = self.forward_evidence, self.backward_evidence
        gap, divergent, lost = (
            abs(up.log_z - down.log_z), float(self.divergent.max()), float(self.lost.max())
        )  # fmt: skip
        beta = self.betas[1 + int(np.argmax(rates))]
        return (
            self._length_check(evidence),
            check("r_hat", rate, 1.05, not rate > 1.05,
                  f"Split R-hat of the log likelihood is {rate:.3f} at β = {beta:.2g}.",
                  "Chains of a power posterior stay apart, and nothing here moves them together: "
                  "use the default method, which crosses between modes."),
            least("effective_size", size, 100,
                  f"The log likelihoods of the slowest β are worth {size:.0f} draws.", MORE),
            check("directions", *agreement(gap, math.hypot(up.std_error, down.std_error)),
                  f"Stepping stones up and down differ by {gap:.3g} in log Z.",
                  "Use more powers (rungs=)."),
            weights_check("pareto_k", evidence.tail, "The bridges' terms",
                          "Use more powers (rungs=)."),
            agreement_check(evidence, self.thermodynamic_evidence, "Use more powers (rungs=)."),
            most("divergences", divergent, MOST_DIVERGENT,
                 f"Up to {divergent:.1%} of the transitions of a chain diverged.",
                 "Raise target_accept to 0.95 or 0.99."),
            *prior_mass_checks(self.provenance),
            most("lost", lost, MOST_LOST,
                 f"Up to {lost:.1%} of a chain's draws have no finite unconstrained value.",
                 "The prior reaches places that floating-point numbers do not: narrow it."),
        )  # fmt: skip

    def _joined(self, more: PowerRun) -> dict[str, Any]:
        return self._averaged(more, "divergent", "lost")

    def _shape(self) -> str:
        return f"{counted(self.chains, 'chain')} of {self.draws} draws at {self.betas.size} powers"


def _log_mean(logs: Array) -> tuple[float, float, Tail]:
    """Log of the mean of exp(logs), shape (chains, draws), its standard error and tail."""
    values = np.exp(logs - logs.max())
    relative = values / values.mean()
    error = float(relative.std() / np.sqrt(effective_size(relative)))
    return float(log_sum_exp(logs)) - math.log(logs.size), error, Tail.of(logs)
