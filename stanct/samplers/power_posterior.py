"""The power posteriors p(θ) p(y | θ)^β from the prior to the posterior, each sampled by NUTS.

This is thermodynamic integration as Friel & Pettitt (2008) introduced it, and stepping-stone
sampling (Xie et al. 2011) with bridges in place of stones. The schedule is β_k = (k / (K − 1))^c.
The chains at β = 1 start at draws of the fitted base, and those at every smaller β where the chains
of the next larger one ended. Chains of different β do not swap places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from stanct.arrays import Array
from stanct.engines import embedded
from stanct.engines.embedded import Recipe
from stanct.errors import SamplingError
from stanct.runs.power import PowerRun
from stanct.samplers._job import Job, Plan
from stanct.samplers._method import Method
from stanct.seeds import stan_seed
from stanct.settings import Ladder, Real, Whole
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget, make_density


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

    rungs: Annotated[int | tuple[float, ...], Ladder(3)] = 25
    exponent: Annotated[float, Real(0)] = 5.0
    target_accept: Annotated[float, Real(0, 1)] = 0.8
    max_depth: Annotated[int, Whole(1)] = 10

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
        start = job.start()
        target = job.target
        assert isinstance(target, ProgramTarget)
        base = start.base
        parts = _Parts.of(target)
        rungs: list[_Rung] = []
        places = base.unwhiten(job.places(base))
        count = self.betas.size
        with job.bar(job.chains * count * job.draws, self.name) as bar:
            for k in range(count - 1, -1, -1):
                rung = job.once(f"power {k}", self._work(job, parts, places, k))
                job.ledger.gradients += rung.gradients
                rungs.append(rung)
                places = rung.x[:, -1]
                bar.update(job.chains * job.draws)
        rungs.reverse()
        job.lap("sampling")
        ends = [parts.log_prior(rungs[end].x) for end in (0, -1)]
        job.ledger.evaluations += sum(2 * rung.delta.size for rung in rungs)
        x = rungs[-1].x
        return job.finish(
            PowerRun,
            interrupted=False,
            x=x,
            z=base.whiten(x),
            betas=self.betas,
            delta=np.stack([rung.delta for rung in rungs], axis=-1),
            log_prior=np.stack(ends, axis=-1),
            divergent=np.stack([rung.divergent for rung in rungs], axis=-1),
            lost=np.stack([rung.lost for rung in rungs], axis=-1),
            base=base,
            programs={**target.programs, "weighted": target.code("weighted")},
        )

    def _work(self, job: Job, parts: _Parts, places: Array, k: int) -> Any:
        beta = float(self.betas[k])

        def work() -> _Rung:
            rng = job.seeds.stream("unconstrained", k)
            # The chains of a power are threads of one worker: they share the engine's streams.
            chains = partial(
                embedded.run_nuts,
                parts.recipe(beta),
                places,
                seed=stan_seed(job.seeds("power", k)),
                warmup=job.warmup,
                draws=job.draws,
                nuts=job.nuts(target_accept=self.target_accept, max_depth=self.max_depth),
            )
            block, gradients = job.execution.away(f"power {k}", chains)
            kept = [
                _whole(parts.target.unconstrain(block, chain, rng), job.draws, places[chain])
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


def _whole(points: Array, draws: int, start: Array) -> tuple[Array, float]:
    """A chain of so many draws, shape (draws, D), and the share that had to be repeated."""
    lost = 1 - len(points) / draws
    if not lost:
        return points, 0.0
    kept = points if len(points) else start[None]
    return kept[np.minimum(np.arange(draws), len(kept) - 1)], lost


@dataclass(frozen=True)
class _Parts:
    """Prior and likelihood of a program with its data.

    Attributes
    ----------
    prior, posterior
        log p, and log p + log L, both with the Jacobian of the transform.
    whole
        The program that computes log p in the user's own space.
    """

    target: ProgramTarget
    prior: Density = field(repr=False)
    posterior: Density = field(repr=False)
    whole: Density = field(repr=False)

    @classmethod
    def of(cls, target: ProgramTarget) -> _Parts:
        """Compile the programs."""
        prior, posterior = (
            make_density(_recipe(target, beta), target.program, target.data) for beta in (0.0, 1.0)
        )
        names = {"K": 2, "bias_beta": [0.0, 1.0], "bias": [0.0, 0.0]}
        data = target.data.extended({target.prefix + name: v for name, v in names.items()})
        code = target.code("prior_likelihood")
        whole = make_density(Recipe(code, data), target.program, target.data)
        return cls(target, prior, posterior, whole)

    def recipe(self, beta: float) -> Recipe:
        """The program at one β."""
        return _recipe(self.target, beta)

    def log_likelihood(self, x: Array) -> Array:
        """log L at unconstrained points, shape (chains, draws, D); −inf where it is not finite."""
        flat = x.reshape(-1, x.shape[-1])
        found = self.posterior.log_densities(flat) - self.prior.log_densities(flat)
        return np.where(np.isfinite(found), found, -np.inf).reshape(x.shape[:-1])

    def log_prior(self, x: Array) -> Array:
        """log p in the user's own space, shape (chains, draws)."""
        points = np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1)
        return self.whole.variables(points, seed=1)[f"{self.target.prefix}log_prior"]


def _recipe(target: ProgramTarget, beta: float) -> Recipe:
    weight = {f"{target.prefix}weight": beta}
    return Recipe(target.code("weighted"), target.data.extended(weight))
