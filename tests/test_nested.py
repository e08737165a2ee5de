"""A base in two stages: what it finds, what it refuses, and that its density is its draws'."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest
from states import STATES, log_z_of_states, states

import stanct
from stanct.arrays import Array, even_share
from stanct.bases import nested
from stanct.bases.incremental import incremental_mixture, largest_of
from stanct.errors import SamplingError
from stanct.path.base import base_from_arrays
from stanct.path.conditional import Conditional, Slices
from stanct.path.gaussian import GaussianBase
from stanct.path.nested import NestedBase

# Given tau, all is Gaussian but for a second mode, which the data do not rule out.
TWO_MODES = """
parameters { real<lower=0> tau; vector[3] x; }
model {
  target += exponential_lpdf(tau | 1);
  target += log_sum_exp(log(.5) + normal_lpdf(x | 0, tau), log(.5) + normal_lpdf(x | 40, 1));
}
"""


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, nested.Nested, float]:
    y = states(3, 12)
    target = stanct.temper(STATES).target({"T": 12, "y": y})
    rng = np.random.default_rng(0)
    x = y + 0.2 * rng.normal(size=(300, 12))
    scales = rng.normal([0.6, -0.7, -0.9], 0.5, (300, 3))
    found = nested.find_nested(target, np.column_stack([scales, x]), np.random.SeedSequence(1))
    return target, found, log_z_of_states(y)


def lent(target: Any, found: nested.Nested) -> NestedBase:
    assert found.base is not None
    return dataclasses.replace(found.base, lend=target.density.borrow)


def test_finds_the_parameters_given_which_the_states_are_gaussian(fitted: Any) -> None:
    target, found, log_z = fitted
    assert found.outer == ("phi", "sg", "tau")
    base = lent(target, found)
    made = base.valued(np.random.default_rng(2), 4000)
    log_weights = target.density.log_densities(base.unwhiten(made.z)) - made.log_density
    share = np.exp(log_weights - log_z)
    error = share.std() / np.sqrt(share.size)
    assert error < 0.02
    assert abs(share.mean() - 1) < 4 * error
    assert even_share(log_weights) > 0.5
    assert largest_of(log_weights) < 30


def test_density_is_that_of_the_draws(fitted: Any) -> None:
    target, found, _ = fitted
    base = lent(target, found)
    made = base.valued(np.random.default_rng(5), 50)
    x = base.unwhiten(made.z)
    np.testing.assert_allclose(base.log_density(x), made.log_density, rtol=1e-5, atol=1e-5)
    log_target = target.density.log_densities(x)
    np.testing.assert_allclose(
        base.delta(made.z, log_target), made.log_density - log_target, atol=1e-4
    )
    assert made.gradients == pytest.approx(50 * base.gradients, rel=0.2)
    outer = base.standardised(base.draw(np.random.default_rng(6), 2000))
    assert outer.shape == (2000, 3)
    assert kstest(outer[:, 1], "norm").pvalue > 1e-3


def test_base_is_restored_without_its_program(fitted: Any) -> None:
    target, found, _ = fitted
    base = lent(target, found)
    restored = base_from_arrays(base.arrays())
    assert isinstance(restored, NestedBase)
    z = base.draw(np.random.default_rng(7), 3)
    np.testing.assert_array_equal(restored.unwhiten(z), base.unwhiten(z))
    with pytest.raises(SamplingError, match="no program to draw with"):
        restored.draw(np.random.default_rng(7), 3)
    again = dataclasses.replace(restored, lend=target.density.borrow)
    np.testing.assert_array_equal(again.draw(np.random.default_rng(7), 3), z)
    for refused in (lambda: base.components, base.dense):
        with pytest.raises(SamplingError, match="nested base"):
            refused()


def test_a_base_that_misses_a_mode_of_the_pilots_is_refused() -> None:
    target = stanct.temper(TWO_MODES).target()
    rng = np.random.default_rng(0)
    near = np.column_stack([rng.normal(-0.3, 0.5, 200), rng.normal(0, 0.7, (200, 3))])
    seed = np.random.SeedSequence(1)
    alone = nested.find_nested(target, near, seed)
    assert alone.base is not None
    assert alone.outer == ("tau",)
    far = np.column_stack([rng.normal(-0.3, 0.5, 200), rng.normal(40, 1, (200, 3))])
    assert nested.find_nested(target, np.concatenate([near, far[:20]]), seed).base is None


@pytest.mark.parametrize(
    "program",
    [
        "parameters { vector[4] x; } model { target += student_t_lpdf(x | 2, 0, 1); }",
        "parameters { vector[4] x; } model { target += std_normal_lpdf(x); }",
        "parameters { vector[3] x; } model { target += -sum(square(square(x))); }",
    ],
)
def test_no_base_where_nothing_else_is_gaussian(program: str) -> None:
    target = stanct.temper(program).target()
    dimension = target.density.dimension
    points = np.random.default_rng(0).normal(size=(200, dimension))
    assert nested.find_nested(target, points, np.random.SeedSequence(1)).base is None


def test_slow_densities_are_left_alone() -> None:
    target = stanct.temper(STATES).target({"T": 12, "y": states(3, 12)})
    points = np.random.default_rng(0).normal(size=(200, 15))
    found = nested.find_nested(target, points, np.random.SeedSequence(1), effort=0.01)
    assert found == nested.Nested()


def test_conditional_gaussian_from_a_start_that_is_far_off() -> None:
    scale = 1e-3
    precision = np.array([[2.0, 1.0], [1.0, 3.0]])

    def gradients(points: Array) -> tuple[Array, Array]:
        offset = (points[:, 1:] - points[:, :1]) / scale
        slopes = -offset @ precision / scale
        values = -0.5 * np.einsum("ij,jk,ik->i", offset, precision, offset)
        return values, np.column_stack([-slopes.sum(axis=1), slopes])

    slices = Slices(gradients, np.array([True, False, False]))
    wide = Conditional(np.full(2, 50.0), 10 * np.eye(2), 2 * np.log(10), -np.inf)
    found = slices.at(np.array([7.0]), wide)
    np.testing.assert_allclose(found.mean, [7, 7], rtol=1e-9)
    np.testing.assert_allclose(
        found.root @ found.root.T / scale**2, np.linalg.inv(precision), rtol=1e-6
    )
    exact = np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(precision)) + 2 * np.log(scale)
    assert found.log_mass == pytest.approx(exact, abs=1e-6)
    noise = np.array([0.3, -1.2])
    np.testing.assert_allclose(found.noise(found.mean + found.root @ noise), noise, atol=1e-6)


def test_mixture_follows_a_neck_and_two_modes() -> None:
    def log_densities(points: Array) -> Array:
        v, x = points.T
        arm = -v - np.exp(-v) - 0.5 * (x / 2) ** 2 - np.log(2) - 0.5 * np.log(2 * np.pi)
        spot = GaussianBase(np.array([6.0, 5.0]), 0.3 * np.eye(2)).log_density(points)
        return np.logaddexp(np.log(0.8) + arm, np.log(0.2) + spot)

    rng = np.random.default_rng(0)
    mixture = incremental_mixture(log_densities, np.zeros(2), 4 * np.eye(2), rng)
    points = mixture.unwhiten(mixture.draw(rng, 20_000))
    log_weights = log_densities(points) - mixture.log_density(points)
    share = np.exp(log_weights)
    assert even_share(log_weights) > 0.5
    assert abs(share.mean() - 1) < 4 * share.std() / np.sqrt(share.size)
    in_spot = np.linalg.norm(points - [6, 5], axis=1) < 1.5
    assert (share * in_spot).mean() == pytest.approx(0.2, abs=0.02)


def test_a_target_that_vanishes_has_no_mixture() -> None:
    def nowhere(points: Array) -> Array:
        return np.full(len(points), -np.inf)

    with pytest.raises(SamplingError, match="vanishes at all points"):
        incremental_mixture(nowhere, np.zeros(1), np.eye(1), np.random.default_rng(0))


def test_default_draws_in_two_stages(tmp_path: Path) -> None:
    y = states(8, 15)
    log_z = log_z_of_states(y)
    run: Any = stanct.temper(STATES).sample(
        {"T": 15, "y": y}, seed=4, engine="embedded", progress=False
    )
    (step,) = run.provenance["steps"]
    assert step["because"] == "all other parameters are Gaussian given phi, sg, tau"
    assert run.warnings == ()
    assert run.evidence.std_error < 0.02
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error
    run.save(tmp_path / "run")
    loaded: Any = stanct.load(tmp_path / "run")
    assert loaded.evidence == run.evidence
    assert isinstance(loaded.base, NestedBase)
    longer = loaded.extend(200, progress=False)
    assert longer.draws == run.draws + 200
    assert abs(longer.evidence.log_z - log_z) < 4 * longer.evidence.std_error
    assert longer.gradients > run.gradients
