"""Files and folders that are written beside their final place, and what kills left of them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

# Where nothing tells whether a folder is still being written, it is left alone for so many seconds.
_ABANDONED = 24 * 3600.0
_TRIES = 20


def write_whole(path: Path, content: bytes, draft: str | None = None) -> None:
    """Write a file beside its place and rename it; it survives a power cut once this returns.

    Of a link, the file that it names is replaced. What is no regular file, such as a pipe, is
    written in place, and so is a file in a folder that takes no new ones.

    Parameters
    ----------
    draft
        Name of the file that is renamed; by default one that no other process takes.

    Raises
    ------
    OSError
        The file cannot be written. What was there before then stays.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    final = Path(os.path.realpath(path))
    beside = final.with_name(draft or f".new-{secrets.token_hex(8)}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if final.exists():
            beside.chmod(stat.S_IMODE(final.stat().st_mode))
        beside.replace(final)
    except PermissionError:
        beside.unlink(missing_ok=True)
        final.write_bytes(content)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def draft_folder(parent: Path, name: str) -> Iterator[Path]:
    """Make a folder that its writer renames when it is finished; otherwise it is removed.

    A process that is killed leaves its folder. The next one for the same name removes it: a lock,
    which ends with its process, tells that nobody writes there any more.

    Parameters
    ----------
    parent
        Where the folder is made, on the file system of its final place.
    name
        Name of that place. The folder's name is ``.NAME-xxxxxxxx.draft``.

    Raises
    ------
    OSError
        The folder cannot be made.
    """
    for path in _left(parent, name):
        _remove_if_abandoned(path)
    path, lock = _made(parent, name)
    try:
        yield path
    finally:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(path, ignore_errors=True)


def _made(parent: Path, name: str) -> tuple[Path, int | None]:
    """Make a draft and lock it, if that can be."""
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=f".{name}-", suffix=".draft", dir=parent))
        try:
            lock = _locked(path)
        except BlockingIOError:  # another process is just removing it
            continue
        except OSError:  # this file system has no locks
            lock = None
        if path.exists():
            return path, lock
        if lock is not None:
            os.close(lock)
    raise OSError(f"no draft can be made in {parent}")


def _left(parent: Path, name: str) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(name)}-[a-z0-9_]{{8}}\.draft")
    with os.scandir(parent) as found:
        return [
            Path(one.path)
            for one in found
            if pattern.fullmatch(one.name) and one.is_dir(follow_symlinks=False)
        ]


def _locked(path: Path) -> int | None:
    """Lock a folder against other processes; None where there are no locks.

    Raises
    ------
    BlockingIOError
        Another process has locked it.
    """
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove_if_abandoned(path: Path) -> None:
    with contextlib.suppress(OSError):
        try:
            lock = _locked(path)
        except BlockingIOError:
            return
        except OSError:
            lock = None
        if lock is not None or time.time() - path.stat().st_mtime > _ABANDONED:
            shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)
