"""Chains of copies, along the path from the base ([PE] 8) or at powers of the target ([PE] 6, 7).

At a power of the target, the instrument of Nemeth et al. themselves, copy i has the density
γ(x)^β_i without a base, where γ is the density of the unconstrained parameters, and β_i has a
uniform g between two bounds. Then

    log π^N = log (1/N) Σ_i (γ_i / ζ)^(1 − β_i) + Σ_j β_j log (γ_j / ζ),

and copy i counts by its share of the first sum. ∫γ^β dx is not known, so that there is no log Z.
The β of a copy that is not the target's has the density ∫(γ / ζ)^β dx, which depends on ζ. Draws of
the target do not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from stanct.bases.fits import FittedBase
from stanct.common.arrays import Array
from stanct.common.deadline import interruption
from stanct.common.errors import SamplingError
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.path.bias import CopyBias, PowerBias
from stanct.path.course import Course, beta_grid
from stanct.path.gaussian import LOG_2PI
from stanct.runs.copies import CopyRun
from stanct.runs.power_copies import PowerCopiesRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.samplers._chains import Follower, Stages
from stanct.samplers._job import Job
from stanct.samplers._looks import further
from stanct.samplers._nuts import NutsDraws, control_of, generated
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import BaseDraws
from stanct.targets.recipes import variant_of
from stanct.work.progress import Bar

# Independent draws of the base for each draw of the chains. Each costs one density.
BASE_DRAWS = 4

# Share of the prior of β that is uniform whatever the speed of the path. Few draws near β = 1
# suffice, because every copy counts.
UNIFORM = 0.05
ROUND_WARMUP, ROUND_DRAWS = 300, 500
# The least fixed β of the paper.
BOUNDS = (0.1, 1.0)


def check_instrument(
    instrument: str, fixed_beta: tuple[float, ...] | None, bounds: tuple[float, ...] | None
) -> None:
    """Raise `SamplingError` for β that do not go with the instrument."""
    if instrument == "path":
        if bounds is not None:
            raise SamplingError(
                "beta_bounds are those of instrument='target'. On the path, β runs from 0 to 1.",
                remedy="Leave out beta_bounds=, or pass instrument='target' too.",
            )
        return
    if fixed_beta is not None:
        if bounds is not None:
            raise SamplingError(
                "β is fixed, so it needs no bounds.", remedy="Pass fixed_beta or beta_bounds."
            )
        if min(fixed_beta, default=1.0) == 0:
            raise SamplingError(
                "At β = 0 a power of the target is constant, and not normalisable.",
                remedy="Did you mean a small β, such as 0.1? With instrument='path' β may be 0.",
            )
    if bounds is not None and not 0 < bounds[0] < bounds[1]:
        raise SamplingError(
            f"beta_bounds must be two numbers that increase, the first above 0, not {bounds}.",
            remedy=f"Did you mean beta_bounds={BOUNDS}?",
        )


@dataclass(frozen=True)
class Copies(ABC):
    """Samples copies in stages; `betas`, shape (N,), are fixed β, None where they are estimated."""

    kind: ClassVar[type[CopyRun]]
    per_draw: ClassVar[int]
    job: Job = field(repr=False)
    nuts: Nuts
    copies: int
    betas: Array | None
    bootstrap: int
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def rounds(self) -> int:
        """Rounds that refit the base before the final chains."""
        return self.bootstrap

    @abstractmethod
    def first_bias(self, start: FittedBase) -> CopyBias:
        """The bias under which the first chains run."""

    def next_bias(self, done: Any, bias: CopyBias) -> CopyBias:
        """The bias that follows from a round, of which `done` is the run."""
        return bias

    def follow(
        self, base: Base, bias: CopyBias, bar: Bar, aim: Precision, base_draws: BaseDraws
    ) -> Follower:
        """What follows the draws of a stage."""
        return Follower()

    @abstractmethod
    def own_fields(self, delta: Array, base_delta: Array) -> dict[str, Array]:
        """The fields of the run that not all runs of copies have."""

    def run(self) -> Any:
        """Fit a base, refit it in rounds unless it was given, freeze it, and draw."""
        job, stages, start = self.job, self._stages(), self.job.start()
        base, bias = job.nuts_base(start.base), self.first_bias(start)
        places: Array | None = None
        for number in range(self.rounds):
            name = f"round {number + 1}"
            follow = partial(self.follow, base, bias)
            chains = stages.run(name, base, bias, places, follow)
            if chains.cut:
                raise interruption()
            done: Any = self.draft(chains.draws, chains.base_delta, base, bias)
            new = base
            if isinstance(job.plan.base, str):
                flat, weights = done.z.reshape(-1, base.dimension), np.exp(done.copy_log_weights)
                least = start.least_shrinkage
                new = base.refitted(flat, weights.ravel(), least_shrinkage=least)
                new = job.nuts_base(new)
            bias = self.next_bias(done, bias)
            places = self._places(new.whiten(base.unwhiten(done.z[:, -1])), done.beta[:, -1])
            base = new
        job.lap("bootstrap")
        return self._kept(stages, base, bias, places)

    def resume(self, run: Any) -> Any:
        """Move the chains on from their last draws."""
        places = self._places(run.z[:, -1], run.beta[:, -1])
        return self._kept(self._stages(), self.job.nuts_base(run.base), run.bias, places)

    def _stages(self) -> Stages:
        each = self.per_draw, self.per_draw
        sizes = ROUND_WARMUP, ROUND_DRAWS
        return Stages(self.job, self.nuts, sizes, each, self.copies, self.betas)

    def _kept(self, stages: Stages, base: Base, bias: CopyBias, places: Array | None) -> Any:
        """Make the kept draws under a frozen base and bias."""
        job, precision = self.job, self.job.precision
        follow = partial(self.follow, base, bias)
        final = stages.run("pseudo-extended", base, bias, places, follow, precision=precision)
        job.lap("sampling")
        fields = self._fields(final.draws, final.base_delta, base, bias)
        stopping = {"stopping": precision.record()} if self.per_draw else {}
        return job.finish(
            self.kind,
            interrupted=final.cut,
            x=base.unwhiten(fields["z"].reshape(job.chains, -1, base.dimension)),
            **fields,
            programs=generated(job.target, "pseudo_extended", **variant_of(bias, self.betas)),
            facts={**stopping, "step_size": final.step_size},
        )

    def draft(self, draws: NutsDraws, base_delta: Array, base: Base, bias: CopyBias) -> CopyRun:
        """A run of these draws, for what follows from them."""
        return self.job.draft(self.kind, **self._fields(draws, base_delta, base, bias))

    def _fields(
        self, draws: NutsDraws, base_delta: Array, base: Base, bias: CopyBias
    ) -> dict[str, Any]:
        """The fields of the run beside those of every run."""
        low, high = self.bounds
        if self.betas is None:
            beta = low + (high - low) * expit(draws.u)
        else:
            beta = np.broadcast_to(self.betas, draws.delta.shape).copy()
        return {
            "z": draws.z,
            "beta": beta,
            "base": base,
            "bias": bias,
            "statistics": draws.statistics,
            **self.own_fields(draws.delta, base_delta),
        }

    def _places(self, z: Array, beta: Array) -> Array:
        """Points of the chains from copies, shape (chains, N, D), and their β, (chains, N)."""
        whole = z.reshape(len(z), -1)
        if self.betas is not None:
            return whole
        low, high = self.bounds
        return np.concatenate([whole, control_of((beta - low) / (high - low))], axis=1)


@dataclass(frozen=True)
class PathCopies(Copies):
    """Samples copies along the path from the base to the target."""

    kind: ClassVar[type[CopyRun]] = PseudoExtendedRun
    per_draw: ClassVar[int] = BASE_DRAWS

    def first_bias(self, start: FittedBase) -> CopyBias:
        return CopyBias.linear(start.log_zeta)

    def next_bias(self, done: Any, bias: CopyBias) -> CopyBias:
        estimator = done.estimator
        return prior_by_speed(estimator.course(beta_grid(101))) if estimator.connected else bias

    def follow(
        self, base: Base, bias: CopyBias, bar: Bar, aim: Precision, base_draws: BaseDraws
    ) -> Follower:
        def more(blocks: list[NutsDraws]) -> int:
            made = sum(block.delta.shape[1] for block in blocks)

            def draft() -> Any:
                delta = base_draws.first(BASE_DRAWS * self.job.chains * made)
                return self.draft(NutsDraws.joined(blocks), delta, base, bias)

            return further(self.job, aim, made, bar, draft)

        return Follower(more)

    def own_fields(self, delta: Array, base_delta: Array) -> dict[str, Array]:
        return {"delta": delta, "base_delta": base_delta}


def prior_by_speed(course: Course) -> CopyBias:
    """The bias b = log z, and a prior under which copies stay longer where the path is faster."""
    return CopyBias.from_curves(course.beta, course.log_z, course.log_density(UNIFORM))


@dataclass(frozen=True)
class PowerCopies(Copies):
    """Samples copies of powers of the target. The base is a choice of coordinates."""

    kind: ClassVar[type[CopyRun]] = PowerCopiesRun
    per_draw: ClassVar[int] = 0

    @property
    def rounds(self) -> int:
        return self.bootstrap if isinstance(self.job.plan.base, str) else 0

    def first_bias(self, start: FittedBase) -> CopyBias:
        """The bias with the user's log ζ, or that with which both bounds of β are equally likely.

        For a Gaussian target, log ∫γ^β is β log Z + (1 − β) (D/2 log 2π + log det L) − D/2 log β.
        """
        log_zeta = self.job.plan.log_zeta
        if log_zeta is None:
            low, high = self.bounds
            half = start.base.dimension / 2
            volume = half * LOG_2PI + start.base.log_det_scale
            log_zeta = start.log_zeta - volume
            log_zeta -= half * float(np.log(high / low)) / (high - low)
        return PowerBias.between(log_zeta, self.bounds)

    def own_fields(self, delta: Array, base_delta: Array) -> dict[str, Array]:
        return {"log_density": -delta}
