"""Ridges: arms, necks and empty components are found, and bases reach along them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import LONG, target_of
from sampled import sampled
from scipy.special import logsumexp

from stanct.bases import ridges
from stanct.bases.local import LocalFit, mixture_of
from stanct.bases.loop import Proposal
from stanct.bases.ridges import Ridges, find_ridges
from stanct.bases.weights import KEPT, reweighted
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase

BANANA = """
parameters { real x; real y; }
model { x ~ normal(1, 2); y ~ normal(0.5 * square(x - 1), 0.3); }
"""
FUNNEL = (
    "parameters { real v; vector[2] x; } model { v ~ normal(0, 2); x ~ normal(0, exp(v / 2)); }"
)
CORRELATED = """
parameters { vector[3] x; }
model { x ~ multi_normal([1, 2, 3]', [[4, 1.9, 0], [1.9, 1, 0], [0, 0, 9]]); }
"""
LABELS = """
data { int n; vector[n] y; }
parameters { vector[2] mu; }
model {
  mu ~ normal(0, 5);
  for (i in 1:n)
    target += log_mix(0.5, normal_lpdf(y[i] | mu[1], 1), normal_lpdf(y[i] | mu[2], 1));
}
"""


def fit_of(mean: list[float], covariance: np.ndarray, log_evidence: float = 0.0) -> LocalFit:
    place = np.array(mean, float)
    return LocalFit(place, covariance, log_evidence, place[None])


def found(source: str, *fits: LocalFit, **data: object) -> Proposal:
    density = target_of(source, data).density
    return find_ridges(density.log_density_gradients, density.unconstrained_names, fits)


def log_weights(source: str, base: GaussianBase | MixtureBase, count: int, **data: object) -> tuple:
    """Log importance weights at draws of a base, and the draws."""
    x = base.unwhiten(base.draw(np.random.default_rng(3), count))
    return target_of(source, data).density.log_densities(x) - base.log_density(x), x


def test_a_gaussian_has_no_ridge() -> None:
    covariance = np.array([[4, 1.9, 0], [1.9, 1, 0], [0, 0, 9]])
    looked = found(CORRELATED, fit_of([1, 2, 3], covariance))
    assert not looked.known and looked.parts == ()
    assert 0 < looked.gradients < 400


def test_arms_of_a_banana_join_the_base() -> None:
    """The Gaussian of the moments has few draws in the arms, whose weights are then large."""
    fit = fit_of([1, 2], np.array([[4.0, 0], [0, 8.1]]))
    looked = found(BANANA, fit)
    assert "x" in looked.known["ridges"]
    for part in (fit, None):
        base, _ = mixture_of([fit], beside=() if part else looked.parts)
        weights, x = log_weights(BANANA, base, 20_000)
        share = np.exp(weights)
        error = share.std() / np.sqrt(share.size)
        assert abs(share.mean() - 1) < 4 * error
        assert error < (0.1 if part else 0.02)
        if not part:
            arm = share * (x[:, 1] > 8)  # |x − 1| > 4, about: 4.55 % of the mass
            assert abs(arm.mean() - 0.0455) < 4 * arm.std() / np.sqrt(share.size) + 1e-3
            assert arm.std() / np.sqrt(share.size) < 6e-3


def test_weights_of_a_mixture_come_from_its_draws() -> None:
    """The target is a mixture of the same parts with other weights, which are found up to noise.

    No weight falls below a third of what it was in each of two rounds.
    """
    parts = [GaussianBase(np.array([place, 0.0]), np.eye(2)) for place in (-4.0, 0, 4)]
    truth = MixtureBase.of([0.7, 0.05, 0.25], parts)
    base = MixtureBase.of([0.2, 0.5, 0.3], parts)
    better = reweighted(base, truth.log_density, np.random.default_rng(1))
    assert np.all(np.abs(better.weights - truth.weights) < 0.1)
    assert better.weights[1] > KEPT**2 * 0.5
    rng = np.random.default_rng(1)
    for share in (0.0, 0.005):  # of the draws inside the support
        inside = rng.random(1000) < share
        nothing = reweighted(base, lambda x, at=inside: np.where(at, 0.0, -np.inf), rng)
        assert np.array_equal(nothing.weights, base.weights)
    for one, other in zip(better.parts, parts, strict=True):
        assert np.allclose(one.mean, other.mean) and np.allclose(one.covariance, other.covariance)


def test_slices_of_a_funnel_have_its_mass() -> None:
    """Given v, the funnel is Gaussian, so that Laplace's method is exact and v's law comes out."""
    density = target_of(FUNNEL).density
    slices = ridges._Slices(
        density.log_density_gradients, fit_of([0, 0, 0], np.diag([4, 2.0, 2])), Ridges()
    )
    places = slices.places(0, 0.0)
    at = np.array([place.part.mean[0] for place in places])
    mass = np.array([place.mass for place in places])
    assert at.min() < -6 and at.max() > 6
    assert abs(mass.sum() - 1) < 0.02
    assert abs(mass @ at) < 0.05 and abs(mass @ at**2 - 4) < 0.2
    for place in places:
        spread = np.exp(place.part.mean[0] / 2)
        assert np.allclose(place.part.mean[1:] / spread, 0, atol=0.25)
        assert np.allclose(place.part.spread[1:], spread, rtol=1e-3)


@LONG
def test_a_component_without_observations_is_reached() -> None:
    """One component may take all observations. The other's mean then follows its prior.

    One percent of the mass has a third of E[μ²], exact by the sum over all allocations.
    """
    rng = np.random.default_rng(5)
    y = rng.normal(0.4, 1, 8)
    data = {"n": y.size, "y": y.tolist()}
    logs, squares = [], []
    for allocation in itertools.product((0, 1), repeat=y.size):
        members, total = np.array(allocation), y.size * np.log(0.5)
        for k in (0, 1):
            part = y[members == k]
            v = 1 / (1 / 25 + part.size)
            mean = v * part.sum()
            total += -0.5 * part.size * np.log(2 * np.pi) + 0.5 * np.log(v / 25)
            total -= 0.5 * (part @ part - mean**2 / v)
        logs.append(total)
        squares.append(mean**2 + v)
    log_z = float(np.asarray(logsumexp(logs)))
    square = float(np.exp(np.array(logs) - log_z) @ squares)
    target, found = target_of(LABELS, data), []
    for seed in range(4, 9):
        run = sampled("auto", target, seed=seed, draws=1500, progress=False)
        assert abs(run.evidence.log_z - log_z) < 4.5 * run.evidence.std_error < 0.08
        found.append(run.expect(lambda v: v["mu"][..., 1] ** 2))
    error = np.sqrt(sum(float(one.std_error) ** 2 for one in found)) / len(found)
    mean = np.mean([float(one.value) for one in found])
    assert abs(mean - square) < 4 * error < 0.5 * square


def test_ridges_start_where_ascents_ended() -> None:
    """A fit encloses two bananas, from whose middle no ridge leads along the second one."""
    source = """
    functions {
      real arms(real x, real y) {
        return normal_lpdf(x | 0, 2) + normal_lpdf(y | 0.5 * square(x), 0.3);
      }
    }
    parameters { real x; real y; }
    model { target += log_mix(0.5, arms(x + 20, y), arms(x - 20, y)); }
    """
    around = fit_of([-20, 2], np.array([[4.0, 0], [0, 8.1]]), np.log(0.5))
    other = fit_of([20, 0], np.array([[4.0, 0], [0, 0.09]]), np.log(0.5))
    density = target_of(source).density
    for peaks, reached in (((), False), ((other,), True)):
        looked = find_ridges(density.log_density_gradients, ("x", "y"), [around], peaks=peaks)
        assert any(part.mean[0] < -22 for _, part in looked.parts)
        assert any(part.mean[0] > 22 for _, part in looked.parts) == reached


def test_a_place_that_is_flat_up_to_rounding_is_left_out() -> None:
    flat = ridges._Top(np.zeros(2), 0.0, np.zeros((2, 2)), 0.0)
    assert ridges._part(flat, np.array([1.0, 0])) is None
    wide = flat._replace(covariance=np.diag([0, 4.0]))
    part = ridges._part(wide, np.array([3.0, 0]))
    assert part is not None and np.allclose(part.covariance, np.diag([9, 4]))


def test_another_known_mode_is_no_ridge() -> None:
    source = """
    parameters { vector[2] x; }
    model {
      target += log_mix(0.5, normal_lpdf(x[1] | 0, 1), normal_lpdf(x[1] | 8, 2));
      x[2] ~ normal(0, 1);
    }
    """
    near = fit_of([0, 0], np.eye(2), np.log(0.5))
    far = fit_of([8, 0], np.diag([4.0, 1]), np.log(0.5))
    assert found(source, near, far).parts == ()
    assert "x[1]" in found(source, near).known["ridges"]


def test_a_ridge_is_followed_beyond_a_valley() -> None:
    """A valley of nine nats lies before a seventh of the mass.

    Given the first coordinate, the others are Gaussian around nothing, with widths that vary.
    """
    source = """
    functions {
      real height(real u) { return log_sum_exp(-50 * square(u), log(.01) - .15 * square(u - 6)); }
    }
    parameters { real u; vector[2] a; }
    model {
      target += height(u) - 0.5 * log(pi() / 50);
      a ~ normal(0, 1 + square(u));
    }
    """
    mass = np.array([1 / np.sqrt(50), 0.01 / np.sqrt(0.15)])
    mass /= mass.sum()
    looked = found(source, fit_of([0, 0, 0], np.diag([0.01, 1, 1])))
    beyond = [weight for weight, part in looked.parts if part.mean[0] > 4]
    assert 0.8 * mass[1] < sum(beyond) < 4 * mass[1]


@pytest.mark.parametrize(
    ("mass", "at", "width", "some"),
    [(4e-4, 12, 2.5, True), (4e-4, 4, 1, False), (4e-3, 4, 1, True), (1e-5, 12, 2.5, False)],
)
def test_mass_far_away_matters_by_its_squared_distance(
    mass: float, at: float, width: float, some: bool
) -> None:
    """It moves a second moment by its mass times the squared distance."""
    source = """
    data { real mass; real at; real width; }
    parameters { real u; real v; }
    model {
      target += log_mix(mass, normal_lpdf(u | at, width), normal_lpdf(u | 0, 1));
      v ~ normal(0, 1);
    }
    """
    looked = found(source, fit_of([0, 0], np.eye(2)), mass=mass, at=at, width=width)
    assert bool(looked.parts) == some
    if some:
        assert looked.known["ridges"] == ("u",)


@pytest.mark.parametrize(("mass", "some"), [(0.004, True), (0.002, False)])
def test_mass_nearby_matters_as_much_as_some_at_three_deviations(mass: float, some: bool) -> None:
    """A needle across the slices, 1.5 deviations away."""
    source = """
    data { real mass; } parameters { real u; real v; }
    model {
      target += log_mix(mass, normal_lpdf(u | 1.5, 0.3) + normal_lpdf(v | 0, 0.01),
        std_normal_lpdf(u) + std_normal_lpdf(v));
    }
    """
    assert bool(found(source, fit_of([0, 0], np.eye(2)), mass=mass).parts) == some


@pytest.mark.parametrize(("dimension", "some"), [(1, False), (2, True), (31, False)])
def test_dimensions(dimension: int, some: bool) -> None:
    source = "data { int n; } parameters { vector[n] x; } model { x ~ student_t(3, 0, 1); }"
    fit = fit_of([0] * dimension, np.eye(dimension))
    looked = found(source, fit, n=dimension)
    assert bool(looked.parts) == some == bool(looked.gradients)


def test_less_effort_follows_fewer_axes() -> None:
    density = target_of(FUNNEL).density
    fit = fit_of([0, 0, 0], np.diag([4, 2.0, 2]))
    whole, less = (
        find_ridges(density.log_density_gradients, density.unconstrained_names, [fit], most=most)
        for most in (np.inf, 20)
    )
    assert less.gradients < whole.gradients / 2


def test_a_slice_without_a_top_ends_a_ridge() -> None:
    """The density is not finite where x > 3, and y has no top where x < 0."""

    def gradients(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = points.T
        values, slopes = -0.5 * x * x - 0.5 * x * y * y, np.array([-x - 0.5 * y * y, -x * y]).T
        return np.where(x > 3, -np.inf, values), np.where(x[:, None] > 3, np.nan, slopes)

    looked = find_ridges(gradients, ("x", "y"), [fit_of([1, 0], np.eye(2))])
    assert len(looked.parts) > 2
    for _, part in looked.parts:
        assert part.mean[0] <= 3 and np.all(np.isfinite(part.scale))
