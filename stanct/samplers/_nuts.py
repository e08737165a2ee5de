"""NUTS on the joint and the pseudo-extended density, by compiled kernels or by CmdStan.

Without CmdStan, no generated program runs. Its log density and gradient follow from those of the
density program by the chain rule (`kernels.evaluate_extended`). A gradient then costs as much as
one of the user's program. Python functions can be tempered in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array, joined_rows
from stanct.common.errors import EngineError, SamplingError
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import STATISTICS, Adapted, DrawBlock, Nuts, ParameterShapes, Recipe
from stanct.kernels import Orbit, make_extended, make_nuts_out, make_scratch, make_subtrees
from stanct.kernels.warmup import DualAveraging, first_step, inverse_metric, windows
from stanct.path.base import Base
from stanct.path.bias import Bias, CopyBias
from stanct.path.gaussian import GaussianBase
from stanct.samplers._job import Job
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledDensity, SampledTarget
from stanct.targets.recipes import joint_recipe, pseudo_extended_recipe
from stanct.work.execution import Borrow, Execution
from stanct.work.interrupts import end_if_left_behind
from stanct.work.shelf import Shelf


def generated(target: SampledTarget, kind: str, **variant: bool) -> dict[str, str]:
    """The target's generated programs with one more; `ProgramError` if it has no such form."""
    if not isinstance(target, ProgramTarget):
        return {}
    return {**target.programs, kind: target.code(kind, **variant)}


def control_of(beta: Array) -> Array:
    """The control u of β = logistic(u), kept finite where β was rounded to 0 or 1."""
    inside = np.clip(beta, 1e-15, 1 - 1e-15)
    return np.log(inside) - np.log1p(-inside)


@dataclass(frozen=True)
class NutsDraws:
    """Consecutive draws of several chains from a joint or a pseudo-extended density.

    `z`, shape (chains, kept, D) or, of N copies, (chains, kept, N, D), is whitened, and has what a
    `Shelf` left. `u`, −∞ at an atom and of size 0 where β is fixed, and `delta` have shape (chains,
    draws) or (chains, draws, N). `statistics` have CmdStan's names, and `variables` are the user's
    if the engine computes them. `last` are the last points where `z` may lack them; see `end`.
    """

    z: Array
    u: Array
    delta: Array
    statistics: dict[str, Array]
    variables: dict[str, Array] = field(default_factory=dict)
    last: Array | None = None

    @property
    def end(self) -> Array:
        """Last points of the chains, shape (chains, dimension): each copy's z in turn, then u."""
        if self.last is not None:
            return self.last
        chains = len(self.z)
        z = self.z[:, -1].reshape(chains, -1)
        if not self.u.size:
            return z
        return np.concatenate([z, self.u[:, -1].reshape(chains, -1)], axis=1)

    def on(self, shelf: Shelf, first: int) -> NutsDraws:
        """These draws, of which draw number `first` is the first, with what a shelf leaves here."""
        if shelf.thin == 1 and not shelf.on_disk:
            return self
        rows = shelf.rows(first, self.delta.shape[1])
        variables = {} if shelf.on_disk else self.variables
        return replace(
            self,
            z=shelf.taken(self.z, first),
            variables={name: values[:, rows] for name, values in variables.items()},
            last=self.end,
        )

    @property
    def inside(self) -> Array:
        """Last points not at an atom, (chains, D + 1), or just above β = 0 in the support."""
        choice = np.where(np.isfinite(self.u), 2, np.isfinite(self.delta))
        last = self.u.shape[1] - 1 - np.argmax(choice[:, ::-1], axis=1)
        rows = np.arange(len(last))
        u = self.u[rows, last]
        u = np.where(np.isfinite(u), u, control_of(np.zeros(len(u))))
        return np.concatenate([self.z[rows, last], u[:, None]], axis=1)

    @property
    def gradients(self) -> int:
        """Number of gradients: one for each leapfrog step, and one for each draw of β."""
        return int(self.statistics["n_leapfrog__"].sum())

    @classmethod
    def joined(cls, blocks: Sequence[NutsDraws]) -> NutsDraws:
        """Join consecutive blocks."""
        z, u, delta = (
            np.concatenate([getattr(block, name) for block in blocks], axis=1) for name in _ARRAYS
        )
        statistics = joined_rows(*(block.statistics for block in blocks))
        variables = joined_rows(*(block.variables for block in blocks))
        return cls(z, u, delta, statistics, variables, blocks[-1].last)


_ARRAYS = ("z", "u", "delta")


class Block(NamedTuple):
    """How a block is made, with frozen step size and inverse metric, shape (dimension,)."""

    seed: int
    draws: int
    step_size: float
    inv_metric: Array


