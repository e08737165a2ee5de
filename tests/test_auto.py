"""The default method: what it chooses, what it does when checks fail, and how right it is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from boltzmann_machine import BoltzmannMachine
from conftest import LONG, ROOT, target_of
from scipy.special import betaln
from targets import LINE, SKEWED, TWO_MODES, Exact

import stanct
from stanct.bases import loop, modes
from stanct.bases.fits import FittedBase
from stanct.bases.local import LocalFit
from stanct.bases.loop import Purse, Recipe
from stanct.bases.pilots import Piloted
from stanct.bases.score import Score
from stanct.bases.search import Search
from stanct.estimates.modes import mode_columns, mode_shares
from stanct.estimates.path import Evidence
from stanct.estimates.weighted import least_effective
from stanct.pages.report import searched
from stanct.pages.reproduction import python_lines
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase
from stanct.runs.decisions import decisions
from stanct.runs.tempered import TemperedRun
from stanct.samplers import auto, independence
from stanct.targets.program_target import ProgramTarget

FUNNEL = """parameters { real v; vector[4] x; }
model { target += normal_lpdf(v | 0, 2) + normal_lpdf(x | 0, exp(0.5 * v)); }"""
# Laplace approximations miss the tails.
BENT = Exact(
    """parameters { vector[2] x; }
    model {
      target += log_mix(0.4,
        normal_lpdf(x[1] | -8, 1) + normal_lpdf(x[2] | square(x[1] + 8), 0.5),
        normal_lpdf(x[1] | 8, 2) + normal_lpdf(x[2] | -square(x[1] - 8), 1));
    }""",
    None,
    0.0,
    {"x": [0.4 * -8 + 0.6 * 8, 0.4 * 1 - 0.6 * 4]},
)

COIN = Exact(
    "parameters { real<lower=0, upper=1> p; } model { target += binomial_lpmf(7 | 20, p); }",
    None,
    -np.log(21),
    {"p": 8 / 22},
)

# The default with neither independent draws nor draws in two stages.
CHAINS = replace(stanct.recipe().without("given"), even=2.0)
ARMS = {"pareto_k", "divergences", "rejections", "few_tours", "effective_size"}


def default_run(exact: Exact | str, seed: int, **options: Any) -> TemperedRun:
    source, data = (exact, None) if isinstance(exact, str) else (exact.source, exact.data)
    target = target_of(source, data)
    run: Any = stanct.sample(target, seed=seed, progress=False, engine="embedded", **options)
    assert isinstance(run, TemperedRun)
    return run


def assert_right(run: TemperedRun, exact: Exact, largest: float) -> None:
    evidence = run.evidence
    assert evidence.std_error < largest
    assert abs(evidence.log_z - exact.log_z) < 4 * evidence.std_error
    for name, mean in exact.means.items():
        found = run.expect(name)
        assert np.all(np.abs(found.value - mean) < 4 * found.std_error)


@pytest.mark.parametrize(
    ("exact", "chosen", "largest", "most"),
    [
        (LINE, {"independence"}, 1e-6, 20_000),
        (TWO_MODES, {"independence"}, 0.01, 30_000),
        # Its base is nearly good enough, and luck decides.
        (SKEWED, {"joint", "independence"}, 0.02, 400_000),
        pytest.param(BENT, {"independence"}, np.inf, 3_300_000, marks=LONG),
    ],
    ids=["Gaussian", "Gaussian modes", "one mode", "bent modes"],
)
def test_what_it_chooses_is_right(
    exact: Exact, chosen: set[str], largest: float, most: int, seed: int
) -> None:
    run = default_run(exact, seed)
    steps = run.provenance["steps"]
    assert {step["method"] for step in steps} == {run.method} <= chosen
    # Chains go to the ends of the arms of bent modes in few tours, and some rightly say so.
    bent = exact is BENT
    assert len(steps) <= 1 + bent and set(run.warnings) <= (ARMS if bent else set())
    assert run.gradients < most
    assert_right(run, exact, largest)


def test_enough_is_enough(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a number of draws or an error stops, says why, and both aims are settings."""
    monkeypatch.setattr(auto, "mendable", lambda checks: [])  # one in many fails by chance
    run = default_run(TWO_MODES, seed)
    assert run.method == "independence" and run.draws < 600
    assert run.evidence.std_error < 0.02 and least_effective(run.z, run.log_weights()) > 1000
    length = next(check for check in run.diagnostics if check.name == "interrupted")
    assert length.passed and "1,000 effective draws" in length.message
    (step,) = run.provenance["steps"]
    assert list(decisions(run.provenance))[1] == (
        f"It stopped after {run.draws} draws of each chain: log Z is known to ± 0.02, and means "
        "rest on 1,000 effective draws."
    )
    assert step["made"] == run.draws and run.provenance["asked"]["options"]["draws"] is None
    code = python_lines(run)
    assert code is not None and "draws" not in code
    wanted = stanct.Auto(enough_draws=3000)
    more = default_run(TWO_MODES, seed, method=wanted)
    assert more.provenance["steps"][0]["made"] > 2 * run.draws
    exact = default_run(TWO_MODES, seed, method=stanct.Auto(enough_se=0.004))
    (first, *_), made = exact.provenance["steps"], exact.provenance["steps"][0]["made"]
    assert made > 1.5 * run.draws and first["std_error"] <= 0.004
    given = default_run(TWO_MODES, seed, draws=100)
    assert given.draws == 100 * auto.INDEPENDENT and given.provenance["stopping"]["looks"] == []
    code = python_lines(default_run(LINE, seed, draws=stanct.Auto.default_draws))
    assert code is not None and "draws=2500" in code


