"""The evidence of fits made elsewhere: right on average, with error bars that cover, or warned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic import gaussian
from conftest import LONG, ROOT
from scipy.special import expit, gammaln
from targets import CUT, LINE, SKEWED, TWO_MODES, Exact

import stanct
from stanct.api.model import TemperedModel
from stanct.bases.unseen import unseen_modes
from stanct.common.errors import SamplingError, StanctError
from stanct.engines.embedded import Nuts
from stanct.estimates.bridge import (
    Bridge,
    by_importance,
    fitted_normal,
    halves,
    reshuffled_halves,
)
from stanct.estimates.mixing import resampled
from stanct.runs.bridge import BridgeRun
from stanct.runs.screen import screen
from stanct.runs.verdicts import failures
from stanct.stan.program import Program

Draws = dict[str, np.ndarray]


def model_of(source: str) -> TemperedModel:
    return TemperedModel(Program.from_source(source, name="model"))


@dataclass(frozen=True)
class Case:
    """A target with a function that makes exact draws of its posterior, (chains, draws, ...)."""

    exact: Exact
    draws: Callable[[np.random.Generator, tuple[int, int]], Draws]

    @property
    def model(self) -> TemperedModel:
        return model_of(self.exact.source)


def _line(rng: np.random.Generator, shape: tuple[int, int], persistence: float = 0.0) -> Draws:
    """Draws of the Gaussian posterior along stationary autoregressive chains."""
    assert LINE.data is not None
    design = LINE.data["X"]
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / 0.25)
    noise = rng.standard_normal((*shape, 2))
    z = np.empty_like(noise)
    z[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        z[:, t] = persistence * z[:, t - 1] + np.sqrt(1 - persistence**2) * noise[:, t]
    return {"b": LINE.means["b"] + z @ np.linalg.cholesky(covariance).T}


def _sticky(rng: np.random.Generator, shape: tuple[int, int]) -> Draws:
    return _line(rng, shape, 0.9)


def _skewed(rng: np.random.Generator, shape: tuple[int, int]) -> Draws:
    return {"r": rng.gamma(2.5, 1 / 2.5, size=shape)}


def _cut(rng: np.random.Generator, shape: tuple[int, int]) -> Draws:
    x = rng.standard_normal(20 * shape[0] * shape[1])
    return {"x": x[x > 0.5][: shape[0] * shape[1]].reshape(shape)}


def _two_modes(rng: np.random.Generator, shape: tuple[int, int]) -> Draws:
    left = rng.random(shape) < 0.7
    first = np.where(left, rng.normal(-6, 1, shape), rng.normal(6, 0.5, shape))
    return {"x": np.stack([first, rng.normal(0.5 * first, 1)], axis=-1)}


def _missed(rng: np.random.Generator, shape: tuple[int, int]) -> Draws:
    """Draws of one mode of the two, of mass 0.7."""
    first = rng.normal(-6, 1, shape)
    return {"x": np.stack([first, rng.normal(0.5 * first, 1)], axis=-1)}


DIRICHLET = Exact(
    """
    data { array[3] int y; }
    parameters { simplex[3] p; real<lower=0, upper=1> q; }
    model { p ~ dirichlet([2, 1, 1]'); y ~ multinomial(p); q ~ beta(2, 3); }
    """,
    {"y": [4, 0, 2]},
    float(
        gammaln(7) - gammaln([5, 1, 3]).sum()  # multinomial coefficient
        + gammaln(4) - gammaln([2, 1, 1]).sum()
        + gammaln([6, 1, 3]).sum() - gammaln(10)
    ),
)  # fmt: skip


def _dirichlet(rng: np.random.Generator, shape: tuple[int, int]) -> Draws:
    return {"q": rng.beta(2, 3, shape), "p": rng.dirichlet([6, 1, 3], shape)}


CASES = {
    "gaussian": Case(LINE, _line),
    "sticky chains": Case(LINE, _sticky),
    "skewed": Case(SKEWED, _skewed),
    "hard edge": Case(CUT, _cut),
    "both modes": Case(TWO_MODES, _two_modes),
    "simplex": Case(DIRICHLET, _dirichlet),
}
# Draws of each of 4 chains, and the largest standard error of log Z from them. `examples/bridge`
# repeats fits of more posteriors.
LARGEST = {
    "sticky chains": (400, 0.02),
    "skewed": (200, 0.014),
    "hard edge": (200, 0.042),
}


@LONG
@pytest.mark.parametrize("name", LARGEST)
def test_error_bars_cover_over_many_fits(name: str, seed: int) -> None:
    """Of 25 fits, 21 cover by chance alone in 99 runs of 100."""
    (draws, largest), case, scores, errors = LARGEST[name], CASES[name], [], []
    model = case.model
    for number in range(25):
        rng = np.random.default_rng([seed, number])
        run = stanct.bridge(
            model, case.exact.data, case.draws(rng, (4, draws)),
            reshuffles=0, search=False, seed=number,
        )  # fmt: skip
        assert run.gradients == 0
        errors.append(run.evidence.std_error)
        scores.append((run.evidence.log_z - case.exact.log_z) / errors[-1])
    assert np.mean(np.abs(scores) < 1.96) >= 0.84
    # Error bars that are far too long would cover, too, and a bias would not show in single runs.
    assert 0.45 < np.std(scores) < 1.35
    assert abs(np.mean(scores)) < 0.6
    assert np.median(errors) < largest


@pytest.mark.parametrize("name", CASES)
def test_good_fits_pass_all_checks(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]
    run = stanct.bridge(case.model, case.exact.data, case.draws(rng, (4, 1000)), seed=1)
    assert run.warnings == ()
    assert abs(run.evidence.log_z - case.exact.log_z) < 4 * run.evidence.std_error
    plain = run.plain_evidence
    assert abs(plain.log_z - case.exact.log_z) < 4 * plain.std_error


def test_warp_takes_away_skewness(rng: np.random.Generator) -> None:
    run = stanct.bridge(
        CASES["skewed"].model, SKEWED.data, _skewed(rng, (4, 2000)), search=False, seed=1
    )
    assert run.evidence.std_error < 0.7 * run.plain_evidence.std_error


def test_autocorrelation_widens_the_error_bar(rng: np.random.Generator) -> None:
    plain, sticky = (
        [
            stanct.bridge(CASES["gaussian"].model, LINE.data, fit, search=False, seed=s).evidence
            for s in range(6)
        ]
        for fit in (_line(rng, (4, 1000)), _sticky(rng, (4, 1000)))
    )
    # How the draws are halved makes one error bar differ by a third from the next.
    assert sum(e.std_error for e in sticky) > 1.5 * sum(e.std_error for e in plain)
    assert sticky[0].effective_size < plain[0].effective_size / 4


class TestAMissedMode:
    """The draws cannot tell of it: only the search can, and tempering from the fit is right."""

    def test_without_the_search_all_checks_pass(self, rng: np.random.Generator) -> None:
        run = stanct.bridge(
            model_of(TWO_MODES.source), None, _missed(rng, (4, 500)), search=False, seed=1
        )
        assert run.warnings == ()
        assert "No search looked for modes." in " ".join(screen(run))
        assert run.evidence.log_z == pytest.approx(3.5 + np.log(0.7), abs=0.01)

    def test_the_search_warns(self, rng: np.random.Generator) -> None:
        run = stanct.bridge(model_of(TWO_MODES.source), None, _missed(rng, (4, 500)), seed=1)
        assert run.warnings == ("unseen",)
        words = " ".join(" ".join(screen(run)).split())
        assert "A search looked from random starts" in words
        assert run.evidence.warnings == ("unseen",)
        share = next(check for check in run.diagnostics if check.name == "unseen").value
        assert share == pytest.approx(0.3, abs=0.03)
        assert run.gradients > 0

    def test_no_chain_of_the_search_loses_the_mode(self, rng: np.random.Generator) -> None:
        """One chain alone leaves this mode of mass 0.4 in one search of six."""
        target = stanct.temper(ROOT / "examples/bimodal/bimodal.stan").target()
        points = rng.normal(-8, 1, (1000, 1))
        for seed in (14, 21, 25):  # in which a single chain left
            found, _ = unseen_modes(target, points, np.random.SeedSequence(seed), Nuts())
            mass = sum(np.exp(fit.log_evidence) for fit in found.fits)
            assert mass == pytest.approx(0.4, rel=0.1)

    def test_tempering_from_the_fit_is_right(self, rng: np.random.Generator) -> None:
        run = stanct.bridge(
            model_of(TWO_MODES.source), None, _missed(rng, (4, 500)),
            seed=1, escalate=True, progress=False, draws=500,
        )  # fmt: skip
        assert isinstance(run, stanct.TemperedRun)
        assert run.is_reliable
        assert abs(run.evidence.log_z - TWO_MODES.log_z) < 4 * run.evidence.std_error
        assert run.evidence.std_error < 0.02
        assert run.provenance["bridge"]["warnings"] == ["unseen"]
        share = run.expect(lambda v: v["x"][..., 0] < 0)
        assert abs(share.value - 0.7) < 4 * share.std_error

    def test_where_one_mode_was_missed_all_are_searched(self) -> None:
        """The bridge's own search finds one of the two modes that this fit has missed."""
        source = """
        parameters { vector[2] x; }
        model {
          target += log_sum_exp({
            log(0.5) + normal_lpdf(x | 0, 1), log(0.3) + normal_lpdf(x | 9, 0.3),
            log(0.2) + normal_lpdf(x | -7, 2)
          });
        }
        """
        fit = {"x": np.random.default_rng(1).standard_normal((4, 400, 2))}
        run = stanct.bridge(
            model_of(source), None, fit, seed=1, escalate=True, progress=False, draws=300
        )
        assert run.is_reliable and run.provenance["bridge"]["warnings"] == ["unseen"]
        assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.1

    @pytest.mark.parametrize(("dimension", "apart"), [(1, 80), (12, 3), (12, 20)])
    def test_modes_near_and_far(self, dimension: int, apart: float) -> None:
        """Fits in the mode of mass .6; Pathfinder alone seldom sees the other where it is far."""
        model = model_of(
            f"parameters {{ vector[{dimension}] x; }} model {{ target += log_mix(0.6, "
            f"std_normal_lpdf(x), std_normal_lpdf(x - {apart})); }}"
        )
        for seed in (1, 2, 3):
            fit = {"x": np.random.default_rng(seed).standard_normal((4, 400, dimension))}
            run = stanct.bridge(model, None, fit, seed=seed)
            assert run.warnings == ("unseen",)
            unseen = next(one for one in run.diagnostics if one.name == "unseen")
            assert unseen.value == pytest.approx(0.4, abs=0.05)

    def test_a_right_fit_is_not_tempered(self, rng: np.random.Generator) -> None:
        run = stanct.bridge(
            model_of(TWO_MODES.source), None, _two_modes(rng, (4, 500)), seed=1, escalate=True
        )
        assert isinstance(run, BridgeRun)


class TestDoubt:
    """Each check fails where it must."""

    def bridged(self, fit: Draws, case: str = "gaussian") -> BridgeRun:
        one = CASES[case]
        return stanct.bridge(one.model, one.exact.data, fit, search=False, seed=1)

    def test_lp_of_nearly_the_same_program(self, rng: np.random.Generator) -> None:
        """A change that moves lp__ by a thousandth is told from rounding, which follows nothing."""
        fit = _line(rng, (4, 200))
        density = CASES["gaussian"].model.density(LINE.data)
        own = density.log_densities(fit["b"].reshape(-1, 2)).reshape(4, 200)
        moved = own + 1e-3 * fit["b"][..., 1]
        assert self.bridged({**fit, "lp__": moved}).warnings == ("program",)
        rounded = own + rng.uniform(-0.05, 0.05, own.shape)
        assert self.bridged({**fit, "lp__": rounded}).is_reliable

    def test_lp_of_another_program(self, rng: np.random.Generator) -> None:
        fit = _line(rng, (4, 200))
        density = CASES["gaussian"].model.density(LINE.data)
        own = density.log_densities(fit["b"].reshape(-1, 2)).reshape(4, 200)
        assert self.bridged({**fit, "lp__": own + 17}).is_reliable
        other = own + np.square(fit["b"][..., 0])
        assert self.bridged({**fit, "lp__": other}).warnings == ("program",)
        # It is the cause of whatever else fails, and no remedy but its own is advised.
        fit["b"][0] += 1.5
        run = self.bridged({**fit, "lp__": other})
        first, *rest = failures(run.diagnostics)
        assert first.name == "program" and rest
        assert {one.remedy for one in rest} == {"First see to the check `program`."}
        assert any("escalate" in one.remedy for one in failures(self.bridged(fit).diagnostics))

    def test_lp_of_the_draws_that_are_left(self, rng: np.random.Generator) -> None:
        """Rows without a density or a number are left out, and the others stay aligned."""
        fit = _cut(rng, (4, 200))
        own = -0.5 * np.square(fit["x"])
        for lost in (3, 50, 51):
            fit["x"][1, lost] = 0.2  # where the density vanishes
        own[2, 7] = np.nan
        run = self.bridged({**fit, "lp__": own}, "hard edge")
        assert run.lp.shape == (4, 197)
        program = next(one for one in run.diagnostics if one.name == "program")
        assert program.passed and program.value < 1e-12
        np.testing.assert_array_equal(run.lp[1], np.delete(own[1], [3, 50, 51]))
        other = self.bridged({**fit, "lp__": own + np.square(fit["x"])}, "hard edge")
        assert "program" in other.warnings
        # Those that the transform cannot invert.
        positive = _skewed(rng, (4, 200))
        own = np.log(positive["r"]) * 2.5 - 2.5 * positive["r"]
        positive["r"][0, :2] = -1
        run = self.bridged({**positive, "lp__": own}, "skewed")
        np.testing.assert_array_equal(run.lp, [own[0, 2:], *own[1:, :198]])
        assert run.is_reliable

    def test_what_a_passed_score_says_is_true(self, rng: np.random.Generator) -> None:
        case = CASES["gaussian"]
        for shift, words in ((0.0, "are, up to chance, those"), (1.0, "are not those")):
            fit = {"b": _line(rng, (4, 500))["b"] + shift}
            run = stanct.bridge(case.model, LINE.data, fit, seed=1)
            assert words in next(c.message for c in run.diagnostics if c.name == "score")

    def test_the_data_are_others_also_after_tempering(self, rng: np.random.Generator) -> None:
        fit = _skewed(rng, (4, 300))
        lp = 2.5 * np.log(fit["r"]) - 1.5 * fit["r"]
        case, fit = CASES["skewed"], {**fit, "lp__": lp}
        before = stanct.bridge(case.model, SKEWED.data, fit, search=False, seed=1)
        run = stanct.bridge(
            case.model, SKEWED.data, fit, search=False, seed=1,
            escalate=True, method="gibbs", draws=200, progress=False,
        )  # fmt: skip
        assert not isinstance(run, BridgeRun) and "program" in run.warnings
        kept, first = (
            next(one for one in r.diagnostics if one.name == "program") for r in (run, before)
        )
        assert kept == first
        assert "because checks of the bridge failed: program" in " ".join(
            "".join(screen(run)).split()
        )

    def test_chains_that_disagree(self, rng: np.random.Generator) -> None:
        fit = _line(rng, (4, 200))
        fit["b"][0] += 1.5
        assert "r_hat" in self.bridged(fit).warnings

    def test_few_effective_draws(self, rng: np.random.Generator) -> None:
        warnings = self.bridged(_line(rng, (4, 100), 0.98)).warnings
        assert {"effective_size", "mixing"} <= set(warnings)

    def test_divergences_of_the_fit(self, rng: np.random.Generator) -> None:
        fit = _line(rng, (4, 200))
        diverged = np.zeros((4, 200))
        diverged[0, 0] = 1
        assert self.bridged({**fit, "divergent__": diverged}).is_reliable
        diverged[:, 0] = 1
        assert self.bridged({**fit, "divergent__": diverged}).warnings == ("divergences",)

    def test_draws_outside_the_support(self, rng: np.random.Generator) -> None:
        fit = _cut(rng, (4, 200))
        fit["x"][:, :20] = 0.2
        run = self.bridged(fit, "hard edge")
        assert "lost" in run.warnings
        assert "sig_figs" in failures(run.diagnostics)[0].remedy
        assert run.draws == 180
        fit["x"][:, :150] = 0.2
        with pytest.raises(StanctError, match="vanishes at most draws of the fit"):
            self.bridged(fit, "hard edge")

    def test_chains_of_which_one_found_a_mode(self, rng: np.random.Generator) -> None:
        fit = _missed(rng, (4, 400))
        fit["x"][0] = _two_modes(rng, (1, 400))["x"]
        run = stanct.bridge(model_of(TWO_MODES.source), None, fit, search=False, seed=1)
        assert not run.is_reliable


class TestOptions:
    def test_an_option_of_tempering_needs_escalate(self, rng: np.random.Generator) -> None:
        case = CASES["gaussian"]
        call: Any = stanct.bridge
        with pytest.raises(SamplingError, match="draws is an option of tempering"):
            call(case.model, LINE.data, _line(rng, (4, 100)), draws=100)
        with pytest.raises(SamplingError, match="reshuffles must be"):
            call(case.model, LINE.data, _line(rng, (4, 100)), reshuffles=-1)
        with pytest.raises(SamplingError, match="search must be"):
            call(case.model, LINE.data, _line(rng, (4, 100)), search="perhaps")

    def test_few_draws(self, rng: np.random.Generator) -> None:
        with pytest.raises(StanctError, match="4 chains of 20 draws are too few"):
            stanct.bridge(CASES["gaussian"].model, LINE.data, _line(rng, (4, 20)))

    def test_same_seed_same_numbers(self, rng: np.random.Generator) -> None:
        fit = _skewed(rng, (2, 300))
        one, two, other = (
            stanct.bridge(CASES["skewed"].model, SKEWED.data, fit, seed=s).evidence.log_z
            for s in (1, 1, 2)
        )
        assert one == two != other

    def test_one_chain(self, rng: np.random.Generator) -> None:
        run = stanct.bridge(CASES["skewed"].model, SKEWED.data, _skewed(rng, (1, 1000)), seed=1)
        assert np.isnan(run.evidence.between_error)
        assert abs(run.evidence.log_z - SKEWED.log_z) < 4 * run.evidence.std_error
        told = " ".join(" ".join(screen(run)).split())
        assert ": 1 chain of 1000 draws" in told and "chains cannot be compared" in told

    def test_the_user_s_form_is_bridged(self, tmp_path: Path, rng: np.random.Generator) -> None:
        """A fit has the parameters that the user wrote, not those of another form."""
        path = tmp_path / "schools.stan"
        path.write_text(
            """
            parameters { real mu; real<lower=0> tau; vector[3] theta; }
            model { mu ~ normal(0, 1); tau ~ gamma(5, 5); theta ~ normal(mu, tau); }
            """,
            encoding="utf-8",
        )
        mu, tau = rng.standard_normal((4, 500)), rng.gamma(5, 1 / 5, (4, 500))
        theta = mu[..., None] + tau[..., None] * rng.standard_normal((4, 500, 3))
        for hierarchies in ("as written", "non-centred", "auto"):
            model = stanct.temper(path, hierarchies=hierarchies)
            run = stanct.bridge(model, None, {"mu": mu, "tau": tau, "theta": theta}, seed=1)
            assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.4
            assert set(run.variables) == {"mu", "tau", "theta"}

    def test_the_program_as_written(self, tmp_path: Path, rng: np.random.Generator) -> None:
        path = tmp_path / "half.stan"
        path.write_text(
            "parameters { real<lower=0> s; } model { s ~ normal(0, 1); }", encoding="utf-8"
        )
        fit = {"s": np.abs(rng.standard_normal((4, 500)))}
        run = stanct.bridge(path, None, fit, seed=1)
        assert run.evidence.log_z == pytest.approx(-np.log(2), abs=0.02)
        assert len(run.provenance["omissions"]) == 1
        mended = stanct.bridge(stanct.temper(path, half_priors="renormalise"), None, fit, seed=1)
        assert mended.evidence.log_z == pytest.approx(0, abs=0.02)
        also = stanct.bridge(path, None, fit, half_priors="renormalise", seed=1, progress=False)
        assert also.evidence == mended.evidence
        with pytest.raises(StanctError, match=r"stanct\.temper has read this one already"):
            stanct.bridge(stanct.temper(path), None, fit, half_priors="renormalise")


@pytest.fixture(scope="module")
def run() -> BridgeRun:
    fit = _line(np.random.default_rng(3), (4, 400))
    return stanct.bridge(CASES["gaussian"].model, LINE.data, fit, seed=1)


class TestTheRun:
    """A bridge is a run like any other."""

    def test_estimates(self, run: BridgeRun) -> None:
        found = run.expect("sum_b")
        assert abs(found.value - LINE.means["sum_b"]) < 4 * found.std_error < 0.1
        assert np.ptp(run.target_log_weights) == 0
        assert set(run.summary().index) == {"b[1]", "b[2]", "sum_b"}

    def test_saved_and_loaded(self, run: BridgeRun, tmp_path: Path) -> None:
        run.save(tmp_path / "run")
        loaded = stanct.load(tmp_path / "run")
        assert isinstance(loaded, BridgeRun)
        assert loaded.evidence == run.evidence
        assert loaded.diagnostics == run.diagnostics

    @pytest.mark.usefixtures("words_alone")
    def test_report_and_words(self, run: BridgeRun) -> None:
        page = str(run.report())
        assert "Warp-III" in page
        assert "plain bridge" in page
        assert " gradients" in repr(run)
        assert "4 chains of 400 draws of the mapping of draws" in repr(run)

    def test_compared_with_a_tempered_run(self, run: BridgeRun) -> None:
        other = CASES["gaussian"].model.sample(LINE.data, draws=300, seed=1, progress=False)
        found = stanct.compare(run, other, names=["bridge", "joint"])
        factor = found.bayes_factor("bridge", "joint")
        assert abs(factor.log) < 4 * factor.std_error < 0.5


def test_a_fit_is_a_base(rng: np.random.Generator) -> None:
    """Moments of the fit's draws, with no gradient spent on a fit of its own."""
    case = CASES["gaussian"]
    fit = _line(rng, (4, 500))
    run = case.model.sample(
        LINE.data,
        stanct.Joint(bootstrap=0),
        base=fit,
        draws=300,
        warmup=300,
        seed=1,
        progress=False,
    )
    assert run.base.mean == pytest.approx(fit["b"].reshape(-1, 2).mean(axis=0), abs=1e-8)
    assert abs(run.evidence.log_z - LINE.log_z) < 4 * run.evidence.std_error < 0.2
    with pytest.raises(SamplingError, match="A fit as base needs a Stan program"):
        stanct.sample(gaussian(2).target, base=fit)


class TestTheBridge:
    def test_of_two_normals(self, rng: np.random.Generator) -> None:
        """log Z of exp(1.5) N(0.5, 1) against N(0, 1), whose ratio is exp(1.5 + x/2 − 1/8)."""
        x, y = rng.normal(0.5, 1, (4, 2000)), rng.standard_normal(4000)
        found = Bridge(1.5 + x / 2 - 0.125, 1.5 + y / 2 - 0.125)
        error = float(np.hypot(*found.errors[:2]))
        assert abs(found.log_z - 1.5) < 4 * error < 0.05
        assert max(found.pareto_k) < 0.7

    def test_without_overlap_nothing_is_known(self) -> None:
        nowhere = Bridge(np.zeros((2, 100)), np.full(100, -np.inf))
        assert np.isnan(nowhere.log_z)
        assert nowhere.errors[0] == np.inf
        assert nowhere.even_share == 0

    def test_halves_share_no_draw(self, rng: np.random.Generator) -> None:
        for first, second in (halves(101), reshuffled_halves(101, rng)):
            assert first.size == second.size == 50
            assert not set(first) & set(second)
            assert (np.diff(first) > 0).all()

    def test_a_normal_of_few_points_is_wider(self, rng: np.random.Generator) -> None:
        few = fitted_normal(rng.standard_normal((30, 20)))
        assert np.linalg.eigvalsh(few.covariance).min() > 0.2
        many = rng.standard_normal((100, 2))
        assert fitted_normal(many).covariance == pytest.approx(np.cov(many.T), abs=1e-9)


def test_replaced_provenance_keeps_the_run(rng: np.random.Generator) -> None:
    run = stanct.bridge(
        CASES["skewed"].model, SKEWED.data, _skewed(rng, (2, 100)), search=False, seed=1
    )
    again = replace(run, provenance={**run.provenance, "lost": 0.5, "lost_in_files": 0.5})
    assert again.warnings[0] == "lost"
    assert "copied whole" in failures(again.diagnostics)[0].remedy


SPOILED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "narrow": lambda x: np.sqrt(0.7) * x,
    "wide": lambda x: np.sqrt(1.5) * x,
    "shifted": lambda x: x + 0.3,
    "chains apart": lambda x: x + 0.4 * np.array([-1, -0.5, 0.5, 1])[:, None, None],
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", SPOILED)
def test_draws_of_another_density_are_told(name: str, seed: int) -> None:
    model = model_of("parameters { vector[3] x; } model { x ~ std_normal(); }")
    x = np.random.default_rng(seed).standard_normal((4, 1000, 3))
    assert stanct.bridge(model, None, {"x": x}, seed=seed).warnings == ()
    run = stanct.bridge(model, None, {"x": SPOILED[name](x)}, seed=seed)
    assert {"score", "r_hat"} & {*run.warnings}


LOGISTIC = """
data { int n; matrix[n, 3] x; array[n] int y; }
parameters { vector[3] b; }
model { b ~ normal(0, 2); y ~ bernoulli_logit(x * b); }
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=LONG)])
def test_a_mean_field_normal_of_a_logistic_regression_is_told(seed: int) -> None:
    """Of a thousand rows, whose posterior is nearly a normal with correlations of .7."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1000, 3)) + 1.5 * rng.standard_normal((1000, 1))
    y = rng.random(1000) < expit(x @ [0.5, -0.3, 0.2])
    data = {"n": 1000, "x": x, "y": y.astype(int)}
    model = model_of(LOGISTIC)
    b, precision = np.zeros(3), np.eye(3)
    for _ in range(20):  # Newton's method
        p = expit(x @ b)
        precision = x.T @ (x * (p * (1 - p))[:, None]) + np.eye(3) / 4
        b = b + np.linalg.solve(precision, x.T @ (y - p) - b / 4)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    noise = rng.standard_normal((4, 1000, 3))
    right = stanct.bridge(model, data, {"b": b + noise @ root.T}, seed=seed)
    assert "score" not in right.warnings
    field = {"b": b + noise / np.sqrt(np.diag(precision))}
    wrong = stanct.bridge(model, data, field, seed=seed)
    assert "score" in wrong.warnings


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_normal_with_the_moments_of_the_posterior_is_told(seed: int) -> None:
    """As of a variational fit. Its third moments alone are not those of log r, r ~ gamma."""
    rng = np.random.default_rng(seed)
    logs = np.log(rng.gamma(2.5, 1 / 2.5, (4, 1000)))
    fit = {"r": np.exp(rng.normal(logs.mean(), logs.std(), logs.shape))}
    assert "score" in stanct.bridge(model_of(SKEWED.source), SKEWED.data, fit, seed=seed).warnings


def test_importance_sampling_takes_no_draw_of_the_fit() -> None:
    """Ratios of a normal draw to itself are one, whatever those of the fit are."""
    rng = np.random.default_rng(1)
    exact, base = rng.normal(-2, 0.3, (4, 500)), rng.normal(-2.045, 0.3, 2000)
    pair = [Bridge(exact + shift, base) for shift in (0.0, 1.0)]
    found = by_importance(pair)
    assert found is not None and abs(found[0] + 2) < 4 * found[1] and 0.003 < found[1] < 0.007
    assert by_importance([Bridge(exact, rng.normal(0, 3, 2000))] * 2) is None


def test_resampled_draws_are_refused(rng: np.random.Generator) -> None:
    """Those of a chain that stays, and of numbers with few digits, are not."""
    x = rng.standard_normal((4, 500, 2))
    kept = np.maximum.accumulate(np.where(rng.random((4, 500)) < 0.5, 0, np.arange(500)), axis=1)
    stays = np.take_along_axis(x, kept[..., None], axis=1)
    for fine in (x, stays, x.round(1), np.repeat(x[..., :1].round(2), 2, axis=-1)):
        assert resampled(fine) == 0
    model = model_of("parameters { vector[2] x; } model { x ~ std_normal(); }")
    again = x.reshape(-1, 2)[rng.integers(2000, size=(4, 500))]
    with pytest.raises(StanctError, match=r"3[5-9]% of the draws of the mapping of draws repeat"):
        stanct.bridge(model, None, {"x": again}, search=False, seed=1)


def test_a_density_without_an_end_is_told(rng: np.random.Generator) -> None:
    """Only the sum has a prior, so that the fit's own width is all that log Z could tell."""
    a = rng.normal(0, 100, (4, 1000))
    fit = {"a": a, "b": rng.standard_normal(a.shape) - a}
    parameters = "parameters { real a; real b; }"
    run = stanct.bridge(
        model_of(parameters + " model { a + b ~ normal(0, 1); }"), None, fit, seed=1
    )
    assert "improper" in run.warnings
    proper = model_of(parameters + " model { a ~ normal(0, 100); a + b ~ normal(0, 1); }")
    run = stanct.bridge(proper, None, fit, seed=1)
    assert run.warnings == ()
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error
