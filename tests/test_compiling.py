"""The disk cache of compiled loops: it follows every source file, is reused, and is optional."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONG, ROOT

from stanct import kernels
from stanct.common import compiling
from stanct.samplers import METHODS

ROOM = ROOT / "stanct" / "kernels"
LOOPS = [ROOT / "stanct" / "path" / "meshes.py", *sorted(ROOM.glob("*.py"))]

# Loops in one file, into which a record and a constant of other files are compiled.
PROBE = """
from stanct.common.compiling import borrowed, compiled, shared
from stanct.kernels.hmc import DIVERGENCE, StepTable

@shared()
def start(table: StepTable) -> float:
    return table.log_step[0]

@compiled
def first(table: StepTable) -> float:
    return start(borrowed(table))

@compiled
def limit(table: StepTable) -> float:
    return DIVERGENCE
"""
CALL = """
import numpy as np
from stanct.common import compiling
from stanct.kernels import hmc, probe
table = hmc.StepTable(log_step=np.full(2, 3.0), visits=np.full(2, 7.0))
print(probe.first(table), probe.limit(table), sum(probe.first.stats.cache_hits.values()))
print(compiling.FOLDER)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package with a probe in the room, outside this one's cache."""
    shutil.copytree(ROOT / "stanct", tmp_path / "stanct", ignore=shutil.ignore_patterns("__pyc*"))
    (tmp_path / "stanct" / "kernels" / "probe.py").write_text(PROBE, encoding="utf-8")
    # The room alone is imported, in less time than the whole package.
    (tmp_path / "stanct" / "__init__.py").write_text("", encoding="utf-8")
    return tmp_path


def called(copy: Path, **environment: str) -> tuple[list[float], str]:
    """What the probe returns in a process of its own, with hits of the cache, and the folder."""
    known = {"NUMBA_CACHE_DIR": str(copy / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        capture_output=True,
        text=True,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), **known, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    numbers, folder = done.stdout.splitlines()
    return [float(number) for number in numbers.split()], folder


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@LONG
def test_machine_code_follows_every_source(copy: Path) -> None:
    """Records and constants of other files, for which numba's own cache has no eyes."""
    assert called(copy)[0] == [3.0, 1000.0, 0]
    assert called(copy)[0] == [3.0, 1000.0, 1]
    source = copy / "stanct" / "kernels" / "hmc.py"
    replaced(
        source, "    log_step: Array\n    visits: Array", "    visits: Array\n    log_step: Array"
    )
    assert called(copy)[0] == [3.0, 1000.0, 0]
    replaced(source, "DIVERGENCE = 1000.0", "DIVERGENCE = 500.0")
    assert called(copy)[0] == [3.0, 500.0, 0]
    assert called(copy)[0] == [3.0, 500.0, 1]
    replaced(copy / "stanct" / "path" / "meshes.py", "LOW = 12.0", "LOW = 11.0")
    assert called(copy)[0] == [3.0, 500.0, 0]


def test_without_a_writable_folder_all_is_compiled_in_memory(copy: Path) -> None:
    """Neither the home nor the package need be writable; nothing is said or left behind."""
    before = sorted(copy.rglob("*"))
    file = copy / "stanct" / "py.typed"
    for place in (
        {"NUMBA_CACHE_DIR": str(file / "below")},
        {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(file / "below"), "HOME": str(file)},
    ):
        assert called(copy, **place) == ([3.0, 1000.0, 0], "None")
    assert sorted(copy.rglob("*")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="names the cache's place on Linux")
def test_the_cache_lies_in_the_users_own_folder(copy: Path) -> None:
    place = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(copy / "home")}
    _, folder = called(copy, **place)
    assert Path(folder).parent == copy / "home" / "stanct" / "kernels"
    assert any(Path(folder).iterdir())


def test_machine_code_that_is_long_unused_is_deleted(copy: Path) -> None:
    _, folder = called(copy)
    old, young = (Path(folder).with_name(name * 32) for name in "ab")
    for other, age in ((old, 40), (young, 20)):
        other.mkdir()
        (other / "some.nbc").touch()
        then = Path(folder).stat().st_mtime - age * 86_400
        os.utime(other, (then, then))
    assert called(copy)[0][2] == 1
    assert {path.name for path in Path(folder).parent.iterdir()} == {Path(folder).name, young.name}


