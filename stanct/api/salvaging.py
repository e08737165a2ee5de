"""`salvage`: the finished draws of a killed run, from its checkpoint."""

from __future__ import annotations

import os

from stanct.api.sampling import sample
from stanct.api.tempering import recorded_target
from stanct.common.errors import CheckpointError, SamplingError, StanctError, TooLittleTimeError
from stanct.runs.run import Run
from stanct.work.checkpoint import recorded_call


def salvage(checkpoint: str | os.PathLike[str]) -> Run:
    """Return the run of the draws that a checkpoint holds, without any further sampling.

    The run may have been killed, or may have ended early. Repeating its call still goes on from the
    checkpoint. A run of a Python function, or with a method or a base of the user's own class, is
    salvaged by its own call with ``max_seconds=0``.

    Parameters
    ----------
    checkpoint
        The folder that was the run's ``checkpoint=``.

    Returns
    -------
    Run
        The run. Its check ``"interrupted"`` says how many of the draws there are.

    Raises
    ------
    CheckpointError
        The folder is no checkpoint, is damaged or in use, is of another version, or does not tell
        the call that began the run.
    SamplingError
        The run was killed before every chain had finished draws.
    """
    call = recorded_call(checkpoint)
    if call is None:
        raise CheckpointError(
            f"The checkpoint {checkpoint} does not tell the call that began its run: the run had "
            "a Python function, or objects of your own, or was killed within its first second.",
            remedy="Repeat the call with max_seconds=0.",
        )
    try:
        target, method = recorded_target(call["target"]), call["method"]
        place = "store" if call.get("stored") else "checkpoint"
        options = {**call["options"], "engine": call["engine"], place: checkpoint}
    except (StanctError, LookupError, TypeError, ValueError, AttributeError) as cause:
        raise CheckpointError(
            f"The call in the checkpoint {checkpoint} is damaged: {cause}.",
            remedy="Repeat the run's call with max_seconds=0.",
        ) from cause
    try:
        return sample(target, method, **options, max_seconds=0, progress=False)
    except TooLittleTimeError as cause:
        raise SamplingError(
            f"The checkpoint {checkpoint} has no draws that count: its run was killed before every "
            "chain had some.",
            remedy="Repeat the run's call, which goes on from the finished steps.",
        ) from cause
