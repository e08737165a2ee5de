"""Parallel tempering with non-reversible swaps (Syed, Bouchard-Côté, Deligiannidis & Doucet 2022).

Each chain is a separate ladder of K rungs, from the base at β = 0 to the target at β = 1. The rung
at β = 0 is redrawn from the base in every scan. In a scan, every rung moves by HMC, and then
neighbours are swapped: even pairs in even scans, odd pairs in odd scans. Warm-up rounds double in
length. Between them, the rungs are moved to equal rejection and step sizes are pooled. `bootstrap`
rounds refit the base. Everything is frozen before the final scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.names import MODES
from stanct.common.settings import Flag, Ladder, Whole
from stanct.estimates.ladder import equal_rejection
from stanct.path.base import Base
from stanct.runs.ladder import LadderRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._job import Job
from stanct.samplers._looks import until_precise
from stanct.samplers._method import HmcMethod
from stanct.targets.protocols import SampledDensity
from stanct.work.execution import Borrow
from stanct.work.progress import Bar

BLOCK = 50
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
        from 5 to 65. Or the inverse temperatures of the rungs, from 0 to 1, which then stay.
    reversible
        Whether to choose even or odd pairs at random instead of in turn. This is slower, and serves
        for comparison.
    bootstrap
        Number of rounds that refit the base to draws at β = 1 before the final ladder.
    transitions
        Number of HMC transitions of each rung in a scan.
    path_length, max_steps, target_accept
        As in `AIS`.

    The base is sampled at β = 0, so a wide base does no harm.
    """

    name: ClassVar[str] = "parallel_tempering"
    default_draws: ClassVar[int] = 2000
    default_warmup: ClassVar[int] = 300
    aims: ClassVar[bool] = True
    loops: ClassVar[tuple[str, ...]] = "evaluate", "ladder_scans"

    rungs: Annotated[int | tuple[float, ...] | None, Ladder(2)] = None
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
        ladders.rebase(ladders.base)
        job.lap("warmup")
        return self._kept(job, ladders)

    def _kept(self, job: Job, ladders: _Ladders) -> LadderRun:
        """Make the kept scans of frozen ladders."""
        precision = job.precision
        looks: list[_Scans] = []

        def fields() -> dict[str, Any]:
            done = _Scans.joined(looks)
            return {
                "z": done.z,
                "betas": ladders.betas,
                "delta": done.delta,
                "rejection": done.rejection,
                "counts": done.counts,
                "round_trips": done.round_trips,
                "base": ladders.base,
            }

        def make(scans: int, bar: Bar) -> bool:
            looks.append(ladders.scanned("ladders", scans, final=True, bar=bar))
            return looks[-1].interrupted

        found, early = until_precise(
            job, precision, make, LadderRun, fields, "ladders", unit="scan"
        )
        return job.finish(
            LadderRun,
            interrupted=early,
            x=ladders.base.unwhiten(found["z"]),
            **found,
            facts={
                "stopping": precision.record(),
                "log_step": ladders.members[0].table.log_step.tolist(),
            },
        )


@dataclass
class _Ladder:
    """The random stream, rung states and step table of one chain, updated in place."""

    rng: np.random.Generator
    rungs: kernels.Rungs
    table: kernels.StepTable

    @classmethod
    def start(
        cls, density: SampledDensity, base: Base, rungs: int, seed: np.random.SeedSequence
    ) -> _Ladder:
        """A ladder with every rung inside the target's support."""
        rng = lanes.stream(seed)
        z = np.array([lanes.start(density, base, rng).z for _ in range(rungs)])
        return cls(rng, _placed(density, base, z), kernels.make_table(base.dimension))

    def inside(self) -> Array:
        """Positions of the rungs, with a point inside the support for rung 0, shape (K, D)."""
        z = self.rungs.z.copy()
        z[0] = z[1]
        return z


def _placed(density: SampledDensity, base: Base, z: Array) -> kernels.Rungs:
    """Rungs at whitened positions, shape (K, D), with values and gradients."""
    rungs = kernels.make_rungs(z)  # with clocks at zero, so that no round trip of a warm-up counts
    problem, scratch = kernels.make_problem(density, base), kernels.make_scratch(base.dimension)
    for k in range(len(z)):
        kernels.evaluate(problem, rungs.z[k], rungs.gradient[k], rungs.value[k], scratch)
    return rungs


