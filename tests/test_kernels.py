"""Compiled kernels: order, reversibility, invariance, learned steps, faults as counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from analytic import gaussian, skewed
from conftest import target_of
from scipy.stats import kstest

from stanct import kernels
from stanct.path.gaussian import GaussianBase
from stanct.targets.function_target import FunctionDensity

Array = np.ndarray
BASE = GaussianBase(
    np.array([0.3, -0.2, 0.5]), np.array([[0.8, 0, 0], [0.3, 1.2, 0], [-0.4, 0.1, 0.6]])
)
PROGRAM = """
parameters { real a; real<lower=0> b; real c; }
model { a ~ normal(1, 2); b ~ gamma(2, 1); c ~ normal(a, b); }
"""


@pytest.fixture(scope="module")
def stan_density():
    return target_of(PROGRAM).density


def leap(density, z: Array, momentum: Array, beta: float, step: float, steps: int):
    """A trajectory from z; returns where it ends and its energy error."""
    problem = kernels.make_problem(density, BASE)
    state, scratch = kernels.make_state(problem, z), kernels.make_scratch(z.size)
    p = momentum.copy()
    phase = kernels.Phase(state.z, p, state.gradient, state.value)

    def energy() -> float:
        log_base = kernels.delta_of(problem, 0.0, state.z, scratch)
        return 0.5 * p @ p - kernels.log_tempered(state.value[0], log_base, beta)

    before = energy()
    status, gradients = kernels.leapfrog(
        problem, phase, kernels.Trajectory(beta, step, steps), scratch
    )
    assert (status, gradients) == (kernels.OK, steps)
    return state.z, p, energy() - before


def test_value_and_gradient_in_whitened_coordinates(stan_density, rng) -> None:
    z, small = rng.standard_normal(3), 1e-6
    problem = kernels.make_problem(stan_density, BASE)
    state = kernels.make_state(problem, z)
    log_density = stan_density.log_density(BASE.unwhiten(z))
    assert state.value[0] == pytest.approx(log_density + BASE.log_det_scale, rel=1e-12)
    differences = [
        (stan_density.log_density(BASE.unwhiten(z + small * e))
         - stan_density.log_density(BASE.unwhiten(z - small * e))) / (2 * small)
        for e in np.eye(3)
    ]  # fmt: skip
    assert state.gradient == pytest.approx(differences, rel=1e-6, abs=1e-6)
    assert kernels.delta_of(problem, state.value[0], z, kernels.make_scratch(3)) == pytest.approx(
        BASE.delta(z, log_density), rel=1e-12
    )


@pytest.mark.parametrize("dimension", [1, 3, 4, 9, 30])
def test_triangular_products_in_any_dimension(dimension: int, rng) -> None:
    target = gaussian(dimension)
    scale = np.tril(rng.standard_normal((dimension, dimension)))
    np.fill_diagonal(scale, np.abs(np.diag(scale)) + 0.1)
    base = GaussianBase(rng.standard_normal(dimension), scale)
    z = rng.standard_normal(dimension)
    density = FunctionDensity(target.function, dimension)
    state = kernels.make_state(kernels.make_problem(density, base), z)
    value, gradient = target.function(base.unwhiten(z))
    assert state.value[0] == pytest.approx(value + base.log_det_scale, rel=1e-12)
    assert state.gradient == pytest.approx(scale.T @ gradient, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_leapfrog_runs_backwards(stan_density, rng, beta: float) -> None:
    z, momentum = 0.5 * rng.standard_normal((2, 3))
    there, p, _ = leap(stan_density, z, momentum, beta, 0.1, 9)
    back, p_back, _ = leap(stan_density, there, -p, beta, 0.1, 9)
    assert np.abs(there - z).max() > 0.1
    assert back == pytest.approx(z, abs=1e-11)
    assert -p_back == pytest.approx(momentum, abs=1e-11)


def test_energy_error_is_of_second_order(stan_density, rng) -> None:
    z, momentum = 0.5 * rng.standard_normal((2, 3))
    errors = [leap(stan_density, z, momentum, 0.7, 0.08 / 2**k, 6 * 2**k)[2] for k in range(4)]
    ratios = np.abs(np.array(errors[:-1]) / np.array(errors[1:]))
    assert ratios[-1] == pytest.approx(4.0, abs=0.3)  # first order would give 2


# An invariance test and a test of it: exact draws are moved a few times and must keep their
# distribution.


def moved(kernel: Callable[[Array, np.random.Generator], Array], rng: np.random.Generator) -> float:
    """p-value that draws from a skewed target keep their distribution under five moves."""
    shape = 4.0
    count = 1500
    normal = np.abs(rng.standard_normal(count)), rng.standard_normal(count)
    bend = shape / np.sqrt(1 + shape**2)
    exact = bend * normal[0] + np.sqrt(1 - bend**2) * normal[1]
    points = np.stack([exact, rng.standard_normal(count)], axis=1)
    for n in range(count):
        for _ in range(5):
            points[n] = kernel(points[n], rng)
    fresh = np.abs(rng.standard_normal(20_000)), rng.standard_normal(20_000)
    return float(kstest(points[:, 0], bend * fresh[0] + np.sqrt(1 - bend**2) * fresh[1]).pvalue)


def our_kernel(beta: float = 1.0, function: Callable | None = None):
    case = skewed()
    density = FunctionDensity(function or case.function, 2)
    problem, scratch = kernels.make_problem(density, case.base), kernels.make_scratch(2)

    def kernel(x: Array, rng: np.random.Generator) -> Array:
        assert density.failure is None  # and keeps alive what the problem points to
        state = kernels.make_state(problem, case.base.whiten(x))
        kernels.transition(problem, state, kernels.Trajectory(beta, 0.6, 3), rng, scratch)
        return case.base.unwhiten(state.z)

    return kernel


def test_transition_leaves_its_target_invariant(rng) -> None:
    assert moved(our_kernel(), rng) > 1e-3


def test_invariance_test_passes_the_identity(rng) -> None:
    assert moved(lambda x, _: x, rng) > 1e-3


def always_accepted(x: Array, rng: np.random.Generator) -> Array:
    """One leapfrog trajectory without the accept step."""
    function = skewed().function
    p, step = rng.standard_normal(2), 0.9
    p = p + 0.5 * step * function(x)[1]
    x = x + step * p
    return x


def inverted(x: Array, rng: np.random.Generator) -> Array:
    """Random-walk Metropolis with the wrong sign in its acceptance."""
    function = skewed().function
    proposal = x + 0.5 * rng.standard_normal(2)
    accept = np.log(rng.random()) < function(x)[0] - function(proposal)[0]
    return proposal if accept else x


def test_invariance_test_fails_planted_errors(rng) -> None:
    assert moved(always_accepted, rng) < 1e-6
    assert moved(inverted, rng) < 1e-6
    assert moved(our_kernel(beta=0.2), rng) < 1e-6

    def biased(x: Array) -> tuple[float, Array]:
        # a value that does not belong to the gradient, as when a Jacobian is left out
        value, gradient = skewed().function(x)
        return value + 0.5 * x[0], gradient

    assert moved(our_kernel(function=biased), rng) < 1e-6


def test_step_size_is_learned_along_beta(rng) -> None:
    case = gaussian(5)
    base = GaussianBase(case.mean, 8 * case.base.scale)
    density = FunctionDensity(case.function, 5)
    problem, scratch = kernels.make_problem(density, base), kernels.make_scratch(5)
    ladder, table = np.linspace(0, 1, 9), kernels.make_table(5)
    states = [kernels.make_state(problem, np.zeros(5)) for _ in ladder]

    def sweep(table: kernels.StepTable, learn: bool) -> list[float]:
        mover = kernels.Mover(kernels.Moves(1.5, 20, 0.8, learn), table, scratch)
        return [
            kernels.tempered_move(problem, state, beta, mover, rng)[0]
            for state, beta in zip(states, ladder, strict=True)
        ]

    for _ in range(500):
        sweep(table, True)
    frozen = kernels.pool_tables([table])
    accept = np.mean([sweep(frozen, False) for _ in range(400)], axis=0)
    assert np.all((accept > 0.65) & (accept < 0.92)), accept
    steps = [kernels.step_at(frozen.log_step, beta) for beta in ladder]
    assert steps[0] > 4 * steps[-1]  # a target twelve times narrower than the base
    assert np.array_equal(frozen.log_step, kernels.pool_tables([table]).log_step)


def test_pooled_tables_fill_what_was_never_seen() -> None:
    one, two = kernels.make_table(1), kernels.make_table(1)
    one.log_step[:], two.log_step[:] = -1.0, -3.0
    one.visits[:4], two.visits[2:8] = 30.0, 10.0
    pooled = kernels.pool_tables([one, two])
    assert pooled.log_step[0] == -1.0 and pooled.log_step[-1] == -3.0
    assert pooled.log_step[2] == pytest.approx(-1.5)


@pytest.mark.parametrize("fault", ["nan", "inf", "raise", "half", "nan gradient"])
def test_faults_are_counted_and_never_accepted(fault: str, rng) -> None:
    case = gaussian(2)

    def function(x: Array) -> tuple[float, Array]:
        value, gradient = case.function(x)
        bad = x[0] > case.mean[0]
        if fault == "raise" and bad:
            raise ValueError("no density here")
        if fault == "half" and bad:
            return -np.inf, gradient
        if fault == "nan gradient" and bad:
            return value, np.full(2, np.nan)
        return {"nan": np.nan, "inf": np.inf}.get(fault, value) if bad else value, gradient

    density = FunctionDensity(function, 2)
    problem, scratch = kernels.make_problem(density, case.base), kernels.make_scratch(2)
    state = kernels.make_state(problem, case.base.whiten(case.mean - 0.3))
    events, short = [], kernels.Trajectory(1.0, 0.3, 4)
    for _ in range(300):
        _, status, gradients = kernels.transition(problem, state, short, rng, scratch)
        events.append(status)
        assert np.isfinite(state.value[0]) and 1 <= gradients <= 4
        assert case.base.unwhiten(state.z)[0] <= case.mean[0]
    bad = sum(event != kernels.OK for event in events)
    assert 30 < bad < 270
    assert (kernels.REJECTED in events) or fault == "nan gradient"
    assert (fault == "raise") == isinstance(density.failure, ValueError)


def test_stan_reject_is_counted(rng) -> None:
    density = target_of(
        'parameters { real x; } model { if (x > 0) reject("right half"); x ~ normal(0, 1); }'
    ).density
    problem = kernels.make_problem(density, GaussianBase(np.zeros(1), np.eye(1)))
    state, scratch = kernels.make_state(problem, np.array([-0.5])), kernels.make_scratch(1)
    short = kernels.Trajectory(1.0, 0.3, 4)
    events = [kernels.transition(problem, state, short, rng, scratch)[1] for _ in range(200)]
    assert 20 < events.count(kernels.REJECTED) < 180
    assert state.z[0] <= 0


def test_function_densities_have_callbacks_of_their_own() -> None:
    density = gaussian(3)
    one, other = (FunctionDensity(density.function, 3) for _ in range(2))
    x = np.array([0.1, 0.2, 0.3])
    assert one.log_density(x) == other.log_density(x) == density.function(x)[0]
    assert one.address != other.address
    assert one.log_densities(np.stack([x, x])).shape == (2,)
