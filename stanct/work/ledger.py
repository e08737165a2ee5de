"""The cost of a run, and what its stages found."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np

from stanct.common.version import __version__
from stanct.engines import embedded


def stamp() -> dict[str, Any]:
    """Versions and the time, for the provenance of a run that is finished; JSON values only."""
    return {
        "versions": {"stanct": __version__, "numpy": np.__version__, **embedded.versions()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Ledger:
    """The gradients, log densities without one (`evaluations`), and seconds by stage of a run.

    `found` is what stages found, for provenance, JSON values only.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.gradients = 0
        self.evaluations = 0
        self.stages: dict[str, float] = {}
        self.by_stage: dict[str, int] = {}
        self.found: dict[str, Any] = {}

    def lap(self, stage: str) -> None:
        """Give a stage the time and gradients since the last lap, in addition to what it has."""
        spent = self.elapsed - sum(self.stages.values())
        self.stages[stage] = round(self.stages.get(stage, 0.0) + spent, 3)
        more = self.gradients - sum(self.by_stage.values())
        self.by_stage[stage] = self.by_stage.get(stage, 0) + more

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._started

    def record(self) -> dict[str, Any]:
        """Return the counts for the run's provenance."""
        return {
            **self.found,
            "gradients": self.gradients,
            "evaluations": self.evaluations,
            "seconds": round(self.elapsed, 3),
            "stage_seconds": dict(self.stages),
            "stage_gradients": dict(self.by_stage),
        }
