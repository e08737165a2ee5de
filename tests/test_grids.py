"""Products of pairs: densities on grids, and what is exact about them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from conftest import target_of
from scipy import stats
from scipy.special import logsumexp

import stanct
from stanct.bases.ascents import Counted, Optimum, climb
from stanct.bases.fits import FittedBase
from stanct.bases.products import Products
from stanct.common.errors import SamplingError
from stanct.path.base import base_from_arrays
from stanct.path.grids import GridsBase
from stanct.samplers import auto

# Coordinates 2 and 0 are a pair, and 1 is alone.
COVARIANCE = np.array([[1.0, 0.8], [0.8, 2.0]])
PAIRS = """
data { int n; vector[n] tilt; real pull; }
parameters { vector[n] x; vector[n] y; real z; }
model {
  target += dot_product(tilt, x) + sum(4 * square(x) - square(square(x)));
  target += sum(2 * square(y) - square(square(y))) + pull * dot_product(x, y);
  z ~ normal(1, 3);
}
"""
PAIR = cast(Any, stats.multivariate_normal)(np.zeros(2), COVARIANCE)
# x and y are a pair each, or x, y and z are three that are coupled.
COUPLED = """
data { real with_z; }
parameters { vector[2] x; vector[2] y; vector[2] z; }
model {
  target += sum(4 * square(x) - square(square(x)) + 4 * square(y) - square(square(y)));
  target += dot_product(x, y) + with_z * dot_product(y, z);
  z ~ std_normal();
}
"""


@pytest.fixture(scope="module")
def made() -> tuple[GridsBase, float]:
    """The base of a normal pair and a normal, and the log of the mass of e³ times its density."""
    u, v = np.linspace(-8, 8, 161), np.linspace(-11, 11, 201)
    at = np.stack(np.meshgrid(u, v, indexing="ij"), axis=-1)
    pair = PAIR.logpdf(at)
    w = np.linspace(-16, 20, 181)
    alone = stats.norm.logpdf(w, 2, 2)[:, None]
    return GridsBase.of(np.array([[2, 0], [1, -1]]), [(u, v), (w, np.zeros(1))], [pair, alone + 3])


def density(x: np.ndarray) -> np.ndarray:
    pair = PAIR.logpdf(x[:, [2, 0]])
    return pair + stats.norm.logpdf(x[:, 1], 2, 2)


def test_draws_densities_and_normals_agree(made: tuple[GridsBase, float]) -> None:
    base, log_mass = made
    assert log_mass == pytest.approx(3, abs=1e-6)
    z = base.draw(np.random.default_rng(1), 20_000)
    x = base.unwhiten(z)
    off = base.log_density(x) - density(x)
    assert np.quantile(np.abs(off), 0.99) < 0.06
    # The weights of exact draws have mean one where a density is normalised.
    exact = np.random.default_rng(2).multivariate_normal([0, 0], COVARIANCE, 20_000)
    alone = np.random.default_rng(3).normal(2, 2, 20_000)
    points = np.column_stack([exact[:, 1], alone, exact[:, 0]])
    assert np.exp(density(x) - base.log_density(x)).mean() == pytest.approx(1, abs=1e-3)
    assert np.exp(base.log_density(points) - density(points)).mean() == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(base.delta(z, np.zeros(len(z))), base.log_density(x))
    normals = base.standardised(z)
    for column in normals.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    np.testing.assert_allclose(np.corrcoef(normals.T), np.eye(3), atol=0.03)
    np.testing.assert_allclose(np.cov(x.T)[0, 2], 0.8, atol=0.06)
    np.testing.assert_allclose(base.covariance[[0, 1, 2], [0, 1, 2]], [2, 4, 1], rtol=0.02)
    assert base.covariance[0, 2] == pytest.approx(0.8, rel=0.02)


def test_nothing_is_outside_of_the_grids(made: tuple[GridsBase, float]) -> None:
    outside = np.array([[0, 0, 8.01], [11.5, 0, 0], [0, -17, 0], [0, 0, -8.01]])
    assert np.all(made[0].log_density(outside) == -np.inf)
    assert np.isfinite(made[0].log_density(np.array([11.0, 20.0, 8.0])))


def test_it_is_restored_and_refuses_what_it_cannot(made: tuple[GridsBase, float]) -> None:
    base = made[0]
    restored = base_from_arrays(base.arrays())
    assert isinstance(restored, GridsBase)
    x = base.unwhiten(base.draw(np.random.default_rng(2), 3))
    np.testing.assert_array_equal(restored.log_density(x), base.log_density(x))
    for refused in (lambda: base.components, base.dense):
        with pytest.raises(SamplingError, match="GridsBase"):
            refused()


def test_a_thousand_modes_of_five_pairs() -> None:
    tilt, pull = np.array([0.5, -0.3, 0.0, 0.2, -0.6]), 0.7
    u = np.linspace(-5, 5, 1001)
    own = 4 * u**2 - u**4, 2 * u**2 - u**4
    each = own[0][:, None] + own[1] + pull * u[:, None] * u
    each = tilt[:, None, None] * u[:, None] + each
    exact = logsumexp(each, axis=(1, 2)) + 2 * np.log(u[1] - u[0])
    data = {"n": 5, "tilt": tilt.tolist(), "pull": pull}
    run = stanct.temper(PAIRS).sample(data, seed=1, progress=False)
    assert abs(run.evidence.log_z - exact.sum()) < 0.01
    assert run.evidence.std_error < 0.004
    assert run.gradients < 40_000
    assert not run.warnings and isinstance(run.base, GridsBase)
    y = np.exp(each[0] - logsumexp(each[0])).sum(axis=0) @ u
    assert run.expect(lambda v: v["y"][..., 0]).value == pytest.approx(y, abs=0.05)


@pytest.mark.parametrize("with_z", [0.0, 0.1])
def test_blocks_are_coupled_coordinates(with_z: float, rng: np.random.Generator) -> None:
    counted = Counted(target_of(COUPLED, {"with_z": with_z}).density)
    modes = list[Optimum]()
    for start in rng.normal(0, 2, (10, 6)):
        climb(counted, start, modes)
    blocks = Products().blocks(modes).tolist()
    assert blocks == ([] if with_z else [[0, 2], [1, 3], [4, -1], [5, -1]])


def test_a_product_is_drawn_longer_and_not_tempered(made: tuple[GridsBase, float]) -> None:
    """Only independent draws of it are to be had."""
    start, first = FittedBase(*made), auto._Step(auto._INDEPENDENT, 100, "")
    longer = auto._next(first, "a check failed", start, 100, 9.0)
    assert longer is not None and longer.again and longer.draws > 100
    assert isinstance(longer.method, stanct.Independence)
    assert auto._next(longer, "a check failed", start, 100, 9.0) is None