def test_looks_are_in_the_checkpoint(seed: int, tmp_path: Path) -> None:
    """So that the draws between them are there when the time is over."""
    run = default_run(TWO_MODES, seed, checkpoint=tmp_path)
    assert run.provenance["stopping"]["looks"]
    found: Any = default_run(TWO_MODES, seed, checkpoint=tmp_path, max_seconds=0)
    assert np.array_equal(found.delta, run.delta) and found.evidence == run.evidence


def test_what_is_not_enough_ends_at_the_limit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many draws as there would be anyway, and no check fails for it."""
    monkeypatch.setattr(stanct.Auto, "default_draws", 100)
    run = default_run(TWO_MODES, seed, method=stanct.Auto(enough_se=1e-6))
    assert run.draws == 100 * auto.INDEPENDENT and not run.warnings
    assert run.provenance["stopping"]["reason"] == "limit"
    assert [*decisions(run.provenance)][1:] == [
        f"It ended at {run.draws} draws of each chain, the most that it makes unasked, before "
        "log Z was known to ± 1e-06 and means rested on 1,000 effective draws; target_se=1e-06 "
        "(--target-se 1e-06) goes on."
    ]


def test_much_data_gets_fewer_independent_draws(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = stanct.Auto.default_draws
    usual = default_run(LINE, seed, draws=draws)
    assert usual.draws == auto.INDEPENDENT * draws
    monkeypatch.setattr(loop, "MUCH_DATA", 0.01 * len(usual.data))
    few = default_run(LINE, seed, draws=draws)
    assert few.method == "independence" and few.draws == draws
    assert few.gradients < usual.gradients
    assert_right(few, LINE, 1e-6)


def test_it_says_what_was_asked_and_done(seed: int) -> None:
    run = default_run(LINE, seed, draws=600)
    asked = run.provenance["asked"]
    assert asked["method"] == "auto"
    assert asked["settings"] == stanct.Auto().record()
    # Independent draws cost so little that there are four times as many.
    assert asked["options"]["draws"] == 600 and run.draws == 2400
    (step,) = run.provenance["steps"]
    assert "one Gaussian is nearly the density: 100% of its draws count" in step["because"]
    assert step["failed"] == [] and step["log_z"] == run.evidence.log_z
    (told,) = decisions(run.provenance)
    assert told == f"The default took independence, because {step['because']}."
    again = stanct.sample(
        target_of(LINE.source, LINE.data), stanct.Auto(), seed=seed, draws=600, progress=False
    )
    assert np.array_equal(run.delta, again.delta)


@LONG
def test_failed_checks_lead_to_more_work(seed: int) -> None:
    """First the same method, longer; a base that failed by itself is tempered."""
    short = default_run(FUNNEL, seed, draws=40, base=CHAINS)
    steps = short.provenance["steps"]
    assert len(steps) > 1 and steps[0]["failed"]
    assert steps[1]["draws"] == 160 and steps[1]["because"].startswith("checks failed: ")
    assert short.gradients > steps[0]["gradients"]
    again = default_run(FUNNEL, seed, draws=40, base=CHAINS)
    assert np.array_equal(again.delta, short.delta)


def test_few_tours_lead_to_more_work(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although no check failed; and not where the budget has no room."""
    enough = default_run(TWO_MODES, seed, draws=600, base=CHAINS)
    tours = next(check.value for check in enough.diagnostics if check.name == "few_tours")
    assert len(enough.provenance["steps"]) == 1 and not enough.warnings and tours > 6
    monkeypatch.setattr(auto, "ENOUGH_TOURS", 1.5 * tours)
    more = default_run(TWO_MODES, seed, draws=600, base=CHAINS)
    steps = more.provenance["steps"]
    assert [step["draws"] for step in steps] == [600, 2400] and steps[0]["failed"] == []
    assert steps[1]["because"] == f"the error of log Z rests on {tours:.1f} effective tours"
    told = list(decisions(more.provenance))
    assert len(told) == 2
    assert told[1] == (
        f"It found {enough.evidence.in_words}. Then it took simulated_tempering for up to 2400 "
        f"draws of each chain, because {steps[1]['because']}."
    )
    spent = stanct.Auto(max_gradients=enough.gradients)
    only = default_run(TWO_MODES, seed, method=spent, draws=600, base=CHAINS)
    assert len(only.provenance["steps"]) == 1
    assert list(decisions(only.provenance))[-1] == (
        f"No further run followed, although {steps[1]['because']}: 0 gradients are left of "
        f"max_gradients={enough.gradients}, too few for a run 1.5 times as long."
    )
    # Tours of independent draws with bounded weights are short, however few make up the error.
    monkeypatch.setattr(auto, "ENOUGH_TOURS", np.inf)
    (step,) = default_run(TWO_MODES, seed, draws=600).provenance["steps"]
    assert step["method"] == "independence"


