"""Pseudo-extended MCMC: NUTS on N copies that hand the target over to each other ([PE] 8).

Each copy has an inverse temperature of its own, estimated beside it or fixed. While one copy is the
target's the others roam the tempered path between base and target, and any that comes to another
mode can take over. The stages are those of joint tempering: a base, rounds that refit base and
log ζ, everything frozen, and the draws that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from scipy.integrate import trapezoid
from scipy.special import expit

from stanct import embedded
from stanct.base import GaussianBase
from stanct.chains import Chains, ChainSettings, run_chains
from stanct.errors import SamplingError
from stanct.path import Array, Bias, beta_grid
from stanct.rounds import (
    Ledger,
    base_deltas,
    first_base,
    provenance,
    run_seed,
    weighted_base,
)
from stanct.runs.copies import CopyEstimator, copy_log_weights
from stanct.runs.pseudo_extended_run import PseudoExtendedRun
from stanct.settings import whole
from stanct.target import Target

ROUND_WARMUP, ROUND_DRAWS = 300, 500

# Independent draws of the base for each draw of the chains; one costs a density.
BASE_DRAWS = 4

# Share of the density of β that is uniform whatever the speed of the path.
UNIFORM = 0.25


@dataclass(frozen=True)
class _Stage:
    """The chains of one round: z (chains, draws, N, D), β and δ (chains, draws, N)."""

    chains: Chains
    z: Array = field(repr=False)
    beta: Array = field(repr=False)
    estimator: CopyEstimator = field(repr=False)


def sample(
    target: Target,
    *,
    copies: int = 5,
    fixed_beta: Sequence[float] | None = None,
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
) -> PseudoExtendedRun:
    """Sample the pseudo-extended program and return the run.

    Parameters
    ----------
    target
        Program and data.
    copies
        N, at least 2; every gradient costs N of the target's.
    fixed_beta : shape (N,)
        Inverse temperatures of the copies in [0, 1], not all 1; estimated by default.
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
        Rounds that refit base and log ζ before the final chains. With 0 the first base is final.
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
        The transformed data are random, or the program has no pseudo-extended form.
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
    beta = _check_copies(copies, fixed_beta)
    seed = run_seed(seed)
    fit_seed, variable_seed, *round_seeds = np.random.SeedSequence(seed).spawn(bootstrap + 3)
    target.code("pseudo_extended")
    ledger = Ledger()
    start = first_base(
        target,
        base,
        log_zeta,
        chains=chains,
        seed=fit_seed,
        nuts=settings.nuts,
        progress=progress,
    )
    ledger.gradients += start.gradients
    ledger.evaluations += start.evaluations
    ledger.lap("base")
    current, bias = start.base, Bias.linear(start.log_zeta)
    places: Array | None = None
    short = replace(settings, warmup=ROUND_WARMUP, draws=ROUND_DRAWS)
    stage_of = _Stages(target, copies, beta, ledger, progress)
    for number in range(bootstrap):
        stage = stage_of(current, bias, short, places, round_seeds[number], f"round {number + 1}")
        if stage.chains.interrupted:
            raise KeyboardInterrupt
        weights = np.exp(copy_log_weights(stage.estimator.delta, stage.beta, bias))
        new = weighted_base(current, stage.z, weights) if isinstance(base, str) else current
        bias = _bias_by_speed(stage.estimator)
        z = new.whiten(current.unwhiten(stage.z[:, -1])).reshape(chains, -1)
        places = np.concatenate([z, _logit(stage.beta[:, -1])], axis=1) if beta is None else z
        current = new
    ledger.lap("bootstrap")
    final = stage_of(current, bias, settings, places, round_seeds[-1], "pseudo-extended")
    ledger.lap("sampling")
    flat = final.z.reshape(chains, -1, current.dimension)
    variables = target.variables(current.unwhiten(flat), variable_seed)
    return PseudoExtendedRun(
        method="pseudo_extended",
        engine=embedded.NAME,
        variables=variables,
        z=final.z,
        beta=final.beta,
        delta=final.estimator.delta,
        base_delta=final.estimator.base_delta,
        base=current,
        bias=bias,
        statistics=final.chains.statistics,
        programs={**target.programs, "pseudo_extended": target.code("pseudo_extended")},
        data=target.data_text,
        provenance=provenance(
            target,
            {
                **asdict(settings),
                "seed": seed,
                "copies": copies,
                "fixed_beta": None if beta is None else beta.tolist(),
                "base": base if isinstance(base, str) else "given",
                "bootstrap": bootstrap,
            },
            ledger,
            interrupted=final.chains.interrupted,
            step_size=final.chains.step_size,
        ),
    )


