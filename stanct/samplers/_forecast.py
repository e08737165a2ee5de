"""What a run will cost and how precise it will be, foretold from its first draws.

A method makes a forecast as soon as it has draws like those that count: from a round, from the end
of a warm-up, or from the first block of the kept draws. Two laws carry it on: the time is that of a
gradient times the gradients to come, and the standard error falls as 1/√n. Later forecasts rest on
better draws. All of them stay in the run, beside what came (`EvidenceRun.forecast`).

A forecast changes no draw. With an aim for the error of log Z it may be a bound. Where the first
draws give no error, that is the cost of the most draws that the run may make. Where the base will
be refitted, it is the cost of draws no better than these.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from stanct import kernels
from stanct.common.deadline import seconds_left
from stanct.estimates.path import ROUNDING
from stanct.kernels import make_problem, make_scratch
from stanct.path.base import Base
from stanct.samplers._job import Job
from stanct.samplers._precision import Precision

T = TypeVar("T")

# Log densities that are timed, gradients that are timed where a checkpoint holds the first draws,
# and the time in seconds after which no more of them are.
VALUES, GRADIENTS, TIMING = 20, 100, 0.02
# Times that log densities are timed, at most.
ROUNDS = 6


@dataclass(frozen=True)
class Trial:
    """The first draws of a run, and what comes before those that count.

    Attributes
    ----------
    after
        What has been done, in a few words.
    gradients, seconds
        Spent on these draws by all chains. `seconds` is wall time, without any compilation.
    planned
        Gradients to come before the first draw that counts.
    factor
        Gradients of a kept draw, relative to one of these.
    beside
        Draws of the base for each kept draw. One thread evaluates them.
    kept
        Kept draws of each chain that have been made.
    uncounted
        Those of `gradients` that the ledger does not have yet, with all others of this stage.
    valued
        Whether `gradients` are log densities without a gradient.
    refitted
        Whether the base will be refitted, so that draws which count are worth more than these.
    """

    after: str
    draws: int
    gradients: float
    seconds: float
    planned: float = 0.0
    factor: float = 1.0
    beside: int = 0
    kept: int = 0
    uncounted: float = 0.0
    valued: bool = False
    refitted: bool = False


@dataclass
class Clock:
    """Measures the time of draws, from its making until it is stopped."""

    _began: float = field(default_factory=time.perf_counter)
    _ended: float | None = None

    def restart(self) -> None:
        """Begin again."""
        self._began, self._ended = time.perf_counter(), None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of the body, which may be that of imports."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._began += time.perf_counter() - began

    def stop(self) -> None:
        """Stand still until the next beginning."""
        self._ended = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return (self._ended or time.perf_counter()) - self._began


def begun_trial(
    latest: Sequence[Sequence[T]],
    gradients_of: Callable[[T], float],
    clock: Clock,
    made: int,
    unit: str,
    *,
    beside: int = 0,
) -> Trial:
    """What the blocks took that every lane has finished so far, `made` draws of each."""
    level = min(map(len, latest))
    gradients, spent = (
        sum(float(gradients_of(block)) for lane in latest for block in lane[:end])
        for end in (level, None)
    )
    # Some lanes may be ahead of the others, and have spent the same time.
    seconds = clock.seconds * gradients / max(spent, 1)
    return Trial(
        f"{made} {unit}", made, gradients, seconds, beside=beside, kept=made, uncounted=gradients
    )


def once_begun(work: Callable[[list[list[T]]], object], *, blocks: int = 1) -> Callable[..., None]:
    """What calls `work` with the blocks of all lanes, once each has so many of them."""
    told = False

    def seen(latest: list[list[T]]) -> None:
        nonlocal told
        if not told and min(map(len, latest)) >= blocks:
            told = True
            work(latest)

    return seen


def foretell(
    job: Job,
    precision: Precision,
    base: Base,
    trial: Trial,
    error_of: Callable[[], float],
    effective_of: Callable[[], float] | None = None,
) -> str:
    """Make a forecast, keep it in the ledger, show it, and return it in few words.

    Parameters
    ----------
    base
        A base of the target, whose draws are places at which to time a gradient.
    error_of
        Gives the standard error of log Z from the draws of the trial, NaN where they give none.
    effective_of
        Gives the effective draws on which means rest. It is called where the rule asks for some.
    """
    endless = "endless" in job.ledger.found  # and so no log Z
    if endless or trial.gradients <= 0 or trial.draws <= 0 or seconds_left() == 0:
        return ""
    look, effective = 0.0, math.inf
    try:
        with np.errstate(all="ignore"):
            error = float(error_of())
            if precision.effective and effective_of is not None:
                effective = effective_of()
            if precision.target_se is not None:
                clock = Clock()  # the first call may have evaluated draws of the base
                error_of()
                look = clock.seconds / trial.draws
    except Exception:  # few draws can defeat an estimator, and a forecast must not cost the run
        error = math.nan
    planned = precision.planned(trial.draws, error, effective)
    record = _record(job, precision, base, trial, (planned, error), look)
    if math.isfinite(effective):
        record["effective"] = round(effective * planned / trial.draws)
    known = job.ledger.found.get("forecasts", [])
    job.ledger.found["forecasts"] = [*known, record]
    text = in_words(record, precision, job.plan.max_seconds)
    job.execution.say(f"Forecast after {trial.after}: {text}")
    how = "" if record["std_error"] is None else f"± {record['std_error']:.2g} "
    how += "in at most" if record["bound"] else "in"
    return f", forecast {how} {_time(record['seconds'])}"


def _record(
    job: Job,
    precision: Precision,
    base: Base,
    trial: Trial,
    expected: tuple[int, float],
    look: float,
) -> dict[str, Any]:
    """The forecast, JSON values only.

    `expected` are the draws of each chain and the error from those of the trial, and `look` the
    seconds that a look at log Z takes for each draw.
    """
    draws, error = expected
    each = trial.factor * trial.gradients / trial.draws  # of all chains
    to_come = trial.planned + each * max(draws - trial.kept, 0)
    pace = trial.seconds / trial.gradients
    if job.execution.resumed:  # the checkpoint gave these draws in no time
        pace = max(pace, _gradient_seconds(job, base) / _workers(job))
    seconds = pace * to_come
    if trial.beside:
        seconds += _value_seconds(job, base) * trial.beside * job.chains * draws
    seconds += look * sum(n for n in precision.looks_until(draws) if n > trial.kept)
    left = seconds_left()
    record: dict[str, Any] = {
        "after": trial.after,
        "at": round(job.ledger.elapsed, 3),
        "seconds": round(job.ledger.elapsed + seconds, 3),
        "gradients": round(
            job.ledger.gradients + (0 if trial.valued else trial.uncounted + to_come)
        ),
        "draws": draws,
        "std_error": max(error * math.sqrt(trial.draws / draws), ROUNDING)
        if math.isfinite(error)
        else None,
        "enough_time": None if left is None else seconds <= left,
        "bound": precision.target_se is not None and (trial.refitted or not math.isfinite(error)),
    }
    if left is not None and seconds > left:
        before = pace * trial.planned
        share = (left - before) / max(seconds - before, 1e-9)
        record["draws_in_time"] = trial.kept + max(0, int(share * (draws - trial.kept)))
    return record


def _workers(job: Job) -> int:
    if job.execution.executor is not None:
        return job.chains
    return min(job.plan.threads or os.cpu_count() or 1, job.chains)


def _value_seconds(job: Job, base: Base) -> float:
    """Seconds of a log density at draws of the base, in this process and with what goes with it.

    The fastest of a few counts, because a call that something else holds up for a moment would look
    like hours to come.
    """
    points = base.unwhiten(base.draw(np.random.default_rng(0), VALUES))
    found, whole = [], Clock()
    for number in range(ROUNDS):
        some = points if number and min(found) <= TIMING / VALUES else points[:1]
        clock = Clock()
        job.density.log_densities(some)
        found.append(clock.seconds / len(some))
        if number and whole.seconds > TIMING:
            break
    return min(found)


def _gradient_seconds(job: Job, base: Base) -> float:
    """Seconds of a gradient at draws of the base, in this process."""
    dimension = base.dimension
    places = base.draw(np.random.default_rng(0), GRADIENTS)
    gradient, value, scratch = np.zeros(dimension), np.zeros(1), make_scratch(dimension)
    with job.borrow() as density:
        problem = make_problem(density, base)
        kernels.evaluate(problem, places[0], gradient, value, scratch)
        clock, count = Clock(), 0
        while count == 0 or (count < GRADIENTS and clock.seconds < TIMING):
            kernels.evaluate(problem, places[count], gradient, value, scratch)
            count += 1
        return clock.seconds / count


def in_words(record: dict[str, Any], precision: Precision, max_seconds: float | None) -> str:
    """A forecast in one line."""
    seconds, draws, error = record["seconds"], record["draws"], record["std_error"]
    aim = precision.target_se
    how = "" if error is None else f"log Z ± {error:.2g}, "
    if "effective" in record:
        how += f"means from {record['effective']:,} effective draws, "
    bound = record["bound"]
    text = f"{how}{'at most ' * bound}{draws} draws a chain, {_time(seconds)} in all"
    if aim is not None and not precision.effective and error is not None and error > aim:
        text += f"; these are the most draws allowed, and target_se={aim:g} is not reached"
    if record["enough_time"] is False:
        limit = "The deadline" if max_seconds is None else f"max_seconds={max_seconds:g}"
        text += f". {limit} {'may end' if bound else 'ends'} the run "
        text += (
            f"after some {record['draws_in_time']} draws a chain"
            if record["draws_in_time"]
            else "before there are draws that count"
        )
    return text


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    minutes = seconds / 60
    return f"{minutes:.2g} min" if minutes < 100 else f"{minutes / 60:.2g} h"
