"""Joint continuous tempering: NUTS on (z, u), β = logistic(u) (Graham & Storkey 2017, section 4).

The run has four stages: a base is fitted, one or more short rounds of the joint program refit base
and bias to what they found, everything is frozen, and the draws that count are made. Rounds are
never pooled: their weights belong to another base and bias.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy.special import expit

from stanct import embedded
from stanct.base import GaussianBase, gaussian_moments, standard_log_density
from stanct.chains import Chains, ChainSettings, run_chains
from stanct.errors import SamplingError
from stanct.estimates import PathEstimator
from stanct.fits import METHODS as BASE_METHODS
from stanct.fits import fit_base
from stanct.path import Array, Bias, beta_grid, log_sum_exp
from stanct.results import TemperedRun
from stanct.target import Target, refuse_random_data

ROUND_WARMUP, ROUND_DRAWS = 300, 800

# A linear bias is kept while log z(β) stays within this many nats of it: the chain then still
# passes the least likely β, and the kinks of a table cost NUTS some of its step size.
MOST_DIP = 5.0

# A refit never shrinks the base's variance in any direction below this factor: a pilot round that
# missed a mode must not lock it out.
LEAST_SHRINKAGE = 0.2


@dataclass(frozen=True)
class _Stage:
    """Base and bias of one round, its draws in whitened coordinates, and their δ."""

    base: GaussianBase
    bias: Bias
    chains: Chains
    z: Array = field(repr=False)
    u: Array = field(repr=False)
    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)

    @property
    def estimator(self) -> PathEstimator:
        return PathEstimator(self.delta, self.base_delta, self.bias)


def sample(
    target: Target,
    *,
    chains: int = 4,
    draws: int = 2500,
    warmup: int = 500,
    seed: int | None = None,
    base: str | GaussianBase = "pilot",
    log_zeta: float | None = None,
    bootstrap: int = 1,
    target_accept: float = 0.9,
    max_depth: int = 10,
    threads: int | None = None,
    progress: bool = True,
) -> TemperedRun:
    """Sample the joint program and return the run.

    Parameters
    ----------
    target
        Program and data.
    chains, draws, warmup
        Chains, and kept and adaptation iterations of each.
    seed
        Non-negative; a fresh one is drawn and recorded by default. The draws are the same for any
        number of threads.
    base
        How the base is fitted, ``"pilot"``, ``"pathfinder"`` or ``"laplace"`` (`fits.fit_base`), or
        a `GaussianBase` of your own.
    log_zeta
        Guess at log Z that goes with a base of your own; found by the bootstrap rounds if omitted.
    bootstrap
        Rounds that refit base and bias before the final chains. With 0 the first base is final.
    target_accept, max_depth
        Of NUTS.
    threads
        Chains that run at once; as many as there are cores by default.
    progress
        Progress bars on stderr.

    Raises
    ------
    SamplingError
        Settings that contradict each other.
    ProgramError
        The transformed data are random.
    EngineError
        No chain could start.
    DataError
        Stan refuses the data.
    KeyboardInterrupt
        Interrupted before every chain had finished draws; later, the finished ones are returned.
    """
    settings = ChainSettings(chains, warmup, draws, target_accept, max_depth, threads)
    if bootstrap < 0:
        raise SamplingError(f"bootstrap must not be negative, not {bootstrap}.")
    if isinstance(base, str) and log_zeta is not None:
        raise SamplingError(
            "log_zeta belongs to a base of your own.", remedy="Pass base=GaussianBase(...) too."
        )
    if seed is not None and (isinstance(seed, bool) or seed < 0):
        raise SamplingError(f"seed must be a whole number from 0, not {seed!r}.")
    if isinstance(base, str) and base not in BASE_METHODS:
        raise SamplingError(
            f"There is no base {base!r}.",
            remedy=f"Use one of {', '.join(BASE_METHODS)}, or a GaussianBase.",
        )
    refuse_random_data(target.program)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    started = time.perf_counter()
    density = target.density
    fit_seed, draw_seed, *round_seeds = np.random.SeedSequence(seed).spawn(bootstrap + 3)
    seconds: dict[str, float] = {}
    cost = {"gradients": 0, "evaluations": 0}

    def lap(name: str) -> None:
        seconds[name] = round(time.perf_counter() - started - sum(seconds.values()), 3)

    if isinstance(base, str):
        fitted = fit_base(
            target,
            base,
            chains=chains,
            seed=fit_seed,
            nuts=settings.nuts,
            progress=progress,
        )
        current, bias = fitted.base, Bias.linear(fitted.log_zeta)
        cost["gradients"] += fitted.gradients
        cost["evaluations"] += fitted.evaluations
    else:
        if base.dimension != density.dimension:
            raise SamplingError(
                f"The base has {base.dimension} dimensions, the program "
                f"{density.dimension} unconstrained parameters."
            )
        current = base
        bias = Bias.linear(_elbo(target, base, fit_seed) if log_zeta is None else log_zeta)
    lap("base")
    starts: Array | None = None
    for number, round_seed in enumerate(round_seeds[:-1], start=1):
        pilot = replace(settings, warmup=ROUND_WARMUP, draws=ROUND_DRAWS)
        stage = _round(
            target,
            current,
            bias,
            pilot,
            starts=starts,
            seed=round_seed,
            label=f"round {number}",
            progress=progress,
        )
        if stage.chains.interrupted:
            raise KeyboardInterrupt
        cost["gradients"] += stage.chains.gradients
        cost["evaluations"] += stage.base_delta.size
        new, bias = _refit(stage)
        starts = np.concatenate(
            [new.whiten(stage.base.unwhiten(stage.z[:, -1])), stage.u[:, -1:]], axis=1
        )
        current = new
    lap("bootstrap")
    final = _round(
        target,
        current,
        bias,
        settings,
        starts=starts,
        seed=round_seeds[-1],
        base_seed=draw_seed,
        label="joint",
        progress=progress,
    )
    cost["gradients"] += final.chains.gradients
    cost["evaluations"] += final.base_delta.size
    lap("sampling")
    return _run(
        target,
        final,
        {
            **asdict(settings),
            "seed": seed,
            "base": base if isinstance(base, str) else "given",
            "bootstrap": bootstrap,
        },
        {
            **cost,
            "seconds": round(time.perf_counter() - started, 3),
            "stage_seconds": seconds,
        },
    )


def _round(
    target: Target,
    base: GaussianBase,
    bias: Bias,
    settings: ChainSettings,
    *,
    starts: Array | None,
    seed: np.random.SeedSequence,
    label: str,
    progress: bool,
    base_seed: np.random.SeedSequence | None = None,
) -> _Stage:
    """Run the joint program under one frozen base and bias, and draw from the base."""
    prefix = target.prefix
    names = (f"{prefix}z", f"{prefix}u")
    start_seed, base_default, chain_seed = seed.spawn(3)
    if starts is None:
        starts = _starts(target, base, settings.chains, np.random.default_rng(start_seed))
    chains = run_chains(
        target.joint_recipe(base, bias),
        names,
        starts,
        settings,
        seed=chain_seed,
        label=label,
        progress=progress,
    )
    z = chains.variables[names[0]]
    # The embedded engine cannot save what a program with _lp functions computes from target().
    delta = chains.variables.get(f"{prefix}delta")
    if delta is None:
        log_density = target.density.log_densities(base.unwhiten(z).reshape(-1, base.dimension))
        delta = base.delta(z, log_density.reshape(z.shape[:2]))
    rng = np.random.default_rng(base_seed or base_default)
    base_z = rng.standard_normal((z.shape[0] * z.shape[1], base.dimension))
    base_log_density = target.density.log_densities(base.unwhiten(base_z))
    return _Stage(
        base,
        bias,
        chains,
        z=z,
        u=chains.variables[names[1]],
        delta=delta,
        base_delta=base.delta(base_z, base_log_density),
    )


def _starts(target: Target, base: GaussianBase, chains: int, rng: np.random.Generator) -> Array:
    """Draws of the base inside the target's support, each with a logistic u, (chains, D + 1)."""
    z = rng.standard_normal((100 * chains, base.dimension))
    inside = []
    for point in z:
        if np.isfinite(target.density.log_density(base.unwhiten(point))):
            inside.append(point)
        if len(inside) == chains:
            return np.concatenate([inside, rng.logistic(size=(chains, 1))], axis=1)
    raise SamplingError(
        f"The target is finite at {len(inside)} of {len(z)} draws from the base.",
        remedy="Pass a base that overlaps the target's support.",
    )


