"""Gaussians that are interpolated between places of a few outer coordinates."""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array
from stanct.path.conditional import Slices
from stanct.path.narrowed import Frame, narrowed
from stanct.path.smooth import Smooth, interpolated

SIZE = 60
LOADS = np.random.default_rng(5).standard_normal((SIZE, 3)) * [20.0, 3.0, 0.3]
DATA = np.random.default_rng(6).standard_normal(3)
FRAME = Frame(np.zeros(SIZE), np.ones(SIZE), np.linalg.qr(LOADS)[0])


def _gradients(x: Array) -> tuple[Array, Array]:
    """A regression with the log of a height and of a noise: N(data; height · loadsᵀ x, noise)."""
    height, noise, inner = np.exp(x[:, :1]), np.exp(x[:, 1:2]), x[:, 2:]
    left = (DATA - height * (inner @ LOADS)) / noise
    values = -0.5 * (np.square(left).sum(axis=1) + np.square(inner).sum(axis=1))
    slopes = (height / noise * left) @ LOADS.T - inner
    return values, np.concatenate([np.zeros((len(x), 2)), slopes], axis=1)


def _smooth() -> tuple[Smooth, Slices]:
    slices = Slices(_gradients, np.arange(SIZE + 2) < 2)
    nodes = np.stack(np.meshgrid(*[np.linspace(-2, 2, 6)] * 2), axis=-1).reshape(-1, 2)
    unit = np.diag([0.2, 0.1])
    known = [narrowed(slices, unit @ u, FRAME) for u in nodes]
    return Smooth.of(FRAME, (np.zeros(2), unit), nodes, known), slices


def test_gaussians_between_nodes_are_those_that_newton_would_find() -> None:
    smooth, slices = _smooth()
    theta = np.random.default_rng(7).uniform([-0.4, -0.2], [0.4, 0.2], size=(50, 2))
    noise = np.random.default_rng(8).standard_normal((50, SIZE))
    for batch, found in smooth.massed(slices, theta):
        x, log_q = found.made(noise[batch])
        assert np.allclose(found.log_density(x), log_q, atol=1e-8)
        for n, place in enumerate(theta[batch]):
            exact = narrowed(slices, place, FRAME)
            assert abs(found.log_mass[n] - exact.log_mass) < 1e-3
            assert abs(log_q[n] - exact.log_density(x[n : n + 1])[0]) < 0.05


def test_each_gaussian_depends_on_its_own_place_alone() -> None:
    smooth, _ = _smooth()
    theta = 0.1 * np.random.default_rng(9).standard_normal((40, 2))
    noise = np.random.default_rng(10).standard_normal((40, SIZE))
    together = np.concatenate([found.made(noise[batch])[0] for batch, found in smooth.at(theta)])
    for n in (0, 31, 39):
        ((_, alone),) = smooth.at(theta[n : n + 1])
        assert np.array_equal(alone.made(noise[n : n + 1])[0][0], together[n])


def test_beyond_the_nodes_are_the_gaussians_of_the_edge() -> None:
    smooth, _ = _smooth()
    edge = np.array([[0.4, 0.2]])
    ((_, near),), ((_, far),) = smooth.at(edge), smooth.at(100 * edge)
    assert np.allclose(near.logs, far.logs) and np.allclose(near.mean, far.mean)


def test_quadratics_are_interpolated_exactly() -> None:
    rng = np.random.default_rng(11)
    nodes, u = rng.standard_normal((20, 3)), rng.standard_normal((5, 3))

    def quadratic(x: Array) -> Array:
        return 2 - x[:, 0] + x[:, 1] * x[:, 2] - 3 * x[:, 2] ** 2

    assert np.allclose(interpolated(nodes, quadratic(nodes), u), quadratic(u))
