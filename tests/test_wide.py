"""Programs with hundreds of parameters: a diagonal plus low-rank base, without a search."""

from __future__ import annotations

import numpy as np
import pytest

import stanct
from stanct.path.low_rank import LowRankBase
from stanct.runs.diagnostics import MOST_PAIRED, base_check

FACTOR = """
data { int D; real load; }
parameters { vector[D] x; real f; }
model { f ~ std_normal(); x ~ normal(1 + load * f, 0.5); }
"""
TWO = """
data { int D; real a; }
parameters { vector[D] x; }
model {
  x[2:D] ~ std_normal();
  target += log_mix(0.3, normal_lpdf(x[1] | -a, 1), normal_lpdf(x[1] | a, 1));
}
"""


def test_one_factor_moves_all_parameters() -> None:
    model = stanct.temper(FACTOR)
    run = model.sample({"D": 449, "load": 0.5}, seed=1, draws=1000, progress=False)
    assert isinstance(run.base, LowRankBase)
    assert run.base.stretch.size == 1
    evidence = run.evidence
    assert abs(evidence.log_z) < 4 * evidence.std_error < 0.2
    mean = run.expect("x")
    assert np.all(np.abs(mean.value - 1) < 5 * mean.std_error)
    assert run.warnings == ()


def test_modes_that_pilots_saw_apart_are_sampled() -> None:
    run = stanct.temper(TWO).sample({"D": 450, "a": 6.0}, seed=2, progress=False)
    assert len(run.provenance["survey"]["log_evidence"]) == 2
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.1
    first = run.expect("x")
    assert abs(first.value[0] - 2.4) < 4 * first.std_error[0] < 2.4


@pytest.mark.parametrize("method", ["gibbs", "simulated_tempering", "ais"])
def test_methods_by_name_take_the_base(method: str) -> None:
    run = stanct.temper(FACTOR).sample({"D": 401, "load": 0.2}, method, seed=3, progress=False)
    assert isinstance(run, stanct.EvidenceRun) and isinstance(run.base, LowRankBase)
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 1.2


def test_a_mixture_is_refused() -> None:
    with pytest.raises(stanct.StanctError, match="400 dimensions at most"):
        stanct.temper(FACTOR).sample(
            {"D": 449, "load": 0.5}, "simulated_tempering", base="mixture", progress=False
        )


def test_only_directions_that_show_twice_are_kept() -> None:
    """Drifting chains have large eigenvalues by chance; a factor shows in every chain."""
    rng = np.random.default_rng(1)
    steps = rng.standard_normal((4, 300, 400))
    drift = np.zeros_like(steps)
    for k in range(1, 300):
        drift[:, k] = 0.97 * drift[:, k - 1] + np.sqrt(1 - 0.97**2) * steps[:, k]
    drifting = drift.reshape(1200, 400)
    assert LowRankBase.from_points(drifting).stretch.size < 5
    factor = rng.standard_normal((1200, 400)) + rng.standard_normal((1200, 1))
    kept = LowRankBase.from_points(factor)
    assert kept.stretch.size == 1
    assert np.allclose(kept.spread, np.sqrt(2), rtol=0.2)
    assert np.allclose(kept.spread, np.sqrt(np.diag(kept.covariance)))


def test_the_base_check_sees_a_wrong_variance_in_many_dimensions() -> None:
    z = np.random.default_rng(2).standard_normal((4, 500, MOST_PAIRED + 1))
    none = np.zeros(z.shape[:2])
    found = base_check(z, none)
    assert found.covariance.shape == (MOST_PAIRED + 1,)
    assert found.worst < found.limit
    z[..., 7] *= 1.3
    assert base_check(z, none).worst > found.limit
