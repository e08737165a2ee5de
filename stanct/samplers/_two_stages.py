"""Compares a finished run with draws in two stages, where its target allows them.

Chains of fixed steps hardly enter the narrow necks that scales of a hierarchy make. They do not
know what they miss, and their log Z is too low by more than its error says. Where all other
coordinates are Gaussian or independent given a few, draws of `stanct.bases.nested` reach the necks,
and their log Z is another estimate, with an error that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from stanct.bases.loop import USUAL, effort_of
from stanct.bases.makers import Given
from stanct.bases.nested import Nested, find_nested
from stanct.common.arrays import Array, even_share
from stanct.common.errors import LostExecutorError, SamplingError
from stanct.estimates.mean_weight import log_mean_weight
from stanct.path.base import Drawn, lent
from stanct.runs.run import Run
from stanct.samplers._beyond import weighted_draws
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.work.interrupts import heard
from stanct.work.ledger import Ledger
from stanct.work.workers import warn_of

# Draws of the run from which the base is fitted, and the least effective number of them for each
# dimension.
POINTS, LEAST = 400, 5
# Share of the run's gradients that further draws of the base may cost, and how many there are at
# most.
SHARE, MOST = 0.05, 1500

AnyRun = TypeVar("AnyRun", bound=Run)


def noting_two_stages(
    run: AnyRun,
    target: SampledTarget,
    ledger: Ledger,
    seed: np.random.SeedSequence,
    away: Callable[[Callable[[], Nested]], Nested] = heard,
    *,
    spent: int | None = None,
) -> AnyRun:
    """The run with log Z of draws in two stages in its provenance, and their cost.

    Nothing is noted where the target lacks that form, or finding out would cost more gradients than
    were `spent`, by default those of the ledger. An interrupt ends the comparison alone.
    """
    drawn = weighted_draws(run)
    if drawn is None or not isinstance(target, ProgramTarget):
        return run
    x, log_weights = drawn
    if even_share(log_weights) * log_weights.size < LEAST * x.shape[1]:
        return run
    try:
        paid = ledger.gradients if spent is None else spent
        found = away(partial(_found, target, x, log_weights, seed, paid))
    except LostExecutorError as loss:
        warn_of(loss)
        return run
    except (KeyboardInterrupt, SamplingError):
        return run
    ledger.gradients += found.gradients
    ledger.evaluations += found.evaluations
    noted = {**ledger.record(), **two_stages_note(found)}
    return replace(run, provenance={**run.provenance, **noted})


def two_stages_note(found: Nested) -> dict[str, Any]:
    """What draws in two stages tell about log Z, for provenance; empty where there are none.

    A refused base misses mass and invents none: its log Z is too low, or right within its error.
    """
    if not found.log_weights.size:
        return {}
    log_z, error = log_mean_weight(found.log_weights[:, None])
    if not np.isfinite([log_z[0], error[0]]).all():
        return {}
    return as_two_stages(log_z[0], error[0], found.outer, refused=found.base is None)


def as_two_stages(
    log_z: float, std_error: float, given: Sequence[str], *, refused: bool = False
) -> dict[str, Any]:
    """For provenance: log Z of draws in two stages, with which that of another run is compared."""
    told = {"log_z": float(log_z), "std_error": float(std_error)}
    return {"two_stages": told | {"given": list(given), "refused": refused}}


def _found(
    target: ProgramTarget, x: Array, log_weights: Array, seed: np.random.SeedSequence, spent: int
) -> Nested:
    """The base in two stages from weighted draws of the target, with weights of its own draws."""
    rest, fit = seed.spawn(2)
    rng = np.random.default_rng(rest)
    weights = np.exp(log_weights - log_weights.max())
    points = x[rng.choice(len(x), POINTS, p=weights / weights.sum())]
    most = min(effort_of(target) * USUAL * Given().share, spent)
    found = find_nested(target, points, fit, most=most)
    if found.base is None:
        return found
    count = min(round(SHARE * spent / found.base.gradients), MOST)
    made = Drawn.of(lent(found.base, target.density.borrow), rng, count)
    delta = made.delta(target.density.log_densities(made.x))
    return replace(
        found,
        log_weights=np.append(found.log_weights, -delta),
        gradients=found.gradients + round(count * found.base.gradients),
        evaluations=found.evaluations + count,
    )