def test_a_nearly_exact_base_needs_few_draws() -> None:
    """A few draws in a tail make up a small error; many more draws were made to have six tours."""
    runs = [default_run(COIN, seed) for seed in range(1, 11)]
    assert {run.method for run in runs} == {"independence"}
    assert sum(run.draws for run in runs) < 8000 and max(run.draws for run in runs) < 4000
    for run in runs:
        assert_right(run, COIN, 0.02)


@LONG
def test_longer_runs_fit_the_budget(seed: int) -> None:
    """A second run is shortened to what the budget leaves, or left out."""
    first = default_run(FUNNEL, seed, draws=40, base=CHAINS).provenance["steps"][0]
    budget = int(2.7 * first["gradients"])
    auto_within = stanct.Auto(max_gradients=budget)
    shorter = default_run(FUNNEL, seed, method=auto_within, draws=40, base=CHAINS)
    steps = shorter.provenance["steps"]
    assert steps[0] == first and len(steps) > 1
    assert 60 <= steps[1]["draws"] < 160 and steps[-1]["gradients"] < 1.1 * budget
    spent = stanct.Auto(max_gradients=first["gradients"] + 1)
    one = default_run(FUNNEL, seed, method=spent, draws=40, base=CHAINS)
    (alone,) = one.provenance["steps"]
    assert alone.pop("rest")["despite"].startswith("checks failed: ")
    assert alone == first and one.warnings


def test_a_run_tells_how_it_was_extended(seed: int) -> None:
    run = default_run(TWO_MODES, seed, draws=300)
    assert [*decisions({})] == []
    longer = {**run.provenance, "extended": {"settings": {}, "draws": [500, 20]}}
    assert [*decisions(longer)][-2:] == [
        "It was extended by 500 draws of each chain.",
        "It was extended by 20 draws of each chain.",
    ]


