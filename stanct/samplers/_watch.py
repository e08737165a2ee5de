"""Follows log Z while the kept draws are made, for the progress bar and for the stopping rule."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.path import Evidence, PathEstimator
from stanct.estimates.tours import Tours
from stanct.estimates.weighted import least_effective
from stanct.path.base import batch_of
from stanct.path.bias import AnyBias
from stanct.runs.path_checks import path_checks
from stanct.samplers._precision import Precision
from stanct.samplers._rounds import BaseDraws
from stanct.work.execution import Execution
from stanct.work.progress import Bar

# Largest share of the time spent on the text, and least seconds between two updates.
MOST_SHARE = 0.02
LEAST_WAIT = 0.5
BINS = 8
LEVELS = "▁▂▃▄▅▆▇█"


class Watch:
    """Follows the estimate of log Z along the draws of a frozen chain on the continuous path.

    The displayed text never changes the draws. `base_draws`, so many for each draw, are the run's.
    The draws of the chain come in balanced batches of so many, a `batch`.
    """

    def __init__(
        self,
        base_draws: BaseDraws,
        per_draw: float,
        bias: AnyBias,
        precision: Precision,
        execution: Execution,
        *,
        batch: int = 1,
    ) -> None:
        self.base_draws, self.per_draw, self.bias = base_draws, per_draw, bias
        self.precision, self.execution, self.batch = precision, execution, batch
        self._started = time.perf_counter()
        self._next = self._started + LEAST_WAIT

    def show(self, bar: Bar, draws: Callable[[], tuple[Array, Array, int]]) -> None:
        """Update the text beside the bar if it is time, with β, δ and gradients so far."""
        began = time.perf_counter()
        if not bar.shown or began < self._next:
            return
        try:
            beta, delta, gradients = draws()
            with np.errstate(all="ignore"):
                evidence = self._estimator(beta, delta).evidence("")
            rate = gradients / (began - self._started)
            bar.note(live_text(beta, evidence, rate))
        except Exception:  # a failing display must not lose draws
            bar.note("")
        done = time.perf_counter()
        self._next = done + max(LEAST_WAIT, (done - began) / MOST_SHARE)

    def more(self, bar: Bar, z: Array, beta: Array, delta: Array, kept: Array) -> int:
        """How many more draws each chain makes; z has the `kept` of (chains, draws)."""
        draws = beta.shape[1]
        if self.precision.target_se is None:
            return self.precision.more(draws, math.nan, ())
        # A checkpoint has the look, which a run that is out of time could not take again.
        look = partial(self._look, self.precision.target_se, z, beta, delta, kept)
        ahead = self.precision.more(draws, *self.execution.once("look", look))
        bar.expect(beta.shape[0] * round(min(self.precision.expected, self.precision.limit)))
        return ahead

    def _look(
        self, target_se: float, z: Array, beta: Array, delta: Array, kept: Array
    ) -> tuple[float, tuple[str, ...], float]:
        """The standard error of log Z, failed checks and effective draws; see `Precision.more`."""
        estimator = self._estimator(beta, delta)
        evidence = estimator.evidence("")
        if not evidence.std_error <= target_se:
            return evidence.std_error, (), math.inf
        points = self.base_draws.base.standardised(z)
        checks = path_checks(estimator, evidence, points, beta, {}, kept=kept)
        failed = tuple(check.name for check in checks if not check.passed)
        if not self.precision.effective:
            return evidence.std_error, failed, math.inf
        tours = estimator.effective_tours
        failed += ("few_tours",) * (tours is not None and tours < self.precision.tours)
        at_kept = estimator.tours and estimator.tours.at(kept)
        effective = least_effective(z, estimator.log_weights(1.0)[:, kept], at_kept)
        return evidence.std_error, failed, effective

    def _estimator(self, beta: Array, delta: Array) -> PathEstimator:
        tours = Tours.of(beta, self.bias, self.batch)
        base_delta = self.base_draws.first(math.ceil(self.per_draw * delta.size))
        batch = batch_of(self.base_draws.base)
        return PathEstimator(delta, base_delta, self.bias, tours, batch)


def live_text(beta: Array, evidence: Evidence, rate: float) -> str:
    """One line of text: occupancy of β from 0 to 1, log Z with its error, gradients per second."""
    counts = np.histogram(beta, BINS, (0, 1))[0]
    level = np.ceil(counts / counts.max() * (len(LEVELS) - 1)).astype(int)
    occupancy = "".join(LEVELS[k] for k in level)
    unit, scale = ("M", 1e6) if rate >= 1e6 else ("k", 1e3)
    return (
        f"β {occupancy}, log Z {evidence.log_z:.2f} ± {evidence.std_error:.2g}, "
        f"{rate / scale:.3g}{unit} gradients/s"
    )