def _elbo(target: Target, base: GaussianBase, seed: np.random.SeedSequence) -> float:
    """A lower bound on log Z from draws of the base, the mean of −δ where it is finite."""
    z = np.random.default_rng(seed).standard_normal((200, base.dimension))
    delta = base.delta(z, target.density.log_densities(base.unwhiten(z)))
    finite = delta[np.isfinite(delta)]
    if finite.size == 0:
        raise SamplingError(
            "The target vanishes at all of 200 draws from the given base.",
            remedy="Pass a base that overlaps the target.",
        )
    return float(-np.median(finite))


def _refit(stage: _Stage) -> tuple[GaussianBase, Bias]:
    """Base and bias from a round: moments weighted to β = 1, and the curve under the new base."""
    log_weights = stage.estimator.log_weights(1.0)
    weights = np.exp(log_weights - log_sum_exp(log_weights)).ravel()
    z = stage.z.reshape(weights.size, -1)
    shift, covariance = gaussian_moments(z, weights=weights)
    variances, axes = np.linalg.eigh(covariance)
    scale = stage.base.scale @ (axes * np.sqrt(np.maximum(variances, LEAST_SHRINKAGE)))
    base = GaussianBase.from_covariance(stage.base.unwhiten(shift), scale @ scale.T)
    return base, _bias(stage, base)


