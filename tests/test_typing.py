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
from conftest import LONG, ROOT
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


def _completions(text: str, root: Path) -> set[str]:
    """What a language server offers at the end of a text."""
    asked = {"textDocument": {"uri": (root / "asked.py").as_uri()}}
    opened = {"languageId": "python", "version": 1, "text": text, **asked["textDocument"]}
    last = {"line": text.count("\n"), "character": len(text.rpartition("\n")[2])}
    folders = {"workspaceFolders": [{"uri": root.as_uri(), "name": "project"}]}
    begins = {"processId": os.getpid(), "capabilities": {"workspace": {}}, **folders}
    calls = [
        ("initialize", begins, 1),
        ("initialized", {}, None),
        ("textDocument/didOpen", {"textDocument": opened}, None),
        ("textDocument/completion", {**asked, "position": last}, 2),
    ]
    command = [sys.executable, "-c", "from basedpyright.langserver import main; main()", "--stdio"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        for method, params, number in calls:
            call = {"jsonrpc": "2.0", "method": method, "params": params}
            body = json.dumps(call if number is None else {**call, "id": number}).encode()
            server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        server.stdin.flush()
        while head := server.stdout.readline():
            size = int(head.split(b":")[1])
            while server.stdout.readline().strip():
                pass
            answer = json.loads(server.stdout.read(size))
            if answer.get("id") == 2 and "result" in answer:
                server.kill()
                return {item["label"] for item in answer["result"]["items"]}
    raise AssertionError("the language server ended")


@LONG
def test_an_editor_completes_a_run(tmp_path: Path) -> None:
    """The run has the type of its method, so that an editor offers what it can do."""
    settings = {"extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    made = "import stanct\nrun = stanct.temper('model.stan').sample({'y': 1.0})\nrun."
    names = _completions(made, tmp_path)
    assert {"evidence", "verdict", "report", "plot_pair", "draws_pd", "summary", "steps"} <= names
