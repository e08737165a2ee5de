"""Simulated tempering (Marinari & Parisi 1992) as in [GS] 6–9: HMC on x | rung, rung | x exactly.

Given x, the rung is drawn from the whole ladder at once, P(n | x) ∝ exp(−β_n δ − b_n). At the
lowest rung, x is redrawn from the base. The pseudo-prior b_n = log z(β_n) and the ladder are
learned in the warm-up. Estimates use P(n | x) in place of the visited rungs ([GS] 8, 9), together
with independent draws of the base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.settings import Choice, Knots, Ladder
from stanct.estimates.path import PathEstimator
from stanct.path.bias import Bias, LadderBias, ladder_of
from stanct.path.course import Course, beta_grid
from stanct.samplers._alternation import Alternation
from stanct.samplers._rounds import Round

LADDERS = ("equal", "sigmoidal")
FIRST_RUNGS = 32
# Neighbours a third of a standard deviation of δ apart are close to a continuous path. A rung costs
# one exponential per transition.
RUNGS_PER_LENGTH, FEWEST, MOST = 3.0, 10, 200


@dataclass(frozen=True, kw_only=True)
class SimulatedTempering(Alternation):
    """Simulated tempering on a learned ladder.

    Attributes
    ----------
    ladder
        ``"equal"`` spaces rungs by equal thermodynamic length ∫ sd_β(δ) dβ, learned in the warm-up.
        ``"sigmoidal"`` is the ladder of [GS] 7.2.
    rungs
        Number of rungs; by default three for each unit of thermodynamic length, from 10 to 200. Or
        the inverse temperatures of the rungs, from 0 to 1, which `ladder` then leaves alone.
    bias
        Pairs (β, b) of a pseudo-prior b(β) of your own, which is then not learned. At rungs between
        two pairs it is linear.
    bootstrap
        Rounds that refit the base before the final chains. With 0, the first base is final.
    transitions
        Number of HMC transitions for each kept draw. Each transition is followed by a draw of the
        rung.
    path_length, max_steps, target_accept
        As in `AIS`.

    The run's `beta` holds the visited rungs, and its `bias` is a `LadderBias`. Averages and log z
    are available at every β, including those between rungs.
    """

    name: ClassVar[str] = "simulated_tempering"

    ladder: Annotated[str, Choice(*LADDERS)] = "equal"
    rungs: Annotated[int | tuple[float, ...] | None, Ladder(2)] = None
    bias: Annotated[tuple[tuple[float, ...], ...] | None, Knots()] = None

    @property
    def sampled(self) -> bool:
        """As in `Alternation`: the lowest rung is the base."""
        return True

    @property
    def _first_ladder(self) -> Array:
        return ladder_of(self.rungs or FIRST_RUNGS)

    def _bias(self, ladder: Array, value: Array) -> LadderBias:
        """The pseudo-prior with these values, or the user's, on a ladder."""
        if self.bias is not None:
            value = Bias.through(self.bias)(ladder)
        return LadderBias(ladder, value)

    def first_bias(self, log_zeta: float) -> LadderBias:
        """The linear pseudo-prior on a sigmoidal ladder."""
        ladder = self._first_ladder
        return self._bias(ladder, ladder * log_zeta)

    def carried_bias(self, course: Course, uniform: float) -> LadderBias:
        """The pseudo-prior along the course, on a sigmoidal ladder."""
        ladder = self._first_ladder
        return self._bias(ladder, np.interp(ladder, course.beta, course.log_z - course.log_z[0]))

    def refitted_bias(self, done: Round, uniform: float) -> LadderBias:
        """The equal-length or sigmoidal ladder, with log z(β_n) estimated from a round."""
        estimator = done.estimator
        if isinstance(self.rungs, tuple):
            betas = np.array(self.rungs)
        else:
            grid, length = thermodynamic_length(estimator)
            wanted = int(np.clip(np.ceil(RUNGS_PER_LENGTH * length[-1]) + 1, FEWEST, MOST))
            count, equal = self.rungs or wanted, self.ladder == "equal"
            betas = equal_length(grid, length, count) if equal else ladder_of(count)
        log_z = np.array([estimator.log_z(beta) for beta in betas])
        return self._bias(betas, log_z - log_z[0])


def thermodynamic_length(estimator: PathEstimator) -> tuple[Array, Array]:
    """∫₀^β sd_β′(δ) dβ′ by the trapezoidal rule: the grid of β, and the lengths on it."""
    grid = beta_grid(101)
    speed = np.sqrt(estimator.delta_moments(grid)[1])
    pieces = np.diff(grid) * 0.5 * (speed[1:] + speed[:-1])
    return grid, np.concatenate([[0.0], np.cumsum(pieces)])


def equal_length(grid: Array, length: Array, rungs: int) -> Array:
    """The ladder whose neighbours are equally far apart in thermodynamic length, shape (rungs,)."""
    # A path of zero length, where base and target agree, still needs distinct rungs.
    padded = length + 1e-3 * max(length[-1], 1e-3) * grid
    betas = np.interp(np.linspace(0, padded[-1], rungs), padded, grid)
    betas[0], betas[-1] = 0.0, 1.0
    return betas
