"""Heavy tails: they are found, and bases reach into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import LONG, target_of
from sampled import sampled
from scipy.stats import kstest

import stanct
from stanct.bases.local import LocalFit
from stanct.bases.tails import ALL, find_tails
from stanct.common.arrays import Array
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase
from stanct.runs.diagnostics import tails_check
from stanct.targets.density import Density

HEAVY = """
data { real nu; }
parameters { real x; vector[2] y; }
model { x ~ student_t(nu, 3, 2); y ~ multi_normal([0, 1]', [[1, .5], [.5, 2]]); }
"""
TOGETHER = """
data { real nu; }
parameters { vector[4] y; }
model { y ~ multi_student_t(nu, [0, 1, 2, 3]', identity_matrix(4)); }
"""
# Falls exponentially on one side, and faster on the other.
STEEP = "parameters { real<lower=0> s; real x; } model { s ~ cauchy(0, 1); x ~ logistic(0, 2); }"


def found_in(source: str, base: GaussianBase, **data: float) -> tuple[str, ...]:
    density = target_of(source, data).density
    fit = LocalFit(base.mean, base.covariance, 0.0, base.mean[None])
    tails = find_tails(density, density.unconstrained_names, [fit], np.random.SeedSequence(1))
    assert bool(tails.parts) == bool(tails.known["tails"])
    return tails.known["tails"]


@pytest.mark.parametrize(("nu", "along"), [(1.0, ("x",)), (3.0, ("x",)), (200.0, ())])
def test_tails_of_one_parameter(nu: float, along: tuple[str, ...]) -> None:
    covariance = np.array([[4.0, 0, 0], [0, 1, 0.5], [0, 0.5, 2]])
    base = GaussianBase.from_covariance(np.array([3.0, 0, 1]), covariance)
    assert found_in(HEAVY, base, nu=nu) == along


@pytest.mark.parametrize(("nu", "along"), [(2.0, (ALL,)), (200.0, ())])
def test_tails_of_all_parameters_together(nu: float, along: tuple[str, ...]) -> None:
    base = GaussianBase(np.arange(4.0), np.eye(4))
    assert ALL not in along or found_in(TOGETHER, base, nu=nu)[-1] == ALL
    assert along or found_in(TOGETHER, base, nu=nu) == ()


def test_exponential_tails_are_none() -> None:
    assert found_in(STEEP, GaussianBase(np.zeros(2), np.diag([1.5, 3.6]))) == ()


def test_another_known_mode_is_no_tail() -> None:
    """The line through one mode passes the other one, forty deviations away."""
    source = """
    parameters { real x; }
    model { target += log_mix(0.5, normal_lpdf(x | 0, 1), normal_lpdf(x | 40, 6)); }
    """
    density = target_of(source).density
    near, far = (
        LocalFit(np.array([place]), np.eye(1) * width**2, np.log(0.5), np.array([[place]]))
        for place, width in ((0.0, 1.0), (40.0, 6.0))
    )
    seed = np.random.SeedSequence(1)
    assert find_tails(density, ("x",), [near], seed).known["tails"] == ("x",)
    assert find_tails(density, ("x",), [near, far], seed).known["tails"] == ()


@LONG
def test_the_default_reaches_tails_and_others_say_that_they_do_not(seed: int) -> None:
    """In the Cauchy tails of two parameters, the joint method loses a tenth of the mass."""
    target = target_of("parameters { vector[2] x; } model { x ~ cauchy(1, 2); }")
    run = sampled("auto", target, seed=seed, draws=1500, progress=False)
    assert isinstance(run.base, MixtureBase) and run.is_reliable
    assert "heavy tails of x[1], x[2]" in run.provenance["steps"][0]["because"]
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.15
    inside = run.expect(lambda v: np.mean(np.abs(v["x"] - 1) < 2, axis=-1))
    assert abs(inside.value - 0.5) < 4 * inside.std_error < 0.1
    joint = sampled("joint", target, seed=seed, draws=400, engine="embedded", progress=False)
    assert "tails" in joint.warnings
    (check,) = tails_check(["a", "b", "c", "d"], False, "joint")
    assert not check.passed and "a, b, c, …" in check.message
    assert not [*tails_check([], False, "joint")]
    (check,) = tails_check(["a"], False, "simulated_tempering")
    assert check.remedy.endswith("Use base='modes'.")


def test_a_saddle_between_modes_is_no_tail() -> None:
    """Wells far apart, on the scale of their own widths, with a barrier of ten nats."""
    source = "parameters { real x; } model { target += log_sum_exp([normal_lpdf(x | 0, 1), "
    source += "normal_lpdf(x | 30, 1), normal_lpdf(x | 15, 3) - 7]); }"
    density = target_of(source).density
    fits = [LocalFit(np.array([at]), np.eye(1), -0.7, np.array([[at]])) for at in (0.0, 30.0)]
    seed = np.random.SeedSequence(1)
    assert find_tails(density, ["x"], fits, seed).known["tails"] == ()
    assert find_tails(density, ["x"], fits[:1], seed).known["tails"] == ("x",)


@pytest.mark.parametrize(
    "source",
    [
        "parameters { vector[2] x; } model { target += -2 * sum(square(square(x) - 4)); }",
        """
        parameters { vector[3] x; }
        model {
          target += log_sum_exp([
            log(0.5) + normal_lpdf(x | [0, 0, 0], 0.7),
            log(0.3) + normal_lpdf(x | [5, 4, -3], 1.6),
            log(0.2) + normal_lpdf(x | [-4, 5, 2], 1.1)
          ]);
        }
        """,
    ],
    ids=["wells", "normals"],
)
def test_wells_and_mixtures_of_normals_have_no_heavy_tails(source: str) -> None:
    run: Any = stanct.temper(source).sample(seed=1, progress=False, engine="embedded")
    assert "tails" not in run.provenance and run.warnings == ()


def test_draws_of_a_mixture_are_standard_normal_when_standardised(rng) -> None:
    wide = GaussianBase(np.array([1.0, 0]), np.array([[30.0, 0], [4, 2]]))
    base = MixtureBase.of([0.7, 0.3], [GaussianBase(np.array([-1.0, 3]), np.eye(2)), wide])
    z = base.draw(rng, 20_000)
    u = base.standardised(z)
    assert np.array_equal(u, base.standardised(z))
    for values in (u[:, 0], u[:, 1], (u[:, 0] + u[:, 1]) / np.sqrt(2)):
        assert kstest(values, "norm").pvalue > 1e-3
    assert kstest(base.standardised(z + 0.05)[:, 0], "norm").pvalue < 1e-3


def test_nothing_is_asked_beyond_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far away, an equation may take seconds to solve."""
    density = target_of("parameters { real x; } model { x ~ student_t(3, 0, 1); }", {}).density
    fit = LocalFit(np.zeros(1), np.eye(1), 0.0, np.zeros((1, 1)))
    asked, before = list[float](), Density.log_densities

    def watched(self: Density, points: Array) -> Array:
        asked.append(float(np.abs(points).max(initial=0.0)))
        return before(self, points)

    monkeypatch.setattr(Density, "log_densities", watched)
    find_tails(density, ("x",), [fit], np.random.SeedSequence(1))
    assert max(asked) > 30
    asked.clear()
    tails = find_tails(density, ("x",), [fit], np.random.SeedSequence(1), reach=20.0)
    assert 12 < max(asked) <= 20
    assert tails.parts and not np.isnan([weight for weight, _ in tails.parts]).any()
    asked.clear()  # no tail that is within reach is heavy
    tails = find_tails(density, ("x",), [fit], np.random.SeedSequence(1), reach=2.0)
    assert asked == [0.0] and not tails.parts
