"""Roots of functions of one number."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from stanct.common.roots import root_between

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "steep": lambda x: math.expm1(x - 0.7),
    "flat": lambda x: (x - 0.7) ** 3,
    "saturated": lambda x: math.tanh(50 * (x - 0.7)),
    "jump": lambda x: 1.0 if x > 0.7 else -0.1,
    "infinite": lambda x: math.inf if x > 0.7 else -math.inf,
    "falling": lambda x: 0.7 - x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("ends", [(-1.0, 1.0), (-60.0, 90.0), (0.7, 1.0), (0.0, 0.7)])
def test_a_root_is_found(name: str, ends: tuple[float, float]) -> None:
    if name in ("jump", "infinite") and ends[0] == 0.7:
        ends = (0.69, 1.0)
    if name in ("jump", "infinite") and ends[1] == 0.7:
        ends = (0.0, 0.71)
    asked = []

    def function(x: float) -> float:
        asked.append(x)
        return FUNCTIONS[name](x)

    assert root_between(function, *ends, tolerance=1e-9) == pytest.approx(0.7, abs=1e-9)
    assert len(asked) < 80


def test_a_bracket_may_be_as_wide_as_numbers() -> None:
    root = root_between(lambda x: math.tanh(x - 0.7), -1e300, 1e300, tolerance=1e-12)
    assert root == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("ends", [(1.0, 2.0), (-math.inf, 2.0), (math.nan, 2.0)])
def test_ends_without_a_root_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="same sign"):
        root_between(lambda x: x - 0.7, *ends, tolerance=1e-9)
    with pytest.raises(ValueError, match="same sign"):
        root_between(lambda _: math.nan, -1.0, 1.0, tolerance=1e-9)
