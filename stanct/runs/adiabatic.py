"""`AdiabaticRun`: trajectories of a contact flow, cooled from the base to the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import StanctError
from stanct.estimates.mean_weight import log_mean_weight, mean_weight_evidence
from stanct.estimates.path import Curve, Evidence
from stanct.runs.diagnostics import Check, agreement, check, mean_weight_checks
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.verdicts import most

MORE = "Use a longer duration, then more trajectories (draws=)."


@dataclass(frozen=True, kw_only=True, repr=False)
class AdiabaticRun(EvidenceRun):
    """Weighted arrivals at β = 1, and the records of each trajectory at the nodes of β.

    A chain is a random stream, and its draws are trajectories.

    Attributes
    ----------
    betas, means : shape (K,)
        Nodes from 0 to 1, and the learned E_β[δ] there, which is linear between nodes.
    delta, kinetic : shape (chains, draws, K)
        δ and ½ |p|² where trajectories cross the nodes; NaN where a trajectory did not arrive.
    flow_log_z : shape (chains, draws, K)
        log z(β) = −(T + V_B + β δ + H₀) along each trajectory ([AMC]).
    node_log_weights : shape (chains, draws, K)
        Log importance weights at the nodes, natural log; −∞ where a trajectory did not arrive.
    heated_delta, heated_log_weights : shape (chains, draws, K)
        δ and log weights of trajectories heated from resampled arrivals.
    counts : shape (chains, 2, 5)
        For cooling and heating: gradients, momentum resamplings, and the numbers of trajectories
        that stalled, left the support, or diverged.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct trajectories 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "betas": "k", "means": "k", "delta": "c n k", "kinetic": "c n k",
        "flow_log_z": "c n k", "node_log_weights": "c n k", "heated_delta": "c n k",
        "heated_log_weights": "c n k", "counts": "c 2 5",
    }  # fmt: skip

    betas: Array = field(repr=False)
    means: Array = field(repr=False)
    delta: Array = field(repr=False)
    kinetic: Array = field(repr=False)
    flow_log_z: Array = field(repr=False)
    node_log_weights: Array = field(repr=False)
    heated_delta: Array = field(repr=False)
    heated_log_weights: Array = field(repr=False)
    counts: Array = field(repr=False)

    @property
    def target_log_weights(self) -> Array:
        """The arrivals' log weights."""
        return self.node_log_weights[..., -1]

    def _estimate(self) -> Evidence:
        return mean_weight_evidence(self.target_log_weights, 1, self.settings["seed"], self.method)

    @property
    def shows(self) -> tuple[str, ...]:
        return ("free_energy", "cooling_and_heating", "expected_delta", *super().shows)

    def curve(self) -> Curve:
        """The free-energy curve log z at the nodes, from the mean weights, with errors."""
        log_weights = self.node_log_weights.reshape(-1, self.betas.size)
        return Curve(self.betas, *log_mean_weight(log_weights))

    def curves(self, beta: Array | None = None) -> dict[str, Curve]:
        """`curve` by the name of its estimator. Its β are the nodes; `beta` has no effect."""
        return {"importance weights": self.curve()}

    def flow_curve(self) -> Curve:
        """The curve that trajectories carry, their average −(T + V_B + βδ + H₀), with its error.

        The curve follows the integral −∫ E_β[δ] dβ of the learned expectation. The reported error
        is the spread between trajectories, and excludes the error of that expectation.
        """
        arrived = np.isfinite(self.target_log_weights)
        values = self.flow_log_z[arrived]
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        return Curve(self.betas, values.mean(axis=0), np.broadcast_to(error, self.betas.shape))

    @cached_property
    def heated_evidence(self) -> tuple[float, float]:
        """log Z from heating, −log of the heated mean weight at β = 0, and its standard error.

        Heating starts from resampled arrivals, so it misses whatever cooling missed. Only its
        direction differs.
        """
        log_z, error = log_mean_weight(self.heated_log_weights[..., 0].reshape(-1, 1))
        return -float(log_z[0]), float(error[0])

    def heated_curve(self) -> Curve:
        """The free-energy curve from heating, log z(0) = 0, at the nodes.

        Where it departs from the curve of cooling (`curve`), the flow met a metastability.
        """
        log_weights = self.heated_log_weights.reshape(-1, self.betas.size)
        log_mean, _ = log_mean_weight(log_weights)
        relative = np.exp(log_weights - np.where(np.isfinite(log_mean), log_mean, 0.0))
        error = (relative.T - relative[:, 0]).std(axis=1, ddof=1) / np.sqrt(len(relative))
        if not np.isfinite(log_mean[0]):
            error = np.full_like(error, np.inf)
        return Curve(self.betas, log_mean - log_mean[0], error)

    @cached_property
    def stops(self) -> tuple[Array, Array]:
        """β of the last node passed by each lost trajectory, for cooling and for heating."""
        cooled, heated = np.isfinite(self.node_log_weights), np.isfinite(self.heated_log_weights)
        down = cooled.sum(axis=-1)[~cooled[..., -1]] - 1
        up = self.betas.size - heated.sum(axis=-1)[~heated[..., 0]]
        # A trajectory that starts outside the support has passed no node.
        return self.betas[np.maximum(down, 0)], self.betas[np.minimum(up, self.betas.size - 1)]

    def metropolis(self, *, seed: int | None = None) -> Array:
        """Indices of unweighted draws, by independence Metropolis over each stream's trajectories.

        Returns
        -------
        indices : shape (chains, draws)
            Indices into the draws of each chain, repeated where a proposal was rejected.

        Raises
        ------
        StanctError
            The momentum was resampled on the way, so the flow is not a bijection.
        """
        if self.method_settings["refresh"] is not None:
            raise StanctError(
                "The momentum was resampled along the flow, which therefore is no bijection, and "
                "no Metropolis step can correct it.",
                remedy="Sample with refresh=None, or use the weights: expect, summary, resample.",
            )
        log_weights = self.target_log_weights
        log_uniform = np.log(np.random.default_rng(seed).random(log_weights.shape))
        indices = np.zeros(log_weights.shape, int)
        for chain, row in enumerate(log_weights):
            here = int(np.argmax(np.isfinite(row)))
            for n, proposed in enumerate(row):
                if log_uniform[chain, n] < proposed - row[here]:
                    here = n
                indices[chain, n] = here
        return indices

    def _checks(self) -> tuple[Check, ...]:
        evidence = self.bare_evidence
        # Shares of cooled and heated trajectories that stalled, left the support, or diverged.
        lost = self.counts[..., 2:].sum(axis=0) / (self.chains * self.draws)
        stalled, gone = lost[:, 0], lost[:, 1:].sum(axis=1)
        heated, heated_error = self.heated_evidence
        gap = abs(heated - evidence.log_z)
        gap_error = float(np.hypot(heated_error, evidence.std_error))
        kinetic = self._kinetic_score
        energy = self.energy_error
        stops = np.concatenate(self.stops)
        near = f" near β = {np.median(stops):.2g}" if stops.size else ""
        return (
            self._length_check(evidence),
            most("stalled", stalled.max(), 0.001,
                 f"{stalled[0]:.1%} of the cooled and {stalled[1]:.1%} of the heated trajectories "
                 f"stalled{near}.",
                 "The flow met a metastability, and what no trajectory reaches is missing from "
                 "log Z and from the draws: resample the momentum (refresh=), more often if you "
                 "do, or raise max_steps."),
            most("lost", gone.max(), 0.001,
                 f"{gone[0]:.1%} of the cooled and {gone[1]:.1%} of the heated trajectories left "
                 "the target's support or diverged.",
                 "Use a smaller step, or a base inside the support."),
            *mean_weight_checks(evidence, "trajectories", MORE),
            check("hysteresis", *agreement(gap, gap_error),
                  f"Cooling and heating differ by {gap:.3g} in log Z: "
                  f"{evidence.log_z:.3f} and {heated:.3f}.",
                  f"The flow met a metastability in one direction. {MORE}"),
            most("energy", energy, 0.3,
                 f"The contact Hamiltonian drifts by {energy:.2f} along a trajectory.",
                 "Use a smaller step."),
            most("kinetic", kinetic, 4,
                 f"The kinetic energy at β = 1 is {kinetic:.1f} standard errors from its mean.",
                 f"The flow has left equilibrium. {MORE}"),
        )  # fmt: skip

    @property
    def energy_error(self) -> float:
        """Root mean square drift of T + V_B + βδ + log z + H₀ along a trajectory, in nats."""
        return energy_error(self.betas, self.means, self.flow_log_z[..., -1])

    @property
    def _kinetic_score(self) -> float:
        """|z| of the weighted mean of |p|² at β = 1 against D + 2, the mean under the flux."""
        arrived = np.isfinite(self.target_log_weights)
        log_weights = self.target_log_weights[arrived]
        weights = np.exp(log_weights - log_sum_exp(log_weights))
        excess = 2 * self.kinetic[..., -1][arrived] - self.z.shape[-1] - 2
        mean = weights @ excess
        return float(abs(mean) / max(np.sqrt(weights**2 @ (excess - mean) ** 2), 1e-300))

    def _shape(self) -> str:
        return f"{self.chains} × {self.draws} trajectories through {self.betas.size} nodes"


def energy_error(betas: Array, means: Array, flow_log_z: Array) -> float:
    """Root mean square of a trajectory's log z(1) + ∫ E_β[δ] dβ; NaN entries are left out."""
    drift = flow_log_z + np.trapezoid(means, betas)
    drift = drift[np.isfinite(drift)]
    return float(np.sqrt(np.mean(np.square(drift)))) if drift.size else float("inf")