def test_a_base_that_fails_alone_is_tempered(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recipe, "believes", lambda *_: True)
    narrow = GaussianBase(np.zeros(2), 0.2 * np.eye(2))
    mixture = MixtureBase.of([1, 1], [narrow, GaussianBase(np.full(2, 0.1), 0.2 * np.eye(2))])
    source = "parameters { vector[2] x; } model { target += std_normal_lpdf(x); }"
    run = default_run(source, seed, draws=200, base=mixture)
    methods = [step["method"] for step in run.provenance["steps"]]
    assert methods[:2] == ["independence", "simulated_tempering"]
    alone = auto._Step(auto._INDEPENDENT, 40, "")
    gaussian = FittedBase(GaussianBase(np.zeros(2), np.eye(2)), 0.0)
    after = auto._next(alone, "checks failed: pareto_k", gaussian, 40, 1.0)
    assert after is not None and after.method is auto._JOINT and "pareto_k" in after.because


def test_bases_of_the_users_own(seed: int) -> None:
    """A mixture is redrawn from; a wide Gaussian is never narrowed."""
    target = target_of("parameters { real x; } model { target += normal_lpdf(x | 0, 1); }")
    wide = GaussianBase(np.zeros(1), np.full((1, 1), 20.0))
    run: Any = stanct.sample(target, base=wide, seed=seed, progress=False, draws=800)
    assert run.method == "simulated_tempering" and run.base.scale[0, 0] >= 20 * (1 - 1e-9)
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.4
    two = MixtureBase.of([1, 1], [wide, GaussianBase(np.ones(1), np.ones((1, 1)))])
    run = stanct.sample(target, base=two, seed=seed, progress=False, draws=800)
    assert run.method in ("independence", "simulated_tempering") and run.base is two
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.4


def test_modes_of_a_centred_hierarchy_get_one_gaussian() -> None:
    """Of the non-centred form, of one mode, and of a given base the base stays."""
    source = """parameters { real<lower=0> tau; vector[2] b; }
    model { tau ~ exponential(1); b ~ normal(0, tau); }"""
    target = stanct.temper(source).target()
    parts = [GaussianBase(np.full(3, place), np.eye(3)) for place in (-2.0, 2.0)]
    start = FittedBase(MixtureBase.of([1, 1], parts), 0.0, separated=True)
    found = auto._for_necks(target, start)
    assert found.base.is_gaussian and found.separated
    assert found.base.spread == pytest.approx(np.full(3, np.sqrt(5)))
    assert auto._for_necks(target.in_form(["b"]), start) is start
    assert auto._for_necks(target_of("parameters { vector[3] x; } model { }"), start) is start
    for other in (replace(start, separated=False), replace(start, given=True)):
        assert auto._for_necks(target, other) is other


@LONG
def test_a_long_way_to_many_modes_is_taken_by_simulated_tempering(seed: int) -> None:
    """Sixteen units, on which joint tempering has an error above 1 at this cost."""
    machine = BoltzmannMachine.random(16, np.random.default_rng([16, 2]))
    exact = machine.relaxed(machine.exact())
    program = (ROOT / "stan_models/boltzmann/boltzmann.stan").read_text(encoding="utf-8")
    run = default_run(Exact(program, machine.stan_data(), float(exact.log_z), {}), seed)
    steps = run.provenance["steps"]
    assert {step["method"] for step in steps} == {"simulated_tempering"} and len(steps) <= 2
    assert run.gradients < 4_000_000 and not run.warnings
    assert run.evidence.std_error < 0.1
    assert abs(run.evidence.log_z - exact.log_z) < 4 * run.evidence.std_error


# Six effects, each near zero or not, from nine observations.
SPIKES_AND_SLABS = """
data { int n; matrix[n, 6] X; vector[n] y; }
parameters { vector[6] b; real<lower=0, upper=1> w; }
model {
  w ~ beta(1, 1);
  for (j in 1:6) target += log_mix(w, normal_lpdf(b[j] | 0, 2), normal_lpdf(b[j] | 0, 0.03));
  y ~ normal(X * b, 1.2);
}
"""
DESIGN = np.array([
    [-0.4, 0.4, -0.8, 1.5, 0.7, -1.3], [-1.2, -0.8, -0.3, 0.1, -0.3, -0.1],
    [1.2, 0.1, 0.2, 1.0, 0.0, 0.8], [-0.2, -1.0, -1.4, -0.9, 0.5, -0.7],
    [-0.4, -0.3, 0.3, 0.3, -2.8, 0.0], [-0.2, 0.3, 0.4, 0.2, 1.1, -0.6],
    [-1.2, 0.2, -0.5, -1.0, -0.6, -1.3], [0.7, 1.1, -0.7, -0.6, -0.4, 1.2],
    [-0.4, -1.0, 0.8, -0.5, 0.0, 0.3],
])  # fmt: skip
RESPONSE = np.array([-0.4, -0.5, 1.8, -2.0, 0.4, 0.8, -3.5, -0.3, -1.2])


