"""Extended-Hamiltonian continuous tempering: NUTS on (z, ξ), with β = 1 on a plateau of ξ.

This is the density of Gobbo & Leimkuhler (2015), sampled by NUTS. `TACT` samples it by Langevin
moves. β falls smoothly from 1 to its least value at the walls, and there is no base: draws come
from powers of the target itself. log Z follows, because at large |ξ| the powers cover the Gaussian
that whitens the coordinates. That of ADVI is narrower than the target, so that they do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from stanct.common.errors import SamplingError
from stanct.common.settings import Real, Whole
from stanct.path.coupled import CoupledBias
from stanct.runs.coupled import CoupledRun
from stanct.samplers._chains import NutsMethod
from stanct.samplers._coupled import CoupledChains, OnPlateau, Places
from stanct.samplers._job import Job, Plan
from stanct.samplers._nuts import control_of
from stanct.targets.program_target import ProgramTarget

# Of a Gaussian, the path from β = 1 is √(D / 2) log(1 / β) long.
LENGTH, LEAST_BETA = 5.0, 0.1


@dataclass(frozen=True, kw_only=True)
class ExtendedHamiltonian(NutsMethod[CoupledRun]):
    """NUTS on the target and a tempering variable ξ, by CmdStan or by the embedded engine.

    Attributes
    ----------
    plateau
        Share of |ξ| on which β = 1.
    least_beta
        β at the walls, where p(z)^β has to be integrable. By default it is .1 in up to nine
        dimensions, and larger in more, so that the path keeps its length.
    bootstrap
        Rounds that learn the bias before the final chains.
    target_accept
        Target acceptance statistic for tuning the step size; by default .9.
    max_depth
        Largest depth of a NUTS tree.
    """

    name: ClassVar[str] = "extended_hamiltonian"
    aims: ClassVar[bool] = True
    default_base: ClassVar[str] = "advi"

    plateau: Annotated[float, Real(0, 1)] = 0.3
    least_beta: Annotated[float | None, Real(0, 1)] = None
    bootstrap: Annotated[int, Whole(0)] = 2

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse what has no such program."""
        if not isinstance(target, ProgramTarget):
            raise SamplingError(
                "The extended Hamiltonian is a Stan program, and this target is none.",
                remedy="Use method 'tact', which takes functions.",
            )
        target.code("extended_hamiltonian")

    def run(self, job: Job) -> CoupledRun:
        """Fit the coordinates, learn the bias in rounds, freeze it, and draw."""
        start = job.start()
        program = OnPlateau.of(job, start.base)
        dimension = program.base.dimension
        least = self.least_beta
        if least is None:
            least = max(LEAST_BETA, math.exp(-LENGTH / math.sqrt(dimension / 2)))
        bias = CoupledBias.of_gaussian(dimension, start.log_zeta, self.plateau, least)
        z = job.places(program.base)
        u = job.seeds.stream("starts").logistic(size=job.chains)
        chains = CoupledChains(job, self.nuts(job), program, self.bootstrap)
        return chains.run(bias, Places(program.base.unwhiten(z), u))

    def resume(self, job: Job, run: CoupledRun) -> CoupledRun:
        """Move the chains on from their last draws, after a warm-up."""
        program = OnPlateau.of(job, run.base)
        places = Places(run.base.unwhiten(run.z[:, -1]), control_of((1 + run.t[:, -1]) / 2))
        return CoupledChains(job, self.nuts(job), program, 0).kept(run.bias, places)
