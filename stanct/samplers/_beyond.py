"""Notes on a run what its draws tell of mass that no draw reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from stanct.bases.loop import effort_of
from stanct.common.arrays import Array
from stanct.common.errors import ImproperError, StanctError
from stanct.engines.embedded import DrawBlock
from stanct.runs.diagnostics import beyond_checks
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.targets.integrable import endless_of, held_places, logarithms, logits
from stanct.targets.program_target import ProgramTarget
from stanct.targets.protocols import SampledTarget
from stanct.targets.rounding import every
from stanct.targets.slices import Kinds, endless_beside_one, endless_scales
from stanct.work.ledger import Ledger

# Of the usual work, the share with which lines are still followed; that of equations is larger.
LEAST_EFFORT = 0.04
# Draws whose middle tells where slices of scales begin.
SOME = 200

AnyRun = TypeVar("AnyRun", bound=Run)


def weighted_draws(run: Run) -> tuple[Array, Array] | None:
    """Some draws x, shape (n, D), and log weights, (n,), of a run with log Z; None for others."""
    if not isinstance(run, EvidenceRun):
        return None
    weights = run.target_log_weights
    if run.z.shape[:-1] != weights.shape:
        return None
    step = every(weights.size, run.z.shape[-1])
    z, weights = np.array(run.z[:, ::step]), weights[:, ::step].ravel()
    x = (z if run.base is None else run.base.unwhiten(z)).reshape(-1, z.shape[-1])
    return x, weights


def endless_along(
    target: ProgramTarget, x: Array, log_weights: Array, ledger: Ledger, *, by_gradients: bool
) -> list[str]:
    """Names of coordinates along which draws x, shape (n, D), tell that the mass has no end."""
    found = endless_of(target.program, target.density, x, log_weights, by_gradients=by_gradients)
    ledger.gradients += found.gradients
    ledger.evaluations += found.evaluations
    if found.along or not by_gradients:
        return list(found.along)
    inside = x[np.isfinite(log_weights)]
    users, inside = _as_written(target, inside[:: 1 + len(inside) // SOME])
    density, names = users.density, users.density.unconstrained_names
    scales = logarithms(users.program, names)
    bounded = logits(users.program, names)
    without = {name for one in users.omissions if one.improper for name in one.parameters}
    free = [place for place, name in enumerate(names) if name.partition(".")[0] in without]
    flat = [place for place in free if place not in (*scales, *bounded)]
    gradients = density.log_density_gradients
    kinds = Kinds(bounded, flat, free, held_places(users.program, names))
    along, spent = endless_scales(gradients, inside, scales, kinds)
    ledger.gradients += spent
    if not along:
        vectors: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            vectors.setdefault(name.partition(".")[0], []).append(place)
        along, spent = endless_beside_one(gradients, inside, scales, list(vectors.values()))
        ledger.gradients += spent
    return [names[place] for place in along]


def _as_written(target: ProgramTarget, x: Array) -> tuple[ProgramTarget, Array]:
    """The target and its points in the user's own form, in which slices of scales are Gaussian."""
    if target.written is None:
        return target, x
    users = replace(target, program=target.written, written=None, flexible=False)
    values = target.variables(x[None], np.random.SeedSequence(0))
    block = DrawBlock({name: values[name] for name in users.program.parameter_names}, {})
    return users, users.unconstrain(block, 0, np.random.default_rng(0))


def endless_early(target: SampledTarget, points: Array | None, ledger: Ledger) -> bool:
    """Whether draws of pilots tell that the mass has no end; the ledger notes along what."""
    if points is None or not isinstance(target, ProgramTarget) or effort_of(target) <= LEAST_EFFORT:
        return False
    along = endless_along(target, points, np.zeros(len(points)), ledger, by_gradients=True)
    ledger.found |= {"endless": along} if along else {}
    return bool(along)


@contextmanager
def named_endless(ledger: Ledger) -> Iterator[None]:
    """Say of a density without an end that it has none, where no method can sample it."""
    try:
        yield
    except StanctError as cause:
        failed = next(beyond_checks(ledger.found, math.inf), None)
        if failed is None:
            raise
        words = f"log Z does not exist. {failed.message}"
        raise ImproperError(words, remedy=failed.remedy) from cause


def noting_beyond(
    run: AnyRun, target: SampledTarget, ledger: Ledger, *, by_gradients: bool | None = None
) -> AnyRun:
    """The run with notes on mass that no draw reaches in its provenance, and their cost.

    ``"rounding"`` is the mass where parameters round to their bounds, ``"endless"`` names
    coordinates along which the density does not fall off. By default a run without gradients stays
    one.
    """
    drawn = weighted_draws(run)
    if drawn is None or not isinstance(target, ProgramTarget):
        return run
    x, weights = drawn
    notes: dict[str, Any] = {}
    if effort_of(target) > LEAST_EFFORT:
        allowed = ledger.gradients > 0 if by_gradients is None else by_gradients
        if along := endless_along(target, x, weights, ledger, by_gradients=allowed):
            notes["endless"] = along
    hidden = target.rounding(x, weights) if target.may_round else None
    if hidden is not None:
        notes["rounding"] = hidden._asdict()
    return replace(run, provenance={**run.provenance, **ledger.record(), **notes})
