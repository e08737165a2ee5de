"""Programs with hundreds of parameters: a diagonal plus low-rank base, without a search."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import LONG

import stanct
from stanct.bases import wide
from stanct.path import low_rank
from stanct.path.low_rank import LowRankBase
from stanct.runs.path_checks import MOST_PAIRED, base_check

FACTOR = """
data { int D; real load; }
parameters { vector[D] x; real f; }
model { f ~ std_normal(); x ~ logistic(1 + load * f, 0.3); }
"""
TWO = """
data { int D; real a; }
parameters { vector[D] x; }
model {
  x[2:D] ~ std_normal();
  target += log_mix(0.3, normal_lpdf(x[1] | -a, 1), normal_lpdf(x[1] | a, 1));
}
"""


@LONG
def test_one_factor_moves_all_parameters() -> None:
    model = stanct.temper(FACTOR)
    run = model.sample({"D": 405, "load": 0.5}, seed=1, draws=400, progress=False)
    assert isinstance(run.base, LowRankBase)
    assert run.base.stretch.size == 1
    evidence = run.evidence
    assert abs(evidence.log_z) < 4 * evidence.std_error < 0.5
    mean = run.expect("x")
    assert np.all(np.abs(mean.value - 1) < 5 * mean.std_error)
    assert run.warnings == ()


@LONG
def test_modes_that_pilots_saw_apart_are_sampled() -> None:
    run = stanct.temper(TWO).sample({"D": 450, "a": 6.0}, seed=2, progress=False)
    assert len(run.provenance["survey"]["log_evidence"]) == 2
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.1
    first = run.expect("x")
    assert abs(first.value[0] - 2.4) < 4 * first.std_error[0] < 2.4


@LONG
@pytest.mark.parametrize("method", [stanct.Gibbs(), stanct.AIS(temperatures=60)])
def test_methods_by_name_take_the_base(method: stanct.Method) -> None:
    model = stanct.temper(FACTOR)
    run = model.sample({"D": 401, "load": 0.2}, method, seed=3, draws=384, progress=False)
    assert isinstance(run, stanct.EvidenceRun) and isinstance(run.base, LowRankBase)
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 1.2


def test_a_mixture_is_refused() -> None:
    with pytest.raises(stanct.StanctError, match="250 dimensions at most"):
        stanct.temper(FACTOR).sample(
            {"D": 449, "load": 0.5}, "simulated_tempering", base="mixture", progress=False
        )


def test_only_directions_that_show_twice_are_kept() -> None:
    """Drifting chains have large eigenvalues by chance; a factor shows in every chain."""
    rng = np.random.default_rng(1)
    steps = rng.standard_normal((4, 300, 400))
    drift = np.zeros_like(steps)
    for k in range(1, 300):
        drift[:, k] = 0.97 * drift[:, k - 1] + np.sqrt(1 - 0.97**2) * steps[:, k]
    drifting = drift.reshape(1200, 400)
    for place in (0.0, 100.0):
        assert LowRankBase.from_points(drifting + place).stretch.size == 0
    factor = rng.standard_normal((1200, 400)) + rng.standard_normal((1200, 1))
    kept = LowRankBase.from_points(factor)
    assert kept.stretch.size == 1
    assert np.allclose(kept.spread, np.sqrt(2), rtol=0.2)
    assert np.allclose(kept.spread, np.sqrt(np.diag(kept.covariance)))


def test_gradients_tell_of_narrow_directions(rng: np.random.Generator) -> None:
    """Draws alone do not, and then the base has thousands of times the target's extent there."""
    dimension, count = 300, 600
    directions = np.linalg.qr(rng.standard_normal((dimension, 12)))[0]
    widths = np.concatenate([[5.0, 4.0], np.geomspace(0.02, 0.3, 10)])
    scale = np.exp(rng.standard_normal(dimension))
    root = scale[:, None] * (np.eye(dimension) + (directions * (widths - 1)) @ directions.T)
    covariance = root @ root.T
    precision = np.linalg.inv(covariance)

    def divergence(base: LowRankBase) -> float:
        """KL divergence of the target from the base."""
        found = base.covariance
        volume = np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(found)[1]
        return 0.5 * (np.trace(precision @ found) - dimension + volume)

    def drawn(draws: int) -> np.ndarray:
        return rng.standard_normal((draws, dimension)) @ root.T

    points = drawn(count)
    wide_only = LowRankBase.from_points(points)
    base = wide_only.narrowed(points, -points @ precision)
    assert divergence(wide_only) > 1000 and divergence(base) < 30
    assert (base.stretch > 2).sum() == 2 and (base.stretch < 0.7).sum() == 10
    # A refit on draws of the target keeps these directions, and is nearer.
    refitted = base.refitted(base.whiten(drawn(4 * count)), least_shrinkage=0.2)
    assert divergence(refitted) < divergence(base) / 2
    assert (refitted.stretch < 0.7).sum() == 10
    # Where there are none, none are found.
    plain = rng.standard_normal((count, dimension))
    assert LowRankBase.from_points(plain).narrowed(plain, -plain).stretch.size == 0
    # Two modes are narrow each, and their base is not.
    signs = np.where(rng.random(count) < 0.5, -6.0, 6.0)
    modes = plain + signs[:, None] * np.eye(dimension)[0]
    two = LowRankBase.from_points(modes)
    assert np.array_equal(two.narrowed(modes, -plain).covariance, two.covariance)


