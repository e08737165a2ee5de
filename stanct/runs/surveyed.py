"""The modes that a run's search found, beside the run's own draws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, counted
from stanct.estimates.averages import expectation, weighted_quantile
from stanct.estimates.digits import bound
from stanct.estimates.modes import (
    likeliest,
    masses_of,
    means_by_mode,
    mode_columns,
    mode_shares,
    modes_of,
)
from stanct.estimates.naming import Place, by_interest, label, places_of, variable
from stanct.estimates.path import Evidence
from stanct.path.grids import GridsBase
from stanct.path.product import ProductBase
from stanct.runs.diagnostics import (
    FOUND_AGAIN,
    WORTH,
    Check,
    modes_check,
    rough_check,
    searched_check,
    unsettled_check,
)
from stanct.runs.inference import variables_at

if TYPE_CHECKING:
    import pandas as pd

# Scalars whose means the table of modes has, and whose values that of optima.
MOST_MEANS, MOST_THERE = 6, 12
# Scalars that are looked at for it, and how far apart middles lie of modes that are told apart.
MOST_TOLD_APART, APART = 100, 4.0
# Optima with less of the weight are not asked in which scalars they differ.
LIGHT = 0.01
OF_PEAKS = "Short chains move between the peaks of one mode."
THREE_QUARTERS = np.array([0.25, 0.5, 0.75])

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
        """The modes that pilots found, largest pilots' mass first, with their weights in this run.

        Its columns are `weight` and its `std_error`; `log_z`, the log of the mode's mass, with its
        `log_z_std_error`, or, for methods without an evidence, the rough `pilot_log_z` and
        `pilot_weight` of the search; and `chains`, the number of chains with at least a tenth of
        the weight. Then come weighted means of up to six scalars: those that tell modes apart, and
        then those that a reader asks for first. They are over the draws that `mode_of_draws` gives
        the mode, and NaN where it has none; ``summary(by="mode")`` has all scalars, with errors. A
        scalar with the name of another column is left out.

        A weight is the share of the draws that `mode_of_draws` gives the mode. Wide mass around a
        mode counts with it. Of another region, ``expect(lambda v: v["x"] > 3)`` tells the
        probability.

        A mode may hold several peaks between which short chains move: the column `optima` says how
        many `optima` have a hundredth of its weight or more. A mean is NaN where hardly any
        draw lies, as between two peaks.

        The numbers of modes are not those of `optima`, whose column `mode` has them. None where the
        base was not fitted by pilots.
        """
        import pandas as pd

        if self.mode_columns is None:
            return None
        number = pd.RangeIndex(1, len(self.mode_columns["weight"]) + 1, name="mode")
        unused = "pilot_" if self._mode_evidence is not None else "log_z"
        own = {name: v for name, v in self.mode_columns.items() if not name.startswith(unused)}
        return pd.DataFrame({**own, **self._peaks(), **self.mode_means}, index=number)

    @property
    def optima(self) -> pd.DataFrame | None:
        """The optima at which ascents of the search ended, those of the largest masses first.

        Its columns are the `weight` of the draws that belong to each, with its `std_error`; the
        `mode` of `modes` that encloses it; the `log_mass` of the Gaussian of its curvature, natural
        log, and `seen`, the number of the search's ascents that ended there, 0 where scans around
        modes alone did; and there up to twelve scalars, of these first those in which optima
        differ. Optima have numbers of their own: optimum 5 need not be in mode 5.
        A draw belongs to the optimum that it is most likely of, by their Gaussians. None without a
        search, or where no ascent ended at an optimum.
        """
        import pandas as pd

        run: Any = self
        if self.optima_columns is None:
            return None
        own = dict(self.optima_columns)
        place = own.pop("place")
        values = variables_at(place[None], run.programs.get("density"), run.data)
        there = {
            label(*one): variable(values, label(*one))[0]
            for one in self._scalars_by_interest
            if one[0] in values and label(*one) not in own
        }
        differs = {
            name: _differs(found[own["weight"] > LIGHT], *self._of_draws(name))
            for name, found in there.items()
        }
        first = sorted(there, key=lambda name: not differs[name])[:MOST_THERE]
        there = {name: there[name] for name in first}
        number = pd.RangeIndex(1, len(place) + 1, name="optimum")
        return pd.DataFrame({**own, **there}, index=number)

    @property
    def heavy_optima(self) -> Array:
        """Places in `optima` of those with a hundredth of the draws' weight, the heaviest first.

        None unless a mode holds several of them.
        """
        found = self.optima_columns
        if found is None:
            return np.array([], int)
        order = np.argsort(-found["weight"], kind="stable")
        heavy = order[found["weight"][order] >= LIGHT]
        return heavy if len(heavy) > len(np.unique(found["mode"][heavy])) else heavy[:0]

    def _peaks(self) -> dict[str, list[int]]:
        """How many optima have a hundredth of each mode's weight; empty without optima."""
        found = self.optima_columns
        if found is None:
            return {}
        assert self.mode_columns is not None
        modes = range(1, len(self.mode_columns["weight"]) + 1)
        own = [found["weight"][found["mode"] == mode] for mode in modes]
        return {"optima": [int((weight > 0.01 * weight.sum()).sum()) for weight in own]}

    @cached_property
    def optima_columns(self) -> dict[str, Array] | None:
        """The first columns of `optima`, and the `place` of each; None if there are none."""
        run: Any = self
        found = (run.provenance.get("survey") or {}).get("optima")
        if found is None or self._placed is None:
            return None
        place, log_mass = np.array(found["place"]), np.array(found["log_mass"])
        survey, z, unwhiten, log_weights = self._placed
        shares = mode_shares(survey, place[None], np.asarray, np.zeros((1, len(place))))
        own = mode_shares({**found, "log_evidence": log_mass}, z, unwhiten, log_weights)
        nearest = own.argmax(axis=-1)[..., None] == np.arange(len(place))
        weight = expectation(nearest.astype(float), log_weights, 1, **run.alike)
        return {
            "place": place,
            "weight": weight.value,
            "std_error": weight.std_error,
            "mode": likeliest(survey, shares)[0] + 1,
            "log_mass": log_mass,
            "seen": np.array(found["seen"]),
        }

    @cached_property
    def mode_columns(self) -> dict[str, Array] | None:
        """The columns of `modes` that do not depend on the names of parameters."""
        run: Any = self
        if self._placed is None or self.mode_of_draws is None:
            return None
        masses = masses_of(self._placed[0])
        own = self.mode_of_draws[..., None] == np.arange(1, masses.size + 1)
        log_weights = self._placed[-1]
        return mode_columns(
            own.astype(float), masses, log_weights, self._mode_evidence, **run.alike
        )

    @cached_property
    def pilot_columns(self) -> dict[str, Array] | None:
        """The same of each Gaussian of the search, and the `mode` that it belongs to, from 1.

        A draw counts for several where they overlap, so that a weight is near the pilot's.
        """
        run: Any = self
        if self._placed is None:
            return None
        survey, *_, log_weights = self._placed
        share, pilots = mode_shares(*self._placed), np.array(survey["log_evidence"])
        found = mode_columns(share, pilots, log_weights, self._mode_evidence, **run.alike)
        return found | {"mode": modes_of(survey) + 1}

    @cached_property
    def mode_means(self) -> dict[str, Array]:
        """The other columns of `modes`, by the names of the scalars; empty without modes."""
        if self.mode_columns is None:
            return {}
        run: Any = self
        variables, log_weights = run.rows
        inside = self._inside("mode") or {}
        return {
            label(name, index): means_by_mode(variables[name][..., *index], log_weights, inside)
            for name, index in self._first_scalars
            if label(name, index) not in self.mode_columns
        }

    def _of_draws(self, name: str) -> tuple[Array, Array]:
        """A scalar of the draws, and their log weights, shape (chains, draws)."""
        run: Any = self
        variables, log_weights = run.rows
        return np.asarray(variable(variables, name), float), log_weights

    @property
    def _scalars_by_interest(self) -> list[Place]:
        """The scalars that a reader asks for first."""
        run: Any = self
        variables = run.rows[0]
        order = by_interest(variables, run.provenance.get("parameters", ()))
        return places_of(variables, order)[:MOST_TOLD_APART]

    @cached_property
    def _first_scalars(self) -> list[Place]:
        """The scalars that a reader asks for first, of these first those that tell modes apart."""
        run: Any = self
        variables, log_weights = run.rows
        order, inside = self._scalars_by_interest, self._inside("mode") or {}
        if len(inside) > 1:
            apart = [
                _tells_apart(variables[name][..., *index], log_weights, inside)
                for name, index in order
            ]
            order = [one for tells in (True, False) for one, own in zip(order, apart, strict=True)
                     if own is tells]  # fmt: skip
        return order[:MOST_MEANS]

    @cached_property
    def mode_of_draws(self) -> Array | None:
        """The number of each draw's mode in `modes`, from 1, shape of `target_log_weights`.

        It is the mode to which the draw most likely belongs: that of the nearest pilot's Gaussian,
        by mass. 0 for draws that have no weight. None without modes.
        """
        if self._placed is None:
            return None
        counts = np.isfinite(self._placed[-1])
        return np.where(counts, likeliest(self._placed[0], mode_shares(*self._placed)) + 1, 0)

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
        return self._placed is not None and bool(modes_of(self._placed[0]).any())

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
        return {k: numbers == k for k in range(1, modes_of(self._placed[0]).max() + 2)}

    def _mode_numbers(self, name: str) -> dict[str, Array]:
        """`mode_of_draws` by a name; empty unless several modes are known."""
        modes = self.mode_of_draws
        return {name: modes} if self._several_modes and modes is not None else {}


