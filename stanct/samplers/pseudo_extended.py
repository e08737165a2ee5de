"""Pseudo-extended MCMC: NUTS on N copies that hand the target over to each other ([PE] 8).

Each copy has its own inverse temperature, which is either estimated with it or fixed. At any time,
one copy follows the target. The others roam the tempered path between base and target, and one
that reaches another mode can take over. The stages are those of joint tempering: fit a base, refit
base and log ζ in rounds, freeze everything, and make the kept draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, overload

import numpy as np
from scipy.special import expit

from stanct.common.arrays import Array
from stanct.common.deadline import ended_by, interruption
from stanct.common.errors import SamplingError
from stanct.common.settings import Choice, Numbers, Whole
from stanct.estimates.copies import CopyEstimator
from stanct.path.base import Base
from stanct.path.bias import CopyBias
from stanct.path.course import Course, beta_grid
from stanct.runs.power_copies import PowerCopiesRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.samplers._chains import Chains, Length, NutsMethod, Outlook, Result, Runner
from stanct.samplers._job import Job, Plan
from stanct.samplers._looks import further
from stanct.samplers._nuts import NutsDraws, control_of, generated, nuts_sampler
from stanct.samplers._power_copies import ROUND_DRAWS, ROUND_WARMUP, PowerCopies, check_instrument
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import copies_inside
from stanct.targets.recipes import variant_of

INSTRUMENTS = ("path", "target")

# Independent draws of the base for each draw of the chains. Each costs one density.
BASE_DRAWS = 4

# Share of the prior of β that is uniform whatever the speed of the path. Few draws near β = 1
# suffice, because every copy counts.
UNIFORM = 0.05


@dataclass(frozen=True, kw_only=True)
class PseudoExtended(NutsMethod[Result]):
    """Pseudo-extended MCMC by NUTS, with compiled kernels or with CmdStan.

    Attributes
    ----------
    copies
        Number of copies N, at least 2. Every gradient costs N gradients of the target.
    fixed_beta : shape (N,)
        Inverse temperatures of the copies in [0, 1], not all 1; estimated by default.
    instrument
        What the copies follow. ``"path"``: the tempered path from the base to the target, which
        gives log Z. ``"target"``: powers γ^β of the target γ, with g ∝ 1, as in [PE] 6 and 7. The
        run then has no log Z, and the base is a choice of coordinates.
    beta_bounds : shape (2,)
        Least and largest estimated β with ``instrument="target"``, .1 and 1 by default. The least
        one is above 0, where γ^β is not normalisable.
    bootstrap
        Rounds that refit base and log ζ before the final chains. With 0, the first base is final.
    target_accept
        Target acceptance statistic for tuning the step size.
    max_depth
        Largest depth of a NUTS tree.
    """

    name: ClassVar[str] = "pseudo_extended"
    aims: ClassVar[bool] = True

    # A single copy would be NUTS on the target itself.
    copies: Annotated[int, Whole(2)] = 5
    fixed_beta: Annotated[tuple[float, ...] | None, Numbers(0, 1)] = None
    instrument: Annotated[str, Choice(*INSTRUMENTS)] = "path"
    beta_bounds: Annotated[tuple[float, ...] | None, Numbers(0, 1, 2)] = None

    if TYPE_CHECKING:  # the kind of run depends on a setting

        @overload
        def __init__(
            self: PseudoExtended[PseudoExtendedRun],
            *,
            copies: int = ...,
            fixed_beta: Sequence[float] | None = ...,
            instrument: Literal["path"] = ...,
            beta_bounds: None = ...,
            bootstrap: int = ...,
            target_accept: float = ...,
            max_depth: int = ...,
        ) -> None: ...

        @overload
        def __init__(
            self: PseudoExtended[PowerCopiesRun],
            *,
            copies: int = ...,
            fixed_beta: Sequence[float] | None = ...,
            instrument: Literal["target"],
            beta_bounds: Sequence[float] | None = ...,
            bootstrap: int = ...,
            target_accept: float = ...,
            max_depth: int = ...,
        ) -> None: ...

        def __init__(self, **settings: Any) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        check_instrument(self.instrument, self.fixed_beta, self.beta_bounds)
        if self.fixed_beta is None:
            return
        if len(self.fixed_beta) != self.copies:
            raise SamplingError(
                f"fixed_beta must be {self.copies} numbers, one for each copy, not "
                f"{list(self.fixed_beta)}.",
                remedy=f"Did you mean copies={len(self.fixed_beta)}?"
                if len(self.fixed_beta) > 1
                else f"Did you mean fixed_beta={[0.1] * (self.copies - 1) + [1.0]}?",
            )
        if all(beta == 1 for beta in self.fixed_beta):
            raise SamplingError(
                "With fixed_beta all 1 nothing is tempered.", remedy="Give some copies a smaller β."
            )

    @property
    def betas(self) -> Array | None:
        """The fixed β as an array of shape (N,)."""
        return None if self.fixed_beta is None else np.array(self.fixed_beta)

    def record(self) -> dict[str, Any]:
        """The settings, JSON values only."""
        rows = {"fixed_beta": self.fixed_beta, "beta_bounds": self.beta_bounds}
        lists = {name: None if row is None else list(row) for name, row in rows.items()}
        return {**super().record(), **lists}

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse a program without a pseudo-extended form, and an aim without an estimate."""
        if self.instrument == "target" and plan.target_se is not None:
            raise SamplingError(
                "With instrument='target' there is no log Z, so the run cannot stop at target_se.",
                remedy="Pass draws= instead, or leave out instrument=.",
            )
        generated(target, "pseudo_extended")

    def run(self, job: Job) -> Any:
        """Fit a base, refit base and log ζ in rounds, freeze both, and draw."""
        if self.instrument == "target":
            return self._powers(job).run()
        start = job.start()
        stages = _Stages(job, self, Runner(job, self.nuts(job)))
        base, bias = job.nuts_base(start.base), CopyBias.linear(start.log_zeta)
        places: Array | None = None
        for number in range(self.bootstrap):
            left = self.bootstrap - number - 1
            stage = stages.run(f"round {number + 1}", base, bias, places, left=left)
            if stage.cut:
                raise interruption()
            new = base
            if isinstance(job.plan.base, str):
                flat = stage.z.reshape(-1, base.dimension)
                weights = np.exp(stage.estimator.log_weights).ravel()
                new = job.nuts_base(
                    base.refitted(flat, weights, least_shrinkage=start.least_shrinkage)
                )
            if stage.estimator.connected:
                bias = prior_by_speed(stage.estimator.course(beta_grid(101)))
            places = new.whiten(base.unwhiten(stage.z[:, -1])).reshape(job.chains, -1)
            if self.fixed_beta is None:
                places = np.concatenate([places, control_of(stage.beta[:, -1])], axis=1)
            base = new
        job.lap("bootstrap")
        return self._kept(stages, base, bias, places)

    def _powers(self, job: Job) -> PowerCopies:
        return PowerCopies(
            job, Runner(job, self.nuts(job)), self.copies, self.betas, self.beta_bounds,
            self.bootstrap,
        )  # fmt: skip

    def resume(self, job: Job, run: Any) -> Any:
        """Move the chains on from their last draws, after a warm-up of step size and metric."""
        if self.instrument == "target":
            return self._powers(job).resume(run)
        places = run.z[:, -1].reshape(job.chains, -1)
        if self.fixed_beta is None:
            places = np.concatenate([places, control_of(run.beta[:, -1])], axis=1)
        stages = _Stages(job, self, Runner(job, self.nuts(job)))
        return self._kept(stages, job.nuts_base(run.base), run.bias, places)

    def _kept(
        self, stages: _Stages, base: Base, bias: CopyBias, places: Array | None
    ) -> PseudoExtendedRun:
        """Make the kept draws under a frozen base and bias."""
        job, precision = stages.job, stages.job.precision
        final = stages.run("pseudo-extended", base, bias, places, precision)
        job.lap("sampling")
        flat = final.z.reshape(job.chains, -1, base.dimension)
        return job.finish(
            PseudoExtendedRun,
            interrupted=final.cut,
            x=base.unwhiten(flat),
            **final.fields(base),
            programs=generated(
                job.target, "pseudo_extended", **variant_of(bias, stages.method.betas)
            ),
            facts={"stopping": precision.record(), "step_size": final.chains.step_size},
        )


