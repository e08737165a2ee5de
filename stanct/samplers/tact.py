"""TACT-HMC: tempered dynamics whose thermostats absorb the noise of mini-batches.

The method follows Algorithm 1 of [TACT] (Luo, Wang, Yang, Zhu & Wang 2018) with three corrections.
Draws are collected where λ = 1 (line 16 has 0), the biasing force averages over each bin's own
visits, and no two quantities share a buffer. Three differences are deliberate. By default, friction
acts between two halves of the force (``integrator="published"`` selects the Euler step). The bias
is pooled over all chains. The bias is frozen before the first kept draw. With some parts switched
off, the same loop runs SGNHT, SGHMC and SGLD; see `VARIANTS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.settings import Instance
from stanct.kernels.tact import Bias
from stanct.path.gaussian import GaussianBase
from stanct.runs.tact import TactRun
from stanct.samplers._job import Job, Plan
from stanct.samplers._method import Method
from stanct.samplers._tact_settings import VARIANTS, Coupling, Hills, TactSettings
from stanct.samplers._walkers import (
    SPREAD_BATCHES,
    collect,
    joined,
    learn,
    noise_spread,
    started,
    typical_energy,
)
from stanct.targets import batches
from stanct.targets.batches import Batches, Source, StochasticTarget
from stanct.targets.minibatch import MiniBatch, program_batches
from stanct.targets.program_target import ProgramTarget

__all__ = ["TACT", "VARIANTS", "Coupling", "Hills"]

# Most coordinates of a full thermostat, each step of which costs 9 D² products.
MOST_FULL = 64


@dataclass(frozen=True, kw_only=True)
class TACT(TactSettings, Method[TactRun]):
    """TACT-HMC or one of its variants (`VARIANTS`), which give draws but no evidence.

    No step is accepted or rejected, so the draws carry a discretisation error that vanishes with
    the step size. The means of the thermostats show when the step is too long.

    Attributes
    ----------
    start : shape (D,) or (chains, D)
        Unconstrained starting points that replace draws from the base.
    minibatch
        The variable that counts the observations, and the batch size; see `MiniBatch`.
    thin
        Number of steps between looks (K in [TACT]). A chain collects a draw at each look with
        λ = 1.
    step, tempering_step
        ε = √η for θ (whitened) and for ξ. A step moves each by about ε.
    friction, tempering_friction
        The friction c of the injected noise, per step.
    inertia, tempering_inertia
        The inertia γ of the thermostats. z_θ has variance η / γ, divided by D for the scalar
        thermostat.
    tempering
        Whether ξ moves. If not, λ = 1 throughout.
    thermostat
        ``"scalar"``, ``"diagonal"`` (one for each coordinate), ``"full"`` (a D × D matrix, for
        noise that is correlated between up to 64 coordinates) or None. With None, the friction
        stays at c and the noise of the gradient is not compensated.
    bias
        ``"force"`` (adaptive biasing force), ``"hills"`` (metadynamics) or None.
    bins
        Number of bins of the bias, over 0 ≤ |ξ| ≤ W₀.
    hills, coupling
        Settings of metadynamics and of λ(ξ); see `Hills` and `Coupling`.
    integrator
        ``"symmetric"`` applies exact friction between two halves of the force. ``"published"`` is
        the Euler step of Algorithm 1, whose variances are too small by about z_θ / 2.
    resample_every
        Number of steps after which the momenta are redrawn; 0 for never.
    patience
        A chain makes at most `patience` × `draws` looks. Every chain is cut to the length of the
        one that collected the fewest draws. With 1, all variants cost the same.
    noise
        Standard deviations of Gaussian noise that is added, for experiments, to the energy and to
        each component of its gradient in whitened coordinates. The sampler does not use them.

    `warmup` is the number of looks in which each chain learns the bias. For a Stan program,
    ``base="auto"`` stands for ``"pilot"``, or with mini-batches for ``"laplace"``, fitted to all
    data. A function is then sampled in its own coordinates.
    """

    name: ClassVar[str] = "tact"
    default_draws: ClassVar[int] = 1000
    default_warmup: ClassVar[int] = 1000
    stochastic: ClassVar[bool] = True
    loops: ClassVar[tuple[str, ...]] = "evaluate", "energy_at", "run_looks"

    start: Annotated[
        Array | None, Instance(np.ndarray | Sequence, "an array of unconstrained points")
    ] = None
    minibatch: Annotated[MiniBatch | None, Instance(MiniBatch, "a stanct.MiniBatch")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tempering:
            object.__setattr__(self, "bias", None)
        if self.start is not None:
            object.__setattr__(self, "start", np.asarray(self.start, float))

    def identity(self) -> dict[str, Any]:
        """The settings, with the start as an array."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "hills": asdict(self.hills),
            "coupling": asdict(self.coupling),
            "minibatch": None if self.minibatch is None else self.minibatch.settings,
        }

    def record(self) -> dict[str, Any]:
        """The settings, with the start reduced to whether one was given."""
        return {**self.identity(), "start": None if self.start is None else "given"}

    def automatic_base(self) -> str:
        """A fit to all data that costs less with mini-batches, as they are for much data."""
        return self.default_base if self.minibatch is None else "laplace"

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse bases and mini-batches that do not suit the target."""
        if plan.log_zeta is not None:
            raise SamplingError(
                "TACT-HMC estimates no evidence and has no use for log_zeta.",
                remedy="Leave out log_zeta=.",
            )
        if self.thermostat == "full" and target.density.dimension > MOST_FULL:
            raise SamplingError(
                f"A full thermostat is a matrix of {target.density.dimension} rows, and "
                f"{MOST_FULL} are the most.",
                remedy='Pass thermostat="diagonal".',
            )
        if isinstance(target, StochasticTarget):
            _check_stochastic(plan.base, target)
        if self.minibatch is not None:
            _check_minibatch(target)

    def run(self, job: Job) -> TactRun:
        """Fit a base, cut batches, learn the bias, freeze it, and collect draws."""
        shards = None
        if self.minibatch is not None:
            program: Any = job.target
            rng = np.random.default_rng(job.seeds("batches"))
            shards = program_batches(program, self.minibatch, None, rng)
        job.lap("batches")
        fitted = self._base(job)
        job.lap("base")
        source = self._source(job, fitted, shards)
        starts = _starts(self.start, fitted, job.chains, source.mean.size)
        streams = job.seeds.stream
        members = [
            started(source, self, place, streams("chain", k), streams("chain batches", k))
            for k, place in enumerate(starts)
        ]
        job.lap("starts")
        offset = typical_energy(job, self, source, members)
        learn(job, self, source, members, offset)
        job.lap("warmup")
        blocks, interrupted = collect(job, self, source, members, offset)
        # After an interrupt a chain may have collected more than what all chains have finished.
        collected = min(sum(len(block.z) for block in chain) for chain in blocks)
        kept = min(collected, job.draws)
        if kept == 0:
            raise SamplingError(
                f"A chain was never at temperature 1 in {self.patience * job.draws} looks.",
                remedy="Learn the bias for longer (warmup=), or pass a wider plateau (coupling=).",
            )
        job.ledger.gradients += int(sum(member.walker.clock[0] for member in members))
        job.lap("sampling")
        spread = job.once(
            "noise", lambda: noise_spread(source, blocks, self, job.seeds("noise spread"))
        )
        job.ledger.gradients += len(spread) * SPREAD_BATCHES
        means, errors = self.thermostat_means(spread)
        job.lap("noise")
        z = joined(blocks, "z", kept)
        looks = min(sum(len(block.trace) for block in chain) for chain in blocks)
        return job.finish(
            TactRun,
            interrupted=interrupted,
            x=z if fitted is None else fitted.unwhiten(z),
            z=z,
            base=fitted,
            energy=joined(blocks, "energy", kept),
            trace=joined(blocks, "trace", looks),
            noise=spread,
            thermostat_means=means,
            thermostat_errors=errors,
            bias=_summary(members[0].bias, self),
            counts=np.array([member.walker.clock for member in members]),
            facts={"hottest": self.coupling.hottest, "energy_offset": offset},
        )

    def _base(self, job: Job) -> GaussianBase | None:
        """The base that whitens; None for functions that are sampled in their own coordinates."""
        base = job.plan.base
        if base == "auto":
            return None
        if isinstance(job.target, StochasticTarget):
            return None if isinstance(base, str) else base.dense()
        # These dynamics do not use log ζ, so none is guessed.
        log_zeta = None if isinstance(base, str) else 0.0
        planned = replace(job, plan=replace(job.plan, base=base, log_zeta=log_zeta))
        return planned.start().base.dense()

    def _source(self, job: Job, base: GaussianBase | None, shards: Batches | None) -> Source:
        """The source of the estimates that move the chains."""
        target: Any = job.target
        dimension = target.density.dimension
        corrections = np.zeros(0), np.zeros((0, dimension))
        if isinstance(target, StochasticTarget):
            lend = batches.estimates(target.function, dimension)
        elif shards is None:
            lend = batches.whole(target.density.borrow)
        else:
            if self.minibatch and self.minibatch.control and base is not None:
                shards = replace(shards, reference=base.mean)
                corrections = job.once("batches", shards.corrections)
                job.ledger.gradients += len(shards.shards)
            lend = batches.cut(shards)
        if base is None:
            mean, scale = np.zeros(dimension), np.ones((1, dimension))
        else:
            mean, scale = base.mean, base.scale
        return Source(lend, mean, scale, corrections, self.noise)


def _check_stochastic(base: Any, target: StochasticTarget) -> None:
    """Refuse bases that a stochastic target cannot have: it has no program to fit one to."""
    if isinstance(base, str):
        if base != "auto":
            raise SamplingError(
                f"The base {base!r} is fitted to a Stan program, and this target has none.",
                remedy="Pass a GaussianBase, or none.",
            )
    elif base.dimension != target.dimension:
        raise SamplingError(
            f"The base has {base.dimension} dimensions, the target {target.dimension}."
        )


def _check_minibatch(target: Any) -> None:
    """Refuse mini-batches for targets other than Stan programs."""
    if isinstance(target, StochasticTarget):
        raise SamplingError("A stochastic target makes its own batches.")
    if not isinstance(target, ProgramTarget):
        raise SamplingError(
            "Mini-batches are cut from the data of a Stan program, and this target has none.",
            remedy="Pass a StochasticTarget that draws its own batches.",
        )


def _starts(
    start: Array | None, base: GaussianBase | None, chains: int, dimension: int
) -> list[Array | None]:
    """Whitened starts, one for each chain; None where the start is to be drawn."""
    if start is None:
        return [None] * chains
    x = np.asarray(start, float)
    if x.shape not in ((dimension,), (chains, dimension)):
        raise SamplingError(
            f"start has shape {x.shape}; it must be ({dimension},) or ({chains}, {dimension})."
        )
    x = np.broadcast_to(x, (chains, dimension))
    return list(x.copy() if base is None else base.whiten(x))


def _summary(bias: Bias, settings: TACT) -> Array:
    """Visits and the learned energy or height, shape (2, bins)."""
    if settings.bias == "force":
        return np.array([bias.visits, bias.energy / np.maximum(bias.visits, 1)])
    return np.array([bias.visits, bias.height])
