"""Bidirectional Monte Carlo (Grosse, Ghahramani & Adams 2015): AIS upwards and downwards.

If the data were simulated from the program, the parameters that generated them are an exact draw
from the posterior. Annealing from this draw to the base gives unbiased estimates of 1/Z. log Z
therefore lies between two stochastic bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.deadline import OutOfTime, out_of_time
from stanct.common.errors import SamplingError
from stanct.kernels import make_problem
from stanct.runs.bracket import Bracket
from stanct.samplers._annealing import Annealing, Down, joined_counts, joined_weights
from stanct.samplers._job import Job, Plan
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget

Point = Mapping[str, Any] | Array
Exact = Point | Callable[[np.random.Generator], Point]


@dataclass(frozen=True, kw_only=True)
class Bidirectional(Annealing[Bracket]):
    """Bidirectional Monte Carlo: particles move up from the base and down from exact draws.

    `exact` is a draw from the posterior, from which every chain starts: the parameters that
    generated the data (name to value), an unconstrained point of shape (D,), or a function of a
    random generator that returns one, called once for every chain. The other settings are those of
    `AIS`. `draws` is the number of particles of each chain in each direction; those on their way
    down are never resampled.
    """

    name: ClassVar[str] = "bidirectional"
    loops: ClassVar[tuple[str, ...]] = (*Annealing.loops, "tempered_move")

    exact: Exact

    def record(self) -> dict[str, Any]:
        """The settings for provenance, without the exact draw."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "exact"}

    def identity(self) -> dict[str, Any]:
        """The settings, with the exact draw or the name of the function that makes one."""
        exact = self.exact
        if callable(exact):
            exact = getattr(exact, "__qualname__", type(exact).__qualname__)
        return {**self.record(), "exact": exact}

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse an exact draw outside the target's support."""
        super().check(plan, target)
        if not callable(self.exact):
            _unconstrained(target, self.exact)

    def run(self, job: Job) -> Bracket:
        """Anneal upwards, then downwards with the same step sizes."""
        run, streams = self.anneal(job)
        if out_of_time():
            raise OutOfTime  # a bracket needs the other direction, too
        for stream in streams:
            draw = self.exact(stream.rng) if callable(self.exact) else self.exact
            z = run.base.whiten(_unconstrained(job.target, draw))
            stream.state = kernels.make_state(make_problem(job.density, run.base), z)
        moves = self.moves(learn=False)
        down = Down(job.borrow, run.base, run.betas, moves, self.transitions, False)
        sizes = [self.island] * (job.draws // self.island)
        blocks, _ = job.blocks("particles down", down, streams, sizes, unit="particle")
        return Bracket(run, joined_weights(blocks), joined_counts(blocks))


def _unconstrained(target: SampledTarget, draw: Point) -> Array:
    """The draw as an unconstrained point, shape (D,), inside the target's support."""
    if isinstance(draw, Mapping):
        if not isinstance(target, ProgramTarget):
            raise SamplingError(
                "Parameters by name belong to a Stan program, and this target has none.",
                remedy="Pass the unconstrained point, an array.",
            )
        try:
            x = target.density.unconstrain(draw)
        except ValueError as cause:
            raise SamplingError(
                f"The exact draw is no value of the program's parameters: {cause}",
                remedy="Pass every parameter that the data were simulated from, name to value.",
            ) from cause
    else:
        x = np.asarray(draw, float)
    if x.shape != (target.density.dimension,):
        raise SamplingError(
            f"An exact draw has shape ({target.density.dimension},), not {x.shape}."
        )
    if not np.isfinite(target.density.log_densities(x[None])[0]):
        raise SamplingError(
            "The target vanishes, or Stan rejects it, at the exact draw.",
            remedy="Check that data and parameters come from the same simulation.",
        )
    return x
