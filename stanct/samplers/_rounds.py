"""What samplers of the continuous path share: a first base and bias, and their refits by rounds.

A round is a run under one frozen base and bias. The next round's base and bias follow from it;
rounds are never pooled, their weights belong to different densities.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

from stanct.arrays import Array, log_sum_exp
from stanct.bases.fits import fit_base
from stanct.engines import embedded
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts
from stanct.errors import SamplingError
from stanct.estimates.path import PathEstimator
from stanct.kernels import CallableDensity
from stanct.path.bias import AnyBias, Bias, Course, beta_grid
from stanct.path.gaussian import GaussianBase, gaussian_moments, standard_log_density
from stanct.path.mixture import AnyBase, LowRankBase, MixtureBase
from stanct.targets.program_target import Target, refuse_random_data
from stanct.work.execution import Executed, Execution, LentDensity

# A refit never shrinks the base's variance in any direction below this factor: a pilot round that
# missed a corner must not lock it out.
LEAST_SHRINKAGE = 0.2

# Share of the time at each β that does not follow the speed of the path where modes lie apart.
# Elsewhere all of it: there draws at β near 1 are worth more than trips to the base.
UNIFORM = 0.5


class SampledDensity(LentDensity, CallableDensity, Protocol):
    """What samplers need of a density: `Density` and `FunctionDensity` have it."""


class SampledTarget(Executed, Protocol):
    """What samplers need of the user's problem: `Target` and `FunctionTarget` have it."""

    @property
    def prefix(self) -> str: ...

    @property
    def density(self) -> SampledDensity: ...

    @property
    def programs(self) -> dict[str, str]: ...

    @property
    def data_text(self) -> str: ...

    @property
    def origin(self) -> dict[str, Any]: ...

    def variables(self, x: Array, seed: np.random.SeedSequence) -> Mapping[str, Array]: ...


@dataclass(frozen=True)
class Start:
    """A first base with the guess log ζ and what they cost.

    Attributes
    ----------
    separated
        Whether pilots stayed in modes of their own.
    """

    base: AnyBase
    log_zeta: float
    gradients: int = 0
    evaluations: int = 0
    separated: bool = False

    @property
    def least_shrinkage(self) -> float:
        """The factor below which refits shrink the base's variance in no direction.

        1 where modes lie apart, because a round that missed some of them would lock them out.
        """
        return 1.0 if self.separated else LEAST_SHRINKAGE

    @property
    def uniform(self) -> float:
        """Share of the density of β that is uniform, see `Course.log_density`."""
        return UNIFORM if self.separated else 1.0


@dataclass(frozen=True)
class Round:
    """Base and bias of one round, its draws in whitened coordinates, and their δ.

    Attributes
    ----------
    z : shape (chains, draws, D)
    delta : shape (chains, draws)
    base_delta : shape (base draws,)
        δ at independent draws of the base.
    """

    base: AnyBase
    bias: AnyBias
    z: Array = field(repr=False)
    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)

    @property
    def estimator(self) -> PathEstimator:
        """Of everything along the path."""
        return PathEstimator(self.delta, self.base_delta, self.bias)


def first_base(
    target: SampledTarget,
    base: str | AnyBase,
    log_zeta: float | None,
    *,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    execution: Execution,
    engine: CmdStan | None = None,
    bootstrap: int = 0,
    sampled: bool = False,
) -> Start:
    """Fit the base that `base` names, or check a given one and guess log ζ if it has none.

    `bootstrap` is the number of rounds that will refit it; `sampled` tells that the method draws
    from its base at β = 0, so that a mixture will do.

    Raises
    ------
    SamplingError
        The settings contradict each other or the target.
    ProgramError
        The transformed data are random.
    """
    if isinstance(target, Target):
        refuse_random_data(target.program)
    if base == "mixture" or isinstance(base, MixtureBase):
        _check_mixture(bootstrap, sampled)
    if isinstance(base, str):
        if log_zeta is not None:
            raise SamplingError(
                "log_zeta belongs to a base of your own.", remedy="Pass base=GaussianBase(...) too."
            )
        if not isinstance(target, Target):
            raise SamplingError(
                f"The base {base!r} is fitted to a Stan program, and this target has none.",
                remedy="Pass base=GaussianBase(...).",
            )
        return execution.once(
            "base", lambda: _fitted(target, base, chains, seed, nuts, engine, execution)
        )
    if base.dimension != target.density.dimension:
        raise SamplingError(
            f"The base has {base.dimension} dimensions, the program "
            f"{target.density.dimension} unconstrained parameters."
        )
    if log_zeta is not None:
        return Start(base, log_zeta)
    return Start(base, _rough_log_zeta(target, base, seed), evaluations=200)


