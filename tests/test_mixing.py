"""Effective sizes and R̂ are those of ArviZ, which is not loaded, and exact ones under weights."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from conftest import SEED

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size, mixing, r_hat
from stanct.estimates.weighted import least_effective


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


def walk(rng: np.random.Generator, draws: int = 500) -> Array:
    """Four autoregressive chains."""
    noise, values = rng.standard_normal((4, draws)), np.zeros((4, draws))
    for t in range(1, draws):
        values[:, t] = 0.7 * values[:, t - 1] + noise[:, t]
    return np.exp(values)


def test_of_equal_weights_they_are_those_of_arviz() -> None:
    values = walk(np.random.default_rng(SEED))
    values[0] *= 1.3
    found = mixing(values, np.ones_like(values))
    assert found.bulk == pytest.approx(effective_size(values, method="bulk"), rel=1e-9)
    assert found.r_hat == pytest.approx(r_hat(values), rel=1e-9)


def test_a_chain_elsewhere_is_seen() -> None:
    values = walk(np.random.default_rng(SEED))
    values[0] *= 20
    found = mixing(values, np.ones_like(values))
    assert found.r_hat > 1.2 and found.bulk < 20


def test_under_weights_they_count_what_tells_as_much_as_independent_draws() -> None:
    """The mean of ranks of weighted draws varies as that of so many independent draws."""
    rng = np.random.default_rng(SEED)
    sizes, tails = [], []
    for _ in range(40):
        # Draws of the uniform density on (0, 2), of which only those below 1 count.
        values = 2 * rng.random((4, 400))
        weights = 2.0 * (values < 1)
        found = mixing(values, weights)
        sizes.append(found.bulk)
        tails.append(found.tail)
        assert found.r_hat < 1.1
    assert np.mean(sizes) == pytest.approx(800, rel=0.1)
    assert np.mean(tails) == pytest.approx(800, rel=0.15)


def test_copies_of_a_draw_count_together() -> None:
    values = np.repeat(np.random.default_rng(SEED).random((4, 300)), 3, axis=1)
    found = mixing(values, np.ones_like(values), copies=3)
    assert found.bulk == pytest.approx(1200, rel=0.2)


def test_a_constant_has_no_r_hat() -> None:
    found = mixing(np.ones((4, 50)), np.ones((4, 50)))
    assert found.bulk == 200 and np.isnan(found.r_hat)


@pytest.mark.parametrize("weights", [[1.0] * 20, [*[0.5] * 19, 10.5]])
def test_a_largest_value_with_much_of_the_weight(weights: list[float]) -> None:
    """The middle of its weight lies below the upper tail."""
    values = np.zeros((1, 20))
    values[0, 10:] = 1.0
    found = mixing(values, np.array([weights]))
    assert 0 < found.bulk <= 40 and 0 < found.tail <= 40


@pytest.mark.parametrize("columns", [1, 30, 400])
@pytest.mark.parametrize("draws", [345, 700])
def test_the_worst_of_many_is_not_low_by_chance(columns: int, draws: int) -> None:
    rng = np.random.default_rng([columns, draws])
    values = rng.standard_normal((4, draws, columns))
    level = np.zeros((4, draws))
    assert 0.75 < least_effective(values, level) / level.size < 1.2
    for n in range(1, draws):  # one of the columns has a fifth of them
        values[:, n, 0] = 2 / 3 * values[:, n - 1, 0] + np.sqrt(5) / 3 * values[:, n, 0]
    assert least_effective(values, level) / level.size < 0.35
