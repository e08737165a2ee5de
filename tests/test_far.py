"""Far draws find modes that no ascent reached, and tell what they cannot see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import target_of

from stanct.bases.ascents import Counted, Optimum, climb
from stanct.bases.far import looked_far

ROUND = """
data { int K; int D; array[K] vector[D] mu; vector[K] sd; real nu; }
parameters { vector[D] x; }
model {
  vector[K] each;
  for (k in 1:K)
    each[k] = nu > 0 ? multi_student_t_lpdf(x | nu, mu[k], diag_matrix(rep_vector(sd[k]^2, D)))
                     : normal_lpdf(x | mu[k], sd[k]);
  target += log_sum_exp(each) - log(K);
}
"""


def known(widths: list[float], dimension: int, nu: float = 0) -> tuple[Counted, list[Optimum], Any]:
    """Round modes of these widths at random places, of which the first three are known."""
    mu = np.random.default_rng(8).normal(size=(len(widths), dimension)) * 8
    data = {"K": len(widths), "D": dimension, "mu": mu.tolist(), "sd": widths, "nu": nu}
    counted, modes = Counted(target_of(ROUND, data).density), list[Optimum]()
    for place in mu[:3]:
        climb(counted, place + 0.1, modes)
    return counted, modes, mu


def test_draws_find_all_modes_of_one_width(seed: int) -> None:
    counted, modes, mu = known([1.0] * 12, 20)
    far = looked_far(counted, modes, np.random.default_rng(seed))
    assert far == (True, True)
    assert len(modes) == 12 and all(one.particles for one in modes)
    nearest = [int(np.square(mu - one.place).sum(axis=1).argmin()) for one in modes]
    assert sorted(nearest) == list(range(12))
    assert np.logaddexp.reduce([one.log_mass for one in modes]) == pytest.approx(0, abs=1e-3)


def test_a_narrow_mode_is_found_or_missed_with_a_word(seed: int) -> None:
    """Narrower by a fifth in 20 dimensions is seen; by two thirds it is not, nor is it denied."""
    counted, modes, _ = known([1.0, 0.95, 1.05, 0.8], 20)
    assert looked_far(counted, modes, np.random.default_rng(seed)) == (True, True)
    assert len(modes) == 4
    counted, modes, _ = known([1.0, 0.7, 1.3, 0.35], 20)
    assert looked_far(counted, modes, np.random.default_rng(seed)) == (True, False)
    assert len(modes) == 3


def test_heavy_tails_are_not_explained(seed: int) -> None:
    counted, modes, _ = known([1.0, 0.9, 1.1], 8, nu=3)
    assert not looked_far(counted, modes, np.random.default_rng(seed)).whole
    assert not any(one.particles for one in modes)


@pytest.mark.parametrize("nu", [0, 3])
def test_ascents_from_far_draws_do_not_count(seed: int, nu: float) -> None:
    """The chance of a new mode is that of an ascent from anywhere."""
    counted, modes, _ = known([1.0] * 12, 8, nu)
    before, ends = [one.seen for one in modes], len(modes)
    looked_far(counted, modes, np.random.default_rng(seed))
    assert [one.seen for one in modes[:ends]] == before
    assert not any(one.seen for one in modes[ends:]) and len(modes) > ends
