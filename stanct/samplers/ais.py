"""Annealed importance sampling (Neal 2001; [GS] 10), optionally with resampling (adaptive SMC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stanct.runs.particle import ParticleRun
from stanct.samplers._annealing import Annealing
from stanct.samplers._job import Job


@dataclass(frozen=True, kw_only=True)
class AIS(Annealing[ParticleRun]):
    """Annealed importance sampling: particles go once from the base to the target.

    Attributes
    ----------
    temperatures
        Steps of the sigmoidal schedule.
    resample
        Resample islands whose weights degenerate: adaptive sequential Monte Carlo.
    island
        Particles of an island; divides `draws`.
    transitions
        HMC transitions at each temperature.
    path_length
        Mean length of a trajectory in whitened time; a standard normal's period is 2π.
    max_steps
        Most leapfrog steps in a trajectory.
    target_accept
        Acceptance that the step size at every β is tuned to.

    `draws` are particles of each chain, `warmup` are the pilot particles of each chain in each of
    two rounds, from which step sizes are learned. The base is only sampled, so a wide one does no
    harm.
    """

    name: ClassVar[str] = "ais"

    def run(self, job: Job) -> ParticleRun:
        """Fit a base, learn step sizes, freeze them, and anneal."""
        return self.anneal(job)[0]
