"""`Many`: the evidence of many data sets under one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.runs.verbs import Reported

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Many(Reported):
    """The evidence of many data sets under one program.

    Attributes
    ----------
    table
        One row for each data set, by name, in the order in which they were given: `log_z`,
        `std_error`, `pareto_k`, `method`, `gradients`, `seconds`, `failed` (names of failed checks,
        as text), `error` (why there is no result, otherwise empty), `mean_NAME` and `error_NAME` of
        the variables asked for, and `rank_NAME`, the share of the posterior below a true value, for
        `Simulated` data.
    seed
        Seed of all runs.
    complete
        Whether every data set has a row.
    """

    table: pd.DataFrame
    seed: int
    complete: bool = True
    label: str = field(default="", repr=False)

    @property
    def reliable(self) -> pd.DataFrame:
        """The rows without an error and without a failed check."""
        calm = (self.table["error"] == "") & (self.table["failed"] == "")
        return self.table.loc[calm.to_numpy()]

    def __repr__(self) -> str:
        done, calm = len(self.table), len(self.reliable)
        lacking = int(np.sum(self.table["error"] != ""))
        parts = [f"{done} data sets", f"{calm} without a failed check"]
        if lacking:
            parts.append(f"{lacking} without a result")
        if not self.complete:
            parts.append("stopped before the end")
        return f"Many of {self.label}: {', '.join(parts)}"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


def table_of(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The rows as a DataFrame, in their order."""
    import pandas as pd

    columns = ("log_z", "std_error", "pareto_k", "method", "gradients", "seconds")
    records = []
    for row in rows.values():
        record = {name: row.get(name, np.nan) for name in columns}
        record |= {"failed": ", ".join(row.get("failed", [])), "error": row["error"]}
        for name, (value, error) in row.get("means", {}).items():
            record |= {f"mean_{name}": value, f"error_{name}": error}
        record |= {f"rank_{name}": rank for name, rank in row.get("ranks", {}).items()}
        records.append(record)
    found = pd.DataFrame(records, index=pd.Index(list(rows), name="data set"))
    return found.reindex(columns=[*columns, "failed", "error"]) if found.empty else found
