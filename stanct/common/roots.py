"""Roots of functions of one number. SciPy's module for them takes .1 s to load."""

from __future__ import annotations

import math
from collections.abc import Callable

# Halving all numbers down to 10⁻¹² takes 1,100.
_MOST_STEPS = 10_000
_ROUNDING = 4e-16


def root_between(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float
) -> float:
    """Return where a function changes its sign, to the tolerance and to rounding, by the method of
    Chandrupatla (1997). Without different signs at finite `low` and `high` it is a `ValueError`.
    """
    a, b = float(low), float(high)
    at_a, at_b = float(function(a)), float(function(b))
    if not (math.isfinite(a) and math.isfinite(b) and min(at_a, at_b) <= 0 <= max(at_a, at_b)):
        raise ValueError("The function has the same sign at both ends.")
    if at_a == 0 or at_b == 0:
        return a if at_a == 0 else b
    part, best = 0.5, a
    for _ in range(_MOST_STEPS):
        x = a + part * (b - a)
        at_x = float(function(x))
        # b is beyond the root, c is the last point but one.
        if (at_x > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, at_c, b, at_b = b, at_b, a, at_a
        a, at_a = x, at_x
        best = a if abs(at_a) < abs(at_b) else b
        least = (0.5 * tolerance + _ROUNDING * abs(best)) / max(abs(b - a), 1e-300)
        if at_x == 0 or least > 0.5:
            break
        place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        part = 0.5
        if height**2 < place and (1 - height) ** 2 < 1 - place:  # the inverse is a parabola
            part = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            part += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        part = min(max(part, least), 1 - least)
    return best