@dataclass(frozen=True)
class _Stage:
    """The chains of one round, with the estimates from them.

    `cut` says whether it was cut short.
    """

    chains: Chains
    drawn: _Drawn = field(repr=False)
    cut: bool

    @property
    def z(self) -> Array:
        """Whitened copies, shape (chains, draws, N, D)."""
        return self.drawn.draws.z

    @property
    def beta(self) -> Array:
        """β of the copies, shape (chains, draws, N)."""
        return self.drawn.beta

    @property
    def estimator(self) -> CopyEstimator:
        """The estimator of log Z."""
        return self.drawn.estimator

    def fields(self, base: Base) -> dict[str, Any]:
        """The fields of the run of these draws."""
        return self.drawn.fields(base)


@dataclass(frozen=True)
class _Drawn:
    """Draws of all chains, with β of shape (chains, draws, N) and what follows from them."""

    draws: NutsDraws
    beta: Array
    estimator: CopyEstimator

    def fields(self, base: Base) -> dict[str, Any]:
        """The fields of a `PseudoExtendedRun` beside those of every run."""
        return {
            "z": self.draws.z,
            "beta": self.beta,
            "delta": self.estimator.delta,
            "base_delta": self.estimator.base_delta,
            "base": base,
            "bias": self.estimator.bias,
            "statistics": self.draws.statistics,
        }


