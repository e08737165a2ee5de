"""Runs by name are compared with draws in two stages, which reach necks that chains miss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import LONG
from sampled import sampled
from states import STATES, WALLED, log_z_of_states, states
from test_nested import TWO_MODES
from test_ridges import BANANA

import stanct
from stanct.bases import makers
from stanct.bases.nested import Nested
from stanct.common.errors import LostExecutorError
from stanct.runs.diagnostics import BELOW
from stanct.samplers import _two_stages, auto
from stanct.samplers._two_stages import noting_two_stages
from stanct.work.ledger import Ledger
from stanct.work.workers import ExecutorWarning

Y = states(3, 12)
SHORT: dict[str, Any] = {"seed": 1, "draws": 500, "engine": "embedded", "progress": False}


def outside_necks(compare: Callable[..., Any] = noting_two_stages, **options: Any) -> Any:
    """A run whose chains stay outside the necks, compared with the whole target.

    How often a chain enters a neck differs from processor to processor. The walls of `WALLED` keep
    it outside, so that log Z is low by .58, which is 5 to 18 standard errors.
    """
    whole = stanct.temper(STATES).target({"T": 12, "y": Y})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "stanct.samplers._job.noting_two_stages",
            lambda run, _, *rest: compare(run, whole, *rest),
        )
        walled = stanct.temper(WALLED).target({"T": 12, "y": Y})
        return sampled("simulated_tempering", walled, **{**SHORT, **options})


@pytest.fixture(scope="module")
def run() -> Any:
    return outside_necks()


def test_what_misses_necks_is_told(run: Any) -> None:
    log_z, other = log_z_of_states(Y), run.provenance["two_stages"]
    assert run.evidence.log_z < log_z - 2.5 * run.evidence.std_error
    assert run.warnings == ("normalised", "two_stages")  # the walls cut off mass of the prior
    assert other["given"] == ["phi", "sg", "tau"]
    assert other["std_error"] < 0.03
    assert abs(other["log_z"] - log_z) < 4 * other["std_error"]
    (told,) = [check for check in run.diagnostics if check.name == "two_stages"]
    assert f"{other['log_z']:.3f}" in told.message
    assert "phi, sg" in told.remedy


def test_only_a_lower_log_z_fails(run: Any) -> None:
    evidence, other = run.bare_evidence, run.provenance["two_stages"]
    error = float(np.hypot(evidence.std_error, other["std_error"]))
    for errors, fails in ((BELOW + 0.1, True), (BELOW - 0.1, False), (-9.0, False)):
        told = {**other, "log_z": evidence.log_z + errors * error}
        again = replace(run, provenance={**run.provenance, "two_stages": told})
        assert ("two_stages" in again.warnings) == fails


def test_the_comparison_is_counted_and_saved(run: Any, tmp_path: Any) -> None:
    plain = outside_necks(lambda run, *_: run)
    assert plain.warnings == ("normalised",) and "two_stages" not in plain.provenance
    assert plain.gradients < run.gradients < 1.4 * plain.gradients
    np.testing.assert_array_equal(plain.z, run.z)
    run.save(tmp_path / "run")
    assert stanct.load(tmp_path / "run").warnings == ("normalised", "two_stages")


def test_an_interrupt_ends_the_comparison_alone(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_two_stages, "find_nested", interrupted)
    target, ledger = stanct.temper(STATES).target({"T": 12, "y": Y}), Ledger()
    kept = noting_two_stages(run, target, ledger, np.random.SeedSequence(0), lambda make: make())
    assert kept is run and ledger.gradients == 0


def test_a_lost_executor_ends_the_comparison_alone(run: Any) -> None:
    def lost(_: Any) -> Any:
        raise LostExecutorError("The workers were lost.", remedy="Look for them.")

    target, ledger = stanct.temper(STATES).target({"T": 12, "y": Y}), Ledger()
    with pytest.warns(ExecutorWarning, match="The workers were lost"):
        kept = noting_two_stages(run, target, ledger, np.random.SeedSequence(0), lost)
    assert kept is run and ledger.gradients == 0


def test_the_default_is_compared_with_a_base_that_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a base misses mass, so that its log Z is a lower bound."""
    refused = Nested(outer=("x",), log_weights=np.tile([2.0, 1.0], 100))
    monkeypatch.setattr(makers, "find_nested", lambda *_, **__: refused)
    target = stanct.temper(BANANA).target({})
    found: Any = sampled("auto", target, **{**SHORT, "draws": 200}, max_gradients=0)
    other = found.provenance["two_stages"]
    assert other["refused"] and other["log_z"] == pytest.approx(np.log((np.e + np.e**2) / 2))
    (check,) = [check for check in found.diagnostics if check.name == "two_stages"]
    assert not check.passed
    assert "a lower bound as they miss mass" in check.message
    assert "default" not in check.remedy
    assert "two_stages" in found.expect("x").warnings
    assert "two_stages" in repr(found.expect("x", beta=0.5))


def test_what_follows_draws_in_two_stages_is_compared_with_the_longest_run_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto, "mendable", lambda checks: ["weights"])
    found: Any = sampled("auto", stanct.temper(STATES).target({"T": 12, "y": Y}), **SHORT)
    _, longer, last = found.provenance["steps"]
    assert (longer["method"], last["method"]) == ("independence", "joint")
    other = found.provenance["two_stages"]
    assert (other["log_z"], other["std_error"]) == (longer["log_z"], longer["std_error"])
    assert not other["refused"] and set(other["given"]) == {"phi", "sg", "tau"}


@LONG
def test_a_base_that_misses_a_mode_fails_nothing() -> None:
    """It has at most one of two halves, and log Z is above its own."""
    found: Any = sampled("gibbs", stanct.temper(TWO_MODES).target(), **SHORT)
    other = found.provenance["two_stages"]
    assert other["refused"] and -2 < other["log_z"] < np.log(0.5) + 4 * other["std_error"]
    assert other["std_error"] < 0.15
    assert "two_stages" not in found.warnings


def test_a_fit_is_compared(run: Any) -> None:
    """Draws without the neck where the noise vanishes, as a chain that never enters it has them."""
    rng = np.random.default_rng(0)
    fit = {name: np.array(run.variables[name]) for name in ("phi", "sg", "tau", "x")}
    weights = np.exp(run.target_log_weights - run.target_log_weights.max()).ravel()
    weights[(fit["tau"] < 0.15).ravel() | (fit["sg"] < 0.15).ravel()] = 0
    rows = rng.choice(weights.size, (4, 500), p=weights / weights.sum())
    fit = {name: v.reshape(weights.size, *v.shape[2:])[rows] for name, v in fit.items()}
    # A hair apart, since `bridge` refuses draws that were resampled.
    fit = {name: v + 1e-7 * rng.standard_normal(v.shape) for name, v in fit.items()}
    model = stanct.temper(STATES)
    found = stanct.bridge(model, {"T": 12, "y": Y}, fit, seed=1)
    assert "two_stages" in found.warnings
    other = found.provenance["two_stages"]
    assert abs(other["log_z"] - log_z_of_states(Y)) < 4 * other["std_error"]
    unsearched = stanct.bridge(model, {"T": 12, "y": Y}, fit, seed=1, search=False)
    assert "two_stages" not in unsearched.provenance
