"""Runs on disk: one folder with `run.json`, `draws.npz`, `data.json` and programs; no pickle.

Arrays that are in files already, because a run stored its draws as they were made, are files of
their own, ``array-N.npy``. They are linked into the folder and mapped when the run is loaded.

A folder cannot replace another in one step, so the old one is moved aside in between, where
`_standing` finds it. The next save removes what a killed one left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stanct.common.arrays import Array, is_mapped, mapped_file, part_of, read_archive, whole_file
from stanct.common.drafts import synchronise
from stanct.common.errors import SavedRunError, shortened
from stanct.common.names import KINDS
from stanct.common.resources import remedy_for
from stanct.common.settings import closed, usable_path
from stanct.path.base import base_from_arrays

# Names of the files of single arrays.
_ARRAY = re.compile(r"array-\d{1,9}\.npy", re.ASCII)
# Keys of `run.json` in every format. Each kind of run defines the name of its format.
_KEYS = {"format", "method", "engine", "programs", "provenance"}


@dataclass(frozen=True)
class Stored:
    """A saved run as read from disk: `run.json`, what all runs have, and its own arrays."""

    head: dict[str, Any]
    common: dict[str, Any]
    arrays: dict[str, Array]
    statistics: dict[str, Array]


def save_run(run: Any, folder: Path, arrays: Mapping[str, Array], **more: Any) -> None:
    """Save a run with these arrays; the folder appears whole or not at all, and replaces another.

    `more` are JSON values for `run.json`. Raises `SavedRunError` if the folder cannot be written.
    """
    for kind in run.programs:
        _check_name(kind)
    final = Path(os.path.realpath(folder))
    draft = final.parent / f".{final.name}.draft"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            _write(draft, run, arrays, more)
            if _head(final) is not None:
                _carry_over(final, draft)
            for path in (*draft.iterdir(), draft):
                synchronise(path)
            _exchange(draft, final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as cause:
        raise SavedRunError(
            f"The run cannot be saved in {final}: {cause}.",
            remedy=remedy_for(cause, "Save it in a folder that you can write."),
        ) from cause


def _write(draft: Path, run: Any, arrays: Mapping[str, Array], more: Mapping[str, Any]) -> None:
    """Write the files of a run into an empty folder."""
    base = {} if run.base is None else run.base.arrays()
    named = {**base, **arrays}
    named |= {f"variable {name}": values for name, values in run.variables.items()}
    statistics = getattr(run, "statistics", {})
    named |= {f"statistic {name}": values for name, values in statistics.items()}
    files = _files(draft, {name: a for name, a in named.items() if is_mapped(a)})
    named = {name: values for name, values in named.items() if name not in files}
    np.savez(draft / "draws.npz", allow_pickle=False, **named)
    (draft / "data.json").write_text(run.data, encoding="utf-8")
    for kind, text in run.programs.items():
        (draft / f"{kind}.stan").write_text(text, encoding="utf-8")
    head = {
        "format": run.file_format,
        "method": run.method,
        "engine": run.engine,
        "programs": sorted(run.programs),
        "provenance": dict(run.provenance),
        **({"files": files} if files else {}),
        **more,
    }
    (draft / "run.json").write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")


def _carry_over(final: Path, draft: Path) -> None:
    """Bring along what the user put beside a saved run, such as a report."""
    own = {"run.json", "draws.npz", "data.json", *(f"{kind}.stan" for kind in KINDS)}
    for entry in final.iterdir():
        if entry.name in own or _ARRAY.fullmatch(entry.name) or (draft / entry.name).exists():
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
    aside = _aside_of(final)
    try:
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        draft.rename(final)
        synchronise(final.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        if aside.exists() and not final.exists():
            aside.rename(final)
        raise


def _aside_of(folder: Path) -> Path:
    """Where a folder waits while another takes its place."""
    return folder.parent / f".{folder.name}.old"


def _standing(folder: str | os.PathLike[str]) -> Path:
    """Where a saved run is: aside, if a kill came in the middle of its replacement."""
    path = usable_path(folder, SavedRunError)
    aside = _aside_of(path)
    return aside if not path.exists() and _head(aside) is not None else path


def _files(draft: Path, arrays: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Give each array a file, linked if it maps one; names, and whether two axes are swapped."""
    files: dict[str, list[Any]] = {}
    for number, (name, values) in enumerate(arrays.items()):
        path, whole = draft / f"array-{number}.npy", whole_file(values)
        swapped = whole is not None and whole[1]
        if whole is None:
            with path.open("wb") as file:
                np.lib.format.write_array(file, values, allow_pickle=False)
        else:
            _linked(whole[0], path)
        files[name] = [path.name, swapped]
    return files


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder as a path if a run may be saved there; raise `SavedRunError` otherwise."""
    path = usable_path(folder, SavedRunError)
    if path.exists() and path.samefile(os.curdir):
        raise SavedRunError(
            f"{path} is the current folder, which cannot be replaced.",
            remedy="Name a folder inside it.",
        )
    if (why := closed(path.absolute())) is not None:
        raise SavedRunError(
            f"The run cannot be saved in {path}: {why}.",
            remedy="Choose a folder that you can write.",
        )
    if not path.exists() or _head(path) is not None or (path.is_dir() and not any(path.iterdir())):
        return path
    raise SavedRunError(
        f"{path} exists and is not a saved run, so it is not overwritten.",
        remedy="Choose another folder.",
    )


def check_store_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse to store draws where a run is; a checkpoint that a kill left aside is put back."""
    path = Path(folder)
    if not path.exists() and _aside_of(path).is_dir():
        _aside_of(path).rename(path)
    if _head(path) is not None:
        raise SavedRunError(
            f"{path} holds a finished run, to which no draws can be added.",
            remedy="stanct.load returns it, and run.extend goes on with it. For another run, "
            "choose another folder.",
        )