def surveyed_checks(
    modes: Mapping[str, Array] | None, remedy: str, survey: Mapping[str, Any] | None
) -> tuple[Check, ...]:
    """Check that a run has lost no mode that its pilots measured, and that a search had an end.

    `modes` are a run's `pilot_columns`.
    """
    if modes is None:
        return ()
    known = survey or {}
    again = known.get("again")
    if again is not None and again < FOUND_AGAIN:
        return (rough_check(again, known["starts"], known["unseen_of_any"]),)
    if known.get("settled") is False:
        return (unsettled_check(known["particles"], int(modes["mode"].max())),)
    optima = known.get("optima")
    looked = [searched_check(known)] if optima and known["starts"] else []
    return (modes_check(modes, remedy), *looked)


def _tells_apart(values: Array, log_weights: Array, inside: Mapping[int, Array]) -> bool:
    """Whether two modes differ in a scalar, shape (chains, draws), by more than it varies in them.

    The middles of their draws lie farther apart than `APART` of half their widths.
    """
    quarters = np.array([
        weighted_quantile(values, np.where(its, log_weights, -np.inf), THREE_QUARTERS)
        for its in inside.values() if np.isfinite(log_weights[its]).any()
    ])  # fmt: skip
    low, middle, high = quarters.T
    width = (high - low) / 2
    gaps = np.abs(middle[:, None] - middle)
    return bool((gaps > APART * (width[:, None] + width) / 2 + 1e-300).any())