@dataclass(frozen=True)
class _Scan:
    """Moves a ladder through a block of scans; it is sent to workers."""

    borrow: Borrow
    base: Base
    betas: Array
    moves: kernels.Moves
    transitions: int
    reversible: bool

    def __call__(self, ladder: _Ladder, scans: int) -> kernels.LadderOut:
        out = kernels.make_ladder_out(scans, self.betas.size, self.base.dimension)
        with self.borrow() as density:
            kernels.ladder_scans(
                kernels.make_problem(density, self.base),
                ladder.rungs,
                kernels.Scanning(self.betas, self.transitions, self.reversible),
                kernels.Mover(self.moves, ladder.table, kernels.make_scratch(self.base.dimension)),
                ladder.rng,
                out,
            )
        out.round_trips[0] = ladder.rungs.clock[1]
        return out


@dataclass(frozen=True)
class _Scans:
    """Joined blocks of all ladders, shapes (chains, draws, ...) or (chains, ...).

    `tries`, shape (chains, 2, K − 1), has attempted swaps and the sum of their rejections.
    """

    z: Array
    delta: Array
    tries: Array
    counts: Array
    round_trips: Array
    interrupted: bool

    @property
    def rejection(self) -> Array:
        """Mean rejection probability of each pair, shape (chains, K − 1)."""
        return self.tries[:, 1] / np.maximum(self.tries[:, 0], 1)

    @classmethod
    def joined(cls, looks: Sequence[_Scans]) -> _Scans:
        """Join successive scans of the same frozen ladders."""
        z, delta = (
            np.concatenate([getattr(look, name) for look in looks], axis=1)
            for name in ("z", "delta")
        )
        tries = np.sum([look.tries for look in looks], axis=0)
        counts = np.sum([look.counts for look in looks], axis=0)
        return cls(z, delta, tries, counts, looks[-1].round_trips, looks[-1].interrupted)


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
        own = method.rungs
        if isinstance(own, tuple):
            betas = np.array(own)
        else:
            betas = np.linspace(0, 1, own or FIRST_RUNGS) ** 2
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
                kernels.copy_table(table),
            )
            for k in range(job.chains)
        ]
        return cls(job, method, run.base, run.betas, members)

    def rebase(self, base: Base) -> None:
        """Keep x of every rung in the coordinates of a new base, with all clocks at zero."""
        for member in self.members:
            z = member.inside()
            z = z if base is self.base else base.whiten(self.base.unwhiten(z))
            member.rungs = _placed(self.job.density, base, z)
        self.base = base

    def adapt(self) -> None:
        """Warm up in rounds of doubling length, and leave a frozen ladder."""
        job = self.job
        for size in lanes.doubling(job.warmup):
            done = self.scanned("warm-up", size, learn=True)
            rejection = done.rejection.mean(axis=0)
            if not np.isfinite(rejection).all():
                raise SamplingError(
                    "No swap of two rungs could be tried: the target vanishes, or is rejected, "
                    "at all draws of the warm-up.",
                    remedy="Pass a base that overlaps the target's support.",
                )
            new = self._adapted(rejection)
            nearest = np.abs(new[:, None] - self.betas).argmin(axis=1)
            lanes.pool(self.members)
            for member in self.members:
                member.rungs = _placed(job.density, self.base, member.inside()[nearest])
            self.betas = new

    def _adapted(self, rejection: Array) -> Array:
        """Rungs of equal rejection, or the user's."""
        rungs = self.method.rungs
        if isinstance(rungs, tuple):
            return self.betas
        wanted = int(np.clip(np.ceil(RUNGS_PER_BARRIER * rejection.sum()), 4, 64))
        return equal_rejection(self.betas, rejection, rungs or wanted + 1)[0]

    def scanned(
        self,
        label: str,
        scans: int,
        *,
        learn: bool = False,
        final: bool = False,
        bar: Bar | None = None,
    ) -> _Scans:
        """Scan every ladder, in blocks."""
        method, moves = self.method, self.method.moves(learn=learn)
        transitions, reversible = method.transitions, method.reversible
        work = _Scan(self.job.borrow, self.base, self.betas, moves, transitions, reversible)
        sizes = lanes.block_sizes(scans, BLOCK)
        blocks, interrupted = self.job.blocks(
            label, work, self.members, sizes, unit="scan", final=final, bar=bar
        )
        spent = sum(block.gradients.sum() for chain in blocks for block in chain)
        self.job.ledger.gradients += int(spent)
        tries = np.array([np.sum([block.rejection for block in chain], axis=0) for chain in blocks])
        counts = [np.sum([block.counts for block in chain], axis=0) for chain in blocks]
        return _Scans(
            z=np.stack([np.concatenate([block.z for block in chain]) for chain in blocks]),
            delta=np.stack([np.concatenate([block.delta for block in chain]) for chain in blocks]),
            tries=tries,
            counts=np.array(counts),
            round_trips=np.array([chain[-1].round_trips[0] for chain in blocks]),
            interrupted=interrupted,
        )
