"""Plain draws far from all modes, where a mode that no ascent has found would show.

Where Gaussians are the whole target, an ascent from a point ends at the mode that dominates there,
and annealed particles do no better: they too end in the widest. One log density tells whether a
known mode dominates, where either of them takes dozens of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from stanct.bases.ascents import SCANS, Counted, Optimum, climb, each_height, uncounted
from stanct.bases.local import ENCLOSED
from stanct.bases.rough import those_that_count
from stanct.bases.score import EXPLAINED, unexplained
from stanct.common.arrays import Array, log_sum_exp
from stanct.path.gaussian import LOG_2PI, GaussianBase

# Draws of a first look, and of the largest. Looks follow while they find modes, and are doubled
# while they would not find a narrower one.
FIRST, LAST = 6_000, 60_000
# Standard deviations of the Gaussians, in those of the ends.
WIDTHS = (1.0, 1.5)
# Ascents in vain after which a look ends. The most modes by which draws are explained, and the most
# that a look adds.
VAIN, MOST = 24, 100
# Known modes are the whole target if they explain this share of the draws.
WHOLE = 0.99
# A mode is imagined that is as narrow as one more of so large a share, if log widths are normal. It
# lies at so many places, so many draws are tried there, and so many of all must find it. Two modes
# tell no more of a third than one does.
NARROWER, FEWEST = 0.02, 3
PLACES, TRIED, ENOUGH = 10, 5_000, 5.0


class Far(NamedTuple):
    """What far draws tell: whether known modes explain nearly all of them, and whether they would
    have found a mode that is narrower than all known ones.
    """

    whole: bool
    sees_narrower: bool


def looked_far(counted: Counted, modes: list[Optimum], rng: np.random.Generator) -> Far:
    """Ascend from far draws that no mode explains, and add what is found to the modes.

    Where known modes are the whole target, draws count as particles that ended at the mode which
    dominates there. No ascent of these counts as one from anywhere (`Optimum.seen`).
    """
    effort = counted.scans / SCANS
    count, last, made, sees = int(FIRST * effort), int(LAST * effort), 0, False
    while True:
        before = len(modes)
        x = _drawn(modes, count, rng)
        values = counted.log_densities(x)
        with uncounted(modes):
            known, heights = _climbed(counted, modes, x, values)
        explained = np.asarray(log_sum_exp(heights, axis=0))
        made += count
        whole = bool(np.mean(unexplained(values, explained)) <= 1 - WHOLE)
        if not whole or counted.spent > counted.most:
            break
        if len(modes) == before:
            sees = _sees_narrower(known, x, explained, made, rng)
            if sees or count == last:
                break
            count = min(2 * count, last)
    if whole:
        hits = np.bincount(heights.argmax(axis=0), minlength=len(known))
        for one, times in zip(known, hits.tolist(), strict=True):
            one.particles += times
    return Far(whole, sees)


def _wide(modes: Sequence[Optimum]) -> list[GaussianBase]:
    """Gaussians around all ends of ascents, and around the origin, where modes may scatter too.

    The mean of a few ends is nearer to them than to the next, and lets them dominate.
    """
    places = np.array([one.place for one in modes])
    within = np.mean([one.root @ one.root.T for one in modes], axis=0)
    mean, variance = places.mean(axis=0), places.var(axis=0, ddof=1)
    around = [(mean, width**2 * variance) for width in WIDTHS]
    around += [(np.zeros(mean.size), variance + mean**2)]
    return [GaussianBase.from_covariance(at, within + np.diag(each)) for at, each in around]


def _drawn(modes: Sequence[Optimum], count: int, rng: np.random.Generator) -> Array:
    """Draws from all of these Gaussians, in equal parts, shape (about count, D)."""
    wide = _wide(modes)
    return np.concatenate([one.unwhiten(one.draw(rng, count // len(wide))) for one in wide])


def _climbed(
    counted: Counted, modes: list[Optimum], x: Array, values: Array
) -> tuple[list[Optimum], Array]:
    """Ascend from what no mode explains, the least explained first, and add new modes. Returns the
    heaviest modes and the new ones, and the log heights of their Gaussians at the draws.
    """
    known = sorted(modes, key=lambda one: -one.log_mass)[:MOST]
    heights = each_height(known, x)
    explained = np.asarray(log_sum_exp(heights, axis=0))
    left, vain = unexplained(values, explained), 0
    first = len(modes)
    while left.any() and vain < VAIN and len(modes) < first + MOST:
        best = int(np.where(left, values - explained, -np.inf).argmax())
        before = len(modes)
        climb(counted, x[best], modes, modes[0].root)
        new, vain = modes[before:], vain + 1
        left[best] = False
        if new:
            its = each_height(new, x)
            known, heights, vain = known + new, np.concatenate([heights, its]), 0
            explained = np.logaddexp(explained, its[0])
            left &= unexplained(values, explained)
    return known, heights


def _sees_narrower(
    modes: Sequence[Optimum], x: Array, explained: Array, made: int, rng: np.random.Generator
) -> bool:
    """Whether draws would find a mode that is as narrow as one more may well be. `explained` are
    the log heights of all modes at the draws x, of all that were `made`.
    """
    count = those_that_count(modes)
    wide = [one for one in count if not (one.scanned or any(_lies_in(one, of) for of in count))]
    if len(wide) < FEWEST:
        return True
    dimension = x.shape[1]
    log_widths = np.array([np.log(np.diag(one.root)).mean() for one in wide])
    number, narrowest = len(wide), wide[int(log_widths.argmin())]
    # Few modes tell little of how widths differ (Student 1908).
    lowest = stdtrit(number - 1, NARROWER) * log_widths.std(ddof=1) * np.sqrt(1 + 1 / number)
    shrunk = min(log_widths.mean() + lowest - log_widths.min(), 0.0)
    root = np.exp(shrunk) * narrowest.root
    log_det = dimension * (log_widths.min() + shrunk)
    value = narrowest.log_mass - log_det - 0.5 * dimension * LOG_2PI
    at = rng.choice(len(x), TRIED)
    inverse = np.linalg.inv(root)
    found = 0
    around = _wide(modes)[0]
    for place in around.unwhiten(np.sqrt(1 + 1 / len(modes)) * around.draw(rng, PLACES)):
        square = np.square((x[at] - place) @ inverse.T).sum(axis=1)
        found += int(np.sum(value - 0.5 * square > explained[at] + EXPLAINED))
    return made * found / (PLACES * TRIED) >= ENOUGH


def _lies_in(spike: Optimum, mode: Optimum) -> bool:
    """Whether a mode is a spike inside a wider one, of which far draws need not tell."""
    offset = spike.place - mode.place
    wider = np.log(np.diag(mode.root)).sum() > np.log(np.diag(spike.root)).sum()
    return bool(wider and offset @ mode.precision @ offset < ENCLOSED * offset.size)