def test_machine_code_that_was_damaged_is_compiled_anew(copy: Path) -> None:
    _, folder = called(copy)
    for path in Path(folder).glob("*.nb*"):
        path.write_bytes(path.read_bytes()[:10])
    assert called(copy)[0] == [3.0, 1000.0, 0]


@pytest.mark.parametrize(
    "lost",
    [*(pytest.param(name, marks=LONG) for name in ("*.start-*.nbc", "*.start-*.nbi")), "*.start-*"],
)
def test_a_loop_whose_shared_function_is_lost_is_compiled_anew(copy: Path, lost: str) -> None:
    """Its machine code calls the function by a name. A name that nothing has ends a process."""
    _, folder = called(copy)
    assert called(copy)[0] == [3.0, 1000.0, 1]
    for path in Path(folder).glob(lost):
        path.unlink()
    assert called(copy)[0] in ([3.0, 1000.0, 0], [3.0, 1000.0, 1])
    assert called(copy)[0] == [3.0, 1000.0, 1]


def test_machine_code_that_calls_what_is_not_there_is_not_loaded(copy: Path) -> None:
    source = copy / "stanct" / "common" / "compiling.py"
    replaced(source, "if all([loop.load_all()", "if True or all([loop.load_all()")
    for _ in range(2):
        assert called(copy)[0] == [3.0, 1000.0, 0]


def foreign_names(path: Path) -> set[str]:
    """Names that a file of the room imports from other rooms."""
    return {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stanct")
        for alias in node.names
        if not (node.module or "").startswith(("stanct.kernels", "stanct.common.compiling"))
    }


@pytest.mark.parametrize("path", LOOPS, ids=lambda path: path.stem)
def test_nothing_of_another_room_is_compiled_in(path: Path) -> None:
    """The key of the cache covers these files alone. Annotations are not compiled."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            used = {
                name.id
                for statement in node.body
                for name in ast.walk(statement)
                if isinstance(name, ast.Name)
            }
            assert not used & foreign_names(path), node.name


@pytest.mark.parametrize("path", LOOPS, ids=lambda path: path.stem)
def test_functions_take_six_arguments_at_most(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            assert len(node.args.posonlyargs + node.args.args) <= 6, node.name


@LONG
def test_machine_code_that_others_could_have_written_is_not_loaded(copy: Path) -> None:
    _, folder = called(copy)
    assert called(copy)[0][2] == 1 and Path(folder).stat().st_mode & 0o077 == 0
    Path(folder).chmod(0o777)
    assert called(copy) == ([3.0, 1000.0, 0], "None")


AHEAD = """
import stanct
from stanct.common import compiling
from stanct.kernels import ahead
from stanct.samplers import METHODS
model = stanct.temper("parameters { real x; } model { x ~ normal(0, 1); }")
base, found = stanct.GaussianBase([0.0], [[1.5]]), {}
for name in ("joint", "gibbs", "parallel_tempering", "ais", "adiabatic", "tact"):
    model.sample(method=name, base=base, chains=2, draws=64, seed=1, progress=False)
    for loop in METHODS[name].loops:
        found[loop] = sum(ahead._LOOPS[loop].stats.cache_misses.values())
print(sorted(found.items()))
print(sorted(set(compiling._AWAITED) & set(ahead._LOOPS)))
"""


@LONG
@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="needs a second core")
def test_loops_of_methods_are_compiled_ahead_once(tmp_path: Path) -> None:
    """The first process takes the machine code of its helpers; the next one has no helpers."""
    (tmp_path / "cache").mkdir()
    lines = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-Wignore", "-c", AHEAD],
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines += done.stdout.splitlines()
    loops = sorted({loop for method in METHODS.values() for loop in method.loops})
    none = str([(loop, 0) for loop in loops])
    assert lines == [none, str(loops), none, "[]"]
    for loop in loops:
        assert len(list((tmp_path / "cache").rglob(f"*.{loop}-*.nbc"))) == 1, loop


def test_a_part_takes_nothing_from_its_first_caller() -> None:
    """numba would hand `fastmath` and `forceinline` down, and bits would follow the first call."""
    part, summed, inlined = (
        kind(lambda x: x).targetoptions
        for kind in (compiling.part, compiling.summed, compiling.inlined)
    )
    told = [
        (options["fastmath"], options["forceinline"])
        for options in (part, summed, inlined, kernels.evaluate.targetoptions)
    ]
    assert told == [(False, False), ({"reassoc", "contract"}, False), (False, True), (False, False)]
