"""Variational fits: exact answers on Gaussians, the direction of KL, and bases by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from targets import LINE

from stanct.bases.fits import fit_base
from stanct.bases.local import LocalFit
from stanct.bases.variational import BATCH, STEPS, advi, variational_fits
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.engines.embedded import Nuts
from stanct.targets.function_target import FunctionDensity

MEAN, LOG_Z = np.array([30.0, -2.0, 0.5]), 4.5
PRECISION = np.array([[0.05, 0.06, 0.0], [0.06, 0.1, -0.4], [0.0, -0.4, 9.0]])
CONSTANT = LOG_Z + 0.5 * np.linalg.slogdet(PRECISION)[1] - 1.5 * np.log(2 * np.pi)


def log_density(x: Array) -> tuple[float, Array]:
    pull = PRECISION @ (MEAN - x)
    return CONSTANT - 0.5 * float((MEAN - x) @ pull), pull


def start(mean: Array, sd: Array) -> LocalFit:
    return LocalFit(mean, np.diag(np.square(sd)), 0.0, mean[None])


def test_a_gaussian_is_found_from_afar(seed: int) -> None:
    """The fit is the target itself, because the gradient has no noise there."""
    afar = start(np.array([0.0, 4.0, -1.0]), np.array([8.0, 6.0, 1.0]))
    exact, room = np.linalg.inv(PRECISION), 0.001
    sd = np.sqrt(np.diag(exact))
    for number in range(3):
        rng = np.random.default_rng([seed, number])
        found = advi(FunctionDensity(log_density, 3), afar, rng, draws=4000)
        assert np.all(np.abs(found.mean - MEAN) < 7 * room * sd)
        np.testing.assert_allclose(
            found.covariance / np.outer(sd, sd), exact / np.outer(sd, sd), atol=2 * room
        )
        assert found.log_evidence == pytest.approx(LOG_Z, abs=4 * room)


def test_each_mode_is_fitted_once(seed: int) -> None:
    """Two modes of equal mass; starts within a result, and those of negligible mass, are left
    out."""

    def two(x: Array) -> tuple[float, Array]:
        away = np.array([x - 5, x + 5])[..., 0]
        logs = -0.5 * np.square(away) - 0.5 * np.log(2 * np.pi)
        share = np.exp(logs - np.logaddexp(*logs))
        return float(np.logaddexp(*logs)), -np.atleast_1d(share @ away)

    starts = [
        replace(start(np.array([place]), np.array([0.3])), log_evidence=height)
        for place, height in ((4.2, 0.0), (-5.5, -1.0), (6.5, -2.0), (-4.0, -50.0))
    ]
    density, rng = FunctionDensity(two, 1), np.random.default_rng(seed)
    found, gradients = variational_fits(density, starts, 8, 100, rng)
    assert [float(one.mean[0]) for one in found] == pytest.approx([5, -5], abs=0.01)
    assert [one.log_evidence for one in found] == pytest.approx([0, 0], abs=0.01)
    assert gradients == 2 * STEPS * BATCH
    assert len(variational_fits(density, starts, 1, 100, rng)[0]) == 1


def test_a_density_that_is_nowhere_finite_is_refused() -> None:
    def nowhere(x: Array) -> tuple[float, Array]:
        return -np.inf, np.zeros_like(x)

    near = start(np.zeros(1), np.ones(1))
    with pytest.raises(EngineError, match="not finite where ADVI"):
        variational_fits(FunctionDensity(nowhere, 1), [near], 8, 100, np.random.default_rng(1))


def test_a_run_on_an_embedded_advi_base(seed: int) -> None:
    target = target_of(LINE.source, LINE.data)
    run = sampled("gibbs", target, base="advi", bootstrap=0, seed=seed, draws=400, progress=False)
    assert abs(run.evidence.log_z - LINE.log_z) < 4 * run.evidence.std_error < 1
    fitted = fit_base(target, "advi", chains=2, seed=np.random.SeedSequence(seed), nuts=Nuts())
    assert fitted.log_zeta < LINE.log_z + 0.1 and fitted.gradients == STEPS * BATCH
