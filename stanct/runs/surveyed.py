"""The modes that a run's search found, beside the run's own draws."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stanct.arrays import Array
from stanct.estimates.modes import mode_table
from stanct.estimates.path import Evidence
from stanct.runs.diagnostics import WORTH, Check, modes_check
from stanct.runs.run import Run

ELSEWHERE = (
    "The chains lost a mode, and nothing in this method moves them there. Use the default method, "
    "or method='simulated_tempering'."
)
"""Remedy for methods that do not draw from their base again."""


def surveyed_modes(run: Run, evidence: Evidence | None) -> pd.DataFrame | None:
    """The modes that pilots found, with their weights in a run; see `mode_table`.

    None where the base was not fitted by pilots.

    Parameters
    ----------
    evidence
        The run's log Z without warnings; None for methods that estimate none.
    """
    survey = run.provenance.get("survey")
    if survey is None or np.shape(survey["place"])[-1] != run.z.shape[-1]:
        return None
    unwhiten = _unchanged if run.base is None else run.base.unwhiten
    return mode_table(survey, run.z, unwhiten, run.target_log_weights, evidence)


def surveyed_checks(modes: pd.DataFrame | None) -> tuple[Check, ...]:
    """Check that a run of a method that cannot go back for a mode has lost none."""
    return () if modes is None else (modes_check(modes, remedy=ELSEWHERE),)


def mode_size(modes: pd.DataFrame | None) -> float:
    """Least number of independent draws that would tell the weight of a mode as precisely.

    Chains that change between modes a few times tell little of their weights, and the ranks of
    coordinates, on which R-hat and bulk effective sizes rest, hardly show it where one mode is
    rare. Infinite without a mode that counts and was both visited and left.
    """
    if modes is None:
        return np.inf
    weight, error, pilots = (
        modes[name].to_numpy(float) for name in ("weight", "std_error", "pilot_weight")
    )
    counts = (error > 0) & (pilots >= WORTH)
    sizes = weight[counts] * (1 - weight[counts]) / np.square(error[counts])
    return float(sizes.min(initial=np.inf))


def _unchanged(x: Array) -> Array:
    return x
