"""Second derivatives by colouring, and the Gaussians of slices that are found with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanct
from stanct.bases import nested
from stanct.common.arrays import Array
from stanct.path.conditional import Conditionals, Slices
from stanct.path.curvature import Colouring, hessian

RADON = Path(__file__).parent.parent / "examples/radon"


def arrow(n: int) -> Array:
    """The first coordinate is coupled with all others."""
    matrix = np.eye(n)
    matrix[0] = matrix[:, 0] = 1
    return matrix


def chain(n: int, reach: int = 1) -> Array:
    """Each coordinate is coupled with those up to a distance."""
    place = np.arange(n)
    return (np.abs(place[:, None] - place) <= reach).astype(float)


def shuffled(matrix: Array) -> Array:
    """The same couplings of coordinates in another order."""
    order = np.random.default_rng(1).permutation(len(matrix))
    return matrix[np.ix_(order, order)]


def precision_like(pattern: Array, seed: int) -> Array:
    """A positive definite matrix with this pattern, in units of very different sizes."""
    rng = np.random.default_rng(seed)
    noise = np.tril(rng.normal(size=pattern.shape) * pattern, -1)
    matrix = noise + noise.T
    matrix += np.diag(np.abs(matrix).sum(axis=1) + rng.exponential(size=len(matrix)) + 0.1)
    units = 10 ** rng.uniform(-3, 3, len(matrix))
    return matrix / np.outer(units, units)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        (arrow(50), 2),
        (chain(50), 3),
        (chain(50, reach=2), 6),
        (shuffled(chain(60)), 4),
        (shuffled(chain(60, reach=2)), 9),
        (np.kron(np.eye(12), np.ones((4, 4))), 4),
        (np.eye(9), 1),
        (np.ones((9, 9)), 9),
        (np.maximum(np.kron(np.eye(2), arrow(20)), np.roll(np.eye(40), 20, axis=1)), 4),
    ],
)
def test_each_element_is_read_where_nothing_else_moves_it(pattern: Array, most: int) -> None:
    """Random matrices with the pattern, exact to rounding: each element is read on its own."""
    pattern = np.maximum(pattern, pattern.T)
    colouring = Colouring.of(pattern > 0)
    assert colouring.colours.max() + 1 <= most
    np.testing.assert_array_equal(colouring.shares + colouring.shares.T, pattern)
    for seed in range(3):
        matrix = precision_like(pattern, seed)
        units = 1 / np.sqrt(np.diag(matrix))

        def gradients(points: Array, matrix: Array = matrix) -> tuple[Array, Array]:
            return np.zeros(len(points)), points @ matrix

        points = units * np.random.default_rng(seed).normal(size=(2, len(units)))
        found = colouring.second_derivatives(
            gradients, points, gradients(points)[1], np.tile(units, (2, 1))
        )
        exact = np.broadcast_to(matrix * np.outer(units, units), found.shape)
        np.testing.assert_allclose(found, exact, atol=1e-10)


def test_curvatures_as_far_away_as_numbers_reach_warn_of_nothing() -> None:
    """The suite makes errors of warnings."""
    far = np.array([1e200, 1.0])
    assert hessian(lambda x: (np.zeros(len(x)), np.zeros_like(x)), far).tolist() == [[0, 0], [0, 0]]


def test_no_second_derivatives_where_the_density_is_not_finite() -> None:
    def gradients(points: Array) -> tuple[Array, Array]:
        return np.where(points[:, 0] > 0, -np.inf, 0.0), np.zeros_like(points)

    points = np.array([[-1.0, 0.0], [-0.0005, 0.0]])
    found = Colouring.dense(2).second_derivatives(
        gradients, points, np.zeros_like(points), np.ones_like(points)
    )
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1]).all()


def gaussians(slices: Slices, theta: Array, starts: tuple[Array, Array], how: Any) -> Conditionals:
    """The Gaussians at all places, whatever batches they are found in."""
    found = [given for _, given in slices.gaussians(theta, *starts, how)]
    return Conditionals(*(np.concatenate(each) for each in zip(*found, strict=True)))


@pytest.mark.parametrize("pattern", [arrow(30), chain(30)])
def test_a_gaussian_of_many_scales_is_found_exactly(pattern: Array) -> None:
    precision = precision_like(pattern, 4)
    n = len(precision)

    def log_densities(points: Array) -> tuple[Array, Array]:
        # The scale of all inner coordinates is exp(θ), and their mean is θ.
        theta, offset = points[:, :1], points[:, 1:] - points[:, :1]
        slopes = -offset @ precision * np.exp(-2 * theta)
        return 0.5 * (offset * slopes).sum(axis=1), np.column_stack([theta, slopes])

    slices = Slices(log_densities, np.arange(n + 1) == 0)
    theta = np.linspace(-8, 3, 23)[:, None]
    spread = np.sqrt(np.diag(np.linalg.inv(precision)))
    starts = np.full((23, n), 0.3), np.tile(2 * spread, (23, 1))
    found = gaussians(slices, theta, starts, Colouring.of(pattern > 0))
    assert slices.spent < 23 * 2 * (4 + 2)
    np.testing.assert_allclose(found.spread, np.exp(theta) * spread, rtol=1e-5)
    assert (np.abs(found.mean - theta) < 1e-4 * found.spread).all()
    log_det = np.linalg.slogdet(precision)[1]
    exact = 0.5 * n * np.log(2 * np.pi) - 0.5 * log_det + n * theta[:, 0]
    np.testing.assert_allclose(found.log_mass, exact, atol=1e-4)
    noise = np.random.default_rng(0).normal(size=(23, n))
    inner = found.drawn(noise)
    np.testing.assert_allclose(found.noise(inner), noise, atol=1e-6)
    offset = inner - found.mean
    exponent = np.einsum("mi,ij,mj->m", offset, precision, offset) * np.exp(-2 * theta[:, 0])
    np.testing.assert_allclose(
        found.log_density(inner), -0.5 * exponent - exact, rtol=1e-6, atol=1e-3
    )


def test_a_curvature_that_is_lost_in_rounding_is_no_error() -> None:
    """Where the precision is exp(θ) in one direction, and 1 across."""

    def log_densities(points: Array) -> tuple[Array, Array]:
        inner = points[:, 1:]
        sharp = np.exp(points[:, :1]) * (inner @ [[1.0], [-0.2]]) * [1.0, -0.2]
        slopes = -inner - sharp
        return 0.5 * (inner * slopes).sum(axis=1), np.column_stack([inner[:, 0], slopes])

    slices = Slices(log_densities, np.arange(3) == 0)
    theta = np.array([0.0, *range(100, 500, 10)])[:, None]
    starts = np.full((41, 2), 0.3), np.ones((41, 2))
    found = gaussians(slices, theta, starts, Colouring.dense(2))
    assert found.is_top[0] and not found.is_top.all()
    assert found.mean[0] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert np.isfinite(found.spread).all() and np.isfinite(found.log_mass).all()


def test_radon_takes_few_gradients_and_gives_what_all_of_them_give() -> None:
    density = stanct.temper(RADON / "radon.stan").target(RADON / "radon.data.json").density
    outer = np.array(
        [name in ("sigma_alpha", "sigma_beta", "epsilon") for name in density.unconstrained_names]
    )
    rng = np.random.default_rng(0)
    points = 0.3 * rng.normal(size=(100, density.dimension))
    coupled = nested._couplings(density.log_density_gradients, points, rng)  # pyright: ignore[reportPrivateUsage]
    colouring = Colouring.of(coupled[np.ix_(~outer, ~outer)])
    assert colouring.colours.max() + 1 == 5
    theta = rng.normal([-1.5, -0.5, -0.3], 0.7, (40, 3))
    n = int((~outer).sum())
    starts = np.zeros((40, n)), np.ones((40, n))
    slices, all_of_them = (Slices(density.log_density_gradients, outer) for _ in range(2))
    found = gaussians(slices, theta, starts, colouring)
    dense = gaussians(all_of_them, theta, starts, Colouring.dense(n))
    np.testing.assert_allclose(found.log_mass, dense.log_mass, atol=1e-6)
    np.testing.assert_allclose(found.factor, dense.factor, atol=1e-5 * dense.factor.max())
    assert slices.spent <= 40 * 7 * 2
    assert all_of_them.spent >= 10 * slices.spent
    # Every Gaussian is a function of its own place and start, to the last bit.
    for batch in (1, 7):
        parts = [
            gaussians(
                slices,
                theta[k : k + batch],
                (starts[0][k : k + batch], starts[1][k : k + batch]),
                colouring,
            )
            for k in range(0, 40, batch)
        ]
        for whole, *pieces in zip(found, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_a_coupling_that_depends_on_the_place_makes_all_second_derivatives_count() -> None:
    def gradients(points: Array) -> tuple[Array, Array]:
        slopes = -points.copy()
        both = points[:, 0] > 0
        slopes[both, 1] += points[both, 2]
        slopes[both, 2] += points[both, 1]
        return np.zeros(len(points)), slopes

    signs = np.array([-1.0, 1.0])
    rng = np.random.default_rng(0)
    points = np.column_stack([np.repeat(signs, 200), rng.normal(size=(400, 3))])
    seen = {
        int(nested._couplings(gradients, points, np.random.default_rng(seed)).sum())  # pyright: ignore[reportPrivateUsage]
        for seed in range(40)
    }
    # None of the places, one of the first, or one of the further ones alone.
    assert seen == {4, 6, 16}
