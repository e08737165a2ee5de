"""Runs on disk: one folder with `run.json`, `draws.npz`, `data.json` and programs; no pickle."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stanct.arrays import Array
from stanct.errors import SavedRunError
from stanct.path.base import Base, base_from_arrays

# Keys of `run.json` in every format. Each kind of run defines the name of its format.
_KEYS = {"format", "method", "engine", "programs", "provenance"}


class Savable(Protocol):
    """Fields that every kind of run has and stores in the same way."""

    @property
    def method(self) -> str: ...

    @property
    def engine(self) -> str: ...

    @property
    def variables(self) -> Mapping[str, Array]: ...

    @property
    def base(self) -> Base | None: ...

    @property
    def programs(self) -> Mapping[str, str]: ...

    @property
    def data(self) -> str: ...

    @property
    def provenance(self) -> Mapping[str, Any]: ...


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
    """Save a run. The folder appears whole or not at all, and replaces a saved run.

    Parameters
    ----------
    arrays, statistics
        The kind's own arrays by name.
    more
        JSON values that the kind adds to `run.json`.

    Raises
    ------
    SavedRunError
        The folder holds something other than a run, or cannot be written.
    """

    def write(draft: Path) -> None:
        base = {} if run.base is None else run.base.arrays()
        named = {**base, **arrays}
        named |= {f"variable {name}": values for name, values in run.variables.items()}
        named |= {f"statistic {name}": values for name, values in (statistics or {}).items()}
        np.savez(draft / "draws.npz", allow_pickle=False, **named)
        head = {
            "format": file_format,
            "method": run.method,
            "engine": run.engine,
            "programs": sorted(run.programs),
            "provenance": dict(run.provenance),
            **more,
        }
        (draft / "run.json").write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")
        (draft / "data.json").write_text(run.data, encoding="utf-8")
        for kind, text in run.programs.items():
            (draft / f"{kind}.stan").write_text(text, encoding="utf-8")

    _replace_folder(check_save_folder(folder), write)


def _replace_folder(final: Path, write: Callable[[Path], None]) -> None:
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
        try:
            write(draft)
            draft.chmod(0o755)
            if final.exists():
                shutil.rmtree(final)
            draft.rename(final)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as cause:
        raise SavedRunError(
            f"The run cannot be saved in {final}: {cause}.",
            remedy="Save it in a folder that you can write.",
        ) from cause


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder as a path if a run may be saved there; raise `SavedRunError` otherwise."""
    path = Path(folder)
    if path.is_dir() and not any(path.iterdir()):
        return path
    if path.exists() and _head(path) is None:
        raise SavedRunError(
            f"{path} exists and is not a saved run, so it is not overwritten.",
            remedy="Choose another folder.",
        )
    return path


def saved_head(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the `run.json` of a saved run of any kind; raise `SavedRunError` without one."""
    head = _head(Path(folder))
    if head is None:
        raise SavedRunError(
            f"{folder} is not a saved run: it has no run.json that tells of one.",
            remedy="Pass a folder written by run.save or by `stanct evidence --save`.",
        )
    return head


@contextmanager
def reading(folder: str | os.PathLike[str], file_format: str) -> Iterator[Stored]:
    """Read a saved run of one format; errors while the body builds the run count as damage.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    path = Path(folder)
    head = saved_head(path)
    if head["format"] != file_format:
        raise SavedRunError(f"{path} holds a {head['format']!r}, not a {file_format!r}.")
    try:
        with np.load(path / "draws.npz", allow_pickle=False) as arrays:
            stored = {name: arrays[name] for name in arrays.files}
        programs = {
            kind: (path / f"{kind}.stan").read_text(encoding="utf-8") for kind in head["programs"]
        }
        common = {
            "method": head["method"],
            "engine": head["engine"],
            "variables": _part(stored, "variable "),
            "base": base_from_arrays(stored) if "base_mean" in stored else None,
            "programs": programs,
            "data": (path / "data.json").read_text(encoding="utf-8"),
            "provenance": head["provenance"],
        }
        yield Stored(head, common, stored, _part(stored, "statistic "))
    except (OSError, KeyError, ValueError) as cause:
        raise SavedRunError(
            f"{path} is a damaged run: {cause}.", remedy="Restore the folder or run again."
        ) from cause


def _head(path: Path) -> dict[str, Any] | None:
    try:
        head = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return head if isinstance(head, dict) and head.keys() >= _KEYS else None


def _part(stored: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {k.removeprefix(prefix): v for k, v in stored.items() if k.startswith(prefix)}