def _differs(found: Array, values: Array, log_weights: Array) -> bool:
    """Whether optima, shape (N,), lie farther apart in a scalar than its standard deviation."""
    if not found.size:
        return False
    weights = np.exp(log_weights - log_weights.max())
    mean = np.average(values, weights=weights)
    return bool(np.ptp(found) > np.sqrt(np.average(np.square(values - mean), weights=weights)))


def survey_facts(survey: Mapping[str, Any] | None) -> dict[str, float]:
    """Single numbers that describe a search, label to value.

    A mode counts with at least a thousandth of the largest mass. A spike as narrow as is told, with
    as much mass as its mode, is found with a probability of 95 %.
    """
    chance = "chance that another start finds a new mode that counts"
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
    spikes = {"how many times narrower a spike inside a mode may be": finest}
    light = survey.get("unseen_of_any") or 0.0
    return {
        "modes found": int(modes_of(survey).max()) + 1,
        "starts of the search": survey["starts"],
        "largest radius searched": survey["radius"],
        chance if known else f"{chance}, below": survey["unseen"] or 1 / survey["starts"],
        **({"chance that another start finds a new mode, however light": light} if light else {}),
        "annealed particles of the search": survey.get("particles", 0),
        **(spikes if finest > 1 else {}),
    }


def searched(run: Any) -> str:
    """State in words where modes were searched and how likely another is."""
    facts = run.provenance.get("survey")
    if facts is None:
        looked = run.provenance.get("search") is not None
        where = "from random starts for mass where the fit has no draws"
        return f"A search looked {where}." if looked else "No search looked for modes."
    if isinstance(run.base, (ProductBase, GridsBase)):
        in_pairs = isinstance(run.base, GridsBase)
        but, each = (", but in pairs", "each or each pair") if in_pairs else ("", "each")
        return (
            f"{facts['starts']} ascents from up to {facts['radius']:g} around the origin ended at "
            f"modes where no parameter tells anything of another{but}. So {each} has a density of "
            "its own, with all of its modes, and their product has all that these make together."
        )
    known = int(modes_of(facts).max()) + 1
    modes = counted(known, "mode")
    if not facts["starts"]:
        return (
            "No ascent of the density ended at a mode, as is common in hierarchies. Chains and "
            f"approximations know {modes}, and how likely another is, is not known."
        )
    unseen = facts["unseen"]
    chance = f"{unseen:.1%}" if unseen else f"below {bound(100 / facts['starts'], ceil)}%"
    of_any, optima = facts.get("unseen_of_any", 0.0), facts.get("optima")
    ended = f"ended at {counted(optima['ends'], 'optimum', 'optima')} and " if optima else ""
    lighter, named = of_any > unseen, facts.get("named", 0)
    light = f", and that it ends at a new one, however light, {of_any:.1%}" if lighter else ""
    return (
        f"{facts['starts']} ascents from up to {facts['radius']:g} around the origin of the "
        f"unconstrained space, and around modes, {ended}found {modes} with at least a thousandth "
        "of the largest mass; the chance that one more finds another such mode is "
        f"{chance}{light}. "
        + (_several(len(run.heavy_optima)) if len(run.heavy_optima) else "")
        + (_named(facts) if named else "")
        + ("Wide mass around a mode counts with it. " * (known < len(facts["log_evidence"])))
        + ("" if facts.get("whole") else _finest(facts.get("finest")))
    ).rstrip()


