"""Parallel tempering with non-reversible swaps (Syed, Bouchard-Côté, Deligiannidis & Doucet 2022).

Each chain is a separate ladder of K rungs, from the base at β = 0 to the target at β = 1. The rung
at β = 0 is redrawn from the base in every scan. In a scan, every rung moves by HMC, and then
neighbours are swapped: even pairs in even scans, odd pairs in odd scans. Warm-up rounds double in
length. Between them, the rungs are moved to equal rejection and step sizes are pooled. `bootstrap`
rounds refit the base. Everything is frozen before the final scans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from stanct import kernels
from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.estimates.ladder import equal_rejection
from stanct.kernels import (
    LadderOut,
    Mover,
    Moves,
    Rungs,
    Scanning,
    StepTable,
    copy_table,
    make_ladder_out,
    make_problem,
    make_rungs,
    make_scratch,
    make_table,
    pool_tables,
)
from stanct.names import MODES
from stanct.path.base import Base
from stanct.runs.ladder import LadderRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._job import Job
from stanct.samplers._method import HmcMethod
from stanct.settings import Flag, Whole
from stanct.targets.protocols import SampledDensity
from stanct.work.execution import Borrow

BLOCK = 50
DOUBLING = (1, 1, 2, 4, 8)
FIRST_RUNGS = 12
# About 2 Λ rungs are best for round trips. A few more make the steps of the evidence smaller.
RUNGS_PER_BARRIER = 2.5
ROUND_DRAWS = 200
# Fewest scans in which the rungs of a resumed ladder leave the place where they all start.
LEAST_SETTLING = 100


@dataclass(frozen=True, kw_only=True)
class ParallelTempering(HmcMethod[LadderRun]):
    """Parallel tempering: each chain is a separate ladder whose neighbours swap places.

    Attributes
    ----------
    rungs
        Number of rungs K; by default one more than 2.5 times the barrier measured in the warm-up,
        from 5 to 65.
    reversible
        Whether to choose even or odd pairs at random instead of in turn. This is slower, and serves
        for comparison.
    bootstrap
        Number of rounds that refit the base to draws at β = 1 before the final ladder.
    transitions
        Number of HMC transitions of each rung in a scan.
    path_length
        Mean length of a trajectory in whitened time; the period of a standard normal is 2π.
    max_steps
        Largest number of leapfrog steps in a trajectory.
    target_accept
        Target acceptance for tuning the step size at every β.

    The base is sampled at β = 0, so a wide base does no harm.
    """

    name: ClassVar[str] = "parallel_tempering"
    default_draws: ClassVar[int] = 2000
    default_warmup: ClassVar[int] = 300

    rungs: Annotated[int | None, Whole(2)] = None
    reversible: Annotated[bool, Flag()] = False
    bootstrap: Annotated[int, Whole(0)] = 0

    def automatic_base(self) -> str:
        """As in `Method`: the mixture of all modes, unless rounds are to refit the base."""
        return self.default_base if self.bootstrap else MODES

    def run(self, job: Job) -> LadderRun:
        """Fit a base, find the ladder, freeze everything, and scan."""
        start = job.start(bootstrap=self.bootstrap, sampled=True)
        ladders = _Ladders.started(job, self, start.base)
        for number in range(self.bootstrap):
            ladders.adapt()
            done = ladders.scanned(f"round {number + 1}", ROUND_DRAWS)
            flat = done.z.reshape(-1, start.base.dimension)
            ladders.rebase(ladders.base.refitted(flat, least_shrinkage=start.least_shrinkage))
        job.lap("bootstrap")
        ladders.adapt()
        job.lap("warmup")
        return self._kept(job, ladders)

    def resume(self, job: Job, run: LadderRun) -> LadderRun:
        """Scan on with the frozen ladder and step sizes.

        A run has the draws of its highest rung alone. All rungs of a ladder start at the last of
        them, and the scans of a warm-up are left out.
        """
        ladders = _Ladders.resumed(job, self, run)
        ladders.scanned("warm-up", max(job.warmup, LEAST_SETTLING))
        ladders.restart()
        job.lap("warmup")
        return self._kept(job, ladders)

    def _kept(self, job: Job, ladders: _Ladders) -> LadderRun:
        """Make the kept scans of frozen ladders."""
        done = ladders.scanned("ladders", job.draws, final=True)
        job.lap("sampling")
        return job.finish(
            LadderRun,
            interrupted=done.interrupted,
            x=ladders.base.unwhiten(done.z),
            z=done.z,
            betas=ladders.betas,
            delta=done.delta,
            rejection=done.rejection,
            counts=done.counts,
            round_trips=done.round_trips,
            base=ladders.base,
            facts={"log_step": ladders.members[0].table.log_step.tolist()},
        )


@dataclass
class _Ladder:
    """The random stream, rung states and step table of one chain, updated in place."""

    rng: np.random.Generator
    rungs: Rungs
    table: StepTable

    @classmethod
    def start(
        cls, density: SampledDensity, base: Base, rungs: int, seed: np.random.SeedSequence
    ) -> _Ladder:
        """A ladder with every rung inside the target's support."""
        rng = lanes.stream(seed)
        z = np.array([lanes.start(density, base, rng).z for _ in range(rungs)])
        return cls(rng, _placed(density, base, z), make_table(base.dimension))

    def place(self, density: SampledDensity, base: Base, z: Array) -> None:
        """Put the rungs at whitened positions, shape (K, D)."""
        self.rungs = _placed(density, base, z)

    def inside(self) -> Array:
        """Positions of the rungs, with a point inside the support for rung 0, shape (K, D)."""
        z = self.rungs.z.copy()
        z[0] = z[1]
        return z


