"""Notes on a run what its draws tell of mass beyond rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from stanct.runs.run import EvidenceRun, Run
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.targets.rounding import every

AnyRun = TypeVar("AnyRun", bound=Run)


def noting_rounding(run: AnyRun, target: SampledTarget) -> AnyRun:
    """The run, with the mass that rounding hides in its provenance, if there is any."""
    if not (isinstance(run, EvidenceRun) and isinstance(target, ProgramTarget)):
        return run
    if not target.may_round:
        return run
    weights = run.target_log_weights
    if run.z.shape[:-1] != weights.shape:
        return run
    step = every(weights.size, run.z.shape[-1])
    z = np.array(run.z[:, ::step])
    x = z if run.base is None else run.base.unwhiten(z)
    found = target.rounding(x.reshape(-1, x.shape[-1]), weights[:, ::step].ravel())
    if found is None:
        return run
    return replace(run, provenance={**run.provenance, "rounding": found._asdict()})
