"""Two verdicts: may I use the draws, and may I use log Z as the evidence?"""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, target_of
from sampled import sampled

import stanct
from stanct.cli.main import main
from stanct.common.errors import SamplingError, StanctError
from stanct.common.names import UNRELIABLE
from stanct.pages.report import remedies, searched
from stanct.path.gaussian import GaussianBase
from stanct.runs.diagnostics import modes_check
from stanct.runs.normalised import lacking, program_checks
from stanct.runs.screen import screen
from stanct.runs.verdicts import KINDS, Verdict, check, failures, mendable, no_log_z

pytestmark = pytest.mark.usefixtures("words_alone")
SEEN = {"y": np.random.default_rng(1).normal(2, 1, 50).tolist()}
FLAT = """data { vector[50] y; }
parameters {
  real m;
  real<lower=0> s;
}
model { y ~ normal(m, s); }
"""
HALF = """data { vector[50] y; }
parameters {
  real m;
  real<lower=0> s;
}
model {
  m ~ normal(0, 5);
  s ~ normal(0, 2);
  y ~ normal(m, s);
}
"""
PROPER = HALF.replace("s ~ normal(0, 2)", "s ~ exponential(1)")
OTHER = HALF.replace("m ~ normal(0, 5)", "m ~ normal(1, 3)")
PROGRAMS = {"flat": FLAT, "half": HALF, "proper": PROPER, "other": OTHER}
FAILS = {"flat": ("proper_prior",), "half": ("normalised",), "proper": ()}


@cache
def run_of(name: str, draws: int = 500) -> Any:
    target = target_of(PROGRAMS[name], SEEN, name)
    return sampled("independence", target, draws=draws, seed=1, progress=False)


@pytest.mark.parametrize("name", FAILS)
def test_the_draws_are_good_and_log_z_is_the_evidence_or_not(name: str, tmp_path: Path) -> None:
    run, failed = run_of(name), FAILS[name]
    assert run.warnings == failed and run.is_reliable == (not failed)
    assert run.evidence.warnings == failed
    assert [check.name for check in run.diagnostics][:2] == ["proper_prior", "normalised"]
    assert run.verdict == Verdict((), failed, len(run.diagnostics))
    assert run.verdict.for_draws and run.verdict.for_evidence == (not failed)
    assert run.expect("m").warnings == ()  # the draws may be used
    for found in failures(run.diagnostics):
        assert found.of == "evidence" and f"{name}.stan:" in found.message and found.remedy
        assert html.escape(found.remedy, quote=True).replace("&#x27;", "&#39;") in run.report()
    words = repr(run)
    assert len(words.splitlines()) == 3 and all(one in words for one in failed)
    run.save(tmp_path / "run")
    again = stanct.load(tmp_path / "run")
    assert again.verdict == run.verdict and again.diagnostics == run.diagnostics


def test_the_checks_name_line_and_remedy() -> None:
    (flat,) = failures(run_of("flat").diagnostics)
    assert "flat.stan:3: `m` has no prior" in flat.message
    assert "Likewise `s` in line 4." in flat.message
    assert flat.remedy == "Give `m`, `s` a proper prior."
    (half,) = failures(run_of("half").diagnostics)
    errors = np.log(2) / run_of("half").evidence.std_error
    assert "half.stan:8: The prior of `s`" in half.message
    assert f"That is {errors:.3g} standard errors." in half.message
    assert half.remedy.startswith("Write `s ~ normal(0, 2) T[0, ];` in line 8, or add log(2) to")
    assert half.value == pytest.approx(np.log(2))
    mended = stanct.temper(HALF, half_priors="renormalise").target(SEEN)
    again = sampled("independence", mended, draws=500, seed=1, progress=False)
    assert again.is_reliable
    gap = again.evidence.log_z - run_of("half").evidence.log_z
    assert gap == pytest.approx(np.log(2), abs=5 * again.evidence.std_error)