def saved_head(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the `run.json` of a saved run of any kind; raise `SavedRunError` without one."""
    head = _head(_standing(folder))
    if head is None:
        checkpoint = (Path(folder) / "checkpoint.json").is_file()
        raise SavedRunError(
            f"{folder} is not a saved run: it has no run.json that tells of one.",
            remedy="It is a checkpoint: repeat the run's call with max_seconds=0 for its draws."
            if checkpoint
            else "Pass a folder written by run.save or by `stanct evidence --save`.",
        )
    return head


@contextmanager
def reading(folder: str | os.PathLike[str], file_format: str) -> Iterator[Stored]:
    """Read a saved run of one format; errors while the body builds the run count as damage."""
    path = _standing(folder)
    head = saved_head(path)
    if head["format"] != file_format:
        found = shortened(repr(head["format"]), 60)
        raise SavedRunError(f"{path} holds a {found}, not a {file_format!r}.")
    try:
        for kind in head["programs"]:
            _check_name(kind)
        stored = read_archive(_inside(path, "draws.npz"))
        for name, (file, swapped) in head.get("files", {}).items():
            if not (isinstance(file, str) and _ARRAY.fullmatch(file)):
                raise ValueError(f"{file!r} cannot be the file of an array")
            found = mapped_file(_inside(path, file))
            stored[name] = np.swapaxes(found, 0, 1) if swapped else found
        common = {
            "method": head["method"],
            "engine": head["engine"],
            "variables": part_of(stored, "variable "),
            "base": base_from_arrays(stored) if "base_mean" in stored else None,
            "programs": {kind: _text(path, f"{kind}.stan") for kind in head["programs"]},
            "data": _text(path, "data.json"),
            "provenance": head["provenance"],
        }
        yield Stored(head, common, stored, part_of(stored, "statistic "))
    except SavedRunError:
        raise
    except Exception as cause:  # a file that someone made can break anything that reads it
        raise SavedRunError(
            f"{path} is a damaged run: {str(cause).rstrip('.') or type(cause).__name__}.",
            remedy="Restore the folder or run again.",
        ) from cause


def _check_name(kind: Any) -> None:
    """Raise an error unless a program's name is a plain word, which cannot lead to a folder."""
    if not (isinstance(kind, str) and re.fullmatch(r"[A-Za-z]\w{0,63}", kind, re.ASCII)):
        raise SavedRunError(f"{shortened(repr(kind), 80)} cannot be the name of a run's program.")


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a regular file that stands in the folder itself."""
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{name} is missing, or is no file")
    return path


def _text(folder: Path, name: str) -> str:
    return _inside(folder, name).read_text(encoding="utf-8")


def _head(path: Path) -> dict[str, Any] | None:
    try:
        head = json.loads(_text(path, "run.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) and head.keys() >= _KEYS else None
