"""Annealed importance sampling (Neal 2001; [GS] 10), optionally with resampling (adaptive SMC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stanct.runs.particle import ParticleRun
from stanct.samplers._annealing import Annealing
from stanct.samplers._job import Job


@dataclass(frozen=True, kw_only=True)
class AIS(Annealing[ParticleRun]):
    """Annealed importance sampling: particles move once from the base to the target.

    Attributes
    ----------
    temperatures
        Number of steps of the sigmoidal schedule, or inverse temperatures of your own from 0 to 1.
    resample
        Whether to resample islands whose weights degenerate (adaptive sequential Monte Carlo).
    island
        Number of particles in an island. It must divide `draws`.
    transitions
        Number of HMC transitions at each temperature.
    path_length
        Mean length of a trajectory in whitened time; the period of a standard normal is 2π.
    max_steps
        Largest number of leapfrog steps in a trajectory.
    target_accept
        Target acceptance for tuning the step size at every β.

    `draws` is the number of particles of each chain. `warmup` is the number of pilot particles of
    each chain in each of the two rounds that learn the step sizes. The base is only sampled, so a
    wide base does no harm. With a `target_se`, whole islands are added until it is reached. Islands
    are independent with and without resampling, and so the error of their mean falls as it should.
    """

    name: ClassVar[str] = "ais"
    aims: ClassVar[bool] = True

    def run(self, job: Job) -> ParticleRun:
        """Fit a base, learn step sizes, freeze them, and anneal."""
        return self.anneal(job)[0]

    def resume(self, job: Job, run: ParticleRun) -> ParticleRun:
        """Anneal new particles, with the frozen step sizes."""
        return self.more_particles(job, run)
