"""`load`: bring back a saved run of any kind."""

from __future__ import annotations

import os

from stanct.runs.ladder_run import LadderRun, load_ladder
from stanct.runs.particle_run import ParticleRun, load_particles
from stanct.runs.pseudo_extended_run import PseudoExtendedRun, load_copies
from stanct.runs.storage import COPIES, LADDER, PARTICLES, TEMPERED, saved_head
from stanct.runs.tempered_run import TemperedRun, load_tempered

_READERS = {
    TEMPERED: load_tempered,
    LADDER: load_ladder,
    PARTICLES: load_particles,
    COPIES: load_copies,
}


def load(
    folder: str | os.PathLike[str],
) -> TemperedRun | LadderRun | ParticleRun | PseudoExtendedRun:
    """Bring back what `save` of any run has written.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    return _READERS[saved_head(folder)["format"]](folder)
