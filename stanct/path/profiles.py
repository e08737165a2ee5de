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
from scipy.special import ndtr

from stanct.common.arrays import Array
from stanct.path.meshes import (
    JOINING,
    climbed,
    in_pieces,
    log_densities,
    masses,
    merged,
    quantiles,
    wanted,
)

# Nodes of the first mesh on each side of its middle, where the last one is in standard deviations,
# and how much denser nodes are in the middle. Further ones look for peaks that no pilot has seen.
SIDE, LAST, BEND = 6, 10.0, 2.5
FARTHER = 19.0, 36.0, 68.0, 130.0
# The most rounds in which nodes join.
ROUNDS = 24
# An interval is fine enough if the log density is so near to a parabola over it, in nats. Less is
# asked where the density is small, by the square root of its ratio to the largest one.
FINE = 0.25
# Where the distance is larger in the end, the density is unknown.
UNKNOWN = 3.0
# Nodes join beyond ends that are not low enough, this share of the range away, and nearer each time
# the target is not finite there, down to a least share.
BEYOND, SHORTER, LEAST_STEP = 0.7, 0.3, 0.02
# The slopes of the tails are those of the outermost nodes, times this factor.
FLATTER = 0.5

Slopes = Callable[[Array, Array], tuple[Array, Array]]


class Profiles(NamedTuple):
    """Normalised densities of n coordinates at each of T places, exponential in pieces.

    `nodes` and `log_tops`, shape (T, n, K), are ends of the pieces, in order, and log densities
    there, `rates`, (T, n, 2), those of the tails, and `upto`, (T, n, K + 1), the masses up to each
    node and of all. `log_mass`, (T,), is the target's over all n coordinates; −inf where it was not
    found. One place serves for any number of draws or points.
    """

    nodes: Array
    log_tops: Array
    rates: Array
    upto: Array
    log_mass: Array

    def made(self, noise: Array) -> tuple[Array, Array]:
        """Draws from standard normal noise of shape (T, n), and their log densities."""
        x = self.drawn(ndtr(noise))
        return x, self.log_density(x)

    def drawn(self, uniforms: Array) -> Array:
        """The quantiles at uniforms, both of shape (T, n)."""
        flat = quantiles(*self._pieces(), _rows(self.upto), np.ravel(uniforms))
        return flat.reshape(np.shape(uniforms))

    def log_density(self, x: Array) -> Array:
        """The sum of the n log densities, shape (T,), at x of shape (T, n)."""
        return log_densities(*self._pieces(), np.ravel(x)).reshape(np.shape(x)).sum(axis=-1)

    def _pieces(self) -> tuple[Array, Array, Array]:
        """Nodes, log densities and rates, one row for each density."""
        return _rows(self.nodes), _rows(self.log_tops), _rows(self.rates)


