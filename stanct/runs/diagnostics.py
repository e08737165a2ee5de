"""Named checks on a run, each with value, threshold, verdict and remedy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import as_written, counted, first_few
from stanct.common.names import METHOD_NAMES
from stanct.estimates.digits import percent
from stanct.estimates.path import Evidence
from stanct.estimates.tail import MOST_SHAPE, Tail
from stanct.runs.verdicts import Check, check, least, mendable, most

# Tempered densities have stiff corners near the base, where a divergence is merely a rejection.
MOST_DIVERGENT = 0.05

# Remedy shared by many checks.
MORE = "Run longer chains (draws=, --draws)."
WHOLE = "A chain that was cut short is made again, or its file is copied whole."

LOOK_FOR_REJECTIONS = (
    "Look for reject(), overflow, or a support that the declarations do not state."
)

DECLARE = "Declare the target's support in the program, or pass a base inside it (base=)."
# Share of the base's draws at which the target may vanish before that is the first thing to mend.
MOST_HOLES = 0.01

# How many errors log Z may be below that of draws in two stages. What misses necks is too low, and
# the second error leaves few gaps above three for what is off by three of the first.
BELOW = 2.0

# How many times their range data may lie from zero.
FAR = 100.0

# The weight of a mode of at least this share must not be below a fourth of its pilots' share.
WORTH, VANISHED = 0.02, 0.25

# Share of a fit's draws, or of imported ones, that may be left out.
MOST_LOST = 0.01

# Where most modes were seen once, so many ascents have to lead to the best one, or to others as
# good. The search goes on until then (`stanct.bases.search.AGAIN`).
FOUND_AGAIN = 6
# Optima whose log masses are this near that of the best are as good (`stanct.bases.rough`).
AS_GOOD = 1.0


def refit(settings: Mapping[str, Any]) -> str:
    """The remedy for a base that does not fit: more refitting rounds than the run had."""
    rounds = max(2, settings.get("bootstrap", 0) + 1)
    return f"refit the base in more rounds (bootstrap={rounds}), or pass a wider one (base=)."


def interrupted_check(draws: int, wanted: int, time_limit: float | None) -> Check:
    """Check that all requested draws have been made."""
    kept = f"{draws} of {wanted} draws a chain were kept"
    if time_limit is None:
        remedy = "The estimates use the finished draws; run again for the rest."
        return least("interrupted", draws, wanted, f"{kept}.", remedy)
    if time_limit == 0:  # what a checkpoint holds
        remedy = "The estimates use these draws; repeat the run's call for the rest."
        return check("interrupted", draws, wanted, False, f"{kept} in the checkpoint.", remedy)
    if draws >= wanted:
        kept = "all draws were kept, but not what follows them, such as a further run"
    return check(
        "max_seconds", draws, wanted, False,
        f"max_seconds={time_limit:g} passed: {kept}.",
        "The estimates use the finished draws; allow more time for the rest.",
    )  # fmt: skip


def length_check(
    draws: int,
    wanted: int,
    evidence: Evidence,
    stopped: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    time_limit: float | None,
) -> Check:
    """Check that the run is as long as requested, or as precise if a precision was requested.

    `stopped` is the provenance's record of why the run stopped; None for runs that were extended.
    """
    if stopped is not None and stopped.get("effective"):
        if stopped["reason"] == "reached":
            how = f"{enough_in_words(stopped)}, after {draws} draws a chain."
            return check("interrupted", draws, draws, True, how, MORE)
        return interrupted_check(draws, stopped["max_draws"], time_limit)
    if stopped is None or stopped["target_se"] is None:
        return interrupted_check(draws, wanted, time_limit)
    target, reason = stopped["target_se"], stopped["reason"]
    words, remedy = _STOPPED.get(str(reason), (f"{reason}.", MORE))  # of a later version
    if reason == "stalled":
        nearer = "pass a base that is nearer to the target (base=)."
        remedy += refit(settings) if "bootstrap" in settings else nearer
    return check(
        "target_se", evidence.std_error, target, reason == "reached",
        f"The standard error of log Z is {evidence.std_error:.3g}, wanted {target:g}, after "
        f"{draws} draws a chain: {words}",
        remedy,
    )  # fmt: skip


def enough_in_words(stopped: Mapping[str, Any]) -> str:
    """What was enough for a run of which nobody asked for a number of draws or an error."""
    return (
        f"log Z is known to ± {stopped['target_se']:g}, and means rest on "
        f"{stopped['effective']:,} effective draws"
    )


_STOPPED = {
    "reached": ("it was reached.", MORE),
    "limit": ("these are the most allowed.", "Allow more (max_draws=), or ask for less."),
    "warnings": (
        "small enough, but other checks fail at the most draws allowed.",
        "See to the other warnings first; the error is not to be believed.",
    ),
    "stalled": (
        "many times the draws have hardly lowered it.",
        "Chains disagree, or a few draws dominate: ",
    ),
    "interrupted": ("the run was interrupted.", "Run it again."),
    "max_seconds": ("the time was over (max_seconds=).", "Allow more time, or ask for less."),
}


def agreement(gap: float, error: float) -> tuple[float, float, bool]:
    """Value, threshold and verdict on the gap of two estimates; an unknown error allows none."""
    if gap < 1e-9 and error < np.inf:
        return 0.0, 3, True
    score = gap / error if 0 < error < np.inf else float("inf")
    return score, 3, score <= 3


def agreement_check(evidence: Evidence, thermodynamic: Evidence, remedy: str = MORE) -> Check:
    """Check that log Z and its thermodynamic integral agree within their errors."""
    gap = abs(evidence.log_z - thermodynamic.log_z)
    error = float(np.hypot(evidence.std_error, thermodynamic.std_error))
    return check(
        "thermodynamic",
        *agreement(gap, error),
        "No draw has left β = 0, so that there is no thermodynamic integral."
        if np.isnan(thermodynamic.log_z)
        else f"log Z and its thermodynamic integral differ by {gap:.3g}.",
        f"A stretch of the path has not converged. {remedy}",
    )


def origin_checks(facts: Mapping[str, Any]) -> Iterator[Check]:
    """The failed check `program` of a bridge that was tempered, and the loss of imported files."""
    for one in facts.get("bridge", {}).get("program", ()):
        yield Check(**one)
    if (left := facts.get("left_out")) is not None:
        yield most(
            "lost", left["share"], MOST_LOST,
            f"{left['share']:.1%} of the draws of {left['of']} were left out.",
            f"{WHOLE} Then import all.",
        )  # fmt: skip


def two_stages_check(evidence: Evidence, facts: Mapping[str, Any]) -> Iterator[Check]:
    """Check that log Z is not below that of draws in two stages, where the target allows them.

    The provenance's ``"two_stages"`` has it, and whether that base misses mass.
    """
    other = facts.get("two_stages")
    if other is None:
        return
    error = float(np.hypot(evidence.std_error, other["std_error"]))
    below = (other["log_z"] - evidence.log_z) / error if 0 < error < np.inf else 0.0
    refused = other.get("refused", False)
    named = not refused and not facts.get("steps")
    yield most(
        "two_stages", below, BELOW,
        f"log Z of draws in two stages{', a lower bound as they miss mass,' if refused else ''} is "
        f"{other['log_z']:.3f} ± {other['std_error']:.3f}, and this one is {abs(below):.1f} errors "
        f"{'below' if below > 0 else 'above'}.",
        f"The run may miss necks along {first_few(other['given'])}. "
        + ("Use the default method, which draws in two stages." if named else MORE),
    )  # fmt: skip


def centred_first(checks: list[Check], data: str) -> list[Check]:
    """Checks whose remedies begin with the data that lie far from zero beside their range.

    Of times such as Julian dates, a period or a slope and what goes with it depend on each other by
    as much. `data` is JSON. Whole numbers may be indices, and are left alone.
    """
    failed = [name for name in ("search", *mendable(checks))
              if any(one.name == name and not one.passed for one in checks)]  # fmt: skip
    far = [f"`{name}`" for name, v in json.loads(data).items() if _is_far(v)] if failed else []
    if not far:
        return checks
    first = f"Subtract the mean of {first_few(far)}: the data lie far from zero beside their range."
    return [
        replace(one, remedy=f"{first} {one.remedy}") if one.name in failed else one
        for one in checks
    ]


def _is_far(values: Any) -> bool:
    try:
        numbers = np.asarray(values, float)
    except (TypeError, ValueError):
        return False
    if numbers.ndim != 1 or numbers.size < 3 or not (numbers % 1).any():
        return False
    return bool(0 < FAR * np.ptp(numbers) < abs(numbers.mean()))


def tempered_check(value: float, least: float, message: str, settings: Mapping[str, Any]) -> Check:
    """Check that base and target are `least` apart, or a fit made them equal.

    Only with a base of the user's own is it likely that a constant δ is an oversight.
    """
    return check(
        "tempered", value, least, value >= least or settings.get("base") != "given",
        message,
        "Nothing was tempered: the base is the target, or δ is constant.",
    )  # fmt: skip


def beyond_checks(facts: Mapping[str, Any], std_error: float) -> Iterator[Check]:
    """Check that the target has no mass that no draw reaches, by what lines and draws told.

    The provenance's ``"endless"`` names coordinates along which the density does not fall off, and
    ``"rounding"`` has the share of the mass where parameters round to their bounds.
    """
    along = [as_written(name) for name in facts.get("endless", ())]
    if along:
        what = f"The density does not fall off along {first_few(along)}, as far as numbers reach"
        yield check(
            "improper", len(along), 0, False, f"{what}: its integral has no end.",
            f"Give {first_few([f'`{name}`' for name in along])} a proper prior.",
        )  # fmt: skip
    hidden = facts.get("rounding")
    if hidden is not None:
        missing, near = math.log1p(hidden["lost"]), [*map(as_written, hidden["along"])]
        much = f"About {missing:.2g} of log Z" if missing < 1 else "Much of log Z"
        yield most(
            "rounding", missing, std_error / 2,
            f"{much} lies where {first_few(near)} rounds to a bound, where no draw can be.",
            f"Declare the logit or logarithm of {near[0]} as a parameter without that bound, with "
            "its own density.",
        )  # fmt: skip


def tails_check(along: Sequence[str], reached: bool, method: str) -> Iterator[Check]:
    """Check that the base has parts in heavy tails, where there are any, along some coordinates."""
    redraws = method in ("simulated_tempering", "independence")
    other = " and a method that draws from its base (method='simulated_tempering', or the default)"
    if not along:
        return
    yield check(
        "tails", 0 if reached else len(along), 0, reached,
        f"The density has heavy tails along {first_few(along)}"
        + ("; the base reaches there." if reached else ", where a Gaussian base has no draws."),
        f"log Z may be too low, and errors too small. Use base='modes'{other * (not redraws)}.",
    )  # fmt: skip


def weights_check(name: str, tail: Tail, weights: str, remedy: str) -> Check:
    """Check by the rule of `Tail` that no few of the `weights`, so called, decide."""
    said = f"{weights} have tail shape {tail.shape:.2f} and use {tail.share:.0%} of the draws."
    if tail.shape > MOST_SHAPE and not tail.is_heavy:
        said += " No few decide, so that the shape does not matter."
    return check(name, tail.shape, MOST_SHAPE, not tail.is_heavy, said, remedy)


def base_tail_check(base_delta: Array) -> Check:
    """Check that the base reaches all of the target, for chains that move only to its draws.

    Weights of chains do not tell of parts that hardly any draw reaches; those of the base's draws
    do.
    """
    return weights_check(
        "pareto_k_base",
        Tail.of(-base_delta),
        "The importance weights of the base's draws",
        "The base hardly reaches a part of the target. Use a method whose chains move, such as "
        "the default or method='simulated_tempering'.",
    )


def support_check(base_delta: Array) -> Check:
    """Check whether the target vanishes (δ = +inf) at too many draws of the base."""
    outside = float(np.mean(~np.isfinite(base_delta)))
    return most(
        "support", outside, 0.5,
        f"The target vanishes at {outside:.1%} of the base's draws.",
        f"The base lies mostly outside the target's support. {DECLARE}",
    )  # fmt: skip


def mean_weight_checks(evidence: Evidence, draws: str, remedy: str) -> tuple[Check, ...]:
    """Check whether the mean of independent weights, of `draws` by name, can be trusted."""
    size, error = evidence.effective_size, evidence.std_error
    return (
        least("effective_size", size, 100,
              f"The weights are worth {size:.0f} {draws}.", remedy),
        weights_check("pareto_k", evidence.tail, "The weights", remedy),
        most("std_error", error, 0.5,
             f"The standard error of log Z is {error:.2g}; above 0.5 the log of the mean "
             "weight is biased low and its error unreliable.", remedy),
    )  # fmt: skip


def transition_counts(statistics: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients and divergences of each chain if recorded, label to shape (chains,)."""
    labels = {"gradients": "n_leapfrog__", "divergences": "divergent__"}
    return {
        label: statistics[name].sum(axis=1) for label, name in labels.items() if name in statistics
    }


