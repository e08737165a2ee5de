"""One function for each tool: a target and a seed in, log Z and its cost out.

Settings are those of the tools' documentation, with budgets that end within a minute on a target
that suits the tool. What a tool lacks and its users add themselves is marked.
"""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri
from targets import LOG_2PI, NUMPY, Target


@dataclass(frozen=True)
class Found:
    """log Z, its error bar (NaN where the tool has none), and gradients and log densities spent."""

    log_z: float
    std_error: float
    gradients: int
    densities: int


def stanct(target: Target, seed: int) -> Found:
    """The default, with nothing set."""
    import stanct

    run = stanct.temper(target.program).sample(target.data, seed=seed, progress=False)
    evidence = run.evidence
    return Found(
        evidence.log_z, evidence.std_error, run.gradients, run.provenance["evaluations"]
    )  # fmt: skip


def nuts_bridge(target: Target, seed: int, warmup: int = 1000, draws: int = 1000) -> Found:
    """NUTS of the embedded Stan, four chains, and a bridge to the normal of half of the draws."""
    import stanli

    import stanct

    text = stanct.temper(target.program).stan_code("density")  # with all constants
    fit = stanli.Model(stan_code=text, data=target.data).sample(
        chains=4, seed=seed, warmup=warmup, samples=draws, parallel_chains=1, refresh=0,
        save_warmup=True,
    )  # fmt: skip
    steps = fit.sampler_stats[:, :, stanli.SAMPLER_COLUMNS.index("n_leapfrog__")].sum()
    density = stanli.bridgestan_model(stan_code=text, data=json.dumps(target.data))
    chains = fit.draws()[:, warmup:, : len(density.param_names())]
    x = np.array([[density.param_unconstrain(row) for row in chain] for chain in chains])
    log_z, error = _bridge(x, density.log_density, np.random.default_rng(seed))
    return Found(log_z, error, int(steps), 4 * draws)


