"""Saved runs: nothing in a folder is trusted, and no instant of saving loses a run."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import KINDS, line_run

import stanct
from stanct import load
from stanct.common.errors import SavedRunError, StanctError
from stanct.runs.run import Run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "line"
    line_run("gibbs").save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "line"))


@pytest.mark.parametrize("method", KINDS)
def test_every_kind_comes_back(method: str, tmp_path: Path) -> None:
    run = line_run(method)
    run.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert type(again) is type(run)
    for name in run.arrays:
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))
    assert [check.name for check in again.diagnostics] == [check.name for check in run.diagnostics]


# Names in run.json


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "", "a.b", "x" * 99, 3])
def test_names_cannot_leave_the_folder(folder: Path, name: object) -> None:
    (folder.parent / "secret.stan").write_text("parameters { real secret; }")
    _change(folder, lambda head: head["programs"].append(name))
    with pytest.raises(SavedRunError, match="cannot be the name of a run's program"):
        load(folder)


def test_a_run_writes_no_program_beside_its_folder(folder: Path, tmp_path: Path) -> None:
    run = load(folder)
    object.__setattr__(run, "programs", {"../victim": "text"})
    (tmp_path / "victim.stan").write_text("precious")
    with pytest.raises(SavedRunError, match="cannot be the name"):
        run.save(tmp_path / "other")
    assert (tmp_path / "victim.stan").read_text() == "precious"


@pytest.mark.parametrize("name", ["density.stan", "data.json", "draws.npz"])
def test_links_out_of_the_folder_are_not_followed(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    with pytest.raises(SavedRunError, match="is missing, or is no file"):
        load(folder)


# Texts


def _change(folder: Path, change: Callable[[dict], object]) -> None:
    head = json.loads((folder / "run.json").read_text())
    change(head)
    (folder / "run.json").write_text(json.dumps(head))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1]", '{"N": ' + "9" * 5000 + "}", "\xff", '{"N": 1']
)
def test_damaged_texts(folder: Path, text: str) -> None:
    (folder / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(SavedRunError, match="not a saved run"):
        load(folder)


# Archives


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "draws.npz") as found:
        return dict(found)


def test_objects_are_not_unpickled(folder: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, ("touch trapped",)

    arrays = _arrays(folder) | {"z": np.array([Trap()], dtype=object)}
    np.savez(folder / "draws.npz", **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SavedRunError, match="damaged run: Object arrays"):
        load(folder)


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 0.999])
def test_cut_archives(folder: Path, where: float) -> None:
    whole = (folder / "draws.npz").read_bytes()
    (folder / "draws.npz").write_bytes(whole[: int(where * len(whole))])
    with pytest.raises(SavedRunError, match="damaged"):
        load(folder)


def test_a_flipped_bit_of_the_draws(folder: Path) -> None:
    content = bytearray((folder / "draws.npz").read_bytes())
    content[len(content) // 2] ^= 16
    (folder / "draws.npz").write_bytes(content)
    with pytest.raises(SavedRunError, match="damaged"):
        load(folder)


# Saving over a run

KILLED = """
import os, sys, numpy as np, stanct
from pathlib import Path
import stanct.runs.storage as storage
folder = sys.argv[1]

def before(function):
    def called(*args, **settings):
        if left[0] == 0:
            os._exit(137)
        left[0] -= 1
        return function(*args, **settings)
    return called

storage.synchronise = before(storage.synchronise)
storage.shutil.rmtree = before(storage.shutil.rmtree)
Path.rename = before(Path.rename)
Path.write_text = before(Path.write_text)
np.savez = before(np.savez)

for step in range(40):
    left = [40]
    child = os.fork()  # so that the package is imported once
    if child == 0:
        run = stanct.load(folder)
        object.__setattr__(run, "engine", "the new one")
        left = [step]
        run.save(folder)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, stanct.load(folder).engine, flush=True)
    if status == 0:
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    "cause",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("1000 requested and 96 written")],
)
def test_a_full_disk_is_named(
    cause: OSError, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's own error has no number."""
    run = load(folder)

    def full(*_given: Any, **_more: Any) -> None:
        raise cause

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(SavedRunError, match="The disk is full: make room on it, or choose another"):
        run.save(folder)
    cause.errno = errno.EACCES
    with pytest.raises(SavedRunError, match="Save it in a folder that you can write"):
        run.save(tmp_path / "other")
    monkeypatch.undo()
    assert np.array_equal(load(folder).draws, run.draws)


def test_a_kill_at_any_step_of_saving_leaves_a_whole_run(folder: Path) -> None:
    """The old one or the new one, also to the next save."""
    old = load(folder).engine
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    seen = [engine for _, engine in lines]
    assert [status for status, _ in lines] == ["137"] * (len(lines) - 1) + ["0"], done.stderr
    assert seen[0] == old and seen[-1] == "the new one" and len(seen) > 10
    assert seen == sorted(seen, key=lambda engine: engine != old)
    load(folder).save(folder)
    assert isinstance(load(folder), Run)
    # Neither what killed processes had begun is left, nor what they had put aside.
    assert [path.name for path in folder.parent.iterdir()] == ["line"]


@pytest.mark.parametrize("path", ["a" * 300, "a\0b", b"x", 3, None])
def test_what_no_file_can_be_called(folder: Path, path: Any, tmp_path: Path) -> None:
    run = load(folder)
    uses: list[Callable[[Any], object]] = [run.save, load, type(run).load]
    if path is not None:
        uses.append(run.report)
    for use in uses:
        with pytest.raises(StanctError, match=r"cannot be a path: |is the path of a folder, not"):
            use(path)
    model = stanct.temper("parameters { real x; } model { x ~ std_normal(); }")
    for name in ("store", "checkpoint") if path is not None else ():
        option: dict[str, Any] = {name: path}
        with pytest.raises(StanctError, match=f"{name} must be the path of a folder, or None"):
            model.sample(None, "gibbs", **option)


def test_what_is_saved_is_synchronised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = load(folder), list[str]()
    original = os.fsync

    def fsync(handle: int) -> None:
        seen.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        original(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    run.save(folder)
    names = {Path(path).name for path in seen}
    assert {"run.json", "draws.npz", "data.json", "density.stan", folder.parent.name} <= names


def test_what_stands_beside_a_run_stays(tmp_path: Path) -> None:
    run = line_run("gibbs")
    folder = tmp_path / "run"
    run.save(folder)
    before = sorted(path.name for path in folder.iterdir())
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / "pictures" / "first").mkdir(parents=True)
    (folder / "pictures" / "first" / "a.png").write_bytes(b"png")
    (folder / "latest").symlink_to("notes.txt")
    for _ in range(2):
        run.save(folder)
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert (folder / "pictures" / "first" / "a.png").read_bytes() == b"png"
    assert (folder / "latest").readlink() == Path("notes.txt")
    # Files of another run before it do not stay.
    (folder / "joint.stan").write_text("model { }", encoding="utf-8")
    head = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    head["programs"].append("joint")
    (folder / "run.json").write_text(json.dumps(head), encoding="utf-8")
    run.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*before, "notes.txt", "pictures", "latest"]
    )
    again: Any = load(folder)
    assert again.evidence == run.evidence


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_link_to_a_run_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = line_run("gibbs")
    (tmp_path / "link").symlink_to("run")
    run.save(tmp_path / "link")  # dangling until then
    run.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "run" / "run.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "run"]
    monkeypatch.chdir(tmp_path / "run")
    with pytest.raises(SavedRunError, match=r"current folder.*inside it"):
        run.save(".")
