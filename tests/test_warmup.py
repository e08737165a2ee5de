"""Stan's warm-up: the windows of the manual, dual averaging, the first step size."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from stanct.common.errors import EngineError
from stanct.kernels.warmup import DualAveraging, first_step, inverse_metric, windows


def stan_s_window_ends(iterations: int) -> list[int]:
    """As the counters of Stan's `windowed_adaptation` go, with its defaults 75, 25 and 50."""
    size, end, found = 25, 99, []
    for counter in range(iterations):
        if counter != end:
            continue
        found.append(counter)
        if end == iterations - 51:
            continue
        size *= 2
        end = counter + size
        if end != iterations - 51 and end + 2 * size >= iterations - 50:
            end = iterations - 51
    return found


@pytest.mark.parametrize("iterations", [150, 200, 300, 301, 450, 500, 1000, 1999])
def test_windows_are_those_of_stan(iterations: int) -> None:
    found = windows(iterations)
    assert [window[-1] for window in found] == stan_s_window_ends(iterations)
    assert found[0][0] == 75
    assert all(a[-1] + 1 == b[0] for a, b in itertools.pairwise(found))


def test_a_remainder_makes_no_window_of_its_own() -> None:
    """With 151 iterations Stan's last window would hold a single draw."""
    assert windows(151) == [range(75, 101)]


@pytest.mark.parametrize("target", [0.6, 0.9])
def test_the_step_size_is_that_of_the_wanted_acceptance(target: float) -> None:
    """With acceptance exp(−ε) the answer is −log(target), from far on either side."""
    for first in (1e-3, 10.0):
        averaging = DualAveraging(first, target)
        for _ in range(1000):
            averaging.learn(math.exp(-averaging.step))
        assert averaging.learned == pytest.approx(-math.log(target), rel=0.08)


def test_a_restart_forgets(rng) -> None:
    one, two = DualAveraging(5.0, 0.8), DualAveraging(0.3, 0.8)
    for _ in range(50):
        one.learn(0.1)
    one.restart(0.3)
    for acceptance in rng.random(40):
        one.learn(acceptance)
        two.learn(acceptance)
    assert (one.step, one.learned) == (two.step, two.learned)


def test_the_metric_is_drawn_to_a_small_variance(rng) -> None:
    draws = rng.standard_normal((40, 2)) * [1.0, 20.0]
    variances = draws.var(axis=0, ddof=1)
    assert inverse_metric(draws) == pytest.approx(variances * 40 / 45 + 1e-3 * 5 / 45)


@pytest.mark.parametrize("start", [1e-6, 1.0, 1e4])
def test_the_first_step_crosses_the_wanted_acceptance(start: float) -> None:
    """A loss of ε is 0.8 at ε = 0.223: the step found lies within a factor 2 beyond it."""
    step = first_step(lambda step: -step, start)
    crossed = -math.log(0.8)
    assert crossed < step <= 2 * crossed if start < crossed else crossed / 2 <= step < crossed


@pytest.mark.parametrize("lost", [-np.inf, 1.0])
def test_no_first_step(lost: float) -> None:
    with pytest.raises(EngineError, match="no step size makes the acceptance"):
        first_step(lambda _: lost, 1.0)
