"""Whether two runs are on the same data, without which their evidences cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stanct.common.errors import StanctError
from stanct.runs.run import Run


def declared_data(run: Run) -> dict[str, Any]:
    """The data that a run's program declares, as JSON values."""
    values = json.loads(run.data)
    # A saved run may lack this record. Then everything in its data file counts.
    declared = run.provenance.get("data_names", list(values))
    return {name: values[name] for name in declared}


def refuse_other_data(
    first: str,
    a: Mapping[str, Any],
    second: str,
    b: Mapping[str, Any],
    observed: Sequence[str] | None,
) -> None:
    """Raise `StanctError` unless two runs are on the same data.

    Parameters
    ----------
    first, a, second, b
        Names of two models, and the data that their programs declare.
    observed
        Names of the data that must agree; None for all that both declare.
    """
    both = f"{first!r} and {second!r}"
    shared = [name for name in a if name in b]
    if observed is not None:
        for name in observed:
            if name not in shared:
                where = first if name not in a else second
                raise StanctError(
                    f"The program of {where!r} declares no data `{name}`, which observed= names.",
                    remedy=f"{both} share: {', '.join(shared) or 'nothing'}.",
                )
        shared = list(observed)
    if (a or b) and not shared:
        raise StanctError(
            f"{both} share no data: one declares {', '.join(a) or 'nothing'}, the other "
            f"{', '.join(b) or 'nothing'}.",
            remedy="Evidences of different data cannot be compared. Give the same observations the "
            "same name in both programs.",
        )
    different = [name for name in shared if not _same(a[name], b[name])]
    if different:
        agree = [name for name in shared if name not in different]
        raise StanctError(
            f"{both} ran on different data: `{'`, `'.join(different)}` "
            f"{'differ' if len(different) > 1 else 'differs'}"
            f"{', `' + '`, `'.join(agree) + '` agree' if agree else ''}.",
            remedy="Evidences of different data cannot be compared. If only covariates differ, "
            "name the observations (observed=, or --observed).",
        )


def _same(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same data; 1 and 1.0 are equal."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b or (a != a and b != b)