def _check_mixture(bootstrap: int, sampled: bool) -> None:
    """Refuse a mixture base where it cannot serve."""
    if not sampled:
        raise SamplingError(
            "This method moves through its base and would not cross between a mixture's parts.",
            remedy="Use method 'simulated_tempering', 'parallel_tempering' or 'ais', which draw "
            "from it, or another base.",
        )
    if bootstrap:
        raise SamplingError("A mixture base is not refitted.", remedy="Pass bootstrap=0.")


def _fitted(
    target: Target,
    base: str,
    chains: int,
    seed: np.random.SeedSequence,
    nuts: Nuts,
    engine: CmdStan | None,
    execution: Execution,
) -> Start:
    fitted = fit_base(
        target,
        base,
        chains=chains,
        seed=seed,
        nuts=nuts,
        engine=engine,
        progress=execution.progress,
    )
    return Start(
        fitted.base, fitted.log_zeta, fitted.gradients, fitted.evaluations, fitted.separated
    )


def _rough_log_zeta(target: SampledTarget, base: AnyBase, seed: np.random.SeedSequence) -> float:
    """Minus the median of δ over draws of the base where it is finite, below log Z as a rule."""
    z = base.draw(np.random.default_rng(seed), 200)
    delta = base.delta(z, target.density.log_densities(base.unwhiten(z)))
    finite = delta[np.isfinite(delta)]
    if finite.size == 0:
        raise SamplingError(
            "The target vanishes at all of 200 draws from the given base.",
            remedy="Pass a base that overlaps the target.",
        )
    return float(-np.median(finite))


def dense(base: AnyBase) -> GaussianBase:
    """The base with the triangular scale that generated programs take; no mixture."""
    if isinstance(base, LowRankBase):
        return base.dense()
    assert isinstance(base, GaussianBase)  # mixtures are refused before
    return base


def draws_inside(
    target: SampledTarget, base: GaussianBase, count: int, rng: np.random.Generator
) -> Array:
    """Whitened draws of the base inside the target's support, shape (count, D).

    Raises
    ------
    SamplingError
        Fewer than a hundredth of the base's draws are inside.
    """
    inside: list[Array] = []
    for point in rng.standard_normal((100 * count, base.dimension)):
        if np.isfinite(target.density.log_densities(base.unwhiten(point)[None])[0]):
            inside.append(point)
        if len(inside) == count:
            return np.array(inside)
    raise SamplingError(
        f"The target is finite at {len(inside)} of {100 * count} draws from the base.",
        remedy="Pass a base that overlaps the target's support.",
    )


def base_deltas(
    target: SampledTarget,
    base: AnyBase,
    count: int,
    seed: np.random.SeedSequence,
    execution: Execution,
) -> Array:
    """δ at independent draws of the base, +inf where the target vanishes, shape (count,)."""
    return BaseDraws(target, base, seed).kept(count, execution)


