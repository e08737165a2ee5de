"""A base of independent blocks of one or two coordinates, each solved in its few dimensions.

Wells on many lines make thousands of modes, and two on each line. Where second derivatives show no
parameter coupled with more than one other, log Z is a sum over blocks, and so is the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from stanct.bases.ascents import Optimum
from stanct.bases.known import Modes, Sought, Survey
from stanct.bases.local import LocalFit
from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.nested import COUPLED
from stanct.bases.score import SCORED, Score, unexplained
from stanct.common.arrays import Array
from stanct.common.errors import counted
from stanct.common.settings import Real, Whole
from stanct.path.base import Base
from stanct.path.conditional import Slices
from stanct.path.grids import GridsBase
from stanct.path.product import ProductBase
from stanct.path.profiles import profiles
from stanct.targets.protocols import SampledDensity

# A grid reaches so many standard deviations beyond all optima, and farther while the density at its
# edge is not so many nats below the largest, so often.
REACH, DEEP, WIDENED = 8.0, 25.0, 6
# Points between which nodes are laid, and the standard deviations of a mode over which their
# spacing doubles.
FINELY, DOUBLES = 4000, 3.0


class _Made(NamedTuple):
    """A base, the log of its mass, and what it cost."""

    base: Base
    log_z: float
    gradients: int
    evaluations: int


class _Grid(NamedTuple):
    """Nodes along both coordinates of a block, the log densities there, and how many were made."""

    nodes: tuple[Array, Array]
    values: Array
    evaluations: int


@dataclass(frozen=True, kw_only=True)
class Products(Maker):
    """A product of densities of single coordinates and of pairs that are coupled with no other.

    Some dozens of gradients tell the densities of all single coordinates at once. Those of pairs
    are evaluated on grids.

    Attributes
    ----------
    fewest
        Modes at which ascents ended, at least. Fewer are measured one by one.
    looked_at
        Modes whose second derivatives tell at once which coordinates are coupled.
    crossed
        Pairs of points of which half of the blocks are exchanged. Of independent blocks, the sum of
        both log densities stays.
    exact
        How nearly, relative to the log densities.
    fine
        As in `profiles`.
    spacing
        Distance between the nodes of a grid, in standard deviations of the nearest mode.
    share
        Share of the purse that grids may take, in log densities.
    kept
        Modes that are kept for the survey, at most.
    """

    name: ClassVar[str] = "products"
    judged: ClassVar[bool] = False

    fewest: Annotated[int, Whole(2)] = 4
    looked_at: Annotated[int, Whole(1)] = 20
    crossed: Annotated[int, Whole(1)] = 40
    exact: Annotated[float, Real(0)] = 1e-9
    fine: Annotated[float, Real(0)] = 0.05
    spacing: Annotated[float, Real(0)] = 0.2
    share: Annotated[float, Real(0, 1)] = 0.15
    kept: Annotated[int, Whole(1)] = 50

    def applies(self, state: State) -> bool:
        optima = state.search.optima
        if state.instead is not None or len(optima) < self.fewest:
            return False
        return len(self.blocks(optima)) > 1

    def blocks(self, optima: Sequence[Optimum]) -> Array:
        """The coordinates of each block, shape (B, 2), −1 for none; no blocks if any has more."""
        precision = np.abs([one.precision for one in optima[: self.looked_at]])
        own = np.sqrt(np.diagonal(precision, axis1=1, axis2=2))
        beyond = precision > COUPLED * own[:, None] * own[..., None]
        coupled: Array = np.any(beyond, axis=0)
        groups = {tuple(np.flatnonzero(row).tolist()) for row in coupled}
        if any(len(group) > 2 for group in groups) or sum(map(len, groups)) > len(coupled):
            return np.empty((0, 2), int)
        return np.array([[*group, -1][:2] for group in sorted(groups)])

    def make(self, state: State) -> Proposal:
        density, looked = state.target.density, state.search
        rng = np.random.default_rng(state.seeds.nested)
        points = np.concatenate([one.fit(rng).points[:2] for one in looked.optima])
        blocks = self.blocks(looked.optima)
        evaluations = 4 * self.crossed
        if not self._are_independent(density, points, blocks, rng):
            return Proposal(evaluations=evaluations, said="coordinates are coupled")
        pairs = int(np.sum(blocks[:, 1] >= 0))
        if pairs:
            most = int(state.purse.may_spend(self.share))
            made = self._on_grids(density, looked.optima, blocks, most)
        else:
            made = self._on_lines(density, points)
        if made is None:
            return Proposal(evaluations=evaluations, said="grids would cost too much")
        base, log_z, gradients, more = made
        score = Score.by_draws(base, state.target, state.seeds.score)
        evaluations += more + SCORED + len(points)
        missed = unexplained(density.log_densities(points), base.log_density(points), log_z).any()
        if missed or not state.recipe.believes(score):
            said = f"refused: {score.even:.0%} of draws count"
            return Proposal(gradients=gradients, evaluations=evaluations, said=said)
        return Proposal(
            instead=(base, log_z),
            known={"survey": self._survey(state, looked.fits[: self.kept])},
            gradients=gradients,
            evaluations=evaluations,
            made=len(looked.fits),
            said="all parameters are independent"
            + (f", but for {counted(pairs, 'pair')}" if pairs else ""),
        )

    def _on_lines(self, density: SampledDensity, points: Array) -> _Made:
        """The product of the densities of single coordinates."""
        slices = Slices(density.log_density_gradients, np.zeros(points.shape[1], bool))
        centre, unit = np.median(points, axis=0), points.std(axis=0)
        found = profiles(slices.slopes, np.zeros((1, 0)), centre, unit, fine=self.fine)
        return _Made(ProductBase.of(found), float(found.log_mass[0]), slices.spent, 0)

    def _on_grids(
        self, density: SampledDensity, optima: Sequence[Optimum], blocks: Array, most: int
    ) -> _Made | None:
        """The product of the densities of blocks on grids; None where that costs too much."""
        best = max(optima, key=lambda one: one.value)
        grids, spent = list[_Grid](), 0
        for block in blocks:
            grid = self._grid(density, best, optima, block, most - spent)
            if grid is None:
                return None
            grids.append(grid)
            spent += grid.evaluations
        base, log_mass = GridsBase.of(blocks, [g.nodes for g in grids], [g.values for g in grids])
        return _Made(base, best.value + log_mass, 0, spent)

    def _grid(
        self, density: SampledDensity, best: Optimum, optima: Sequence[Optimum], block: Array,
        most: int,
    ) -> _Grid | None:  # fmt: skip
        """A block's log densities on a grid, others at the best optimum; None above a cost."""
        wider, spent = np.ones((2, 2)), 0
        for _ in range(WIDENED):
            first, second = (self._nodes(optima, int(k), wider[j]) for j, k in enumerate(block))
            spent += first.size * second.size
            if spent > most:
                return None
            x = np.repeat(best.place[None], first.size * second.size, axis=0)
            for k, at in zip(block, np.meshgrid(first, second, indexing="ij"), strict=True):
                if k >= 0:
                    x[:, int(k)] = at.ravel()
            values = density.log_densities(x).reshape(first.size, second.size) - best.value
            values = np.where(np.isnan(values), -np.inf, values)
            along = values.max(axis=1), values.max(axis=0)
            edges = np.array([each[[0, -1]] for each in along])
            low = (edges < values.max() - DEEP) | (block < 0)[:, None]
            if low.all():
                return _Grid((first, second), values, spent)
            wider = np.where(low, wider, 2 * wider)
        return None

    def _nodes(self, optima: Sequence[Optimum], coordinate: int, wider: Array) -> Array:
        """Nodes along a coordinate, densest at the optima; one if there is no coordinate."""
        if coordinate < 0:
            return np.zeros(1)
        place = np.array([one.place[coordinate] for one in optima])
        spread = np.array([np.linalg.norm(one.root[coordinate]) for one in optima])
        given = np.array([one.precision[coordinate, coordinate] ** -0.5 for one in optima])
        ends = (place - REACH * wider[0] * spread).min(), (place + REACH * wider[1] * spread).max()
        x = np.linspace(*ends, FINELY)
        away = np.abs(x[:, None] - place) / spread
        step = self.spacing * (given * (1 + away / DOUBLES)).min(axis=1)
        upto = np.append(0.0, ((x[1] - x[0]) / step).cumsum()[:-1])
        return np.interp(np.linspace(0, upto[-1], int(upto[-1]) + 2), upto, x)

    def _are_independent(
        self, density: SampledDensity, points: Array, blocks: Array, rng: np.random.Generator
    ) -> bool:
        """Whether crossed points have the log densities of a product."""
        one, other = (points[rng.integers(len(points), size=self.crossed)] for _ in range(2))
        chosen, swapped = rng.random((self.crossed, len(blocks))) < 0.5, np.empty(one.shape, bool)
        for its, block in zip(chosen.T, blocks, strict=True):
            swapped[:, block[block >= 0]] = its[:, None]
        at = [one, other, np.where(swapped, other, one), np.where(swapped, one, other)]
        values = np.array([density.log_densities(x) for x in at])
        apart = np.abs(values[0] + values[1] - values[2] - values[3])
        return bool(np.all(apart <= self.exact * np.abs(values).sum(axis=0)))

    def _survey(self, state: State, fits: tuple[LocalFit, ...]) -> Survey:
        """The survey of the best modes."""
        looked = state.search
        sought = Sought(
            unseen=looked.unseen, starts=looked.ascents, radius=looked.radius,
            finest=looked.finest, complete=True, unseen_of_any=looked.unseen,
        )  # fmt: skip
        return Survey.of(Modes(fits, sought=sought))
