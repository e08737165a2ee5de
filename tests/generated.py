"""Shared by the tests of generated programs: programs with data, bases, differences."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import stanli
from numpy.typing import NDArray

Array = NDArray[np.float64]
PROGRAMS = Path(__file__).parent / "programs"
SEED = int(os.environ.get("STANCT_TEST_SEED", "1"))
DATA: dict[str, dict[str, Any]] = {
    "eight_schools": {
        "J": 8,
        "y": [28, 8, -3, 7, -1, 1, 18, 12],
        "sigma": [15, 10, 16, 11, 9, 11, 10, 18],
    },
    "bounds": {
        "N": 3,
        "base": [-1.0, 0.0, 2.0],
        "top": 1.5,
        "centres": [[0.1, 0.2, 0.3], [-1, 0, 1]],
    },
    "vectors": {"K": 4},
    "matrices": {"K": 3},
    "truncation": {"N": 3, "y": [0.5, 1.5, 3.0], "n": [1, 3, 5], "x": [-0.4, 0.1, 0.6]},
    "functions": {"N": 4, "y": [0.3, -1.2, 0.8, 2.0], "k": 3},
    "increments": {"N": 5, "y": [0.3, -1.2, 0.8, 2.0, 0.1]},
    "layout": {"N": 4, "y": [0.3, -1.2, 0.8, 2.0]},
    "includes": {"N": 3},
    "split": {"N": 3, "y": [0.3, -1.2, 0.8], "group": [1, 2, 1], "scale": 2, "robust": 1},
    "funnel": {},
    "regression": {
        "N": 5,
        "K": 2,
        "X": [[1.0, 0.2], [0.3, -1.0], [-0.7, 0.4], [2.0, 1.1], [0.1, -0.6]],
        "y": [1, 0, 0, 1, 1],
    },
    "states": {"T": 6, "y": [-1.0, -0.7, 1.9, 2.2, 0.4, -1.3]},
    "messages": {"N": 3, "y": [0.3, -1.2, 0.8]},
    "missing": {
        "N_seen": 3,
        "N_missing": 2,
        "N_above": 2,
        "where_seen": [1, 3, 5],
        "where_missing": [2, 4],
        "y_seen": [0.1, 1.2, -0.4],
        "limit": 2.5,
        "error": 0.3,
    },
    "loops": {
        "N": 5,
        "M": 3,
        "N_plain": 4,
        "G": 2,
        "nothing": 0,
        "y": [0.3, -1.2, 0.8, 2.0, 0.1],
        "x": [1.0, 0.3, -0.7, 2.0, 0.1],
        "group": [1, 2, 1, 1, 2],
        "count": [[0, 1, 2], [3, 0, 0], [1, 1, 1], [2, 5, 0], [0, 0, 4]],
        "trials": [1, 4, 2, 3, 6],
    },
    "counts": {
        "N": 3,
        "X": [[1.0, 0.2], [0.3, -1.0], [-0.7, 0.4]],
        "effort": [2.0, 0.7, 1.5],
        "y": [3, 0, 1],
        "trials": [5, 2, 4],
        "wins": [5, 0, 3],
        "group": [1, 2, 1],
    },
    # The third animal is seen once: its loop does not run at all.
    "captures": {
        "I": 4,
        "T": 4,
        "y": [[1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]],
        "first": [1, 2, 3, 0],
        "last": [3, 4, 3, 0],
    },
    "growth": {"T": 3, "t": [1.0, 2.0, 4.0], "y": [0.9, 1.6, 3.1]},
}
RUNNABLE = sorted(DATA)
KNOTS = np.array([0.0, 0.15, 0.7, 1.0])
BIAS = np.array([0.0, -2.0, 1.5, 4.0])

# Log of the sphere's area over the integral of Stan's own factor, of each program's unit vectors.
AREAS = {"vectors": math.log(2 * math.pi**2) - 2 * math.log(2 * math.pi)}


def load(code: str, data: dict[str, Any]) -> Any:
    return stanli.bridgestan_model(stan_code=code, data=data)


def base_data(dimension: int, knots: Array = KNOTS, bias: Array = BIAS) -> dict[str, Any]:
    """Return a base that is neither centred nor diagonal, a bias, and a prior of β."""
    rng = np.random.default_rng(5)
    scale = np.tril(rng.normal(size=(dimension, dimension)) * 0.2, -1)
    scale += np.diag(np.exp(rng.normal(size=dimension) * 0.2) * 0.5)
    return {
        "ct_D": dimension,
        "ct_base_mean": (rng.normal(size=dimension) * 0.2).tolist(),
        "ct_is_dense": 1,
        "ct_base_scale": scale.tolist(),
        "ct_K": len(knots),
        "ct_bias_beta": knots.tolist(),
        "ct_bias": bias.tolist(),
        "ct_log_g": (-2 * np.sqrt(knots)).tolist(),
    }


def numerical_gradient(model: Any, at: Array, step: float = 1e-5) -> Array:
    """Central differences with one Richardson step."""

    def differences(width: float) -> Array:
        out = np.empty_like(at)
        for k in range(at.size):
            shift = np.zeros_like(at)
            shift[k] = width
            out[k] = (model.log_density(at + shift) - model.log_density(at - shift)) / (2 * width)
        return out

    return (4 * differences(step) - differences(2 * step)) / 3
