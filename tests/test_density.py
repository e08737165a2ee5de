"""`Density`: exact values, gradients, transforms, pickling, threads, and compiled callers."""

from __future__ import annotations

import ctypes
import pickle
import threading
from typing import Any

import numba
import numpy as np
import pytest
from conftest import target_of
from scipy.stats import gamma, norm

from stanct.engines.embedded import Recipe
from stanct.targets import density as densities
from stanct.targets.density import Density

PROGRAM = """
data { int<lower=0> N; vector[N] y; }
parameters { real mu; real<lower=0> tau; simplex[3] p; }
model {
  mu ~ normal(0, 2);
  tau ~ gamma(3, 1.5);
  p ~ dirichlet([2, 3, 4]');
  y ~ normal(mu, tau);
}
"""
DATA = {"N": 4, "y": [0.3, -1.2, 2.0, 0.7]}


@pytest.fixture(scope="module")
def density() -> Density:
    return target_of(PROGRAM, DATA).density


def test_value_is_normalised_and_holds_the_jacobian(density: Density) -> None:
    x = np.array([0.4, -0.3, 0.2, -0.5])
    theta = density.constrain(x)
    mu, tau, p = theta[0], theta[1], theta[2:]
    # Dirichlet(2, 3, 4): Γ(9) / (Γ(2) Γ(3) Γ(4)) p₁ p₂² p₃³.
    log_p = norm.logpdf(mu, 0, 2) + gamma.logpdf(tau, 3, scale=1 / 1.5)
    log_p += np.log(40320 / (1 * 2 * 6)) + np.log(p[0]) + 2 * np.log(p[1]) + 3 * np.log(p[2])
    log_p += norm.logpdf(DATA["y"], mu, tau).sum()
    step = 1e-5
    jacobian = np.array(
        [
            (density.constrain(x + step * e) - density.constrain(x - step * e)) / (2 * step)
            for e in np.eye(4)
        ]
    )
    keep = [0, 1, 2, 3]  # mu, tau, and the first two coordinates of the simplex
    log_jacobian = np.linalg.slogdet(jacobian[:, keep])[1]
    assert density.log_density(x) == pytest.approx(log_p + log_jacobian, rel=1e-8)


def test_gradient(density: Density, rng: np.random.Generator) -> None:
    x, step = rng.standard_normal(4), 1e-6
    value, gradient = density.log_density_gradient(x)
    assert value == density.log_density(x)
    differences = [
        (density.log_density(x + step * e) - density.log_density(x - step * e)) / (2 * step)
        for e in np.eye(4)
    ]
    assert gradient == pytest.approx(differences, rel=1e-6, abs=1e-6)


def test_constrain_and_unconstrain_are_inverse(density: Density, rng: np.random.Generator) -> None:
    x = rng.standard_normal(4)
    theta = density.constrain(x)
    assert density.names == ("mu", "tau", "p.1", "p.2", "p.3")
    assert density.dimension == 4 == len(density.unconstrained_names)
    assert density.unconstrain(theta) == pytest.approx(x)
    named = {"mu": theta[0], "tau": theta[1], "p": theta[2:]}
    assert density.unconstrain(named) == pytest.approx(x)


def test_unconstrain_says_what_is_wrong(density: Density) -> None:
    with pytest.raises(ValueError, match="tau"):
        density.unconstrain({"mu": 0.0, "tau": -1.0, "p": [0.2, 0.3, 0.5]})


def test_a_point_of_another_size_is_refused(density: Density) -> None:
    """The engine's C function would read beyond its end."""
    for size in (density.dimension - 1, density.dimension + 1):
        for call in (density.log_density, density.log_density_gradient):
            with pytest.raises(ValueError, match="reshape"):
                call(np.zeros(size))


def test_pickles_and_copies(density: Density) -> None:
    x = np.array([0.1, 0.2, 0.3, 0.4])
    for copy in (pickle.loads(pickle.dumps(density)), Density(density.recipe)):
        assert copy.handle != density.handle
        assert copy.log_density(x) == density.log_density(x)


def test_copies_in_threads_agree_with_one_thread(
    density: Density, rng: np.random.Generator
) -> None:
    points = rng.standard_normal((500, 4))
    expected = density.log_densities(points)
    found: dict[int, np.ndarray] = {}

    def evaluate(k: int, copy: Density) -> None:
        found[k] = copy.log_densities(points)

    copies = [Density(density.recipe) for _ in range(4)]
    threads = [threading.Thread(target=evaluate, args=task) for task in enumerate(copies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[k], expected) for k in range(4))


