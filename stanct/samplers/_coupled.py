"""NUTS on generated programs without a base: the path from the prior, and extended Hamiltonians.

CmdStan or the embedded engine runs the program itself. Rounds learn the bias from the weights of
their draws, and the kept draws are made under a frozen one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import expit

from stanct.common.arrays import Array, joined_rows
from stanct.common.seeds import stan_seed
from stanct.engines import embedded
from stanct.engines.embedded import DrawBlock, Nuts, Recipe
from stanct.path.base import Base
from stanct.path.coupled import CoupledBias
from stanct.path.gaussian import GaussianBase, standard_log_density
from stanct.runs.coupled import CoupledRun
from stanct.samplers._job import Job
from stanct.samplers._lanes import whole_chain
from stanct.samplers._looks import until_precise
from stanct.samplers._nuts import control_of, generated
from stanct.samplers.power_posterior import PowerPosterior, PriorAndLikelihood
from stanct.targets.program_target import ProgramTarget
from stanct.targets.recipes import extended_hamiltonian_recipe, prior_likelihood_recipe
from stanct.work.progress import Bar

ROUND_WARMUP, ROUND_DRAWS = 300, 500


@dataclass(frozen=True)
class Places:
    """Where chains are: unconstrained x, shape (chains, D), and the control u of t, (chains,)."""

    x: Array
    u: Array


class CoupledProgram(ABC):
    """A generated program whose tempering variable t sets β(t), for one target and base."""

    kind: str

    def __init__(self, target: ProgramTarget, base: GaussianBase) -> None:
        self.target = target
        self.base = base

    @classmethod
    def of(cls, job: Job, base: Base) -> Self:
        """The program of a job's target."""
        target = job.target
        assert isinstance(target, ProgramTarget)
        return cls(target, base.dense())

    @abstractmethod
    def recipe(self, bias: CoupledBias) -> Recipe:
        """The program with all its data."""

    @abstractmethod
    def inits(self, places: Places) -> list[dict[str, Any]]:
        """Values of the program's parameters at the places of the chains."""

    @abstractmethod
    def positions(self, places: Places) -> Array:
        """The same in the program's unconstrained space, shape (chains, D + 1)."""

    @abstractmethod
    def read(self, block: DrawBlock, places: Places, rng: np.random.Generator) -> dict[str, Any]:
        """The fields z, t, value and log_base of a `CoupledRun`."""

    def variable(self, block: DrawBlock, name: str) -> Array:
        """The draws of one of the names that the program adds."""
        return np.asarray(block.variables[self.target.prefix + name])

    def ends(self, block: DrawBlock, fields: Mapping[str, Any]) -> Places:
        """Where the chains ended."""
        return Places(self.base.unwhiten(fields["z"][:, -1]), self.variable(block, "u")[:, -1])


class FromPrior(CoupledProgram):
    """The path from the prior to the posterior; the base gives coordinates alone."""

    kind = "prior_likelihood"

    def recipe(self, bias: CoupledBias) -> Recipe:
        return prior_likelihood_recipe(self.target, bias)

    def inits(self, places: Places) -> list[dict[str, Any]]:
        found = self.target.density.variables(places.x[None], seed=1)
        named = {name: found[name][0] for name in self.target.parameter_shapes}
        control = self.target.prefix + "u"
        return [
            {**{name: values[k].tolist() for name, values in named.items()}, control: float(u)}
            for k, u in enumerate(places.u)
        ]

    def positions(self, places: Places) -> Array:
        return np.concatenate([places.x, places.u[:, None]], axis=1)

    def read(self, block: DrawBlock, places: Places, rng: np.random.Generator) -> dict[str, Any]:
        u = self.variable(block, "u")
        x = [
            whole_chain(self.target.unconstrain(block, chain, rng), u.shape[1], places.x[chain])[0]
            for chain in range(len(u))
        ]
        value = self.variable(block, "log_likelihood")
        z = self.base.whiten(np.stack(x))
        return {"z": z, "t": expit(u), "value": value, "log_base": np.zeros(u.shape)}


class OnPlateau(CoupledProgram):
    """The extended Hamiltonian, with a plateau around ξ = 0."""

    kind = "extended_hamiltonian"

    def recipe(self, bias: CoupledBias) -> Recipe:
        return extended_hamiltonian_recipe(self.target, self.base, bias)

    def inits(self, places: Places) -> list[dict[str, Any]]:
        prefix = self.target.prefix
        z = self.base.whiten(places.x)
        return [
            {f"{prefix}z": row.tolist(), f"{prefix}u": float(u)}
            for row, u in zip(z, places.u, strict=True)
        ]

    def positions(self, places: Places) -> Array:
        return np.concatenate([self.base.whiten(places.x), places.u[:, None]], axis=1)

    def read(self, block: DrawBlock, places: Places, rng: np.random.Generator) -> dict[str, Any]:
        z = self.variable(block, "z")
        return {
            "z": z,
            "t": np.abs(self.variable(block, "xi")),
            "value": self.variable(block, "log_target"),
            "log_base": standard_log_density(z),
        }


