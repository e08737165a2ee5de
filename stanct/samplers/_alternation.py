"""Chains that move x given β and draw β given x, in turn, on a continuous path or on a ladder.

Gibbs continuous tempering and simulated tempering differ in the distribution of β | x, and thus in
how the bias follows from a round. This module holds everything else. The bias and the step size as
a function of β are learned in rounds of doubling length. `bootstrap` rounds also refit the base.
Everything is frozen before the kept draws.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.names import MODES
from stanct.common.settings import MOST_COUNTED, Whole
from stanct.path.base import Base
from stanct.path.bias import AnyBias, Bias, LadderBias
from stanct.path.course import Course
from stanct.runs.tempered import TemperedRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._job import Job
from stanct.samplers._looks import in_looks
from stanct.samplers._method import HmcMethod
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import BaseDraws, Round, acceptance_by_beta, course_under, refit_base
from stanct.samplers._watch import Watch
from stanct.targets.protocols import SampledDensity
from stanct.work.execution import Borrow
from stanct.work.progress import Bar
from stanct.work.shelf import Shelf

BLOCK = 100
ROUND_DRAWS = 500


@dataclass(frozen=True, kw_only=True)
class Alternation(HmcMethod[TemperedRun]):
    """A method that moves x given β and draws β given x, in turn; `Gibbs` has the settings."""

    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 500
    aims: ClassVar[bool] = True
    loops: ClassVar[tuple[str, ...]] = "evaluate", "gibbs_draws"
    thins: ClassVar[bool] = True

    bootstrap: Annotated[int, Whole(0)] = 0
    transitions: Annotated[int, Whole(1, MOST_COUNTED)] = 5

    @property
    @abstractmethod
    def sampled(self) -> bool:
        """Whether x is redrawn from the base at β = 0, which makes a mixture possible."""

    def automatic_base(self) -> str:
        """As in `Method`: the mixture of all modes, unless rounds are to refit the base."""
        return MODES if self.sampled and not self.bootstrap else self.default_base

    @abstractmethod
    def first_bias(self, log_zeta: float) -> AnyBias:
        """The first bias, when only log ζ is known."""

    @abstractmethod
    def carried_bias(self, course: Course, uniform: float) -> AnyBias:
        """The bias along the path from a refitted base; for `uniform` see `Course.log_density`."""

    @abstractmethod
    def refitted_bias(self, done: Round, uniform: float) -> AnyBias:
        """The bias that follows from a round's draws under the same base."""

    def run(self, job: Job) -> TemperedRun:
        """Fit a base, learn bias and step sizes, freeze them, and draw."""
        start = job.start(bootstrap=self.bootstrap, sampled=self.sampled)
        chains = _Chains.started(job, self, start.base, start.log_zeta, start.uniform)
        for number in range(self.bootstrap):
            chains.learn(number)
            out = chains.drawn(f"round {number + 1}", ROUND_DRAWS)
            done = chains.round(out, "round", number)
            base = refit_base(done, start.least_shrinkage)
            chains.rebase(base, self.carried_bias(course_under(done, base), start.uniform))
        job.lap("bootstrap")
        chains.learn(self.bootstrap)
        job.lap("warmup")
        return self._kept(job, chains)

    def resume(self, job: Job, run: TemperedRun) -> TemperedRun:
        """Move the chains on from their last draws, with the frozen step sizes."""
        return self._kept(job, _Chains.resumed(job, self, run))

    def _kept(self, job: Job, chains: _Chains) -> TemperedRun:
        """Make the kept draws under the frozen base, bias and step sizes."""
        base_draws = job.base_draws(chains.base, "final")
        base_draws.begin(job.execution)
        precision, shelf = job.precision, job.shelf()
        out, interrupted = chains.final(base_draws, precision, shelf)
        z = shelf.all(out.z, out.beta.shape[1])
        base_delta, cut = base_draws.kept(out.beta.size, job.execution, cut=interrupted)
        job.ledger.evaluations += base_delta.size
        job.lap("sampling")
        return job.finish(
            TemperedRun,
            interrupted=cut,
            z=z,
            kept=shelf.kept(out.beta.shape[1]),
            beta=out.beta,
            delta=out.delta,
            base_delta=base_delta,
            base=chains.base,
            bias=chains.bias,
            statistics=_statistics(out),
            facts={
                "stopping": precision.record(),
                "acceptance": acceptance_by_beta(out.bins),
                "log_step": chains.members[0].table.log_step.tolist(),
            },
        )


