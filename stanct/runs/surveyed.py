"""The modes that a run's search found, beside the run's own draws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, counted
from stanct.estimates.modes import means_by_mode, mode_columns, mode_shares
from stanct.estimates.naming import by_interest, label, places_of
from stanct.estimates.path import Evidence
from stanct.path.product import ProductBase
from stanct.runs.diagnostics import (
    FOUND_AGAIN,
    WORTH,
    Check,
    modes_check,
    rough_check,
    unsettled_check,
)

if TYPE_CHECKING:
    import pandas as pd

# Scalars whose means the table of modes has.
MOST_MEANS = 6

AGAIN = (
    "The chains lost a mode: run longer ones (draws=), or pass base='mixture' to a method "
    "that draws from its base."
)
"""Remedy for methods that draw from their base again."""
ELSEWHERE = (
    "The chains lost a mode, and nothing in this method moves them there. Use the default method, "
    "or method='simulated_tempering'."
)
"""Remedy for the others."""


class Surveyed:
    """A run that knows the modes that its search found."""

    @property
    def modes(self) -> pd.DataFrame | None:
        """The modes that pilots found, best first, with their weights in this run.

        Its columns are those of `mode_columns`, and then the weighted means of up to six scalars,
        those that a reader asks for first. They are over the draws that `mode_of_draws` gives the
        mode, and NaN where it has none; ``summary(by="mode")`` has all scalars, with errors. A
        scalar with the name of another column is left out. None where the base was not fitted by
        pilots. Without an evidence, `log_z` is NaN.
        """
        import pandas as pd

        if self.mode_columns is None:
            return None
        number = pd.RangeIndex(1, len(self.mode_columns["weight"]) + 1, name="mode")
        return pd.DataFrame({**self.mode_columns, **self.mode_means}, index=number)

    @cached_property
    def mode_columns(self) -> dict[str, Array] | None:
        """The columns of `modes` that do not depend on the names of parameters."""
        return None if self._placed is None else mode_columns(*self._placed, self._mode_evidence)

    @cached_property
    def mode_means(self) -> dict[str, Array]:
        """The other columns of `modes`, by the names of the scalars; empty without modes."""
        if self.mode_columns is None:
            return {}
        run: Any = self
        variables, log_weights = run.rows
        order = by_interest(variables, run.provenance.get("parameters", ()))
        inside = self._inside("mode") or {}
        return {
            label(name, index): means_by_mode(variables[name][..., *index], log_weights, inside)
            for name, index in places_of(variables, order)[:MOST_MEANS]
            if label(name, index) not in self.mode_columns
        }

    @cached_property
    def mode_of_draws(self) -> Array | None:
        """The number of each draw's mode in `modes`, from 1, shape of `target_log_weights`.

        It is the mode to which the draw most likely belongs: that of the nearest pilot's Gaussian,
        by mass. 0 for draws that have no weight. None without modes.
        """
        if self._placed is None:
            return None
        counts = np.isfinite(self._placed[-1])
        return np.where(counts, mode_shares(*self._placed).argmax(axis=-1) + 1, 0)

    @property
    def _placed(self) -> tuple[Mapping[str, Any], Array, Any, Array] | None:
        """The arguments of `mode_shares`; None without modes."""
        run: Any = self
        survey = run.provenance.get("survey")
        if survey is None or np.shape(survey["place"])[-1] != run.z.shape[-1]:
            return None
        unwhiten = np.asarray if run.base is None else run.base.unwhiten
        # The copies of a draw are rows of their own.
        z = run.z.reshape(run.chains, -1, run.z.shape[-1])
        return survey, z, unwhiten, run.target_log_weights

    @property
    def _mode_evidence(self) -> Evidence | None:
        """The run's log Z without warnings; None for methods that estimate none."""
        return None

    @property
    def _several_modes(self) -> bool:
        return self._placed is not None and len(self._placed[0]["log_evidence"]) > 1

    def _inside(self, by: str | None) -> dict[int, Array] | None:
        """Which of `rows` each mode has, by its number, for a summary by ``"mode"``."""
        if by is None:
            return None
        if by != "mode":
            raise StanctError(f"by must be 'mode' or None, not {by!r}.")
        if self._placed is None or self.mode_of_draws is None:
            raise StanctError(
                "The run knows no modes, so it has no summary by mode.",
                remedy="Let it search for them: base='modes', which is the default.",
            )
        run: Any = self
        numbers = self.mode_of_draws.reshape(run.rows[1].shape)
        return {k: numbers == k for k in range(1, len(self._placed[0]["log_evidence"]) + 1)}

    def _mode_numbers(self, name: str) -> dict[str, Array]:
        """`mode_of_draws` by a name; empty unless several modes are known."""
        modes = self.mode_of_draws
        return {name: modes} if self._several_modes and modes is not None else {}


