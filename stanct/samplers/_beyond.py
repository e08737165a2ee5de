"""Notes on a run what its draws tell of mass that no draw reaches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.targets.integrable import endless
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.targets.rounding import every

AnyRun = TypeVar("AnyRun", bound=Run)


def noting_beyond(run: AnyRun, target: SampledTarget) -> AnyRun:
    """The run with notes in its provenance.

    ``"rounding"`` is the mass where parameters round to their bounds, and ``"endless"`` names
    coordinates along which the density does not fall off.
    """
    if not (isinstance(run, EvidenceRun) and isinstance(target, ProgramTarget)):
        return run
    weights = run.target_log_weights
    if run.z.shape[:-1] != weights.shape:
        return run
    step = every(weights.size, run.z.shape[-1])
    z, weights = np.array(run.z[:, ::step]), weights[:, ::step].ravel()
    x = (z if run.base is None else run.base.unwhiten(z)).reshape(-1, z.shape[-1])
    density = target.density
    along = endless(density, density.unconstrained_names, x, weights)
    notes: dict[str, Any] = {"endless": list(along)} if along else {}
    hidden = target.rounding(x, weights) if target.may_round else None
    if hidden is not None:
        notes["rounding"] = hidden._asdict()
    return replace(run, provenance={**run.provenance, **notes})