@dataclass
class _Chain:
    """A chain's random stream, state, β and step table, moved in place."""

    rng: np.random.Generator
    state: kernels.State
    beta: float
    table: kernels.StepTable

    @classmethod
    def start(cls, density: SampledDensity, base: Base, seed: np.random.SeedSequence) -> _Chain:
        """A chain inside the target's support, with β uniform."""
        rng = lanes.stream(seed)
        state = lanes.start(density, base, rng)
        return cls(rng, state, float(rng.random()), kernels.make_table(base.dimension))

    def rebase(self, density: SampledDensity, old: Base, new: Base) -> None:
        """Keep the position x, and express it in the coordinates of a new base."""
        z = new.whiten(old.unwhiten(self.state.z))
        self.state = kernels.make_state(kernels.make_problem(density, new), z)


@dataclass(frozen=True)
class _Draw:
    """Moves a chain through a block under a frozen base and bias; it is sent to workers."""

    borrow: Borrow
    base: Base
    bias: AnyBias
    moves: kernels.Moves
    transitions: int

    def __call__(self, chain: _Chain, draws: int) -> kernels.GibbsOut:
        out = kernels.make_gibbs_out(draws, self.base.dimension)
        bias = self.bias
        on_ladder = isinstance(bias, LadderBias)
        law = kernels.make_law(bias.beta, bias.value, bias.atom if isinstance(bias, Bias) else 0.0)
        with self.borrow() as density:
            chain.beta = kernels.gibbs_draws(
                kernels.make_problem(density, self.base),
                chain.state,
                kernels.Alternation(chain.beta, law, on_ladder, self.transitions),
                kernels.Mover(self.moves, chain.table, kernels.make_scratch(self.base.dimension)),
                chain.rng,
                out,
            )
        return out