def _several(peaks: int) -> str:
    return f"The draws are at {peaks} peaks (run.optima). {OF_PEAKS} "


def _named(facts: Mapping[str, Any]) -> str:
    whole = bool(facts.get("whole"))
    rest = " They are Gaussian and explain all that was seen; nothing else was looked for."
    return f"The {facts['named']} components that the program names were followed.{rest * whole} "


def _finest(ratio: float | None) -> str:
    if ratio is None:  # a run that an earlier version saved
        return ""
    if ratio <= 1:
        return "Spikes inside a mode were not looked for."
    return (
        "A spike inside a mode, with as much mass and up to "
        f"{bound(ratio, floor)} times narrower, is found with a probability of 95%."
    )


def searched_in_short(provenance: Mapping[str, Any]) -> str:
    """Where a run looked for mass, in a few words."""
    starts = provenance.get("survey", {}).get("starts", 0)
    return f"where {starts} ascents and the base looked" if starts else "where the base lies"


def mode_size(modes: Mapping[str, Array] | None) -> float:
    """Least number of independent draws that would tell the weight of a mode as precisely.

    Ranks of coordinates hardly show chains that seldom change to a rare mode.
    """
    if modes is None:
        return np.inf
    weight, error, pilots = (
        np.asarray(modes[name], float) for name in ("weight", "std_error", "pilot_weight")
    )
    counts = (error > 0) & (pilots >= WORTH)
    sizes = weight[counts] * (1 - weight[counts]) / np.square(error[counts])
    return float(sizes.min(initial=np.inf))
