"""Components of mixtures that a program names lead to modes that dominate hardly anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import target_of

import stanct
from stanct.bases.ascents import Counted
from stanct.bases.components import components
from stanct.bases.known import Modes, Survey
from stanct.bases.search import search
from stanct.targets.program_target import ProgramTarget

TWO = """
data { int D; }
parameters { vector[D] x; }
model { target += log_mix(0.3, normal_lpdf(x | 0, 1), normal_lpdf(x | 8, 0.5)); }
"""
FIVE = """
data { array[5] vector[6] m; real nu; }
parameters { vector[6] x; }
model {
  vector[5] each;
  for (k in 1:5) each[k] = student_t_lpdf(x | nu, m[k], 0.1);
  target += log_sum_exp(each) - log(5);
}
"""
SPIKE = """
data { int D; real at; real sd; }
parameters { vector[D] x; }
model { target += log_mix(0.6, normal_lpdf(x | at, sd), normal_lpdf(x | 0, 1)); }
"""
# Beside the mixture there is as much mass in a third Gaussian, which no function names.
THIRD = """
data { real at; }
parameters { vector[3] x; }
model {
  real named = log_mix(0.5, normal_lpdf(x | -2, 0.2), normal_lpdf(x | 2, 0.2));
  real third = normal_lpdf(x | at, 1);
  real most = fmax(named, third);
  target += most + log(exp(named - most) + exp(third - most));
}
"""


def two() -> ProgramTarget:
    return target_of(TWO, {"D": 20})


def test_a_narrow_mode_far_away_is_found(seed: int) -> None:
    target = two()
    own, named = (
        search(target.density, np.random.SeedSequence(seed), named=one)
        for one in (None, target.one_component)
    )
    assert len(own.fits) == 1 and not own.named and not own.whole
    assert len(named.fits) == named.named == 2 and named.whole and named.settled
    np.testing.assert_allclose(named.fits[0].mean, 8, atol=1e-6)
    logs = [fit.log_evidence for fit in named.fits]
    np.testing.assert_allclose(logs, np.log([0.7, 0.3]), atol=1e-6)
    assert not any(fit.around for fit in named.fits)
    assert sum(named.seen) == named.ascents == 60
    assert named.gradients < 500 and named.evaluations < 1000


@pytest.mark.parametrize("ratio", [3, 30])
def test_a_slab_is_mass_around_its_spike(seed: int, ratio: float) -> None:
    data = {"D": 10, "at": 0.1, "sd": 1 / ratio}
    target = target_of(SPIKE, data)
    found = search(target.density, np.random.SeedSequence(seed), named=target.one_component)
    assert found.whole
    np.testing.assert_allclose([fit.log_evidence for fit in found.fits], np.log([0.6, 0.4]))
    assert [fit.around for fit in found.fits] == [False, True]
    survey = Survey.of(Modes(tuple(found.fits)))
    assert survey.owner == (0, 0) and survey.around == 1


@pytest.mark.parametrize("at", [4.0, 60.0])
def test_other_mass_refutes_that_components_are_all(seed: int, at: float) -> None:
    """Draws of the components see the third if it is near, and ascents wherever it is."""
    target = target_of(THIRD, {"at": at})
    found = search(target.density, np.random.SeedSequence(seed), named=target.one_component)
    assert found.named and not found.whole
    logs = [fit.log_evidence for fit in found.fits]
    np.testing.assert_allclose(np.logaddexp.reduce(logs), np.log(2), atol=0.02)
    assert len(found.fits) == 3


def test_components_that_are_not_gaussian_are_starts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = target_of(FIVE, {"m": rng.normal(0, 3, (5, 6)).tolist(), "nu": 5})
    found = search(
        target.density, np.random.SeedSequence(seed), named=target.one_component, scan=False
    )
    assert found.named == 5 and not found.whole and len(found.fits) == 5


def test_one_ascent_for_each_component(rng: np.random.Generator) -> None:
    places = rng.normal(0, 3, (5, 6))
    one = target_of(FIVE, {"m": places.tolist(), "nu": 1e9}).one_component
    assert one is not None
    counted = Counted(one)
    found = components(counted, one, rng)
    np.testing.assert_allclose([each.place for each in found], places, atol=1e-5)
    np.testing.assert_allclose([each.log_mass for each in found], -np.log(5), atol=1e-3)
    assert 0 < counted.spent < 500


def test_ascents_end_with_the_purse(rng: np.random.Generator) -> None:
    one = target_of(FIVE, {"m": rng.normal(0, 3, (5, 6)).tolist(), "nu": 5}).one_component
    assert one is not None
    assert len(components(Counted(one, effort=1e-9), one, rng)) == 1


@pytest.mark.parametrize("seeded", [1, 2, 3])
def test_the_default_is_right_about_a_narrow_mode(seeded: int) -> None:
    """Half as wide, 36 standard deviations away, 70 % of the mass in 20 dimensions."""
    run: Any = stanct.temper(TWO).sample({"D": 20}, seed=seeded, progress=False)
    assert run.evidence.log_z == pytest.approx(0, abs=0.05)
    assert len(run.modes) == 2 and not run.warnings
