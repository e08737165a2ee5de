"""The folders that ship with the code, folders that others can write, and the memory there is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stanct.errors import SamplingError, StanctError

_MOST_LINKS = 40


def resource_folder(name: str) -> Path:
    """Return the folder `templates` or `stan_models`.

    In a wheel the folder lies inside the package. In a checkout it lies beside the package.
    """
    package = Path(__file__).resolve().parent
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


def exposed(path: Path) -> Path | None:
    """Return what lets someone but this user and the administrator have written a file or folder.

    That is the path itself, or a folder above it in which it could be replaced, or a link on the
    way; None if there is no such part. What is exposed must not be run.
    """
    if os.name != "posix":
        return None
    here, *rest = (Path(part) for part in path.absolute().parts)
    links = 0
    while True:
        found = here.lstat()
        link = stat.S_ISLNK(found.st_mode)
        # In a folder such as /tmp, users can only replace what is theirs.
        shared = rest and found.st_mode & stat.S_ISVTX
        writable = found.st_mode & 0o022 and not (link or shared)
        links += link
        if found.st_uid not in (0, os.geteuid()) or writable or links > _MOST_LINKS:
            return here
        if link:
            rest = [*map(Path, here.readlink().parts), *rest]
            here = here.parent
        if not rest:
            return None
        here, rest = Path(os.path.normpath(here / rest[0])), rest[1:]
