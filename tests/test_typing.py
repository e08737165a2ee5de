"""Type checks of calls: results have their types, and mistakes are reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from runs import line_run

from stanct.samplers.options import Options

pytest.importorskip("basedpyright", reason="needs the extra `test`")
FOLDER = ROOT / "tests" / "typing"


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Errors in each file, as the checker itself gives them; both files cost hardly more than one.

    The folder has its own configuration, since that of the project leaves one file out.
    """
    settings = {
        "include": [str(FOLDER)],
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    project = tmp_path_factory.mktemp("typing") / "pyrightconfig.json"
    project.write_text(json.dumps(settings), encoding="utf-8")
    checker = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(project)]
    done = subprocess.run(
        [*checker, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 2, done.stdout + done.stderr
    of_file: dict[str, list[dict[str, Any]]] = {"passes.py": [], "fails.py": []}
    for problem in found["generalDiagnostics"]:
        if problem["severity"] == "error":
            of_file[Path(problem["file"]).name].append(problem)
    return of_file


def test_results_have_the_types_of_their_methods(errors: dict[str, list[dict[str, Any]]]) -> None:
    assert errors["passes.py"] == []


def test_mistakes_are_seen_where_they_are(errors: dict[str, list[dict[str, Any]]]) -> None:
    lines = (FOLDER / "fails.py").read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    assert len(marked) >= 20
    assert {problem["range"]["start"]["line"] + 1 for problem in errors["fails.py"]} == marked


def test_the_reference_has_every_option() -> None:
    """Each stands in a line of its own, of which Sphinx makes a row."""
    text = Options.__doc__ or ""
    rows = re.findall(r"^    (\w[\w, ]*)$", text.partition("----------")[2], re.MULTILINE)
    assert set(rows) == set(Options.__annotations__) and len(rows) == len(set(rows))


def test_a_prompt_completes_some_thirty_names() -> None:
    names = [name for name in dir(line_run("gibbs")) if not name.startswith("_")]
    assert len(names) < 40
    assert {"evidence", "verdict", "plot_pair", "draws_pd", "summary", "modes"} <= set(names)
    assert not {"bare_evidence", "kept", "stored", "shows"} & set(names)
