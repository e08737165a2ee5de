"""The power posteriors p(θ) p(y | θ)^β from the prior to the posterior, each sampled by NUTS.

This is thermodynamic integration as Friel & Pettitt (2008) introduced it, and stepping-stone
sampling (Xie et al. 2011) with bridges in place of stones. The schedule is β_k = (k / (K − 1))^c.
The chains at β = 1 start at draws of the fitted base, and those at every smaller β where the chains
of the next larger one ended. Chains of different β do not swap places. With a `target_se`, further
passes through all powers go on from where each chain ended, after a warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.seeds import stan_seed
from stanct.common.settings import MOST_COUNTED, Ladder, Real, Whole
from stanct.engines import embedded
from stanct.engines.embedded import Recipe
from stanct.estimates.ladder import LadderEstimator
from stanct.path.base import Base
from stanct.path.coupled import CoupledBias
from stanct.runs.power import PowerRun
from stanct.samplers._job import Job, Plan
from stanct.samplers._lanes import whole_chain
from stanct.samplers._looks import until_precise
from stanct.samplers._method import Method, refuse_other_densities
from stanct.stan.prior_mass import corrections, measuring
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget, make_density
from stanct.targets.recipes import prior_likelihood_recipe, recipe
from stanct.work.progress import Bar

PILOT_DRAWS = 100
# Draws of each chain in the first of several passes, and the least growth of all draws with a
# further one: every pass warms up again.
FIRST_PASS, LEAST_GROWTH = 400, 1.5


@dataclass(frozen=True, kw_only=True)
class PowerPosterior(Method[PowerRun]):
    """Thermodynamic integration from the prior: NUTS at every power of the likelihood.

    Attributes
    ----------
    rungs
        Number of powers K, with the prior and the posterior, or the powers themselves, from 0 to 1.
    exponent
        c. The larger it is, the more powers are near the prior, where log z(β) is steep.
    target_accept
        Target acceptance statistic for tuning the step size.
    max_depth
        Largest depth of a NUTS tree.
    """

    name: ClassVar[str] = "power_posterior"
    default_draws: ClassVar[int] = 500
    default_warmup: ClassVar[int] = 300
    least_warmup: ClassVar[int] = 150
    aims: ClassVar[bool] = True

    rungs: Annotated[int | tuple[float, ...], Ladder(3)] = 25
    exponent: Annotated[float, Real(0)] = 5.0
    target_accept: Annotated[float, Real(0, 1)] = 0.8
    max_depth: Annotated[int, Whole(1, MOST_COUNTED)] = 10

    @property
    def from_prior(self) -> bool:
        return True

    @property
    def betas(self) -> Array:
        """The schedule, shape (K,)."""
        if isinstance(self.rungs, tuple):
            return np.array(self.rungs)
        return np.linspace(0, 1, self.rungs) ** self.exponent

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse targets whose prior and likelihood cannot be told apart."""
        if not isinstance(target, ProgramTarget):
            raise SamplingError(
                "The power posterior needs a Stan program with a prior and a likelihood, and this "
                "target has none.",
                remedy="Use method 'parallel_tempering', which starts from a base.",
            )
        target.code("prior_likelihood")

    def run(self, job: Job) -> PowerRun:
        """Fit a base, and run the chains of every power, from the posterior to the prior."""
        base = job.start().base
        parts = PriorAndLikelihood.of(job.target)
        return self._kept(job, base, parts, base.unwhiten(job.places(base)))

    def pilot(self, job: Job, base: Base) -> tuple[Array, list[Array]]:
        """log z at the powers of the schedule by short chains, shape (K,), and their last x."""
        parts = PriorAndLikelihood.of(job.target)
        short = replace(job, plan=replace(job.plan, warmup=self.least_warmup))
        start_at = base.unwhiten(job.places(base))
        with job.bar(job.chains * self.betas.size * PILOT_DRAWS, "pilot") as bar:
            rungs = self._pass(short, parts, 1, PILOT_DRAWS, start_at, bar=bar)
        ladder = LadderEstimator(self.betas, np.stack([rung.delta for rung in rungs], axis=-1))
        return ladder.curve().log_z, [rung.x[:, -1] for rung in rungs]

    def resume(self, job: Job, run: PowerRun) -> PowerRun:
        """Run the chains of every power again, with a warm-up of their own.

        A run has the draws of the posterior alone. The chains at β = 1 start at the last of them.
        """
        parts = PriorAndLikelihood.of(job.target)
        last = run.base.unwhiten(run.z[:, -1])
        refuse_other_densities(-parts.log_likelihood(last), run.delta[:, -1, -1])
        return self._kept(job, run.base, parts, last)

    def _kept(self, job: Job, base: Base, parts: PriorAndLikelihood, start_at: Array) -> PowerRun:
        """Run the chains of every power, which at β = 1 start at points of shape (chains, D)."""
        # Every look costs a pass with a warm-up.
        precision = replace(job.precision, begin=FIRST_PASS, growth=LEAST_GROWTH)
        passes: list[list[_Rung]] = []

        def fields() -> dict[str, Any]:
            rungs = [_Rung.joined(one) for one in zip(*passes, strict=True)]
            ends = [parts.log_prior(rungs[end].x) for end in (0, -1)]
            return {
                "z": base.whiten(rungs[-1].x),
                "betas": self.betas,
                "delta": np.stack([rung.delta for rung in rungs], axis=-1),
                "log_prior": np.stack(ends, axis=-1),
                "divergent": np.stack([rung.divergent for rung in rungs], axis=-1),
                "lost": np.stack([rung.lost for rung in rungs], axis=-1),
                "base": base,
            }

        def make(draws: int, bar: Bar) -> bool:
            before = passes[-1] if passes else start_at
            done = self._pass(job, parts, len(passes), draws, before, bar=bar)
            passes.append(done)
            return False

        found, early = until_precise(
            job, precision, make, PowerRun, fields, self.name, each=self.betas.size
        )
        job.ledger.evaluations += sum(2 * rung.delta.size for one in passes for rung in one)
        return job.finish(
            PowerRun,
            interrupted=early,
            x=np.concatenate([one[-1].x for one in passes], axis=1),
            **found,
            programs={**parts.target.programs, "weighted": parts.target.code("weighted")},
            facts={"stopping": precision.record(), "log_prior_mass": parts.log_prior_mass()},
        )

    def _pass(
        self,
        job: Job,
        parts: PriorAndLikelihood,
        number: int,
        draws: int,
        before: list[_Rung] | Array,
        *,
        bar: Bar,
    ) -> list[_Rung]:
        """The chains of every power, from the posterior to the prior; the prior comes first.

        They go on from the pass `before`, or in the first one from where those at β = 1 begin.
        """
        rungs: list[_Rung] = []
        places = before if isinstance(before, np.ndarray) else before[-1].x[:, -1]
        for k in range(self.betas.size - 1, -1, -1):
            name = (k,) if number == 0 else (k, number)
            label = f"power {k}" if number == 0 else f"power {k}, pass {number + 1}"
            if not isinstance(before, np.ndarray):
                places = before[k].x[:, -1]
            rung = job.once(label, self._work(job, parts, places, draws, name))
            job.ledger.gradients += rung.gradients
            rungs.append(rung)
            places = rung.x[:, -1]
            bar.update(job.chains * draws)
        rungs.reverse()
        return rungs

    def _work(
        self, job: Job, parts: PriorAndLikelihood, places: Array, draws: int, name: tuple[int, ...]
    ) -> Any:
        """What makes the draws of the power whose number is the first part of the name."""
        beta = float(self.betas[name[0]])

        def work() -> _Rung:
            rng = job.seeds.stream("unconstrained", *name)
            # The chains of a power are threads of one worker: they share the engine's streams.
            chains = partial(
                embedded.run_nuts,
                parts.recipe(beta),
                places,
                seed=stan_seed(job.seeds("power", *name)),
                warmup=job.warmup,
                draws=draws,
                nuts=job.nuts(target_accept=self.target_accept, max_depth=self.max_depth),
            )
            block, gradients = job.execution.away(f"power {name[0]}", chains)
            kept = [
                whole_chain(parts.target.unconstrain(block, chain, rng), draws, places[chain])
                for chain in range(job.chains)
            ]
            x = np.stack([points for points, _ in kept])
            return _Rung(
                x,
                -parts.log_likelihood(x),
                (block.statistics["divergent__"] > 0).mean(axis=1),
                np.array([lost for _, lost in kept]),
                gradients,
            )

        return work


