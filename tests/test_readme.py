"""README: its Python block runs, its commands are those of CI, and it stays short."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import LONG, ROOT

import stanct

README = (ROOT / "README.md").read_text(encoding="utf-8")


@LONG
def test_python_block(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of the README's Python runs as written, from the checkout's folder."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert "radon_run" in code
    code = code.replace('"radon_run"', repr(str(tmp_path / "radon_run")))
    code = code.replace('"radon.html"', repr(str(tmp_path / "radon.html")))
    monkeypatch.chdir(ROOT)
    names: dict = {"print": lambda text: None}
    exec(code, names)
    run = names["run"]
    assert abs(run.evidence.log_z + 1081.0216905) < 4 * run.evidence.std_error
    assert run.evidence.std_error <= 0.1
    assert abs(run.expect("mu_alpha").value - 1.4613325) < 4 * run.expect("mu_alpha").std_error
    assert "checks passed." in (tmp_path / "radon.html").read_text(encoding="utf-8")
    again = stanct.load(tmp_path / "radon_run")
    assert np.array_equal(again.z, run.z)


def test_ci_runs_the_readme_s_test_command() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", README, flags=re.S)
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    ("page", "most"), [("README.md", 8000), ("ARCHITECTURE.md", 10_000), ("CHANGELOG.md", 8000)]
)
def test_pages_at_the_root_are_read_at_one_go(page: str, most: int) -> None:
    """Sizes in bytes. What does not fit belongs into docs/, or to the head of a module."""
    assert (ROOT / page).stat().st_size <= most


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            # The pages' code draws their pictures.
            if not link.startswith("http") and not link.endswith((".svg", ".ipynb")):
                # A site's pages find the examples beside them.
                places = (page.parent / link, ROOT / link)
                assert any(place.exists() for place in places), (page.name, link)
