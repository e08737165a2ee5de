"""The folder in which what CmdStan compiled is kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path

from stanct.common.errors import EngineError
from stanct.common.resources import is_own, make_own_folder

CACHE_VARIABLE = "STANCT_CACHE"
# Where programs are built, and seconds after which such a folder was left by a killed process.
_WORK, _ABANDONED = ".building-", 24 * 3600.0


def cache_folder() -> Path:
    """Return where compiled programs are: `$STANCT_CACHE`, or else in the user's own cache."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE]).absolute()
    return user_cache_path("stanct", appauthor=False).absolute() / "cmdstan"


def kept(told: Iterable[str], name: str, build: Callable[[Path], None]) -> Path:
    """Return the compiled file that these texts determine from the cache; build it if needed.

    The file is built beside its final place, so that it exists only when it is finished. If two
    processes build the same file at the same time, the first to finish wins. Raises `EngineError`
    if the cache cannot be written, or another user could have written the file that is there.
    """
    folder = cache_folder() / hashlib.sha256("\0".join(told).encode()).hexdigest()[:24]
    file = folder / name
    if file.exists() and not (is_own(folder) and is_own(file)):
        raise EngineError(
            f"{file} is not run, because another user could have written it.",
            remedy=f"Delete {folder}, or set {CACHE_VARIABLE} to a folder of your own.",
        )
    if not file.exists():
        _build(folder, name, build)
    return file


def discard(file: Path) -> None:
    """Remove a compiled file that turned out not to work, with its folder."""
    shutil.rmtree(file.parent, ignore_errors=True)


def _build(folder: Path, name: str, build: Callable[[Path], None]) -> None:
    with contextlib.ExitStack() as stack:
        try:
            make_own_folder(folder.parent)
            _remove_abandoned(folder.parent)
            workshop = Path(
                stack.enter_context(TemporaryDirectory(prefix=_WORK, dir=folder.parent))
            )
        except OSError as error:
            raise EngineError(
                f"The cache of compiled programs cannot be written: {error}.",
                remedy=f"Set {CACHE_VARIABLE} to a folder that you can write.",
            ) from error
        build(workshop)
        (workshop / name).chmod(0o700)
        with contextlib.suppress(OSError):  # another build of the same program was faster
            workshop.rename(folder)


def _remove_abandoned(cache: Path) -> None:
    """Remove what killed builds left."""
    for left in cache.glob(f"{_WORK}*"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
