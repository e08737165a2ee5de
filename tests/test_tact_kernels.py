"""The compiled pieces of TACT-HMC against finite differences and hand-made steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SEED, target_of

from stanct.common.arrays import Array
from stanct.kernels import noisy
from stanct.kernels import tact as compiled
from stanct.kernels.tact import Bias, Dynamics, Walker
from stanct.path.gaussian import GaussianBase
from stanct.samplers.tact import TACT, Coupling, Hills
from stanct.targets.batches import Batches, make_potential

COUPLING = Coupling()
SKEW = "parameters { vector[2] x; } model { x[1] ~ normal(1, 2); x[2] ~ normal(x[1]^2, 3); }"


def settings(**changes: Any) -> TACT:
    """Every setting as the tests here were worked out for, whatever the defaults."""
    known: dict[str, Any] = {
        "thin": 1, "step": 0.1, "tempering_step": 0.05, "friction": 0.1, "tempering_friction": 0.1,
        "inertia": 1.0, "tempering_inertia": 1.0, "tempering": True, "thermostat": "scalar",
        "bias": "force", "bins": 50, "hills": Hills(), "coupling": COUPLING,
        "integrator": "symmetric", "resample_every": 0, "patience": 50, "noise": (0.0, 0.0),
    }  # fmt: skip
    return TACT(**{**known, **changes})


def dynamics(**changes: Any) -> Dynamics:
    return settings(**changes).dynamics(learn=True, offset=0.0)


def empty_bias(bins: int = 50) -> Bias:
    return Bias(*np.zeros((4, bins)))


def skew_potential() -> tuple[noisy.Potential, Batches]:
    batches = Batches((target_of(SKEW).density,), np.ones(1))
    base = GaussianBase(np.array([0.5, -1.0]), np.array([[1.5, 0.0], [-0.7, 0.4]]))
    potential = make_potential(batches, base.mean, base.scale, batches.corrections(), (0.0, 0.0))
    return potential, batches


def coupled(xi: float) -> tuple[float, float]:
    return compiled.coupling(xi, COUPLING.plateau, COUPLING.reach, COUPLING.power)


def test_coupling_has_the_published_values() -> None:
    """T = 1 on the plateau, 2 at ξ₁, 9 at the wall, the same on both sides."""
    assert coupled(0.0) == coupled(-1 / 3) == (1.0, 0.0)
    assert 1 / coupled(1.0)[0] == pytest.approx(2)
    assert 1 / coupled(-5 / 3)[0] == pytest.approx(9) == COUPLING.hottest


@pytest.mark.parametrize("xi", [-1.6, -0.9, -0.4, 0.2, 0.34, 0.7, 1.3])
def test_slope_of_the_coupling(xi: float) -> None:
    h = 1e-6
    slope = (coupled(xi + h)[0] - coupled(xi - h)[0]) / (2 * h)
    assert coupled(xi)[1] == pytest.approx(slope, abs=1e-8)


def test_whitened_gradient_is_the_slope_of_the_energy() -> None:
    potential, _ = skew_potential()
    rng, reading = np.random.default_rng(SEED), noisy.make_reading(2)

    def energy(z: Array) -> float:
        assert noisy.energy_at(potential, z, rng, reading)
        return float(reading.value[0])

    z, h = np.array([0.3, -0.8]), 1e-5
    slopes = [(energy(z + h * e) - energy(z - h * e)) / (2 * h) for e in np.eye(2)]
    energy(z)
    assert reading.rows[0] == pytest.approx(np.array(slopes), rel=1e-6)


def test_biasing_force_averages_over_a_bins_own_visits() -> None:
    """The erratum: not over all steps so far. Bins of ξ and −ξ are one."""
    bias, force = empty_bias(), dynamics()
    compiled.teach(bias, 1.2, 100.0, force)
    for energy in (1.0, 2.0, 6.0):
        compiled.teach(bias, -0.7, energy, force)
    slope = coupled(0.7)[1]
    assert compiled.push(bias, 0.7, slope, force) == pytest.approx(slope * 3.0)
    assert compiled.push(bias, -0.7, -slope, force) == pytest.approx(-slope * 3.0)
    assert compiled.push(bias, 0.1, 0.0, force) == 0.0


def test_hills_push_down_their_slope() -> None:
    """The force is minus the slope of the height, and odd; both walls mirror."""
    bins = 800
    bias, hills = empty_bias(bins), dynamics(bias="hills", bins=bins)
    for place in (0.02, -0.9, 1.62):
        compiled.teach(bias, place, 0.0, hills)
    width = COUPLING.wall / bins
    slope = np.gradient(bias.height, width)
    assert bias.force[1:-1] == pytest.approx(-slope[1:-1], abs=1e-4)
    assert np.abs(bias.force).max() > 0.1
    assert compiled.push(bias, -0.9 - 5 * width, 0.0, hills) == pytest.approx(
        -compiled.push(bias, 0.9 + 5 * width, 0.0, hills)
    )
    # Mirrored at both ends: no force on 0 or on the wall itself.
    assert abs(bias.force[0]) < 0.02 and abs(bias.force[-1]) < 0.02


def test_well_tempered_hills_shrink() -> None:
    """A second hill on a bias W has exp(−W/ΔT) of the height."""
    bias, soft = empty_bias(), dynamics(bias="hills", hills=Hills(1.0, 0.1, softening=0.5))
    compiled.teach(bias, 0.9, 0.0, soft)
    k = compiled.bias_bin(0.9, COUPLING.wall, 50)
    first = bias.height[k]
    compiled.teach(bias, 0.9, 0.0, soft)
    assert bias.height[k] / first == pytest.approx(1 + np.exp(-first / 0.5))


def test_sgld_is_one_line() -> None:
    """With friction 1 and no thermostat a published step is θ − η ∇U + √(2η) n."""
    potential, _ = skew_potential()
    z = np.array([0.3, -0.8])
    reading = noisy.make_reading(2)
    assert noisy.energy_at(potential, z, np.random.default_rng(1), reading)
    gradient = reading.rows[0].copy()
    walker = Walker(
        z.copy(), np.array([0.5, -0.2]), np.ones(1), np.array([0.0, 0.0, 0.1]),
        np.zeros(3, np.int64),
    )  # fmt: skip
    plain = dynamics(tempering=False, thermostat=None, friction=1.0, integrator="published")
    rng = np.random.Generator(np.random.PCG64(SEED))
    compiled.move(potential, walker, empty_bias(), plain, rng, reading)
    noise = np.random.Generator(np.random.PCG64(SEED)).standard_normal(2)
    assert walker.z == pytest.approx(z - 0.01 * gradient + np.sqrt(0.02) * noise)


def test_walls_are_elastic() -> None:
    potential, _ = skew_potential()
    state = np.array([1.66, 0.05, 0.0])
    walker = Walker(np.zeros(2), np.zeros(2), np.zeros(1), state, np.zeros(3, np.int64))
    free = dynamics(
        bias="force", thermostat=None, tempering_friction=0.0,
        coupling=Coupling(1.6, 100.0, 3.0, 5 / 3),
    )  # fmt: skip
    reading = noisy.make_reading(2)
    compiled.move(potential, walker, empty_bias(), free, np.random.default_rng(1), reading)
    assert state[0] == pytest.approx(2 * 5 / 3 - 1.71, abs=1e-4)
    assert state[1] == pytest.approx(-0.05, abs=1e-4)


def test_a_rejected_point_is_counted_and_left() -> None:
    target = target_of(
        'parameters { real x; } model { if (x > 1) reject("out"); x ~ normal(0, 1); }'
    )
    batches = Batches((target.density,), np.ones(1))
    potential = make_potential(
        batches, np.zeros(1), np.ones((1, 1)), batches.corrections(), (0.0, 0.0)
    )
    walker = Walker(
        np.array([1.05]), np.array([0.1]), np.zeros(1), np.zeros(3), np.zeros(3, np.int64)
    )
    reading = noisy.make_reading(1)
    compiled.move(potential, walker, empty_bias(), dynamics(), np.random.default_rng(1), reading)
    assert (walker.z[0], walker.momentum[0]) == pytest.approx((0.95, -0.1))
    assert walker.clock[1] == 1


def test_spread_between_batches() -> None:
    """Of shards whose gradients differ by known amounts, and of added noise."""
    shards = tuple(
        target_of(f"parameters {{ real x; }} model {{ target += {slope} * x; }}").density
        for slope in (-1.0, 3.0)
    )
    batches = Batches(shards, np.ones(2))
    potential = make_potential(
        batches, np.zeros(1), np.full((1, 1), 2.0), batches.corrections(), (0.0, 1.5)
    )
    out = np.zeros((2, 2))
    rng, points = np.random.default_rng(SEED), np.array([[0.0], [1.0]])
    noisy.batch_spread(potential, points, 20_000, rng, noisy.make_reading(1), out)
    # Slopes −1 and 3 with equal chances have variance 4, doubled in z; energy is slope times x.
    assert out[:, 1] == pytest.approx(16 + 2.25, rel=0.05)
    assert out[:, 0] == pytest.approx([0.0, 16.0], rel=0.05, abs=1e-12)


@pytest.mark.parametrize("integrator", ["symmetric", "published"])
def test_thermostat_means_are_those_of_first_order(integrator: str) -> None:
    """c + η V / 2, where V is weighted by the squared couplings λ and λ'."""
    noise = np.array([[4.0, 1.0, 1.0, 0.0], [1.0, 4.0, 0.6, 0.1], [9.0, 2.0, 0.2, 1.2]])
    small = settings(step=1e-3, tempering_step=2e-3, friction=2e-4, tempering_friction=1e-4,
                     integrator=integrator)  # fmt: skip
    means, errors = small.thermostat_means(noise)
    theta = (1 * 1 + 0.36 * 4 + 0.04 * 2) / 1.4
    xi = (0.01 * 1 + 1.44 * 9) / 1.45
    assert means - [2e-4, 1e-4] == pytest.approx([1e-6 * theta / 2, 4e-6 * xi / 2], rel=0.02)
    assert (errors > 0).all() and errors[0] < 1e-6


def test_thermostats_that_are_not_coupled_stay() -> None:
    noise = np.array([[4.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    means, errors = settings(step=1e-3).thermostat_means(noise)
    assert means[1] == 0.1 and errors[1] == 0
    assert errors[0] == pytest.approx(0, abs=1e-12)
