"""Densities of coordinates that are independent of each other, given a few others.

Given its scales, the effects of a hierarchy often are independent, one for each group. Then one
gradient tells the slopes of all their log densities, each at a place of its own. Some 40 gradients
give all of these densities, for any number of effects. Tails, kinks and second peaks are followed,
as far as the first mesh meets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stanct.arrays import Array

# Nodes of the first mesh on each side of its middle, where the last one is in standard deviations,
# and how much denser nodes are in the middle. Further ones look for peaks that no pilot has seen.
SIDE, LAST, BEND = 6, 10.0, 2.5
FARTHER = 19.0, 36.0, 68.0, 130.0
# Nodes that join in a round, and the most rounds.
JOINING, ROUNDS = 6, 24
# An interval is fine enough if the log density is so near to a parabola over it, in nats, and, at a
# share, to a straight line. Less is asked where the density is small, by the square root of its
# ratio to the largest one.
FINE, COARSER = 0.25, 0.25
# Where the distance is larger in the end, the density is unknown.
UNKNOWN = 3.0
# The outermost nodes lie so many nats below the highest one. Others join beyond them, this share of
# the range away, and nearer each time the target is not finite there, down to a least share.
LOW, BEYOND, SHORTER, LEAST_STEP = 12.0, 0.7, 0.3, 0.02
# Pieces of an interval, on each of which the log density is a straight line.
PIECES = 3
# The slopes of the tails are those of the outermost nodes, times this factor.
FLATTER = 0.5
# Uniforms nearer to 0 or 1 than this are taken to be that far away.
SMALLEST = 1e-16

Slopes = Callable[[Array, Array], tuple[Array, Array]]


class Profiles(NamedTuple):
    """Normalised densities of n coordinates at each of T places, exponential in pieces.

    Attributes
    ----------
    nodes, log_tops : shape (T, n, K)
        Ends of the pieces, in order, and the log densities there.
    rates : shape (T, n, 2)
        Rates of the exponential tails below and above all nodes.
    upto : shape (T, n, K + 1)
        Masses up to the first node, to each further one, and of all.
    log_mass : shape (T,)
        Log mass of the target over all n coordinates; −inf where it was not found.
    """

    nodes: Array
    log_tops: Array
    rates: Array
    upto: Array
    log_mass: Array

    def drawn(self, uniforms: Array) -> Array:
        """The quantiles at uniforms, both of shape (T, n)."""
        u = np.clip(uniforms, SMALLEST, 1 - SMALLEST)[..., None] * self.upto[..., -1:]
        last = self.upto.shape[-1] - 1
        piece = np.minimum((self.upto < u).sum(axis=-1, keepdims=True), last)
        over = _taken(self.upto, piece)
        under = np.where(piece > 0, _taken(self.upto, np.maximum(piece - 1, 0)), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            part = (u - under) / (over - under)
            part = np.clip(part, SMALLEST, 1 - SMALLEST)
            start, width, _, rise = self._piece(np.clip(piece - 1, 0, last - 2))
            # Where the density rises, the piece is turned, so that exponentials do not overflow.
            turned = np.where(rise > 0, 1 - part, part)
            along = np.log1p(turned * np.expm1(-np.abs(rise))) / -np.abs(rise)
            along = np.where(np.abs(rise) < 1e-9, turned, along)
            x = start + width * np.where(rise > 0, 1 - along, along)
            below = self.nodes[..., :1] + np.log(part) / self.rates[..., :1]
            above = self.nodes[..., -1:] - np.log1p(-part) / self.rates[..., 1:]
        return np.where(piece == 0, below, np.where(piece == last, above, x))[..., 0]

    def log_density(self, x: Array) -> Array:
        """The sum of the n log densities, shape (T,), at x of shape (T, n)."""
        x = x[..., None]
        count = self.nodes.shape[-1]
        number = (self.nodes <= x).sum(axis=-1, keepdims=True)
        start, width, log_start, rise = self._piece(np.clip(number - 1, 0, count - 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = log_start + rise * ((x - start) / width)
        below = self.log_tops[..., :1] - self.rates[..., :1] * (self.nodes[..., :1] - x)
        above = self.log_tops[..., -1:] - self.rates[..., 1:] * (x - self.nodes[..., -1:])
        logs = np.where(number == 0, below, np.where(number == count, above, inside))
        return logs[..., 0].sum(axis=-1)

    def _piece(self, number: Array) -> tuple[Array, Array, Array, Array]:
        """Start, width, log density at the start and rise of pieces, each of shape (T, n, 1)."""
        start, log_start = _taken(self.nodes, number), _taken(self.log_tops, number)
        width = _taken(self.nodes, number + 1) - start
        return start, width, log_start, _taken(self.log_tops, number + 1) - log_start


def profiles(
    slopes: Slopes, theta: Array, centre: Array, unit: Array, *, fine: float = FINE
) -> Profiles:
    """The densities of independent coordinates at places θ.

    A mesh around the centre is refined where the log density is farthest from a parabola, and ends
    move outwards. Every density is a function of its θ alone. It is a Gaussian where the target's
    is not found.

    Parameters
    ----------
    slopes
        Log densities, shape (m,), and slopes along the n coordinates, shape (m, n), at m places θ
        and at points of shape (m, n).
    theta : shape (T, k)
    centre, unit : shape (n,)
        The middle of the first mesh, and its unit.
    fine
        How many nats the log density may be off a parabola, about, over an interval.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        nodes, steep, known = _refined(slopes, theta, centre, unit, fine)
        heights = _heights(nodes, steep)
        found = np.isfinite(heights).all(axis=-1) & (np.ptp(nodes, axis=-1) > 0)
        broken = ~(known & found.all(axis=1))
        scaled = np.linspace(-LAST, LAST, nodes.shape[-1])
        nodes[broken] = centre[:, None] + unit[:, None] * scaled
        steep[broken], heights[broken] = -scaled / unit[:, None], -0.5 * scaled**2
        heights -= heights.max(axis=-1, keepdims=True)
        top = _taken(nodes, heights.argmax(axis=-1)[..., None])[..., 0]
        values, _ = slopes(theta, top)
        rates = FLATTER * np.stack([steep[..., 0], -steep[..., -1]], axis=-1)
        rates = np.maximum(rates, 1 / np.ptp(nodes, axis=-1)[..., None])
        nodes, heights = _in_pieces(nodes, steep, heights)
        upto = _upto(nodes, heights, rates)
        log_total = np.log(upto[..., -1])
        log_mass = np.where(broken, -np.inf, values + log_total.sum(axis=-1))
    log_mass[np.isnan(log_mass)] = -np.inf
    return Profiles(nodes, heights - log_total[..., None], rates, upto, log_mass)


