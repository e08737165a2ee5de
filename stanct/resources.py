"""Locate the folders that ship with the code, in a wheel and in an editable install."""

from __future__ import annotations

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