def log_z_of_spikes_and_slabs() -> float:
    """A sum over the 64 ways to choose the effects near zero."""
    terms = []
    for slab in itertools.product((0, 1), repeat=6):
        variance = np.where(slab, 4.0, 0.03**2)
        covariance = (DESIGN * variance) @ DESIGN.T + 1.2**2 * np.eye(9)
        prior = betaln(1 + sum(slab), 7 - sum(slab))
        square = RESPONSE @ np.linalg.solve(covariance, RESPONSE)
        log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
        terms.append(prior - 0.5 * (square + log_det))
    return float(np.logaddexp.reduce(terms))


@LONG
def test_modes_that_pilots_enclose_count_as_measured(seed: int) -> None:
    """There are some twenty and more, and eight pilots.

    On data like these, which are rounded here, one Gaussian around all gave errors of .09 to .19.
    """
    data = {"n": 9, "X": DESIGN, "y": RESPONSE}
    run = default_run(Exact(SPIKES_AND_SLABS, data, 0.0, {}), seed)
    assert isinstance(run.base, MixtureBase)
    assert not run.warnings and run.evidence.std_error < 0.04
    assert abs(run.evidence.log_z - log_z_of_spikes_and_slabs()) < 4 * run.evidence.std_error


@pytest.mark.parametrize(("log_evidence", "outside"), [(-5.0, 0.0067), (-1.0, 0.269)])
def test_modes_beyond_the_pilots_count_by_their_mass(
    log_evidence: float, outside: float, rng: np.random.Generator
) -> None:
    noise = rng.standard_normal((400, 3))
    pilot = LocalFit(np.zeros(3), np.eye(3), 0.0, noise)
    near = LocalFit(np.ones(3), 0.01 * np.eye(3), 0.0, 1 + 0.1 * noise)
    far = LocalFit(np.full(3, 9.0), np.eye(3), log_evidence, 9 + noise)
    for few in (True, False):
        assert modes._outside([near, far], [pilot], few=few) == pytest.approx(outside, abs=1e-3)
        assert modes._outside([near, far], [pilot, far], few=few) == 0