def _refined(
    slopes: Slopes, theta: Array, centre: Array, unit: Array, fine: float
) -> tuple[Array, Array, Array]:
    """Nodes and slopes of the log density there, shapes (T, n, K), and whether it is known."""
    middle = np.broadcast_to(centre, (len(theta), centre.size))[..., None]
    nodes, steep = _ordered(*_joined(slopes, theta, middle + unit[:, None] * _MESH, middle))
    step = np.full((len(theta), 1, 2), BEYOND)
    left, done = np.arange(len(theta)), []
    for number in range(ROUNDS + 1):
        places, errors, lower = _candidates(nodes, steep)
        lower &= step > LEAST_STEP
        worst = errors.max(axis=(1, 2))
        coarse = ((worst > fine) | lower.any(axis=(1, 2))) & (number < ROUNDS)
        done.append((left[~coarse], nodes[~coarse], steep[~coarse], worst[~coarse] < UNKNOWN))
        if not coarse.any():
            break
        left, nodes, steep, step = left[coarse], nodes[coarse], steep[coarse], step[coarse]
        joining, beyond = _joining(nodes, step, places[coarse], errors[coarse], lower[coarse])
        joined, its_steep = _joined(slopes, theta[left], joining, nodes[..., :1])
        if beyond:
            step = _shortened(step, joining, joined)
        nodes, steep = _ordered(
            np.concatenate([nodes, joined], axis=-1), np.concatenate([steep, its_steep], axis=-1)
        )
    return _gathered(done)


