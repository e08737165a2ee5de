"""Ladders and biases of the user's own: they stay as they are, and the answers are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analytic import Analytic, gaussian, skewed
from conftest import LONG
from sampled import sampled
from scipy.stats import kstest

import stanct
from stanct.common.errors import SamplingError
from stanct.estimates.counts import COUNTS, count_evidence
from stanct.path.bias import ATOM, LadderBias
from stanct.path.gaussian import GaussianBase
from stanct.samplers.bidirectional import Bidirectional

RUNGS = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)
TILT = 3.0


def run(method: str, case: Analytic, seed: int, **settings: Any) -> Any:
    known = {"draws": 600, "warmup": 160, "bootstrap": 0, "threads": 1, "progress": False}
    return sampled(method, case.target, base=case.base, seed=seed, **(known | settings))


@pytest.mark.parametrize("method", ["simulated_tempering", "parallel_tempering"])
def test_rungs_of_ones_own_stay(method: str, seed: int) -> None:
    case = gaussian(5)
    done = run(method, case, seed, rungs=np.array(RUNGS))
    ladder = done.betas if method == "parallel_tempering" else done.bias.beta
    np.testing.assert_array_equal(ladder, RUNGS)
    assert abs(done.evidence.log_z - case.log_z) < 4 * done.evidence.std_error < 0.3
    assert tuple(done.method_settings["rungs"]) == RUNGS
    more = done.extend(100, target=case.target, progress=False)
    assert more.draws == 700


def test_a_schedule_of_ones_own_stays(seed: int) -> None:
    """Also where particles go both ways, and where powers are those of the likelihood."""
    case = skewed()
    done = sampled("ais", case.target, base=case.base, temperatures=RUNGS, seed=seed, draws=320,
                   progress=False)  # fmt: skip
    np.testing.assert_array_equal(done.betas, RUNGS)
    assert abs(done.evidence.log_z - case.log_z) < 4 * done.evidence.std_error < 0.3
    assert Bidirectional(exact=np.zeros(2), temperatures=RUNGS).temperatures == RUNGS
    np.testing.assert_array_equal(stanct.PowerPosterior(rungs=RUNGS).betas, RUNGS)


def tilted(case: Analytic) -> tuple[tuple[float, float], ...]:
    """b(β) = log z(β) + TILT β for a Gaussian under its base, under which p(β) ∝ exp(−TILT β)."""
    beta = np.linspace(0, 1, 33)
    base, precision = case.base, 1 / case.variance
    own = 1 / np.diag(base.covariance)
    mixed = own + beta[:, None] * (precision - own)
    place = (beta[:, None] * precision * case.mean + (1 - beta[:, None]) * own * base.mean) / mixed
    centre = (
        beta[:, None] * precision * case.mean**2 + (1 - beta[:, None]) * own * base.mean**2
    ) - mixed * place**2
    log_z = beta * case.log_z + 0.5 * (
        beta[:, None] * np.log(precision) + (1 - beta[:, None]) * np.log(own)
        - np.log(mixed) - centre
    ).sum(axis=1)  # fmt: skip
    return tuple(zip(beta.tolist(), (log_z - log_z[0] + TILT * beta).tolist(), strict=True))


@pytest.mark.parametrize(
    "method", ["gibbs", pytest.param("joint", marks=LONG), "simulated_tempering"]
)
def test_a_bias_of_ones_own_stays(method: str, seed: int) -> None:
    case = gaussian(3)
    knots = tilted(case)
    assert knots[-1][1] == pytest.approx(case.log_z + TILT)
    engine = {"engine": "embedded"} if method == "joint" else {}
    done = run(method, case, seed, bias=knots, draws=1500, **engine)
    np.testing.assert_allclose(done.bias(np.array(knots)[:, 0]), np.array(knots)[:, 1], atol=0.05)
    assert abs(done.evidence.log_z - case.log_z) < 4 * done.evidence.std_error < 0.2
    beta = done.beta[:, ::10].ravel()
    if method == "simulated_tempering":
        hot, cold = (beta < 0.5).mean(), (done.bias.beta < 0.5)
        share = np.exp(-TILT * done.bias.beta)
        assert hot == pytest.approx(share[cold].sum() / share.sum(), abs=0.08)
        return
    # Gibbs learns the weight that brings the share about, and joint does not without a round.
    rest = (1 - np.exp(-TILT)) / TILT
    share = ATOM if method == "gibbs" else ATOM / (ATOM + (1 - ATOM) * rest)
    assert (beta == 0).mean() == pytest.approx(share, abs=0.03)
    inside = beta[beta > 0]
    law = (1 - np.exp(-TILT * inside)) / (1 - np.exp(-TILT))
    assert kstest(law, "uniform").pvalue > 1e-3
    assert kstest(inside, "uniform").pvalue < 1e-6


def test_visits_of_the_ends_are_counted(seed: int) -> None:
    """[GS] 8: right within its error, which is larger than that of the Rao–Blackwell estimator."""
    case = gaussian(4)
    done = run("simulated_tempering", case, seed, rungs=RUNGS, draws=1500)
    counted = done.extra_estimates()[COUNTS]
    assert abs(counted.log_z - case.log_z) < 4 * counted.std_error < 0.5
    assert counted.std_error > 1.2 * done.rao_blackwell_evidence.std_error
    by_hand = done.bias.log_zeta + np.log((done.beta == 1).sum() / (done.beta == 0).sum())
    assert counted.log_z == pytest.approx(by_hand)
    assert run("gibbs", case, seed, draws=50).count_evidence is None


def test_ends_that_were_never_visited_give_no_estimate() -> None:
    bias = LadderBias(np.array([0.0, 0.5, 1.0]), np.array([0.0, 1.0, 2.0]))
    beta = np.array([[0.0, 0.5, 0.5, 0.0] * 5, [0.0, 0.0, 0.5, 0.5] * 5])
    found = count_evidence(beta, bias, None, "x")
    assert found.log_z == -np.inf and found.std_error == np.inf


@pytest.mark.parametrize(
    ("method", "settings", "match"),
    [
        ("simulated_tempering", {"rungs": (0, 0.5, 0.4, 1)}, "rungs must be a whole number"),
        ("parallel_tempering", {"rungs": (0.1, 1.0)}, "inverse temperatures that increase from 0"),
        ("ais", {"temperatures": (0.0, 0.9)}, "temperatures must be a whole number"),
        ("gibbs", {"bias": ((0, 0), (0.5, 1))}, "bias must be pairs"),
        ("joint", {"bias": ((0, 1), (1, 1))}, "b = 0 at β = 0, or None"),
        ("simulated_tempering", {"bias": 3.0}, "bias must be pairs"),
    ],
)
def test_invalid_paths_are_refused(method: str, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SamplingError, match=match):
        sampled(method, gaussian(1).target, base=GaussianBase(np.zeros(1), np.eye(1)), **settings)
