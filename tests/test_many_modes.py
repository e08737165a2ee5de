"""The exact answers of `examples/calibration/many.py`, each against the density of its program."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
from conftest import ROOT, target_of
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

SEEDS = (11, 12, 13)
NORMAL = cast(Any, multivariate_normal)


@pytest.fixture(scope="module")
def families() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "calibration")
        yield importlib.import_module("families")


def parts(name: str, data: Any) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Weights, means and covariances of the Gaussians of a target, by its data alone."""
    if name == "gaussians":
        return [(w, m, L @ L.T) for w, m, L in zip(data["w"], data["m"], data["L"], strict=True)]
    eye = np.eye(data["D"])
    if name == "two_widths":
        shares = data["p"], 1 - data["p"]
        return [(w, m, s**2 * eye) for w, m, s in zip(shares, data["m"], data["s"], strict=True)]
    slab = 1 - data["p"], np.zeros(data["D"]), data["wide"] ** 2 * eye
    return [(data["p"], data["m"], data["narrow"] ** 2 * eye), slab]


@pytest.mark.parametrize("name", ["gaussians", "two_widths", "spikes"])
@pytest.mark.parametrize("seed", SEEDS)
def test_mixtures_are_normalised(families: ModuleType, name: str, seed: int) -> None:
    target = families.drawn(name, seed)
    known = parts(name, target.data)
    assert sum(weight for weight, _, _ in known) == pytest.approx(1)
    density, normal = (
        target_of(target.stan, dict(target.data)).density,
        cast(Any, multivariate_normal),
    )
    x = np.array([mean + 0.3 * np.sqrt(np.diag(cov)) for _, mean, cov in known])
    each = [np.log(w) + normal(m, cov).logpdf(x).reshape(-1) for w, m, cov in known]
    np.testing.assert_allclose(
        density.log_densities(x), target.log_z + logsumexp(each, axis=0), rtol=1e-8
    )
    assert target.mean == pytest.approx(sum(weight * mean[0] for weight, mean, _ in known))


@pytest.mark.parametrize(("name", "largest"), [("wells", 40), ("wells_in_pairs", 20)])
@pytest.mark.parametrize("seed", SEEDS)
def test_wells_are_sums_over_blocks(
    families: ModuleType, name: str, largest: int, seed: int
) -> None:
    """The program's density is integrated over each block, with zero for all other coordinates."""
    target = families.drawn(name, seed)
    density = target_of(target.stan, dict(target.data)).density
    n, dimension = target.data["n"], density.dimension
    assert dimension == 2 * n <= largest
    grid, origin = np.linspace(-9, 9, 241), np.zeros((1, dimension))
    blocks = [[k, n + k] for k in range(n)]
    log_z = log_p = density.log_densities(origin)[0]
    for number, block in enumerate(blocks):
        x = np.repeat(origin, grid.size**2, axis=0)
        x[:, block] = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
        values = density.log_densities(x) - log_p
        log_mass = logsumexp(values)
        log_z += log_mass + 2 * np.log(grid[1] - grid[0])
        if not number:
            assert np.exp(values - log_mass) @ x[:, 0] == pytest.approx(target.mean, abs=1e-6)
    assert log_z == pytest.approx(target.log_z, abs=1e-6)


def test_they_are_run_where_they_are_named(families: ModuleType) -> None:
    assert families.BY_NAME.keys() - families.FAMILIES.keys() == {
        "gaussians", "two_widths", "spikes", "wells", "wells_in_pairs",
        "spike_unnamed", "spikes_unnamed", "slabs", "light",
    }  # fmt: skip
