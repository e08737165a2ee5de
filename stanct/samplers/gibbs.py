"""Gibbs continuous tempering: HMC on x | β, exact draws of β | x ([GS] Graham & Storkey 2017, 5).

Given x, β follows a truncated exponential on every linear piece of the bias ([GS] 17 for one
piece). β is therefore drawn exactly, and one move can reach any point of [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stanct.path.bias import Bias
from stanct.path.course import Course
from stanct.samplers._alternation import Alternation
from stanct.samplers._rounds import Round, refit_bias


@dataclass(frozen=True, kw_only=True)
class Gibbs(Alternation):
    """Gibbs continuous tempering.

    Attributes
    ----------
    bootstrap
        Rounds that refit the base before the final chains. With 0, the first base is final.
    transitions
        Number of HMC transitions for each kept draw. Each transition is followed by a draw of β.
    path_length
        Mean length of a trajectory in whitened time; the period of a standard normal is 2π.
    max_steps
        Largest number of leapfrog steps in a trajectory.
    target_accept
        Target acceptance for tuning the step size at every β.
    """

    name: ClassVar[str] = "gibbs"
    sampled: ClassVar[bool] = False

    def first_bias(self, log_zeta: float) -> Bias:
        """The linear bias with slope log ζ."""
        return Bias.linear(log_zeta)

    def carried_bias(self, course: Course, uniform: float) -> Bias:
        """The bias along the course."""
        return course.bias(uniform)

    def refitted_bias(self, done: Round, uniform: float) -> Bias:
        """The bias along the round's own path, base draws included."""
        return refit_bias(done, uniform)
