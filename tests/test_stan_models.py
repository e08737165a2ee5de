"""Variants of the shipped programs: each has the density of the plain program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import stanct

VARIANTS = sorted(
    path for path in (ROOT / "stan_models").glob("*/*.stan") if path.stem != path.parent.name
)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem)
def test_variants_have_the_density_of_the_plain_program(
    variant: Path, rng: np.random.Generator
) -> None:
    name = variant.parent.name
    data = variant.with_name(f"{name}.data.json")
    plain = stanct.temper(variant.with_name(f"{name}.stan")).density(data)
    other = stanct.temper(variant).density(data)
    for point in rng.normal(scale=2, size=(100, plain.dimension)):
        value, gradient = plain.log_density_gradient(point)
        found, slope = other.log_density_gradient(point)
        # Stan's GLM drops terms below exp(-20), 2e-9, beside 1.
        np.testing.assert_allclose([found, *slope], [value, *gradient], rtol=1e-8, atol=1e-8)
