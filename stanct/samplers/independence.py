"""Joint continuous tempering by independent draws of a base that nearly is the target.

The proposals of x are independent draws of the base q. Where β > 0, they are accepted by
Metropolis–Hastings (Hastings 1970; Tierney 1994, section 2.3.3) under the marginal ∝ q(x) M(x),
with probability min(1, M(x′) / M(x)). At the atom, β = 0, every proposal is accepted. β is drawn
exactly given x ([GS] 17). M costs one log density and no gradient. Where the curvature at every
mode gives the base, most proposals are accepted, and the draws are nearly independent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from stanct.arrays import Array
from stanct.deadline import ended_by
from stanct.names import MODES
from stanct.path.base import Base
from stanct.path.bias import ATOM, Bias
from stanct.path.course import Course, beta_grid
from stanct.runs.tempered import TemperedRun
from stanct.samplers import _lanes as lanes
from stanct.samplers._forecast import Clock, Trial, foretell
from stanct.samplers._job import Job
from stanct.samplers._method import Method
from stanct.samplers._watch import Watch
from stanct.settings import Real, Whole
from stanct.work.execution import Borrow

BLOCK = 500


class Proposals(NamedTuple):
    """Independent draws of the base, and what decides about them.

    Attributes
    ----------
    z : shape (draws, D)
    delta : shape (draws,)
    uniforms : shape (draws, 3)
        One for acceptance, and two for β.
    """

    z: Array
    delta: Array
    uniforms: Array


@dataclass(frozen=True)
class _Propose:
    """Draws proposals of one chain; it is sent to workers."""

    borrow: Borrow
    base: Base

    def __call__(self, rng: np.random.Generator, draws: int) -> Proposals:
        z = self.base.draw(rng, draws)
        uniforms = rng.random((draws, 3))
        with self.borrow() as density:
            delta = self.base.delta(z, density.log_densities(self.base.unwhiten(z)))
        return Proposals(z, delta, uniforms)


@dataclass(frozen=True, kw_only=True)
class Independence(Method[TemperedRun]):
    """Joint continuous tempering by independent proposals from the base.

    Attributes
    ----------
    trial
        Draws of the base from which the bias is learned.
    atom
        p₀, the share of the draws at which β = 0 exactly, as in `Joint`.

    A method without gradients, for bases that nearly are the target. Where the base misses part of
    the target, few proposals are accepted there, and the checks say so.
    """

    name: ClassVar[str] = "independence"
    default_draws: ClassVar[int] = 2500
    default_warmup: ClassVar[int] = 0
    default_base: ClassVar[str] = MODES
    aims: ClassVar[bool] = True

    trial: Annotated[int, Whole(100)] = 1000
    atom: Annotated[float, Real(0, 0.9, closed=True)] = ATOM

    def run(self, job: Job) -> TemperedRun:
        """Fit a base, learn the bias from draws of it, and draw."""
        start = job.start(sampled=True)
        base = start.base
        trial = job.base_delta(base, self.trial, "trial")
        grid = beta_grid(101)
        bias = replace(Course.weighted(grid, np.zeros(trial.size), trial).bias(), atom=self.atom)
        job.lap("bias")
        return self._kept(job, base, bias, [[] for _ in range(job.chains)])

    def resume(self, job: Job, run: TemperedRun) -> TemperedRun:
        """Move the chains on from their last draws."""
        assert isinstance(run.bias, Bias)
        # The first uniform accepts the last draw, the second says whether it is at the atom.
        moved = np.where(run.beta[:, -1] > 0, 1 - 1e-12, 0.0)
        last = [
            [Proposals(run.z[k, -1:], run.delta[k, -1:], np.array([[0.0, moved[k], 0.5]]))]
            for k in range(job.chains)
        ]
        return self._kept(job, run.base, run.bias, last)

    def _kept(self, job: Job, base: Base, bias: Bias, before: list[list[Proposals]]) -> TemperedRun:
        """Make the kept draws; chains begin at the draws `before`, or at their first proposals."""
        streams = [job.seeds.stream("chain", k) for k in range(job.chains)]
        first = sum(len(block.delta) for block in before[0])
        base_draws, precision = job.base_draws(base, "final"), job.precision
        base_draws.begin(job.execution)
        work = _Propose(job.borrow, base)
        done, drawn = before, None
        ahead, interrupted = precision.first, False
        with job.bar(job.chains * ahead, job.method) as bar:
            watch = Watch(base_draws, 1, bias, precision, bar)
            clock, told = Clock(), False

            def seen(latest: list[list[Proposals]]) -> None:
                nonlocal told
                if not told and all(latest):
                    told = True
                    begun = [[*a, *b[:1]] for a, b in zip(before, latest, strict=True)]
                    _, beta, delta, _ = (a[:, first:] for a in _chains(begun, bias))
                    made, calls = beta.shape[1], sum(len(b.delta) for c in latest for b in c)
                    share = beta.size / calls  # some chains may be ahead of the others
                    trial = Trial(
                        f"{made} draws", made, beta.size, share * clock.seconds,
                        beside=1, kept=made, valued=True,
                    )  # fmt: skip
                    foretell(job, precision, base, trial, lambda: watch.error(beta, delta))

            try:
                while ahead:
                    sizes = lanes.block_sizes(ahead, BLOCK)
                    blocks, interrupted = job.blocks(
                        job.method, work, streams, sizes, final=True, bar=bar, seen=seen
                    )
                    done = [[*a, *b] for a, b in zip(done, blocks, strict=True)]
                    drawn = [a[:, first:] for a in _chains(done, bias)]
                    ahead = 0 if interrupted else watch.more(*drawn[:3])
            except KeyboardInterrupt:
                if drawn is None:
                    raise
                job.execution.seal()
                interrupted = True
        assert drawn is not None
        z, beta, delta, accepted = drawn
        if interrupted:
            precision.reason = ended_by()
        job.ledger.evaluations += delta.size
        base_delta, cut = base_draws.kept(delta.size, job.execution, cut=interrupted)
        job.ledger.evaluations += base_delta.size
        job.lap("sampling")
        return job.finish(
            TemperedRun,
            interrupted=cut,
            x=base.unwhiten(z),
            z=z,
            beta=beta,
            delta=delta,
            base_delta=base_delta,
            base=base,
            bias=bias,
            statistics={"accept_stat__": accepted, "divergent__": np.zeros(beta.shape)},
            facts={"stopping": precision.record()},
        )


def _chains(done: list[list[Proposals]], bias: Bias) -> tuple[Array, Array, Array, Array]:
    """Accept or reject the proposals of every chain: z, β, δ and acceptance probabilities."""
    chains = [Proposals(*map(np.concatenate, zip(*blocks, strict=True))) for blocks in done]
    rows, betas, accepted = [], [], []
    for chain in chains:
        kept, probability = _accepted(chain, bias)
        delta = chain.delta[kept]
        betas.append(bias.sample_beta(delta, chain.uniforms[:, 1:].T))
        rows.append(kept)
        accepted.append(probability)
    z, delta = (
        np.stack([getattr(chain, name)[kept] for chain, kept in zip(chains, rows, strict=True)])
        for name in ("z", "delta")
    )
    return z, np.stack(betas), delta, np.stack(accepted)


def _accepted(chain: Proposals, bias: Bias) -> tuple[Array, Array]:
    """Which proposal each draw is, and the acceptance probabilities, both of shape (draws,).

    The chain begins at its first proposal inside the target's support.
    """
    log_mass = replace(bias, atom=0.0).log_mass(chain.delta)
    now, at_atom = int(np.argmax(np.isfinite(log_mass))), False
    kept, probability = np.empty(log_mass.size, int), np.ones(log_mass.size)
    shares = bias.atom_shares(chain.delta)
    for n in range(log_mass.size):
        if not at_atom:
            ratio = log_mass[n] - log_mass[now] if log_mass[n] > -np.inf else -np.inf
            probability[n] = np.exp(min(0.0, ratio))
        if chain.uniforms[n, 0] < probability[n]:
            now = n
        kept[n] = now
        # The same uniform then puts β there, see `Bias.sample_beta`.
        at_atom = chain.uniforms[n, 1] < shares[now]
    return kept, probability