class BaseDraws:
    """δ at independent draws of a base, as many as are asked for; more do not change the first.

    They are evaluated by portions of one size, so that not even rounding depends on who asked for
    how many in between.
    """

    portion = 500

    def __init__(self, target: SampledTarget, base: AnyBase, seed: np.random.SeedSequence) -> None:
        self._target = target
        self._base = base
        self._rng = np.random.default_rng(seed)
        self._delta = np.zeros(0)

    def first(self, count: int) -> Array:
        """δ at the first draws, +inf where the target vanishes, shape (count,)."""
        parts = [self._delta]
        for _ in range(-(-(count - self._delta.size) // self.portion)):
            z = self._base.draw(self._rng, self.portion)
            log_density = self._target.density.log_densities(self._base.unwhiten(z))
            parts.append(self._base.delta(z, log_density))
        self._delta = np.concatenate(parts)
        return self._delta[:count]

    def kept(self, count: int, execution: Execution) -> Array:
        """The same as a step of the run, which a checkpoint remembers."""
        return execution.once("draws of the base", lambda: self.first(count))


def refit_base(done: Round, least_shrinkage: float = LEAST_SHRINKAGE) -> GaussianBase | LowRankBase:
    """The Gaussian with a round's moments, weighted to β = 1; see `Start` for the floor."""
    log_weights = done.estimator.log_weights(1.0)
    weights = np.exp(log_weights - log_sum_exp(log_weights)).ravel()
    return refitted(done.base, done.z.reshape(weights.size, -1), weights, least_shrinkage)


def refitted(
    base: AnyBase,
    z: Array,
    weights: Array | None = None,
    least_shrinkage: float = LEAST_SHRINKAGE,
) -> GaussianBase | LowRankBase:
    """The base of the same kind with the moments of whitened draws, shape (n, D), equal by default.

    Raises
    ------
    SamplingError
        The base is a mixture.
    """
    if isinstance(base, MixtureBase):
        raise SamplingError("A mixture base is not refitted.", remedy="Pass bootstrap=0.")
    if isinstance(base, LowRankBase):
        return LowRankBase.from_points(base.unwhiten(z), weights=weights)
    shift, covariance = gaussian_moments(z, weights=weights)
    variances, axes = np.linalg.eigh(covariance)
    scale = base.scale @ (axes * np.sqrt(np.maximum(variances, least_shrinkage)))
    return GaussianBase.from_covariance(base.unwhiten(shift), scale @ scale.T)


def course_under(done: Round, base: AnyBase) -> Course:
    """The path from another base, by importance weights of a round's draws.

    The round's x has density q M / C, so z'(β) ∝ mean of exp(−β φ − (1 − β) ψ') / (q M).
    """
    x = done.base.unwhiten(done.z)
    log_q = standard_log_density(done.z) - done.base.log_det_scale
    log_new = base.log_density(x)
    delta = done.delta + log_new - log_q
    log_start = log_new - log_q - done.estimator.log_mass
    found = Course.weighted(beta_grid(101), log_start.ravel(), delta.ravel())
    log_z = found.log_z - found.log_z[0]
    # The end is known better than by importance weights from the old base's end.
    return replace(found, log_z=log_z + found.beta * (done.estimator.log_z(1.0) - log_z[-1]))


def refit_bias(done: Round, uniform: float = 1.0) -> Bias:
    """The bias along a round's own path, base draws included; `uniform` as in `Course.bias`."""
    return done.estimator.course(beta_grid(101)).bias(uniform)


class Ledger:
    """Counts what a run spends: gradients, evaluations, and seconds by stage."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.gradients = 0
        self.evaluations = 0
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Close a stage: the time since the last one closed goes to it."""
        spent = time.perf_counter() - self._started - sum(self.stages.values())
        self.stages[stage] = round(spent, 3)

    def record(self) -> dict[str, Any]:
        """For the run's provenance."""
        return {
            "gradients": self.gradients,
            "evaluations": self.evaluations,
            "seconds": round(time.perf_counter() - self._started, 3),
            "stage_seconds": dict(self.stages),
        }


def engine_name(target: Executed, engine: CmdStan | None = None) -> str:
    """What runs say they were made by."""
    return engine.NAME if engine else embedded.NAME if target.programs else "python"


def provenance(
    target: Executed, settings: Mapping[str, Any], ledger: Ledger, **more: Any
) -> dict[str, Any]:
    """Everything about a run that is neither draws nor estimates; JSON values only."""
    from stanct.version import __version__

    return {
        **target.origin,
        "settings": dict(settings),
        **more,
        **ledger.record(),
        "versions": {"stanct": __version__, "numpy": np.__version__, **embedded.versions()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def acceptance_by_beta(bins: Array) -> dict[str, Any]:
    """Mean acceptance in equal bins of β, None where no transition was made."""
    tries, sums = bins
    return {
        "transitions": [int(count) for count in tries],
        "acceptance": [
            float(total / count) if count else None
            for count, total in zip(tries, sums, strict=True)
        ],
    }
