"""Locate the folders that ship with the code, and tell which folders others can write."""

from __future__ import annotations

import os
from pathlib import Path

from stanct.errors import StanctError


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


def is_private(path: Path) -> bool:
    """Return whether nobody but this user and the administrator can have written a path.

    Links are not followed. What is not private must not be run.
    """
    if os.name != "posix":
        return True
    found = path.lstat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022
