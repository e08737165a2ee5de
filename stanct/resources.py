"""Locate the folders that ship with the code, and tell which folders others can write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stanct.errors import StanctError

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
