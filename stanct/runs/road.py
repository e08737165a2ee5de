"""The road of a run: what each maker of its base and each method did, what it cost and gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = "parts", "draws", "gradients", "evaluations", "log_z", "std_error"
COLUMNS = ["step", "form", *_NUMBERS, "found"]


@dataclass(frozen=True)
class Road:
    """What led to a run, read from its provenance.

    `base` is the kind of the run's base. `makers` says what each maker did, in turn: its name,
    gradients, log densities without one, parts that it added, what it found, and the number of the
    program's form. `methods` are the steps of the default, or the method that was named.
    """

    base: str
    makers: tuple[Mapping[str, Any], ...]
    methods: tuple[Mapping[str, Any], ...]
    gradients: Mapping[str, int]

    @classmethod
    def of(cls, provenance: Mapping[str, Any], base: object, method: str) -> Road:
        """The road from a run's provenance, its base and the name of its method."""
        steps = provenance.get("steps") or [{"method": method, "because": "you named it"}]
        return cls(
            type(base).__name__,
            tuple(provenance.get("road", ())),
            tuple(steps),
            dict(provenance.get("stage_gradients", {})),
        )

    @property
    def parts(self) -> dict[str, int]:
        """Parts by maker, of makers that added some."""
        found: dict[str, int] = {}
        for one in self.makers:
            if one["parts"]:
                found[one["maker"]] = found.get(one["maker"], 0) + one["parts"]
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `table`, each with those of `COLUMNS` that it knows."""
        rows = [
            {"step": one["maker"], "found": one["said"] or "nothing"}
            | {name: one.get(name) for name in ("form", "parts", "gradients", "evaluations")}
            for one in self.makers
        ]
        before = self.gradients.get("base", 0)
        for one in self.methods:
            total = one.get("gradients")
            row = {"step": one["method"], "draws": one.get("made"), "found": one["because"]}
            row |= {"log_z": one.get("log_z"), "std_error": one.get("std_error")}
            if total is not None:
                row["gradients"], before = total - before, total
            rows.append(row)
        return rows

    def table(self) -> pd.DataFrame:
        """A row for each maker and each method, in the order in which they were asked.

        `found` is what it found, or why a method was taken. Methods have draws and log Z, too.
        """
        import pandas as pd

        return pd.DataFrame(self.rows(), columns=COLUMNS)
