"""Products of single coordinates: thousands of modes, two for each, and exact answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import target_of
from scipy import stats

import stanct
from stanct.bases.fits import explored
from stanct.bases.recipes import recipe
from stanct.common.errors import SamplingError
from stanct.engines.embedded import Nuts
from stanct.path.base import base_from_arrays
from stanct.path.product import ProductBase
from stanct.path.profiles import profiles

WELLS = """
data { int n; vector[n] tilt; }
parameters { vector[n] x; vector[n] y; }
model { target += dot_product(tilt, x) + sum(4 * square(x) - square(square(x))); y ~ std_normal(); }
"""
TILT = [0.5, -0.3, 0.0, 0.2, -0.6, 0.1, 0.4, 0.0, -0.1, 0.3]

# Four Gaussians whose weights are not those of a product, though they hardly overlap.
CORNERS = """
data { array[4] vector[2] at; vector[4] weight; }
parameters { vector[2] x; }
model {
  vector[4] each;
  for (k in 1:4) each[k] = log(weight[k]) + normal_lpdf(x | at[k], 1);
  target += log_sum_exp(each);
}
"""
AT = [[-9, -9], [-9, 9], [9, -9], [9, 9]]


def exact() -> float:
    """log Z of `WELLS` by the trapezoidal rule."""
    x = np.linspace(-5, 5, 20001)[:, None]
    mass = np.exp(x * TILT + 4 * x**2 - x**4).sum(axis=0) * (x[1] - x[0])
    return float(np.log(mass).sum())


@pytest.fixture(scope="module")
def base() -> ProductBase:
    """The base of a normal and a mixture of two."""

    def slopes(_: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = -0.5 * x[:, 0] ** 2 + np.logaddexp(-2 * (x[:, 1] - 5) ** 2, -2 * (x[:, 1] + 5) ** 2)
        near = 1 / (1 + np.exp(-40 * x[:, 1]))
        other = -4 * (x[:, 1] - 5) * near - 4 * (x[:, 1] + 5) * (1 - near)
        return value, np.column_stack([-x[:, 0], other])

    found = profiles(slopes, np.zeros((1, 0)), np.zeros(2), np.array([1.0, 4.0]), fine=0.01)
    return ProductBase.of(found)


def test_draws_densities_and_normals_agree(base: ProductBase) -> None:
    z = base.draw(np.random.default_rng(1), 20_000)
    x = base.unwhiten(z)
    halves = stats.norm.pdf(x[:, 1], 5, 0.5) + stats.norm.pdf(x[:, 1], -5, 0.5)
    expected = stats.norm.logpdf(x[:, 0]) + np.log(halves / 2)
    np.testing.assert_allclose(base.log_density(x), expected, atol=0.02)
    np.testing.assert_allclose(base.delta(z, np.zeros(len(z))), base.log_density(x))
    assert abs((x[:, 1] > 0).mean() - 0.5) < 0.02
    for column in base.standardised(z).T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    np.testing.assert_allclose(base.covariance, np.diag([1, 25.25]), atol=0.02, rtol=0.01)


def test_it_is_restored_and_refuses_what_it_cannot(base: ProductBase) -> None:
    restored = base_from_arrays(base.arrays())
    z = base.draw(np.random.default_rng(2), 3)
    np.testing.assert_array_equal(
        restored.log_density(base.unwhiten(z)), base.log_density(base.unwhiten(z))
    )
    for refused in (lambda: base.components, base.dense):
        with pytest.raises(SamplingError, match="ProductBase"):
            refused()


def test_a_thousand_modes_of_ten_wells() -> None:
    model = stanct.temper(WELLS)
    for seed in (1, 2):
        run = model.sample({"n": len(TILT), "tilt": TILT}, seed=seed, progress=False)
        assert abs(run.evidence.log_z - exact()) < 0.01
        assert run.evidence.std_error < 0.005
        assert run.gradients < 60_000
        assert not run.warnings
        assert isinstance(run.base, ProductBase)
        assert "products" in set(run.steps["step"])


@pytest.mark.parametrize("weights", [(0.4, 0.1, 0.1, 0.4), (0.06, 0.24, 0.14, 0.56)])
def test_weights_tell_whether_modes_make_a_product(weights: tuple[float, ...]) -> None:
    target = target_of(CORNERS, {"at": AT, "weight": list(weights)})
    state = explored(target, recipe(), chains=2, seed=np.random.SeedSequence(3), nuts=Nuts())
    base, log_zeta = state.base()
    is_product = weights[0] * weights[3] == pytest.approx(weights[1] * weights[2])
    assert isinstance(base, ProductBase) == is_product
    assert abs(log_zeta) < 0.05