def omitted(value: float | None, kind: str = "half_prior", improper: bool = False) -> dict:
    names = {"parameters": ["s"], "path": "a.stan", "line": 2, "sentence": "It lacks a constant."}
    mend = {"correction": None, "remedy": None}
    return {"kind": kind, **names, **mend, "value": value, "improper": improper}


def test_a_run_says_what_a_half_circle_lacks() -> None:
    """A von Mises prior on [0, π] has half of its mass there."""
    source = "parameters { real<lower=0, upper=pi()> a; }\nmodel {\n  a ~ von_mises(0, 2);\n}\n"
    run: Any = stanct.sample(target_of(source, None, "circle"), seed=1, progress=False)
    assert run.warnings == ("normalised",)
    (found,) = failures(run.diagnostics)
    assert (found.name, found.value) == ("normalised", pytest.approx(np.log(2), abs=1e-9))
    assert "circle.stan:3: The prior of `a`" in found.message and "T[0, pi()]" in found.remedy
    assert abs(run.evidence.log_z + np.log(2)) < 4 * run.evidence.std_error < 0.1


def test_constants_below_the_error_do_not_matter() -> None:
    for amount, passes in ((0.0049, True), (0.0051, False), (-0.0051, False), (None, False)):
        _, found = program_checks({"omissions": [omitted(amount)]}, 0.01)
        assert found.passed is passes
    side = "too large by 0.0051, 0.51 standard errors"
    _, two = program_checks({"omissions": [omitted(-0.0101), omitted(0.005)]}, 0.01)
    assert side in two.message and two.value == pytest.approx(0.0051)
    assert np.isnan(lacking({"omissions": [omitted(0.1), omitted(None)]}))


def test_what_cannot_be_checked_fails_nothing_and_is_said() -> None:
    proper, found = program_checks({"omissions": [omitted(None, "missing_constant")]}, 0.01)
    assert proper.passed and found.passed
    assert found.message.endswith(" Whether line 2 is normalised cannot be checked.")
    assert program_checks({}, 0.01) == ()  # a Python function


def test_a_verdict_is_printed_as_answers() -> None:
    assert str(Verdict((), (), 9)) == (
        "May I use the draws? yes\nMay I use log Z as the evidence? yes"
    )
    assert str(Verdict(("tours",), None, 9)) == "May I use the draws? no: tours failed"


def test_four_verdicts_in_words() -> None:
    draws, evidence = (check(name, 2, 1, False, "", "") for name in ("r_hat", "normalised"))
    good = check("base", 1, 2, True, "", "")
    told = {
        "All 1 checks passed.": [good],
        "The draws may be used, but not log Z as the evidence: 1 check of 2 failed.": [
            good, evidence,
        ],
        "Not to be trusted: 1 check of 2 failed.": [good, draws],
        "Not to be trusted: 2 checks of 3 failed, and as the program stands, log Z is not the "
        "evidence.": [good, draws, evidence],
        "Not to be trusted: 2 checks of 2 failed.": [draws, check("halves", 2, 1, False, "", "")],
    }  # fmt: skip
    for words, checks in told.items():
        found = Verdict.of(checks, has_evidence=True)
        assert found.in_words == words
        assert found.for_draws is (draws not in checks)
        assert found.for_evidence is (checks == [good])
    both = Verdict.of([good, draws, evidence], has_evidence=True)
    assert both.answers == {
        "May I use the draws?": "no: r_hat failed",
        "May I use log Z as the evidence?": "no: normalised, r_hat failed",
    }
    alone = Verdict.of([draws], has_evidence=False)
    assert alone.answers == {"May I use the draws?": "no: r_hat failed"}
    assert not alone.for_evidence


def test_the_evidence_comes_first_and_no_run_mends_it() -> None:
    assert [*KINDS][:2] == ["proper_prior", "normalised"]
    checks = [check(name, 2, 1, False, "", "") for name in KINDS]
    beyond = {"proper_prior", "normalised", "improper", "support", "rounding"}
    asked = {"interrupted", "max_seconds", "target_se", "search"}
    assert {*KINDS} - {*mendable(checks)} == beyond | asked


