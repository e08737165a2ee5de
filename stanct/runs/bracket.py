"""`Bracket`, the result of bidirectional Monte Carlo: log Z between two stochastic bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import StanctError
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import between_error
from stanct.runs.particle import ParticleRun


@dataclass(frozen=True)
class Bracket:
    """log Z between annealing from the base and annealing from exact draws (Grosse et al. 2015).

    The mean weight of the forward particles is an unbiased estimate of Z, so its log is too low on
    average. The mean weight of the reverse particles is an unbiased estimate of 1/Z, so minus its
    log is too high on average. If both estimates approach each other from their sides, this is the
    strongest available evidence that neither missed anything. Only data simulated from the program
    have an exact draw, which is the parameters that generated them.

    Attributes
    ----------
    forward
        The run from the base to the target. `forward.evidence` is the lower estimate.
    reverse_log_weights : shape (chains, particles)
        Log weights of particles moved from the target to the base, natural log.
    reverse_counts : shape (chains, 5)
        As `ParticleRun.counts`.
    upper, upper_error
        The upper estimate of log Z and its standard error, the larger of the within-chain and the
        between-chain error. If all chains start from the same exact draw, the error excludes the
        effect of this common start.
    """

    forward: ParticleRun
    reverse_log_weights: Array = field(repr=False)
    reverse_counts: Array = field(repr=False)

    @property
    def lower(self) -> float:
        """The lower estimate of log Z, from the forward particles."""
        return self.forward.evidence.log_z

    @property
    def lower_error(self) -> float:
        """Standard error of `lower`."""
        return self.forward.evidence.std_error

    @property
    def upper(self) -> float:
        """The upper estimate of log Z, from the reverse particles."""
        weights = self.reverse_log_weights
        return float(np.log(weights.size) - log_sum_exp(weights))

    @property
    def upper_error(self) -> float:
        """Standard error of `upper`."""
        weights = np.exp(self.reverse_log_weights - self.reverse_log_weights.max())
        weights /= weights.mean()
        within = weights.std() / np.sqrt(effective_size(weights))
        return float(np.fmax(within, between_error(weights.mean(axis=1))))

    @property
    def gap(self) -> float:
        """Upper minus lower estimate: on average no less than the sum of both biases."""
        return self.upper - self.lower

    @property
    def gap_error(self) -> float:
        """Standard error of `gap`."""
        return float(np.hypot(self.lower_error, self.upper_error))

    def bounds(self, level: float = 0.95) -> tuple[float, float]:
        """Bounds on log Z that hold with at least this probability, whatever the sampler did.

        By Markov's inequality, log Z exceeds the lower estimate minus log(2 / (1 − level)) with
        probability at least (1 + level) / 2. The same holds for the upper estimate.

        Raises
        ------
        StanctError
            `level` does not lie between 0 and 1.
        """
        if not 0 < level < 1:
            raise StanctError(f"The level must lie between 0 and 1, not {level!r}.")
        slack = float(np.log(2 / (1 - level)))
        return self.lower - slack, self.upper + slack

    @property
    def gradients(self) -> int:
        """Gradients spent in both directions, base and adaptation included."""
        return self.forward.gradients + int(self.reverse_counts[:, 0].sum())

    def __repr__(self) -> str:
        return (
            f"{self.lower:.4f} ± {self.lower_error:.4f} ≤ log Z ≤ {self.upper:.4f} ± "
            f"{self.upper_error:.4f}\n  gap {self.gap:.4f} ± {self.gap_error:.4f}, "
            f"{self.forward.log_weights.size} particles up and {self.reverse_log_weights.size} "
            f"down, {self.gradients} gradients"
        )
