"""Adiabatic Monte Carlo: a contact Hamiltonian flow from base to target ([AMC] Betancourt 2014).

The flow moves z, its momentum p and β together, without a schedule. β advances with the momentum:

    dz/ds = p,   dp/ds = −∇V_B − β∇δ − r (β + c) (δ − E_β[δ]) p,   dβ/ds = r (β + c) |p|²,

The sum T + V_B + βδ + log z(β) + H₀ stays zero, so every trajectory carries log z(β) with it. With
r = 1, and with 1 in place of β + c, these are the equations of [AMC]. The rate r sets the duration
of the flow. The offset c keeps the friction bounded near β = 0, where δ spreads most.

E_β[δ] is learned from ensembles, in slices of β whose width follows the spread of δ. It is then
frozen. The flow does not preserve volume, so its divergence −D r (β + c)(δ − E) is integrated along
each trajectory. Trajectories start with p ∝ |p|² N(p), the flux through a level of β. They arrive
as draws from the target with importance weights exp(−ΔH) |∂(z, p)|, whatever E was learned.
Trajectories heated back from the target must find the same log z. Metastability shows as
hysteresis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.common.settings import MOST_COUNTED, Real, Whole
from stanct.kernels import Flow, Problem, Swarm, make_problem, make_scratch, make_swarm
from stanct.path.base import Base
from stanct.runs.adiabatic import AdiabaticRun, energy_error
from stanct.samplers import _lanes as lanes
from stanct.samplers._job import Job
from stanct.samplers._looks import until_precise
from stanct.samplers._method import Method
from stanct.work.execution import Borrow
from stanct.work.interrupts import heard
from stanct.work.progress import Bar

# Width of a slice of β in standard deviations of δ, and the largest number of slices.
SLICE, MOST_SLICES = 0.2, 1000
# First trial of a step that is not given, the energy error it must reach, and the most trials.
FIRST_STEP, ENERGY_ERROR, STEP_TRIES = 0.2, 0.1, 6
# Trajectories of one chain that run between two checks for an interrupt, and before the first look
# at a `target_se`.
BLOCK, FIRST_LOOK = 16, 64

_RECORDS = ("z", "delta", "kinetic", "flow_log_z", "log_weights")


@dataclass(frozen=True, kw_only=True)
class Adiabatic(Method[AdiabaticRun]):
    """Adiabatic Monte Carlo: trajectories cool from the base to the target and heat up again.

    Attributes
    ----------
    duration
        Approximate duration of a trajectory in whitened time; the period of a standard normal is
        2π. Longer trajectories are more adiabatic, and their weights vary less.
    step
        Time step of the integrator. The default step has an energy error of about a tenth of a
        nat; this is the drift of T + V_B + βδ + log z + H₀ along a trajectory.
    refresh
        Time after which the momentum is redrawn, with H₀ corrected; None for never. Without
        refreshment, the flow is a bijection, and `AdiabaticRun.metropolis` can correct it. However,
        modes of the dynamics that exchange no energy are then never averaged over.
    max_steps
        Largest number of steps of a trajectory. A trajectory that has not arrived by then counts
        as stalled.

    `draws` is the number of trajectories of each chain. `warmup` is their number in each of the two
    ensembles from which E_β[δ] is learned.
    """

    name: ClassVar[str] = "adiabatic"
    default_draws: ClassVar[int] = 128
    default_warmup: ClassVar[int] = 64
    least_warmup: ClassVar[int] = 8
    aims: ClassVar[bool] = True
    loops: ClassVar[tuple[str, ...]] = "evaluate", "contact_flow"

    duration: Annotated[float, Real(0)] = 40.0
    step: Annotated[float | None, Real(0)] = None
    refresh: Annotated[float | None, Real(0)] = 3.0
    max_steps: Annotated[int, Whole(1, MOST_COUNTED)] = 20_000

    def run(self, job: Job) -> AdiabaticRun:
        """Fit a base, learn E_β[δ], freeze it, and run the trajectories."""
        base = job.start().base
        streams = [job.seeds.stream("stream", k) for k in range(job.chains)]
        explorer = _Explorer(job.borrow, base, self, job.chains * job.warmup)
        slices = job.seeds.stream("slices")
        first = job.once("slices", lambda: heard(lambda: explorer(slices)))
        learned = _learn(job, self, base, first, streams)
        job.lap("warmup")
        return self._kept(job, base, learned, streams)

    def _kept(
        self, job: Job, base: Base, learned: _Means, streams: list[np.random.Generator]
    ) -> AdiabaticRun:
        """Run the trajectories that count."""
        precision = replace(job.precision, unit=BLOCK, begin=FIRST_LOOK)
        work = _CoolAndHeat(job.borrow, base, self, learned)
        blocks: list[list[tuple[Swarm, Swarm]]] = [[] for _ in streams]

        def make(draws: int, bar: Bar) -> bool:
            sizes = lanes.block_sizes(draws, BLOCK)
            more, early = job.blocks("trajectories", work, streams, sizes, final=True, bar=bar)
            for chain, further in zip(blocks, more, strict=True):
                chain.extend(further)
            job.ledger.gradients += int(_counts(more)[..., 0].sum())
            return early

        fields = partial(_records, blocks, learned, base)
        found, early = until_precise(
            job, precision, make, AdiabaticRun, fields, "trajectories", unit="trajectory"
        )
        flow = learned.flow(base.dimension, self)
        return job.finish(
            AdiabaticRun,
            interrupted=early,
            x=base.unwhiten(found["z"]),
            **found,
            facts={
                "stopping": precision.record(),
                "rate": flow.rate,
                "offset": flow.offset,
                "step_size": flow.step,
            },
        )


@dataclass(frozen=True)
class _Means:
    """E_β[δ] at nodes of β, the flow's offset and step, and the gradients spent on the slices."""

    nodes: Array
    means: Array
    offset: float
    step: float
    gradients: int = 0

    def flow(self, dimension: int, method: Adiabatic) -> Flow:
        """The flow that takes about `duration` from β = 0 to 1, where |p|² is about D."""
        rate = np.log1p(1 / self.offset) / (dimension * method.duration)
        refresh = np.inf if method.refresh is None else method.refresh
        return Flow(rate, self.offset, self.step, refresh, method.max_steps, self.nodes, self.means)


