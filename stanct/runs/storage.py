"""Runs on disk: one folder with `run.json`, `draws.npz`, `data.json` and programs; no pickle.

Arrays that are in files already, because a run stored its draws as they were made, are files of
their own, ``array-N.npy``. They are linked into the folder and mapped when the run is loaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from stanct.arrays import Array, is_mapped, mapped_file, read_archive, whole_file
from stanct.errors import SavedRunError, shortened
from stanct.names import KINDS
from stanct.path.base import Base, base_from_arrays
from stanct.runs.binding import Stated, check_digests, digest
from stanct.runs.exchange import ATTEMPTS, PAUSE, aside_of, replace_folder, standing
from stanct.runs.members import check_types
from stanct.runs.schema import HEAD, PROVENANCE, Rule, checked
from stanct.settings import closed, usable_path
from stanct.work.blas import one_blas_thread

Loaded = TypeVar("Loaded")
LONGEST_TEXT = 2**30
"""Length in bytes of the longest text that is read from a saved run."""

# Keys of `run.json` in every format. Each kind of run defines the name of its format.
# Names of the files of single arrays.
_ARRAY = re.compile(r"array-\d{1,9}\.npy", re.ASCII)
_KEYS = {"format", "method", "engine", "programs", "provenance"}


class Savable(Stated, Protocol):
    """Fields that every kind of run has and stores in the same way."""

    @property
    def method(self) -> str: ...

    @property
    def engine(self) -> str: ...

    @property
    def base(self) -> Base | None: ...


@dataclass(frozen=True)
class Stored:
    """A saved run as read from disk.

    Attributes
    ----------
    head
        Contents of `run.json`.
    common
        The fields of `Savable` by name, for the run's constructor.
    arrays, statistics
        The kind's own arrays by name.
    """

    head: dict[str, Any]
    common: dict[str, Any]
    arrays: dict[str, Array]
    statistics: dict[str, Array]


def save_run(
    folder: str | os.PathLike[str],
    run: Savable,
    file_format: str,
    arrays: Mapping[str, Array],
    *,
    statistics: Mapping[str, Array] | None = None,
    **more: Any,
) -> None:
    """Save a run. The folder appears whole or not at all, and replaces what is there.

    Parameters
    ----------
    folder
        As `check_save_folder` returns it, or the run's own checkpoint.
    arrays, statistics
        The kind's own arrays by name.
    more
        JSON values that the kind adds to `run.json`.

    Raises
    ------
    SavedRunError
        The folder holds something other than a run, or cannot be written.
    """

    for kind in run.programs:
        _check_name(kind)

    def write(draft: Path) -> None:
        base = {} if run.base is None else run.base.arrays()
        named = {**base, **arrays}
        named |= {f"variable {name}": values for name, values in run.variables.items()}
        named |= {f"statistic {name}": values for name, values in (statistics or {}).items()}
        files = _files(draft, {name: a for name, a in named.items() if is_mapped(a)})
        named = {name: values for name, values in named.items() if name not in files}
        np.savez(draft / "draws.npz", allow_pickle=False, **named)
        (draft / "data.json").write_text(run.data, encoding="utf-8")
        for kind, text in run.programs.items():
            (draft / f"{kind}.stan").write_text(text, encoding="utf-8")
        head = {
            "format": file_format,
            "method": run.method,
            "engine": run.engine,
            "programs": sorted(run.programs),
            "provenance": dict(run.provenance),
            **({"files": files} if files else {}),
            "digests": {path.name: digest(path) for path in sorted(draft.iterdir())},
            **more,
        }
        (draft / "run.json").write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")

    replace_folder(Path(folder), write, is_run=_is_run, is_own=_is_own)


def _is_run(folder: Path) -> bool:
    return _head(folder) is not None


def _is_own(name: str) -> bool:
    """Whether a file of this name in a saved run's folder is part of the run."""
    own = {"run.json", "draws.npz", "data.json", *(f"{kind}.stan" for kind in KINDS)}
    return name in own or _ARRAY.fullmatch(name) is not None


