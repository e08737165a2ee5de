"""ARCHITECTURE.md is the map of the code: it names every package, and imports follow its order."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import ROOT
from imports import circles, graph

from stanct.common.names import METHOD_NAMES

# The only imports against the order, all in one module and inside its methods: Matplotlib is loaded
# when a picture or a page is asked for, and the samplers when a run is extended.
EXCEPTIONS = {
    ("stanct.runs.verbs", "stanct.pages.page"),
    ("stanct.runs.verbs", "stanct.pages.opening"),
    ("stanct.runs.verbs", "stanct.api.extending"),
    ("stanct.runs.verbs", "stanct.api.prior"),
    ("stanct.runs.verbs", "stanct.plots"),
    ("stanct.runs.verbs", "stanct.plots.by_arviz"),
    ("stanct.runs.verbs", "stanct.plots.files"),
}


def order() -> list[str]:
    """Rooms and single modules in the order of ARCHITECTURE.md's table, from the ground up."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)/?`", row)]


def room(module: str) -> str:
    """The room in which a module stands: the first part of its name below the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def back_up(found: Mapping[str, set[str]]) -> list[str]:
    """Imports that run against the order of the rooms."""
    place = {name: number for number, name in enumerate(order())}
    return [
        f"{module} imports {imported}"
        for module, others in sorted(found.items())
        for imported in sorted(others)
        if place[room(imported)] > place[room(module)] and (module, imported) not in EXCEPTIONS
    ]


def arrows(found: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """All imports but the exceptions; a package stands for its `__init__` alone."""
    return {
        module: {other for other in others if (module, other) not in EXCEPTIONS}
        for module, others in found.items()
    }


def test_every_room_has_its_place() -> None:
    assert {room(module) for module in graph(ROOT)} == set(order())


def test_the_root_is_empty() -> None:
    assert {path.name for path in (ROOT / "stanct").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_imports_follow_the_order_of_the_rooms() -> None:
    assert back_up(graph(ROOT)) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(arrows(graph(ROOT))) == []


def test_the_exceptions_are_still_needed() -> None:
    found = graph(ROOT)
    assert all(imported in found[module] for module, imported in EXCEPTIONS)


def test_public_samplers_do_not_import_each_other() -> None:
    public = re.compile(r"stanct\.samplers\.[a-z]\w*$")
    for module, others in graph(ROOT).items():
        # The default method chooses among the others.
        if public.match(module) and not module.endswith(".auto"):
            assert not any(public.match(other) for other in others), module


PLANTED = {
    "import": "import stanct.api.model",
    "from": "from stanct.api.model import temper",
    "from the package": "from stanct.api import model",
    "relative": "from ..api.model import temper",
    "in a function": "def late():\n    from stanct.api.model import temper",
    "in a method": "class A:\n    def late(self):\n        import stanct.api.model as there",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stanct.api.model",
    "by name": "import importlib\nthere = importlib.import_module('stanct.api.model')",
    "by __import__": "there = __import__('stanct.api.model')",
}


@pytest.mark.parametrize("sort", PLANTED)
def test_a_planted_import_is_seen(sort: str, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "stanct", tmp_path / "stanct", ignore=shutil.ignore_patterns("*.nb*", "*.pyc")
    )
    victim = tmp_path / "stanct" / "kernels" / "warmup.py"
    victim.write_text(victim.read_text(encoding="utf-8") + f"\n{PLANTED[sort]}\n", encoding="utf-8")
    found = graph(tmp_path)
    assert back_up(found) == ["stanct.kernels.warmup imports stanct.api.model"]
    assert any("stanct.kernels.warmup" in circle for circle in circles(arrows(found)))


def test_a_method_is_loaded_when_it_is_asked_for() -> None:
    """Each costs a part of the second that a small program takes."""
    code = "import sys, stanct.api.sampling as _; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    methods = {f"stanct.samplers.{name}" for name in METHOD_NAMES}
    assert not methods & set(done.stdout.split())


def test_a_command_loads_no_tables_and_no_trees(tmp_path: Path) -> None:
    """pandas and scipy.spatial take a fifth of the time of a small program."""
    program = tmp_path / "line.stan"
    program.write_text("parameters { real x; } model { x ~ normal(0, 1); }", encoding="utf-8")
    code = f"import sys; from stanct.cli.main import main; main(['evidence', {str(program)!r}]); "
    command = [sys.executable, "-c", code + "print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "r_hat" in done.stdout
    assert not {"pandas", "scipy.spatial"} & set(done.stdout.split())