def _bridge(x: np.ndarray, log_density: Callable[[Any], float], rng: Any) -> tuple[float, float]:
    """Meng & Wong's estimate with effective numbers of draws, as R's bridgesampling."""
    from arviz_stats.base import array_stats

    chains, draws, dimension = x.shape
    fitting, own = x[:, : draws // 2].reshape(-1, dimension), x[:, draws // 2 :]
    mean, lower = fitting.mean(axis=0), np.linalg.cholesky(np.cov(fitting.T))
    log_det = np.log(np.diag(lower)).sum()
    other = mean + rng.standard_normal((own[..., 0].size, dimension)) @ lower.T

    def ratios(points: np.ndarray) -> np.ndarray:
        z = np.linalg.solve(lower, (points - mean).T)
        log_q = -0.5 * np.square(z).sum(axis=0) - log_det - 0.5 * dimension * LOG_2PI
        return np.array([log_density(point) for point in points]) - log_q

    ours, theirs = ratios(own.reshape(-1, dimension)), ratios(other)
    effective = float(array_stats.ess(ours.reshape(chains, -1), chain_axis=0, draw_axis=1))
    share, rest = (n / (effective + len(theirs)) for n in (effective, len(theirs)))
    log_z = float(np.median(ours))
    for _ in range(1000):
        before = log_z
        top = theirs - np.logaddexp(np.log(share) + theirs, np.log(rest) + log_z)
        bottom = -np.logaddexp(np.log(share) + ours, np.log(rest) + log_z)
        log_z = float(logsumexp(top) - logsumexp(bottom) + np.log(len(ours) / len(theirs)))
        if abs(log_z - before) < 1e-10:
            break
    squares = [np.exp(a - a.max()) for a in (top, bottom)]
    spread = [np.var(a) / np.mean(a) ** 2 for a in squares]
    return log_z, math.sqrt(spread[0] / len(theirs) + spread[1] / effective)


def _jax() -> Any:
    """JAX as `Target.log_likelihood` wants it."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return SimpleNamespace(
        np=jnp, erf=jax.scipy.special.erf,
        logsumexp=lambda a: jax.scipy.special.logsumexp(a, axis=-1),
    )  # fmt: skip


@cache
def _compiled(target: Target) -> Callable[[np.ndarray], float]:
    """The log likelihood of one point."""
    import jax

    of = _jax()
    compiled = jax.jit(lambda z: target.log_likelihood(of, z))
    return lambda z: float(compiled(z))


def blackjax_smc(target: Target, seed: int) -> Found:
    """Adaptive tempered SMC with ten leapfrog steps, twice a stage."""
    import jax

    _jax()
    particles = 1000 if target.dimension < 50 else 500
    step, begin, adapted = _compiled_smc(target, particles)
    key, first = jax.random.split(jax.random.PRNGKey(seed))
    state = begin(jax.random.normal(first, (particles, target.dimension)))
    log_z, stages, size = 0.0, 0, 0.3
    state = adapted(state, size)
    while float(state.sampler_state.tempering_param) < 1:
        key, now = jax.random.split(key)
        state, info = step(now, state)
        log_z += float(info.log_likelihood_increment)
        # Users add a step size that follows the acceptance.
        rate = float(np.mean(info.update_info.acceptance_rate))
        size *= math.exp(0.5 * (rate - 0.7))
        state, stages = adapted(state, size), stages + 1
    return Found(log_z, math.nan, stages * particles * 2 * 11, stages * particles)


@cache
def _compiled_smc(target: Target, particles: int) -> tuple[Any, Any, Any]:
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.smc import extend_params, resampling
    from blackjax.smc.inner_kernel_tuning import as_top_level_api as tuned

    of = _jax()
    kernel = blackjax.hmc.build_kernel()

    def parameters(state: Any, size: float) -> dict[str, Any]:
        spread = jnp.var(state.particles, axis=0)
        return extend_params({"inverse_mass_matrix": spread, "step_size": jnp.array(size)})

    def move(key: Any, state: Any, density: Any, step_size: Any, inverse_mass_matrix: Any) -> Any:
        return kernel(key, state, density, step_size, inverse_mass_matrix, 10)

    def adapted(state: Any, size: float) -> Any:
        return state._replace(parameter_override=parameters(state.sampler_state, size))

    algorithm = tuned(
        smc_algorithm=blackjax.adaptive_tempered_smc,
        logprior_fn=lambda z: -0.5 * jnp.sum(z * z) - 0.5 * z.size * LOG_2PI,
        loglikelihood_fn=lambda z: target.log_likelihood(of, z),
        mcmc_step_fn=move,
        mcmc_init_fn=blackjax.hmc.init,
        resampling_fn=resampling.systematic,
        mcmc_parameter_update_fn=lambda key, state, info: parameters(state, 0.3),
        initial_parameter_value=extend_params(
            {"inverse_mass_matrix": jnp.ones(target.dimension), "step_size": jnp.array(0.3)}
        ),
        num_mcmc_steps=2,
        target_ess=0.9,
    )  # fmt: skip
    return jax.jit(algorithm.step), algorithm.init, adapted


def dynesty(target: Target, seed: int, points: int = 500) -> Found:
    """Static nested sampling; slices in random directions."""
    import dynesty

    sampler = dynesty.NestedSampler(
        _compiled(target), ndtri, target.dimension,
        nlive=points, sample="rslice", rstate=np.random.default_rng(seed),
    )  # fmt: skip
    sampler.run_nested(dlogz=0.1, print_progress=False)
    found = sampler.results
    return Found(float(found.logz[-1]), float(found.logzerr[-1]), 0, int(np.sum(found.ncall)))


def ultranest(target: Target, seed: int, points: int = 400) -> Found:
    """Reactive nested sampling; slices of 2 D steps in more than ten dimensions."""
    import ultranest
    from ultranest import stepsampler

    logging.getLogger("ultranest").setLevel(logging.ERROR)
    np.random.seed(seed)  # noqa: NPY002  it has no other way
    names = [f"z{k}" for k in range(target.dimension)]
    many = target.dimension > 10
    sampler = ultranest.ReactiveNestedSampler(
        names,
        _compiled(target) if many else lambda z: target.log_likelihood(NUMPY, z),
        ndtri,
        vectorized=not many,
    )
    if many:
        sampler.stepsampler = stepsampler.SliceSampler(
            nsteps=2 * target.dimension,
            generate_direction=stepsampler.generate_mixture_random_direction,
        )
    found = sampler.run(min_num_live_points=points, show_status=False, viz_callback=False)
    return Found(float(found["logz"]), float(found["logzerr"]), 0, int(found["ncall"]))


def pymc_smc(target: Target, seed: int, particles: int = 2000) -> Found:
    """Four chains of SMC with independent proposals; the error bar is their spread."""
    import pymc
    import pytensor.tensor as pt
    from pymc.smc.kernels import IMH

    logging.getLogger("pymc").setLevel(logging.ERROR)
    of = SimpleNamespace(np=pt, erf=pt.erf, logsumexp=lambda a: pt.logsumexp(a, axis=-1))
    counted: list[_Counted] = []

    class Kernel(IMH):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.likelihood_logp_func = _Counted(self.likelihood_logp_func)
            counted.append(self.likelihood_logp_func)

    with pymc.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = pymc.Normal("z", 0, 1, shape=target.dimension)
        pymc.Potential("likelihood", target.log_likelihood(of, z))
        found = pymc.sample_smc(
            particles, kernel=Kernel, chains=4, cores=1, random_seed=seed, progressbar=False,
            model=model, compute_convergence_checks=False,
        )  # fmt: skip
    told = found.sample_stats["log_marginal_likelihood"].values
    stages = [np.asarray(one, float).ravel() for one in np.ravel(np.asarray(told, object))]
    by_chain = np.concatenate([one[np.isfinite(one)] for one in stages])
    log_z = float(logsumexp(by_chain) - math.log(len(by_chain)))
    spread = float(by_chain.std(ddof=1) / math.sqrt(len(by_chain)))
    return Found(log_z, spread, 0, sum(one.calls[0] for one in counted))


class _Counted:
    """A compiled function of PyTensor that counts its calls, those of its copies too."""

    def __init__(self, function: Any, calls: list[int] | None = None) -> None:
        self._function, self.calls = function, [0] if calls is None else calls

    def __call__(self, *arguments: Any) -> Any:
        self.calls[0] += 1
        return self._function(*arguments)

    def copy(self, *arguments: Any, **settings: Any) -> _Counted:
        return _Counted(self._function.copy(*arguments, **settings), self.calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


PEERS: dict[str, Callable[[Target, int], Found]] = {
    "stanct": stanct,
    "NUTS and bridge": nuts_bridge,
    "BlackJAX SMC": blackjax_smc,
    "dynesty": dynesty,
    "UltraNest": ultranest,
    "PyMC SMC": pymc_smc,
}
# What is compiled where a tool's own work is not.
COMPILED = {"dynesty": _compiled, "UltraNest": _compiled}
