"""`load`: bring back a saved run of any kind."""

from __future__ import annotations

import os
from pathlib import Path

from stanct import ladder_results, particle_results, results
from stanct.errors import SavedRunError
from stanct.ladder_results import LadderRun
from stanct.particle_results import ParticleRun
from stanct.results import TemperedRun

_READERS = {
    results.FORMAT: results.load,
    ladder_results.FORMAT: ladder_results.load_ladder,
    particle_results.FORMAT: particle_results.load_particles,
}


def load(folder: str | os.PathLike[str]) -> TemperedRun | LadderRun | ParticleRun:
    """Bring back what `save` of any run has written.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    head = results.saved_head(Path(folder))
    if head is None:
        raise SavedRunError(
            f"{folder} is not a saved run: it has no run.json of a format that this version reads.",
            remedy="Pass a folder written by run.save or by `stanct evidence --save`.",
        )
    return _READERS[head["format"]](folder)