def test_comparisons_say_it_and_let_equal_amounts_cancel() -> None:
    half, other, proper, flat = map(run_of, ("half", "other", "proper", "flat"))
    unequal = stanct.compare(half, proper)
    assert unequal.warnings_of("half") == ("normalised",) and not unequal.is_reliable
    assert "Not to be relied on" in unequal.verdict
    assert any("half.stan:8" in note and "T[0, ]" in note for note in unequal.notes)
    equal = stanct.compare(half, other)
    assert equal.is_reliable and equal.warnings_of("half") == ()
    assert any("cancels" in note for note in equal.notes)
    with pytest.raises(StanctError, match=r"no proper prior: flat.stan:3: `m`"):
        stanct.compare(flat, proper)
    allowed = stanct.compare(flat, flat, names=["one", "two"], improper="allow")
    assert allowed.is_reliable
    unshared = stanct.compare(flat, proper, improper="allow")
    assert unshared.verdict.startswith("No Bayes factor: flat has improper priors")
    assert "evidence" not in unshared.verdict and not unshared.is_reliable
    assert unshared.warnings_of("flat") == ("proper_prior",)
    # Nothing else tells one, either.
    assert unshared.record()["bayes_factors"] == []
    told = unshared.table[["log_bayes_factor", "probability", "probability_low"]]
    assert told.isna().to_numpy().sum() == 5  # all but the best over itself
    assert not allowed.table.isna().to_numpy().any()
    page = str(unshared.report())
    assert "BF " not in page and "Posterior probabilities" not in page
    assert page.count("<svg role") == 1 and page.count(">none<") >= 5
    shared = str(allowed.report())
    assert "Posterior probabilities" in shared and shared.count("<svg role") == 2


def test_the_page_answers_both_questions() -> None:
    page = run_of("flat").report()
    # What the search did is told in a sentence, and its numbers once.
    assert "ascents from up to 100" in page and "Starts of the search" not in page
    assert "May I use the draws?" in page and "no: proper_prior failed" in page
    assert "Do not use this number as the evidence." in page
    assert "The draws may be used, but not log Z as the evidence" in page


@LONG
@pytest.mark.parametrize(
    "method", ["joint", "gibbs", "parallel_tempering", "ais", "pseudo_extended", "adiabatic"]
)
def test_every_kind_of_run_with_an_evidence_says_it(method: str) -> None:
    target = target_of(HALF, SEEN, "half")
    run = sampled(method, target, draws=128, seed=1, progress=False)
    assert run.warnings[0] == "normalised" and "normalised" in repr(run)


def test_a_strict_comparison_ends_with_the_verdict_of_its_runs(tmp_path: Path) -> None:
    for name in ("half", "other", "proper"):
        run_of(name).save(tmp_path / name)
    half, other, proper = (str(tmp_path / name) for name in ("half", "other", "proper"))
    assert main(["compare", half, proper]) == 0
    assert main(["compare", half, proper, "--strict"]) == UNRELIABLE
    assert main(["compare", half, other, "--strict", "--json"]) == 0  # what both lack cancels


def test_a_flat_prior_is_told_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (False, True):
        with pytest.raises(SamplingError):  # before any work
            stanct.temper(FLAT).sample(SEEN, draws=0, progress=progress)
        told = capsys.readouterr().err
        assert told.startswith("Note, ") is progress and told.count("\n") == progress
    assert "`m` has no prior, and its support is unbounded" in told and "(1 more)" in told
    with pytest.raises(SamplingError):
        stanct.temper(PROPER).sample(SEEN, draws=0)
    assert not capsys.readouterr().err


