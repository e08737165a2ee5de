"""Folders beside their final place: what killed processes left goes, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stanct import drafts
from stanct.drafts import draft_folder

WRITER = """
import sys, time
from pathlib import Path
from stanct.drafts import draft_folder
with draft_folder(Path(sys.argv[1]), "run") as draft:
    (draft / "part").write_text("some")
    print(draft.name, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="locks of folders")
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    others = ["run", ".run", ".run-abcd1234", ".run-abcd1234.drafts", ".ran-abcd1234.draft"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".run-abcd1234.draft").write_text("a file")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    left = tmp_path / writer.stdout.readline().strip()
    with writer, writer.stdout:
        with draft_folder(tmp_path, "run") as draft:  # the other one is still writing
            assert (left / "part").exists() and draft != left
        assert (left / "part").exists() and not draft.exists()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert left.exists()
    with draft_folder(tmp_path, "run") as draft:
        draft.rename(tmp_path / "done")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*others, ".run-abcd1234.draft", "done"}


def test_without_locks_age_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "fcntl", None)
    young, old = (tmp_path / f".run-{k}bcd1234.draft" for k in "ab")
    young.mkdir()
    old.mkdir()
    then = time.time() - 1e6
    os.utime(old, (then, then))
    with draft_folder(tmp_path, "run") as draft:
        assert draft.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [young.name]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), draft_folder(tmp_path, "run"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