def _joining(
    nodes: Array, step: Array, places: Array, errors: Array, lower: Array
) -> tuple[Array, bool]:
    """Places for more nodes, shape (T, n, J), and whether the first two are beyond the ends."""
    most = np.argpartition(-errors, JOINING, axis=-1)[..., :JOINING]
    joining = _taken(places, most)
    if not lower.any():
        return joining, False
    ends = nodes[..., [0, -1]]
    further = ends + step * np.diff(ends, axis=-1) * np.array([-1.0, 1.0])
    return np.concatenate([np.where(lower, further, ends), joining], axis=-1), True


def _shortened(step: Array, joining: Array, joined: Array) -> Array:
    """Steps beyond the ends, shorter where the target was not finite there."""
    reached = (joined[..., :2] == joining[..., :2]).all(axis=1, keepdims=True)
    return np.where(reached, step, SHORTER * step)


def _ordered(nodes: Array, steep: Array) -> tuple[Array, Array]:
    """Nodes in ascending order, with their slopes."""
    order = np.argsort(nodes, axis=-1)
    return _taken(nodes, order), _taken(steep, order)


def _gathered(done: list[tuple[Array, Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Parts of the places in one array each, from their numbers and the parts.

    Nodes are filled up with the last one, so that further intervals have no width.
    """
    many = max(nodes.shape[-1] for _, nodes, _, _ in done)
    order = np.argsort(np.concatenate([numbers for numbers, *_ in done]))

    def filled(of: Array) -> Array:
        return np.pad(of, [(0, 0), (0, 0), (0, many - of.shape[-1])], mode="edge")

    return (
        np.concatenate([filled(nodes) for _, nodes, _, _ in done])[order],
        np.concatenate([filled(steep) for _, _, steep, _ in done])[order],
        np.concatenate([known for *_, known in done])[order],
    )


def _joined(slopes: Slopes, theta: Array, nodes: Array, other: Array) -> tuple[Array, Array]:
    """Nodes, shape (T, n, J), and slopes there; or other ones where the target is not finite."""
    nodes = np.concatenate([nodes, other], axis=-1)
    count, n, many = nodes.shape
    values, steep = slopes(np.repeat(theta, many, axis=0), nodes.swapaxes(1, 2).reshape(-1, n))
    steep = steep.reshape(count, many, n).swapaxes(1, 2)
    finite = np.isfinite(values).reshape(count, 1, many) & np.isfinite(steep).all(1, keepdims=True)
    nodes, steep = np.where(finite, nodes, other), np.where(finite, steep, steep[..., -1:])
    return nodes[..., :-1], steep[..., :-1]


def _candidates(nodes: Array, steep: Array) -> tuple[Array, Array, Array]:
    """Places for more nodes, how much each is needed, and whether ends are not low enough.

    Returns
    -------
    tuple of Array
        Shapes (T, n, 4 (K − 1)), the same, in nats, and (T, n, 2).
    """
    start, width, rise = nodes[..., :-1], np.diff(nodes, axis=-1), np.diff(steep, axis=-1)
    heights = _heights(nodes, steep)
    # Where the slope, taken as a straight line, is zero. If that is the middle, another part is.
    crossing = -steep[..., :-1] / rise
    peaked = (rise < 0) & (crossing > 0.05) & (crossing < 0.95)
    crossing = np.where(peaked, crossing, 0.5)
    crossing[np.abs(crossing - 0.5) < 0.02] = 0.4
    bends = np.abs(np.diff(rise / width, axis=-1))
    bends[~((width[..., 1:] > 0) & (width[..., :-1] > 0))] = 0.0
    bend = np.zeros_like(width)
    bend[..., 1:] += 0.5 * bends
    bend[..., :-1] += 0.5 * bends
    low = np.minimum(_most(steep, width, heights), 0.0)
    errors = width * np.maximum(COARSER * np.abs(rise), width * bend) * np.exp(0.5 * low)
    errors = np.nan_to_num(errors, nan=0.0, posinf=1e300)
    # Of equal ones, the first is taken, whatever other places are refined beside this one.
    errors *= 1 - 1e-9 * np.arange(width.shape[-1])
    parts = (0.5, crossing, 0.25, 0.75)
    shares = (1.0, peaked, 0.25, 0.2499)
    return (
        np.concatenate([start + part * width for part in parts], axis=-1),
        np.concatenate([errors * share for share in shares], axis=-1),
        heights[..., [0, -1]] > heights.max(axis=-1, keepdims=True) - LOW,
    )


def _most(steep: Array, width: Array, heights: Array) -> Array:
    """How high the log density can be, above the highest node, at or beyond an interval.

    Between nodes, slopes are between those of the nodes. Where a mesh is coarse, heights by
    straight slopes can be too low by hundreds of nats, and would hide a second peak. All that lies
    between two peaks decides how high they are beside each other.
    """
    right = np.arange(width.shape[-1]) >= heights.argmax(axis=-1)[..., None]
    up = np.where(right, width * np.maximum(steep[..., 1:], steep[..., :-1]), 0.0)
    down = np.where(right, 0.0, -width * np.minimum(steep[..., 1:], steep[..., :-1]))
    ends = np.zeros_like(heights)
    ends[..., 1:] += np.cumsum(up, axis=-1)
    ends[..., :-1] += np.cumsum(down[..., ::-1], axis=-1)[..., ::-1]
    most = np.maximum(ends[..., 1:], ends[..., :-1])
    above = np.maximum.accumulate(np.where(right, most, -np.inf)[..., ::-1], axis=-1)[..., ::-1]
    below = np.maximum.accumulate(np.where(right, -np.inf, most), axis=-1)
    return np.where(right, above, below)


def _heights(nodes: Array, steep: Array) -> Array:
    """Log densities at nodes, relative to the first one, where slopes are straight in between."""
    rises = 0.5 * (steep[..., 1:] + steep[..., :-1]) * np.diff(nodes, axis=-1)
    return np.concatenate([np.zeros((*nodes.shape[:-1], 1)), np.cumsum(rises, axis=-1)], axis=-1)


def _in_pieces(nodes: Array, steep: Array, heights: Array) -> tuple[Array, Array]:
    """Ends of pieces, and the log densities there."""
    part = np.arange(PIECES) / PIECES
    width = np.diff(nodes, axis=-1)[..., None]
    first, rise = steep[..., :-1, None], np.diff(steep, axis=-1)[..., None]
    within = nodes[..., :-1, None] + width * part
    tops = heights[..., :-1, None] + width * (first * part + 0.5 * rise * part**2)
    flat = (*nodes.shape[:-1], -1)
    return (
        np.concatenate([within.reshape(flat), nodes[..., -1:]], axis=-1),
        np.concatenate([tops.reshape(flat), heights[..., -1:]], axis=-1),
    )


def _upto(nodes: Array, log_tops: Array, rates: Array) -> Array:
    """Masses of the lower tail and all pieces, added up, shape (T, n, K + 1)."""
    upto = np.empty((*nodes.shape[:-1], nodes.shape[-1] + 1))
    rise = np.abs(np.diff(log_tops, axis=-1))
    tops = np.exp(log_tops)
    highest = np.maximum(tops[..., 1:], tops[..., :-1])
    # (1 − exp(−r)) / r, to r² / 6 where r is small.
    mean = np.where(rise < 1e-3, 1 - 0.5 * rise, -np.expm1(-rise) / np.maximum(rise, 1e-3))
    upto[..., [0, -1]] = tops[..., [0, -1]] / rates
    upto[..., 1:-1] = np.diff(nodes, axis=-1) * highest * mean
    return np.cumsum(upto, axis=-1, out=upto)


def _taken(of: Array, numbers: Array) -> Array:
    return np.take_along_axis(of, numbers, axis=-1)


_NEAR = LAST * np.sinh(BEND * np.arange(-SIDE, SIDE + 1) / SIDE) / np.sinh(BEND)
_MESH = np.concatenate([_NEAR, FARTHER, np.negative(FARTHER)])