@LONG
def test_commands_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, data = tmp_path / "flat.stan", tmp_path / "data.json"
    program.write_text(FLAT, encoding="utf-8")
    data.write_text(json.dumps(SEEN), encoding="utf-8")
    call = ["evidence", str(program), str(data), "--quiet", "--seed", "1", "--strict"]
    assert main(call) == UNRELIABLE
    said = capsys.readouterr()
    assert "Warning, proper_prior: " in said.err and "flat.stan:3: `m` has no prior" in said.err
    assert "The draws may be used, but not log Z as the evidence" in said.out
    assert main([*call, "--json"]) == UNRELIABLE
    record = json.loads(capsys.readouterr().out)
    assert record["warnings"] == ["proper_prior"]
    assert record["draws_may_be_used"] is True and record["log_z_is_the_evidence"] is False
    (failed,) = record["failed"]
    assert failed["check"] == "proper_prior" and failed["remedy"].startswith("Give `m`, `s`")


def test_there_is_no_log_z_without_a_round_trip_or_an_integral() -> None:
    trips, once = (check("round_trips", n, 5, False, "", "") for n in (0, 1))
    endless = check("improper", 1, 0, False, "", "")
    assert no_log_z([trips]).startswith("log Z is not known")
    assert no_log_z([once]) == ""
    assert no_log_z([trips, endless]).startswith("log Z does not exist")


def stuck() -> Any:
    """A run of chains that never leave the target."""
    run = sampled("joint", target_of(PROPER, SEEN, "proper"), draws=200, seed=1, progress=False)
    return replace(run, beta=np.full_like(run.beta, 0.95))


def test_few_draws_make_no_trip_in_any_case() -> None:
    run = sampled("joint", target_of(PROPER, SEEN, "proper"), draws=30, seed=1, progress=False)
    few = replace(run, beta=np.full_like(run.beta, 0.5))
    (trips,) = [one for one in failures(few.diagnostics) if one.name == "round_trips"]
    assert trips.remedy.startswith("Run longer chains")
    (longer,) = [one for one in failures(stuck().diagnostics) if one.name == "round_trips"]
    assert longer.remedy.startswith("Refit the base")


def test_a_run_without_round_trips_shows_no_number(tmp_path: Path) -> None:
    run = stuck()
    evidence, raw = run.evidence, run.bare_evidence
    assert "round_trips" in run.warnings and np.isfinite(raw.log_z)
    assert np.isnan([evidence.log_z, evidence.std_error, evidence.between_error]).all()
    hidden = f"{raw.log_z:.1f}"
    for words in (repr(run), repr(evidence), evidence._repr_html_(), run._repr_html_()):
        assert "log Z is not known" in words and hidden not in words
    page = run.report()
    assert "log Z is not known" in page and "Estimates of log Z" not in page
    with pytest.raises(StanctError, match="no finite log Z"):
        stanct.compare(run, run_of("proper"), names=["a", "b"])
    run.save(tmp_path / "run")
    assert stanct.load(tmp_path / "run").evidence.unknown == evidence.unknown  # pyright: ignore


def test_an_improper_posterior_has_no_means() -> None:
    run = run_of("flat")
    lost = replace(run, provenance={**run.provenance, "endless": ["m", "s"]})
    assert not lost.verdict.for_draws and not lost.has_posterior
    assert "log Z does not exist" in repr(lost) and lost.expect("m").warnings == ("improper",)
    # What passes only because the error of log Z is anything is left out, and what no run mends.
    passed = {one.name for one in run.diagnostics if one.passed}
    assert passed - {one.name for one in lost.diagnostics} >= {"estimators", "thermodynamic"}
    still = stuck()
    failed = replace(still, provenance={**still.provenance, "endless": ["m", "s"]})
    assert "round_trips" in still.warnings and failed.warnings == ("improper",)
    assert failed.verdict.in_words == "There is no posterior: 1 check of 5 failed."
    page = lost.report()
    for words in ("Effective size of log Z", "ascents from up to", "By chain"):
        assert words in run.report() and words not in page
    assert (
        "The density has no posterior" in page and page.count("Give `m`, `s` a proper prior.") == 3
    )
    assert "Posterior summary" not in page and "Posterior summary" in run.report()
    # Pictures of log Z and of the draws have numbers too.
    for title in ("Running log Z", "Free-energy curve", "Draws of a few parameters"):
        assert title not in page and title in run.report()
    assert f"log Z = {run.bare_evidence.log_z:.1f}" not in page.replace("−", "-")


