"""Scans of known modes by draws, from the best of which further ascents start.

A spike inside a wide mode draws no ascent from outside of its own small basin. Draws of the known
modes, and of a Gaussian around all of them, are many and cheap, and may fall into the basin. The
density there exceeds that of all known modes, and further ascents start at the draws of the largest
importance weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stanct.bases.ascents import SCANS, Counted, Optimum, climb, each_height, log_heights
from stanct.bases.outskirts import outskirts as points_outside
from stanct.bases.outskirts import standing_out
from stanct.bases.rough import those_that_count
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.path.gaussian import GaussianBase, mixture_moments

# Draws that scan, in rounds: in the known modes, around all of them, and around the origin, at so
# many times their widths or radii. A Gaussian spike of mass 1/2 in seven dimensions, ten times
# narrower than its surroundings, has one of 100,000 draws. Ascents start at the best draws where
# the density exceeds that of the modes by so many nats: a spike ten times narrower turns the
# gradient toward itself where it adds no more than a fiftieth. Rounds follow while they find new
# modes. On a ridge, where there is no end of modes, nothing is scanned.
NEAR, BEYOND, AROUND_ORIGIN = (1.0, 1.5, 2.5), (1.0, 2.5, 5.0), (3.0, 8.0, 20.0)
STARTS, EXCESS, MOST_SCANNED = 12, 0.02, 50
# Shares of the draws in the modes, around them and around the origin, and those of the widths.
SHARES, BY_WIDTH = (0.7, 0.2, 0.1), (0.5, 0.3, 0.2)
# Twice the draws of a scan lie nearer to the centres of modes than their own, at these widths and
# in these shares. They see a spike beside a centre from a dozen of its widths away. The excess has
# to be larger there, because skewed modes have some.
WITHIN, BY_WITHIN = (1 / 2, 0.35, 1 / 4, 0.18, 1 / 8, 1 / 16, 1 / 32), (3, 4, 5, 4, 2, 1, 1)
TIMES, BESIDE = 2, 2.0
# Where a mode is exactly Gaussian, much less tells of a spike: so many times what is usual, and no
# less than rounding. From there, a line leads to it, over so many widths of the mode.
CLEAR, FAINTEST = 100.0, 1e-12
ALONG = np.linspace(0, 4, 81)
# Points far from the modes, in four to twelve dimensions. Looks follow while they find modes.
OUTSKIRTS, MOST_LOOKS = 60_000, 3


def scanned(counted: Counted, modes: list[Optimum], rng: np.random.Generator) -> bool:
    """Scan the modes that count and what lies between; return whether ascents find new ones."""
    known = those_that_count(modes)
    try:
        everywhere = _everywhere(known)
    except SamplingError:  # modes of hardly any width, far apart
        return False
    dimension = modes[0].place.size
    around = [sd for sd in AROUND_ORIGIN if 2 * sd <= counted.reach] or [counted.reach / 2]
    centres = [GaussianBase(mode.place, mode.root) for mode in known]
    centres += [everywhere, GaussianBase(np.zeros(dimension), np.eye(dimension))]
    shares = [*[SHARES[0] / len(known)] * len(known), *SHARES[1:]]
    parts = [
        (k, width, int(counted.scans * share * part * len(BY_WIDTH) / len(widths)))
        for k, (share, widths) in enumerate(
            zip(shares, [*[NEAR] * len(known), BEYOND, around], strict=True)
        )
        for width, part in zip(widths, BY_WIDTH, strict=False)
    ]
    x = np.concatenate([centres[k].unwhiten(w * centres[k].draw(rng, n)) for k, w, n in parts])
    x = counted.within(x, known)
    squares = [np.square(one.whiten(x)).sum(axis=1) for one in centres]
    terms = [
        -0.5 * squares[k] / width**2 - dimension * np.log(width) - centres[k].log_det_scale
        for k, width, _ in parts
    ]
    log_q = log_sum_exp(np.array(terms), axis=0)  # up to a constant
    log_density = counted.log_densities(x)
    of_modes = [mode.value - 0.5 * square for mode, square in zip(known, squares, strict=False)]
    excess = log_density - log_sum_exp(np.array(of_modes), axis=0)
    outside = excess > EXCESS
    # Large weights find spikes in the modes, large excesses the surroundings of modes far off.
    for rank in (log_density - log_q, excess):
        _climbed(counted, x, np.where(outside, rank, -np.inf), modes)
    _followed(counted, known, x, np.where(outside, -np.inf, excess), modes)
    return any(mode not in known for mode in those_that_count(modes))


def looked_within(counted: Counted, modes: list[Optimum], rng: np.random.Generator) -> None:
    """Look for spikes beside the centres of the modes that count."""
    known = those_that_count(modes)
    share = TIMES * counted.scans / sum(BY_WITHIN) / len(known)
    centres = [GaussianBase(mode.place, mode.root) for mode in known]
    x = np.concatenate(
        [
            one.unwhiten(width * one.draw(rng, int(share * part)))
            for one in centres
            for width, part in zip(WITHIN, BY_WITHIN, strict=True)
        ]
    )
    x = counted.within(x, known)
    excess = counted.log_densities(x) - log_heights(known, x)
    _climbed(counted, x, np.where(excess > BESIDE, excess, -np.inf), modes)
    _followed(counted, known, x, np.where(excess > BESIDE, -np.inf, excess), modes)


def _followed(
    counted: Counted, known: Sequence[Optimum], x: Array, excess: Array, modes: list[Optimum]
) -> None:
    """Follow the faintest excess that is clear, where the known modes are exactly Gaussian."""
    least = max(CLEAR * float(np.median(np.abs(excess))), FAINTEST)
    for best in np.argsort(-excess)[:STARTS]:
        if least < min(excess[best], EXCESS):
            climb(counted, _toward(counted, known, x[best]), modes)


def _toward(counted: Counted, known: Sequence[Optimum], place: Array) -> Array:
    """Where the density exceeds the known modes most, on the line along which the excess grows.

    It is the place itself where the density has no gradient, as where a program underflows.
    """
    _, slope = counted.at(place)
    if not np.isfinite(slope).all():
        return place
    heights = each_height(known, place[None])[:, 0]
    share = np.exp(heights - log_sum_exp(heights))
    slopes = [one.precision @ (one.place - place) for one in known]
    pull = slope - share @ np.array(slopes)
    own = known[int(share.argmax())]
    unit = np.sqrt(max(float(pull @ own.precision @ pull), 1e-300))
    line = place + ALONG[:, None] * pull / unit
    excess = counted.log_densities(line) - log_heights(known, line)
    return line[int(np.nan_to_num(excess, nan=-np.inf).argmax())]


def _climbed(counted: Counted, points: Array, rank: Array, modes: list[Optimum]) -> None:
    """Ascend from the points of highest rank; −inf is none."""
    for best in np.argsort(-rank)[:STARTS]:
        if rank[best] > -np.inf:
            climb(counted, points[best], modes)


def looked_around(counted: Counted, modes: list[Optimum], rng: np.random.Generator) -> None:
    """Look far from the modes, and ascend from what stands out there."""
    for _ in range(MOST_LOOKS):
        before = those_that_count(modes)
        if len(before) > MOST_SCANNED:
            break
        known = [GaussianBase(mode.place, mode.root) for mode in before]
        count = int(OUTSKIRTS * counted.scans / SCANS)
        points = points_outside(known, count, counted.reach, rng)
        for best in standing_out(known, points, counted.log_densities(points), 2 * STARTS):
            climb(counted, points[best], modes)
        if all(mode in before for mode in those_that_count(modes)):
            break


def _everywhere(modes: Sequence[Optimum]) -> GaussianBase:
    """A Gaussian around all modes, which have equal weights."""
    mean, covariance, _ = mixture_moments(
        np.zeros(len(modes)),
        [mode.place for mode in modes],
        [mode.root @ mode.root.T for mode in modes],
    )
    return GaussianBase.from_covariance(mean, covariance)
