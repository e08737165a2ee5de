"""The dip test on weighted draws: its level on one mode, its power on two, its value."""

from __future__ import annotations

import numpy as np
import pytest

from stanct.estimates.modality import CELLS, DIP_LIMIT, excess_mass_dip, modalities


def test_dip_of_known_distributions() -> None:
    """Two equal blocks with a gap have dip 1/4; a uniform and a bell have none."""
    chance = np.linspace(0, 1, CELLS + 1)
    blocks = np.where(chance < 0.5, chance, 10 + chance)
    dips = excess_mass_dip(np.column_stack([blocks, chance, np.arctanh(1.99 * (chance - 0.5))]))
    assert dips == pytest.approx([0.25, 0, 0], abs=0.02)


@pytest.mark.parametrize("count", [300, 3000])
def test_level_on_the_worst_unimodal_case(rng: np.random.Generator, count: int) -> None:
    x = rng.random((1, count, 400))
    sizes = {"x": np.full(400, count)}
    scores = np.array([m.score for m in modalities({"x": x}, np.zeros((1, count)), sizes, ["x"])])
    assert np.mean(scores > DIP_LIMIT) <= 0.005
    # Hartigan & Hartigan's (1985) table: 5 % of uniform samples exceed 0.47.
    assert 0.02 < np.mean(scores > 0.47) < 0.09


def test_weights_decide(rng: np.random.Generator) -> None:
    """Draws of two modes, of which the weights keep one; and the other way round."""
    side = rng.random((4, 500)) < 0.5
    x = rng.normal(size=(2, *side.shape))
    x[0, side] += 5
    variables = {"x": np.moveaxis(x, 0, -1), "y": rng.normal(size=side.shape)}
    sizes = {"x": np.full(2, 2000.0), "y": np.array(2000.0)}
    both = modalities(variables, np.zeros(side.shape), sizes, ["x", "y"])
    assert [m.label for m in both[:1]] == ["x[1]"] and both[0].is_multimodal
    assert not any(m.is_multimodal for m in both[1:])
    one = modalities(variables, np.where(side, -30.0, 0.0), sizes, ["x"])
    assert not any(m.is_multimodal for m in one)
