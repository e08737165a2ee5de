"""Pseudo-extended sampling end to end: evidences, moments, settings, interrupts, runs on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from scipy.integrate import trapezoid
from targets import CUT, LINE, SKEWED, TWO_MODES, Exact

import stanct
from stanct.cli.main import main
from stanct.common.errors import ProgramError, SamplingError
from stanct.estimates.copies import CopyEstimator, copy_log_weights
from stanct.estimates.mixing import effective_size
from stanct.path.bias import CopyBias
from stanct.path.course import Course, beta_grid
from stanct.path.gaussian import GaussianBase
from stanct.runs.copies import hand_overs
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.samplers import _copies
from stanct.samplers._nuts import CompiledNuts

UNIT = GaussianBase(np.zeros(2), np.eye(2))


def run_of(exact: Exact, seed: int, **settings: Any) -> PseudoExtendedRun:
    target = target_of(exact.source, exact.data)
    settings = {"copies": 3, "draws": 600, "warmup": 300, "progress": False, **settings}
    return sampled("pseudo_extended", target, seed=seed, **settings)


@pytest.mark.parametrize(
    ("exact", "settings", "largest_error", "largest_mean_error"),
    [
        (SKEWED, {}, 0.02, 0.04),
        (SKEWED, {"fixed_beta": [0.0, 0.4, 1.0]}, 0.02, 0.04),
        (CUT, {}, 0.05, 0.05),
        (TWO_MODES, {"copies": 5, "draws": 1000}, 0.1, 2.0),
    ],
    ids=["skewed", "fixed", "cut", "two_modes"],
)
def test_evidence_and_means(
    exact: Exact, settings: dict, largest_error: float, largest_mean_error: float, seed: int
) -> None:
    run = run_of(exact, seed, **settings)
    assert abs(run.evidence.log_z - exact.log_z) < 4 * run.evidence.std_error
    assert run.evidence.std_error < largest_error
    for name, mean in exact.means.items():
        found = run.expect(name)
        assert np.all(np.abs(found.value - mean) < 4 * found.std_error), name
        assert np.all(found.std_error < largest_mean_error), name


@pytest.fixture(scope="module")
def run(seed: int) -> PseudoExtendedRun:
    return run_of(SKEWED, seed)


@pytest.mark.usefixtures("words_alone")
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_base_far_away_is_a_failed_check(rounds: int, tmp_path: Path) -> None:
    """Every use of such a run works, and none gives a number for log Z that means nothing."""
    far = GaussianBase(np.full(2, 50.0), np.eye(2))
    run = run_of(LINE, 1, base=far, bootstrap=rounds, draws=50, warmup=150)
    failed = {check.name: check for check in run.diagnostics if not check.passed}
    assert failed["overlap"].value < 1e-8
    assert np.isnan(run.evidence.log_z) and "overlap" in run.evidence.warnings
    assert "nan ± inf" in repr(run) and "overlap" in str(run.report())
    assert run.expect("b").value.shape == (2,) and run.to_arviz() is not None
    run.save(tmp_path / "run")
    assert stanct.load(tmp_path / "run").warnings == run.warnings


def test_copies_and_their_variables(run: PseudoExtendedRun) -> None:
    """δ of every copy is that of the density program, and `variables` are theirs, in order."""
    target = target_of(SKEWED.source, SKEWED.data)
    x = run.base.unwhiten(run.z)
    assert run.variables["r"] == pytest.approx(np.exp(x[..., 0].reshape(run.chains, -1)))
    log_densities = target.density.log_densities(x.reshape(-1, 1)).reshape(run.delta.shape)
    assert run.delta == pytest.approx(run.base.delta(run.z, log_densities), rel=1e-9, abs=1e-9)
    assert run.z.shape == (4, 600, 3, 1) and run.beta.shape == (4, 600, 3)
    assert run.gradients > 3 * run.statistics["n_leapfrog__"].sum()


def test_averages_count_the_copies_of_a_draw_together(run: PseudoExtendedRun) -> None:
    weights = np.exp(run.copy_log_weights)
    by_draw = (weights * run.variables["r"].reshape(weights.shape)).sum(axis=2)
    found = run.expect("r")
    assert found.value == pytest.approx(by_draw.mean(), rel=1e-12)
    size = effective_size(by_draw)
    between = by_draw.mean(axis=1).std(ddof=1) / 2
    assert found.std_error == pytest.approx(max(by_draw.std() / np.sqrt(size), between), rel=0.05)
    assert run.expect(lambda v: v["r"]).value == found.value
    row = run.summary(["r"]).loc["r"]
    assert row["mean"] == found.value and row["std_error"] == found.std_error
    assert row["q5"] < row["q50"] < row["mean"] < row["q95"]


def test_resampled_copies_have_equal_weights(run: PseudoExtendedRun) -> None:
    one = run.resample(seed=1)["r"]
    assert one.shape == (4, 600)
    assert np.all((one[..., None] == run.variables["r"].reshape(4, 600, 3)).any(axis=2))
    error = one.std() / np.sqrt(500)
    assert abs(one.mean() - SKEWED.means["r"]) < 4 * error < 0.4
    assert run.resample(50, seed=1)["r"].shape == (4, 50)


def test_arviz(run: PseudoExtendedRun) -> None:
    data = run.to_arviz()
    assert data["tempered"]["r"].shape == (4, 1800)
    assert data["tempered_stats"]["log_weight"].shape == (4, 1800)
    assert data["sample_stats"]["diverging"].dtype == bool
    assert data["posterior"]["r"].shape == data["log_prior"]["log_prior"].shape == (4, 600)
    assert np.array_equal(data["posterior"]["r"].values, run.resample(seed=0)["r"])


def test_saved_and_loaded(run: PseudoExtendedRun, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again, PseudoExtendedRun)
    assert again.evidence == run.evidence and repr(again) == repr(run)
    assert "3 copies" in repr(run)
    assert (tmp_path / "run" / "pseudo_extended.stan").read_text() == run.programs[
        "pseudo_extended"
    ]


def test_checks(run: PseudoExtendedRun) -> None:
    assert run.is_reliable, run.warnings
    names = {check.name for check in run.diagnostics}
    assert {"hand_overs", "r_hat", "effective_size", "support", "divergences"} <= names
    heaviest = np.log(np.array([[[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]]]))
    assert hand_overs(heaviest).tolist() == [2]


def test_a_chain_in_one_mode_is_noticed(seed: int) -> None:
    """Far from the second mode with a base that reaches only the first, two copies stay there."""
    base = GaussianBase(np.array([-6.0, -3.0]), np.eye(2))
    run = run_of(TWO_MODES, seed, copies=2, base=base, log_zeta=3.5, draws=100)
    beyond = run.expect(lambda v: v["x"][..., 0] > 0)
    assert beyond.value < 0.05 or not run.is_reliable
    wide = GaussianBase(np.zeros(2), 8 * np.eye(2))
    short = run_of(TWO_MODES, seed, copies=2, base=wide, log_zeta=3.5, draws=100)
    assert {"r_hat", "effective_size"} & set(short.warnings)


def test_draws_do_not_depend_on_threads_and_depend_on_the_seed(seed: int) -> None:
    settings = {"draws": 60, "base": UNIT, "log_zeta": -7.0, "bootstrap": 0}
    one = run_of(LINE, seed, threads=1, **settings)
    four = run_of(LINE, seed, threads=4, **settings)
    assert np.array_equal(one.z, four.z) and np.array_equal(one.base_delta, four.base_delta)
    assert one.base is UNIT and one.bias.log_zeta == -7.0
    assert not np.array_equal(one.z, run_of(LINE, seed + 1, **settings).z)


def test_rounds_keep_a_given_base_and_learn_bias_and_prior(seed: int) -> None:
    """Near the base the path is fast; the β of the target's copy has the prior, whatever x is."""
    run = run_of(LINE, seed, base=UNIT, draws=500)
    assert run.base is UNIT and run.bias.value[1] < 0
    grid = np.linspace(0, 1, 100001)
    density = np.exp(np.interp(grid, run.bias.beta, run.bias.log_prior))
    wanted = density @ grid / density.sum()
    assert wanted < 0.45
    weights = np.exp(copy_log_weights(run.delta, run.beta, run.bias))
    found = (weights * run.beta).sum(axis=2)
    error = found.std() / np.sqrt(effective_size(found))
    assert abs(found.mean() - wanted) < 4 * error < 0.1