def _raised(name: str, value: float, method: str) -> str:
    """How to pass a setting of a built-in method, in Python and on the command line."""
    if method not in METHOD_NAMES:
        return ""
    kind = method.title().replace("_", "")
    return f": stanct.{kind}({name}={value}), or --method {method} --set {name}={value}"


def transition_checks(
    statistics: Mapping[str, Array], max_depth: int | None, method: str
) -> Iterator[Check]:
    """Check the transitions of a method, as far as it recorded their statistics."""
    divergent = float((statistics["divergent__"] > 0).mean())
    yield most(
        "divergences", divergent, MOST_DIVERGENT,
        f"{divergent:.1%} of the draws had a divergent transition.",
        f"Raise target_accept to 0.95 or 0.99{_raised('target_accept', 0.95, method)}.",
    )  # fmt: skip
    if "treedepth__" in statistics and max_depth is not None:
        deep = float((statistics["treedepth__"] >= max_depth).mean())
        yield most(
            "max_depth", deep, 0.05,
            f"{deep:.1%} of the transitions reached the largest tree depth, {max_depth}.",
            f"Raise max_depth{_raised('max_depth', max_depth + 2, method)}.",
        )  # fmt: skip
    if "rejected__" in statistics:
        rejected = float((statistics["rejected__"] > 0).mean())
        yield most(
            "rejections", rejected, 0.2,
            f"{rejected:.1%} of the draws had a transition that Stan rejected or whose log density "
            "was not finite.",
            LOOK_FOR_REJECTIONS,
        )  # fmt: skip


