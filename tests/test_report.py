"""The report page: what it says of good and of failing runs, and that nothing in it is code."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SEED
from runs import KINDS, far_run, large_run, line_run, unknown_run
from targets import LINE

import stanct
from stanct.cli import main
from stanct.errors import StanctError
from stanct.page import HtmlPage, number, with_error
from stanct.report import command_line, python_lines, remedies, verdict
from stanct.runs.diagnostics import Check, failures
from stanct.runs.tempered_run import TemperedRun

EVIL = "<script>alert(1)</script> \"'& {{ 7 * 7 }} {% x %} $\\mu$ 漢字 σ"


class Reader(HTMLParser):
    """Collects what a browser would make of a page: its elements, ids, texts and alt texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every element of that name."""
        return [attributes for name, attributes in self.tags if name == tag]


def first_remedy(page: str) -> str:
    found = re.search(r'id="first-remedy">([^<]*)<', page)
    return html.unescape(found[1]) if found else ""


@pytest.fixture(scope="module")
def run() -> TemperedRun:
    return line_run("joint")


@pytest.fixture(scope="module")
def page(run: TemperedRun) -> HtmlPage:
    return run.report()


def test_a_good_run_s_page(run: TemperedRun, page: HtmlPage, tmp_path: Path) -> None:
    reader = Reader(page)
    assert f"Reliable: all {len(run.diagnostics)} checks passed." in reader.text
    assert f"log Z = {with_error(run.evidence.log_z, run.evidence.std_error)}" in reader.text
    assert "first-remedy" not in page and "Do not use" not in reader.text
    assert "Rao–Blackwell, tempered chains alone" in reader.text
    for check in run.diagnostics:
        assert check.message in reader.text
    summary = run.summary()
    for name, mean in zip(summary.index, summary["mean"].to_numpy(float), strict=True):
        assert str(name) in reader.text and number(mean) in reader.text
    assert str(run.provenance["data_sha256"]) in reader.text
    assert f"{run.gradients:,}".replace(",", " ") in reader.text
    assert run.report(tmp_path / "new" / "line.html") == page  # the same text every time
    assert (tmp_path / "new" / "line.html").read_text(encoding="utf-8") == page
    assert "HtmlPage of" in repr(page) and "srcdoc=" in page._repr_html_()


def test_the_page_needs_nothing_from_outside(page: HtmlPage) -> None:
    reader = Reader(page)
    for tag, attributes in reader.tags:
        for name in ("src", "href", "xlink:href"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:")), (tag, address)
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', page))
    assert used <= set(ids)


def test_every_picture_has_words_with_numbers(page: HtmlPage) -> None:
    pictures = [svg for svg in Reader(page).all("svg") if svg.get("role") == "img"]
    assert len(pictures) == 8 == len(Reader(page).all("figcaption"))
    for svg in pictures:
        assert re.search(r"\d", svg["aria-label"] or "")


def test_pictures_follow_the_page_s_colours(page: HtmlPage) -> None:
    assert "var(--ink)" in page and "#1b1f28" not in page and "#566073" not in page


def test_hostile_text_comes_out_as_text(run: TemperedRun) -> None:
    evil = dataclasses.replace(
        run,
        variables={EVIL: run.variables["b"], "b": run.variables["b"]},
        programs={"density": f"// {EVIL}\nreal x;", EVIL: "real y;"},
        provenance={
            **run.provenance,
            "program": f"models/{EVIL}.stan",
            "data_origin": f"{EVIL}.json",
            "parameters": [EVIL, "b"],
        },
    )
    page = evil.report()
    reader = Reader(page)
    assert [s for s in reader.all("script") if s] == [] and len(reader.all("script")) == 1
    assert "alert(1)" not in page.replace("&lt;script&gt;alert(1)&lt;/script&gt;", "")
    for wanted in (f"{EVIL}[1]", f"// {EVIL}", f"{EVIL}.json", f"The {EVIL} program"):
        assert wanted in reader.text, wanted
    assert 49 not in [float(n) for n in re.findall(r"\b49\b", reader.text.split("Settings")[1])]


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_a_failing_run_s_first_remedy_makes_the_next_page_reliable(seed: int) -> None:
    bad = far_run(seed=seed)
    assert bad.draws == 200
    assert abs(bad.evidence.log_z - LINE.log_z) > 5  # the number is nonsense indeed
    page = bad.report()
    reader = Reader(page)
    assert "Not to be trusted" in reader.text and "Do not use this number" in reader.text
    advice = first_remedy(page)
    settings = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", advice)}
    assert settings, advice
    good = far_run(seed=seed, **settings)
    assert abs(good.evidence.log_z - LINE.log_z) < 4 * good.evidence.std_error < 0.1
    assert "Reliable" in good.report() and not first_remedy(good.report())


@pytest.mark.parametrize("method", KINDS[1:])
def test_pages_of_other_kinds(method: str) -> None:
    reader = Reader(line_run(method).report())
    wanted = {
        "parallel_tempering": ("Rejected swaps", "Stepping stones, up and down", "Barrier Λ"),
        "ais": ("Weights at β = 1", "Schedule of β", "Running log Z"),
    }
    for words in wanted[method]:
        assert words in reader.text
    assert "β along the chains" not in reader.text


def test_a_run_of_an_unknown_kind_without_evidence(run: TemperedRun) -> None:
    reader = Reader(unknown_run(run).report())
    assert "This method estimates no evidence" in reader.text and "log Z" not in reader.text
    assert "b[1]" in reader.text and "Provenance" in reader.text


def test_size_and_time(run: TemperedRun) -> None:
    big = large_run(run)
    started = time.process_time()
    page = big.report()
    assert time.process_time() - started < 10
    assert len(page.encode()) < 3e6
    assert "y[92]" in Reader(page).text


def check(name: str, passed: bool, remedy: str = "Act.") -> Check:
    return Check(name, 1.0, 2.0, passed, "Seen.", remedy)


def test_causes_come_before_symptoms() -> None:
    checks = tuple(
        check(name, name == "base", f"Mend {name}.")
        for name in ("effective_size", "new_one", "base", "pareto_k", "round_trips", "support")
    )
    names = [c.name for c in failures(checks)]
    assert names == ["support", "round_trips", "pareto_k", "effective_size", "new_one"]
    assert remedies(checks)[0] == "Mend support."
    assert verdict(checks) == "Not to be trusted: 5 checks of 6 failed."
    assert verdict(checks[2:3]) == "Reliable: all 1 checks passed."
    same = (check("a", False, "Same."), check("b", False, "Same."))
    assert remedies(same) == ["Same."]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (-1081.0327, 0.0433, "−1081.033 ± 0.043"),
        (3.5, 12.34, "4 ± 12"),
        (1.0, float("inf"), "1 ± ∞"),
        (2.5, 0.0, "2.50000 ± 0"),
    ],
)
def test_numbers_with_errors(value: float, error: float, text: str) -> None:
    assert with_error(value, error) == text


def test_numbers() -> None:
    shown = [number(v) for v in (137.0, -0.012345, 1e-9, 12345.678, float("nan"), -np.inf)]
    assert shown == ["137", "−0.01235", "1.000e−09", "12346", "–", "−∞"]


def test_reproduction_lines(run: TemperedRun) -> None:
    assert command_line(run) is None  # its data were in memory
    record = {**run.provenance, "program": "my model.stan", "data_origin": "it's.json"}
    stored = dataclasses.replace(run, provenance=record)
    command = command_line(stored)
    assert command is not None
    assert command.startswith("stanct evidence 'my model.stan' 'it'\"'\"'s.json' --method joint")
    assert f"--seed {run.provenance['settings']['seed']}" in command
    python = python_lines(stored)
    assert python is not None
    compile(python, "lines", "exec")
    assert '    "it\'s.json",\n' in python
    assert "base=base," in (python_lines(far_run()) or "")


def test_the_python_lines_repeat_the_run(tmp_path: Path) -> None:
    (tmp_path / "line.stan").write_text(LINE.source)
    data = {k: np.asarray(v).tolist() for k, v in (LINE.data or {}).items()}
    (tmp_path / "line.json").write_text(json.dumps(data))
    model = stanct.temper(tmp_path / "line.stan")
    first = model.sample(tmp_path / "line.json", draws=50, warmup=150, progress=False)
    space: dict[str, Any] = {}
    exec(python_lines(first) or "", space)
    assert np.array_equal(space["run"].z, first.z)


def test_report_command(run: TemperedRun, tmp_path: Path, capsys: Any) -> None:
    run.save(tmp_path / "line")
    assert main(["report", str(tmp_path / "line")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'line'}.html\n"
    assert "Reliable" in (tmp_path / "line.html").read_text(encoding="utf-8")
    assert main(["report", str(tmp_path / "line"), "--out", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").exists()
    assert main(["report", str(tmp_path)]) == 1
    assert "not a saved run" in capsys.readouterr().err


def test_a_page_cannot_be_written(page: HtmlPage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path, "is a folder"), (tmp_path / "file" / "x.html", "not a folder")):
        with pytest.raises(StanctError, match=words):
            page.write(place)
