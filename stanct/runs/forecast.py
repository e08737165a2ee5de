"""What a run foretold of itself, beside what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = ("at", "seconds", "gradients", "draws", "std_error")


def forecast_table(
    forecasts: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any], draws: int, came: float
) -> pd.DataFrame | None:
    """A row for each forecast, in order, and a last one for what came; None without a forecast.

    Parameters
    ----------
    forecasts
        The records of `stanct.samplers._forecast`.
    draws
        Kept draws of each chain that were made.
    came
        Standard error of log Z, NaN for a run without it.
    """
    import pandas as pd

    if not forecasts:
        return None
    rows = {str(one["after"]): [one[name] for name in COLUMNS] for one in forecasts}
    seconds = provenance["seconds"]
    rows["came"] = [seconds, seconds, provenance["gradients"], draws, came]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=pd.Index(COLUMNS))
    return table.astype({"at": float, "seconds": float, "std_error": float})
