"""Files that are written beside their final place."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def write_whole(path: Path, content: bytes, draft: str | None = None) -> None:
    """Write a file beside its place and rename it; it survives a power cut once this returns.

    Of a link, the file that it names is replaced, and what is no regular file is written in place.
    The draft has a name of its own unless one is given. Raises `OSError`, and keeps what was there.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    final = Path(os.path.realpath(path))
    beside = final.with_name(draft or f".new-{secrets.token_hex(8)}")
    try:
        with beside.open("wb") as file:
            file.write(content)
        synchronise(beside)
        if final.exists():
            beside.chmod(stat.S_IMODE(final.stat().st_mode))
        beside.replace(final)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    synchronise(final.parent)


def synchronise(path: Path) -> None:
    """Wait until a file, or of a folder the names in it, would survive a power cut."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
