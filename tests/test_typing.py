"""Type checks of calls: results have their types, and mistakes are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

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
