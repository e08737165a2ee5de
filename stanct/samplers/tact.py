"""TACT-HMC: tempered dynamics whose thermostats take up the noise of mini-batches.

[TACT] is Luo, Wang, Yang, Zhu & Wang 2018, Algorithm 1, with these corrections: draws are collected
where λ = 1 (line 16 has 0), the biasing force averages over each bin's own visits, and every buffer
is its own. What differs on purpose: friction acts between two halves of the force by default
(``integrator="published"`` brings back the Euler step), the bias of all chains is pooled, and it is
frozen before the first draw that counts. With parts switched off the same loop is SGNHT, SGHMC and
SGLD, see `VARIANTS`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from stanct import tact_kernels as compiled
from stanct.base import GaussianBase
from stanct.batches import Batches, StochasticTarget, make_potential
from stanct.embedded import NAME, Nuts
from stanct.errors import SamplingError
from stanct.lanes import START_TRIES, block_sizes, run_blocks
from stanct.minibatch import MiniBatch, program_batches
from stanct.path import Array
from stanct.rounds import Ledger, SampledTarget, first_base, provenance, run_seed
from stanct.runs.tact_run import ENERGY, TactRun
from stanct.settings import whole
from stanct.tact_kernels import Bias, Dynamics, TactOut, Walker
from stanct.target import Target

BLOCK = 100
# Chains share what they have learned of the bias after so many looks.
SHARED = 25
# The noise is measured at this many points of the chains, with this many batches each.
SPREAD_POINTS, SPREAD_BATCHES = 64, 16
# A chain that has not collected its draws after this many times as many looks stops.
PATIENCE = 50
# Looks at λ = 1 before the warm-up.
SETTLE = 50

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tact": {},
        "no_tempering": {"tempering": False},
        "no_thermostat": {"thermostat": None},
        "sgnht": {"tempering": False},
        "sghmc": {"tempering": False, "thermostat": None},
        "sgld": {
            "tempering": False,
            "thermostat": None,
            "friction": 1.0,
            "integrator": "published",
        },
    }
)
"""Settings of `sample` that turn TACT-HMC into its ablations and its relatives.