def _placed(density: SampledDensity, base: Base, z: Array) -> Rungs:
    """Rungs at whitened positions, shape (K, D), with values and gradients."""
    rungs = make_rungs(z)  # with clocks at zero, so that no round trip of a warm-up counts
    problem, scratch = make_problem(density, base), make_scratch(base.dimension)
    for k in range(len(z)):
        kernels.evaluate(problem, rungs.z[k], rungs.gradient[k], rungs.value[k], scratch)
    return rungs


@dataclass(frozen=True)
class _Scan:
    """Moves a ladder through a block of scans; it is sent to workers."""

    borrow: Borrow
    base: Base
    betas: Array
    moves: Moves
    transitions: int
    reversible: bool

    def __call__(self, ladder: _Ladder, scans: int) -> LadderOut:
        out = make_ladder_out(scans, self.betas.size, self.base.dimension)
        with self.borrow() as density:
            kernels.ladder_scans(
                make_problem(density, self.base),
                ladder.rungs,
                Scanning(self.betas, self.transitions, self.reversible),
                Mover(self.moves, ladder.table, make_scratch(self.base.dimension)),
                ladder.rng,
                out,
            )
        out.round_trips[0] = ladder.rungs.clock[1]
        return out


@dataclass(frozen=True)
class _Scans:
    """Joined blocks of all ladders, shapes (chains, draws, ...) or (chains, ...)."""

    z: Array
    delta: Array
    rejection: Array
    counts: Array
    round_trips: Array
    interrupted: bool


@dataclass
class _Ladders:
    """All ladders of a job, with the base and the inverse temperatures that they share."""

    job: Job = field(repr=False)
    method: ParallelTempering
    base: Base
    betas: Array
    members: list[_Ladder]

    @classmethod
    def started(cls, job: Job, method: ParallelTempering, base: Base) -> _Ladders:
        """Ladders with every rung inside the target's support."""
        # Denser near the base, where the path of a poorly matching base is steep.
        betas = np.linspace(0, 1, method.rungs or FIRST_RUNGS) ** 2
        members = [
            _Ladder.start(job.density, base, betas.size, job.seeds("ladder", k))
            for k in range(job.chains)
        ]
        return cls(job, method, base, betas, members)

    @classmethod
    def resumed(cls, job: Job, method: ParallelTempering, run: LadderRun) -> _Ladders:
        """Ladders with all rungs at the last draw at β = 1, and the step sizes of a run."""
        table, rungs = lanes.frozen_table(run), run.betas.size
        members = [
            _Ladder(
                job.seeds.stream("ladder", k),
                _placed(job.density, run.base, np.tile(run.z[k, -1], (rungs, 1))),
                copy_table(table),
            )
            for k in range(job.chains)
        ]
        return cls(job, method, run.base, run.betas, members)

    def restart(self) -> None:
        """Set the clocks of all ladders to zero."""
        for member in self.members:
            member.place(self.job.density, self.base, member.inside())

    def rebase(self, base: Base) -> None:
        """Keep the position x of every rung, and express it in the coordinates of a new base."""
        for member in self.members:
            x = self.base.unwhiten(member.inside())
            member.place(self.job.density, base, base.whiten(x))
        self.base = base

    def adapt(self) -> None:
        """Warm up in rounds of doubling length, and leave a frozen ladder."""
        method, job = self.method, self.job
        for share in DOUBLING:
            done = self.scanned("warm-up", max(job.warmup * share // sum(DOUBLING), 2), learn=True)
            rejection = done.rejection.mean(axis=0)
            if not np.isfinite(rejection).all():
                raise SamplingError(
                    "No swap of two rungs could be tried: the target vanishes, or is rejected, "
                    "at all draws of the warm-up.",
                    remedy="Pass a base that overlaps the target's support.",
                )
            wanted = int(np.clip(np.ceil(RUNGS_PER_BARRIER * rejection.sum()), 4, 64))
            count = method.rungs or wanted
            new, _ = equal_rejection(self.betas, rejection, count + (method.rungs is None))
            nearest = np.abs(new[:, None] - self.betas).argmin(axis=1)
            pooled = pool_tables([member.table for member in self.members])
            for member in self.members:
                member.table = copy_table(pooled)
                member.place(job.density, self.base, member.inside()[nearest])
            self.betas = new

    def scanned(
        self, label: str, scans: int, *, learn: bool = False, final: bool = False
    ) -> _Scans:
        """Scan every ladder, in blocks."""
        method = self.method
        work = _Scan(
            self.job.borrow,
            self.base,
            self.betas,
            method.moves(learn=learn),
            method.transitions,
            method.reversible,
        )
        sizes = lanes.block_sizes(scans, BLOCK)
        blocks, interrupted = self.job.blocks(
            label, work, self.members, sizes, unit="scan", final=final
        )
        spent = sum(block.gradients.sum() for chain in blocks for block in chain)
        self.job.ledger.gradients += int(spent)
        tries = np.array([np.sum([block.rejection for block in chain], axis=0) for chain in blocks])
        counts = [np.sum([block.counts for block in chain], axis=0) for chain in blocks]
        return _Scans(
            z=np.stack([np.concatenate([block.z for block in chain]) for chain in blocks]),
            delta=np.stack([np.concatenate([block.delta for block in chain]) for chain in blocks]),
            rejection=tries[:, 1] / np.maximum(tries[:, 0], 1),
            counts=np.array(counts),
            round_trips=np.array([chain[-1].round_trips[0] for chain in blocks]),
            interrupted=interrupted,
        )
