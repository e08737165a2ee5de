"""Draws of a posterior have E[z ∂ log p] = −1, and those of an approximation have not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import LONG

import stanct
from stanct.estimates.bridge import fitted_normal, score_error

CORRELATED = np.full((3, 3), 0.8) + 0.2 * np.eye(3)


def whitened(x: np.ndarray, slopes: np.ndarray) -> tuple[float, float]:
    """The error of draws, whitened by the normal that is fitted to them."""
    base = fitted_normal(x.reshape(-1, x.shape[-1]))
    return score_error(base.whiten(x), slopes @ base.scale)


def chains_of(kind: str, seed: int) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((4, 200, 3))
    for t in range(1, 200):  # along chains that move a little more slowly than independent draws
        z[:, t] = 0.4 * z[:, t - 1] + np.sqrt(1 - 0.16) * z[:, t]
    root = np.linalg.cholesky(CORRELATED)
    if kind == "skewed":  # x = exp(z)/2 − 1, with density N(z) dz/dx
        x = np.exp(z / 2)
        return whitened(x, -(4 * np.log(x) + 1) / x)
    if kind == "heavy":
        x = rng.standard_t(5, (4, 200, 3))
        return whitened(x, -6 * x / (5 + x**2))
    if kind == "mean field":
        x = z / np.sqrt(np.diag(np.linalg.inv(CORRELATED)))
    else:
        x = z @ root.T * {"right": 1.0, "narrow": np.sqrt(0.7), "wide": np.sqrt(1.5)}[kind]
    return whitened(x, -x @ np.linalg.inv(CORRELATED))


@pytest.mark.parametrize("kind", ["right", "skewed", "heavy"])
def test_right_fits_pass(kind: str) -> None:
    beyond = [worst > limit for worst, limit in (chains_of(kind, seed) for seed in range(100))]
    assert sum(beyond) <= 1


@pytest.mark.parametrize("kind", ["narrow", "wide", "mean field"])
def test_approximations_are_found(kind: str) -> None:
    found = [worst > limit for worst, limit in (chains_of(kind, seed) for seed in range(100))]
    assert sum(found) >= 98


@LONG
def test_a_bridge_says_it() -> None:
    source = """
    transformed data { matrix[3, 3] S = 0.8 + 0.2 * identity_matrix(3); }
    parameters { vector[3] x; }
    model { x ~ multi_normal(rep_vector(0, 3), S); }
    """
    z = np.random.default_rng(1).standard_normal((4, 1000, 3))
    root = np.linalg.cholesky(CORRELATED)
    right: Any = stanct.bridge(source, None, {"x": z @ root.T}, seed=1)
    assert right.is_reliable and abs(right.evidence.log_z) < 5 * right.evidence.std_error
    for scale in (0.7, 1.5):
        wrong = stanct.bridge(source, None, {"x": np.sqrt(scale) * z @ root.T}, seed=1)
        assert "score" in wrong.warnings and not wrong.verdict.for_draws
