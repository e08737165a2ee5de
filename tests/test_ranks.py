"""Effective sizes and R-hat from ranks agree with ArviZ's, and with exact ones under weights."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import SEED

from stanct.common.arrays import Array
from stanct.estimates.mixing import effective_size, r_hat
from stanct.estimates.ranks import mixing


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
    assert found.bulk == pytest.approx(effective_size(values, method="bulk"), rel=0.01)
    assert found.r_hat == pytest.approx(r_hat(values), abs=0.001)


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