def profiles(
    slopes: Slopes, theta: Array, centre: Array, unit: Array, *, fine: float = FINE
) -> Profiles:
    """The densities of independent coordinates at places θ, shape (T, k).

    A mesh of `unit` around `centre` is refined where the log density is farthest from a parabola,
    until it is about `fine` nats off, and ends move outwards. `slopes` gives log densities, (m,),
    and slopes along the n coordinates, (m, n), at m places and points. A density is a function of
    its θ alone, and a Gaussian where the target's is not found.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        nodes, steep, known = _refined(slopes, theta, centre, unit, fine)
        heights = climbed(_rows(nodes), _rows(steep)).reshape(nodes.shape)
        found = np.isfinite(heights).all(axis=-1) & (np.ptp(nodes, axis=-1) > 0)
        broken = ~(known & found.all(axis=1))
        scaled = np.linspace(-LAST, LAST, nodes.shape[-1])
        nodes[broken] = centre[:, None] + unit[:, None] * scaled
        steep[broken], heights[broken] = -scaled / unit[:, None], -0.5 * scaled**2
        heights -= heights.max(axis=-1, keepdims=True)
        top = np.take_along_axis(nodes, heights.argmax(axis=-1)[..., None], axis=-1)[..., 0]
        values, _ = slopes(theta, top)
        rates = FLATTER * np.stack([steep[..., 0], -steep[..., -1]], axis=-1)
        rates = np.maximum(rates, 1 / np.ptp(nodes, axis=-1)[..., None])
        pieces = in_pieces(_rows(nodes), _rows(steep), _rows(heights))
        upto = masses(*pieces, _rows(rates))
        nodes, heights, upto = (each.reshape(*top.shape, -1) for each in (*pieces, upto))
        log_total = np.log(upto[..., -1])
        log_mass = np.where(broken, -np.inf, values + log_total.sum(axis=-1))
    log_mass[np.isnan(log_mass)] = -np.inf
    return Profiles(nodes, heights - log_total[..., None], rates, upto, log_mass)


def _refined(
    slopes: Slopes, theta: Array, centre: Array, unit: Array, fine: float
) -> tuple[Array, Array, Array]:
    """Nodes and slopes of the log density there, shapes (T, n, K), and whether it is known."""
    middle = np.broadcast_to(centre, (len(theta), centre.size))[..., None]
    first, steep = _joined(slopes, theta, middle + unit[:, None] * _MESH, middle)
    nodes, steep = _merged(first[..., :1], steep[..., :1], first[..., 1:], steep[..., 1:])
    step = np.full((len(theta), 1, 2), BEYOND)
    left, done = np.arange(len(theta)), []
    for number in range(ROUNDS + 1):
        places, worst, lower = wanted(_rows(nodes), _rows(steep))
        worst = worst.reshape(-1, centre.size).max(axis=1)
        lower = lower.reshape(-1, centre.size, 2) & (step > LEAST_STEP)
        coarse = ((worst > fine) | lower.any(axis=(1, 2))) & (number < ROUNDS)
        done.append((left[~coarse], nodes[~coarse], steep[~coarse], worst[~coarse] < UNKNOWN))
        if not coarse.any():
            break
        left, nodes, steep, step = left[coarse], nodes[coarse], steep[coarse], step[coarse]
        joining = places.reshape(-1, centre.size, JOINING)[coarse]
        lower = lower[coarse]
        if beyond := bool(lower.any()):
            joining = np.concatenate([_beyond(nodes, step, lower), joining], axis=-1)
        joined, its_steep = _joined(slopes, theta[left], joining, nodes[..., :1])
        if beyond:
            step = _shortened(step, joining, joined)
        nodes, steep = _merged(nodes, steep, joined, its_steep)
    return _gathered(done)


def _beyond(nodes: Array, step: Array, lower: Array) -> Array:
    """Places beyond both ends, shape (T, n, 2), or the ends themselves if they are low enough."""
    ends = nodes[..., [0, -1]]
    further = ends + step * np.diff(ends, axis=-1) * np.array([-1.0, 1.0])
    return np.where(lower, further, ends)


def _shortened(step: Array, joining: Array, joined: Array) -> Array:
    """Steps beyond the ends, shorter where the target was not finite there."""
    reached = (joined[..., :2] == joining[..., :2]).all(axis=1, keepdims=True)
    return np.where(reached, step, SHORTER * step)


def _merged(nodes: Array, steep: Array, joined: Array, its_steep: Array) -> tuple[Array, Array]:
    """All nodes in ascending order, and the slopes there, shapes (T, n, K)."""
    both = merged(_rows(nodes), _rows(steep), _rows(joined), _rows(its_steep))
    all_nodes, all_steep = (each.reshape(*nodes.shape[:-1], -1) for each in both)
    return all_nodes, all_steep


def _gathered(done: list[tuple[Array, Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Parts of the places in one array each; nodes are filled up with the last one."""
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


def _rows(of: Array) -> Array:
    """One row for each density, in order in memory."""
    return np.ascontiguousarray(of).reshape(-1, of.shape[-1])


_NEAR = LAST * np.sinh(BEND * np.arange(-SIDE, SIDE + 1) / SIDE) / np.sinh(BEND)
_MESH = np.concatenate([_NEAR, FARTHER, np.negative(FARTHER)])
