"""Simulated tempering (Marinari & Parisi 1992) as in [GS] 6–9: HMC on x | rung, rung | x exactly.

Given x the rung is drawn from all of the ladder at once, P(n | x) ∝ exp(−β_n δ − b_n), and at the
lowest rung x is drawn afresh from the base. The pseudo-prior b_n = log z(β_n) and the ladder are
learned in the warm-up. Estimates use P(n | x) in place of the rungs that the chain happened to
visit ([GS] 8, 9), joined with independent draws of the base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from stanct.arrays import Array
from stanct.estimates.path import PathEstimator
from stanct.path.bias import LadderBias, sigmoidal_ladder
from stanct.path.course import Course, beta_grid
from stanct.samplers._alternation import Alternation
from stanct.samplers._rounds import Round
from stanct.settings import Choice, Whole

LADDERS = ("equal", "sigmoidal")
FIRST_RUNGS = 32
# Neighbours a third of a standard deviation of δ apart all but make a continuous path; a rung costs
# one exponential a transition.
RUNGS_PER_LENGTH, FEWEST, MOST = 3.0, 10, 200


@dataclass(frozen=True, kw_only=True)
class SimulatedTempering(Alternation):
    """Simulated tempering on a ladder that is learned.

    Attributes
    ----------
    ladder
        ``"equal"``: rungs at equal thermodynamic length ∫ sd_β(δ) dβ, learned in the warm-up;
        ``"sigmoidal"``: [GS] 7.2's.
    rungs
        By default three for each unit of thermodynamic length, from 10 to 200.
    bootstrap
        Rounds that refit the base before the final chains. With 0 the first base is final.
    transitions
        HMC transitions, each followed by a draw of the rung, for each draw that is kept.
    path_length
        Mean length of a trajectory in whitened time; a standard normal's period is 2π.
    max_steps
        Most leapfrog steps in a trajectory.
    target_accept
        Acceptance that the step size at every β is tuned to.

    The run's `beta` are the rungs visited, its `bias` is a `LadderBias`; averages and log z are
    available at every β, also between rungs.
    """

    name: ClassVar[str] = "simulated_tempering"
    sampled: ClassVar[bool] = True

    ladder: Annotated[str, Choice(*LADDERS)] = "equal"
    rungs: Annotated[int | None, Whole(2)] = None

    @property
    def _first_ladder(self) -> Array:
        return sigmoidal_ladder((self.rungs or FIRST_RUNGS) - 1)

    def first_bias(self, log_zeta: float) -> LadderBias:
        """The linear pseudo-prior on a sigmoidal ladder."""
        return LadderBias.linear(self._first_ladder, log_zeta)

    def carried_bias(self, course: Course, uniform: float) -> LadderBias:
        """The pseudo-prior along the course, on that ladder."""
        ladder = self._first_ladder
        return LadderBias(ladder, np.interp(ladder, course.beta, course.log_z - course.log_z[0]))

    def refitted_bias(self, done: Round, uniform: float) -> LadderBias:
        """The ladder of equal length, or the sigmoidal one, with log z(β_n) of a round."""
        estimator = done.estimator
        grid, length = thermodynamic_length(estimator)
        wanted = int(np.clip(np.ceil(RUNGS_PER_LENGTH * length[-1]) + 1, FEWEST, MOST))
        count = self.rungs or wanted
        if self.ladder == "equal":
            betas = equal_length(grid, length, count)
        else:
            betas = sigmoidal_ladder(count - 1)
        log_z = np.array([estimator.log_z(beta) for beta in betas])
        return LadderBias(betas, log_z - log_z[0])


def thermodynamic_length(estimator: PathEstimator) -> tuple[Array, Array]:
    """∫₀^β sd_β′(δ) dβ′ on a grid of β, by the trapezoidal rule; (grid, lengths)."""
    grid = beta_grid(101)
    speed = np.sqrt(estimator.delta_moments(grid)[1])
    pieces = np.diff(grid) * 0.5 * (speed[1:] + speed[:-1])
    return grid, np.concatenate([[0.0], np.cumsum(pieces)])


def equal_length(grid: Array, length: Array, rungs: int) -> Array:
    """The ladder whose neighbours are equally far apart in thermodynamic length, shape (rungs,)."""
    # A path without length, where base and target agree, still needs distinct rungs.
    padded = length + 1e-3 * max(length[-1], 1e-3) * grid
    betas = np.interp(np.linspace(0, padded[-1], rungs), padded, grid)
    betas[0], betas[-1] = 0.0, 1.0
    return betas
