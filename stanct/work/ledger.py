"""The cost of a run."""

from __future__ import annotations

import time
from typing import Any


class Ledger:
    """Counts of the gradients, the evaluations, and the seconds by stage that a run spends."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.gradients = 0
        self.evaluations = 0
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Close a stage, which gets the time since the last stage was closed."""
        spent = time.perf_counter() - self._started - sum(self.stages.values())
        self.stages[stage] = round(spent, 3)

    def record(self) -> dict[str, Any]:
        """Return the counts for the run's provenance."""
        return {
            "gradients": self.gradients,
            "evaluations": self.evaluations,
            "seconds": round(time.perf_counter() - self._started, 3),
            "stage_seconds": dict(self.stages),
        }
