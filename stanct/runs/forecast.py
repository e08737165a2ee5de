"""What a run foretold of itself, beside what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = ("at", "seconds", "gradients", "draws", "std_error")


def forecast_table(
    forecasts: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, Any],
    draws: int,
    came: float,
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


def promise(provenance: Mapping[str, Any], came: float | None) -> str:
    """The first forecast that is no bound, and what came, in one line; empty without one.

    `came` is the standard error of log Z, and the forecast is the first one with such an error. It
    is None for a run without log Z, which has forecasts of its time.
    """
    told = [one for one in provenance.get("forecasts", ()) if not one.get("bound", False)]
    first = next((one for one in told if came is None or one["std_error"] is not None), None)
    if first is None:
        return ""
    how = "" if came is None else f" and ± {first['std_error']:.2g}"
    what = "" if came is None else f" and ± {came:.2g}"
    return (
        f"Forecast after {first['at']:.1f} s: {first['seconds']:.1f} s{how}; came "
        f"{provenance['seconds']:.1f} s{what}"
    )
