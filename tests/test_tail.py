"""One rule for the tail of weights, in checks and in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from runs import line_run

from stanct.estimates.ladder import LadderEstimator
from stanct.estimates.tail import Tail, pareto_k
from stanct.runs.diagnostics import weights_check


@pytest.mark.parametrize(
    ("shape", "share", "is_heavy", "words"),
    [
        (0.7, 0.1, False, "Pareto k 0.70"),
        (0.71, 0.5, True, "Pareto k 0.71"),
        (0.71, 0.51, False, "Pareto k 0.71 of even weights"),
        (-np.inf, 1.0, False, ""),
        (np.inf, 0.0, True, "Pareto k inf"),
        (np.nan, np.nan, True, ""),
    ],
)
def test_the_rule(shape: float, share: float, is_heavy: bool, words: str) -> None:
    tail = Tail(shape, share)
    assert tail.is_heavy is is_heavy and tail.in_words == words
    check = weights_check("pareto_k", tail, "They", "More.")
    assert check.passed is not is_heavy
    # A value beyond the limit that passes says why.
    assert ("No few decide" in check.message) is (check.passed and shape > 0.7)


def test_a_run_says_and_checks_the_same() -> None:
    run = line_run("joint")
    (check,) = (check for check in run.diagnostics if check.name == "pareto_k")
    assert check.passed is not run.evidence.tail.is_heavy
    assert f"{run.evidence.weight_share:.0%} of the draws" in check.message
    for share, words in ((0.6, "Pareto k 0.90 of even weights"), (0.4, "Pareto k 0.90")):
        doubtful = replace(run.evidence, pareto_k=0.9, weight_share=share)
        assert repr(doubtful).splitlines()[2].endswith(words)
    unknown = replace(run.evidence, pareto_k=np.nan)
    assert "Pareto" not in repr(unknown) and "nan" not in repr(unknown)


def test_the_tail_of_a_ladder_is_that_of_the_terms(rng: np.random.Generator) -> None:
    """Weights of stepping stones have no bound, and the terms of bridges are at most 1."""
    delta = 1.5 * rng.standard_exponential((2, 500, 2))
    found = LadderEstimator(np.array([0.0, 1.0]), delta)
    up, down, bridge = (found.evidence("m", way) for way in ("forward", "backward", "bridge"))
    assert down.tail.is_heavy and down.pareto_k > 1
    assert not up.tail.is_heavy and not bridge.tail.is_heavy
    signs = np.array([-1, 1])
    terms = 1 / (1 + np.exp(-signs * (delta + bridge.log_z)))
    shares = terms.mean((0, 1)) ** 2 / np.square(terms).mean((0, 1))
    assert np.abs(shares - bridge.weight_share).min() < 1e-6


@pytest.mark.parametrize("shape", [0.3, 0.9, 1.5])
def test_pareto_k_finds_the_tail_s_shape(rng: np.random.Generator, shape: float) -> None:
    log_weights = shape * rng.standard_exponential((4, 5000))
    assert pareto_k(log_weights) == pytest.approx(shape, abs=0.25)
    assert pareto_k(log_weights - 1000) == pytest.approx(shape, abs=0.25)


def test_equal_weights_have_no_tail() -> None:
    assert pareto_k(np.zeros((4, 100))) == -np.inf
    rounded = 1e-16 * np.arange(400.0).reshape(4, 100)
    assert pareto_k(rounded) == -np.inf
    capped = np.minimum(np.linspace(-5, 2, 400), 0.0)
    assert pareto_k(capped) == -np.inf


def test_too_few_weights_have_no_tail_that_could_be_told(rng: np.random.Generator) -> None:
    assert pareto_k(rng.standard_normal(24)) == np.inf
    assert np.isfinite(pareto_k(rng.standard_normal(25)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz_stats")
@pytest.mark.parametrize("count", [25, 26, 30, 99, 225, 226, 400, 5000])
def test_the_shape_is_that_of_arviz(rng: np.random.Generator, count: int) -> None:
    for shape in (0.0, 0.3, 0.9, 2.0):
        log_weights = shape * rng.standard_exponential(count) + 0.1 * rng.standard_normal(count)
        for given in (log_weights, np.round(log_weights, 1)):
            expected = array_stats.psislw(-given)[1]
            assert pareto_k(given) == pytest.approx(float(expected), rel=1e-9)
