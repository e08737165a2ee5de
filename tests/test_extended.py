"""NUTS by compiled kernels: equal to the generated programs, invariant, adapted as Stan adapts."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from analytic import gaussian, skewed
from conftest import LONG, target_of
from sampled import sampled
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import ks_2samp, kstest
from targets import LINE, SKEWED

from stanct import kernels
from stanct.common.errors import EngineError, SamplingError
from stanct.engines import embedded
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts
from stanct.engines.homes import Home
from stanct.kernels import make_extended, make_nuts_out, make_scratch, make_subtrees
from stanct.path.bias import Bias, CopyBias, PowerBias
from stanct.path.gaussian import GaussianBase
from stanct.samplers import _nuts as extended
from stanct.samplers._nuts import Block, CompiledNuts
from stanct.targets.density import Density
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.targets.recipes import joint_recipe, pseudo_extended_recipe

Array = np.ndarray
KNOTS = np.array([0.0, 0.1, 0.5, 1.0])
BIAS = Bias(KNOTS, np.array([0.0, -3.0, -4.0, -9.0]))
POWERS = PowerBias.between(-6.0, (0.15, 0.9))
OF_COPIES = CopyBias(KNOTS, BIAS.value, np.array([0.0, 0.5, -0.3, 0.2]))
FUNNEL = """
parameters { real s; array[2] simplex[3] p; cholesky_factor_corr[3] L; vector<lower=0>[2] t; }
model {
  s ~ normal(0, 2); t ~ gamma(exp(s), 2);
  L ~ lkj_corr_cholesky(2); p[1] ~ dirichlet([1, 2, 3]');
}
"""


def base_of(dimension: int, rng: np.random.Generator, *, diagonal: bool) -> GaussianBase:
    scale = np.diag(rng.uniform(0.2, 0.6, dimension))
    if not diagonal:
        scale += np.tril(rng.normal(size=scale.shape) * 0.1, -1)
    return GaussianBase(rng.normal(size=dimension) * 0.2, scale)


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize(
    ("bias", "copies", "fixed"),
    [
        (BIAS, 1, None),
        (OF_COPIES, 3, None),
        (OF_COPIES, 3, np.array([0.0, 0.3, 1.0])),
        (POWERS, 3, None),
        (POWERS, 3, np.array([0.2, 0.3, 1.0])),
    ],
    ids=["joint", "copies", "fixed", "powers", "fixed powers"],
)
def test_density_and_gradient_are_those_of_the_generated_program(
    bias: Bias | CopyBias, copies: int, fixed: Array | None, diagonal: bool, rng
) -> None:
    target = target_of(FUNNEL)
    dimension = target.density.dimension
    base = base_of(dimension, rng, diagonal=diagonal)
    recipe = (
        joint_recipe(target, base, bias)
        if isinstance(bias, Bias)
        else pseudo_extended_recipe(target, base, bias, copies, fixed)
    )
    program = Density(recipe)
    none = np.zeros(0)
    ours = make_extended(target.density, base, bias, copies, none if fixed is None else fixed)
    apart = []
    for _ in range(20):
        controls = rng.normal(size=copies) * 3 if fixed is None else none
        w = np.append(rng.normal(size=dimension * copies), controls)
        gradient, delta = np.zeros(w.size), np.zeros(copies)
        scratch = make_scratch(dimension)
        log_density = kernels.evaluate_extended(ours, w, gradient, delta, scratch)
        expected, slope = program.log_density_gradient(w)
        apart.append(log_density - expected)
        np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())
        z = w[: dimension * copies].reshape(copies, dimension)
        log_densities = target.density.log_densities(base.unwhiten(z))
        wanted = -log_densities if bias is POWERS else base.delta(z, log_densities)
        np.testing.assert_allclose(delta, wanted, rtol=1e-9)
    assert np.ptp(apart) < 1e-9


@pytest.mark.parametrize("fixed", [None, np.array([0.2, 0.9])], ids=["estimated", "fixed"])
def test_density_and_gradient_of_powers_are_the_formula(fixed: Array | None, rng) -> None:
    """[PE] 6 to 8 in the user's coordinates: no term of the base, and gradients by differences."""
    case = skewed()
    density, base = case.target.density, base_of(2, rng, diagonal=False)
    none = np.zeros(0)
    ours = make_extended(density, base, POWERS, 2, none if fixed is None else fixed)
    low, high = POWERS.bounds

    def formula(w: Array) -> float:
        rate = POWERS.log_zeta - density.log_densities(base.unwhiten(w[:4].reshape(2, 2)))
        beta = low + (high - low) * expit(w[4:]) if fixed is None else fixed
        value = logsumexp(-(1 - beta) * rate) - np.log(2) - np.sum(beta * rate)
        return float(value + np.sum(log_expit(w[4:]) + log_expit(-w[4:])))

    for _ in range(20):
        w = rng.normal(size=4 if fixed is not None else 6)
        gradient, delta = np.zeros(w.size), np.zeros(2)
        found = kernels.evaluate_extended(ours, w, gradient, delta, make_scratch(2))
        assert found == pytest.approx(formula(w), rel=1e-11)
        steps = 1e-5 * np.eye(w.size)
        by_differences = [(formula(w + step) - formula(w - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient, by_differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fixed", [None, np.array([0.2, 0.9])], ids=["estimated", "fixed"])
def test_copies_run_one_after_another(fixed: Array | None) -> None:
    """With vanishing steps chains stay where they began, each copy in its own place."""
    base = GaussianBase(np.zeros(3), np.eye(3))
    density = FunctionDensity(gaussian(3).function, 3)
    sampler = CompiledNuts(density, base, OF_COPIES, 2, fixed)
    size = 6 if fixed is not None else 8
    starts = np.arange(2.0 * size).reshape(2, size) / 10
    still = Block(1, 2, 1e-14, np.ones(size))
    block = sampler.draw(starts, still, nuts=Nuts(max_depth=1))
    np.testing.assert_allclose(block.end, starts, atol=1e-9)
    np.testing.assert_allclose(block.z[0, 1, 1], [0.3, 0.4, 0.5], atol=1e-9)
    assert block.z.shape == (2, 2, 2, 3) and block.delta.shape == (2, 2, 2)
    assert block.u.shape == (2, 2, 2 if fixed is None else 0)


LOG_ZETA, WIDTH = 0.7, 0.4


def exact_joint(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """z and β of the joint density of e^LOG_ZETA N(1, WIDTH²) and N(0, 1) without a bias."""
    grid = (np.arange(4000) + 0.5) / 4000
    precision = grid / WIDTH**2 + 1 - grid
    mean = grid / WIDTH**2 / precision
    log_z = LOG_ZETA * grid - grid * np.log(WIDTH) - 0.5 * np.log(precision)
    log_z -= 0.5 * grid / WIDTH**2 - 0.5 * precision * mean**2
    k = rng.choice(grid.size, size=count, p=np.exp(log_z) / np.exp(log_z).sum())
    return mean[k] + rng.standard_normal(count) / np.sqrt(precision[k]), grid[k]


@pytest.fixture(scope="module")
def normal() -> Density:
    source = f"parameters {{ real x; }} model {{ x ~ normal(1, {WIDTH}); target += {LOG_ZETA}; }}"
    return target_of(source).density


def moved(
    density: Density,
    rng: np.random.Generator,
    *,
    step: float,
    halving: bool = False,
    most_depth: int = 6,
    count: int = 10_000,
) -> tuple[float, float]:
    """Exact draws are moved five times: least p value beside other exact ones, mean gradients."""
    base = GaussianBase(np.zeros(1), np.eye(1))
    ours = make_extended(density, base, Bias.linear(0.0), 1, np.zeros(0))
    trees, scratch, out = make_subtrees(6, 2, 1), make_scratch(1), make_nuts_out(5, 2, 1)
    z, beta = exact_joint(rng, count)
    ends, gradients, metric = np.empty((z.size, 2)), 0.0, np.array([0.5, 3.0])
    orbit = kernels.Orbit(ours, metric, trees, scratch)
    point, gradient = trees.vectors[kernels.STATE, kernels.POINT :]
    scalars = trees.scalars[kernels.STATE]
    for n in range(z.size):
        point[:] = z[n], np.log(beta[n] / (1 - beta[n]))
        scalars[kernels.LOG_DENSITY] = kernels.evaluate_extended(
            ours, point, gradient, scalars[kernels.DELTA :], scratch
        )
        kernels.nuts_draws(orbit, step, most_depth, halving, rng, out)
        ends[n] = out.w[-1]
        gradients += out.statistics[:, 4].mean() / z.size
    mine = ends[:, 0], 1 / (1 + np.exp(-ends[:, 1]))
    exact = exact_joint(rng, 10 * count)
    return min(p_value(f(*mine), f(*exact)) for f in FUNCTIONS), gradients


FUNCTIONS: Any = (
    lambda z, beta: z,
    lambda z, beta: beta,
    lambda z, beta: z * beta,
    lambda z, beta: (z - beta) ** 2,
)


def p_value(a: Array, b: Array) -> float:
    return float(np.asarray(ks_2samp(a, b))[1])


@pytest.mark.parametrize("step", [0.35, 0.9, 1.6])
def test_transitions_leave_the_joint_density_invariant(step: float, normal: Density, rng) -> None:
    assert moved(normal, rng, step=step)[0] > 1e-4


@pytest.mark.parametrize(
    ("step", "most_depth"), [(1.5, 6), (2.5, 1), pytest.param(4.0, 6, marks=LONG)]
)
def test_halved_steps_leave_the_joint_density_invariant(
    step: float, most_depth: int, normal: Density, rng
) -> None:
    """Long steps, which are halved more often than not; with one step a trajectory, too."""
    p_value, gradients = moved(normal, rng, step=step, halving=True, most_depth=most_depth)
    assert p_value > 1e-4
    assert gradients > 1.5 * moved(normal, rng, step=step, most_depth=most_depth, count=500)[1]


def test_invariance_test_fails_another_density(rng) -> None:
    shifted = target_of(
        f"parameters {{ real x; }} model {{ x ~ normal(1.06, {WIDTH}); target += {LOG_ZETA}; }}"
    )
    assert moved(shifted.density, rng, step=0.35)[0] < 1e-6


def test_long_chains_have_the_exact_moments(rng) -> None:
    """Trees of many doublings: β = 1 fixed twice makes both copies the target's."""
    case = gaussian(4)
    sampler = CompiledNuts(
        FunctionDensity(case.function, 4), case.base, CopyBias.linear(0.0), 2, np.array([1.0, 1.0])
    )
    starts = rng.standard_normal((4, 8))
    block = sampler.draw(starts, Block(3, 1000, 0.1, np.ones(8)), nuts=Nuts())
    x = case.base.unwhiten(block.z).reshape(-1, 4)
    assert block.statistics["treedepth__"].mean() > 4
    assert block.statistics["accept_stat__"].mean() > 0.98
    for k in range(4):
        scaled = (x[:, k] - case.mean[k]) / np.sqrt(case.variance[k])
        # NUTS on a normal is antithetic: means are better than independent draws' are.
        assert abs(scaled.mean()) < 4 / np.sqrt(8000)
        assert kstest(scaled[::4], "norm").pvalue > 1e-3


@pytest.mark.parametrize("exact", [LINE, SKEWED], ids=["line", "skewed"])
def test_chains_adapt_and_move_as_stan_s_do(exact: Any, seed: int) -> None:
    """Beside Stan's own NUTS on the generated program: steps, metrics, trees, energies."""
    target = target_of(exact.source, exact.data)
    dimension = target.density.dimension
    base, bias = GaussianBase(np.zeros(dimension), np.eye(dimension)), Bias.linear(0.0)
    starts, nuts = np.full((16, dimension + 1), 0.8), Nuts(0.9)
    sampler = CompiledNuts(target.density, base, bias)
    mine = sampler.adapt(starts, seed=seed, warmup=500, nuts=nuts)
    step, metric = float(np.median(mine.step_size)), np.exp(np.log(mine.inv_metric).mean(axis=0))
    block = sampler.draw(mine.position, Block(seed + 1, 500, step, metric), nuts=nuts)
    stan, gradients = embedded.run_nuts(
        joint_recipe(target, base, bias), starts, seed=seed, warmup=500, draws=500, nuts=nuts
    )
    ratio = step / float(np.median(stan.statistics["stepsize__"]))
    assert 0.75 < ratio < 1.35
    found = stan.variables["ct_z"].reshape(-1, dimension).var(axis=0)
    assert np.all(np.abs(np.log(metric[:-1] / found)) < np.log(1.5))
    assert 0.7 < mine.gradients / (gradients - stan.gradients) < 1.4
    for name, least in (("n_leapfrog__", 0.7), ("accept_stat__", 0.95), ("treedepth__", 0.8)):
        means = block.statistics[name].mean(), stan.statistics[name].mean()
        assert least < means[0] / means[1] < 1 / least, name
    spread = np.hypot(block.statistics["energy__"].std(), stan.statistics["energy__"].std())
    apart = block.statistics["energy__"].mean() - stan.statistics["energy__"].mean()
    assert abs(apart) < 0.15 * spread


def test_draws_are_the_same_for_any_number_of_threads(rng, seed: int) -> None:
    density = target_of(LINE.source, LINE.data).density
    sampler = CompiledNuts(density, GaussianBase(np.zeros(2), np.eye(2)), BIAS)
    starts = rng.standard_normal((5, 3))

    def run(threads: int) -> Array:
        nuts = Nuts(threads=threads)
        found = sampler.adapt(starts, seed=seed, warmup=150, nuts=nuts)
        block = Block(seed, 20, float(found.step_size[0]), found.inv_metric[0])
        return sampler.draw(found.position, block, nuts=nuts).z

    one, four = run(1), run(4)
    assert np.array_equal(one, four)
    assert np.unique(one[:, -1, 0]).size == 5  # no two chains share a stream


def test_a_point_that_stan_rejects_ends_a_trajectory() -> None:
    """Counted as divergent, with no draw beyond it."""
    source = "parameters { real x; } model { x ~ normal(0, 1); if (x > 0.5) reject(x); }"
    sampler = CompiledNuts(
        target_of(source).density, GaussianBase(np.zeros(1), np.eye(1)), Bias.linear(0.0)
    )
    block = sampler.draw(np.zeros((2, 2)), Block(1, 500, 0.3, np.ones(2)), nuts=Nuts())
    assert block.z.max() <= 0.5
    assert np.isfinite(block.delta).all()
    assert 0.05 < block.statistics["divergent__"].mean() < 0.95
    starts = np.array([[0.0, 0.0], [0.7, 0.0]])
    with pytest.raises(EngineError, match="rejects the point where a chain begins"):
        sampler.adapt(starts, seed=1, warmup=150, nuts=Nuts())


def test_a_gradient_that_is_not_a_number_ends_a_trajectory() -> None:
    def function(x: Array) -> tuple[float, Array]:
        return -0.5 * float(x @ x), np.where(x > 1, np.nan, -x)

    sampler = CompiledNuts(
        FunctionDensity(function, 1), GaussianBase(np.zeros(1), np.eye(1)), Bias.linear(0.0)
    )
    block = sampler.draw(np.zeros((1, 2)), Block(1, 500, 0.3, np.ones(2)), nuts=Nuts())
    assert block.statistics["divergent__"].mean() > 0.05
    assert np.isfinite(block.z).all() and block.z.max() < 1


def test_an_interrupt_ends_every_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chain is interrupted; the second, which would take minutes, ends with it."""
    waiting = threading.Event()

    def slow(x: Array) -> tuple[float, Array]:
        waiting.wait(0.002)
        return -0.5 * float(x @ x), -x

    original = extended._Lane.warm_up

    def interrupted(lane: Any, warmup: int, *settings: Any) -> Any:
        if lane.orbit.trees.vectors[kernels.STATE, kernels.POINT, 0] == 0:
            raise KeyboardInterrupt
        return original(lane, warmup, *settings)

    monkeypatch.setattr(extended._Lane, "warm_up", interrupted)
    density = FunctionDensity(slow, 1)
    sampler = CompiledNuts(density, GaussianBase(np.zeros(1), np.eye(1)), Bias.linear(0.0))
    with pytest.raises(KeyboardInterrupt):
        sampler.adapt(np.array([[0.0, 0.0], [0.1, 0.0]]), seed=1, warmup=100_000, nuts=Nuts())


@LONG
@pytest.mark.parametrize("method", ["joint", "pseudo_extended"])
def test_python_functions_can_be_tempered(method: str, seed: int) -> None:
    case = skewed()
    settings = {"base": case.base, "seed": seed, "draws": 800, "progress": False}
    run = sampled(method, case.target, **settings)
    assert run.engine == "python" and run.programs == {}
    assert abs(run.evidence.log_z - case.log_z) < 4 * run.evidence.std_error < 0.2
    mean = run.expect("x")
    assert np.all(np.abs(mean.value - case.mean) < 4 * mean.std_error)
    assert np.all(mean.std_error < 0.1)


def test_cmdstan_runs_no_functions() -> None:
    target = FunctionTarget(FunctionDensity(gaussian(2).function, 2))
    engine = CmdStan(Home("nowhere", "2.39.0", False))  # type: ignore[arg-type]
    with pytest.raises(SamplingError, match="this target is none"):
        sampled("joint", target, engine=engine, base=GaussianBase(np.zeros(2), np.eye(2)))