def _records(
    blocks: Sequence[Sequence[tuple[Swarm, Swarm]]], learned: _Means, base: Base
) -> dict[str, Any]:
    """The fields of an `AdiabaticRun` from all trajectories, some of which must have arrived."""
    cooled = {name: _joined(blocks, 0, name) for name in _RECORDS}
    if not np.isfinite(cooled["log_weights"][..., -1]).any():
        raise SamplingError(
            "No trajectory arrived at β = 1.",
            remedy="Use a smaller step or more max_steps, or pass a base that overlaps the target.",
        )
    return {
        "z": cooled["z"],
        "betas": learned.nodes,
        "means": learned.means,
        "delta": cooled["delta"],
        "kinetic": cooled["kinetic"],
        "flow_log_z": cooled["flow_log_z"],
        "node_log_weights": cooled["log_weights"],
        "heated_delta": _joined(blocks, 1, "delta"),
        "heated_log_weights": _joined(blocks, 1, "log_weights"),
        "counts": _counts(blocks),
        "base": base,
    }


def _counts(blocks: Sequence[Sequence[tuple[Swarm, Swarm]]]) -> Array:
    """The counts of cooling and of heating, shape (chains, 2, 5)."""
    return np.array([[sum(s.counts for s, _ in c), sum(s.counts for _, s in c)] for c in blocks])


def _joined(blocks: Sequence[Sequence[tuple[Swarm, Swarm]]], which: int, name: str) -> Array:
    """A record of all chains, shape (chains, draws, …)."""
    return np.stack([np.concatenate([getattr(b[which], name) for b in chain]) for chain in blocks])


