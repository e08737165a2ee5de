"""Looks far from the known modes, for modes in which no ascent ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import LONG, Scanned
from scipy.special import gammaln

import stanct
from stanct.bases.outskirts import outskirts, standing_out
from stanct.bases.scans import OUTSKIRTS
from stanct.bases.search import Search, search
from stanct.path.gaussian import GaussianBase
from stanct.stan.program import Program

DIMENSION, FREEDOM, SCALE, SPREAD = 7, 8.0, 0.3, 0.4
PLACE = np.array([6.0, -5.0, 4.0, 2.0, -3.0, 2.0, 1.0])
# A t density around the origin, and at PLACE a wider Gaussian with most of the mass. The tail of
# the t is above the Gaussian everywhere but within some nine of its standard deviations.
SOURCE = """
data { vector[7] m; matrix[7, 7] S; }
parameters { vector[7] x; }
model {
  target += log_mix(0.8, normal_lpdf(x | m, 0.4), multi_student_t_lpdf(x | 8, 0 * m, S));
}
"""


def terms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log densities of the Gaussian and of the t, each with its weight."""
    narrow = -0.5 * np.square((x - PLACE) / SPREAD).sum(axis=-1)
    narrow += np.log(0.8) - DIMENSION * np.log(SPREAD) - 0.5 * DIMENSION * np.log(2 * np.pi)
    power = 0.5 * (FREEDOM + DIMENSION)
    heavy = -power * np.log1p(np.square(x / SCALE).sum(axis=-1) / FREEDOM)
    heavy += np.log(0.2) + gammaln(power) - gammaln(0.5 * FREEDOM) - DIMENSION * np.log(SCALE)
    return narrow, heavy - 0.5 * DIMENSION * np.log(FREEDOM * np.pi)


def log_densities(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(*terms(x))


def log_density_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
    narrow, heavy = terms(x)
    total = np.logaddexp(narrow, heavy)
    falls = (FREEDOM + DIMENSION) / (FREEDOM * SCALE**2 + np.square(x).sum())
    slope = -np.exp(narrow - total) * (x - PLACE) / SPREAD**2 - np.exp(heavy - total) * falls * x
    return float(total), slope


def looked(seed: int) -> Search:
    density = Scanned(log_density_gradient, log_densities, DIMENSION)
    return search(density, np.random.SeedSequence(seed))


def test_a_mode_below_heavy_tails_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ascent ends in it, although it has 80 % of the mass."""
    found = looked(seed)
    monkeypatch.setattr("stanct.bases.scans.OUTSKIRTS", 200)
    without = looked(seed)
    assert len(without.fits) == 1
    assert len(found.fits) == 2
    assert found.fits[0].mean == pytest.approx(PLACE, abs=1e-3)
    assert found.fits[0].log_evidence == pytest.approx(np.log(0.8), abs=1e-3)
    assert found.gradients - without.gradients < 0.2 * without.gradients
    # Three scans, one near the centres, and two looks, of which the second finds nothing.
    assert found.evaluations == 90_000 + 60_000 + 2 * OUTSKIRTS


@LONG
def test_the_default_has_its_mass(seed: int) -> None:
    model = stanct.TemperedModel(Program.from_source(SOURCE, name="model"))
    data = {"m": PLACE, "S": np.diag(np.full(7, 0.09))}
    run = model.sample(data, seed=seed, progress=False, engine="embedded")
    assert not run.warnings
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.05
    mean = run.expect(lambda v: v["x"][..., 0])
    assert abs(float(mean.value) - 0.8 * PLACE[0]) < 4 * float(mean.std_error) < 0.4


class TestPoints:
    def test_they_lie_around_all_modes_and_the_origin(self, rng: np.random.Generator) -> None:
        modes = [GaussianBase(np.full(3, at), np.eye(3)) for at in (-1e3, 1e3)]
        points = outskirts(modes, 8000, np.inf, rng)
        assert len(points) == 8000
        centres = np.round(points[:, 0] / 1e3)
        assert [np.sum(centres == k) for k in (-1, 0, 1)] == [2000, 4000, 2000]
        assert np.abs(points).max() < 1e3 + 32 * 6

    @pytest.mark.parametrize("reach", [0.5, 3.0, 40.0])
    def test_none_is_out_of_reach(self, reach: float, rng: np.random.Generator) -> None:
        """Where equations are solved, places far away may take minutes."""
        points = outskirts([GaussianBase(np.zeros(4), np.eye(4))], 8000, reach, rng)
        assert np.abs(points).max() <= reach
        assert len(points) > (5 if reach == 0.5 else 500)

    @pytest.mark.parametrize("hole", [np.nan, -np.inf])
    def test_what_stands_out_is_found(self, hole: float, rng: np.random.Generator) -> None:
        """Among points of a t density, those that were raised, and none outside the support."""
        modes = [GaussianBase(np.zeros(5), np.eye(5))]
        points = outskirts(modes, 4000, np.inf, rng)
        values = -5 * np.log1p(np.square(points).sum(axis=1)) + 0.01 * rng.standard_normal(4000)
        raised = rng.choice(4000, 6, replace=False)
        values[raised] += 1.0
        values[::7] = hole
        chosen = standing_out(modes, points, values, 12)
        known = [k for k in raised if k % 7]
        assert set(known) <= set(chosen.tolist())
        assert len(chosen) <= 12 and np.isfinite(values[chosen]).all()

    def test_huge_log_densities_are_no_error(self, rng: np.random.Generator) -> None:
        modes = [GaussianBase(np.zeros(3), np.eye(3))]
        points = outskirts(modes, 800, np.inf, rng)
        values = np.where(rng.random(len(points)) < 0.4, 1.7e308, -1.7e308)
        assert np.all(values[standing_out(modes, points, values, 10)] > 0)

    def test_too_few_points_tell_nothing(self, rng: np.random.Generator) -> None:
        modes: list[GaussianBase] = [GaussianBase(np.zeros(2), np.eye(2))]
        points = rng.standard_normal((50, 2))
        assert standing_out(modes, points, -np.square(points).sum(axis=1), 10).size == 0


def test_the_gradient_is_right(rng: np.random.Generator) -> None:
    """Of the density above, by central differences."""
    for x in (PLACE + 0.3, 0.4 * PLACE, rng.standard_normal(DIMENSION)):
        at: Callable[[np.ndarray], float] = lambda y: float(log_densities(y))  # noqa: E731
        steps = 1e-6 * np.eye(DIMENSION)
        slopes = [(at(x + step) - at(x - step)) / 2e-6 for step in steps]
        assert log_density_gradient(x)[1] == pytest.approx(slopes, rel=1e-4, abs=1e-4)