def test_the_prior_of_a_path_that_slows_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A speed of 1/β leaves a prior of β^-1.3, down to the share that is uniform."""
    monkeypatch.setattr(
        CopyEstimator, "course", lambda _, beta: Course(beta, beta, 1 / np.maximum(beta, 0.003))
    )
    estimator = CopyEstimator(np.zeros((1, 1, 2)), np.zeros(1), CopyBias.linear(0.0))
    bias = _copies.prior_by_speed(estimator.course(beta_grid(101)))
    fine = np.linspace(0, 1, 100001)
    area = trapezoid(np.maximum(fine, 0.003) ** -1.3, fine)
    wanted = np.log(0.05 + 0.95 * np.maximum(bias.beta, 0.003) ** -1.3 / area)
    assert bias.log_prior == pytest.approx(wanted - wanted[0], abs=0.05)
    assert bias.value == pytest.approx(bias.beta, abs=1e-12)


def test_functions_that_add_to_the_target(seed: int) -> None:
    """What _lp functions add is part of the density."""
    source = """
    functions { void centre_lp(real x) { x ~ normal(1, 2); target += 0.5; } }
    parameters { real x; }
    model { centre_lp(x); }
    generated quantities { real y = 2 * x; }
    """
    run = run_of(Exact(source, None, 0.5), seed, draws=300, bootstrap=0)
    assert abs(run.evidence.log_z - 0.5) < 4 * run.evidence.std_error < 0.2
    assert run.variables["y"] == pytest.approx(2 * run.variables["x"])


def test_interrupt_keeps_finished_draws(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = CompiledNuts.draw, []

    def interrupted(*args, **settings):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **settings)

    monkeypatch.setattr(CompiledNuts, "draw", interrupted)
    run = run_of(LINE, seed, base=UNIT, log_zeta=-7.0, bootstrap=0, engine="embedded")
    assert run.draws == 100 and run.variables["b"].shape == (4, 300, 2)
    assert "interrupted" in run.warnings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"copies": 1}, "copies must be a whole number of at least 2"),
        ({"copies": 2.5}, "copies must be a whole number of at least 2"),
        ({"fixed_beta": [0.1, 0.9]}, "fixed_beta must be 3 numbers, one for each copy"),
        ({"fixed_beta": [0.1, 0.9, 1.1]}, "fixed_beta must be numbers from 0 to 1, or None"),
        ({"fixed_beta": [1, 1, 1]}, "nothing is tempered"),
        ({"bootstrap": -1}, "bootstrap must be a whole number of at least 0"),
        ({"chains": 0}, "chains must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"base": GaussianBase(np.zeros(3), np.eye(3))}, "3 dimensions, the program 2"),
    ],
)
def test_impossible_settings(settings: dict, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        run_of(LINE, **{"seed": 1} | settings)


def test_programs_without_a_pseudo_extended_form_are_refused_before_any_work() -> None:
    source = """
    functions { real f_lp(real x) { target += x; return x; } }
    parameters { real x; }
    transformed parameters { real y = f_lp(x); }
    """
    with pytest.raises(ProgramError, match="compute the transformed parameters again"):
        run_of(Exact(source, None, 0.0), 1)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "skewed.stan").write_text(SKEWED.source)
    (tmp_path / "data.json").write_text(json.dumps({"N": 2, "y": [0, 1]}))
    arguments = ["evidence", str(tmp_path / "skewed.stan"), str(tmp_path / "data.json")]
    arguments += ["--method", "pseudo_extended", "--set", "copies=2"]
    arguments += ["--draws", "200", "--seed", "1"]
    assert main([*arguments, "--base", "laplace", "--quiet", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["sampler"] == "pseudo_extended" and record["draws"] == 200
    assert abs(record["log_z"] - SKEWED.log_z) < 4 * record["std_error"] < 0.2


def test_a_mode_that_the_pilots_measured_is_missed() -> None:
    run = run_of(LINE, 1, draws=200, warmup=150)
    place = np.asarray(LINE.means["b"])
    survey = {
        "place": [place.tolist(), (place + 20).tolist()], "spread": [[0.3, 0.3], [0.3, 0.3]],
        "log_evidence": [run.evidence.log_z, run.evidence.log_z], "starts": 9, "unseen": 0,
        "radius": 20.0,
    }  # fmt: skip
    blind = replace(run, provenance={**run.provenance, "survey": survey})
    assert "modes" in blind.warnings and "modes" not in run.warnings
    assert blind.modes is not None
    np.testing.assert_allclose(blind.modes["weight"], [1, 0], atol=1e-6)
