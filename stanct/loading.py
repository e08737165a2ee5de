"""`load`: bring back a saved run of any kind."""

from __future__ import annotations

import os

from stanct.ladder_results import LadderRun, load_ladder
from stanct.particle_results import ParticleRun, load_particles
from stanct.results import TemperedRun, load_tempered
from stanct.storage import LADDER, PARTICLES, TEMPERED, saved_head

_READERS = {TEMPERED: load_tempered, LADDER: load_ladder, PARTICLES: load_particles}


def load(folder: str | os.PathLike[str]) -> TemperedRun | LadderRun | ParticleRun:
    """Bring back what `save` of any run has written.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    return _READERS[saved_head(folder)["format"]](folder)
