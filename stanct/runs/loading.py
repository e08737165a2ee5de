"""`load`: loads a saved run of any kind."""

from __future__ import annotations

import os

from stanct.common.errors import SavedRunError, shortened
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.bridge import BridgeRun
from stanct.runs.coupled import CoupledRun
from stanct.runs.ladder import LadderRun
from stanct.runs.particle import ParticleRun
from stanct.runs.power import PowerRun
from stanct.runs.power_copies import PowerCopiesRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.run import Run
from stanct.runs.storage import saved_head
from stanct.runs.tact import TactRun
from stanct.runs.tempered import TemperedRun

_KINDS: dict[str, type[Run]] = {
    kind.file_format: kind
    for kind in (
        *(TemperedRun, LadderRun, ParticleRun, PseudoExtendedRun, AdiabaticRun, TactRun),
        *(BridgeRun, PowerRun, PowerCopiesRun, CoupledRun),
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
    found = saved_head(folder)["format"]
    if not isinstance(found, str) or found not in _KINDS:
        told = shortened(repr(found), 60)
        raise SavedRunError(
            f"{folder} holds a run of the format {told}, which this version does not know.",
            remedy="Load it by the class that saved it (Kind.load), or by a newer version.",
        )
    return _KINDS[found].load(folder)