def _swarm(
    problem: Problem, z: Array, nodes: int, refresh: float, rng: np.random.Generator
) -> Swarm:
    """Trajectories about to start at z, with momenta from the flux through a level of β.

    Only with a uniform time to the first resampling does that leave their steady stream unchanged.
    """
    swarm, scratch = make_swarm(z, nodes), make_scratch(z.shape[1])
    for row in range(len(z)):
        kernels.evaluate(problem, swarm.z[row], swarm.gradient[row], swarm.value[row], scratch)
        kernels.flux_momentum(swarm.momentum[row], rng)
        if np.isfinite(refresh):
            swarm.totals[row, 2] = refresh * rng.random()
        if not np.isfinite(swarm.value[row, 0]):
            swarm.totals[row, 1] = -np.inf
            swarm.counts[3] += 1
    swarm.counts[0] += len(z)
    return swarm


@dataclass(frozen=True)
class _Trajectories:
    """Everything a worker needs to run the trajectories of a stream."""

    borrow: Borrow
    base: Base
    method: Adiabatic
    learned: _Means

    def cooled(self, problem: Problem, rng: np.random.Generator, size: int) -> Swarm:
        """Trajectories from the base to the target, through all nodes."""
        dimension, top = self.base.dimension, self.learned.nodes.size - 1
        flow = self.learned.flow(dimension, self.method)
        swarm = _swarm(problem, rng.standard_normal((size, dimension)), top + 1, flow.refresh, rng)
        kernels.contact_flow(problem, flow, swarm, (0, top), rng, make_scratch(dimension))
        return swarm


@dataclass(frozen=True)
class _Cool(_Trajectories):
    """Cools the trajectories of a stream from the base to the target."""

    def __call__(self, rng: np.random.Generator, size: int) -> Swarm:
        with self.borrow() as density:
            return self.cooled(make_problem(density, self.base), rng, size)


@dataclass(frozen=True)
class _CoolAndHeat(_Trajectories):
    """Cools trajectories to the target, and heats as many back from the weighted arrivals."""

    def __call__(self, rng: np.random.Generator, size: int) -> tuple[Swarm, Swarm]:
        dimension, top = self.base.dimension, self.learned.nodes.size - 1
        with self.borrow() as density:
            problem = make_problem(density, self.base)
            flow = self.learned.flow(dimension, self.method)
            cold = self.cooled(problem, rng, size)
            places = cold.z.copy()
            log_weights = cold.log_weights[:, -1]
            if np.isfinite(log_weights).any():
                weights = np.exp(log_weights - log_weights.max())
                places = places[rng.choice(size, size, p=weights / weights.sum())]
            hot = _swarm(problem, places, top + 1, flow.refresh, rng)
            kernels.contact_flow(problem, flow, hot, (top, 0), rng, make_scratch(dimension))
        return cold, hot


def _learn(
    job: Job, method: Adiabatic, base: Base, learned: _Means, streams: list[np.random.Generator]
) -> _Means:
    """Learn E_β[δ] from whole ensembles, and reduce the step until its energy error is small."""
    job.ledger.gradients += learned.gradients
    for _ in range(STEP_TRIES):
        work = _Cool(job.borrow, base, method, learned)
        blocks, _ = job.blocks("pilot", work, streams, [job.warmup], unit="trajectory")
        swarms = [chain[0] for chain in blocks]
        job.ledger.gradients += int(sum(swarm.counts[0] for swarm in swarms))
        delta = np.concatenate([swarm.delta for swarm in swarms])
        log_weights = np.concatenate([swarm.log_weights for swarm in swarms])
        flow_log_z = np.concatenate([swarm.flow_log_z for swarm in swarms])
        error = energy_error(learned.nodes, learned.means, flow_log_z[:, -1])
        means = learned.means.copy()
        for k in np.flatnonzero(np.isfinite(log_weights).any(axis=0)):
            means[k] = _centre(delta[:, k], log_weights[:, k]).mean
        learned = replace(learned, means=means)
        if method.step is not None or error <= ENERGY_ERROR:
            break
        # The integrator is of second order.
        shrink = 0.8 * np.sqrt(ENERGY_ERROR / error) if np.isfinite(error) else 0.5
        learned = replace(learned, step=learned.step * max(float(shrink), 0.25))
    return learned