@dataclass(frozen=True)
class Drawn:
    """Draws of a stage, the fields of a `CoupledRun` that follow from them, and where they end."""

    block: DrawBlock = field(repr=False)
    fields: dict[str, Any] = field(repr=False)
    ends: Places


@dataclass(frozen=True)
class CoupledChains:
    """Samples a coupled program of a job."""

    job: Job = field(repr=False)
    nuts: Nuts
    program: CoupledProgram
    rounds: int
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self, bias: CoupledBias, places: Places) -> CoupledRun:
        """Learn the bias in rounds from a first guess, freeze it, and draw."""
        for number in range(self.rounds):
            name = f"round {number + 1}"
            with self.job.bar(self.job.chains * ROUND_DRAWS, name):
                made = self._drawn(name, bias, places, ROUND_WARMUP, ROUND_DRAWS)
            bias, places = bias.refined(made.fields["value"]), made.ends
        self.job.lap("bootstrap")
        return self.kept(bias, places)

    def kept(self, bias: CoupledBias, places: Places) -> CoupledRun:
        """Make the kept draws under a frozen bias."""
        job, precision, program = self.job, self.job.precision, self.program
        passes: list[Drawn] = []

        def fields() -> dict[str, Any]:
            found = joined_rows(*(one.fields for one in passes))
            statistics = joined_rows(*(one.block.statistics for one in passes))
            return {**found, "statistics": statistics, "base": program.base, "bias": bias}

        def make(draws: int, bar: Bar) -> bool:
            start = passes[-1].ends if passes else places
            name = f"{program.kind} {len(passes)}"
            passes.append(self._drawn(name, bias, start, job.warmup, draws))
            bar.update(job.chains * draws)
            return False

        found, early = until_precise(job, precision, make, CoupledRun, fields, job.method)
        users = (program.target.user_variables(one.block.variables) for one in passes)
        return job.finish(
            CoupledRun,
            interrupted=early,
            variables=joined_rows(*users),
            **found,
            programs=generated(program.target, program.kind),
            facts={"stopping": precision.record(), **self.facts},
        )

    def _drawn(
        self, name: str, bias: CoupledBias, places: Places, warmup: int, draws: int
    ) -> Drawn:
        """Run the chains of one stage from the given places."""
        job, program = self.job, self.program
        recipe = program.recipe(bias)
        seed = stan_seed(job.seeds("draws", name))
        options = {"seed": seed, "warmup": warmup, "draws": draws, "nuts": self.nuts}
        if job.engine is None:
            sample = partial(embedded.run_nuts, recipe, program.positions(places), **options)
            work = partial(job.execution.away, name, sample)
        else:
            work = partial(job.engine.run_nuts, recipe, program.inits(places), **options)
        block, gradients = job.once(name, work)
        job.ledger.gradients += gradients
        fields = program.read(block, places, job.seeds.stream("unconstrained", name))
        return Drawn(block, fields, program.ends(block, fields))


def from_prior(job: Job, nuts: Nuts, rounds: int) -> CoupledRun:
    """Run chains along the path from the prior; short chains at its powers begin it."""
    base = job.start().base
    pilot = PowerPosterior()
    log_z, places = pilot.pilot(job, base)
    job.lap("pilot")
    # Chains begin all along the path, and not at its ends, which have no control u.
    spread = np.linspace(1, pilot.betas.size - 2, job.chains).round().astype(int)
    x = np.array([places[k][chain] for chain, k in enumerate(spread)])
    bias = CoupledBias.on_path(pilot.betas, log_z)
    chains = _from_prior(job, nuts, base, rounds)
    return chains.run(bias, Places(x, control_of(pilot.betas[spread])))


def further_from_prior(job: Job, nuts: Nuts, run: CoupledRun) -> CoupledRun:
    """Move the chains of a run on from their last draws."""
    places = Places(run.base.unwhiten(run.z[:, -1]), control_of(run.t[:, -1]))
    return _from_prior(job, nuts, run.base, 0).kept(run.bias, places)


def _from_prior(job: Job, nuts: Nuts, base: Base, rounds: int) -> CoupledChains:
    facts = {"log_prior_mass": PriorAndLikelihood.of(job.target).log_prior_mass()}
    return CoupledChains(job, nuts, FromPrior.of(job, base), rounds, facts)
