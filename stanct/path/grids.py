"""A base of independent blocks of one or two coordinates, each block with a density on a grid.

Where coordinates are coupled in pairs, and no pair tells anything of another, there may be
thousands of modes, and four for each pair. The density of a block is linear between the nodes of
its grid along each coordinate: a mixture of hats, one for each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from stanct.common.arrays import Array, log_sum_exp
from stanct.path.gaussian import GaussianBase
from stanct.path.whitened import DrawnOnly

_NAMES = ("blocks", "nodes", "shares")


@dataclass(frozen=True, kw_only=True)
class GridsBase(DrawnOnly[GaussianBase]):
    """The base Π q_b(x_b) over B blocks, with densities that are linear between nodes.

    `whitening` is the Gaussian with the moments of the `blocks`, whose coordinates have shape (B,
    2), −1 in place of a second one. `nodes`, (B, 2, G), along both ascend; where there are fewer,
    the last one is repeated. `shares`, (B, G, G), are those of the mass that each node's hat has.
    """

    whitening: GaussianBase = field(repr=False)
    blocks: Array = field(repr=False)
    nodes: Array = field(repr=False)
    shares: Array = field(repr=False)

    @classmethod
    def of(
        cls, blocks: Array, nodes: Sequence[tuple[Array, Array]], log_densities: Sequence[Array]
    ) -> tuple[GridsBase, float]:
        """The base of log densities on grids, and the log of their mass: for each block, nodes
        along its coordinates, shapes (g,) and (h,), and log densities there, (g, h). A block of one
        coordinate has h = 1.
        """
        most = max(each.size for pair in nodes for each in pair)
        padded = np.array(
            [[np.pad(each, (0, most - each.size), mode="edge") for each in pair] for pair in nodes]
        )
        shares, log_mass = np.zeros((len(blocks), most, most)), 0.0
        for share, pair, its in zip(shares, nodes, log_densities, strict=True):
            first, second = map(_areas, pair)
            with np.errstate(divide="ignore"):
                logs = its + np.log(first)[:, None] + np.log(second)
            whole = float(log_sum_exp(logs.ravel()))
            share[: its.shape[0], : its.shape[1]] = np.exp(logs - whole)
            log_mass += whole
        return cls(
            whitening=_moments(blocks, padded, shares),
            blocks=np.asarray(blocks), nodes=padded, shares=shares,
        ), log_mass  # fmt: skip

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Independent whitened draws, shape (count, D)."""
        x = np.empty((count, self.dimension))
        for block, pair, share in zip(self.blocks, self.nodes, self.shares, strict=True):
            upto = share.ravel().cumsum()
            chosen = np.searchsorted(upto, rng.random(count) * upto[-1], side="right")
            at = np.unravel_index(np.minimum(chosen, share.size - 1), share.shape)
            for coordinate, nodes, k in zip(block, pair, at, strict=True):
                if coordinate >= 0:
                    x[:, int(coordinate)] = _under_hats(nodes, k, rng)
        return self.whiten(x)

    def log_density(self, x: Array) -> Array:
        """log q(x), normalised, for x of shape (..., D); −inf outside of the grids."""
        total = np.zeros(np.shape(x)[:-1])
        for block, pair, heights in zip(self.blocks, self.nodes, self._heights, strict=True):
            (row, up), (column, right) = (
                _between(nodes, x[..., int(k)]) if k >= 0 else (np.zeros(total.shape, int), 0.0)
                for k, nodes in zip(block, pair, strict=True)
            )
            beside = np.minimum(column + 1, heights.shape[1] - 1)
            below = (1 - right) * heights[row, column] + right * heights[row, beside]
            above = (1 - right) * heights[row + 1, column] + right * heights[row + 1, beside]
            inside = (up >= 0) & (up <= 1) & (right >= 0) & (right <= 1)
            with np.errstate(divide="ignore"):
                total += np.log(np.where(inside, (1 - up) * below + up * above, 0.0))
        return total

    def delta(self, z: Array, log_density: Array) -> Array:
        """δ = φ − ψ at whitened z, shape (..., D), from log densities −φ(m + L z), shape (...)."""
        return self.log_density(self.unwhiten(z)) - log_density

    def standardised(self, z: Array) -> Array:
        """Points that are standard normal if z, shape (..., D), is drawn from the base.

        Between nodes they are so nearly.
        """
        x, made = self.unwhiten(z), np.empty(np.shape(z))
        for block, pair, heights in zip(self.blocks, self.nodes, self._heights, strict=True):
            first, second = (int(k) for k in block)
            rows = heights.sum(axis=1, keepdims=True) if second < 0 else _upto(pair[1], heights)
            own = _upto(pair[0], rows[:, -1:].T)[0]
            made[..., first] = ndtri(np.interp(x[..., first], pair[0], own / own[-1]))
            if second >= 0:
                row, up = _between(pair[0], x[..., first])
                column, right = _between(pair[1], x[..., second])
                given = (1 - up)[..., None] * rows[row] + up[..., None] * rows[row + 1]
                low, high = (
                    np.take_along_axis(given, k[..., None], -1)[..., 0]
                    for k in (column, column + 1)
                )
                made[..., second] = ndtri((low + right * (high - low)) / given[..., -1])
        return made

    def arrays(self) -> dict[str, Array]:
        """The arrays of the base by the names under which a run stores them."""
        return self.whitening.arrays() | {f"grid_{name}": getattr(self, name) for name in _NAMES}

    @cached_property
    def _heights(self) -> Array:
        """Densities at the nodes, shape (B, G, G)."""
        areas = np.array([[_areas(nodes) for nodes in pair] for pair in self.nodes])
        areas[self.blocks < 0] = 1.0
        each = areas[:, 0, :, None] * areas[:, 1, None, :]
        return np.divide(self.shares, each, out=np.zeros_like(self.shares), where=each > 0)


