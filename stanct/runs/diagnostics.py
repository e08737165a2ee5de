"""Named checks on a run, each with value, threshold, verdict and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from stanct.arrays import Array, even_share, forget
from stanct.estimates.arviz_bridge import effective_size, r_hat
from stanct.estimates.path import Evidence, PathEstimator
from stanct.estimates.tours import FEWEST_TOURS

# A round trip goes from β below the first bound to β above the second and back.
LOW_BETA, HIGH_BETA = 0.1, 0.9
# The base check looks at covariances in so many dimensions, and beyond at variances alone.
MOST_PAIRED = 400
BATCHES_PER_CHAIN = 10

# Tempered densities have stiff corners near the base, where a divergence is merely a rejection.
MOST_DIVERGENT = 0.05

LEAST_TRIPS = 5
# Independent uniform draws of β make a round trip in 20 draws on average, and chains that move well
# need about as many. With this many draws, such a chain makes far more trips than required.
ENOUGH_DRAWS = 400

# Remedy shared by many checks.
MORE = "Run longer chains (draws=)."

LOOK_FOR_REJECTIONS = (
    "Look for reject(), overflow, or a support that the declarations do not state."
)

DECLARE = "Declare the target's support in the program, or pass a base inside it (base=)."
# Share of the base's draws at which the target may vanish before that is the first thing to mend.
MOST_HOLES = 0.01

# With at least this effective share of the draws, weights hardly vary and their tail is irrelevant.
EVEN_WEIGHTS = 0.5

# The weight of a mode of at least this share must not be below a fourth of its pilots' share.
WORTH, VANISHED = 0.02, 0.25


@dataclass(frozen=True)
class Check:
    """One diagnostic of a run.

    Attributes
    ----------
    name
        Short and stable, e.g. ``"pareto_k"``. `Evidence.warnings` lists the failed checks.
    value, threshold
        Observed value, and the value at which the verdict changes.
    passed
        Whether the check passed.
    message
        Meaning of the value in words.
    remedy
        First thing to try if the check fails.
    """

    name: str
    value: float
    threshold: float
    passed: bool
    message: str
    remedy: str

    def __repr__(self) -> str:
        verdict = "ok  " if self.passed else "FAIL"
        text = f"{verdict} {self.name}: {self.message}"
        return text if self.passed else f"{text} {self.remedy}"


def check(
    name: str, value: float, threshold: float, passed: bool, message: str, remedy: str
) -> Check:
    """Make a `Check` of plain Python numbers."""
    return Check(name, float(value), float(threshold), bool(passed), message, remedy)


# Order of the failed checks: causes come before their symptoms.
_CAUSES_FIRST = (
    "support", "lost", "stalled", "round_trips", "rejections", "tempered", "overlap", "swaps",
    "acceptance", "divergences", "max_depth", "tails", "pareto_k", "few_tours", "base",
    "estimators", "directions", "target_se", "interrupted", "max_seconds",
)  # fmt: skip


def failures(checks: Iterable[Check]) -> list[Check]:
    """The checks that failed, ordered by which to remedy first."""
    failed = [check for check in checks if not check.passed]
    place = {name: number for number, name in enumerate(_CAUSES_FIRST)}
    return sorted(failed, key=lambda check: place.get(check.name, len(place)))


def refit(settings: Mapping[str, Any]) -> str:
    """The remedy for a base that does not fit: more refitting rounds than the run had."""
    rounds = max(2, settings.get("bootstrap", 0) + 1)
    return f"refit the base in more rounds (bootstrap={rounds}), or pass a wider one (base=)."


def interrupted_check(draws: int, wanted: int, time_limit: float | None) -> Check:
    """Check that all requested draws have been made.

    Parameters
    ----------
    time_limit
        The run's `time_limit`.
    """
    kept = f"{draws} of {wanted} draws a chain were kept"
    if time_limit is None:
        remedy = "The estimates use the finished draws; run again for the rest."
        return check("interrupted", draws, wanted, draws >= wanted, f"{kept}.", remedy)
    if time_limit == 0:  # what a checkpoint holds
        remedy = "The estimates use these draws; repeat the run's call for the rest."
        return check("max_seconds", draws, wanted, False, f"{kept} in the checkpoint.", remedy)
    if draws >= wanted:
        kept = "all draws were kept, but not what follows them, such as a further run"
    return check(
        "max_seconds",
        draws,
        wanted,
        False,
        f"max_seconds={time_limit:g} passed: {kept}.",
        "The estimates use the finished draws; allow more time for the rest.",
    )


def length_check(
    draws: int,
    wanted: int,
    evidence: Evidence,
    stopped: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    time_limit: float | None,
) -> Check:
    """Check that the run is as long as requested, or as precise if a precision was requested.

    Parameters
    ----------
    draws, wanted
        Draws of each chain, and the requested number.
    stopped
        The provenance's record of why the run stopped; None without `target_se`.
    settings
        The method's own settings.
    """
    if stopped is None or stopped["target_se"] is None:
        return interrupted_check(draws, wanted, time_limit)
    target, reason = stopped["target_se"], stopped["reason"]
    words, remedy = _STOPPED.get(str(reason), (f"{reason}.", MORE))  # of a later version
    if reason == "stalled":
        nearer = "pass a base that is nearer to the target (base=)."
        remedy += refit(settings) if "bootstrap" in settings else nearer
    return check(
        "target_se",
        evidence.std_error,
        target,
        reason == "reached",
        f"The standard error of log Z is {evidence.std_error:.3g}, wanted {target:g}, after "
        f"{draws} draws a chain: {words}",
        remedy,
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
    """Value, threshold and verdict on the gap of two estimates; an unknown error allows no gap."""
    if gap < 1e-9:
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
        f"log Z and its thermodynamic integral differ by {gap:.3f}.",
        f"A stretch of the path has not converged. {remedy}",
    )


def confirmation_check(evidence: Evidence, other: Mapping[str, Any] | None) -> tuple[Check, ...]:
    """Check that log Z agrees with that of a second method, where one was asked for.

    Parameters
    ----------
    other
        Method, log Z, standard error and failed checks of that method's run.
    """
    if other is None:
        return ()
    gap = abs(evidence.log_z - other["log_z"])
    error = float(np.hypot(evidence.std_error, other["std_error"]))
    found = check(
        "confirmed",
        *agreement(gap, error),
        f"log Z and that of {other['method']}, {other['log_z']:.3f} ± {other['std_error']:.3f}, "
        f"differ by {gap:.3f}.",
        f"One of the two misses part of the target. {MORE}",
    )
    return (found,)


def tempered_check(value: float, least: float, message: str, settings: Mapping[str, Any]) -> Check:
    """Check that something was tempered: δ varies, or a fit made the base equal to the target.

    Parameters
    ----------
    value, least
        How far base and target are apart, and how far they should be.
    settings
        Options of the run. Only with a base of the user's own is it likely that a constant δ is an
        oversight.
    """
    return check(
        "tempered",
        value,
        least,
        value >= least or settings.get("base") != "given",
        message,
        "Nothing was tempered: the base is the target, or δ is constant.",
    )


def tails_check(along: Sequence[str], reached: bool) -> tuple[Check, ...]:
    """Check that the base reaches into heavy tails, where there are any.

    Parameters
    ----------
    along
        Where tails are heavy, by the names of `stanct.bases.tails.Tails`.
    reached
        Whether the base has parts that lie there.
    """
    if not along:
        return ()
    where = f"{', '.join(along[:3])}{', …' if len(along) > 3 else ''}"
    found = check(
        "tails",
        len(along),
        0,
        reached,
        f"The density has heavy tails along {where}"
        + ("; the base reaches there." if reached else ", where a Gaussian base has no draws."),
        "log Z may be too low, and errors too small. Use a method that draws from its base "
        "(method='simulated_tempering', or the default) with base='modes'.",
    )
    return (found,)


def round_trips(beta: Array) -> Array:
    """Number of base → target → base round trips of each chain, shape (chains,).

    Parameters
    ----------
    beta : shape (chains, draws)
    """
    counts = np.zeros(beta.shape[0], int)
    for c, chain in enumerate(beta):
        ends = np.where(chain < LOW_BETA, -1, np.where(chain > HIGH_BETA, 1, 0))
        ends = ends[ends != 0]
        arrivals = np.flatnonzero(np.diff(ends) < 0)
        counts[c] = arrivals.size - (1 if ends.size and ends[0] == 1 and arrivals.size else 0)
    return counts


@dataclass(frozen=True)
class BaseCheck:
    """z-scores of the w₀-weighted mean and covariance of z against 0 and I ([GS] after 22).

    Attributes
    ----------
    mean : shape (D,)
    covariance : shape (D, D)
        With more than `MOST_PAIRED` dimensions the variances alone, shape (D,).
    limit
        Value that the largest |z| exceeds in one of a thousand correct runs.
    """

    mean: Array
    covariance: Array
    limit: float

    @property
    def worst(self) -> float:
        """The largest |z|."""
        return float(max(np.abs(self.mean).max(), np.abs(self.covariance).max()))


def base_check(z: Array, log_weights_base: Array) -> BaseCheck:
    """Compare the draws, reweighted to β = 0, with the standard normal they must follow there.

    Standard errors come from batch means, with `BATCHES_PER_CHAIN` batches for each chain.

    Parameters
    ----------
    z : shape (chains, draws, D)
    log_weights_base : shape (chains, draws)
    """
    chains, draws, dimension = z.shape
    length = draws // BATCHES_PER_CHAIN
    if length == 0:
        length, batches = 1, draws
    else:
        batches = BATCHES_PER_CHAIN
    weights = np.exp(log_weights_base - log_weights_base.max())[:, : batches * length]
    weights = (weights / weights.mean()).reshape(chains * batches, length)
    count, paired = chains * batches, dimension <= MOST_PAIRED
    mean = np.empty((count, dimension))
    excess = np.empty((count, dimension, dimension) if paired else (count, dimension))
    for batch, weight in enumerate(weights):
        first = batch % batches * length
        points = np.array(z[batch // batches, first : first + length])
        forget(z)
        weighted = weight[:, None] * points
        mean[batch] = weighted.mean(axis=0)
        if paired:
            excess[batch] = weighted.T @ points / length - weight.mean() * np.eye(dimension)
        else:
            excess[batch] = np.einsum("ld,ld->d", weighted, points) / length - weight.mean()
    tests = dimension * (dimension + 3) / 2 if paired else 2.0 * dimension
    if count < 2:
        return BaseCheck(mean[0], excess[0], 0.0)  # no error can be estimated

    def score(batch_means: Array) -> Array:
        spread = batch_means.std(axis=0, ddof=1) / np.sqrt(count)
        return batch_means.mean(axis=0) / np.maximum(spread, 1e-300)

    limit = float(student_t.isf(0.0005 / tests, count - 1))
    return BaseCheck(score(mean), score(excess), limit)


def path_checks(
    estimator: PathEstimator,
    evidence: Evidence,
    z: Array,
    beta: Array,
    settings: Mapping[str, Any],
    *,
    kept: Array | None = None,
    rao_blackwell: Evidence | None = None,
) -> tuple[Check, ...]:
    """Check mixing, weights and base, and with `rao_blackwell` the agreement of both estimators.

    The remedies refer to the method's own `settings`. `kept` has the positions of the draws that
    `z` has, where it has not all.
    """
    log_weights_base = estimator.log_weights(0.0)
    if kept is not None:
        log_weights_base = log_weights_base[:, kept]
    base = base_check(z, log_weights_base)
    trips = int(round_trips(beta).min())
    more = MORE if trips >= LEAST_TRIPS else _trips_remedy(trips, beta.shape[1], settings)
    return (
        *_mixing_checks(beta, evidence, settings),
        *_estimate_checks(estimator, evidence, rao_blackwell, base, settings, more),
    )


def _trips_remedy(trips: int, draws: int, settings: Mapping[str, Any]) -> str:
    """The remedy for few trips. Without any, another base comes before longer chains."""
    if trips:
        return f"{MORE} If that does not help, {refit(settings)}"
    remedy = refit(settings).capitalize()
    if draws < ENOUGH_DRAWS:
        remedy += (
            f" Run longer chains as well (draws={ENOUGH_DRAWS}): {draws} draws are few for "
            f"{LEAST_TRIPS} trips of every chain."
        )
    return remedy


def _mixing_checks(
    beta: Array, evidence: Evidence, settings: Mapping[str, Any]
) -> tuple[Check, ...]:
    """Check that the chains moved between base and target.

    Chains that stay where they began may agree, and look well mixed. Without a round trip, R-hat
    and effective sizes are therefore left out.
    """
    trips = int(round_trips(beta).min())
    moved = Check(
        "round_trips",
        trips,
        LEAST_TRIPS,
        trips >= LEAST_TRIPS,
        f"The slowest chain {_went(trips)} from base to target and back.",
        _trips_remedy(trips, beta.shape[1], settings),
    )
    if trips == 0:
        return (moved,)
    rate = r_hat(beta)
    moving = effective_size(beta, method="bulk")
    return (
        moved,
        Check(
            "r_hat",
            rate,
            1.05,
            not rate > 1.05,
            f"Split R-hat of β is {rate:.3f}: chains {'dis' if rate > 1.05 else ''}agree on it.",
            MORE,
        ),
        Check(
            "effective_size",
            min(evidence.effective_size, moving),
            100,
            min(evidence.effective_size, moving) >= 100,
            f"log Z rests on {evidence.effective_size:.0f} effective draws, β on {moving:.0f}.",
            MORE,
        ),
    )


def _went(trips: int) -> str:
    return {0: "never went", 1: "went once"}.get(trips, f"went {trips} times")


def _estimate_checks(
    estimator: PathEstimator,
    evidence: Evidence,
    rao_blackwell: Evidence | None,
    base: BaseCheck,
    settings: Mapping[str, Any],
    more: str,
) -> tuple[Check, ...]:
    """Check what the estimates rest on: weights, base, two estimators, support.

    The remedy `more` is the one for chains that are too short.
    """
    other = rao_blackwell or evidence
    gap = abs(evidence.log_z - other.log_z)
    gap_error = float(np.hypot(evidence.std_error, other.std_error))
    kept = even_share(estimator.log_weights(1.0))
    support = support_check(estimator.base_delta)
    # Where the target vanishes there are no draws, however long the chains are.
    remedy = DECLARE if support.value > MOST_HOLES else more
    return (
        Check(
            "pareto_k",
            evidence.pareto_k,
            0.7,
            evidence.pareto_k <= 0.7 or kept > EVEN_WEIGHTS,
            f"The weights at β = 1 have tail shape {evidence.pareto_k:.2f} and use {kept:.0%} of "
            "the draws.",
            f"A few draws dominate: {refit(settings)}",
        ),
        Check(
            "base",
            base.worst,
            base.limit,
            base.worst <= base.limit,
            f"Draws reweighted to the base miss its mean or covariance by {base.worst:.1f} "
            f"standard errors (limit {base.limit:.1f}).",
            f"The chain does not explore the base's end. {remedy}",
        ),
        Check(
            "estimators",
            *agreement(gap, gap_error),
            f"Bridge and Rao–Blackwell estimates of log Z differ by {gap:.3f}.",
            remedy,
        ),
        support,
    )


def tours_check(estimator: PathEstimator) -> tuple[Check, ...]:
    """Check that more than one stretch of the chains tells the error of log Z."""
    number = estimator.effective_tours
    if number is None:
        return ()
    found = check(
        "few_tours",
        number,
        FEWEST_TOURS,
        number >= FEWEST_TOURS,
        f"The error of log Z rests on {number:.1f} effective tours, the stretches between draws "
        "of the base.",
        f"A region was visited in hardly more than one of them. {MORE}",
    )
    return (found,)


def support_check(base_delta: Array) -> Check:
    """Check whether the target vanishes (δ = +inf) at too many draws of the base."""
    outside = float(np.mean(~np.isfinite(base_delta)))
    return check(
        "support",
        outside,
        0.5,
        outside <= 0.5,
        f"The target vanishes at {outside:.1%} of the base's draws.",
        f"The base lies mostly outside the target's support. {DECLARE}",
    )


def mean_weight_checks(evidence: Evidence, draws: str, remedy: str) -> tuple[Check, ...]:
    """Check whether the mean of independent weights can be trusted.

    Parameters
    ----------
    evidence
        The estimate from that mean.
    draws
        Name of the weighted draws, e.g. ``"particles"``.
    remedy
        How to obtain more of them.
    """
    size, shape, error = evidence.effective_size, evidence.pareto_k, evidence.std_error
    return (
        check("effective_size", size, 100, size >= 100,
              f"The weights are worth {size:.0f} {draws}.", remedy),
        check("pareto_k", shape, 0.7, shape <= 0.7,
              f"The weights have tail shape {shape:.2f}.", remedy),
        check("std_error", error, 0.5, error <= 0.5,
              f"The standard error of log Z is {error:.2f}; above 0.5 the log of the mean "
              "weight is biased low and its error unreliable.", remedy),
    )  # fmt: skip


def transition_counts(statistics: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients and divergences of each chain if recorded, label to shape (chains,)."""
    labels = {"gradients": "n_leapfrog__", "divergences": "divergent__"}
    return {
        label: statistics[name].sum(axis=1) for label, name in labels.items() if name in statistics
    }


