"""Adiabatic Monte Carlo: a contact Hamiltonian flow from base to target ([AMC] Betancourt 2014).

The flow moves z, its momentum p and β together, with no schedule: β advances where the momentum
does,

    dz/ds = p,   dp/ds = −∇V_B − β∇δ − r (β + c) (δ − E_β[δ]) p,   dβ/ds = r (β + c) |p|²,

and T + V_B + βδ + log z(β) + H₀ stays zero, so that every trajectory carries log z(β) with it. With
r = 1 and 1 in place of β + c these are [AMC]'s equations; the rate r sets how long the flow takes,
the offset c keeps the friction bounded near β = 0, where δ spreads most.

E_β[δ] is learned from ensembles, in slices of β set by the spread of δ, and frozen. The flow does
not preserve volume: its divergence −D r (β + c)(δ − E) is integrated along each trajectory.
Trajectories that start with p ∝ |p|² N(p), the flux through a level of β, then arrive as draws of
the target with importance weights exp(−ΔH) |∂(z, p)|, whatever E was learned. Heated back from the
target they must find the same log z; a metastability shows as hysteresis.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from stanct import kernels
from stanct.arrays import Array, log_sum_exp
from stanct.engines.embedded import Nuts
from stanct.errors import SamplingError
from stanct.kernels import Flow, Problem, Swarm, make_problem, make_scratch, make_swarm
from stanct.path.mixture import AnyBase
from stanct.runs.adiabatic_run import AdiabaticRun, energy_error
from stanct.samplers import _lanes as lanes
from stanct.samplers._rounds import Ledger, SampledTarget, engine_name, first_base, provenance
from stanct.settings import whole
from stanct.work.execution import Borrow, Execution, executing

# A slice of β holds this many standard deviations of δ, and there are at most this many slices.
SLICE, MOST_SLICES = 0.2, 1000
# A step that is not given starts here, and is tried again until the energy error is this small.
FIRST_STEP, ENERGY_ERROR, STEP_TRIES = 0.2, 0.1, 6
# Trajectories of one chain that run between two looks at the keyboard.
BLOCK = 16


@dataclass(frozen=True, kw_only=True)
class AdiabaticSettings:
    """How Adiabatic Monte Carlo is run; see `sample`."""

    least: ClassVar[Mapping[str, int]] = {"chains": 1, "draws": 8, "warmup": 8, "max_steps": 1}

    chains: int
    draws: int
    warmup: int
    duration: float
    step: float | None
    refresh: float | None
    max_steps: int
    threads: int | None

    def __post_init__(self) -> None:
        for name, bound in self.least.items():
            whole(name, getattr(self, name), bound)
        if self.threads is not None:
            whole("threads", self.threads, 1)
        for name in ("duration", "step", "refresh"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise SamplingError(f"{name} must be positive and finite, not {value!r}.")

    @property
    def nuts(self) -> Nuts:
        """For fitting the base."""
        return Nuts() if self.threads is None else Nuts(threads=self.threads)

    @property
    def interval(self) -> float:
        """Time between momentum resamplings, infinite for none."""
        return np.inf if self.refresh is None else float(self.refresh)


@dataclass(frozen=True)
class _Means:
    """E_β[δ] at nodes of β, the flow's offset and step, and what the slices cost."""

    nodes: Array
    means: Array
    offset: float
    step: float
    gradients: int = 0

    def flow(self, dimension: int, settings: AdiabaticSettings) -> Flow:
        """The flow that takes about `duration` from β = 0 to 1, where |p|² is about D."""
        rate = np.log1p(1 / self.offset) / (dimension * settings.duration)
        return Flow(
            rate,
            self.offset,
            self.step,
            settings.interval,
            int(settings.max_steps),
            self.nodes,
            self.means,
        )


