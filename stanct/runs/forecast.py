"""What a run foretold of itself, beside what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from stanct.estimates.path import Evidence

COLUMNS = ("at", "seconds", "gradients", "draws", "std_error")


def forecast_table(
    forecasts: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, Any],
    draws: int,
    came: Evidence,
) -> pd.DataFrame | None:
    """A row for each forecast, in order, and a last one for what came; None without a forecast.

    Parameters
    ----------
    forecasts
        The records of `stanct.samplers._forecast`.
    draws
        Kept draws of each chain that were made.
    came
        log Z of the run.
    """
    if not forecasts:
        return None
    rows = {str(one["after"]): [one[name] for name in COLUMNS] for one in forecasts}
    seconds = provenance["seconds"]
    rows["came"] = [seconds, seconds, provenance["gradients"], draws, came.std_error]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=pd.Index(COLUMNS))
    return table.astype({"at": float, "seconds": float, "std_error": float})


def promise(provenance: Mapping[str, Any], came: Evidence) -> str:
    """The first forecast that is no bound, and what came, in one line; empty without one."""
    told = [
        one
        for one in provenance.get("forecasts", ())
        if one["std_error"] is not None and not one.get("bound", False)
    ]
    if not told:
        return ""
    first = told[0]
    return (
        f"Forecast after {first['at']:.1f} s: {first['seconds']:.1f} s and ± "
        f"{first['std_error']:.2g}; came {provenance['seconds']:.1f} s and ± {came.std_error:.2g}"
    )