def test_the_base_check_sees_a_wrong_variance_in_many_dimensions() -> None:
    z = np.random.default_rng(2).standard_normal((4, 500, MOST_PAIRED + 1))
    none = np.zeros(z.shape[:2])
    found = base_check(z, none)
    assert found.covariance.shape == (MOST_PAIRED + 1,)
    assert found.worst < found.limit
    z[..., 7] *= 1.3
    assert base_check(z, none).worst > found.limit


CHAIN = """
data { int D; }
parameters { vector[D] x; }
model { x[1] ~ std_normal(); x[2:D] ~ normal(0.9 * x[1:(D - 1)], sqrt(1 - square(0.9))); }
"""


def test_one_mode_whose_curvature_is_the_target_needs_no_path() -> None:
    """Neighbours depend on each other, which few directions cannot tell."""
    run = stanct.temper(CHAIN).sample({"D": 410}, seed=1, draws=500, progress=False)
    assert run.provenance["steps"][0]["method"] == "independence"
    assert abs(run.evidence.log_z) < 1e-6 and run.evidence.std_error < 1e-6
    assert run.gradients < 20_000
    square = run.expect(lambda draw: draw["x"] ** 2)
    assert np.all(np.abs(square.value - 1) < 5 * square.std_error)
    assert run.warnings == ()


def test_chains_that_mix_slowly_are_no_modes() -> None:
    """Means of slow chains lie apart, but between them is no valley."""
    rng = np.random.default_rng(3)
    places = 3.0 * np.array([-1, 1])[:, None] * np.eye(2)[0]
    drawn = [place + 0.1 * rng.standard_normal((50, 2)) for place in places]

    def one(x: np.ndarray) -> np.ndarray:
        return -0.5 * np.square(x).sum(axis=1) / 9

    def two(x: np.ndarray) -> np.ndarray:
        return np.logaddexp(*[-0.5 * np.square(x - place).sum(axis=1) for place in places])

    assert len(wide.modes_of(drawn, one, 2.0)) == 1
    assert len(wide.modes_of(drawn, two, 2.0)) == 2


@pytest.mark.parametrize("whole", [30, 3000])
@pytest.mark.parametrize("shape", [(60, 140), (180, 140)])
def test_leading_directions_are_those_of_the_whole_matrix(
    shape: tuple[int, int], whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_rank, "MOST_WHOLE", whole)
    rng = np.random.default_rng(4)
    rows = rng.standard_normal(shape) + rng.standard_normal((shape[0], 2)) @ rng.standard_normal(
        (2, shape[1])
    )
    values, vectors = low_rank._leading(rows, 5)
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    assert np.allclose(values, np.square(singular[:5]), rtol=1e-8)
    assert np.allclose(np.abs((right[:5] * vectors.T).sum(axis=1)), 1, atol=1e-6)


def test_factor_analysis_finds_the_covariance_of_factors() -> None:
    """The Kullback–Leibler divergence shrinks as that of a maximum of the likelihood does."""
    rng = np.random.default_rng(5)
    load = rng.normal(0, 0.7, (120, 3))
    exact = load @ load.T + 0.25 * np.eye(120)
    points = rng.multivariate_normal(np.zeros(120), exact, size=3000, method="cholesky")
    base = LowRankBase.from_points(points)
    assert base.stretch.size == 3
    ratio = np.linalg.solve(exact, base.covariance)
    divergence = 0.5 * (np.trace(ratio) - 120 - np.linalg.slogdet(ratio)[1])
    parameters = 120 * 4
    assert 0.3 * parameters / 6000 < divergence < 2 * parameters / 6000
