"""Joint continuous tempering by independent draws of a base that nearly is the target.

The proposals of x are independent draws of the base q. Where β > 0, they are accepted by
Metropolis–Hastings (Hastings 1970; Tierney 1994, section 2.3.3) under the marginal ∝ q(x) M(x),
with probability min(1, M(x′) / M(x)). At the atom, β = 0, every proposal is accepted. β is drawn
exactly given x ([GS] 17). M costs one log density and no gradient, unless the base itself needs
gradients (`NestedBase`). Where the curvature at every mode gives the base, most proposals are
accepted, and the draws are nearly independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.names import MODES
from stanct.common.settings import Real, Whole
from stanct.path.base import Base, Drawn, NestedBase, batch_of, gradients_per_draw, lent
from stanct.path.bias import ATOM, Bias
from stanct.path.course import Course, beta_grid
from stanct.runs.tempered import TemperedRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._job import Job
from stanct.samplers._looks import in_looks
from stanct.samplers._method import Method
from stanct.samplers._watch import Watch
from stanct.work.execution import Borrow
from stanct.work.progress import Bar

BLOCK = 500
# Draws of the base to bridge with, for each kept draw, where draws of it are dear and means ask for
# more of them than log Z does.
BESIDE = 0.5


class Proposals(NamedTuple):
    """What decides about independent draws of the base, which the same stream draws again.

    δ, shape (draws,); uniforms, shape (draws, 3), for acceptance and β; z where each costs
    gradients.
    """

    delta: Array
    uniforms: Array
    z: Array = np.zeros((0, 0))


class _Last(NamedTuple):
    """The last draw of a chain that goes on: z, shape (D,), and the proposal that leads there."""

    z: Array
    proposal: Proposals


@dataclass(frozen=True)
class _Propose:
    """Draws proposals of one chain; it is sent to workers."""

    borrow: Borrow
    base: Base

    def __call__(self, rng: np.random.Generator, draws: int) -> Proposals:
        made, uniforms = _drawn(self.base, rng, draws)
        with self.borrow() as density:
            delta = made.delta(density.log_densities(made.x))
        return Proposals(delta, uniforms, *_kept_of(self.base, made.z))


def _kept_of(base: Base, z: Array) -> tuple[Array, ...]:
    """Draws that are too dear to be drawn again."""
    return (z,) if gradients_per_draw(base) else ()


def _drawn(base: Base, rng: np.random.Generator, draws: int) -> tuple[Drawn, Array]:
    """Draws of the base, and the uniforms that go with them."""
    return Drawn.of(base, rng, draws), rng.random((draws, 3))


@dataclass(frozen=True, kw_only=True)
class Independence(Method[TemperedRun]):
    """Joint continuous tempering by independent proposals from the base.

    Attributes
    ----------
    trial
        Draws of the base from which the bias is learned, unless its fit made some.
    atom
        Share of the draws at which β = 0 exactly, as in `Joint`.

    A method without gradients, for bases that nearly are the target. Where the base misses part of
    the target, few proposals are accepted there, and the checks say so.
    """

    name: ClassVar[str] = "independence"
    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 0
    default_base: ClassVar[str] = MODES
    aims: ClassVar[bool] = True
    thins: ClassVar[bool] = True

    trial: Annotated[int, Whole(100)] = 1000
    atom: Annotated[float, Real(0, 0.9, closed=True)] = ATOM

    def run(self, job: Job) -> TemperedRun:
        """Fit a base, learn the bias from draws of it, and draw."""
        start = job.start(sampled=True)
        base, nested = start.base, start.nested
        if nested is not None and isinstance(base, NestedBase):  # the fit has draws already
            trial = -nested.log_weights
        else:
            trial = job.base_delta(base, self.trial, "trial")
        course = Course.weighted(beta_grid(101), np.zeros(trial.size), trial)
        bias = course.sharing(course.bias(), self.atom)
        job.lap("bias")
        return self._kept(job, base, bias, None)

    def resume(self, job: Job, run: TemperedRun) -> TemperedRun:
        """Move the chains on from their last draws."""
        bias = run.smooth_bias
        # The first uniform accepts the last draw, the second says whether it is at the atom.
        at = run.kept[-1]
        moved = np.where(run.beta[:, at] > 0, 1 - 1e-12, 0.0)
        last = [
            _Last(
                z[-1],
                Proposals(
                    delta[at : at + 1], np.array([[0.0, u, 0.5]]), *_kept_of(run.base, z[-1:])
                ),
            )
            for z, delta, u in zip(run.z, run.delta, moved, strict=True)
        ]
        return self._kept(job, lent(run.base, job.borrow), bias, last)

    def _kept(self, job: Job, base: Base, bias: Bias, before: list[_Last] | None) -> TemperedRun:
        """Make the kept draws; chains go on from those `before`, or begin at their first proposals.

        Proposals that cost no gradient are drawn twice, because which are kept is known only later.
        """
        streams = [job.seeds.stream("chain", k) for k in range(job.chains)]
        base_draws, shelf, batch = job.base_draws(base, "final"), job.shelf(), batch_of(base)
        precision = job.precision.by(batch)
        base_draws.begin(job.execution)
        work = _Propose(job.borrow, base)
        done = [[last.proposal] for last in before] if before else [[] for _ in streams]
        first = int(before is not None)
        chains = [_Chain(bias) for _ in streams]
        _take(chains, done, 0)
        dear = precision.effective > 0 and gradients_per_draw(base) > 0
        beside = BESIDE if dear else 1.0
        watch = Watch(base_draws, beside, bias, precision, job.execution, batch=batch)
        drawn: list[Array] = []  # what was gathered of the blocks that are done

        def gathered() -> tuple[Array, Array, Array, Array, Array]:
            places, beta, delta, accepted = _draws(chains, first)
            kept = shelf.kept(beta.shape[1])
            again = _again(job, base, done, before, places[:, kept])
            z = shelf.filled((job.chains, kept.size, base.dimension), again)
            return z, beta, delta, kept, accepted

        def make(draws: int, bar: Bar) -> bool:
            earlier, sizes = len(done[0]), lanes.block_sizes(draws, BLOCK)
            blocks, interrupted = job.blocks(
                job.method, work, streams, sizes, final=True, bar=bar,
                seen=lambda latest: _take(chains, latest, earlier),
            )  # fmt: skip
            _take(chains, blocks, earlier)
            for chain, further in zip(done, blocks, strict=True):
                chain.extend(further)
            drawn.clear()
            return interrupted

        def more(_draws: int, bar: Bar) -> int:
            drawn[:] = gathered()
            return watch.more(bar, *drawn[:4])

        interrupted = in_looks(job, precision, make, more, job.method)
        z, beta, delta, kept, accepted = drawn or gathered()
        job.count_draws(base, delta.size)
        base_delta, cut = base_draws.kept(
            math.ceil(beside * delta.size), job.execution, cut=interrupted
        )
        job.count_draws(base, base_delta.size)
        job.lap("sampling")
        return job.finish(
            TemperedRun,
            interrupted=cut,
            z=z,
            kept=kept,
            beta=beta,
            delta=delta,
            base_delta=base_delta,
            base=base,
            bias=bias,
            statistics={"accept_stat__": accepted, "divergent__": np.zeros(beta.shape)},
            facts={"stopping": precision.record()},
        )


class _Chain:
    """The draws of a chain, which follow block by block from its proposals inside the support."""

    def __init__(self, bias: Bias) -> None:
        self._bias, self._without = bias, replace(bias, atom=0.0)
        self._parts: list[tuple[Array, Array, Array, Array]] = []
        self._waiting: list[Proposals] = []
        self.taken = self._count = 0
        self._now, self._delta, self._at_atom = -1, 0.0, False

    def take(self, block: Proposals) -> None:
        """Accept or reject the proposals of the next block."""
        self.taken += 1
        self._waiting.append(block)
        found = _joined(self._waiting)
        log_mass = self._without.log_mass(found.delta)
        if self._now < 0 and not np.isfinite(log_mass).any():
            return
        self._waiting = []
        self._parts.append(self._moved(found, log_mass))

    def draws(self) -> tuple[Array, Array, Array, Array]:
        """The number of the proposal that each draw is, β, δ and acceptance probabilities."""
        parts = list(self._parts)
        if self._waiting:  # all proposals are outside of the support
            found = _joined(self._waiting)
            parts.append(self._moved(found, self._without.log_mass(found.delta)))
        kept, beta, delta, accepted = (np.concatenate(part) for part in zip(*parts, strict=True))
        return kept, beta, delta, accepted

    def _moved(self, found: Proposals, log_mass: Array) -> tuple[Array, Array, Array, Array]:
        start, count = self._count, len(found.delta)
        if self._now < 0:
            self._now = start + int(np.argmax(np.isfinite(log_mass)))
            self._delta = float(found.delta[self._now - start])
        # The first entry is the draw before this block.
        before = np.concatenate([[self._delta], found.delta])
        shares = self._bias.atom_shares(before).tolist()
        mass = [float(self._without.log_mass(before[:1])[0]), *log_mass.tolist()]
        now = self._now - start + 1 if self._now >= start else 0
        # Lists are read several times as fast as arrays, element by element.
        accepts, atoms = found.uniforms[:, 0].tolist(), found.uniforms[:, 1].tolist()
        kept, probability, at_atom = [0] * count, [1.0] * count, self._at_atom
        for n in range(count):
            own = mass[n + 1]
            if not at_atom and not own >= mass[now]:
                probability[n] = math.exp(own - mass[now]) if own > -math.inf else 0.0
            elif not at_atom and own == -math.inf:
                probability[n] = 0.0
            if accepts[n] < probability[n]:
                now = n + 1
            kept[n] = now
            # The same uniform then puts β there, see `Bias.sample_beta`.
            at_atom = atoms[n] < shares[now]
        places = np.array(kept)
        delta = before[places]
        numbers = np.where(places > 0, start + places - 1, self._now)
        self._now, self._delta, self._at_atom = int(numbers[-1]), float(delta[-1]), at_atom
        self._count = start + count
        beta = self._bias.sample_beta(delta, found.uniforms[:, 1:].T)
        return numbers, beta, delta, np.array(probability)


def _take(chains: list[_Chain], latest: list[list[Proposals]], earlier: int) -> None:
    """Let every chain take its latest blocks, before which there were so many others."""
    for chain, blocks in zip(chains, latest, strict=True):
        for block in blocks[chain.taken - earlier :]:
            chain.take(block)


def _joined(blocks: list[Proposals]) -> Proposals:
    return Proposals(*map(np.concatenate, zip(*blocks, strict=True)))


def _draws(chains: list[_Chain], first: int) -> tuple[Array, Array, Array, Array]:
    """`_Chain.draws` of all chains, of shape (chains, draws), without the `first`."""
    found = [chain.draws() for chain in chains]
    ends = min(len(kept) for kept, *_ in found)
    places, beta, delta, accepted = (
        np.stack([part[first:ends] for part in parts]) for parts in zip(*found, strict=True)
    )
    return places, beta, delta, accepted


def _again(
    job: Job, base: Base, done: list[list[Proposals]], before: list[_Last] | None, places: Array
) -> Iterator[tuple[int, Array, Array]]:
    """Draw the proposals again: chain, rows and z of those at `places`, shape (chains, rows)."""
    for chain, (blocks, wanted) in enumerate(zip(done, places, strict=True)):
        rng, first = job.seeds.stream("chain", chain), 0
        for number, block in enumerate(blocks):
            size = len(block.delta)
            if number == 0 and before is not None:
                z = before[chain].z[None]
            elif block.z.size:
                z = block.z
            else:
                z = _drawn(base, rng, size)[0].z
            # A chain takes its proposals in order.
            rows = np.arange(*np.searchsorted(wanted, [first, first + size]))
            if rows.size:
                yield chain, rows, z[wanted[rows] - first]
            first += size
