"""Tools that samplers share for rounds: starting points, draws of the base, and refits.

A round is a run under one frozen base and bias, from which the base and bias of the next round
follow. Rounds are never pooled, because their weights belong to different densities.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stanct.bases.fits import LEAST_SHRINKAGE
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.deadline import heed, nobody_waits
from stanct.common.errors import SamplingError
from stanct.estimates.path import PathEstimator
from stanct.path.base import Base, Drawn, batch_of
from stanct.path.bias import AnyBias
from stanct.path.course import Course, beta_grid
from stanct.path.gaussian import GaussianBase, standard_log_density
from stanct.targets.protocols import SampledTarget
from stanct.work.execution import Execution
from stanct.work.interrupts import GRACE, heard

# A base whose draws should reach the target's tails has 1 + `REACH` / D times its covariance.
REACH = 2.0
# Log densities of this size have no finite squares in sums, at so many draws of the base.
HUGE, PROBES = 1e100, 8


@dataclass(frozen=True)
class Round:
    """Base and bias of one round, with its whitened draws z, shape (chains, draws, D), and their δ.

    `base_delta`, shape (base draws,), has δ at independent draws of the base.
    """

    base: Base
    bias: AnyBias
    z: Array = field(repr=False)
    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)

    @property
    def estimator(self) -> PathEstimator:
        """The estimator of everything along the path."""
        return PathEstimator(self.delta, self.base_delta, self.bias, batch=batch_of(self.base))

    @property
    def course(self) -> Course:
        """The course of the round's own path, base draws included."""
        return self.estimator.course(beta_grid(101))


def draws_inside(target: SampledTarget, base: Base, count: int, rng: np.random.Generator) -> Array:
    """Whitened draws of the base inside the support, (count, D); an error if hardly any are."""
    inside: list[Array] = []
    for point in base.draw(rng, 100 * count):
        if np.isfinite(target.density.log_densities(base.unwhiten(point)[None])[0]):
            inside.append(point)
        if len(inside) == count:
            return np.array(inside)
    raise SamplingError(
        f"The target is finite at {len(inside)} of {100 * count} draws from the base.",
        remedy="Pass a base that overlaps the target's support.",
    )


def copies_inside(
    target: SampledTarget,
    base: Base,
    shape: tuple[int, int],
    rng: np.random.Generator,
    *,
    free: bool,
) -> Array:
    """Copies inside the support, with logistic u if free: (chains, N D) or (…, N D + N)."""
    places = draws_inside(target, base, shape[0] * shape[1], rng).reshape(shape[0], -1)
    return np.concatenate([places, rng.logistic(size=shape)], axis=1) if free else places


def refuse_huge(target: SampledTarget, base: Base) -> None:
    """Refuse a log density of which squares and products overflow, by a few draws of the base."""
    points = base.unwhiten(base.draw(np.random.default_rng(0), PROBES))
    values = target.density.log_densities(points)
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest > HUGE:
        raise SamplingError(
            f"The log density is of the size {largest:.0e} at draws of the base, and numbers with "
            "which a run would compute overflow.",
            remedy="Check the scale of the log density, or pass a base that is near its mode.",
        )