With friction 1 and no thermostat the published step is θ ← θ − η ∇Ũ + N(0, 2η): SGLD with step 2η.
"""


@dataclass(frozen=True)
class Coupling:
    """λ(ξ): 1 for |ξ| ≤ ξ₀, else 1/λ = 1 + ((|ξ| − ξ₀) / (ξ₁ − ξ₀))ⁿ, with walls at ±W₀.

    Attributes
    ----------
    plateau, reach, power, wall
        ξ₀, ξ₁ (where T = 2), n and W₀; the defaults are those of [TACT] 5.1.
    """

    plateau: float = 1 / 3
    reach: float = 1.0
    power: float = 3.0
    wall: float = 5 / 3

    def __post_init__(self) -> None:
        if not (0 < self.plateau < self.reach and self.plateau < self.wall and self.power >= 1):
            raise SamplingError(
                "A coupling needs 0 < plateau < reach, plateau < wall and power from 1, not "
                f"{self}."
            )

    @property
    def hottest(self) -> float:
        """The temperature 1/λ at the walls."""
        return 1 / compiled.coupling(self.wall, self.plateau, self.reach, self.power)[0]


@dataclass(frozen=True)
class Hills:
    """Metadynamics: Gaussian hills that fill the free energy along ξ, one a look ([TACT] suppl. B).

    Attributes
    ----------
    height, width
        Of a hill, in units of energy (temperature 1) and of ξ.
    softening
        ΔT of the well-tempered form, in which a hill on a bias W shrinks by exp(−W / ΔT) and the
        bias converges to ΔT / (ΔT + 1) of the free energy. None is the published, plain form: it
        never stops building, and lags behind where θ is slow to warm and to cool.
    """

    height: float = 0.02
    width: float = 0.2
    softening: float | None = 4.0

    def __post_init__(self) -> None:
        if not (self.height > 0 and self.width > 0 and (self.softening or 1.0) > 0):
            raise SamplingError(f"Hills have positive sizes, not {self}.")


@dataclass(frozen=True, kw_only=True)
class TactSettings:
    """How TACT-HMC is run; see `sample`."""

    chains: int
    draws: int
    warmup: int
    thin: int
    step: float
    tempering_step: float
    friction: float
    tempering_friction: float
    inertia: float
    tempering_inertia: float
    tempering: bool
    thermostat: str | None
    bias: str | None
    bins: int
    hills: Hills
    coupling: Coupling
    integrator: str
    resample_every: int
    noise: tuple[float, float]
    threads: int | None

    def __post_init__(self) -> None:
        for name, least in (
            ("chains", 1), ("draws", 8), ("warmup", 0), ("thin", 1), ("bins", 2),
            ("resample_every", 0),
        ):  # fmt: skip
            whole(name, getattr(self, name), least)
        if self.threads is not None:
            whole("threads", self.threads, 1)
        for name in ("step", "tempering_step", "inertia", "tempering_inertia"):
            if not 0 < getattr(self, name) < np.inf:
                raise SamplingError(f"{name} must be positive, not {getattr(self, name)!r}.")
        for name in ("friction", "tempering_friction"):
            if not 0 <= getattr(self, name) < np.inf:
                raise SamplingError(f"{name} must not be negative: {getattr(self, name)!r}.")
        for name, values in (
            ("thermostat", (None, "scalar", "diagonal")),
            ("bias", (None, "force", "hills")),
            ("integrator", ("symmetric", "published")),
        ):
            if getattr(self, name) not in values:
                raise SamplingError(
                    f"There is no {name} {getattr(self, name)!r}.",
                    remedy=f"Use one of {', '.join(map(repr, values))}.",
                )

    def dynamics(self, *, learn: bool, offset: float) -> Dynamics:
        """For the compiled loop."""
        hills = self.hills
        # Whole numbers must not reach the loop as such: it would be compiled once more for them.
        return Dynamics(
            (float(self.step) ** 2, float(self.tempering_step) ** 2),
            (float(self.friction), float(self.tempering_friction)),
            (float(self.inertia), float(self.tempering_inertia)),
            float(self.coupling.plateau),
            float(self.coupling.reach),
            float(self.coupling.power),
            float(self.coupling.wall),
            self.tempering,
            self.thermostat is not None,
            self.integrator == "symmetric",
            {None: compiled.NO_BIAS, "force": compiled.FORCE, "hills": compiled.HILLS}[self.bias],
            learn,
            (
                float(hills.height),
                float(hills.width),
                np.inf if hills.softening is None else float(hills.softening),
            ),
            offset,
            (self.thin, self.resample_every),
        )

    def thermostat_means(self, noise: Array) -> tuple[Array, Array]:
        """Where z_θ and z_ξ should settle, and the standard errors of that, both of shape (2,).

        c + η V / 2 to first order ([TACT] 6); the form given is exact for a free particle, and
        infinite where the noise of one step is more than any friction can take up. Thermostats are
        coupled to the noise by λ² and λ'², so V is the mean with these weights.

        Parameters
        ----------
        noise : shape (points, 4)
            As in `TactRun.noise`.
        """
        means, errors = [], []
        for eta, friction, values, coupled in (
            (self.step**2, self.friction, noise[:, 1], noise[:, 2]),
            (self.tempering_step**2, self.tempering_friction, noise[:, 0], noise[:, 3]),
        ):
            known = np.isfinite(values)
            share = coupled[known] ** 2
            # Without tempering λ' = 0 throughout, and z_ξ stays where it is.
            share = share / share.sum() if share.any() else np.ones(share.size) / max(share.size, 1)
            variance = float(share @ values[known]) if known.any() else np.nan
            errors.append(eta / 2 * np.sqrt(np.sum((share * (values[known] - variance)) ** 2)))
            q = eta * variance / 4
            injected = -np.expm1(-2 * friction)
            if self.integrator == "published":
                left = 1 - 2 * friction - 4 * q
                means.append(1 - np.sqrt(left) if left >= 0 else np.inf)
            else:
                left = 1 - q - injected
                kept = (np.sqrt(q * q + (1 + q) * max(left, 0)) - q) / (1 + q)
                means.append(-np.log(kept) if left > 0 else np.inf)
        return np.array(means), np.array(errors)


@dataclass
class _Chain:
    """A chain's source of estimates, random stream and state, moved in place.

    Chains may share a source, one at a time: a hundred shards take seconds to load.
    """

    batches: Batches
    turn: threading.Lock
    potential: compiled.Potential
    rng: np.random.Generator
    walker: Walker
    bias: Bias
    collected: int = 0
    places: list[tuple[Array, float]] = field(default_factory=list)

    def look(self, dynamics: Dynamics, looks: int, wanted: int) -> TactOut:
        """A block of looks, fewer once `wanted` draws have been collected; none after that."""
        size = self.walker.z.size
        out = TactOut(np.empty((looks, size)), np.empty(looks), np.empty((looks, 6)))
        found, seen = 0, 0
        if wanted > self.collected:
            with self.turn:
                found, seen = compiled.run_looks(
                    self.potential, self.walker, self.bias, dynamics, wanted - self.collected,
                    self.rng, out,
                )  # fmt: skip
            self.places.append((self.walker.z.copy(), float(self.walker.tempering[0])))
        self.collected += found
        # Copies, so that the room for draws that were not collected is given back.
        return TactOut(out.z[:found].copy(), out.energy[:found].copy(), out.trace[:seen].copy())


def sample(
    target: SampledTarget | StochasticTarget,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 1000,
    seed: int | None = None,
    base: str | GaussianBase | None = None,
    start: Array | None = None,
    minibatch: MiniBatch | None = None,
    thin: int = 10,
    step: float = 0.1,
    tempering_step: float = 0.05,
    friction: float = 0.1,
    tempering_friction: float = 0.1,
    inertia: float = 1.0,
    tempering_inertia: float = 1.0,
    tempering: bool = True,
    thermostat: str | None = "scalar",
    bias: str | None = "force",
    bins: int = 100,
    hills: Hills | None = None,
    coupling: Coupling | None = None,
    integrator: str = "symmetric",
    resample_every: int = 0,
    noise: tuple[float, float] = (0.0, 0.0),
    threads: int | None = None,
    progress: bool = True,
) -> TactRun:
    """Sample by TACT-HMC, or by one of its parts, and return the run.

    Nothing is accepted or rejected, so the draws are as exact as the step is short; the
    thermostats' means tell when it is not.

    Parameters
    ----------
    target
        Program and data, a `FunctionTarget`, or a `StochasticTarget` of your own.
    chains, draws
        Chains, and draws that each collects where λ = 1; it looks every `thin` steps.
    warmup
        Looks of each chain, `thin` steps each, in which the bias is learned; it is frozen after.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        What whitens the coordinates and where chains start: fitted by ``"pilot"``,
        ``"pathfinder"`` or ``"laplace"``, or a `GaussianBase` of your own. By default a Stan
        program has ``"pilot"``, or ``"laplace"`` with mini-batches, fitted to all data; a function
        is sampled in its own coordinates.
    start : shape (D,) or (chains, D)
        Unconstrained points to start from instead.
    minibatch
        The size that counts observations and how many make a batch, see `MiniBatch`.
    thin
        Steps between looks ([TACT]'s K).
    step, tempering_step
        ε = √η for θ (whitened) and for ξ: a step moves them by about ε.
    friction, tempering_friction
        c of the injected noise, by step.
    inertia, tempering_inertia
        γ of the thermostats; z_θ has variance η / γ, divided by D for the scalar one.
    tempering
        Let ξ move; without it λ = 1 throughout.
    thermostat
        ``"scalar"``, ``"diagonal"`` (one for each coordinate) or None: friction stays at c and the
        noise of the gradient is not compensated.
    bias
        ``"force"`` (adaptive biasing force), ``"hills"`` (metadynamics) or None.
    bins
        In which the bias is kept, over 0 ≤ |ξ| ≤ W₀.
    hills, coupling
        `Hills` and `Coupling`.
    integrator
        ``"symmetric"``: exact friction between two halves of the force; ``"published"``: Algorithm
        1's Euler step, whose variances are too small by about z_θ / 2.
    resample_every
        Steps after which momenta are drawn afresh; 0 for never.
    noise
        Standard deviations of Gaussian noise that is added to the energy and to each component of
        its gradient in whitened coordinates, for experiments; the sampler is not told.
    threads
        Chains that run at once; as many as there are cores by default.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other or the target, or no chain that reaches λ = 1.
    EngineError
        No base could be fitted.
    DataError, ProgramError
        Stan refuses the data, or the program cannot be cut into batches, with the place.
    KeyboardInterrupt
        Interrupted before the first block of kept draws; later, the finished ones are returned.
    """
    settings = TactSettings(
        chains=chains,
        draws=draws,
        warmup=warmup,
        thin=thin,
        step=step,
        tempering_step=tempering_step,
        friction=friction,
        tempering_friction=tempering_friction,
        inertia=inertia,
        tempering_inertia=tempering_inertia,
        tempering=tempering,
        thermostat=thermostat,
        bias=bias if tempering else None,
        bins=bins,
        hills=Hills() if hills is None else hills,
        coupling=Coupling() if coupling is None else coupling,
        integrator=integrator,
        resample_every=resample_every,
        noise=(float(noise[0]), float(noise[1])),
        threads=threads,
    )
    seed = run_seed(seed)
    ledger = Ledger()
    fit_seed, batch_seed, spread_seed, variable_seed, *lane_seeds = np.random.SeedSequence(
        seed
    ).spawn(chains + 4)
    fitted = _base(target, base, minibatch, settings, fit_seed, ledger, progress)
    ledger.lap("base")
    members = _members(target, fitted, start, minibatch, settings, batch_seed, lane_seeds, ledger)
    ledger.lap("batches")
    offset = _typical_energy(members, settings)
    _learn(members, settings, offset, progress)
    ledger.lap("warmup")
    blocks, interrupted = _look(
        members, settings.dynamics(learn=False, offset=offset), draws, PATIENCE * draws, settings,
        "tact", progress,
    )  # fmt: skip
    kept = min(min(member.collected for member in members), draws)
    if kept == 0:
        raise SamplingError(
            f"A chain was never at temperature 1 in {PATIENCE * draws} looks.",
            remedy="Learn the bias for longer (warmup=), or pass a wider plateau (coupling=).",
        )
    ledger.gradients += int(sum(member.walker.clock[0] for member in members))
    ledger.lap("sampling")
    spread = _spread(members, settings, np.random.default_rng(spread_seed), ledger)
    means, errors = settings.thermostat_means(spread)
    ledger.lap("noise")
    z = _joined(blocks, "z", kept)
    x = z if fitted is None else fitted.unwhiten(z)
    variables = dict(target.variables(x, variable_seed))
    ledger.lap("variables")
    looks = min(sum(len(block.trace) for block in chain) for chain in blocks)
    asked = {
        **asdict(settings),
        "seed": seed,
        "base": base if isinstance(base, str | None) else "given",
        "minibatch": None if minibatch is None else minibatch.settings,
    }
    return TactRun(
        method="tact",
        engine=NAME if target.programs else "python",
        variables=variables,
        z=z,
        base=fitted,
        programs=target.programs,
        data=target.data_text,
        energy=_joined(blocks, "energy", kept),
        trace=_joined(blocks, "trace", looks),
        noise=spread,
        thermostat_means=means,
        thermostat_errors=errors,
        bias=_summary(members[0].bias, settings),
        counts=np.array([member.walker.clock for member in members]),
        provenance=provenance(
            target, asked, ledger, interrupted=interrupted, hottest=settings.coupling.hottest
        ),
    )


def _base(
    target: SampledTarget | StochasticTarget,
    base: str | GaussianBase | None,
    minibatch: MiniBatch | None,
    settings: TactSettings,
    seed: np.random.SeedSequence,
    ledger: Ledger,
    progress: bool,
) -> GaussianBase | None:
    """What whitens; None for functions that are sampled in their own coordinates."""
    if isinstance(target, StochasticTarget):
        if isinstance(base, str):
            raise SamplingError(
                f"The base {base!r} is fitted to a Stan program, and this target has none.",
                remedy="Pass a GaussianBase, or none.",
            )
        if base is not None and base.dimension != target.dimension:
            raise SamplingError(
                f"The base has {base.dimension} dimensions, the target {target.dimension}."
            )
        return base
    if base is None and not isinstance(target, Target):
        return None
    fit = base if base is not None else ("pilot" if minibatch is None else "laplace")
    nuts = Nuts() if settings.threads is None else Nuts(threads=settings.threads)
    found = first_base(
        target, fit, 0.0 if isinstance(fit, GaussianBase) else None,
        chains=settings.chains, seed=seed, nuts=nuts, progress=progress,
    )  # fmt: skip
    ledger.gradients += found.gradients
    ledger.evaluations += found.evaluations
    return found.base


def _members(
    target: SampledTarget | StochasticTarget,
    base: GaussianBase | None,
    start: Array | None,
    minibatch: MiniBatch | None,
    settings: TactSettings,
    seed: np.random.SeedSequence,
    lane_seeds: list[np.random.SeedSequence],
    ledger: Ledger,
) -> list[_Chain]:
    """Chains at their starts."""
    sources = _sources(target, base, minibatch, settings, seed)
    turns = [threading.Lock() for _ in sources]
    dimension = sources[0].dimension
    if base is None:
        mean, scale = np.zeros(dimension), np.ones((1, dimension))
    else:
        mean, scale = base.mean, base.scale
    starts = _starts(start, base, settings.chains, dimension)
    corrections = sources[0].corrections()
    if sources[0].reference is not None:
        ledger.gradients += len(sources[0].shards)
    members = []
    for lane, child in enumerate(lane_seeds):
        source, turn = sources[lane % len(sources)], turns[lane % len(sources)]
        potential = make_potential(source, mean, scale, corrections, settings.noise)
        rng = np.random.Generator(np.random.PCG64(child))
        place = None if starts is None else starts[lane]
        z = _place(potential, place, dimension, rng)
        walker = Walker(
            z,
            settings.step * rng.standard_normal(dimension),
            np.full(dimension if settings.thermostat == "diagonal" else 1, settings.friction),
            np.array(
                [0.0, settings.tempering_step * rng.standard_normal(), settings.tempering_friction]
            ),
            np.zeros(3, np.int64),
        )
        members.append(_Chain(source, turn, potential, rng, walker, _new_bias(settings.bins)))
    return members


def _sources(
    target: SampledTarget | StochasticTarget,
    base: GaussianBase | None,
    minibatch: MiniBatch | None,
    settings: TactSettings,
    seed: np.random.SeedSequence,
) -> list[Batches]:
    """Sources of estimates, one a chain, or for shards of a program one a thread."""
    chains = settings.chains
    if isinstance(target, StochasticTarget):
        if minibatch is not None:
            raise SamplingError("A stochastic target makes its own batches.")
        return [target.batches(child) for child in seed.spawn(chains)]
    if minibatch is None:
        return [Batches((target.density.clone(),), np.ones(1)) for _ in range(chains)]
    if not isinstance(target, Target):
        raise SamplingError(
            "Mini-batches are cut from the data of a Stan program, and this target has none.",
            remedy="Pass a StochasticTarget that draws its own batches.",
        )
    first = program_batches(
        target, minibatch, None if base is None else base.mean, np.random.default_rng(seed)
    )
    copies = min(settings.threads or os.cpu_count() or 1, chains)
    return [first, *(first.clone() for _ in range(copies - 1))]


def _starts(
    start: Array | None, base: GaussianBase | None, chains: int, dimension: int
) -> Array | None:
    """Whitened starts, shape (chains, D); None to draw them."""
    if start is None:
        return None
    x = np.asarray(start, float)
    if x.shape not in ((dimension,), (chains, dimension)):
        raise SamplingError(
            f"start has shape {x.shape}; it must be ({dimension},) or ({chains}, {dimension})."
        )
    x = np.broadcast_to(x, (chains, dimension))
    return x.copy() if base is None else base.whiten(x)


def _place(
    potential: compiled.Potential, place: Array | None, dimension: int, rng: np.random.Generator
) -> Array:
    """A start with a finite energy: the given one, or a draw from the base."""
    room, value = np.zeros((4, dimension)), np.zeros(2)
    for _ in range(START_TRIES if place is None else 1):
        z = rng.standard_normal(dimension) if place is None else np.array(place, float)
        if compiled.energy_at(potential, z, rng, room, value):
            return z
    raise SamplingError(
        "The target vanishes, or Stan rejects it, where a chain is to start.",
        remedy="Pass a base that overlaps the target's support, or another start.",
    )


def _typical_energy(members: list[_Chain], settings: TactSettings) -> float:
    """Mean energy while chains settle at λ = 1, which the tempered energy is measured from.

    A constant in U tilts the free energy along ξ by as much times λ; without it less is to learn.
    """
    still = replace(settings, tempering=False).dynamics(learn=False, offset=0.0)
    blocks, _ = _look(members, still, SETTLE + 1, SETTLE, settings, "settling", False)
    return float(np.mean([block.trace[SETTLE // 2 :, ENERGY] for (block,) in blocks]))


def _new_bias(bins: int) -> Bias:
    room = np.zeros((4, bins))
    return Bias(room[0], room[1], room[2], room[3])


def _learn(members: list[_Chain], settings: TactSettings, offset: float, progress: bool) -> None:
    """Warm up: learn the bias, pooled over the chains after every block."""
    pooled = _new_bias(settings.bins)
    dynamics = settings.dynamics(learn=True, offset=offset)
    for size in block_sizes(settings.warmup, SHARED):
        for member in members:
            member.collected = 0
        _, interrupted = _look(members, dynamics, size + 1, size, settings, "warm-up", progress)
        if interrupted:
            raise KeyboardInterrupt
        # What each chain has added since the last block, to what all knew then.
        pooled = Bias(
            *(
                old + sum(getattr(member.bias, name) - old for member in members)
                for name, old in pooled._asdict().items()
            )
        )
        for member in members:
            member.bias = Bias(*(part.copy() for part in pooled))
    for member in members:
        member.collected = 0
        member.places.clear()


def _look(
    members: list[_Chain],
    dynamics: Dynamics,
    wanted: int,
    looks: int,
    settings: TactSettings,
    label: str,
    progress: bool,
) -> tuple[list[list[TactOut]], bool]:
    """Run every chain until it has collected `wanted` draws or has looked often enough."""
    return run_blocks(
        lambda lane, size: members[lane].look(dynamics, size, wanted),
        len(members),
        block_sizes(looks, BLOCK),
        threads=settings.threads,
        label=label,
        progress=progress,
        unit="look",
    )


def _spread(
    members: list[_Chain], settings: TactSettings, rng: np.random.Generator, ledger: Ledger
) -> Array:
    """Variances of U and ∇U between batches at places of the chains with λ and λ', (points, 4)."""
    first, coupling = members[0], settings.coupling
    places = [place for member in members for place in member.places]
    picked = [places[k] for k in rng.permutation(len(places))[:SPREAD_POINTS]]
    points = np.array([z for z, _ in picked])
    spread = np.zeros((len(points), 2))
    compiled.batch_spread(first.potential, points, SPREAD_BATCHES, rng, spread)
    ledger.gradients += len(points) * SPREAD_BATCHES
    at = (coupling.plateau, coupling.reach, coupling.power)
    return np.column_stack([spread, [compiled.coupling(xi, *at) for _, xi in picked]])


def _joined(blocks: list[list[TactOut]], name: str, count: int) -> Array:
    """One array of the blocks of all chains, cut to the shortest."""
    return np.stack(
        [np.concatenate([getattr(block, name) for block in chain])[:count] for chain in blocks]
    )


def _summary(bias: Bias, settings: TactSettings) -> Array:
    """Visits and what was learned, shape (2, bins)."""
    if settings.bias == "force":
        return np.array([bias.visits, bias.energy / np.maximum(bias.visits, 1)])
    return np.array([bias.visits, bias.height])
