"""`load`: loads a saved run of any kind."""

from __future__ import annotations

import os
import time
from pathlib import Path

from stanct.errors import SavedRunError, shortened
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.bridge import BridgeRun
from stanct.runs.ladder import LadderRun
from stanct.runs.particle import ParticleRun
from stanct.runs.power import PowerRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.run import Run
from stanct.runs.storage import ATTEMPTS, PAUSE, saved_head
from stanct.runs.tact import TactRun
from stanct.runs.tempered import TemperedRun

_KINDS: dict[str, type[Run]] = {
    kind.file_format: kind
    for kind in (
        *(TemperedRun, LadderRun, ParticleRun, PseudoExtendedRun, AdiabaticRun, TactRun),
        *(BridgeRun, PowerRun),
    )
}


def load(folder: str | os.PathLike[str]) -> Run:
    """Load a run of any kind, as written by its `save`.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    if not isinstance(folder, str | os.PathLike):
        raise SavedRunError(
            f"A saved run is the path of a folder, not {folder!r}.",
            remedy='Did you mean stanct.load("folder")?',
        )
    for left in reversed(range(ATTEMPTS)):
        before = _identity(folder)
        try:
            return _loaded(folder)
        except SavedRunError:
            # Another process may have saved a run over this one while its files were read.
            if not left or _identity(folder) == before is not None:
                raise
            time.sleep(PAUSE)
    raise AssertionError


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int] | None:
    """What tells one folder from another of the same name; None where there is none."""
    try:
        found = Path(folder).stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns


def _loaded(folder: str | os.PathLike[str]) -> Run:
    found = saved_head(folder)["format"]
    if not isinstance(found, str) or found not in _KINDS:
        told = shortened(repr(found), 60)
        raise SavedRunError(
            f"{folder} holds a run of the format {told}, which this version does not know.",
            remedy="Load it by the class that saved it (Kind.load), or by a newer version.",
        )
    return _KINDS[found].load(folder)