def test_what_an_improper_posterior_fails_besides_needs_no_remedy() -> None:
    checks = tuple(
        check(name, 2, 1, False, "", f"Mend {name}.")
        for name in ("round_trips", "proper_prior", "improper")
    )
    assert remedies(checks) == ["Mend improper."]
    assert remedies(checks[:2]) == ["Mend proper_prior.", "Mend round_trips."]


def test_an_error_below_all_digits_says_where_was_looked() -> None:
    target = target_of("parameters { real x; } model { x ~ std_normal(); }", None, "normal")
    run: Any = stanct.sample(target, seed=1, progress=False, draws=200)
    starts = run.provenance["survey"]["starts"]
    words = f"log Z = 0.000000 ± below 1e-6 where {starts} ascents and the base looked"
    assert starts > 0 and run.evidence.in_words.replace("-0", "0") == words
    page = run.report()
    assert words.partition("±")[2] in page.replace("\xa0", " ") and "<p>95 % interval" not in page
    table = page.partition("Estimates of log Z")[2].partition("</table>")[0]
    assert "below 1e-6" in table and not re.search(r"e−(0[789]|1\d)<", table)
    settings: Any = {"base": run.base, "seed": 1, "progress": False, "draws": 200}
    given: Any = stanct.sample(target, "independence", **settings)
    assert given.evidence.in_words.endswith("± below 1e-6 where the base lies")
    assert run_of("proper").evidence.within == ""


def test_what_was_not_searched_is_said() -> None:
    run = run_of("proper")
    survey = {**run.provenance["survey"], "starts": 0, "radius": 0.0, "unseen": 0.29}
    blind = replace(run, provenance={**run.provenance, "survey": survey})
    assert blind.facts()["starts of the search"] == 0
    assert blind.facts()["chance that another approximation lies apart"] == 0.29
    assert "No ascent of the density ended at a mode" in blind.report()
    assert searched(blind).endswith("know 1 mode, and how likely another is, is not known.")
    survey |= {"starts": 61, "unseen": 0.02, "unseen_of_any": 0.4}
    many = searched(replace(blind, provenance={**run.provenance, "survey": survey}))
    assert "1 mode with at least a thousandth of the largest mass" in many
    assert "another such mode is 2.0%, and that it ends at a new one, however light, 40.0%." in many
    twice = {name: 2 * [*survey[name]] for name in ("place", "spread")}
    survey |= {"log_evidence": [0.0, -3.0], "owner": [0, 0], **twice}
    wide = replace(blind, provenance={**run.provenance, "survey": survey})
    assert "found 1 mode with" in searched(wide) and wide.facts()["modes found"] == 1
    assert "Wide mass around a mode counts with it." in searched(wide)
    # Bounds are rounded to the side on which they hold.
    survey |= {"starts": 720, "unseen": 0.0, "finest": 7.89}
    bounded = searched(replace(blind, provenance={**run.provenance, "survey": survey}))
    assert "is below 0.14%" in bounded and "up to 7.8 times narrower" in bounded
    given = replace(run, provenance={k: v for k, v in run.provenance.items() if k != "survey"})
    assert given.facts() == {"starts of the search": 0}
    assert "No search looked for modes." in given.report()


def test_a_mode_among_many_small_ones_has_a_share() -> None:
    """With fifty modes, pilots give none of them a fiftieth of the weight."""
    pilots = np.array([0.01, 0.019])
    table = {"weight": np.array([1.0, 0.0]), "std_error": np.zeros(2), "pilot_weight": pilots}
    found = modes_check(table, "Run longer.")
    assert not found.passed and found.value == 0 and "Mode 2 has 0" in found.message
    alone = {"weight": np.ones(1), "std_error": np.zeros(1), "pilot_weight": np.ones(1)}
    told = "Mode 1 has 100% of the weight, and had 0.016% by the search's rough measure"
    most = {**alone, "weight": np.array([0.9999]), "pilot_weight": np.array([0.000159])}
    assert told in modes_check(most, "").message and modes_check(alone, "").passed
    table["weight"] = np.array([0.5, 0.5])
    assert modes_check(table, "").passed and np.isfinite(modes_check(table, "").value)