def sample(
    target: SampledTarget,
    *,
    chains: int = 4,
    draws: int = 128,
    warmup: int = 64,
    seed: int | None = None,
    base: str | AnyBase = "pilot",
    log_zeta: float | None = None,
    duration: float = 40.0,
    step: float | None = None,
    refresh: float | None = 3.0,
    max_steps: int = 20_000,
    threads: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> AdiabaticRun:
    """Cool trajectories from the base to the target, heat them back, and return the run.

    Parameters
    ----------
    target
        Program and data, or a `FunctionTarget`.
    chains, draws
        Random streams, which can run at once, and trajectories of each.
    warmup
        Trajectories of each stream in each of the two ensembles that E_β[δ] is learned from.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own.
    log_zeta
        Not needed here; accepted with a base of your own as by the other methods.
    duration
        About how long a trajectory takes, in whitened time; a standard normal's period is 2π.
        Longer is more adiabatic: the weights vary less.
    step
        Time step of the integrator; by default one whose energy error, the drift of
        T + V_B + βδ + log z + H₀ along a trajectory, is about a tenth of a nat.
    refresh
        Time after which the momentum is drawn afresh, with H₀ corrected; None for never. Without it
        the flow is a bijection, and `AdiabaticRun.metropolis` can correct it, but modes of the
        dynamics that exchange no energy are never averaged over.
    max_steps
        Most steps of a trajectory; one that has not arrived by then has stalled and is counted.
    threads
        Streams that run at once; as many as there are cores by default.
    executor
        Who runs the streams' blocks instead of threads: any `concurrent.futures.Executor`. The
        trajectories do not depend on it.
    checkpoint
        Folder from which a run that was killed goes on: repeat the same call.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other, or a flow that no trajectory finishes.
    EngineError
        No base could be fitted.
    DataError
        Stan refuses the data.
    CheckpointError
        The folder belongs to another run, is in use, or cannot be written.
    KeyboardInterrupt
        Interrupted before every stream had finished a block; later, finished ones are returned.
    """
    settings = AdiabaticSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        duration=duration,
        step=step,
        refresh=refresh,
        max_steps=max_steps,
        threads=threads,
    )
    with executing(
        target,
        "adiabatic",
        {**asdict(settings), "base": base, "log_zeta": log_zeta},
        seed=seed,
        executor=executor,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    ) as execution:
        return _sample(target, settings, base, log_zeta, execution)


