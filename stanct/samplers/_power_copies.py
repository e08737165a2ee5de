"""Copies that follow powers of the target: the instrument of Nemeth et al. themselves ([PE] 6, 7).

Copy i has the density γ(x)^β_i without a base, where γ is the density of the unconstrained
parameters, and β_i has a uniform g between two bounds. Then

    log π^N = log (1/N) Σ_i (γ_i / ζ)^(1 − β_i) + Σ_j β_j log (γ_j / ζ),

and copy i counts by its share of the first sum. ∫γ^β dx is not known, so that there is no log Z.
The β of a copy that is not the target's has the density ∫(γ / ζ)^β dx, which depends on ζ. Draws of
the target do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from stanct.bases.fits import FittedBase
from stanct.common.arrays import Array
from stanct.common.deadline import interruption
from stanct.common.errors import SamplingError
from stanct.path.base import Base
from stanct.path.bias import PowerBias
from stanct.path.gaussian import LOG_2PI
from stanct.runs.power_copies import PowerCopiesRun
from stanct.samplers._chains import Chains, Length, Outlook, Runner
from stanct.samplers._job import Job
from stanct.samplers._nuts import NutsDraws, control_of, generated, nuts_sampler
from stanct.samplers._rounds import copies_inside
from stanct.targets.recipes import variant_of

ROUND_WARMUP, ROUND_DRAWS = 300, 500
# The least fixed β of the paper.
BOUNDS = (0.1, 1.0)


def check_instrument(
    instrument: str, fixed_beta: tuple[float, ...] | None, bounds: tuple[float, ...] | None
) -> None:
    """Raise `SamplingError` for β that do not go with the instrument."""
    if instrument == "path":
        if bounds is not None:
            raise SamplingError(
                "beta_bounds are those of instrument='target'. On the path, β runs from 0 to 1.",
                remedy="Leave out beta_bounds=, or pass instrument='target' too.",
            )
        return
    if fixed_beta is not None:
        if bounds is not None:
            raise SamplingError(
                "β is fixed, so it needs no bounds.", remedy="Pass fixed_beta or beta_bounds."
            )
        if min(fixed_beta, default=1.0) == 0:
            raise SamplingError(
                "At β = 0 a power of the target is constant, and not normalisable.",
                remedy="Did you mean a small β, such as 0.1? With instrument='path' β may be 0.",
            )
    if bounds is not None and not 0 < bounds[0] < bounds[1]:
        raise SamplingError(
            f"beta_bounds must be two numbers that increase, the first above 0, not {bounds}.",
            remedy=f"Did you mean beta_bounds={BOUNDS}?",
        )


@dataclass(frozen=True)
class PowerCopies:
    """Samples copies of powers of the target.

    Attributes
    ----------
    betas : shape (N,)
        Fixed β; None where they are estimated.
    given_bounds
        Bounds of estimated β; None for `BOUNDS`.
    """

    job: Job = field(repr=False)
    runner: Runner
    copies: int
    betas: Array | None
    given_bounds: tuple[float, ...] | None
    rounds: int

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the estimated β."""
        low, high = self.given_bounds or BOUNDS
        return low, high

    def run(self) -> PowerCopiesRun:
        """Fit coordinates, refit them in rounds unless they were given, and draw."""
        job, start = self.job, self.job.start()
        base = job.nuts_base(start.base)
        bias = PowerBias.between(self._log_zeta(start), self.bounds)
        places: Array | None = None
        rounds = self.rounds if isinstance(job.plan.base, str) else 0
        for number in range(rounds):
            name, left = f"round {number + 1}", rounds - number - 1
            chains = self._chains(name, base, bias, places, left)
            if chains.interrupted:
                raise interruption()
            draws = self._fields(chains, base, bias)
            weights = np.exp(job.draft(PowerCopiesRun, **draws).copy_log_weights)
            flat = draws["z"].reshape(-1, base.dimension)
            new = job.nuts_base(
                base.refitted(flat, weights.ravel(), least_shrinkage=start.least_shrinkage)
            )
            x = base.unwhiten(draws["z"][:, -1])
            places, base = self._places(new.whiten(x), draws["beta"][:, -1]), new
        job.lap("bootstrap")
        return self._kept(base, bias, places)

    def resume(self, run: PowerCopiesRun) -> PowerCopiesRun:
        """Move the chains on from their last draws."""
        places = self._places(run.z[:, -1], run.beta[:, -1])
        return self._kept(self.job.nuts_base(run.base), run.bias, places)

    def _kept(self, base: Base, bias: PowerBias, places: Array | None) -> PowerCopiesRun:
        job = self.job
        chains = self._chains("pseudo-extended", base, bias, places, None)
        job.lap("sampling")
        draws = self._fields(chains, base, bias)
        flat = draws["z"].reshape(job.chains, -1, base.dimension)
        return job.finish(
            PowerCopiesRun,
            interrupted=chains.interrupted,
            x=base.unwhiten(flat),
            **draws,
            programs=generated(job.target, "pseudo_extended", **variant_of(bias, self.betas)),
            facts={"step_size": chains.step_size},
        )

    def _chains(
        self, name: str, base: Base, bias: PowerBias, places: Array | None, left: int | None
    ) -> Chains:
        """Run the chains of a stage; `left` rounds follow it, and None is for the kept draws."""
        job, sizes = self.job, (ROUND_WARMUP, ROUND_DRAWS)
        warmup, draws = (job.warmup, job.draws) if left is None else sizes
        if places is None:
            places = self._starts(name, base)
        outlook = Outlook(self.runner, name, base, left, sizes, 0, self.copies)
        # Of several rounds, the first one and the last one make forecasts.
        outlook.early = left is not None and name != "round 1"
        with job.bar(job.chains * draws, name) as bar:

            def seen(blocks: list[NutsDraws]) -> None:
                if told := outlook.after_first(blocks, _no_error):
                    bar.note(told.removeprefix(", "))

            sampler = nuts_sampler(job, base, bias, copies=self.copies, fixed_beta=self.betas)
            length = Length(warmup, draws, seen=seen, kept=left is None)
            chains = self.runner.run(sampler, places, length, name, bar)
        # A gradient of the program is one of the target for each copy.
        job.ledger.gradients += self.copies * chains.gradients
        if left == 0 and not chains.interrupted:
            outlook.made(name, chains.draws, _no_error, counted=True)
        return chains

    def _fields(self, chains: Chains, base: Base, bias: PowerBias) -> dict[str, Any]:
        """The fields of a `PowerCopiesRun` beside those of every run."""
        draws, (low, high) = chains.draws, bias.bounds
        if self.betas is None:
            beta = low + (high - low) * expit(draws.u)
        else:
            beta = np.broadcast_to(self.betas, draws.delta.shape).copy()
        return {
            "z": draws.z,
            "beta": beta,
            "log_density": -draws.delta,
            "base": base,
            "bias": bias,
            "statistics": draws.statistics,
        }

    def _places(self, z: Array, beta: Array) -> Array:
        """Points of the chains from copies, shape (chains, N, D), and their β, (chains, N)."""
        whole = z.reshape(len(z), -1)
        if self.betas is not None:
            return whole
        low, high = self.bounds
        return np.concatenate([whole, control_of((beta - low) / (high - low))], axis=1)

    def _starts(self, name: str, base: Base) -> Array:
        job = self.job
        rng = np.random.default_rng(job.seeds("starts", name))
        shape = job.chains, self.copies
        return copies_inside(job.target, base, shape, rng, free=self.betas is None)

    def _log_zeta(self, start: FittedBase) -> float:
        """The user's log ζ, or that with which both bounds of β are equally likely.

        For a Gaussian target, log ∫γ^β is β log Z + (1 − β) (D/2 log 2π + log det L) − D/2 log β.
        """
        if self.job.plan.log_zeta is not None:
            return self.job.plan.log_zeta
        low, high = self.bounds
        half = start.base.dimension / 2
        volume = half * LOG_2PI + start.base.log_det_scale
        return start.log_zeta - volume - half * float(np.log(high / low)) / (high - low)


def _no_error(draws: NutsDraws) -> float:
    """These draws tell no error of log Z, so that forecasts are those of the time."""
    return np.nan