@pytest.mark.parametrize("stays", [True, False])
def test_a_known_mode_that_pilots_left_is_a_part(
    stays: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is piloted again, and where chains leave it again, its curvature is the part."""
    noise = rng.standard_normal((400, 3))
    best, wide = (LocalFit(np.zeros(3), s * np.eye(3), 0.0, s**0.5 * noise) for s in (1.0, 40.0))
    lost = LocalFit(np.full(3, 9.0), np.eye(3), -3.0, 9 + noise)
    started = []

    def again(_target: Any, fits: list[LocalFit], **_: Any) -> Piloted:
        started.extend(fits)
        return Piloted((replace(lost, log_evidence=-2.9) if stays else best,), 500, 100)

    monkeypatch.setattr(modes, "piloted", again)
    looked = Search((best, wide, lost), (5, 5, 2), 120, 0, 0.0, 10.0, 0, dimension=3)
    density = SimpleNamespace(dimension=3, log_densities=lambda x: np.zeros(len(x)))
    state: Any = SimpleNamespace(
        target=SimpleNamespace(density=density), search=looked, near=(), purse=Purse(3e6), rng=rng,
        nuts=None, seeds=SimpleNamespace(more_pilots=np.random.SeedSequence(1)),
    )  # fmt: skip
    found = modes.Pilots().with_the_rest(state, Piloted((best,), 2000, 100))
    assert [fit.log_evidence for fit in started] == [-3.0]  # a curvature that is too flat asks none
    assert [fit.log_evidence for fit in found.fits] == [0.0, -2.9 if stays else -3.0]
    assert (found.gradients, found.evaluations) == (2500, 200)


@pytest.mark.parametrize(("dimension", "unseen"), [(13, 0.75), (13, 0.01), (12, 0.75)])
def test_a_search_that_was_given_up_is_not_complete(
    dimension: int, unseen: float, rng: np.random.Generator
) -> None:
    """Although each of the best modes was seen twice; and none is measured by its curvature."""
    noise = rng.standard_normal((100, dimension))
    fits = tuple(LocalFit(m + noise[0], np.eye(dimension), 0.0, m + noise) for m in (0.0, 99.0))
    looked = Search(fits, (2, 2), 120, 0, unseen, 10.0, 0, dimension=dimension)
    thousands = dimension == 13 and unseen > 0.5
    counted = modes.Pilots().that_count(fits, 1.0, looked, dimension, gaussian=False)
    assert counted.sought.complete is not thousands
    target: Any = SimpleNamespace(density=SimpleNamespace(dimension=dimension))
    if thousands:
        state: Any = SimpleNamespace(target=target, search=looked)
        found = modes.Curvature().make(state)
        assert found.known == {"others": fits} and found.gradients == 0


def test_modes_as_a_result(seed: int) -> None:
    run = default_run(TWO_MODES, seed)
    modes = run.modes
    assert modes is not None and list(modes.index) == [1, 2]
    assert modes["weight"].to_numpy() == pytest.approx([0.7, 0.3], abs=0.03)
    assert np.all(np.abs(modes["weight"] - [0.7, 0.3]) < 4 * modes["std_error"])
    assert modes["log_z"].to_numpy() == pytest.approx(3.5 + np.log([0.7, 0.3]), abs=0.1)
    assert list(modes["chains"]) == [4, 4]
    assert run.facts()["modes found"] == 2
    chance = run.facts()["chance that another start finds a new mode that counts, below"]
    assert chance == pytest.approx(1 / run.facts()["starts of the search"])
    check = next(check for check in run.diagnostics if check.name == "modes")
    assert check.passed
    survey = run.provenance["survey"]
    label = "how many times narrower a spike inside a mode may be"
    assert survey["whole"] and survey["named"] == 2 and label not in run.facts()
    assert "The 2 components that the program names were followed. They are" in searched(run)
    survey = {**survey, "whole": False, "named": 0, "finest": 5.0}
    run = replace(run, provenance={**run.provenance, "survey": survey})
    assert run.facts()[label] == 5.0
    sentence = f"up to {float(format(survey['finest'], '.2g')):g} times narrower"
    assert sentence in searched(run)
    blind, old = (
        replace(run, provenance={**run.provenance, "survey": changed})
        for changed in (
            {**survey, "finest": 1.0},
            {name: value for name, value in survey.items() if name != "finest"},
        )
    )
    assert searched(blind).endswith("Spikes inside a mode were not looked for.")
    assert "pike" not in searched(old) and label not in old.facts() and label not in blind.facts()


@pytest.mark.parametrize(
    ("even", "largest", "needs"),
    [
        (0.602, 16, "less than 3 times"),
        (0.5, 2, "more than 60%"),
        (0.5, 9, "more than 60% and less than 3 times"),
    ],
)
def test_only_the_conditions_that_fail_are_named(even: float, largest: float, needs: str) -> None:
    score, base = Score(even, largest, 1.0), SimpleNamespace(is_gaussian=False)
    start: Any = SimpleNamespace(score=score, nested=None, given=True, base=base)
    job: Any = SimpleNamespace(recipe=None, draws=9)
    assert auto._choice(job, start).because.endswith(f"(independent draws need {needs})")


def test_a_lost_mode_is_a_failed_check(seed: int) -> None:
    """The chains of a target with one mode, beside pilots that saw two."""
    target = target_of(TWO_MODES.source)
    half = target_of(TWO_MODES.source.replace("0.7", "1 - 1e-12"))
    found: Any = stanct.sample(target, seed=seed, progress=False, draws=500)
    lost = stanct.sample(half, stanct.Joint(), base=found.base.whitening, seed=seed, progress=False,
                         draws=500)  # fmt: skip
    assert lost.modes is None  # no pilots
    told = {**lost.provenance, "survey": found.provenance["survey"]}
    blind = replace(lost, provenance=told)
    assert "modes" in blind.warnings
    (check,) = [check for check in blind.diagnostics if check.name == "modes"]
    assert "Mode 2" in check.message


def test_known_modes_may_hold_little_of_the_mass(rng: np.random.Generator) -> None:
    """Two modes of a twentieth each, and a run that gives them a twentieth and nearly nothing."""
    survey = {"place": [[0.0], [9.0]], "spread": [[1.0], [1.0]], "log_evidence": [2.0, 2.0]}
    x = np.concatenate([rng.normal(size=(2, 1000, 1)), np.full((2, 1, 1), 9.0)], axis=1)

    def pilots(log_z: float, error: float) -> list[float]:
        evidence = Evidence(log_z, error, "", error, error, 9.0, 0.1, (0.0, 0.0))
        even = np.zeros(x.shape[:2])
        share = mode_shares(survey, x, np.asarray, even)
        table = mode_columns(share, np.array(survey["log_evidence"]), even, evidence)
        return table["pilot_weight"].tolist()

    assert pilots(2 + np.log(20), 0.0) == pytest.approx([0.05, 0.05])
    assert pilots(2 + np.log(20) + 0.2, 0.1) == pytest.approx([0.05, 0.05])
    assert pilots(2.0, 0.0) == pytest.approx([0.5, 0.5])  # the run lost one


def accepted(proposals: independence.Proposals, bias: Bias, size: int) -> tuple[Any, Any]:
    """Places and acceptance probabilities of a chain that takes its proposals in blocks."""
    chain = independence._Chain(bias)
    for first in range(0, len(proposals.delta), size):
        part = slice(first, first + size)
        chain.take(independence.Proposals(proposals.delta[part], proposals.uniforms[part]))
    kept, _, delta, probability = chain.draws()
    assert np.array_equal(delta, proposals.delta[kept])
    return kept, probability


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_acceptance_by_hand(size: int) -> None:
    """Proposals are accepted by the ratio of M; the first one inside the support is the start."""
    bias = Bias.linear(0.0)
    delta = np.array([np.inf, 0.0, 3.0, -2.0, np.inf])
    uniforms = np.array([[0.5, 0.5, 0.5, 0.9, 0.1], [0.6, 0.6, 0.6, 0.01, 0.6], np.zeros(5)]).T
    chain = independence.Proposals(delta, uniforms)
    kept, probability = accepted(chain, bias, size)
    assert kept.tolist() == [1, 1, 1, 3, 3]
    mass = np.exp(bias.log_mass(delta))
    assert probability == pytest.approx([0, 1, mass[2], 1, 0])
    # From the atom, to which the uniform .01 leads, every proposal is accepted.
    kept, probability = accepted(chain, replace(bias, atom=0.1), size)
    assert kept.tolist() == [1, 1, 1, 3, 4]
    assert probability == pytest.approx([0, 1, mass[2], 1, 1])


@pytest.mark.parametrize("exact", [LINE, SKEWED, TWO_MODES], ids=["line", "skewed", "two modes"])
def test_independence_is_exact_under_a_poor_base(exact: Exact, seed: int) -> None:
    """Independence needs no good base to be right, only a base that covers."""
    target: ProgramTarget = target_of(exact.source, exact.data)
    dimension = target.density.dimension
    scale = 5.0 if exact is TWO_MODES else 2.0
    base = GaussianBase(np.full(dimension, 0.3), scale * np.eye(dimension))
    run = stanct.sample(
        target, stanct.Independence(), base=base, draws=5000, seed=seed, progress=False
    )
    assert 0.05 < run.statistics["accept_stat__"].mean() < 0.999
    assert run.gradients == 0 and run.provenance["evaluations"] > 40_000
    assert_right(run, exact, 0.1)
    one, two = (
        stanct.sample(
            target, stanct.Independence(), base=base, draws=200, seed=seed, threads=k,
            progress=False,
        )
        for k in (1, 3)
    )  # fmt: skip
    assert np.array_equal(one.z, two.z) and np.array_equal(one.beta, two.beta)
