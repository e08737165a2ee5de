"""What a notebook shows of a result has its numbers, and text is no markup."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from runs import far_run, line_run
from targets import LINE

import stanct
from stanct.estimates.path import Evidence
from stanct.path.gaussian import GaussianBase
from stanct.runs.run import Run
from stanct.runs.tables import Checks
from stanct.runs.tempered import TemperedRun
from stanct.runs.verdicts import Check
from stanct.stan.program import Program


class Text(HTMLParser):
    """The text of a page, and whether its elements are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.open = "", list[str]()
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += f"{data} "


@pytest.fixture(scope="module")
def bad() -> TemperedRun:
    return far_run()


@pytest.fixture(scope="module")
def good() -> TemperedRun:
    return line_run("joint", base=GaussianBase(np.zeros(2), np.eye(2)))


def shown(thing: Run | Checks | Evidence | stanct.Expectation) -> str:
    return " ".join(Text(thing._repr_html_()).words.split())


def test_a_run(good: TemperedRun) -> None:
    words = shown(good)
    places = max(4, 1 - int(np.floor(np.log10(good.evidence.std_error))))
    log_z = f"{good.evidence.log_z:.{places}f} ± {good.evidence.std_error:.{places}f}"
    assert f"log Z = {log_z}" in words
    assert "b[1]" in words and f"{good.summary().loc['b[1]', 'mean']:.4g}" in words
    assert "sum_b" not in words  # a generated quantity
    assert "what to do" not in words


def test_a_run_that_failed(bad: TemperedRun) -> None:
    words = shown(bad)
    for check in bad.diagnostics:
        assert (check.message in words) is not check.passed


def test_checks_are_a_table(bad: TemperedRun) -> None:
    checks = bad.diagnostics
    table = checks.table
    assert list(table.index) == [check.name for check in checks]
    assert list(table.query("not passed").index) == list(bad.warnings)
    assert repr(checks).count("\n") == len(checks) - 1 and "FAIL" in repr(checks)
    assert isinstance(checks, tuple) and "verdict" in shown(checks)


def test_text_is_no_markup() -> None:
    checks = Checks([Check("a", 1.0, 2.0, False, "x < 3 & <b>", "Do <i>.")])
    assert "x < 3 & <b> Do <i>." in shown(checks)


def test_the_parts_of_the_standard_error(good: TemperedRun) -> None:
    evidence = good.evidence
    words = shown(evidence)
    named = {
        "within chains": evidence.within_error,
        "between chains": evidence.between_error,
        "base": evidence.base_error,
    }
    places = max(4, 1 - int(np.floor(np.log10(evidence.std_error))))
    for name, part in named.items():
        assert f"{name} {part:.{places}f}" in words
    told = ", ".join(f"{name} {part:.{places}f}" for name, part in named.items())
    assert repr(evidence).splitlines()[1] == f"  standard error: {told}"
    alone = replace(evidence, between_error=float("nan"))
    assert "between" not in repr(alone) and "nan" not in shown(alone)
    whole = np.hypot(max(evidence.within_error, evidence.between_error), evidence.base_error)
    assert whole == pytest.approx(evidence.std_error)
    assert evidence.base_error == pytest.approx(good.estimator.error(1.0)[1])


def test_an_expectation_shows_its_numbers(good: TemperedRun) -> None:
    found = good.expect("b")
    text = repr(found)
    assert text.startswith("Expectation of shape (2,):") and text.count("\n") == 2
    for value, error in zip(found.value, found.std_error, strict=True):
        assert f"{value:.5g}" in text and f"{error:.2g}" in text
    assert shown(found) == " ".join(text.split())
    one = stanct.Expectation(np.array(0.59541), np.array(0.0151), np.array(1213.2), 1.0)
    assert repr(one) == "0.595 ± 0.015 (effective size 1213)"
    told = "(effective size 1213; its error rests on 1.7 effective tours and is widened for that)"
    assert repr(replace(one, effective_tours=np.array(1.71))) == f"0.595 ± 0.015 {told}"
    assert repr(replace(one, beta=0.5)) == "0.595 ± 0.015 at β = 0.5 (effective size 1213)"
    many = stanct.Expectation(np.arange(1000.0), np.ones(1000), np.ones(1000), 1.0)
    assert len(repr(many)) < 200 and "..." in repr(many)


class TestDraws:
    """Equally weighted draws in the forms of CmdStanPy: those of the posterior in ArviZ."""

    @pytest.mark.parametrize("method", ["joint", "parallel_tempering", "ais"])
    def test_as_a_frame(self, method: str) -> None:
        run = line_run(method)
        frame = run.draws_pd()
        assert list(frame.columns) == ["chain__", "iter__", "draw__", "b[1]", "b[2]", "sum_b"]
        posterior = run.to_arviz(log_likelihood=False)["posterior"]["b"].values
        assert frame[["b[1]", "b[2]"]].to_numpy() == pytest.approx(posterior.reshape(-1, 2))
        assert frame["chain__"].nunique() == run.chains
        assert frame["draw__"].tolist() == list(range(1, len(frame) + 1))
        assert frame["sum_b"].to_numpy() == pytest.approx(frame["b[1]"] + frame["b[2]"])

    def test_as_a_dataset(self, good: TemperedRun) -> None:
        found = good.draws_xr(draws=40, seed=3)
        assert found["b"].dims[:2] == ("chain", "draw") and found["b"].shape == (4, 40, 2)
        assert found["sum_b"].values == pytest.approx(found["b"].values.sum(axis=-1))
        assert np.array_equal(found["b"].values, good.resample(40, seed=3)["b"])

    def test_equal_weights_keep_all_draws(self) -> None:
        run = line_run("parallel_tempering")
        assert len(run.draws_pd()) == run.chains * run.draws

    def test_a_frame_is_a_fit(self, good: TemperedRun) -> None:
        """What draws_pd gives, bridge takes."""
        model = stanct.TemperedModel(Program.from_source(LINE.source, name="line"))
        again = stanct.bridge(model, LINE.data, good.draws_pd(draws=300), search=False, seed=1)
        assert abs(again.evidence.log_z - good.evidence.log_z) < 0.1