def rough_check(again: int, starts: int, unseen: float) -> Check:
    """The failed check of a search among very many modes that hardly found the best one again."""
    return check(
        "search", again, FOUND_AGAIN, False,
        f"Most modes were seen once. Of {starts} ascents, {again} led to the best one or to others "
        f"as good, and one more ends at a new one with a probability of {unseen:.0%}. A better one "
        "may be missing.",
        "Name places near the modes that you expect (inits=, --inits), let the search spend more "
        '(base=stanct.recipe().changing("ascents", rough=0.5)), or narrow the priors of periods.',
    )  # fmt: skip


def unsettled_check(particles: int, known: int) -> Check:
    """The failed check of a search that still found mass elsewhere, or would miss narrow modes."""
    why = (
        f"The last of {particles} annealed particles still found new modes, or missed much of the "
        "mass of those that are known"
        if particles
        else "Draws from around all modes would not have found one that is a little narrower than "
        "the narrowest, and known modes differ as much"
    )
    return check(
        "search", 0, 1, False, f"{why}; {known} known. Others may be missing.",
        "Name places near the modes that you expect (inits=, --inits), or let the search spend "
        'more (base=stanct.recipe().changing("particles", share=0.5)).',
    )  # fmt: skip


def searched_check(known: Mapping[str, Any]) -> Check:
    """How often the ascents of a search, of this record, found the best optimum or one as good."""
    optima = known["optima"]
    again = sum(
        seen
        for seen, log_mass in zip(optima["seen"], optima["log_mass"], strict=True)
        if log_mass > optima["log_mass"][0] - AS_GOOD
    )
    rough, particles = known.get("again") is not None, known.get("particles")
    looked = f" {particles} annealed particles looked for other mass, too." if particles else ""
    return least(
        "search", again, FOUND_AGAIN if rough else 0,
        f"{again} of {known['starts']} ascents that arrived ended at the best optimum or at others "
        "as good; "
        f"{counted(optima['ends'], 'optimum', 'optima')} known.{looked}",
        "Name places near the modes that you expect (inits=, --inits).",
    )  # fmt: skip


def modes_check(modes: Mapping[str, Array], remedy: str) -> Check:
    """Check that the run kept every mode that its pilots measured, and all parts of it.

    `modes` are the columns of its parts, with the number of the `mode` of each.
    """
    weight, error, pilots = (
        np.asarray(modes[name], float) for name in ("weight", "std_error", "pilot_weight")
    )
    worthy = pilots >= min(WORTH, pilots.max())
    ratio = np.where(worthy, (weight + 3 * error) / np.maximum(pilots, WORTH), np.inf)
    worst = int(ratio.argmin())
    of = np.asarray(modes.get("mode", np.arange(1, weight.size + 1)))
    mode = int(of[worst])
    whole = (of == mode).sum() == 1
    return least(
        "modes", ratio[worst], VANISHED,
        f"{'Mode' if whole else 'A part of mode'} {mode} has {percent(weight[worst])} of the "
        f"weight, and had {percent(pilots[worst])} by the search's rough measure; "
        f"{counted(int(of.max()), 'mode')} known.",
        remedy,
    )  # fmt: skip
