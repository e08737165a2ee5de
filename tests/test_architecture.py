"""ARCHITECTURE.md is the map of the code: it names every module, and imports follow its order."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from conftest import ROOT

PACKAGE = ROOT / "stanct"
ROWS = [
    re.findall(r"`(\w+)`", line.split("|")[1])
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]
FOLDERS = {"stanct", "stan", "runs"}
ROW_OF = {name: number for number, row in enumerate(ROWS) for name in row}


def room(path: Path) -> str:
    """A module's name in the table; samplers share a row, and so do plots."""
    return path.parent.name if path.parent.name in ("samplers", "plots") else path.stem


def imported(path: Path) -> set[str]:
    """Rooms that a module imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "stanct":
                inner = [part for part in parts if part not in FOLDERS][:1]
                names |= set(inner) or {alias.name for alias in node.names}
    return names - {"__version__"}


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.stem.startswith("__")]


def test_every_module_has_its_place() -> None:
    assert {room(path) for path in MODULES} == set(ROW_OF)


def test_imports_point_up_the_table() -> None:
    back = [
        f"{room(path)} imports {name}"
        for path in MODULES
        for name in imported(path)
        if ROW_OF[name] > ROW_OF[room(path)]
    ]
    assert not back


def test_samplers_do_not_import_each_other() -> None:
    for path in (PACKAGE / "samplers").glob("*.py"):
        assert "stanct.samplers" not in path.read_text(encoding="utf-8")
