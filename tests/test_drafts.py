"""Folders beside their final place: what killed processes left goes, and nothing else does."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stanct import drafts
from stanct.drafts import draft_folder, write_whole
from stanct.errors import StanctError
from stanct.pages.page import HtmlPage

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


def full(_number: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.html"
    write_whole(file, b"first")
    file.chmod(0o640)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", full)
        write_whole(file, b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert file.read_bytes() == b"first"
    write_whole(file, b"second")
    assert file.read_bytes() == b"second" and file.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name != "posix", reason="links and pipes")
def test_links_stay_and_pipes_are_written(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "page.html", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(file)
    write_whole(link, b"whole")
    assert link.is_symlink() and file.read_bytes() == b"whole"
    os.mkfifo(pipe)
    read = list[bytes]()
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"whole")
    reader.join(5)
    assert read == [b"whole"] and pipe.is_fifo()


def test_a_folder_that_takes_no_file_may_hold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(b"first")
    made = Path.open

    def refused(path: Path, *given: object, **more: object) -> object:
        if path != file:
            raise PermissionError(errno.EACCES, "Permission denied")
        return made(path, *given, **more)  # pyright: ignore

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refused)
        write_whole(file, b"second")
    assert file.read_bytes() == b"second"


def test_a_page_on_a_full_disk_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HtmlPage("<p>first</p>").write(tmp_path / "page.html")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StanctError, match=r"page\.html: .*The disk is full: make room on it"):
        HtmlPage("<p>second</p>").write(file)
    assert file.read_text() == "<p>first</p>"
