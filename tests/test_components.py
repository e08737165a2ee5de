"""Components of mixtures that a program names lead to modes that dominate hardly anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import target_of

import stanct
from stanct.bases.ascents import Counted
from stanct.bases.components import component_ends
from stanct.bases.search import search
from stanct.targets.program_target import ProgramTarget

TWO = """
data { int D; }
parameters { vector[D] x; }
model { target += log_mix(0.3, normal_lpdf(x | 0, 1), normal_lpdf(x | 8, 0.5)); }
"""
FIVE = """
data { array[5] vector[6] m; }
parameters { vector<lower=0>[6] x; }
model {
  vector[5] each;
  for (k in 1:5) each[k] = lognormal_lpdf(x | m[k], 0.1);
  target += log_sum_exp(each) - log(5);
}
"""


def two() -> ProgramTarget:
    return target_of(TWO, {"D": 20})


def test_a_narrow_mode_far_away_is_found(seed: int) -> None:
    target = two()
    own, named = (
        search(target.density, np.random.SeedSequence(seed), named=one, scan=False)
        for one in (None, target.one_component)
    )
    assert len(own.fits) == 1 and len(named.fits) == 2
    assert named.named == 2 and own.named == 0
    np.testing.assert_allclose(named.fits[0].mean, 8, atol=1e-3)
    logs = [fit.log_evidence for fit in named.fits]
    np.testing.assert_allclose(logs, np.log([0.7, 0.3]), atol=1e-3)
    # No ascent from anywhere came there, and the chance that one does is what it was.
    assert named.seen == (0, *own.seen) and named.unseen == own.unseen
    assert named.gradients - own.gradients < 200


def test_one_ascent_for_each_component(rng: np.random.Generator) -> None:
    places = rng.normal(0, 3, (5, 6))
    one = target_of(FIVE, {"m": places.tolist()}).one_component
    assert one is not None
    counted = Counted(one)
    ends = component_ends(counted, one, rng)
    np.testing.assert_allclose(ends, places, atol=1e-4)
    assert 0 < counted.spent < 500


def test_ascents_end_with_the_purse(rng: np.random.Generator) -> None:
    one = target_of(FIVE, {"m": rng.normal(0, 3, (5, 6)).tolist()}).one_component
    assert one is not None
    assert len(component_ends(Counted(one, effort=1e-9), one, rng)) == 1


@pytest.mark.parametrize("seeded", [1, 2, 3])
def test_the_default_is_right_about_a_narrow_mode(seeded: int) -> None:
    """Half as wide, 36 standard deviations away, 70 % of the mass in 20 dimensions."""
    run: Any = stanct.temper(TWO).sample({"D": 20}, seed=seeded, progress=False)
    assert run.evidence.log_z == pytest.approx(0, abs=0.05)
    assert len(run.modes) == 2 and not run.warnings