def _sample(
    target: SampledTarget,
    settings: AdiabaticSettings,
    base: str | AnyBase,
    log_zeta: float | None,
    execution: Execution,
) -> AdiabaticRun:
    """First base, E_β[δ], trajectories."""
    ledger = Ledger()
    chains, draws, seed = settings.chains, settings.draws, execution.seed
    seeds = np.random.SeedSequence(seed).spawn(chains + 3)
    fit_seed, variable_seed, explore_seed, *stream_seeds = seeds
    start = first_base(
        target,
        base,
        log_zeta,
        chains=chains,
        seed=fit_seed,
        nuts=settings.nuts,
        execution=execution,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    borrow, streams = target.density.borrow, [lanes.stream(child) for child in stream_seeds]
    first = execution.once(
        "slices",
        lambda: _explore(borrow, start.base, settings, lanes.stream(explore_seed)),
    )
    learned = _learn(borrow, start.base, settings, first, streams, ledger, execution)
    ledger.lap("warmup")
    flow = learned.flow(start.base.dimension, settings)
    blocks, interrupted = execution.blocks(
        "trajectories",
        partial(_cool_and_heat, borrow, start.base, learned, settings),
        streams,
        lanes.block_sizes(draws, BLOCK),
        unit="trajectory",
        final=True,
    )
    ledger.lap("sampling")
    cooled = {name: _joined(blocks, 0, name) for name in _RECORDS}
    heated = {name: _joined(blocks, 1, name) for name in ("delta", "log_weights")}
    counts = np.array([[sum(s.counts for s, _ in c), sum(s.counts for _, s in c)] for c in blocks])
    ledger.gradients += int(counts[..., 0].sum())
    if not np.isfinite(cooled["log_weights"][..., -1]).any():
        raise SamplingError(
            "No trajectory arrived at β = 1.",
            remedy="Use a smaller step or more max_steps, or pass a base that overlaps the target.",
        )
    variables = target.variables(start.base.unwhiten(cooled["z"]), variable_seed)
    ledger.lap("variables")
    return AdiabaticRun(
        method="adiabatic",
        engine=engine_name(target),
        variables=variables,
        z=cooled["z"],
        betas=learned.nodes,
        means=learned.means,
        delta=cooled["delta"],
        kinetic=cooled["kinetic"],
        flow_log_z=cooled["flow_log_z"],
        node_log_weights=cooled["log_weights"],
        heated_delta=heated["delta"],
        heated_log_weights=heated["log_weights"],
        counts=counts,
        base=start.base,
        programs=target.programs,
        data=target.data_text,
        provenance=provenance(
            target,
            {**asdict(settings), "seed": seed, "base": base if isinstance(base, str) else "given"},
            ledger,
            interrupted=interrupted,
            rate=flow.rate,
            offset=flow.offset,
            step_size=flow.step,
        ),
    )


_RECORDS = ("z", "delta", "kinetic", "flow_log_z", "log_weights")


def _joined(blocks: list[list[tuple[Swarm, Swarm]]], which: int, name: str) -> Array:
    """A record of all chains, shape (chains, draws, …)."""
    return np.stack([np.concatenate([getattr(b[which], name) for b in chain]) for chain in blocks])


def _swarm(
    problem: Problem, z: Array, nodes: int, refresh: float, rng: np.random.Generator
) -> Swarm:
    """Trajectories about to start at z, with momenta as they cross a level of β.

    The time to the first resampling of the momentum is uniform: only then does resampling, seen
    over a steady stream of trajectories, leave their distribution as it is.
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


def _cool(
    problem: Problem,
    learned: _Means,
    settings: AdiabaticSettings,
    rng: np.random.Generator,
    size: int,
) -> Swarm:
    """Trajectories from the base down to the target, through all nodes."""
    dimension, top = problem.mean.size, learned.nodes.size - 1
    flow = learned.flow(dimension, settings)
    swarm = _swarm(problem, rng.standard_normal((size, dimension)), top + 1, flow.refresh, rng)
    kernels.contact_flow(problem, flow, swarm, (0, top), rng, make_scratch(dimension))
    return swarm


def _pilot(
    borrow: Borrow,
    base: AnyBase,
    learned: _Means,
    settings: AdiabaticSettings,
    rng: np.random.Generator,
    size: int,
) -> Swarm:
    """A stream's trajectories, cooled to learn from."""
    with borrow() as density:
        return _cool(make_problem(density, base), learned, settings, rng, size)


def _cool_and_heat(
    borrow: Borrow,
    base: AnyBase,
    learned: _Means,
    settings: AdiabaticSettings,
    rng: np.random.Generator,
    size: int,
) -> tuple[Swarm, Swarm]:
    """A block of trajectories down to the target, and as many up again from where they arrived.

    Heating starts from the arrivals resampled by their weights, with fresh momenta.
    """
    top = learned.nodes.size - 1
    with borrow() as density:
        problem = make_problem(density, base)
        flow = learned.flow(base.dimension, settings)
        cold = _cool(problem, learned, settings, rng, size)
        places = cold.z.copy()
        log_weights = cold.log_weights[:, -1]
        if np.isfinite(log_weights).any():
            weights = np.exp(log_weights - log_weights.max())
            places = places[rng.choice(size, size, p=weights / weights.sum())]
        hot = _swarm(problem, places, top + 1, flow.refresh, rng)
        kernels.contact_flow(problem, flow, hot, (top, 0), rng, make_scratch(base.dimension))
    return cold, hot


def _learn(
    borrow: Borrow,
    base: AnyBase,
    settings: AdiabaticSettings,
    learned: _Means,
    streams: list[np.random.Generator],
    ledger: Ledger,
    execution: Execution,
) -> _Means:
    """E_β[δ] anew from whole ensembles, and the step until its energy error is small."""
    ledger.gradients += learned.gradients
    for _ in range(STEP_TRIES):
        work = partial(_pilot, borrow, base, learned, settings)
        blocks, _ = execution.blocks("pilot", work, streams, [settings.warmup], unit="trajectory")
        swarms = [chain[0] for chain in blocks]
        ledger.gradients += int(sum(swarm.counts[0] for swarm in swarms))
        delta = np.concatenate([swarm.delta for swarm in swarms])
        log_weights = np.concatenate([swarm.log_weights for swarm in swarms])
        flow_log_z = np.concatenate([swarm.flow_log_z for swarm in swarms])
        error = energy_error(learned.nodes, learned.means, flow_log_z[:, -1])
        means = learned.means.copy()
        for k in np.flatnonzero(np.isfinite(log_weights).any(axis=0)):
            means[k] = _centre(delta[:, k], log_weights[:, k]).mean
        learned = replace(learned, means=means)
        if settings.step is not None or error <= ENERGY_ERROR:
            break
        # The integrator is of second order.
        shrink = 0.8 * np.sqrt(ENERGY_ERROR / error) if np.isfinite(error) else 0.5
        learned = replace(learned, step=learned.step * max(float(shrink), 0.25))
    return learned


def _explore(
    borrow: Borrow, base: AnyBase, settings: AdiabaticSettings, rng: np.random.Generator
) -> _Means:
    """Take an ensemble from slice to slice of β, each with E extrapolated from the last.

    The slope of E_β[δ] is −Var_β[δ].
    """
    scratch = make_scratch(base.dimension)
    z = rng.standard_normal((settings.chains * settings.warmup, base.dimension))
    with borrow() as density:
        problem = make_problem(density, base)
        swarm = _swarm(problem, z, 2, settings.interval, rng)
        delta = np.array(
            [
                kernels.delta_of(problem, value[0], place, scratch)
                for value, place in zip(swarm.value, swarm.z, strict=True)
            ]
        )
        here = _centre(delta, np.where(np.isfinite(delta), 0.0, -np.inf))
        offset = float(min(1.0, 1 / here.spread))
        step = float(settings.step or FIRST_STEP)
        nodes, means = [0.0], [here.mean]
        while nodes[-1] < 1:
            end = _next_node(nodes, here)
            ahead = here.mean - (end - nodes[-1]) * here.spread**2
            slice_ = _Means(np.array([nodes[-1], end]), np.array([here.mean, ahead]), offset, step)
            flow = slice_.flow(base.dimension, settings)
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
    """Of finite δ; the outermost hundredths are pulled in, since δ may have no mean at β = 0."""
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