def _check_copies(copies: int, fixed_beta: Sequence[float] | None) -> Array | None:
    """The fixed β as an array of shape (N,), or None; raises `SamplingError` if they cannot be."""
    # A single copy would be NUTS on the target itself.
    whole("copies", copies, 2)
    if fixed_beta is None:
        return None
    beta = np.asarray(fixed_beta, float)
    if beta.shape != (copies,) or not np.all((beta >= 0) & (beta <= 1)):
        raise SamplingError(
            f"fixed_beta must hold {copies} numbers in [0, 1], one a copy, not {fixed_beta!r}.",
            remedy=f"Use e.g. fixed_beta={[0.1] * (copies - 1) + [1.0]}, or leave it out.",
        )
    if np.all(beta == 1):
        raise SamplingError(
            "With fixed_beta all 1 nothing is tempered.", remedy="Give some copies a smaller β."
        )
    return beta


@dataclass(frozen=True)
class _Stages:
    """Runs the program under one frozen base and bias after another."""

    target: Target
    copies: int
    fixed_beta: Array | None
    ledger: Ledger
    progress: bool

    def __call__(
        self,
        base: GaussianBase,
        bias: Bias,
        settings: ChainSettings,
        starts: Array | None,
        seed: np.random.SeedSequence,
        label: str,
    ) -> _Stage:
        """Run the chains, and draw from the base."""
        prefix = self.target.prefix
        names = (f"{prefix}z",) if self.fixed_beta is not None else (f"{prefix}z", f"{prefix}u")
        start_seed, base_seed, chain_seed = seed.spawn(3)
        if starts is None:
            rng = np.random.default_rng(start_seed)
            starts = self._starts(base, settings.chains, rng)
        chains = run_chains(
            self.target.pseudo_extended_recipe(base, bias, self.copies, self.fixed_beta),
            names,
            starts,
            settings,
            seed=chain_seed,
            label=label,
            progress=self.progress,
        )
        z = chains.variables[f"{prefix}z"]
        if self.fixed_beta is None:
            beta = expit(chains.variables[f"{prefix}u"])
        else:
            beta = np.broadcast_to(self.fixed_beta, z.shape[:3]).copy()
        # The embedded engine cannot save what a program with _lp functions computes from target().
        delta = chains.variables.get(f"{prefix}delta")
        if delta is None:
            x = base.unwhiten(z).reshape(-1, base.dimension)
            delta = base.delta(z, self.target.density.log_densities(x).reshape(beta.shape))
        # A gradient of the program is one of the target for each copy.
        self.ledger.gradients += self.copies * chains.gradients
        count = BASE_DRAWS * z.shape[0] * z.shape[1]
        self.ledger.evaluations += count
        base_delta = base_deltas(self.target, base, count, base_seed)
        return _Stage(chains, z, beta, CopyEstimator(delta, base_delta, bias, self.fixed_beta))

    def _starts(self, base: GaussianBase, chains: int, rng: np.random.Generator) -> Array:
        """Copies drawn from the base inside the target's support, then u unless β is fixed."""
        wanted = chains * self.copies
        z = rng.standard_normal((100 * wanted, base.dimension))
        inside: list[Array] = []
        for point in z:
            if np.isfinite(self.target.density.log_density(base.unwhiten(point))):
                inside.append(point)
            if len(inside) == wanted:
                break
        else:
            raise SamplingError(
                f"The target is finite at {len(inside)} of {len(z)} draws from the base.",
                remedy="Pass a base that overlaps the target's support.",
            )
        places = np.reshape(inside, (chains, -1))
        if self.fixed_beta is not None:
            return places
        return np.concatenate([places, rng.logistic(size=(chains, self.copies))], axis=1)


def _bias_by_speed(estimator: CopyEstimator) -> Bias:
    """The bias under which the copies stay longer where the path is faster.

    A part of the density of β is uniform, the rest ∝ the mean absolute deviation of δ at β, so that
    equal steps of the path take about equal times. The modes of sharp mixtures meet at β of a few
    per cent only, and there the path is fast.
    """
    beta = beta_grid(101)
    log_z, speed = estimator.path_moments(beta)
    density = UNIFORM + (1 - UNIFORM) * speed / trapezoid(speed, beta)
    return Bias.from_curve(beta, log_z - np.log(density))


def _logit(beta: Array) -> Array:
    """The control u of β, kept finite where β has rounded to an end."""
    inside = np.clip(beta, 1e-15, 1 - 1e-15)
    return np.log(inside) - np.log1p(-inside)