def nuts_sampler(
    job: Job, base: Base, bias: Bias | CopyBias, *, copies: int = 1, fixed_beta: Array | None = None
) -> CompiledNuts | CmdStanNuts:
    """A sampler of the joint density, or with a `CopyBias` of the pseudo-extended one of N copies.

    Their β are `fixed_beta`, shape (N,), unless they are estimated.
    """
    if job.engine is None:
        return CompiledNuts(job.density, base, bias, copies, fixed_beta, job.execution)
    target = job.target
    if not isinstance(target, ProgramTarget):
        raise SamplingError("CmdStan runs Stan programs, and this target is none.")
    return CmdStanNuts(
        job.engine, *generated_program(target, base.dense(), bias, copies, fixed_beta), target
    )


def generated_program(
    target: ProgramTarget,
    base: GaussianBase,
    bias: Bias | CopyBias,
    copies: int,
    fixed_beta: Array | None = None,
) -> tuple[Recipe, ParameterShapes]:
    """The joint or pseudo-extended program with its data, and the shapes of its parameters."""
    z, u = target.prefix + "z", target.prefix + "u"
    if isinstance(bias, Bias):
        return joint_recipe(target, base, bias), {z: (base.dimension,), u: ()}
    controls = {u: (copies,)} if fixed_beta is None else {}
    recipe = pseudo_extended_recipe(target, base, bias, copies, fixed_beta)
    return recipe, {z: (base.dimension, copies), **controls}


@dataclass(frozen=True)
class CmdStanNuts:
    """NUTS by CmdStan on a generated program, whose parameters are all unconstrained."""

    engine: CmdStan
    recipe: Recipe = field(repr=False)
    shapes: ParameterShapes
    target: ProgramTarget

    def adapt(self, positions: Array, **settings: Any) -> Adapted:
        """Warm chains up; see `CmdStan.adapt`."""
        return self.engine.adapt(self.recipe, positions, self.shapes, **settings)

    def draw(self, positions: Array, block: Block, *, nuts: Nuts) -> NutsDraws:
        """Draw a block; see `CmdStan.draw`."""
        made = self.engine.draw(self.recipe, positions, self.shapes, nuts=nuts, **block._asdict())
        return self._read(made)

    def _read(self, block: DrawBlock) -> NutsDraws:
        """Convert CmdStan's output to `NutsDraws`; generated names do not leave this method."""
        names = [self.target.prefix + name for name in _ARRAYS]
        z, u, delta = (block.variables.get(name, np.zeros((0, 0))) for name in names)
        if z.ndim == 4:
            z = np.swapaxes(z, 2, 3)  # the program has a column for each copy
        chains, draws = z.shape[:2]
        return NutsDraws(
            z,
            u if u.size else np.zeros((chains, draws, 0)),
            delta,
            block.statistics,
            self.target.user_variables(block.variables),
        )


@dataclass(frozen=True)
class CompiledNuts:
    """NUTS by compiled kernels; `execution` moves the chains, all at once."""

    density: SampledDensity
    base: Base
    bias: Bias | CopyBias
    copies: int = 1
    fixed_beta: Array | None = field(default=None)
    execution: Execution = field(default_factory=lambda: Execution(0))

    def adapt(self, positions: Array, *, seed: int, warmup: int, nuts: Nuts) -> Adapted:
        """Adapt step size and metric by Stan's windows; positions have copies' z, then u."""
        bias = self.bias
        # Step size and metric are those of the path, not of the atom.
        plain = replace(self, bias=replace(bias, atom=0.0)) if isinstance(bias, Bias) else self
        work = partial(plain._movers(nuts).warm_up, warmup, nuts.target_accept)
        found = self.execution.each("warm-up", work, _places(positions, seed))
        steps, metrics, ends, gradients = zip(*found, strict=True)
        return Adapted(np.array(steps), np.array(metrics), np.array(ends), sum(gradients))

    def draw(self, positions: Array, block: Block, *, nuts: Nuts) -> NutsDraws:
        """Draw a block with step size and metric frozen; chains continue from `positions`."""
        work = partial(self._movers(nuts).draw, block)
        found = self.execution.each("draws", work, _places(positions, block.seed))
        w, delta, statistics = (np.stack(part) for part in zip(*found, strict=True))
        of_z = self.copies * self.base.dimension
        z, u = w[..., :of_z], w[..., of_z:]
        if isinstance(self.bias, CopyBias):
            z = z.reshape(*z.shape[:2], self.copies, -1)
        else:
            u, delta = u[..., 0], delta[..., 0]
        named = {name: statistics[..., k] for k, name in enumerate(STATISTICS)}
        return NutsDraws(z, u, delta, named)

    def _movers(self, nuts: Nuts) -> _Movers:
        fixed = np.zeros(0) if self.fixed_beta is None else self.fixed_beta
        borrow = self.density.borrow
        return _Movers(borrow, self.base, self.bias, self.copies, fixed, nuts.max_depth)


