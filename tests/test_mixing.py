"""Effective sizes and R̂ are those of ArviZ, and do not load it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from stanct.estimates.mixing import effective_size, r_hat


def chains_of(rng: np.random.Generator, chains: int, draws: int) -> np.ndarray:
    """Autoregressive chains; some jump, some have equal values, some have heavy tails."""
    x = rng.standard_normal((chains, draws))
    rho = rng.choice([-0.9, -0.5, 0.0, 0.5, 0.9, 0.99])
    for t in range(1, draws):
        x[:, t] += rho * x[:, t - 1]
    kind = rng.integers(4)
    if kind == 1:
        x = np.round(x)
    elif kind == 2:
        x[0] += 5
    elif kind == 3:
        x = np.exp(3 * x)
    return x


@pytest.mark.parametrize("draws", [8, 9, 10, 11, 12, 13, 31, 100, 401])
def test_they_are_those_of_arviz(rng: np.random.Generator, draws: int) -> None:
    for _ in range(40):
        x = chains_of(rng, int(rng.integers(2, 6)), draws)
        for method in ("mean", "bulk"):
            expected: Any = array_stats.ess(x, chain_axis=0, draw_axis=1, method=method)
            assert effective_size(x, method=method) == pytest.approx(float(expected), rel=1e-9)
        other: Any = array_stats.rhat(x, chain_axis=0, draw_axis=1)
        assert r_hat(x) == pytest.approx(float(other), rel=1e-9)


def test_what_has_none() -> None:
    x = np.random.default_rng(1).standard_normal((3, 20))
    x[1, 4] = np.nan
    assert effective_size(x) == effective_size(x, method="bulk") == 60
    assert np.isnan(r_hat(x))
    assert effective_size(x[:, :3]) == 9
    assert np.isnan(r_hat(x[:, :3]))


def test_a_run_does_not_load_arviz() -> None:
    """ArviZ, xarray and pandas take longer to load than a small run takes."""
    code = (
        "import sys, stanct\n"
        "model = stanct.temper('parameters { real x; } model { x ~ normal(0, 1); }')\n"
        "run = model.sample(seed=1, progress=False)\n"
        "print(run.evidence, *sorted(sys.modules), sep='\\n')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = found.stdout.splitlines()
    assert "stanct.runs.run" in loaded, found.stderr
    heavy = {
        "arviz",
        "arviz_stats",
        "xarray",
        "scipy.stats",
        "scipy.signal",
        "matplotlib",
        "pandas",
    }
    assert not heavy.intersection(loaded)


def test_effective_size_and_r_hat(rng: np.random.Generator) -> None:
    chains = rng.standard_normal((4, 1000))
    assert effective_size(chains) == pytest.approx(4000, rel=0.2)
    assert r_hat(chains) == pytest.approx(1, abs=0.01)
    chains[0] += 3
    assert effective_size(chains, method="bulk") < 20
    assert r_hat(chains) > 1.3
    assert effective_size(np.ones((4, 100))) == 400
    assert np.isnan(r_hat(np.ones((4, 100))))


def test_r_hat_of_one_chain(rng: np.random.Generator) -> None:
    """Its halves are compared."""
    chain = rng.standard_normal((1, 501))
    assert r_hat(chain) == pytest.approx(1, abs=0.03)
    assert r_hat(chain + np.linspace(0, 3, 501)) > 1.1