def test_points_that_take_long_are_shared_out_among_threads(
    density: Density, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread has a handle of its own, and rows do not depend on who computed them."""
    points = rng.normal(size=(7, density.dimension))
    alone = *density.log_density_gradients(points), density.log_densities(points)
    own = Density(density.recipe)
    handles: set[int] = set()
    for name in ("gradients_at", "densities_at"):
        loop = getattr(densities, name)

        def seen(call: Any, handle: int, *arrays: np.ndarray, loop: Any = loop) -> None:
            handles.add(handle)
            loop(call, handle, *arrays)

        monkeypatch.setattr(densities, name, seen)
    for at_once, least, count in ((1, 0.0, 1), (3, 1e9, 1), (3, 0.0, 3), (9, 0.0, 7)):
        own.at_once = at_once
        monkeypatch.setattr(densities, "LONG", least)
        handles.clear()
        found = *own.log_density_gradients(points), own.log_densities(points)
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_array_equal(one, other)
        assert len(handles) <= count and (len(handles) > 1) == (count > 1)
    assert own.log_densities(points[:0]).shape == (0,)


def test_a_further_call_does_not_look_for_machine_code(
    density: Density, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take half a millisecond each time, in which no other thread gets on."""
    points = np.zeros((3, density.dimension))
    calls = [density.log_densities, density.log_density_gradients, density.there_and_back]
    for call in calls:
        call(points)
    for name in ("gradients_at", "densities_at", "variables_at"):
        monkeypatch.setattr(getattr(densities, name), "compile", None)
    for call in calls:
        call(points)


def test_compiled_code_calls_the_address(density: Density) -> None:
    """numba calls the C function without the interpreter, as compiled kernels will."""
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool,
                                 *[ctypes.c_void_p] * 4)  # fmt: skip
    function = signature(density.address)

    @numba.njit(nogil=True)
    def descend(call, handle, x):  # gradient ascent, to show that the pointer works in a loop
        value, gradient, error = np.empty(1), np.empty(x.size), np.zeros(1, np.int64)
        for _ in range(3):
            call(handle, True, True, x.ctypes.data, value.ctypes.data, gradient.ctypes.data,
                 error.ctypes.data)  # fmt: skip
            x = x + 0.01 * gradient
        return value[0], gradient

    value, gradient = descend(function, density.handle, np.zeros(4))
    x, expected = np.zeros(4), (np.nan, np.zeros(4))
    for _ in range(3):
        expected = density.log_density_gradient(x)
        x = x + 0.01 * expected[1]
    assert value + density.constant == expected[0]
    assert np.array_equal(gradient, expected[1])


def test_a_rejected_point_is_data_not_an_exception() -> None:
    source = """
    parameters { real x; }
    model { if (x > 1) reject("too far"); x ~ normal(0, 1); }
    """
    density = Density(Recipe(source, "{}"))
    assert density.log_density(np.array([2.0])) == -np.inf
    value, gradient = density.log_density_gradient(np.array([2.0]))
    assert value == -np.inf and np.array_equal(gradient, [0.0])
    assert np.isfinite(density.log_density(np.array([0.5])))


def test_variables_of_one_point() -> None:
    density = target_of("parameters { real a; vector[2] b; } model { a ~ std_normal(); }").density
    found = density.variables(np.array([1.0, 2.0, 3.0]), seed=1)
    assert found["a"].shape == () and found["b"].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    "statement",
    [
        "y[n] ~ normal(m[j] + x[n], 1);",
        "target += normal_lpdf(y[n] | m[j] + x[n], 1);",
        "y[n] ~ normal(m[j], exp(x[n]));",
        "y[n] ~ normal(0.5 * m[j] * x[n], 2);",
        "real w = m[j] * x[n]; y[n] ~ normal(w, 1);",
        "if (x[n] < 1) y[n] ~ normal(m[j] + x[n], 1);",
    ],
)
@pytest.mark.parametrize("outer", ["n", "j"])
def test_every_term_of_a_loop_in_a_loop_counts(statement: str, outer: str) -> None:
    loops = ["for (n in 1:4)", "for (j in 1:3)"]
    first, second = loops if outer == "n" else reversed(loops)
    program = f"""
    data {{ vector[4] x; vector[4] y; }}
    parameters {{ vector[3] m; }}
    model {{ m ~ normal(0, 2); {first} {{ {second} {{ {statement} }} }} }}
    """
    x, y, m = np.array([0.5, -1, 2, 0.3]), np.array([1, 0, -1, 2.0]), np.array([0.1, 0.7, -0.4])
    place, scale = np.add.outer(x, m), np.ones((4, 3))
    if "exp" in statement:
        place, scale = np.broadcast_to(m, (4, 3)), np.exp(x)[:, None]
    elif "*" in statement:
        place = np.outer(x, m) * (0.5 if "0.5" in statement else 1)
        scale = scale * (2 if "0.5" in statement else 1)
    kept = x < 1 if "if" in statement else np.full(4, True)
    terms = norm.logpdf(y[:, None], place, scale)[kept]
    exact = norm.logpdf(m, 0, 2).sum() + terms.sum()
    density = target_of(program, {"x": x, "y": y}).density
    assert density.log_density(m) == pytest.approx(exact, abs=1e-10)
