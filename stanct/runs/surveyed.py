"""The modes that a run's search found, beside the run's own draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.modes import mode_columns
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


def surveyed_modes(run: Any, evidence: Evidence | None) -> dict[str, Array] | None:
    """The modes that pilots found, with their weights in a run; see `mode_columns`.

    None where the base was not fitted by pilots. `evidence` is the run's log Z without warnings;
    None for methods that estimate none.
    """
    survey = run.provenance.get("survey")
    if survey is None or np.shape(survey["place"])[-1] != run.z.shape[-1]:
        return None
    unwhiten = np.asarray if run.base is None else run.base.unwhiten
    # The copies of a draw are rows of their own.
    z = run.z.reshape(run.chains, -1, run.z.shape[-1])
    return mode_columns(survey, z, unwhiten, run.target_log_weights, evidence)


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
        "modes found": len(survey["log_evidence"]),
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
    count = len(facts["log_evidence"])
    modes = f"{count} mode{'s' * (count != 1)}"
    if not facts["starts"]:
        known = f"No ascent told of modes: chains and approximations know {modes}"
        if facts["unseen"] == 1:
            return f"{known}, and how likely another is, is not known."
        return (
            f"{known}. One more approximation would lie apart from the others with a chance of "
            f"{facts['unseen']:.1%}. Along necks and ridges that is common, and tells of no mode."
        )
    chance = f"{facts['unseen']:.1%}" if facts["unseen"] else f"below {1 / facts['starts']:.1%}"
    of_any = facts.get("unseen_of_any", 0.0)
    lighter = of_any > facts["unseen"]
    light = f", and that it ends at a new one, however light, {of_any:.1%}" if lighter else ""
    return (
        f"{facts['starts']} ascents from up to {facts['radius']:g} around the origin, and around "
        f"modes, found {modes} with at least a thousandth of the largest mass; the chance that one "
        f"more finds another such mode is {chance}{light}. "
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
