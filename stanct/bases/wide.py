"""Bases for many parameters: the curvature where that suffices, and pilots elsewhere.

With up to two thousand parameters, ascents go on from a few ends of Pathfinder. Where they meet in
one mode whose curvature explains the target, its Gaussian is the base. Where it does not, and the
target is Gaussian given a few parameters (`stanct.bases.nested_wide`), draws in two stages take the
place of pilots.

Elsewhere no D × D matrix is made. The base has a diagonal plus low-rank scale (`LowRankBase`), from
draws of a few NUTS chains that start where Pathfinder ends. Gradients at these draws tell of the
directions in which the target is narrow. The base's distance to the target grows like D / n for n
effective draws, and refits shorten it. There is no search for modes but the starts of Pathfinder,
of which the pilots take those that lie farthest apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stanct.bases.known import Sought, Survey
from stanct.bases.local import MOST_DENSE, SAME_MODE, distance, grouped
from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.nested_wide import find_nested_wide
from stanct.bases.pilots import measured, short_chains
from stanct.bases.search import ascents_from
from stanct.bases.starts import attempts, inside_of
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.common.settings import Flag, Real, Whole
from stanct.path.base import Base
from stanct.path.bridge import bridge_log_z
from stanct.path.low_rank import LowRankBase
from stanct.work.interrupts import heard

# Pathfinder starts at these radii in turn.
RADII = (2.0, 0.5, 6.0)
# Places on a line that tell of a valley.
ON_THE_LINE = 15


class _End(NamedTuple):
    """Where a Pathfinder run ended: moments, densest draw, and mean log density of its draws."""

    mean: Array
    variance: Array
    point: Array
    log_density: float


@dataclass(frozen=True, kw_only=True)
class Wide(Maker):
    """A base for more parameters than a dense one is for.

    Attributes
    ----------
    curved
        Whether the Gaussian of the only mode's curvature is welcome.
    given
        Whether a base in two stages is looked for.
    kept
        Draws of pilots that are kept, at most.
    starts
        Starts of Pathfinder.
    candidates, by
        Draws of each of its approximations, of which a pilot takes the densest, and those by which
        a step of its ascents is judged. With Stan's 25 the ascents of a Gaussian process took three
        times as long, to the same ends.
    ascents
        Ends of Pathfinder from which ascents go on.
    most_curved
        Parameters up to which there are ascents. Second derivatives take 2 D gradients, and their
        root D³ operations: 3 seconds at 2,000.
    dip
        Two pilots whose means lie apart are of one mode if the log density on the line between
        these falls nowhere by more than so many nats below the straight line between its ends. Slow
        chains of one mode have such means.
    """

    name: ClassVar[str] = "wide"
    judged: ClassVar[bool] = False

    curved: Annotated[bool, Flag()] = False
    given: Annotated[bool, Flag()] = True
    kept: Annotated[int, Whole(1)] = 400
    starts: Annotated[int, Whole(1)] = 12
    candidates: Annotated[int, Whole(2)] = 25
    by: Annotated[int, Whole(2)] = 5
    ascents: Annotated[int, Whole(1)] = 3
    most_curved: Annotated[int, Whole(1)] = 2000
    dip: Annotated[float, Real(0)] = 2.0

    def applies(self, state: State) -> bool:
        return state.target.density.dimension > MOST_DENSE and not state.target.by_cmdstan

    def make(self, state: State) -> Proposal:
        target, places = state.target, state.hints.places
        starts, pilots, bridge, particles = state.seeds.wide.spawn(4)
        rng = np.random.default_rng(bridge)
        ends = self._ends(state, starts, rng)
        spent, evaluations = 0, self.candidates * len(ends)
        if self.curved and target.density.dimension <= self.most_curved:
            looked = heard(partial(self._curvature, state, ends, particles))
            if isinstance(looked, Proposal):
                return looked
            spent = looked
        chosen = _farthest(ends, max(state.chains - len(places), 0))
        at = [*places, *(ends[k].point for k in chosen)]
        drawn, gradients = short_chains(target, at, pilots, rng, state.nuts)
        points = np.concatenate(drawn)
        _, scores = heard(lambda: target.density.log_density_gradients(points))
        base = LowRankBase.from_points(points).narrowed(points, scores)
        x = base.unwhiten(base.draw(rng, len(points)))
        log_z = bridge_log_z(
            *(target.density.log_densities(one) - base.log_density(one) for one in (points, x))
        )
        groups = modes_of(drawn, target.density.log_densities, self.dip)
        merged = [np.concatenate([drawn[i] for i in group]) for group in groups]
        weight = np.array([len(part) / len(points) for part in merged])
        once = sum(len(group) == 1 for group in groups) / len(drawn) if len(groups) > 1 else 0.0
        return self._proposal(
            (base, log_z),
            self._survey(state, merged, log_z + np.log(weight), once),
            points=points[:: max(len(points) // self.kept, 1)],
            gradients=spent + gradients + len(points),
            evaluations=evaluations + 2 * len(points),
            said="short chains",
        )

    def _curvature(
        self, state: State, ends: Sequence[_End], seed: np.random.SeedSequence
    ) -> Proposal | int:
        """From the curvature at the only mode; only the gradients spent where there is none."""
        target, threads = state.target, state.nuts.threads
        starts = [*(ends[k].point for k in _farthest(ends, self.ascents)), *state.hints.places]
        spread, rng = np.sqrt(ends[0].variance), np.random.default_rng(seed)
        found = ascents_from(target.density, starts, spread, rng)
        if len(found.fits) != 1:
            return found.gradients
        (fit,) = found.fits
        moves, rest = seed.spawn(2)
        mode = measured(target, fit, moves, threads=threads)
        gradients, evaluations = found.gradients + mode.gradients, self.candidates * len(ends)
        nested, log_z, base = None, 0.0, None
        if mode.fit is not None:
            log_z = mode.fit.log_evidence
            base = mode.fit.gaussian
        elif self.given:
            nested = find_nested_wide(target, fit, rest, threads=threads)
            gradients, evaluations = gradients + nested.gradients, evaluations + nested.evaluations
            if nested.base is not None:
                base, log_z = nested.base.whitening, nested.log_z
        if base is None:
            return gradients
        points = base.mean + base.spread * np.array([[-1.0], [1.0]])
        return self._proposal(
            (base, log_z),
            self._survey(state, [points], np.array([log_z]), found.unseen),
            nested=nested,
            gradients=gradients,
            evaluations=evaluations,
            said="the curvature of the only mode",
        )

    def _proposal(
        self, base: tuple[Base, float], survey: Survey, *, said: str, gradients: int,
        evaluations: int, **known: Any,
    ) -> Proposal:  # fmt: skip
        return Proposal(
            instead=base,
            known={"survey": survey, **known},
            gradients=gradients,
            evaluations=evaluations,
            made=len(survey.place),
            said=said,
        )

    def _survey(
        self, state: State, modes: Sequence[Array], log_evidence: Array, unseen: float
    ) -> Survey:
        """The survey of modes, of which there are points of shape (n, D) each."""
        return Survey(
            np.array([points.mean(axis=0) for points in modes]),
            np.array([points.std(axis=0) for points in modes]),
            log_evidence,
            Sought(
                unseen=unseen, starts=self.starts + len(state.hints.places), radius=max(RADII),
                complete=len(modes) == 1,
            ),
        )  # fmt: skip

    def _ends(
        self, state: State, seed: np.random.SeedSequence, rng: np.random.Generator
    ) -> list[_End]:
        """The ends of Pathfinder runs that gave draws with a finite density, densest first."""
        target = state.target
        state.bar.phase(self.starts, "start")
        seen = attempts(
            target,
            self.candidates,
            state.bar,
            seed,
            starts=self.starts,
            radii=RADII,
            judged=self.by,
        )
        found, failure = inside_of(target, seen, rng)
        if not found:
            raise EngineError(
                f"Pathfinder failed from all of {self.starts} starts.{failure}",
                remedy="Pass a LowRankBase of your own.",
            )
        ends = [
            _End(x.mean(axis=0), x.var(axis=0), x[np.argmax(value)], float(value.mean()))
            for x, value in found
        ]
        return sorted(ends, key=lambda end: -end.log_density)


def _farthest(ends: Sequence[_End], count: int) -> list[int]:
    """The densest end, and then always the one farthest from those before it.

    Where there are fewer ends than wanted, they are taken in turn.
    """
    chosen = [0]
    nearest = np.full(len(ends), np.inf)
    while len(chosen) < min(count, len(ends)):
        nearest = np.minimum(nearest, [distance(ends[chosen[-1]][:2], end[:2]) for end in ends])
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return list(itertools.islice(itertools.cycle(chosen), count))


def modes_of(
    drawn: Sequence[Array], log_densities: Callable[[Array], Array], dip: float
) -> list[list[int]]:
    """Group chains, each with points of shape (n, D), whose means agree, or between whose means is
    no valley, largest group first; `dip` is that of `Wide`.
    """
    moments = [(points.mean(axis=0), points.var(axis=0)) for points in drawn]

    def alike(i: int, j: int) -> bool:
        near = distance(moments[i], moments[j]) < SAME_MODE
        return near or not _valley(moments[i][0], moments[j][0], log_densities, dip)

    return sorted(grouped(range(len(drawn)), alike), key=len, reverse=True)


def _valley(one: Array, other: Array, log_densities: Callable[[Array], Array], dip: float) -> bool:
    """Whether the log density between two points dips below the straight line."""
    share = np.linspace(0, 1, ON_THE_LINE)
    heights = log_densities(one + share[:, None] * (other - one))
    return not np.all(heights > heights[0] + share * (heights[-1] - heights[0]) - dip)
