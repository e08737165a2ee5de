"""Files beside their final place."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from stanct.common.drafts import write_whole
from stanct.common.errors import StanctError
from stanct.pages.page import HtmlPage


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


def test_a_page_on_a_full_disk_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HtmlPage("<p>first</p>").write(tmp_path / "page.html")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StanctError, match=r"page\.html: .*The disk is full: make room on it"):
        HtmlPage("<p>second</p>").write(file)
    assert file.read_text() == "<p>first</p>"