@dataclass(frozen=True)
class _Stages:
    """Samples the pseudo-extended density under a sequence of frozen bases and biases."""

    job: Job = field(repr=False)
    method: PseudoExtended
    runner: Runner

    def run(
        self,
        name: str,
        base: Base,
        bias: CopyBias,
        places: Array | None,
        precision: Precision | None = None,
        *,
        left: int | None = None,
    ) -> _Stage:
        """Run the chains, and draw from the base. Without `precision`, the stage is a round.

        `left` is the number of rounds that follow a round.
        """
        job, method = self.job, self.method
        if places is None:
            places = self._starts(name, base)
        aim = precision or Precision(None, ROUND_DRAWS)
        base_draws = job.base_draws(base, name)
        base_draws.begin(job.execution)

        with job.bar(job.chains * aim.first, name) as bar:

            def so_far(draws: NutsDraws) -> _Drawn:
                count = BASE_DRAWS * job.chains * draws.delta.shape[1]
                return self._drawn(draws, base_draws.first(count), bias)

            def more(blocks: list[NutsDraws]) -> int:
                def draft() -> PseudoExtendedRun:
                    fields = so_far(NutsDraws.joined(blocks)).fields(base)
                    return job.draft(PseudoExtendedRun, **fields)

                made = sum(block.delta.shape[1] for block in blocks)
                return further(job, aim, made, bar, draft)

            def error(draws: NutsDraws) -> float:
                return so_far(draws).estimator.evidence("").std_error

            def seen(blocks: list[NutsDraws]) -> None:
                if told := outlook.after_first(blocks, error):
                    bar.note(told.removeprefix(", "))

            sizes = (ROUND_WARMUP, ROUND_DRAWS)
            outlook = Outlook(self.runner, name, base, left, sizes, BASE_DRAWS, method.copies)
            # Of several rounds, the first one and the last one make forecasts.
            outlook.early = left is not None and name != "round 1"
            warmup = ROUND_WARMUP if precision is None else job.warmup
            length = Length(warmup, aim.first, more, seen, kept=precision is not None)
            sampler = nuts_sampler(job, base, bias, copies=method.copies, fixed_beta=method.betas)
            chains = self.runner.run(sampler, places, length, name, bar)
        if chains.interrupted:
            aim.reason = ended_by()
        # A gradient of the program is one of the target for each copy.
        job.ledger.gradients += method.copies * chains.gradients
        count = BASE_DRAWS * job.chains * chains.draws.delta.shape[1]
        base_delta, cut = base_draws.kept(count, job.execution, cut=chains.interrupted)
        job.ledger.evaluations += base_delta.size
        if left == 0 and not cut:
            outlook.made(name, chains.draws, error, counted=True)
        return _Stage(chains, self._drawn(chains.draws, base_delta, bias), cut)

    def _drawn(self, draws: NutsDraws, base_delta: Array, bias: CopyBias) -> _Drawn:
        """Draws with their estimator."""
        betas = self.method.betas
        free = betas is None
        beta = expit(draws.u) if free else np.broadcast_to(betas, draws.delta.shape).copy()
        return _Drawn(draws, beta, CopyEstimator(draws.delta, base_delta, bias, betas))

    def _starts(self, name: str, base: Base) -> Array:
        job, method = self.job, self.method
        rng = np.random.default_rng(job.seeds("starts", name))
        shape = job.chains, method.copies
        return copies_inside(job.target, base, shape, rng, free=method.fixed_beta is None)


def prior_by_speed(course: Course) -> CopyBias:
    """The bias b = log z, and a prior under which the copies stay longer where the path is faster.

    The β of the target's copy follows the same prior, because nothing else determines it. When
    another copy takes over, this one is released at a β where the modes meet.
    """
    return CopyBias.from_curves(course.beta, course.log_z, course.log_density(UNIFORM))
