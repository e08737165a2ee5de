"""Bases in two stages for hundreds of parameters, which are narrow along few directions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import LONG

import stanct
from stanct.bases.nested_wide import find_nested_wide
from stanct.bases.search import ascents_from
from stanct.common.arrays import Array
from stanct.path.base import base_from_arrays
from stanct.path.conditional import Slices
from stanct.path.narrowed import Frame, _nystroem, frame_of, narrowed
from stanct.path.nested import NestedLowRank

PROCESS = """
data { int N; vector[N] t; vector[N] y; }
transformed data {
  matrix[N, N] L = cholesky_decompose(
    add_diag(gp_exp_quad_cov(to_array_1d(t), 1.0, 0.1), 1e-8));
}
parameters { real<lower=0> height; real<lower=0> noise; vector[N] z; }
model {
  height ~ normal(0, 1);
  noise ~ normal(0, 1);
  z ~ std_normal();
  y ~ normal(height * (L * z), noise);
}
"""
# Given the scale, nothing is Gaussian.
LOGISTIC = """
data { int N; }
parameters { real<lower=0> scale; vector[N] z; }
model { scale ~ std_normal(); z ~ logistic(0, 0.2 + scale); }
"""


def _process(size: int) -> tuple[dict[str, object], float]:
    """Data of a Gaussian process, and log Z by a grid over height and noise.

    In the eigenvectors of the kernel all observations are independent, given these two.
    """
    rng, times = np.random.default_rng(size), np.linspace(0, 1, size)
    kernel = np.exp(-0.5 * np.square((times[:, None] - times) / 0.1)) + 1e-8 * np.eye(size)
    values, vectors = np.linalg.eigh(kernel)
    values = np.maximum(values, 0)
    y = vectors @ (np.sqrt(values) * rng.standard_normal(size)) + 0.3 * rng.standard_normal(size)
    heights, noises = (np.linspace(np.log(a), np.log(b), 301) for a, b in ((0.05, 8), (0.2, 0.5)))
    total = []
    for height in np.exp(heights):
        variance = height**2 * values[:, None] + np.exp(2 * noises)
        log_p = -0.5 * (np.square(vectors.T @ y)[:, None] / variance + np.log(variance)).sum(0)
        prior = -0.5 * (height**2 + np.exp(2 * noises)) + np.log(height) + noises
        total.append(log_p + prior - (0.5 * size + 1) * np.log(2 * np.pi))
    cell = np.log(heights[1] - heights[0]) + np.log(noises[1] - noises[0])
    return {"N": size, "t": times, "y": y}, float(np.logaddexp.reduce(np.ravel(total)) + cell)


def _gaussian(precision: Array, top: Array) -> Slices:
    """Slices of a Gaussian whose precision along all but the first coordinate scales with it."""

    def gradients(x: Array) -> tuple[Array, Array]:
        away = x[:, 1:] - top
        scaled = x[:, :1] * (away @ precision)
        gradient = np.concatenate([np.zeros((len(x), 1)), -away - scaled], axis=1)
        return -0.5 * ((away + scaled) * away).sum(axis=1), gradient

    return Slices(gradients, np.eye(len(top) + 1)[0] > 0)


def test_directions_of_a_frame_give_the_curvature_wherever_its_own_lie() -> None:
    rng = np.random.default_rng(1)
    loads = rng.standard_normal((40, 3)) * [30.0, 3.0, 0.5]
    slices = _gaussian(loads @ loads.T, top := rng.standard_normal(40))
    turned = np.linalg.qr(loads + 0.3 * rng.standard_normal(loads.shape))[0]
    frame = Frame(np.zeros(40), np.ones(40), turned)
    for scale in (0.1, 4.0):
        found = narrowed(slices, np.array([scale]), frame)
        precision = np.eye(40) + scale * loads @ loads.T
        assert np.allclose(found.gaussian.covariance @ precision, np.eye(40), atol=1e-6)
        assert np.allclose(found.gaussian.mean, top, atol=1e-6)
        exact = 20 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
        assert abs(found.log_mass - exact) < 1e-6


def test_a_slice_without_a_top_has_no_mass() -> None:
    direction = np.eye(5)[:, :1]
    slices = _gaussian(-2 * direction @ direction.T, np.zeros(5))
    found = narrowed(slices, np.ones(1), Frame(np.zeros(5), np.ones(5), direction))
    assert found.log_mass == -np.inf


def test_where_newton_does_not_arrive_there_is_no_mass() -> None:
    """One direction is four times as curved as the frame says, so that each step is too long."""
    direction = np.eye(5)[:, :1]
    slices = _gaussian(4 * direction @ direction.T, np.ones(5))
    known = narrowed(slices, np.ones(1), Frame(np.zeros(5), np.ones(5), direction))
    assert known.log_mass > -np.inf
    other = Frame(np.zeros(5), np.ones(5), np.eye(5)[:, 1:2])
    assert narrowed(slices, np.ones(1), other).log_mass == -np.inf


def test_rounding_gives_no_curvature() -> None:
    direction = np.eye(40)[:, :1]
    slope = np.full((40, 1), 1e-3)
    slope[0] = 1e-5
    values, _ = _nystroem(direction, slope)
    assert not values.size
    values, vectors = _nystroem(direction, 5 * direction)
    assert np.allclose(values, 5) and np.allclose(np.abs(vectors), direction)


def test_a_frame_has_the_units_of_what_directions_leave_over() -> None:
    rng = np.random.default_rng(2)
    units, loads = np.exp(rng.standard_normal(60)), 20 * rng.standard_normal((60, 2))
    precision = (np.eye(60) + loads @ loads.T / 60) / np.outer(units, units)
    frame = frame_of(np.zeros(60), precision, sweeps=30, tolerance=0.02)
    assert frame.vectors.shape == (60, 2)
    assert np.allclose(frame.diagonal, units, rtol=0.02)


@pytest.fixture(scope="module")
def process() -> tuple[dict[str, object], float]:
    return _process(260)


@LONG
def test_a_process_is_drawn_in_two_stages(
    process: tuple[dict[str, object], float], tmp_path: Path
) -> None:
    data, log_z = process
    run = stanct.temper(PROCESS).sample(data, seed=1, progress=False)
    assert isinstance(run.base, NestedLowRank)
    evidence = run.evidence
    assert abs(evidence.log_z - log_z) < 4 * evidence.std_error < 0.12
    assert run.gradients < 25_000
    assert not run.verdict.draws  # its priors of scales are half normals without a truncation
    assert "given height, noise" in run.provenance["steps"][-1]["because"]
    run.save(tmp_path / "run")
    loaded = stanct.load(tmp_path / "run")
    assert isinstance(loaded.base, NestedLowRank)
    longer = loaded.extend(100, progress=False)
    assert isinstance(longer, stanct.EvidenceRun)
    assert longer.draws == run.draws + 100
    assert abs(longer.evidence.log_z - log_z) < 4 * longer.evidence.std_error


@LONG
def test_other_methods_take_a_gaussian_with_the_moments_of_these_draws(
    process: tuple[dict[str, object], float],
) -> None:
    data, log_z = process
    run = stanct.temper(PROCESS).sample(data, "gibbs", seed=1, progress=False)
    assert isinstance(run, stanct.EvidenceRun)
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error < 0.6


def test_what_is_not_gaussian_is_refused_for_few_gradients() -> None:
    target = stanct.temper(LOGISTIC).target({"N": 260})
    density = target.density
    found = ascents_from(density, [np.zeros(261)], np.ones(261), np.random.default_rng(1))
    (mode,) = found.fits
    nested = find_nested_wide(target, mode, np.random.SeedSequence(1), threads=1)
    assert nested.base is None
    assert nested.gradients < 1000


def test_arrays_give_the_base_again() -> None:
    rng = np.random.default_rng(3)
    loads = rng.standard_normal((40, 2))
    slices = _gaussian(loads @ loads.T, np.zeros(40))
    frame = Frame(np.zeros(40), np.ones(40), np.linalg.qr(loads)[0])
    gaussian = narrowed(slices, np.ones(1), frame).gaussian
    assert np.array_equal(base_from_arrays(gaussian.arrays()).covariance, gaussian.covariance)