def _files(draft: Path, arrays: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Give each array a file of its own; names, and whether the first two axes are swapped there.

    A file of which an array maps all is linked, where that is possible.
    """
    files: dict[str, list[Any]] = {}
    for number, (name, values) in enumerate(arrays.items()):
        path, whole = draft / f"array-{number}.npy", whole_file(values)
        swapped = whole is not None and whole[1]
        if whole is None:
            with path.open("wb") as file:
                np.lib.format.write_array(file, values, allow_pickle=False)
        else:
            try:
                os.link(whole[0], path)
            except OSError:  # another file system, or one without links
                shutil.copyfile(whole[0], path)
        files[name] = [path.name, swapped]
    return files


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder as a path if a run may be saved there; raise `SavedRunError` otherwise."""
    path = usable_path(folder, SavedRunError)
    if _is_current(path):
        raise SavedRunError(
            f"{path} is the current folder, which cannot be replaced.",
            remedy="Name a folder inside it.",
        )
    if (why := closed(path.absolute())) is not None:
        raise SavedRunError(
            f"The run cannot be saved in {path}: {why}.",
            remedy="Choose a folder that you can write.",
        )
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):  # another process is saving there
            if path.is_dir() and not any(path.iterdir()):
                return path
        if not path.exists() or _head(path) is not None:
            return path
        time.sleep(PAUSE)
    raise SavedRunError(
        f"{path} exists and is not a saved run, so it is not overwritten.",
        remedy="Choose another folder.",
    )


def _is_current(folder: Path) -> bool:
    try:
        return folder.samefile(os.curdir)
    except OSError:  # it does not exist, or another process is saving there
        return False


def check_store_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse to store draws where a finished run is; raise `SavedRunError`.

    Where a kill came while a finished run took the place of its checkpoint, that is put back.
    """
    path = Path(folder)
    if not path.exists() and aside_of(path).is_dir():
        aside_of(path).rename(path)
    if _head(path) is not None:
        raise SavedRunError(
            f"{path} holds a finished run, to which no draws can be added.",
            remedy="stanct.load returns it, and run.extend goes on with it. For another run, "
            "choose another folder.",
        )


def saved_head(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the `run.json` of a saved run of any kind; raise `SavedRunError` without one."""
    head = _head(standing(usable_path(folder, SavedRunError), _is_run))
    if head is None:
        checkpoint = (Path(folder) / "checkpoint.json").is_file()
        raise SavedRunError(
            f"{folder} is not a saved run: it has no run.json that tells of one.",
            remedy="It is a checkpoint: stanct.salvage reads its draws."
            if checkpoint
            else "Pass a folder written by run.save or by `stanct evidence --save`.",
        )
    return head


