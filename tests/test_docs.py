"""The documentation: all of its code runs, and Sphinx builds it without a warning."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from browser import Browser, faults_of
from conftest import LONG, ROOT

import stanct
from stanct.samplers import METHODS

pytestmark = LONG

spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
assert spec is not None and spec.loader is not None
build: ModuleType = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages with their outputs."""
    folder = tmp_path_factory.mktemp("docs") / "source"
    build.make_source(folder)
    return folder


@pytest.fixture(scope="module")
def site(source: Path) -> Path:
    """All pages as Sphinx makes them; a warning is an error."""
    pytest.importorskip("furo", reason="no Sphinx here: pip install -e '.[docs]'")
    out = source.parent / "html"
    assert build.make_pages(source, out) == 0
    return out


def outputs(page: Path) -> str:
    return "\n".join(re.findall(r"^```text\n(.*?)^```", page.read_text("utf-8"), re.S | re.M))


def test_the_tutorial_tells_the_truth(source: Path) -> None:
    shown = outputs(source / "tutorial.md")
    found = re.search(r"log Z = (-[\d.]+) ± ([\d.]+)", shown)
    assert found is not None
    assert abs(float(found[1]) + 1081.0216905) < 4 * float(found[2]) < 0.5
    assert "FAIL" not in shown and "mu_alpha" in shown
    assert (source / "radon.html").stat().st_size < 3e6


def test_the_first_page_shows_what_it_says(source: Path) -> None:
    shown = outputs(source / "index.md")
    log_z, error = re.findall(r"log Z = (-?[\d.]+) ± ([\d.]+)", shown)[0]
    assert abs(float(log_z)) < 4 * float(error) < 0.5
    share, error = re.findall(r"^([\d.]+) ± ([\d.]+)", shown, re.M)[0]
    assert abs(float(share) - 0.6) < 4 * float(error) < 0.3
    assert shown.rstrip().endswith("True")
    assert (source / "first.svg").stat().st_size > 5000


def test_a_method_of_ones_own_is_right(source: Path) -> None:
    shown = outputs(source / "own_method.md")
    found = re.search(r"log Z = (-?[\d.]+) ± ([\d.]+)\n", shown)
    assert found is not None and abs(float(found[1])) < 4 * float(found[2]) < 1
    assert shown.startswith("elliptical run of") and "arnings" not in shown
    assert "Did you mean moves=1?" in shown
    assert (source / "elliptical.svg").stat().st_size > 5000


def test_the_failing_run_fails_and_the_next_one_does_not(source: Path) -> None:
    first, second, third, wide, unseen, *bridged_and_modes = re.findall(
        r"^```text\n(.*?)^```", (source / "chains_disagree.md").read_text("utf-8"), re.S | re.M
    )
    assert "Warnings: round_trips" in first and "1. Refit the base in more rounds" in second
    assert "arnings" not in third and third.endswith("True\n") and "arnings" not in wide
    assert "log Z = -0." in unseen and "arnings" not in unseen
    assert "where the fit has no draws" in bridged_and_modes[0] and len(bridged_and_modes) > 1


def test_the_comparison_is_decided_as_by_quadrature(source: Path) -> None:
    shown = outputs(source / "which_model.md")
    assert "pooled" in shown and "not to be relied" not in shown.lower()


def test_every_method_has_its_page(source: Path) -> None:
    warned = []
    for method, kind in METHODS.items():
        page = source / "methods" / f"{method}.md"
        assert f'`stanct.{kind.__name__}()`, or `method="{method}"`' in page.read_text("utf-8")
        made = "independence" if method == "auto" else method  # what pilots choose there
        assert f"{made} run of" in outputs(page)
        warned += [method] if "warnings" in outputs(page) else []
        assert (source / "methods" / f"{method}.svg").stat().st_size > 5000
    assert len(warned) <= 1, "good runs fail a check now and then, and not several of them"


def test_the_notebook_was_executed(source: Path) -> None:
    """Each cell has its output, and results that show themselves have HTML."""
    text = (source / "notebook.ipynb").read_text("utf-8")
    assert "{download}" not in text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    outputs = [cell["outputs"][0]["data"] for cell in cells]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    in_html = [shown["text/html"] for shown in outputs if "text/html" in shown]
    assert len(outputs) - len(in_html) == 1  # a single check is a line of text
    frames = [shown for shown in in_html if shown.startswith("<iframe")]
    titles = [re.search(r"&lt;h1&gt;(\w+)", shown) for shown in frames]
    assert [title and title[1] for title in titles] == [
        "Comparison",
        "Many",
        "Calibration",
        "bimodal",
    ]


def test_pages_offer_their_programs_and_data(source: Path, site: Path) -> None:
    shown = (source / "tutorial.md").read_text("utf-8")
    assert shown.index("{download}`examples/radon/radon.data.json`") < shown.index("import stanct")
    with zipfile.ZipFile(source / build.ARCHIVE) as archive:
        assert (
            archive.read("examples/radon/radon.stan")
            == (ROOT / "examples/radon/radon.stan").read_bytes()
        )
    page = (site / "methods" / "auto.html").read_text("utf-8")
    links = re.findall(r'href="(\S+(?:bimodal\.stan|\.zip))"', page)
    assert len(links) == 2 and all((site / "methods" / link).is_file() for link in links)


def test_a_page_whose_code_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        build.with_outputs("```python\n1 / 0\n```\n")
    with pytest.raises(RuntimeError, match="command of a page failed"):
        build.with_outputs("```sh\nstanct report no-such-run\n```\n")
    with build.workplace(tmp_path), pytest.raises(RuntimeError, match="must be its name"):
        build.with_outputs("```stan\nmodel {}\n```\n")
    module = "```python\n# own_module.py\nanswer = 42\n```\n"
    with build.workplace(tmp_path):
        shown = build.with_outputs(
            f"{module}```python\nimport own_module\nown_module.answer\n```\n"
        )
    assert shown.endswith("```text\n42\n```\n") and str(tmp_path) not in sys.path
    assert build.with_outputs("```python\nx = 2\nprint('a')\nx\n```\n").endswith(
        "```\n\n```text\na\n2\n```\n"
    )


def test_the_site_in_a_browser(site: Path, browser: Browser) -> None:
    for page in (
        "index",
        "tutorial",
        "chains_disagree",
        "which_model",
        "methods/joint",
        "notebook",
    ):
        file = site / f"{page}.html"
        assert faults_of(browser, file.read_text("utf-8"), file) == [], page
    assert "<math" in (site / "methods" / "joint.html").read_text("utf-8")


def test_nothing_on_the_site_comes_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        for kind, address in re.findall(
            r"<(script|link|img|iframe)[^>]* (?:src|href)=\"(https?://[^\"]*)",
            page.read_text("utf-8"),
        ):
            assert kind == "link" and "canonical" in address, (page, address)


def test_the_reference_names_all_that_is_public(site: Path) -> None:
    text = "".join(page.read_text("utf-8") for page in (site / "reference").glob("*.html"))
    missing = [name for name in stanct.__all__ if f'id="stanct.{name}"' not in text]
    assert not missing
