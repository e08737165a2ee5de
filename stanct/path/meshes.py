"""Loops over the meshes of `stanct.path.profiles`, compiled.

A row is one coordinate at one place θ. It has K nodes, in ascending order, and the slope of the log
density at each.
"""

from __future__ import annotations

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import compiled, copy, number_below, part

# Nodes that may join in a round.
JOINING = 6
# How much a distance of the log density from a straight line counts, beside one from a parabola.
COARSER = 0.25
# The outermost nodes lie so many nats below the highest one.
LOW = 12.0
# Pieces of an interval, on each of which the log density is a straight line.
PIECES = 3
# Uniforms nearer to 0 or 1 than this are taken to be that far away.
SMALLEST = 1e-16
# The middle of an interval and its peak have its whole need, and its quarters these shares.
_QUARTERS = 0.25, 0.2499
# Of equal needs the first is taken, whatever other places are refined beside this one.
_EARLIER = 1e-9


@part
def _climb(nodes: Array, steep: Array, heights: Array) -> bool:
    """Set heights relative to the first node, with straight slopes; whether they are finite."""
    heights[0] = 0.0
    for k in range(1, nodes.size):
        mean = 0.5 * (steep[k] + steep[k - 1])
        heights[k] = heights[k - 1] + mean * (nodes[k] - nodes[k - 1])
    # What is not finite stays so up to the last node.
    return bool(np.isfinite(heights[-1]))


@part
def _crossing(first: float, rise: float) -> float:
    """Where in an interval the slope, taken as a straight line, falls through zero; else 0."""
    if not rise < 0:
        return 0.0
    share = -first / rise
    return share if 0.05 < share < 0.95 else 0.0


@part
def _bound(nodes: Array, steep: Array, heights: Array, most: Array) -> None:
    """Set how high the log density can be, above the highest node, at or beyond an interval.

    Heights by straight slopes can be too low by hundreds of nats, and would hide a second peak.
    """
    highest = heights.argmax()
    height = 0.0
    for k in range(highest, nodes.size - 1):
        before = height
        height += (nodes[k + 1] - nodes[k]) * max(steep[k + 1], steep[k])
        most[k] = max(height, before)
    for k in range(nodes.size - 3, highest - 1, -1):
        most[k] = max(most[k], most[k + 1])
    height = 0.0
    for k in range(highest - 1, -1, -1):
        before = height
        height -= (nodes[k + 1] - nodes[k]) * min(steep[k + 1], steep[k])
        most[k] = max(height, before)
    for k in range(1, highest):
        most[k] = max(most[k], most[k - 1])


@part
def _curvature(nodes: Array, steep: Array, k: int) -> float:
    """How fast the slope rises over an interval; NaN where there is none."""
    width = nodes[k + 1] - nodes[k]
    return (steep[k + 1] - steep[k]) / width if width > 0 else np.nan


@part
def _enter(needs: Array, places: Array, need: float, place: float) -> None:
    """Put a place among the neediest ones, of which the last is the least."""
    k = needs.size - 1
    if not need > needs[k]:
        return
    while k > 0 and need > needs[k - 1]:
        needs[k], places[k] = needs[k - 1], places[k - 1]
        k -= 1
    needs[k], places[k] = need, place


@part
def _set_needs(nodes: Array, steep: Array, most: Array, needs: Array) -> None:
    """Set how much each interval is in need of nodes, in nats."""
    bend, curvature = 0.0, _curvature(nodes, steep, 0)
    for k in range(needs.size):
        before, here = bend, curvature
        curvature = _curvature(nodes, steep, k + 1) if k + 1 < needs.size else np.nan
        bend = abs(curvature - here)
        if np.isnan(bend):
            bend = 0.0
        width, rise = nodes[k + 1] - nodes[k], steep[k + 1] - steep[k]
        off = width * max(COARSER * abs(rise), 0.5 * width * (before + bend))
        needs[k] = off * np.exp(0.5 * min(most[k], 0.0)) * (1 - _EARLIER * k)


@compiled
def wanted(nodes: Array, steep: Array) -> tuple[Array, Array, Array]:
    """Places for more nodes, the need of the neediest, and whether ends are not low enough.

    From nodes and slopes of shape (R, K), they have shapes (R, JOINING), (R,), in nats, and (R, 2).
    A row whose heights are not finite has no needs.
    """
    rows, count = nodes.shape
    places, worst = np.empty((rows, JOINING)), np.zeros(rows)
    lower = np.zeros((rows, 2), np.bool_)
    heights, most, needs = np.empty(count), np.empty(count - 1), np.empty(count - 1)
    chosen = np.empty(JOINING)
    for row in range(rows):
        x, slope, joining = nodes[row], steep[row], places[row]
        chosen[:], joining[:] = 0.0, x[0]
        if not _climb(x, slope, heights):
            continue
        enough = heights[heights.argmax()] - LOW
        lower[row, 0], lower[row, 1] = heights[0] > enough, heights[-1] > enough
        _bound(x, slope, heights, most)
        _set_needs(x, slope, most, needs)
        worst[row] = needs[needs.argmax()]
        for _ in range(JOINING):
            k = needs.argmax()
            need, width = needs[k], x[k + 1] - x[k]
            if not need > chosen[-1]:
                break
            needs[k] = 0.0
            _enter(chosen, joining, need, x[k] + 0.5 * width)
            crossing = _crossing(slope[k], slope[k + 1] - slope[k])
            if crossing > 0:
                # Where that is the middle, another part is taken.
                share = 0.4 if abs(crossing - 0.5) < 0.02 else crossing
                _enter(chosen, joining, need, x[k] + share * width)
            _enter(chosen, joining, _QUARTERS[0] * need, x[k] + 0.25 * width)
            _enter(chosen, joining, _QUARTERS[1] * need, x[k] + 0.75 * width)
    return places, worst, lower