def transition_checks(statistics: Mapping[str, Array], max_depth: int | None) -> tuple[Check, ...]:
    """Check the transitions, as far as the sampler recorded their statistics."""
    divergent = float((statistics["divergent__"] > 0).mean())
    checks = [
        Check(
            "divergences",
            divergent,
            MOST_DIVERGENT,
            divergent <= MOST_DIVERGENT,
            f"{divergent:.1%} of the draws had a divergent transition.",
            "Raise target_accept to 0.95 or 0.99.",
        )
    ]
    if "treedepth__" in statistics and max_depth is not None:
        deep = float((statistics["treedepth__"] >= max_depth).mean())
        checks.append(
            Check(
                "max_depth",
                deep,
                0.05,
                deep <= 0.05,
                f"{deep:.1%} of the transitions reached the largest tree depth, {max_depth}.",
                "Raise max_depth.",
            )
        )
    if "rejected__" in statistics:
        rejected = float((statistics["rejected__"] > 0).mean())
        checks.append(
            Check(
                "rejections",
                rejected,
                0.2,
                rejected <= 0.2,
                f"{rejected:.1%} of the draws had a transition that Stan rejected or whose log "
                "density was not finite.",
                LOOK_FOR_REJECTIONS,
            )
        )
    return tuple(checks)


def modes_check(modes: pd.DataFrame) -> Check:
    """Check that the run kept every mode that its pilots measured."""
    weight, error, pilots = (
        modes[name].to_numpy(float) for name in ("weight", "std_error", "pilot_weight")
    )
    ratio = np.where(pilots >= WORTH, (weight + 3 * error) / pilots, np.inf)
    worst = int(ratio.argmin())
    return check(
        "modes",
        ratio[worst],
        VANISHED,
        ratio[worst] >= VANISHED,
        f"Mode {worst + 1} has {weight[worst]:.2g} of the weight, {pilots[worst]:.2g} by its "
        f"pilots; {len(modes)} known.",
        "The chains lost a mode: run longer ones (draws=), or pass base='mixture' to a method "
        "that draws from its base.",
    )
