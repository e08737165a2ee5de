"""Copies that follow powers of the target: exact moments, refusals, checks, and no log Z."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from scipy.integrate import quad
from targets import LINE, SKEWED

import stanct
from stanct.cli.main import main
from stanct.common.errors import SamplingError, StanctError
from stanct.path.bias import PowerBias
from stanct.path.gaussian import GaussianBase
from stanct.runs.power_copies import PowerCopiesRun
from stanct.samplers._nuts import CompiledNuts

Array = np.ndarray
MIXTURE = """
data { real w; vector[2] m; vector<lower=0>[2] s; }
parameters { real x; real<lower=0> y; }
model {
  target += 3.7 + log_mix(w, normal_lpdf(x | m[1], s[1]), normal_lpdf(x | m[2], s[2]));
  target += exponential_lpdf(y | 2);
}
"""


def run_of(source: str, data: Any, seed: int, **settings: Any) -> PowerCopiesRun:
    settings = {"copies": 3, "draws": 600, "warmup": 300, "progress": False, **settings}
    settings = {"instrument": "target", "engine": "embedded", **settings}
    return sampled("pseudo_extended", target_of(source, data), seed=seed, **settings)


@pytest.mark.parametrize(
    "settings",
    [{}, {"beta_bounds": (0.05, 0.6)}, {"fixed_beta": (0.2, 0.5, 1.0)}, {"base": None}],
    ids=["default", "bounds", "fixed", "own base"],
)
def test_weighted_moments_are_the_targets(
    settings: dict, rng: np.random.Generator, seed: int
) -> None:
    """A mixture of two normals and an exponential, all of random parameters."""
    share, mean, sd = rng.uniform(0.3, 0.7), rng.normal(size=2), rng.uniform(0.5, 1.2, 2)
    if "base" in settings:
        base = GaussianBase(np.array([0.3, -0.5]), np.array([[1.4, 0.0], [0.2, 0.6]]))
        settings = {"base": base, "log_zeta": 1.0}
    data = {"w": share, "m": mean, "s": sd}
    run = run_of(MIXTURE, data, seed, draws=1500, **settings)
    weights = np.array([share, 1 - share])
    wanted = [weights @ mean, weights @ (mean**2 + sd**2), 0.5, 0.5]
    found = [
        *(run.expect("x"), run.expect(lambda v: v["x"] ** 2)),
        *(run.expect("y"), run.expect(lambda v: v["y"] ** 2)),
    ]
    for one, exact, most in zip(found, wanted, (0.06, 0.15, 0.02, 0.03), strict=True):
        assert abs(one.value - exact) < 4 * one.std_error
        assert one.std_error < most
    assert run.is_reliable, run.warnings


def test_log_densities_are_the_programs_and_beta_keeps_its_bounds(seed: int) -> None:
    """No term of the base in any of them."""
    run = run_of(SKEWED.source, SKEWED.data, seed, beta_bounds=(0.3, 0.9), draws=100)
    target = target_of(SKEWED.source, SKEWED.data)
    x = run.base.unwhiten(run.z).reshape(-1, 1)
    wanted = target.density.log_densities(x).reshape(run.log_density.shape)
    assert run.log_density == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert 0.3 <= run.beta.min() < 0.4 and 0.8 < run.beta.max() <= 0.9


def test_weights_are_averages_over_beta() -> None:
    """Against quadrature: γ / ∫ γ^β ζ^−β dβ, up to a constant."""
    bias = PowerBias.between(-1.7, (0.15, 0.8))
    phi = np.array([-3.0, 0.4, 1.7, 25.0])
    mass = [quad(lambda b, p=p: np.exp(-b * (p - 1.7)), 0.15, 0.8)[0] for p in phi]
    gap = bias.log_weights_of(phi) - (-phi - np.log(mass))
    assert np.ptp(gap) < 1e-9


@pytest.mark.usefixtures("words_alone")
def test_without_evidence_everything_else_works(tmp_path: Path, seed: int) -> None:
    run = run_of(LINE.source, LINE.data, seed, draws=150)
    with pytest.raises(AttributeError, match="instrument='path'"):
        run.evidence  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(run, "extra_estimates") and not isinstance(run, stanct.EvidenceRun)
    with pytest.raises(StanctError, match="pseudo_extended with instrument='target' estimates"):
        stanct.compare(run, run)
    assert "3 copies" in repr(run) and "checks passed" in repr(run)
    assert "estimates no evidence" in str(run.report())
    data = run.to_arviz()
    assert data["posterior"]["b"].shape == (4, 150, 2)
    assert data["tempered_stats"]["log_density"].shape == (4, 450)
    run.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert isinstance(again, PowerCopiesRun)
    assert repr(again) == repr(run) and again.bias.bounds == (0.1, 1.0)
    assert np.array_equal(again.copy_log_weights, run.copy_log_weights)
    longer = again.extend(100, progress=False)
    assert longer.draws == 250 and longer.bias.log_zeta == run.bias.log_zeta
    assert np.array_equal(longer.z[:, :150], run.z)


def test_a_killed_run_goes_on_from_its_checkpoint(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = CompiledNuts.draw, []

    def interrupted(*args: Any, **settings: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **settings)

    settings = {"draws": 200, "bootstrap": 0}
    whole = run_of(LINE.source, LINE.data, seed, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(CompiledNuts, "draw", interrupted)
        cut = run_of(LINE.source, LINE.data, seed, checkpoint=tmp_path / "kept", **settings)
    assert cut.draws == 100 and "interrupted" in cut.warnings
    resumed = run_of(LINE.source, LINE.data, seed, checkpoint=tmp_path / "kept", **settings)
    assert np.array_equal(resumed.z, whole.z) and np.array_equal(resumed.beta, whole.beta)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "skewed.stan").write_text(SKEWED.source)
    (tmp_path / "data.json").write_text(json.dumps({"N": 2, "y": [0, 1]}))
    arguments = ["evidence", str(tmp_path / "skewed.stan"), str(tmp_path / "data.json")]
    arguments += ["--method", "pseudo_extended", "--set", "instrument=target"]
    arguments += ["--set", "copies=2", "--set", "beta_bounds=[0.2, 1]"]
    arguments += ["--draws", "200", "--seed", "1", "--quiet"]
    assert main([*arguments, "--base", "laplace"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("No log Z: pseudo_extended with instrument='target' estimates no")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"instrument": "power"}, "instrument must be 'path' or 'target'"),
        ({"beta_bounds": (0.0, 1.0)}, "increase, the first above 0"),
        ({"beta_bounds": (0.5, 0.5)}, "increase, the first above 0"),
        ({"beta_bounds": (0.5, 1.5)}, "beta_bounds must be 2 numbers from 0 to 1"),
        ({"beta_bounds": (0.2, 1.0), "instrument": "path"}, "On the path, β runs from 0 to 1"),
        ({"beta_bounds": (0.2, 1.0), "fixed_beta": (0.2, 0.5, 1.0)}, "so it needs no bounds"),
        ({"fixed_beta": (0.0, 0.5, 1.0)}, "not normalisable"),
        ({"target_se": 0.1}, "there is no log Z, so the run cannot stop at target_se"),
    ],
)
def test_what_does_not_go_with_the_instrument(settings: dict, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        run_of(LINE.source, LINE.data, 1, **settings)


@pytest.mark.parametrize(("log_zeta", "end"), [(20.0, "lowest"), (-40.0, "highest")])
def test_beta_that_runs_to_a_bound_is_told(log_zeta: float, end: str, seed: int) -> None:
    """By log ζ the β of the copies can be driven to either bound; the moments stay right."""
    source = "parameters { vector[2] x; } model { x ~ normal(1, 2); }"
    base = GaussianBase(np.ones(2), 2 * np.eye(2))
    run = run_of(source, None, seed, base=base, log_zeta=log_zeta)
    failed = {check.name: check for check in run.diagnostics if not check.passed}
    assert [*failed] == ["beta_bounds"] and end in failed["beta_bounds"].message
    mean = run.expect("x")
    assert np.all(np.abs(mean.value - 1) < 4 * mean.std_error) and np.all(mean.std_error < 0.2)


def test_powers_that_are_not_normalisable_are_told(seed: int) -> None:
    """γ^β of a t density with 3 degrees has no finite integral for β ≤ ¼: copies drift away."""
    source = "parameters { real x; } model { x ~ student_t(3, 0, 1); }"
    base = GaussianBase(np.zeros(1), np.eye(1))
    run = run_of(source, None, seed, base=base, log_zeta=0.0, fixed_beta=(0.2, 0.2, 0.2))
    assert "instrument" in run.warnings
    proper = run_of(source, None, seed, base=base, log_zeta=0.0, fixed_beta=(0.9, 0.9, 0.9))
    assert "instrument" not in proper.warnings


def test_bounds_of_a_bias_lie_above_zero() -> None:
    with pytest.raises(StanctError, match=r"Bounds of β lie in \(0, 1\]"):
        PowerBias.between(0.0, (0.0, 1.0))