@compiled
def merged(nodes: Array, steep: Array, joined: Array, its_steep: Array) -> tuple[Array, Array]:
    """Nodes of shape (R, K), in order, and others of shape (R, J), in any; shapes (R, K + J)."""
    rows, count = nodes.shape
    total = count + joined.shape[1]
    all_nodes, all_steep = np.empty((rows, total)), np.empty((rows, total))
    for row in range(rows):
        x, slope = all_nodes[row], all_steep[row]
        copy(nodes[row], x[:count])
        copy(steep[row], slope[:count])
        for j in range(joined.shape[1]):
            new, its = joined[row, j], its_steep[row, j]
            k = count + j
            while k > 0 and x[k - 1] > new:
                x[k], slope[k] = x[k - 1], slope[k - 1]
                k -= 1
            x[k], slope[k] = new, its
    return all_nodes, all_steep


@compiled
def climbed(nodes: Array, steep: Array) -> Array:
    """Log densities at nodes, relative to the first one, where slopes are straight in between."""
    heights = np.empty_like(nodes)
    for row in range(len(nodes)):
        _climb(nodes[row], steep[row], heights[row])
    return heights


@compiled
def in_pieces(nodes: Array, steep: Array, heights: Array) -> tuple[Array, Array]:
    """Ends of the pieces, and the log densities there, shapes (R, PIECES (K − 1) + 1)."""
    rows, count = nodes.shape
    ends = np.empty((rows, PIECES * (count - 1) + 1))
    tops = np.empty_like(ends)
    for row in range(rows):
        for k in range(count - 1):
            width = nodes[row, k + 1] - nodes[row, k]
            first, rise = steep[row, k], steep[row, k + 1] - steep[row, k]
            for j in range(PIECES):
                share = j / PIECES
                ends[row, PIECES * k + j] = nodes[row, k] + width * share
                tops[row, PIECES * k + j] = heights[row, k] + width * share * (
                    first + 0.5 * rise * share
                )
        ends[row, -1], tops[row, -1] = nodes[row, -1], heights[row, -1]
    return ends, tops


@compiled
def masses(nodes: Array, log_tops: Array, rates: Array) -> Array:
    """Masses of the lower tail, of all pieces and of the upper tail, added up, shape (R, K + 1)."""
    rows, count = nodes.shape
    upto = np.empty((rows, count + 1))
    for row in range(rows):
        top = np.exp(log_tops[row, 0])
        upto[row, 0] = top / rates[row, 0]
        for k in range(count - 1):
            rise = abs(log_tops[row, k + 1] - log_tops[row, k])
            after = np.exp(log_tops[row, k + 1])
            # The mean of an exponential; where both ends are near, theirs, right to r² / 12.
            mean = abs(after - top) / rise if rise > 1e-3 else 0.5 * (after + top)
            upto[row, k + 1] = upto[row, k] + (nodes[row, k + 1] - nodes[row, k]) * mean
            top = after
        upto[row, count] = upto[row, count - 1] + top / rates[row, 1]
    return upto


@compiled
def quantiles(nodes: Array, log_tops: Array, rates: Array, upto: Array, uniforms: Array) -> Array:
    """The quantile of each row at its uniforms, shape (m R,), which take the rows in turn."""
    found = np.empty(len(uniforms))
    for n in range(len(uniforms)):
        row = n % len(nodes)
        x, sums = nodes[row], upto[row]
        u = min(max(uniforms[n], SMALLEST), 1 - SMALLEST) * sums[-1]
        piece = min(number_below(sums, u, False), x.size)
        under = sums[piece - 1] if piece > 0 else 0.0
        over = sums[piece]
        share = (u - under) / (over - under) if over > under else 0.5
        share = min(max(share, SMALLEST), 1 - SMALLEST)
        if piece == 0:
            found[n] = x[0] + np.log(share) / rates[row, 0]
        elif piece == x.size:
            found[n] = x[-1] - np.log1p(-share) / rates[row, 1]
        else:
            start, width = x[piece - 1], x[piece] - x[piece - 1]
            rise = log_tops[row, piece] - log_tops[row, piece - 1]
            # Where the density rises, the piece is turned, so that exponentials do not overflow.
            along = 1 - share if rise > 0 else share
            if abs(rise) >= 1e-9:
                along = np.log1p(along * np.expm1(-abs(rise))) / -abs(rise)
            found[n] = start + width * (1 - along if rise > 0 else along)
    return found


@compiled
def log_densities(nodes: Array, log_tops: Array, rates: Array, points: Array) -> Array:
    """The log density of each row at its points, shape (m R,), which take the rows in turn."""
    found = np.empty(len(points))
    for n in range(len(points)):
        row = n % len(nodes)
        x, tops, point = nodes[row], log_tops[row], points[n]
        number = number_below(x, point, True)
        if number == 0:
            found[n] = tops[0] - rates[row, 0] * (x[0] - point)
        elif number == x.size:
            found[n] = tops[-1] - rates[row, 1] * (point - x[-1])
        else:
            share = (point - x[number - 1]) / (x[number] - x[number - 1])
            found[n] = tops[number - 1] + (tops[number] - tops[number - 1]) * share
    return found