@dataclass(frozen=True)
class _Rung:
    """Draws at one β: x of shape (chains, draws, D), −log L, and shares of events by chain."""

    x: Array
    delta: Array
    divergent: Array
    lost: Array
    gradients: int

    @classmethod
    def joined(cls, passes: Sequence[_Rung]) -> _Rung:
        """The draws of successive passes at one β."""
        if len(passes) == 1:
            return passes[0]
        sizes = [rung.delta.shape[1] for rung in passes]
        divergent, lost = (
            np.average([getattr(rung, name) for rung in passes], axis=0, weights=sizes)
            for name in ("divergent", "lost")
        )
        x = np.concatenate([rung.x for rung in passes], axis=1)
        delta = np.concatenate([rung.delta for rung in passes], axis=1)
        return cls(x, delta, divergent, lost, sum(rung.gradients for rung in passes))


@dataclass(frozen=True)
class PriorAndLikelihood:
    """Prior and likelihood of a program with its data.

    `prior` and `posterior` are log p, and log p + log L, with the Jacobian of the transform, and
    `whole` computes log p in the user's own space.
    """

    target: ProgramTarget
    prior: Density = field(repr=False)
    posterior: Density = field(repr=False)
    whole: Density = field(repr=False)

    @classmethod
    def of(cls, target: Any) -> PriorAndLikelihood:
        """Compile the programs of a `ProgramTarget`; see `PowerPosterior.check`."""
        assert isinstance(target, ProgramTarget)
        prior, posterior = (
            make_density(recipe(target, "weighted", weight=beta), target.program, target.data)
            for beta in (0.0, 1.0)
        )
        bias = CoupledBias.on_path(np.arange(2.0), np.zeros(2))
        path = prior_likelihood_recipe(target, bias, summed=True)
        whole = make_density(path, target.program, target.data)
        return cls(target, prior, posterior, whole)

    def recipe(self, beta: float) -> Recipe:
        """The program at one β."""
        return recipe(self.target, "weighted", weight=beta)

    def log_likelihood(self, x: Array) -> Array:
        """log L at unconstrained points, shape (chains, draws, D); −inf where it is not finite."""
        flat = x.reshape(-1, x.shape[-1])
        found = self.posterior.log_densities(flat) - self.prior.log_densities(flat)
        return np.where(np.isfinite(found), found, -np.inf).reshape(x.shape[:-1])

    def log_prior_mass(self) -> float | None:
        """log ∫ p(θ) dθ; None if the program's statements do not tell it."""
        program = self.target.program
        found = corrections(program)
        if not found:
            return None if found is None else 0.0
        try:
            density = Density(Recipe(measuring(program, found), self.target.data.text))
        except (ValueError, RuntimeError):
            return None
        mass = -density.log_density(np.zeros(density.dimension))
        return mass if np.isfinite(mass) else None

    def log_prior(self, x: Array) -> Array:
        """log p in the user's own space, shape (chains, draws)."""
        points = np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1)
        return self.whole.variables(points, seed=1)[f"{self.target.prefix}log_prior"]
