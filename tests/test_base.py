"""Bases: whitening, moment matching, bridge sampling, shrinkage, and fits of real programs."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of
from scipy.stats import norm

from stanct.bases import fits
from stanct.bases.fits import FittedBase, fit_base
from stanct.bases.known import Modes
from stanct.bases.local import (
    LocalFit,
    distinct_modes,
    moment_match,
    positive_covariance,
)
from stanct.bases.recipes import RECIPES
from stanct.common.errors import SamplingError
from stanct.engines.embedded import Nuts
from stanct.path.bridge import bridge_log_z
from stanct.path.curvature import hessian
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.targets.program_target import ProgramTarget

COVARIANCE = np.array([[2.0, 0.6, -0.2], [0.6, 1.0, 0.3], [-0.2, 0.3, 0.5]])
MEAN = np.array([1.0, -2.0, 0.5])


def test_whitening_and_densities(rng: np.random.Generator) -> None:
    base = GaussianBase.from_covariance(MEAN, COVARIANCE)
    x = rng.standard_normal((4, 5, 3))
    z = base.whiten(x)
    assert base.unwhiten(z) == pytest.approx(x)
    offset = x - MEAN
    square = np.einsum("...i,ij,...j", offset, np.linalg.inv(COVARIANCE), offset)
    truth = -0.5 * (square + np.log(np.linalg.det(2 * np.pi * COVARIANCE)))
    assert base.log_density(x) == pytest.approx(truth)
    # δ is the same in z and in x: both log densities gain log det L.
    assert base.delta(z, -3.0 * truth) == pytest.approx(truth + 3.0 * truth)


def test_moment_match_is_the_mixture_s_moments() -> None:
    local = [
        LocalFit(np.array([-8.0]), np.eye(1), np.log(0.6) - 3, np.zeros((1, 1))),
        LocalFit(np.array([8.0]), 4 * np.eye(1), np.log(0.4) - 3, np.zeros((1, 1))),
    ]
    base, log_zeta = moment_match(local)
    assert log_zeta == pytest.approx(-3)
    assert base.mean[0] == pytest.approx(-1.6)
    assert base.scale[0, 0] == pytest.approx(7.97747, abs=1e-5)  # [GS] 7.1


def test_distinct_modes_joins_by_distance_in_sds() -> None:
    def fit(mean: float, log_evidence: float) -> LocalFit:
        return LocalFit(np.array([mean, 0.0]), np.diag([0.25, 1.0]), log_evidence, np.zeros((1, 2)))

    assert distinct_modes([fit(0, 1.0), fit(0.9, 3.0), fit(4.0, 2.0)]) == [[1, 0], [2]]


def test_the_bridge_gives_log_z(rng: np.random.Generator) -> None:
    draws = rng.normal(1.0, 0.5, 4000)
    x = rng.normal(0.5, 1.0, 4000)
    ratios = [norm.logpdf(at, 1.0, 0.5) + 9.0 - norm.logpdf(at, 0.5, 1.0) for at in (draws, x)]
    assert bridge_log_z(*ratios) == pytest.approx(9.0, abs=0.06)
    half = np.where(x > 1, ratios[1], -np.inf)
    assert bridge_log_z(ratios[0][draws > 1], half) == pytest.approx(9 + np.log(0.5), abs=0.06)
    assert bridge_log_z(ratios[0], np.full(9, -np.inf)) == np.median(ratios[0])


def test_gaussian_moments_shrink_correlations_only(rng: np.random.Generator) -> None:
    points = rng.multivariate_normal(MEAN, COVARIANCE, size=50_000)
    mean, covariance = gaussian_moments(points)
    assert mean == pytest.approx(MEAN, abs=0.03)
    assert covariance == pytest.approx(COVARIANCE, abs=0.05)
    few = points[:3]
    _, shrunk = gaussian_moments(few)
    assert np.diag(shrunk) == pytest.approx(few.var(axis=0, ddof=1))
    raw = np.cov(few.T)
    assert shrunk[0, 1] == pytest.approx(raw[0, 1] * 3 / 6)


def test_weighted_moments(rng: np.random.Generator) -> None:
    points = rng.standard_normal((100_000, 1))
    weights = np.exp(points[:, 0])  # tilts N(0, 1) to N(1, 1)
    mean, covariance = gaussian_moments(points, weights=weights)
    assert mean[0] == pytest.approx(1, abs=0.04)
    assert covariance[0, 0] == pytest.approx(1, abs=0.06)


def test_hessian_and_its_inverse() -> None:
    precision = np.linalg.inv(COVARIANCE)
    found = hessian(lambda x: (np.zeros(len(x)), (x - MEAN) @ precision), MEAN + 0.1)
    assert found == pytest.approx(precision, rel=1e-6)
    assert positive_covariance(found) == pytest.approx(COVARIANCE, rel=1e-5)
    lifted = positive_covariance(np.diag([1.0, -1.0]))
    assert np.all(np.linalg.eigvalsh(lifted) > 0)
    # An intercept at year 0 and a slope per year: the ratio of the precision's eigenvalues is 10¹².
    a, b, c = 34.0**2, -0.9999 * 34 * 0.0086, 0.0086**2
    precision = np.array([[c, -b], [-b, a]]) / (a * c - b * b)
    assert positive_covariance(precision) == pytest.approx(np.array([[a, b], [b, c]]), rel=1e-6)


@pytest.mark.parametrize(
    ("mean", "scale", "words"),
    [
        (np.zeros(2), np.eye(3), "square scale"),
        (np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]]), "lower triangular"),
        (np.zeros(2), np.diag([1.0, 0.0]), "positive diagonal"),
        (np.array([np.nan, 0.0]), np.eye(2), "finite"),
    ],
)
def test_impossible_base(mean: np.ndarray, scale: np.ndarray, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        GaussianBase(mean, scale)


BIMODAL = """
parameters { real x; real<lower=0> s; }
model {
  target += log_mix(0.6, normal_lpdf(x | -8, 1), normal_lpdf(x | 8, 2)) - 5;
  s ~ exponential(2);
}
"""


def fit_with_modes(
    target: ProgramTarget, name: str, seed: int, *, chains: int = 4
) -> tuple[FittedBase, Modes]:
    """A base, and the modes that it was made from."""
    seeds = [np.random.SeedSequence(seed) for _ in range(2)]
    fitted = fit_base(target, name, chains=chains, seed=seeds[0], nuts=Nuts())
    found = fits.explored(target, RECIPES[name], chains=chains, seed=seeds[1], nuts=Nuts())
    assert found.modes is not None
    return fitted, found.modes


@pytest.mark.parametrize(
    ("method", "off"), [("pilot", 0.35), ("pathfinder", 0.7), ("laplace", 0.7)]
)
def test_fits_find_both_modes(method: str, off: float, seed: int) -> None:
    """Base near the mixture's moments and log ζ near log Z = −5; Laplace is rough for log s.

    Scouts after separate pilots count alike in both modes, not by their masses.
    """
    fitted, modes = fit_with_modes(target_of(BIMODAL), method, seed)
    assert len(modes.fits) >= 2
    assert isinstance(fitted.base, GaussianBase)
    assert fitted.log_zeta == pytest.approx(-5, abs=off)
    assert fitted.base.mean[0] == pytest.approx(-1.6, abs=4.5)
    assert fitted.base.scale[0, 0] == pytest.approx(7.977, abs=1.0)


def test_unknown_method(seed: int) -> None:
    with pytest.raises(SamplingError, match="pilot, pathfinder, laplace"):
        fit_base(
            target_of(BIMODAL),
            "variational",
            chains=4,
            seed=np.random.SeedSequence(seed),
            nuts=Nuts(),
        )


def test_a_share_of_the_purse_bounds_what_a_maker_spends(seed: int) -> None:
    costs = []
    for share in (0.01, 0.0005):
        recipe = RECIPES["modes"].changing("ascents", share=share, scan=False, outskirts=False)
        seeds = np.random.SeedSequence(seed)
        found = fits.explored(target_of(BIMODAL), recipe, chains=2, seed=seeds, nuts=Nuts())
        costs += [one.gradients for one in found.purse.stages if one.maker == "ascents"]
    assert costs[1] < 0.5 * costs[0]