def _bias(stage: _Stage, base: GaussianBase) -> Bias:
    """log z(β) under another base, by importance weights of the round's draws.

    The round's x has density q M / C, so z'(β) ∝ mean of exp(−β φ − (1 − β) ψ') / (q M).
    """
    x = stage.base.unwhiten(stage.z)
    log_q = standard_log_density(stage.z) - stage.base.log_det_scale
    log_new = base.log_density(x)
    delta = stage.delta + log_new - log_q
    log_start = log_new - log_q - stage.estimator.log_mass
    grid = beta_grid(101)
    log_z = np.array([log_sum_exp(log_start - beta * delta) for beta in grid])
    log_z -= log_z[0]
    # The end is known better than by importance weights from the old base's end.
    log_z += grid * (stage.estimator.log_z(1.0) - log_z[-1])
    dip = np.max(np.abs(log_z - grid * log_z[-1]))
    if dip <= MOST_DIP:
        return Bias.linear(float(log_z[-1]))
    return Bias.from_curve(grid, log_z)


def _run(
    target: Target, stage: _Stage, settings: dict[str, Any], cost: dict[str, Any]
) -> TemperedRun:
    from stanct import __version__

    variables = target.user_variables(stage.chains.variables)
    if not variables:
        x = stage.base.unwhiten(stage.z)
        variables = target.density.variables(x, seed=settings["seed"] % 2**31)
    return TemperedRun(
        method="joint",
        engine=embedded.NAME,
        variables=variables,
        z=stage.z,
        beta=expit(stage.u),
        delta=stage.delta,
        base_delta=stage.base_delta,
        base=stage.base,
        bias=stage.bias,
        statistics=stage.chains.statistics,
        programs={kind: target.code(kind) for kind in ("density", "joint")},
        data=target.data.text,
        provenance={
            "program": target.program.label,
            "parameters": list(target.program.parameter_names),
            "program_sha256": target.program.source_hash,
            "data_origin": target.data.origin,
            "data_sha256": target.data.sha256,
            "settings": settings,
            "step_size": stage.chains.step_size,
            "interrupted": stage.chains.interrupted,
            **cost,
            "versions": {"stanct": __version__, "numpy": np.__version__, **embedded.versions()},
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )
