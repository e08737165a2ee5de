"""Joint continuous tempering: NUTS on (z, u), β = logistic(u) (Graham & Storkey 2017, section 5).

β = 0 has an atom, at which z is drawn afresh from the base. Each trajectory of NUTS is followed by
an exact draw of β given z, which is how a chain gets to the atom and away from it.

The run has four stages. A base is fitted, one or more short rounds of the joint program refit base
and bias, everything is frozen, and the kept draws are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, overload

import numpy as np
from scipy.special import expit

from stanct.common.arrays import Array
from stanct.common.deadline import interruption
from stanct.common.errors import SamplingError
from stanct.common.settings import Choice, Knots, Real
from stanct.path.base import Base
from stanct.path.bias import ATOM, Bias
from stanct.runs.coupled import CoupledRun
from stanct.runs.tempered import TemperedRun
from stanct.samplers._chains import Follower, NutsMethod, Result, Stages
from stanct.samplers._coupled import from_prior, further_from_prior
from stanct.samplers._job import Job, Plan
from stanct.samplers._nuts import NutsDraws, control_of, generated
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import BaseDraws, Round, course_under, reaching, refit_base
from stanct.samplers._watch import Watch
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar
from stanct.work.shelf import Shelf

PATHS = ("base", "prior")
ROUND_WARMUP, ROUND_DRAWS = 300, 800

# Independent draws of the base for each draw of the chains. A base draw costs one density, a NUTS
# draw many gradients. Where chains move well, the base contributes most of the error.
ROUND_BASE_DRAWS, BASE_DRAWS = 4, 8


@dataclass(frozen=True, kw_only=True)
class Joint(NutsMethod[Result]):
    """Joint continuous tempering by NUTS, with compiled kernels or with CmdStan.

    Attributes
    ----------
    bootstrap
        Rounds that refit base and bias before the final chains. With 0, the first base is final.
    target_accept
        Target acceptance statistic for tuning the step size; by default .9, and .95 on the path
        from the prior.
    max_depth
        Largest depth of a NUTS tree.
    atom
        Share of the draws at which β = 0 exactly, and x is drawn afresh from the base. Each round
        learns the weight of β = 0 that brings it about. Stretches between such draws are
        independent, see `TemperedRun.tours`. With 0, there is no atom. CmdStan has none.
    bias
        Pairs (β, b) of a bias b(β) of your own, linear between them, which is then not learned. β
        has density ∝ z(β) exp(−b(β)).
    path
        Where the path begins. ``"base"``: at a fitted base. ``"prior"``: at the prior, so that only
        the likelihood is tempered. Prior and likelihood have to be told apart, and the prior is
        proper. Short chains at powers of the likelihood give the first bias. The run is a
        `CoupledRun`, the engine runs the generated program itself, and there is no atom.

    CmdStan runs NUTS on the generated joint program. It also fits the bases ``"pathfinder"``,
    ``"laplace"`` and ``"advi"``. Pilots always run on the embedded engine. Without CmdStan,
    compiled kernels run NUTS. They obtain the gradient of the joint program from that of the
    density program by the chain rule.
    """

    name: ClassVar[str] = "joint"
    aims: ClassVar[bool] = True
    thins: ClassVar[bool] = True

    atom: Annotated[float, Real(0, 0.9, closed=True)] = ATOM
    bias: Annotated[tuple[tuple[float, ...], ...] | None, Knots()] = None
    path: Annotated[str, Choice(*PATHS)] = "base"

    if TYPE_CHECKING:  # the kind of run depends on a setting

        @overload
        def __init__(
            self: Joint[TemperedRun],
            *,
            bootstrap: int = ...,
            target_accept: float | None = ...,
            max_depth: int = ...,
            atom: float = ...,
            bias: Sequence[Sequence[float]] | None = ...,
            path: Literal["base"] = ...,
        ) -> None: ...

        @overload
        def __init__(
            self: Joint[CoupledRun],
            *,
            bootstrap: int = ...,
            target_accept: float | None = ...,
            max_depth: int = ...,
            path: Literal["prior"],
        ) -> None: ...

        def __init__(self, **settings: Any) -> None: ...

    @property
    def from_prior(self) -> bool:
        return self.path == "prior"

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse what the path from the prior cannot have."""
        if self.path == "base":
            return
        if not isinstance(target, ProgramTarget):
            raise SamplingError(
                "The path from the prior needs a Stan program with a prior and a likelihood.",
                remedy="Leave out path=.",
            )
        if self.bias is not None or plan.thin != 1:
            raise SamplingError(
                "With path='prior', the bias is learned and all draws are kept.",
                remedy="Leave out bias= and thin=, or path=.",
            )
        target.code("prior_likelihood")

    def run(self, job: Job) -> Any:
        """Fit a base, refit base and bias in rounds, freeze both, and draw."""
        if self.path == "prior":
            return from_prior(job, self.nuts(job), self.bootstrap)
        start = job.start()
        stages = self._stages(job)
        own = None if self.bias is None else Bias.through(self.bias)
        share = 0.0 if job.engine else self.atom
        base = job.nuts_base(start.base)
        bias = replace(own or Bias.linear(start.log_zeta), atom=share)
        places: Array | None = None
        for number in range(self.bootstrap):
            name = f"round {number + 1}"
            follow = _watched(job, bias, ROUND_BASE_DRAWS, Shelf())
            drawn = stages.run(name, base, bias, places, follow)
            if drawn.cut:
                raise interruption()
            done = Round(base, bias, drawn.draws.z, drawn.draws.delta, drawn.base_delta)
            new = refit_base(done, start.least_shrinkage)
            fits = start.given or new is base
            new = job.nuts_base(new if fits else reaching(new))
            course = course_under(done, new)
            bias = course.sharing(own or course.coarse_bias(start.uniform), share)
            ends = drawn.draws.inside
            x = base.unwhiten(ends[:, :-1])
            places = np.concatenate([new.whiten(x), ends[:, -1:]], axis=1)
            base = new
        job.lap("bootstrap")
        return self._kept(stages, base, bias, places)

    def resume(self, job: Job, run: Any) -> Any:
        """Move the chains on from their last draws, after a warm-up of step size and metric."""
        if self.path == "prior":
            return further_from_prior(job, self.nuts(job), run)
        bias = run.smooth_bias
        # At the atom a chain begins afresh, so that any other draw may stand for it.
        beta = run.beta[:, run.kept]
        u = np.where(beta > 0, control_of(beta), -np.inf)
        places = NutsDraws(run.z, u, run.delta[:, run.kept], {}).inside
        return self._kept(self._stages(job), job.nuts_base(run.base), bias, places)

    def _stages(self, job: Job) -> Stages:
        rounds, per_draw = (ROUND_WARMUP, ROUND_DRAWS), (ROUND_BASE_DRAWS, BASE_DRAWS)
        return Stages(job, self.nuts(job), rounds, per_draw)

    def _kept(self, stages: Stages, base: Base, bias: Bias, places: Array | None) -> TemperedRun:
        """Make the kept draws under a frozen base and bias."""
        job = stages.job
        precision, shelf = job.precision, job.shelf()
        follow = _watched(job, bias, BASE_DRAWS, shelf)
        final = stages.run("joint", base, bias, places, follow, precision=precision, shelf=shelf)
        draws, length = final.draws, final.draws.delta.shape[1]
        job.lap("sampling")
        return job.finish(
            TemperedRun,
            interrupted=final.cut,
            # CmdStan has computed the user's variables with the draws.
            variables=draws.variables or None,
            z=shelf.all(draws.z, length),
            kept=shelf.kept(length),
            beta=expit(draws.u),
            delta=draws.delta,
            base_delta=final.base_delta,
            base=base,
            bias=bias,
            statistics=draws.statistics,
            programs=generated(job.target, "joint"),
            facts={"stopping": precision.record(), "step_size": final.step_size},
        )


def _watched(
    job: Job, bias: Bias, per_draw: int, shelf: Shelf
) -> Callable[[Bar, Precision, BaseDraws], Follower]:
    """What watches log Z along the draws of a stage, which takes x from a shelf."""

    def follow(bar: Bar, aim: Precision, base_draws: BaseDraws) -> Follower:
        watch = Watch(base_draws, per_draw, bias, aim, job.execution)

        def more(blocks: list[NutsDraws]) -> int:
            drawn = NutsDraws.joined(blocks)
            draws = drawn.delta.shape[1]
            z, kept = shelf.all(drawn.z, draws), shelf.kept(draws)
            return watch.more(bar, z, expit(drawn.u), drawn.delta, kept)

        def so_far(blocks: list[NutsDraws]) -> tuple[Array, Array, int]:
            drawn = NutsDraws.joined(blocks)
            return expit(drawn.u), drawn.delta, drawn.gradients

        return Follower(more, lambda blocks: watch.show(bar, lambda: so_far(blocks)))

    return follow