def surveyed_checks(
    modes: Mapping[str, Array] | None, remedy: str, survey: Mapping[str, Any] | None
) -> tuple[Check, ...]:
    """Check that a run has lost no mode that its pilots measured, and that a search had an end."""
    if modes is None:
        return ()
    known = survey or {}
    again = known.get("again")
    if again is not None and again < FOUND_AGAIN:
        return (rough_check(again, known["starts"], known["unseen_of_any"]),)
    if known.get("settled") is False:
        return (unsettled_check(known["particles"], len(modes["weight"])),)
    return (modes_check(modes, remedy),)


def survey_facts(survey: Mapping[str, Any] | None) -> dict[str, float]:
    """Single numbers that describe a search, label to value."""
    chance = "chance that another start finds a new mode"
    if survey is None:
        return {"starts of the search": 0}
    if not survey["starts"]:
        known = len(survey["log_evidence"])
        apart = "chance that another approximation lies apart"
        return {"modes found": known, "starts of the search": 0, apart: survey["unseen"]}
    # Where every mode was found twice, one in so many starts is as much as can be said.
    known = bool(survey["unseen"])
    # Runs that an earlier version saved have fewer numbers.
    finest = survey.get("finest", 1.0)
    spikes = {"spikes inside a mode are found if narrower by at most": finest}
    light = survey.get("unseen_of_any") or 0.0
    return {
        "modes found": len(survey["log_evidence"]) - survey.get("around", 0),
        "starts of the search": survey["starts"],
        "largest radius searched": survey["radius"],
        chance if known else f"{chance}, below": survey["unseen"] or 1 / survey["starts"],
        **({"chance that it ends at a new one, however light": light} if light else {}),
        "annealed particles of the search": survey.get("particles", 0),
        **(spikes if finest > 1 else {}),
    }


def searched(run: Any, *, spikes: bool = True) -> str:
    """State in words where modes were searched and how likely another is.

    A run can only be right about the region that it has seen.
    """
    facts = run.provenance.get("survey")
    if facts is None:
        looked = run.provenance.get("search") is not None
        where = "from random starts for mass where the fit has no draws"
        return f"A search looked {where}." if looked else "No search looked for modes."
    if isinstance(run.base, ProductBase):
        return (
            f"{facts['starts']} ascents from up to {facts['radius']:g} around the origin ended at "
            "modes where no parameter tells anything of another. So each has a density of its own, "
            "with all of its modes, and their product has all that these make together."
        )
    around = facts.get("around", 0)  # a run that an earlier version saved has none
    modes = counted(len(facts["log_evidence"]) - around, "mode")
    if not facts["starts"]:
        return (
            "No ascent of the density ended at a mode, as is common in hierarchies. Chains and "
            f"approximations know {modes}, and how likely another is, is not known."
        )
    chance = f"{facts['unseen']:.1%}" if facts["unseen"] else f"below {1 / facts['starts']:.1%}"
    of_any = facts.get("unseen_of_any", 0.0)
    lighter = of_any > facts["unseen"]
    light = f", and that it ends at a new one, however light, {of_any:.1%}" if lighter else ""
    return (
        f"{facts['starts']} ascents from up to {facts['radius']:g} around the origin, and around "
        f"modes, found {modes} with at least a thousandth of the largest mass; the chance that one "
        f"more finds another such mode is {chance}{light}. "
        + ("Wide mass around a mode counts as one more. " if around else "")
        + (_finest(facts.get("finest")) if spikes else "")
    ).rstrip()


def _finest(ratio: float | None) -> str:
    if ratio is None:  # a run that an earlier version saved
        return ""
    if ratio <= 1:
        return "Spikes inside a mode were not looked for."
    return (
        "A spike inside a mode, with as much mass and up to "
        f"{float(f'{ratio:.2g}'):g} times narrower, is found with a probability of 95%."
    )


def searched_in_short(provenance: Mapping[str, Any]) -> str:
    """Where a run looked for mass, in a few words."""
    starts = provenance.get("survey", {}).get("starts", 0)
    return f"where {starts} ascents and the base looked" if starts else "where the base lies"


def mode_size(modes: Mapping[str, Array] | None) -> float:
    """Least number of independent draws that would tell the weight of a mode as precisely.

    Chains that change between modes a few times tell little of their weights, and the ranks of
    coordinates, on which R-hat and bulk effective sizes rest, hardly show it where one mode is
    rare. Infinite without a mode that counts and was both visited and left.
    """
    if modes is None:
        return np.inf
    weight, error, pilots = (
        np.asarray(modes[name], float) for name in ("weight", "std_error", "pilot_weight")
    )
    counts = (error > 0) & (pilots >= WORTH)
    sizes = weight[counts] * (1 - weight[counts]) / np.square(error[counts])
    return float(sizes.min(initial=np.inf))