def _areas(nodes: Array) -> Array:
    """Areas of the hats of height one at nodes in ascending order; one where there is one node."""
    if nodes.size == 1:
        return np.ones(1)
    gaps = np.diff(nodes)
    return 0.5 * (np.append(gaps, 0.0) + np.append(0.0, gaps))


def _upto(nodes: Array, heights: Array) -> Array:
    """Masses up to each of G nodes of densities that are linear between them, shape (n, G)."""
    steps = 0.5 * (heights[:, 1:] + heights[:, :-1]) * np.diff(nodes)
    return np.pad(steps.cumsum(axis=1), [(0, 0), (1, 0)])


def _between(nodes: Array, x: Array) -> tuple[Array, Array]:
    """The node below each point, and the share of the way from there to the next."""
    ends = nodes.size - np.count_nonzero(nodes == nodes[-1])
    below = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, ends - 1)
    return below, (x - nodes[below]) / (nodes[below + 1] - nodes[below])


def _under_hats(nodes: Array, k: Array, rng: np.random.Generator) -> Array:
    """Draws from the hats at the k-th nodes."""
    gaps = np.append(0.0, np.diff(nodes)), np.append(np.diff(nodes), 0.0)
    down, up = gaps[0][k], gaps[1][k]
    side = rng.random(k.size) * (down + up) < up
    return nodes[k] + np.where(side, up, -down) * (1 - np.sqrt(rng.random(k.size)))


def _moments(blocks: Array, nodes: Array, shares: Array) -> GaussianBase:
    """The Gaussian with the moments of the nodes, weighted by their shares."""
    dimension = int(np.max(blocks)) + 1
    mean, covariance = np.zeros(dimension), np.zeros((dimension, dimension))
    for block, pair, share in zip(blocks, nodes, shares, strict=True):
        own = [(int(k), axis) for axis, k in enumerate(block) if k >= 0]
        centred = {}
        for k, axis in own:
            along = share.sum(axis=1 - axis)
            mean[k] = along @ pair[axis]
            centred[k] = pair[axis] - mean[k]
            covariance[k, k] = along @ np.square(centred[k])
        if len(own) == 2:
            (first, _), (second, _) = own
            covariance[first, second] = centred[first] @ share @ centred[second]
            covariance[second, first] = covariance[first, second]
    return GaussianBase.from_covariance(mean, covariance)
