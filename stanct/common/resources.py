"""The folders that ship with the code, folders that others can write, and full memory or disks."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stanct.common.errors import SamplingError, StanctError


def resource_folder(name: str) -> Path:
    """The folder `templates` or `stan_models`: in a wheel inside the package, or beside it."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise StanctError(
        f"stanct's own folder {name!r} is missing beside {package}.",
        remedy="Reinstall stanct: pip install --force-reinstall stanct",
    )


def memory() -> float:
    """Memory of this machine in bytes; infinite where it is not known."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")


@contextmanager
def within_memory() -> Iterator[None]:
    """Let a lack of memory in the body be a `SamplingError`."""
    try:
        yield
    except MemoryError as cause:
        raise SamplingError(
            f"The run does not fit into memory: {str(cause).rstrip('.') or 'no more is left'}.",
            remedy="Name the variables to keep (keep=), ask for fewer draws, or keep them in files "
            "(store=FOLDER).",
        ) from cause


def remedy_for(cause: OSError, usual: str) -> str:
    """What to do about a file that cannot be written: the usual remedy, or to make room."""
    # NumPy says only how much of an array was not written.
    cut = cause.errno is None and "requested and" in str(cause)
    if cut or cause.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return "The disk is full: make room on it, or choose another one."
    return usual


@contextmanager
def writing(what: str, path: Path, usual: str) -> Iterator[None]:
    """Let an `OSError` in the body be a `StanctError` that says what cannot be written where."""
    try:
        yield
    except OSError as cause:
        raise StanctError(
            f"{what} cannot be written to {path}: {cause}.", remedy=remedy_for(cause, usual)
        ) from cause


def is_own(path: Path) -> bool:
    """Whether a file or folder is this user's or the administrator's, and no other may write it."""
    if os.name != "posix":
        return True
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def make_own_folder(path: Path) -> None:
    """Make a folder and what is missing above it; only this user can enter, whatever the umask."""
    missing = itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents))
    for folder in reversed([*missing]):
        folder.mkdir(mode=0o700, exist_ok=True)