def undisturbed(
    folder: str | os.PathLike[str], read: Callable[[str | os.PathLike[str]], Loaded]
) -> Loaded:
    """Read a saved run, again if another process saved a run over it meanwhile."""
    for _ in range(ATTEMPTS - 1):
        before = _identity(folder)
        try:
            return read(folder)
        except SavedRunError:
            if before is not None and _identity(folder) == before:
                raise
        time.sleep(PAUSE)
    return read(folder)


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int] | None:
    """What tells one folder from another of the same name; None where there is none."""
    try:
        found = Path(folder).stat()
    except (OSError, TypeError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def reading(
    folder: str | os.PathLike[str], file_format: str, settings: Mapping[str, Rule]
) -> Iterator[Stored]:
    """Read a saved run of one format; errors while the body builds the run count as damage.

    Parameters
    ----------
    settings
        Rules for the settings of the methods that make such runs.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    path = standing(usable_path(folder, SavedRunError), _is_run)
    head = saved_head(path)
    if head["format"] != file_format:
        found = shortened(repr(head["format"]), 60)
        raise SavedRunError(f"{path} holds a {found}, not a {file_format!r}.")
    try:
        checked(head, HEAD, "run.json")
        _check_encodable(head, "run.json")
        for kind in head["programs"]:
            _check_name(kind)
        _check_files(path, head)
        stored = read_archive(_inside(path, "draws.npz"))
        for name, (file, swapped) in dict(head.get("files", {})).items():
            if name in stored:
                raise ValueError(f"{name!r} is in an archive and in a file")
            stored[name] = _mapped(path, file, swapped)
        stored = check_types(stored)
        data = _text(path, "data.json")
        values = json.loads(data)
        if not isinstance(values, dict):
            raise ValueError("data.json is not an object")
        _check_encodable(values, "data.json")
        common = {
            "method": head["method"],
            "engine": head["engine"],
            "variables": _part(stored, "variable "),
            "base": base_from_arrays(stored) if "base_mean" in stored else None,
            "programs": {kind: _text(path, f"{kind}.stan") for kind in head["programs"]},
            "data": data,
            "provenance": _provenance(head["provenance"], settings),
        }
        yield Stored(head, common, stored, _part(stored, "statistic "))
    except SavedRunError:
        raise
    except Exception as cause:  # a file that someone made can break anything that reads it
        raise SavedRunError(
            f"{path} is a damaged run: {str(cause).rstrip('.') or type(cause).__name__}.",
            remedy="Restore the folder or run again.",
        ) from cause


class _Told(dict[str, Any]):
    """Provenance of a saved run, which may lack what this version looks up."""

    def __missing__(self, key: str) -> Any:
        raise SavedRunError(f"The saved run does not tell {key!r}.", remedy="Run again.")


@contextmanager
def understood(provenance: Mapping[str, Any]) -> Iterator[None]:
    """Let what the provenance of a saved run breaks in the body be a `SavedRunError`.

    The body's results do not depend on how many threads BLAS has.
    """
    try:
        with one_blas_thread():
            yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as cause:
        if not isinstance(provenance, _Told):
            raise
        raise SavedRunError(
            f"The saved run is damaged: {str(cause).rstrip('.') or type(cause).__name__}.",
            remedy="Restore the folder or run again.",
        ) from cause


def _provenance(found: Any, settings: Mapping[str, Rule]) -> Mapping[str, Any]:
    told = _Told(checked(found, PROVENANCE, "provenance"))
    # Older saved runs hold the settings of the method among those of every method.
    own = "method_settings" if "method_settings" in told else "settings"
    told[own] = checked(told[own], settings, f"provenance.{own}")
    for name in ("settings", "method_settings", "stopping", "survey", "confirmed"):
        if isinstance(told.get(name), dict):
            told[name] = _Told(told[name])
    survey = told.get("survey")
    if survey is not None:
        places, spreads, masses = (
            np.asarray(survey[name], float) for name in ("place", "spread", "log_evidence")
        )
        if places.ndim != 2 or places.shape != spreads.shape or masses.shape != places.shape[:1]:
            raise ValueError("provenance.survey has not one place and one spread for each mode")
        if 0 in places.shape:
            raise ValueError("provenance.survey has no modes")
    rates = told.get("acceptance")
    if rates is not None and len(rates["transitions"]) != len(rates["acceptance"]):
        raise ValueError("provenance.acceptance has not one rate for each stretch of β")
    return told


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


def _check_encodable(value: Any, name: str) -> None:
    """Raise `ValueError` for texts with halves of characters, which no page can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as cause:
        raise ValueError(f"{name} holds half of a character") from cause


def _check_files(folder: Path, head: Mapping[str, Any]) -> None:
    """Check the files of a run against their digests, which earlier versions did not save."""
    if "digests" not in head:
        return
    own = [file for file, _ in dict(head.get("files", {})).values()]
    programs = [f"{kind}.stan" for kind in head["programs"]]
    names = ["draws.npz", "data.json", *programs, *own]
    for name in own:
        _check_array_name(name)
    for name in names:
        _inside(folder, name)
    check_digests(folder, head["digests"], names)


def _check_array_name(file: Any) -> None:
    if not (isinstance(file, str) and _ARRAY.fullmatch(file)):
        raise ValueError(f"{file!r} cannot be the file of an array")


def _mapped(folder: Path, file: Any, swapped: Any) -> Array:
    """Map an array that has a file of its own."""
    _check_array_name(file)
    found = mapped_file(_inside(folder, file))
    if swapped is False:
        return found
    if swapped is not True or found.ndim < 2:
        raise ValueError(f"{file} has not the axes that it should have")
    return np.swapaxes(found, 0, 1)


def _text(folder: Path, name: str) -> str:
    path = _inside(folder, name)
    if path.stat().st_size > LONGEST_TEXT:
        raise ValueError(f"{name} is longer than {LONGEST_TEXT >> 20} MiB")
    return path.read_text(encoding="utf-8")


def _head(path: Path) -> dict[str, Any] | None:
    try:
        head = json.loads(_text(path, "run.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) and head.keys() >= _KEYS else None


def _part(stored: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {k.removeprefix(prefix): v for k, v in stored.items() if k.startswith(prefix)}
