"""The folder in which what CmdStan compiled is kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from platformdirs import user_cache_path

from stanct.errors import EngineError
from stanct.resources import is_private

CACHE_VARIABLE = "STANCT_CACHE"


def cache_folder() -> Path:
    """Return `$STANCT_CACHE`, or the user's own cache folder."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE])
    return user_cache_path("stanct", appauthor=False) / "cmdstan"


def kept(told: Iterable[str], name: str, build: Callable[[Path], None]) -> Path:
    """Return a compiled file from the cache; it is built if it is not there.

    The file is built beside its final place, so that it exists only when it is finished. If two
    processes build the same file at the same time, the first to finish wins.

    Parameters
    ----------
    told
        Texts that determine the file.
    name
        Name of the file.
    build
        Builds the file in a folder.

    Raises
    ------
    EngineError
        The cache cannot be written, or another user could have written the file that is there.
    """
    folder = cache_folder().absolute() / hashlib.sha256("\0".join(told).encode()).hexdigest()[:24]
    file = folder / name
    if not file.exists():
        _build(folder, name, build)
    if not (is_private(folder) and is_private(file)):
        raise EngineError(
            f"{file} is not run, because another user could have written it.",
            remedy=f"Delete {folder}, or set {CACHE_VARIABLE} to a folder of your own.",
        )
    return file


def _build(folder: Path, name: str, build: Callable[[Path], None]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    except OSError as error:
        raise EngineError(
            f"The cache of compiled programs cannot be written: {error}.",
            remedy=f"Set {CACHE_VARIABLE} to a folder that you can write.",
        ) from error
    try:
        build(workshop)
        (workshop / name).chmod(0o700)
        with contextlib.suppress(OSError):  # another build of the same program was faster
            workshop.rename(folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