@dataclass(frozen=True)
class _Explorer:
    """Moves an ensemble from slice to slice of β, with E extrapolated by its slope, −Var_β[δ]."""

    borrow: Borrow
    base: Base
    method: Adiabatic
    size: int

    def __call__(self, rng: np.random.Generator) -> _Means:
        interval = np.inf if self.method.refresh is None else self.method.refresh
        scratch = make_scratch(self.base.dimension)
        z = rng.standard_normal((self.size, self.base.dimension))
        with self.borrow() as density:
            problem = make_problem(density, self.base)
            swarm = _swarm(problem, z, 2, interval, rng)
            delta = self.base.delta(swarm.z, swarm.value[:, 0] - self.base.log_det_scale)
            here = _centre(delta, np.where(np.isfinite(delta), 0.0, -np.inf))
            offset = float(min(1.0, 1 / here.spread))
            step = float(self.method.step or FIRST_STEP)
            nodes, means = [0.0], [here.mean]
            while nodes[-1] < 1:
                end = _next_node(nodes, here)
                ahead = here.mean - (end - nodes[-1]) * here.spread**2
                slice_ = _Means(
                    np.array([nodes[-1], end]), np.array([here.mean, ahead]), offset, step
                )
                flow = slice_.flow(self.base.dimension, self.method)
                swarm.totals[:, 3] = 0
                kernels.contact_flow(problem, flow, swarm, (0, 1), rng, scratch)
                if not np.isfinite(swarm.log_weights[:, 1]).any():
                    raise SamplingError(
                        f"Every trajectory was lost before β = {end:.3g}.",
                        remedy="Use a smaller step, or pass a base that overlaps the target.",
                    )
                here = _centre(swarm.delta[:, 1], swarm.log_weights[:, 1])
                nodes.append(end)
                means.append(here.mean)
        return _Means(np.array(nodes), np.array(means), offset, step, int(swarm.counts[0]))


def _next_node(nodes: list[float], here: _Centre) -> float:
    """The end of the slice of β that begins at the last node."""
    if len(nodes) > MOST_SLICES:
        raise SamplingError(
            f"δ still spreads over {here.spread:.3g} at β = {nodes[-1]:.3g} after {MOST_SLICES} "
            "slices of β.",
            remedy="Pass a base that is nearer to the target.",
        )
    width = SLICE / here.spread
    return 1.0 if nodes[-1] + 1.01 * width >= 1 else nodes[-1] + width


@dataclass(frozen=True)
class _Centre:
    """Weighted mean of δ and half the width of its middle two thirds."""

    mean: float
    spread: float


def _centre(delta: Array, log_weights: Array) -> _Centre:
    """The centre of finite δ, with the outermost hundredths clipped: δ may lack a mean at β = 0."""
    kept = np.isfinite(delta) & np.isfinite(log_weights)
    if not kept.any():
        raise SamplingError(
            "The target vanishes, or Stan rejects it, at every draw of the base.",
            remedy="Pass a base that overlaps the target's support.",
        )
    order = np.argsort(delta[kept])
    values = delta[kept][order]
    weights = np.exp(log_weights[kept] - log_sum_exp(log_weights[kept]))[order]
    places = weights.cumsum() - 0.5 * weights
    least, low, high, most = np.interp([0.01, 0.16, 0.84, 0.99], places, values)
    mean = float(np.clip(values, least, most) @ weights)
    return _Centre(mean, max(float(high - low) / 2, 1e-6))