def test_the_screen_lists_peaks() -> None:
    """Those with a hundredth of the draws; a posterior of large variables is not left blank."""
    like = run_of("proper")
    right = np.arange(like.z.shape[1]) % 4 == 0
    z = np.zeros_like(like.z) + np.where(right, 5.0, -5.0)[:, None]
    one = [1.0] * z.shape[-1]
    survey = {
        **like.provenance["survey"], "place": [[0.0] * len(one)], "spread": [one],
        "log_evidence": [0.0],
        "optima": {
            "place": [[-5.0] * len(one), [5.0] * len(one), [50.0] * len(one)],
            "spread": [one] * 3, "log_mass": [0.0, -1.0, -9.0], "seen": [9, 4, 1], "ends": 3,
        },
    }  # fmt: skip
    facts = {**like.provenance, "survey": survey, "parameters": []}
    values = {"x": z[..., :1].repeat(9, axis=-1)}
    base = GaussianBase(np.zeros(len(one)), np.eye(len(one)))
    run = replace(like, z=z, base=base, variables=values, provenance=facts)
    shown = "\n".join(screen(run))
    lines = shown.partition("Peaks (run.optima)")[2].partition("Posterior")[0].split("\n")
    assert lines[0] == ": the 2 heaviest of 3" and "seen" in lines[1]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert lines[4] == "Short chains move between the peaks of one mode."
    assert "x[1]" in shown and "x[9]" in shown and "more numbers" not in shown
    assert "The draws are at 2 peaks (run.optima). Short chains move" in searched(run)
    table = run.report().partition("<caption>Peaks (run.optima), the 2 heaviest of 3. Short")[2]
    assert re.findall(r'scope="row">([^<]*)<', table.partition("</table>")[0]) == [
        "peak 1", "peak 2"
    ]  # fmt: skip
    # Where each mode has one peak, the modes are shown, the heaviest by the draws first.
    survey |= {"place": [[5.0] * len(one), [-5.0] * len(one)], "spread": [one] * 2}
    survey |= {"log_evidence": [0.0, -0.1]}
    two = replace(run, provenance={**facts, "survey": survey})
    lines = "\n".join(screen(two)).partition("Modes (run.modes)")[2].split("\n")
    assert lines[0] == "" and [line.split()[0] for line in lines[2:4]] == ["2", "1"]
    assert "optima" not in lines[1] and not lines[4]
    assert "Peaks" not in two.report() and "peaks" not in searched(two)


def test_a_method_without_trajectories_reports_no_divergences() -> None:
    names = {one.name for one in run_of("proper").diagnostics}
    assert run_of("proper").method == "independence"
    assert "pareto_k_base" in names and not {"divergences", "max_depth", "rejections"} & names


def test_the_screen_has_no_constants_and_no_comparison_of_what_is_no_evidence() -> None:
    run = run_of("proper")
    free = run.z[..., :1]
    values = {"L": np.concatenate([np.ones_like(free), free], axis=-1), "one": free[..., 0] * 0 + 1}
    facts = {**run.provenance, "parameters": []}
    run = replace(run, variables=values, provenance=facts)
    table = run.summary()
    assert list(table.loc["L[1]", ["mean", "std_error", "sd"]]) == [1, 0, 0]
    shown = "\n".join(screen(run, "folder"))
    assert "L[2]" in shown and "L[1]" not in shown and "2 more numbers" in shown
    assert "stanct compare" in shown and "no evidence" not in shown
    improper = {"kind": "parameter", "improper": True, "parameters": ["L"], "path": "a.stan"}
    improper |= {"line": 2, "sentence": "`L` has no prior.", "value": None, "remedy": ""}
    flat = replace(run, provenance={**facts, "omissions": [improper]})
    shown = "\n".join(screen(flat, "folder"))
    assert "no evidence: the prior is improper" in shown and "stanct compare" not in shown