@dataclass
class _Chains:
    """All chains of a job, with their current base and bias."""

    job: Job = field(repr=False)
    method: Alternation
    base: Base
    bias: AnyBias
    uniform: float
    members: list[_Chain]

    @classmethod
    def started(
        cls, job: Job, method: Alternation, base: Base, log_zeta: float, uniform: float
    ) -> _Chains:
        """Chains at draws of the base inside the target's support."""
        members = [
            _Chain.start(job.density, base, job.seeds("chain", k)) for k in range(job.chains)
        ]
        return cls(job, method, base, method.first_bias(log_zeta), uniform, members)

    @classmethod
    def resumed(cls, job: Job, method: Alternation, run: TemperedRun) -> _Chains:
        """Chains at the last draws of a run, with its base, bias and step sizes."""
        problem, table = kernels.make_problem(job.density, run.base), lanes.frozen_table(run)
        members = [
            _Chain(
                job.seeds.stream("chain", k),
                kernels.make_state(problem, run.z[k, -1]),
                float(run.beta[k, run.kept[-1]]),
                kernels.copy_table(table),
            )
            for k in range(job.chains)
        ]
        return cls(job, method, run.base, run.bias, 1.0, members)

    def work(self, *, learn: bool) -> _Draw:
        """The work that moves a chain through a block."""
        moves = self.method.moves(learn=learn)
        return _Draw(self.job.borrow, self.base, self.bias, moves, self.method.transitions)

    def drawn(self, label: str, draws: int, *, learn: bool = False) -> kernels.GibbsOut:
        """Draw from every chain for a round, in blocks."""
        sizes = lanes.block_sizes(draws, BLOCK)
        blocks, _ = self.job.blocks(label, self.work(learn=learn), self.members, sizes)
        out = _joined(blocks)
        self.job.ledger.gradients += int(out.gradients.sum())
        return out

    def round(self, out: kernels.GibbsOut, *name: str | int) -> Round:
        """The round of these draws, with as many draws of the base from the named stream."""
        base_delta = self.job.base_delta(self.base, out.beta.size, *name)
        return Round(self.base, self.bias, out.z, out.delta, base_delta)

    def learn(self, number: int) -> None:
        """Learn bias and step sizes in rounds of doubling length, and leave one frozen table."""
        for step, size in enumerate(lanes.doubling(self.job.warmup)):
            out = self.drawn("warm-up", size, learn=True)
            done = self.round(out, "warm-up", number, step)
            self.bias = self.method.refitted_bias(done, self.uniform)
            lanes.pool(self.members)

    def rebase(self, base: Base, bias: AnyBias) -> None:
        """Keep the position x of every chain under a new base and bias."""
        for member in self.members:
            member.rebase(self.job.density, self.base, base)
        self.base, self.bias = base, bias

    def final(
        self, base_draws: BaseDraws, precision: Precision, shelf: Shelf
    ) -> tuple[kernels.GibbsOut, bool]:
        """Make the kept draws, and say whether they ended early."""
        job, work = self.job, self.work(learn=False)
        done: list[list[kernels.GibbsOut]] = [[] for _ in self.members]
        watch = Watch(base_draws, 1, self.bias, precision, job.execution)

        def make(draws: int, bar: Bar) -> bool:
            before = sum(len(block.beta) for block in done[0])

            def so_far(latest: list[list[kernels.GibbsOut]]) -> tuple[Array, Array, int]:
                level = min(map(len, latest))
                out = _joined([[*a, *b[:level]] for a, b in zip(done, latest, strict=True)])
                return out.beta, out.delta, int(out.gradients.sum())

            def taken(lane: int, number: int, block: kernels.GibbsOut) -> kernels.GibbsOut:
                first, chains = before + number, len(self.members)
                z = shelf.taken(block.z[None], first, chain=lane, chains=chains)
                return block._replace(z=z[0])

            blocks, interrupted = job.blocks(
                job.method, work, self.members, lanes.block_sizes(draws, BLOCK), final=True,
                bar=bar, seen=lambda latest: watch.show(bar, lambda: so_far(latest)), taken=taken,
            )  # fmt: skip
            for chain, further in zip(done, blocks, strict=True):
                chain.extend(further)
            return interrupted

        def more(draws: int, bar: Bar) -> int:
            out = _joined(done)
            return watch.more(bar, shelf.all(out.z, draws), out.beta, out.delta, shelf.kept(draws))

        interrupted = in_looks(job, precision, make, more, job.method)
        out = _joined(done)
        job.ledger.gradients += int(out.gradients.sum())
        return out, interrupted


def _joined(blocks: list[list[kernels.GibbsOut]]) -> kernels.GibbsOut:
    """Join the blocks of all chains: fields of shape (chains, draws, ...), with bins summed."""
    every = [block for chain in blocks for block in chain]
    joined = {}
    for name in kernels.GibbsOut._fields[:-1]:
        rows = np.concatenate([getattr(block, name) for block in every])
        joined[name] = rows.reshape(len(blocks), -1, *rows.shape[1:])
    bins = np.sum([block.bins for block in every], axis=0)
    return kernels.GibbsOut(bins=bins, **joined)


def _statistics(out: kernels.GibbsOut) -> dict[str, Array]:
    """Per-draw statistics, under CmdStan's names where it has them."""
    return {
        "accept_stat__": out.accept,
        "stepsize__": out.step,
        "n_leapfrog__": out.gradients,
        "divergent__": out.divergent,
        "rejected__": out.rejected,
    }