class _Place(NamedTuple):
    """Where a chain goes on, and the entropy of its random stream: a seed and its number."""

    position: Array
    entropy: tuple[int, int]


def _places(positions: Array, seed: int) -> list[_Place]:
    return [_Place(position, (seed, chain)) for chain, position in enumerate(positions)]


@dataclass(frozen=True)
class _Movers:
    """What a worker needs to move a chain; it can be sent to other processes."""

    borrow: Borrow = field(repr=False)
    base: Base
    bias: Bias | CopyBias
    copies: int
    fixed_beta: Array
    max_depth: int

    @contextmanager
    def lane(self, place: _Place) -> Iterator[_Lane]:
        """Put a chain at its place, and lend it a density while the context lasts."""
        size = place.position.size
        with self.borrow() as density:
            extended = make_extended(density, self.base, self.bias, self.copies, self.fixed_beta)
            trees = make_subtrees(self.max_depth, size, self.copies)
            rng = np.random.Generator(np.random.PCG64(place.entropy))
            orbit = Orbit(extended, np.ones(size), trees, make_scratch(self.base.dimension))
            lane = _Lane(orbit, rng, self.max_depth)
            lane.go_to(place.position)
            yield lane

    def warm_up(
        self, warmup: int, target_accept: float, place: _Place
    ) -> tuple[float, Array, Array, int]:
        """Warm a chain up; see `_Lane.warm_up`."""
        with self.lane(place) as lane:
            return lane.warm_up(warmup, target_accept)

    def draw(self, block: Block, place: _Place) -> tuple[Array, Array, Array]:
        """Make the next draws of a chain; see `_Lane.draws`."""
        with self.lane(place) as lane:
            return lane.draws(block.draws, block.step_size, block.inv_metric, halving=True)


@dataclass
class _Lane:
    """One chain in motion."""

    orbit: Orbit
    rng: np.random.Generator
    max_depth: int
    gradients: int = 0

    def go_to(self, position: Array) -> None:
        """Put the chain at a point; raise `EngineError` where the density vanishes."""
        trees = self.orbit.trees
        point, gradient = trees.vectors[kernels.STATE, kernels.POINT :]
        scalars = trees.scalars[kernels.STATE]
        point[:] = position
        if point[-1] == -np.inf:  # at the atom, where the next draw does not depend on the point
            return
        log_density = kernels.evaluate_extended(
            self.orbit.extended, point, gradient, scalars[kernels.DELTA :], self.orbit.scratch
        )
        self.gradients += 1
        if not np.isfinite(log_density):
            raise EngineError(
                "NUTS could not start: Stan rejects the point where a chain begins, or the "
                "target vanishes there.",
                remedy="Check that the density is finite near the base.",
            )
        scalars[kernels.LOG_DENSITY] = log_density

    def draws(
        self, draws: int, step: float, inverse: Array, *, halving: bool
    ) -> tuple[Array, Array, Array]:
        """Make the next draws: w, δ and statistics, one row for each draw."""
        orbit = self.orbit._replace(inverse=inverse)
        out = make_nuts_out(draws, inverse.size, orbit.extended.room.size)
        kernels.nuts_draws(orbit, step, self.max_depth, halving, self.rng, out)
        return out

    def warm_up(self, warmup: int, target_accept: float) -> tuple[float, Array, Array, int]:
        """Warm up: step size, inverse metric, last point and gradients spent."""
        inverse = self.orbit.inverse
        step = DualAveraging(first_step(partial(self._lost, inverse), 1.0), target_accept)
        ends = {window[-1]: window for window in windows(warmup)}
        seen = np.empty((warmup, inverse.size))
        for n in range(warmup):
            end_if_left_behind()
            w, _, statistics = self.draws(1, step.step, inverse, halving=False)
            seen[n] = w[0]
            self.gradients += int(statistics[0, STATISTICS.index("n_leapfrog__")])
            step.learn(statistics[0, STATISTICS.index("accept_stat__")])
            if n in ends:
                inverse = inverse_metric(seen[ends[n]])
                step.restart(first_step(partial(self._lost, inverse), step.step))
        return step.learned, inverse, seen[-1], self.gradients

    def _lost(self, inverse: Array, step: float) -> float:
        """The energy lost by one leapfrog step from the current point."""
        self.gradients += 1
        return kernels.energy_lost(self.orbit._replace(inverse=inverse), step, self.rng)
