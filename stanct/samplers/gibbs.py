"""Gibbs continuous tempering: HMC on x | β, exact draws of β | x ([GS] Graham & Storkey 2017, 5).

Given x, β follows a truncated exponential on every linear piece of the bias ([GS] 17 for one
piece). β is therefore drawn exactly, and one move can reach any point of [0, 1]. β = 0 has an atom,
at which x is drawn afresh from the base, so that chains regenerate (Mykland, Tierney & Yu 1995).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from stanct.common.settings import Knots, Real
from stanct.path.bias import ATOM, Bias
from stanct.path.course import Course
from stanct.samplers._alternation import Alternation
from stanct.samplers._rounds import Round


@dataclass(frozen=True, kw_only=True)
class Gibbs(Alternation):
    """Gibbs continuous tempering.

    Attributes
    ----------
    bootstrap
        Rounds that refit the base before the final chains. With 0, the first base is final.
    transitions
        Number of HMC transitions for each kept draw. Each transition is followed by a draw of β.
    path_length, max_steps, target_accept
        As in `AIS`.
    atom
        Share of the draws at which β = 0 exactly, and x is drawn afresh from the base. The weight
        of β = 0 that brings it about is learned with the bias. Stretches between such draws are
        independent, see `TemperedRun.tours`. With 0, there is no atom.
    bias
        Pairs (β, b) of a bias b(β) of your own, linear between them, which is then not learned. β
        has density ∝ z(β) exp(−b(β)).
    """

    name: ClassVar[str] = "gibbs"

    atom: Annotated[float, Real(0, 0.9, closed=True)] = ATOM
    bias: Annotated[tuple[tuple[float, ...], ...] | None, Knots()] = None

    @property
    def sampled(self) -> bool:
        """As in `Alternation`: x is redrawn at the atom."""
        return self.atom > 0

    def first_bias(self, log_zeta: float) -> Bias:
        """The linear bias with slope log ζ."""
        return replace(self._own(Bias.linear(log_zeta)), atom=self.atom)

    def carried_bias(self, course: Course, uniform: float) -> Bias:
        """The bias along the course."""
        return course.sharing(self._own(course.bias(uniform)), self.atom)

    def refitted_bias(self, done: Round, uniform: float) -> Bias:
        """The bias along the round's own path, base draws included."""
        return self.carried_bias(done.course, uniform)

    def _own(self, learned: Bias) -> Bias:
        """The learned bias, or the user's."""
        return learned if self.bias is None else Bias.through(self.bias)
