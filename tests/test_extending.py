"""`run.extend`: the draws that there are, further ones of the same density, and smaller errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic import gaussian
from conftest import SEED, target_of
from sampled import sampled
from targets import LINE, TWO_MODES

import stanct
from stanct.cli.main import main
from stanct.common.errors import SamplingError

# A base that is wide of the target, so that tempering has something to do, and a nearer one with
# twice the covariance of the posterior.
BASE = stanct.GaussianBase(LINE.means["b"] + 0.3, 0.15 * np.eye(2))
_DESIGN = (LINE.data or {})["X"]
NEAR = stanct.GaussianBase.from_covariance(
    LINE.means["b"] + 0.1, 2 * np.linalg.inv(np.eye(2) + 4 * _DESIGN.T @ _DESIGN)
)
# Settings of a first run that takes a second at most, its draws, and those of the extension.
FIRST: dict[str, tuple[dict[str, Any], int, int]] = {
    "joint": ({"warmup": 200}, 100, 500),
    "gibbs": ({"warmup": 100}, 100, 800),
    "simulated_tempering": ({"warmup": 100}, 100, 800),
    "independence": ({"base": NEAR}, 100, 800),
    "parallel_tempering": ({"warmup": 60}, 60, 480),
    "ais": ({"temperatures": 20}, 32, 288),
    "pseudo_extended": ({"warmup": 150, "copies": 2}, 100, 500),
    "power_posterior": ({"warmup": 150, "rungs": 9}, 100, 500),
}


def first(method: str, **settings: Any) -> Any:
    own, draws, _ = FIRST[method]
    target = target_of(LINE.source, LINE.data)
    given = {"draws": draws, "base": BASE, "seed": SEED, "progress": False}
    bootstrap = {"bootstrap": 0} if method in ("joint", "pseudo_extended") else {}
    return sampled(method, target, **{**given, **own, **bootstrap, **settings})


@pytest.mark.parametrize("method", FIRST)
class TestEachMethod:
    def test_errors_fall_and_cover(self, method: str, tmp_path: Path) -> None:
        """With n draws in place of m, the standard error should fall by √(n/m)."""
        run, (_, draws, more) = first(method), FIRST[method]
        longer = run.extend(more, progress=False)
        assert longer.draws == draws + more
        assert longer.settings["draws"] == draws + more
        assert "interrupted" not in longer.warnings
        # A chain of so few draws may not have gone to the base and back.
        ratio = run.bare_evidence.std_error / longer.evidence.std_error
        ideal = np.sqrt((draws + more) / draws)
        # An error from few draws is itself uncertain by some 30 %.
        assert 0.5 * ideal < ratio < 2 * ideal
        assert abs(longer.evidence.log_z - LINE.log_z) < 4 * longer.evidence.std_error < 0.4
        mean = longer.expect("sum_b")
        assert abs(mean.value - LINE.means["sum_b"]) < 4 * mean.std_error < 0.3
        # The draws that there were stay, and the new ones are no copies.
        assert np.array_equal(longer.z[:, :draws], run.z)
        assert np.abs(np.diff(longer.z[:, :: more // 4], axis=1)).min() > 0
        for name, values in run.variables.items():
            assert np.array_equal(longer.variables[name][:, : values.shape[1]], values)
        assert longer.gradients >= run.gradients
        # A loaded run goes on with the same draws, bit by bit, and can be saved again.
        run.save(tmp_path / "run")
        loaded: Any = stanct.load(tmp_path / "run")
        again = loaded.extend(more, progress=False, threads=1)
        assert np.array_equal(again.z, longer.z)
        assert again.evidence == longer.evidence
        again.save(tmp_path / "longer")
        reloaded: Any = stanct.load(tmp_path / "longer")
        assert reloaded.evidence == longer.evidence


def test_a_second_extension_has_draws_of_its_own() -> None:
    run = first("independence")
    twice = run.extend(50, progress=False).extend(50, progress=False)
    assert twice.draws == 200
    assert twice.provenance["extended"]["draws"] == [50, 50]
    # A rejection repeats a draw, but no draw of one extension comes back in the next.
    assert np.isin(twice.z[:, 150:, 0], twice.z[:, 100:149, 0]).mean() < 0.2


def test_chains_go_on_from_where_they_were() -> None:
    """Chains that move by small steps stay near their last draws, and do not start afresh."""
    small: dict[str, Any] = {"path_length": 0.01, "transitions": 1, "target_accept": 0.9999}
    run = first("gibbs", **small, atom=0.0, chains=40, draws=32)
    longer = run.extend(8, progress=False)
    last, new = longer.z[:, run.draws - 1], longer.z[:, run.draws]
    step, between = (
        np.linalg.norm(there - last, axis=-1).mean() for there in (new, np.roll(last, 1, axis=0))
    )
    assert step < 0.6 * between


def test_a_chain_that_rejects_stays_at_its_last_draw() -> None:
    far = stanct.GaussianBase(LINE.means["b"] + 1, np.eye(2))
    run = first("independence", base=far)
    longer = run.extend(200, progress=False)
    stayed = np.all(longer.z[:, 100] == longer.z[:, 99], axis=-1)
    share = np.mean(np.diff(longer.z[..., 0], axis=1) == 0)
    assert stayed.any() and share > 0.3


def test_the_form_that_was_sampled_goes_on() -> None:
    source = """
    parameters { real mu; real<lower=0> tau; vector[3] theta; }
    model { mu ~ normal(0, 1); tau ~ gamma(5, 5); theta ~ normal(mu, tau); }
    """
    model = stanct.temper(source, hierarchies="non-centred")
    run = model.sample(None, draws=200, seed=SEED, progress=False)
    longer = run.extend(200, progress=False)
    assert set(longer.variables) == {"mu", "tau", "theta"}
    assert abs(longer.evidence.log_z) < 4 * longer.evidence.std_error < 0.2
    assert longer.draws == run.draws + 200


def test_a_run_that_aimed_at_an_error_has_as_many_draws_as_asked() -> None:
    run = first("gibbs", target_se=0.02, draws=400)
    longer = run.extend(100, progress=False)
    assert longer.settings["target_se"] is None
    assert {"interrupted", "target_se"}.isdisjoint(longer.warnings)


class TestRefusals:
    @pytest.mark.parametrize("method", ["adiabatic", "tact"])
    def test_methods_that_cannot_go_on(self, method: str) -> None:
        run = sampled(
            method, target_of(LINE.source, LINE.data), draws=32, warmup=32, base=BASE,
            seed=SEED, progress=False,
        )  # fmt: skip
        with pytest.raises(SamplingError, match=f"method '{method}' cannot be extended"):
            run.extend(10)

    def test_a_bridge(self, rng: np.random.Generator) -> None:
        fit = {"b": rng.standard_normal((2, 100, 2))}
        run = stanct.bridge(stanct.temper(LINE.source), LINE.data, fit, search=False, seed=1)
        with pytest.raises(SamplingError, match=r"'bridge' cannot be extended\. Fit again"):
            run.extend(10)

    def test_options(self) -> None:
        run = first("independence")
        with pytest.raises(SamplingError, match="draws must be a whole number of at least 8"):
            run.extend(0)
        with pytest.raises(SamplingError, match="threads must be"):
            run.extend(100, threads=0)
        with pytest.raises(SamplingError, match=r"Did you mean target=model\.target\(data\)"):
            run.extend(100, target=LINE.data)
        with pytest.raises(SamplingError, match="draws must be a multiple of island=32"):
            first("ais").extend(33)

    def test_another_target(self) -> None:
        run = first("independence")
        other = {**(LINE.data or {}), "y": np.zeros(5)}
        with pytest.raises(SamplingError, match="other log densities at the last draws"):
            run.extend(100, target=target_of(LINE.source, other))
        with pytest.raises(SamplingError, match="other log densities"):
            run.extend(100, target=target_of(TWO_MODES.source))
        with pytest.raises(SamplingError, match="1 dimensions, and the run has 2"):
            run.extend(100, target=target_of("parameters { real x; } model { x ~ normal(0, 1); }"))

    def test_what_a_saved_run_may_lack(self) -> None:
        run = first("gibbs")
        told = {k: v for k, v in run.provenance.items() if k not in ("source", "log_step")}
        old = replace(run, provenance=told)
        with pytest.raises(SamplingError, match="saved by an earlier version"):
            old.extend(100)
        with pytest.raises(SamplingError, match="has no step sizes"):
            old.extend(100, target=target_of(LINE.source, LINE.data), progress=False)


def test_a_python_function_is_passed_again() -> None:
    exact = gaussian(2)
    run = stanct.sample(
        exact.target, stanct.Gibbs(), base=stanct.GaussianBase(np.zeros(2), np.eye(2)),
        draws=100, warmup=60, seed=SEED, progress=False,
    )  # fmt: skip
    with pytest.raises(SamplingError, match="is of a Python function"):
        run.extend(100)
    longer = run.extend(100, target=exact.target, progress=False)
    assert longer.draws == 200


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = first("independence")
    run.save(tmp_path / "run")
    words = ["extend", str(tmp_path / "run"), "--draws", "100", "--json", "--quiet"]
    assert main([*words, "--save", str(tmp_path / "longer")]) == 0
    found = json.loads(capsys.readouterr().out)
    longer: Any = stanct.load(tmp_path / "longer")
    assert found["draws"] == longer.draws == 200
    assert found["log_z"] == longer.evidence.log_z
    assert main([*words[:3], "0"]) == 1
    assert "draws must be a whole number" in capsys.readouterr().err