class BaseDraws:
    """δ at independent draws of a base, made on request; later requests leave the first unchanged.

    Portions have a fixed size, so that not even rounding depends on requests or threads.
    """

    portion = 500

    def __init__(self, target: SampledTarget, base: Base, seed: np.random.SeedSequence) -> None:
        self._target = target
        self.base = base
        self._rng = np.random.default_rng(seed)
        self._delta = np.zeros(0)
        # Seconds that the quickest portion took; unknown where none was made here.
        self._pace = math.inf

    def first(self, count: int) -> Array:
        """δ at the first draws, +inf where the target vanishes, shape (count,)."""
        while self._delta.size < count:
            self._make(heeding=True)
            heed()
        return self._delta[:count]

    def _make(self, *, heeding: bool = False) -> None:
        began = time.perf_counter()
        before = self._rng.bit_generator.state
        try:
            made = Drawn.of(self.base, self._rng, self.portion)
            values = partial(self._target.density.log_densities, made.x)
            delta = made.delta(heard(values) if heeding else values())
        except BaseException:  # so that these draws come again
            self._rng.bit_generator.state = before
            raise
        self._delta = np.append(self._delta, delta)
        self._pace = min(self._pace, time.perf_counter() - began)

    def begin(self, execution: Execution) -> None:
        """Make the first portion, which a checkpoint stores, for a run that is cut short later."""
        found = execution.once("first draws of the base", lambda: self.first(self.portion))
        if not self._delta.size:
            self.base.draw(self._rng, self.portion)
            self._delta = found

    def kept(self, count: int, execution: Execution, *, cut: bool = False) -> tuple[Array, bool]:
        """The same as `first`, stored by a checkpoint as a step; and whether it was cut short.

        To a run that was `cut` short, only what can be made within `GRACE` seconds is added.
        """
        if not cut:
            try:
                return execution.once("draws of the base", partial(self.first, count)), False
            except KeyboardInterrupt:
                if not self._delta.size:
                    raise
                execution.seal()
                return self._delta[:count], True
        left, began = GRACE - self._pace, time.perf_counter()
        while self._delta.size < count:
            if time.perf_counter() - began > left and not nobody_waits():
                break
            self._make()
        return self._delta[:count], True


def refit_base(done: Round, least_shrinkage: float = LEAST_SHRINKAGE) -> Base:
    """The base with a round's moments at β = 1, or its own if that is as near to the target.

    The moments of n draws of a Gaussian are (D + 3) D / (4 n) nats off.
    """
    dimension = done.z.shape[-1]
    of_moments = dimension * (dimension + 3) / (4 * done.delta.size)
    # Near its minimum, the divergence between two densities is half of the variance of their δ.
    if np.isfinite(done.base_delta).all() and np.var(done.base_delta) / 2 < of_moments:
        return done.base
    log_weights = done.estimator.log_weights(1.0)
    weights = np.exp(log_weights - log_sum_exp(log_weights)).ravel()
    flat = done.z.reshape(weights.size, -1)
    return done.base.refitted(flat, weights, least_shrinkage=least_shrinkage)


def reaching(base: Base) -> Base:
    """The base with a wider covariance, by the factor 1 + `REACH` / D, if it is a Gaussian.

    It draws more often from tails, arms and necks, and is 1 / D nats farther from a Gaussian
    target.
    """
    if not isinstance(base, GaussianBase):
        return base
    return GaussianBase(base.mean, base.scale * np.sqrt(1 + REACH / base.dimension))


def course_under(done: Round, base: Base) -> Course:
    """The path from another base, by importance weights of a round's draws.

    The round's x has density q M / C, so z'(β) ∝ mean of exp(−β φ − (1 − β) ψ') / (q M).
    """
    x = done.base.unwhiten(done.z)
    log_q = standard_log_density(done.z) - done.base.log_det_scale
    log_new = base.log_density(x)
    delta = done.delta + log_new - log_q
    log_start = log_new - log_q - done.estimator.log_mass
    found = Course.weighted(beta_grid(101), log_start.ravel(), delta.ravel())
    log_z = found.log_z - found.log_z[0]
    # The estimator knows log z(1) better than importance weights from the old base do.
    return replace(found, log_z=log_z + found.beta * (done.estimator.log_z(1.0) - log_z[-1]))


def acceptance_by_beta(bins: Array) -> dict[str, Any]:
    """Transitions and mean acceptance in equal bins of β; None where there was no transition."""
    tries, sums = bins
    return {
        "transitions": [int(count) for count in tries],
        "acceptance": [
            float(total / count) if count else None
            for count, total in zip(tries, sums, strict=True)
        ],
    }
