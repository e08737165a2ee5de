"""A saved run takes the place of another as a whole, whenever a process is killed.

A folder cannot replace another in one step, so the old one is moved aside in between, where
`standing` finds it. The next save removes what a killed one left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stanct.common.errors import SavedRunError
from stanct.common.resources import remedy_for


def replace_folder(
    final: Path,
    write: Callable[[Path], None],
    *,
    is_run: Callable[[Path], bool],
    is_own: Callable[[str], bool],
) -> None:
    """Write a folder beside `final` and put it in its place; of a link, that of what it names.

    From what `is_run`, a saved run, is kept what the user put there: every file that is not its own
    by its name. Raises `SavedRunError` if the folder cannot be written.
    """
    final = Path(os.path.realpath(final))
    draft = final.parent / f".{final.name}.draft"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            write(draft)
            if is_run(final):
                _carry_over(final, draft, is_own)
            for path in (*draft.iterdir(), draft):
                _synchronise(path)
            _exchange(draft, final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as cause:
        raise SavedRunError(
            f"The run cannot be saved in {final}: {cause}.",
            remedy=remedy_for(cause, "Save it in a folder that you can write."),
        ) from cause


def _carry_over(final: Path, draft: Path, is_own: Callable[[str], bool]) -> None:
    """Bring along what the user put beside a saved run, such as a report."""
    for entry in final.iterdir():
        if is_own(entry.name) or (draft / entry.name).exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, draft / entry.name, symlinks=True, copy_function=_linked)
        elif entry.is_symlink() or entry.is_file():
            _linked(entry, draft / entry.name, follow_symlinks=False)


def _linked(file: Any, to: Any, **more: Any) -> None:
    """Link a file, or copy it where that cannot be."""
    try:
        os.link(file, to, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, to, **more)


def _exchange(draft: Path, final: Path) -> None:
    aside = aside_of(final)
    try:
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        draft.rename(final)
        _synchronise(final.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        if aside.exists() and not final.exists():
            aside.rename(final)
        raise


def _synchronise(path: Path) -> None:
    """Wait until a file or a folder would survive a power cut."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def aside_of(folder: Path) -> Path:
    """Where a folder waits while another takes its place."""
    return folder.parent / f".{folder.name}.old"


def standing(folder: Path, is_run: Callable[[Path], bool]) -> Path:
    """Return where a saved run is: aside, if a kill came in the middle of its replacement."""
    aside = aside_of(folder)
    return aside if not folder.exists() and is_run(aside) else folder
