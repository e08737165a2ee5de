"""Mass outside of all modes where ascents ended, which far draws and annealed particles find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from stanct.bases.ascents import Counted, Optimum, climb, each_height, log_heights, uncounted
from stanct.bases.far import looked_far
from stanct.bases.loop import Maker, Proposal, State, effort_of
from stanct.bases.rough import those_that_count
from stanct.bases.score import unexplained
from stanct.bases.scouts import annealed_scouts
from stanct.bases.search import Search, fits_of
from stanct.bases.starts import reach_of
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import EngineError
from stanct.common.settings import Real, Whole
from stanct.path.gaussian import GaussianBase

# Particles start with this many times the variance of the ends, so that the density of the start is
# about the same at all of them.
WIDER = 4.0


@dataclass(frozen=True, kw_only=True)
class Particles(Maker):
    """Far draws and annealed particles look for mass outside of all modes that ascents found.

    A basin is not a mass: in many dimensions a narrow mode of much mass has a small basin. Draws
    from around all modes come first; see `stanct.bases.far`. Where known modes do not explain them,
    particles cool from one Gaussian around all ends of ascents, and arrive at modes more nearly in
    proportion to their masses. Ascents follow from those that no known mode explains. Looks follow
    until one finds hardly any mass that is new, and all together nearly all that was known.

    Attributes
    ----------
    more_than
        They look in more dimensions than this, where several modes are known.
    count, each
        Particles of a look: so many, or so many for each known mode.
    temperatures
        Steps of each particle.
    again, few
        A look settles the matter if the modes that it adds have less than the second share of the
        mass, and all looks together found the first share again. What no look would find again, no
        look may have found.
    share
        Share of the purse after which no further look follows.
    """

    name: ClassVar[str] = "particles"
    judged: ClassVar[bool] = False

    more_than: Annotated[int, Whole(0)] = 4
    count: Annotated[int, Whole(8)] = 100
    each: Annotated[int, Whole(1)] = 4
    temperatures: Annotated[int, Whole(2)] = 30
    again: Annotated[float, Real(0, 1)] = 0.9
    few: Annotated[float, Real(0, 1)] = 0.01
    share: Annotated[float, Real(0, 1)] = 0.1

    def applies(self, state: State) -> bool:
        looked = state.search
        if state.instead is not None or looked.has_thousands or looked.whole:
            return False
        return len(looked.fits) > 1 and looked.fits[0].mean.size > self.more_than

    def make(self, state: State) -> Proposal:
        looked, target, known = state.search, state.target, state.search.ends
        (first,) = state.seeds.look.spawn(1)
        counted = Counted(target.density, effort_of(target), reach_of(target))
        looked, whole = self._far(looked, first, counted)
        cooled = 0
        finders, doubt = "far draws", "a narrower one"
        most = state.purse.may_spend(self.share)
        while not whole and counted.spent + cooled < most and not looked.settled:
            (child,) = state.seeds.look.spawn(1)
            count = max(self.count, self.each * len(looked.fits))
            state.bar.phase(count, "particle")
            state.bar.note("annealing")
            try:
                scouts = annealed_scouts(
                    target.density.borrow, wide_of(looked.optima), seed=child, particles=count,
                    threads=state.nuts.threads, temperatures=self.temperatures, bar=state.bar,
                )  # fmt: skip
            except EngineError:
                break
            state.bar.phase(0, "")
            state.bar.note("ascents from where they ended")
            looked = with_ends_of(looked, counted, scouts.points, again=self.again, few=self.few)
            cooled += scouts.gradients
        if not whole:
            finders, doubt = f"{looked.particles} annealed particles", "others"
        return Proposal(
            known={"search": looked},
            gradients=counted.spent + cooled,
            evaluations=counted.evaluated,
            made=looked.ends - known,
            said=f"{finders} found {looked.ends - known} more optima"
            + ("" if looked.settled else f", and {doubt} may be missing"),
        )

    def _far(
        self, found: Search, seed: np.random.SeedSequence, counted: Counted
    ) -> tuple[Search, bool]:
        """What a search found with what far draws add, and whether known modes explain them."""
        modes = [*found.optima]
        far = looked_far(counted, modes, np.random.default_rng(seed))
        if not far.whole:
            # Of thousands of modes those that dominate somewhere far out tell nothing.
            return found, False
        missed = _share(modes, lambda one: not one.particles)
        settled = far.sees_narrower and missed <= 1 - self.again
        return replace(with_modes(found, modes), settled=settled), True


def wide_of(optima: Sequence[Optimum]) -> GaussianBase:
    """A Gaussian around and beyond all ends of ascents, which have equal weights.

    Its coordinates are independent but for what the modes' own shapes say, because few ends do not
    tell in which directions others lie.
    """
    places = np.array([one.place for one in optima])
    within = np.mean([one.root @ one.root.T for one in optima], axis=0)
    return GaussianBase.from_covariance(
        places.mean(axis=0), within + WIDER * np.diag(places.var(axis=0))
    )


def with_ends_of(
    found: Search, counted: Counted, points: Array, *, again: float, few: float
) -> Search:
    """What a search found, joined by the modes to which points lead that it does not explain.

    The points, shape (n, D), are where annealed particles ended. The search is settled if the new
    modes have less than the share `few` of the mass, and the share `again` of it is at modes where
    a particle of any look ended.
    """
    modes = [*found.optima]
    known = {id(one) for one in modes}
    values = counted.log_densities(points)
    with uncounted(modes):
        for start, value in zip(points, values, strict=True):
            # What one ascent finds may explain the next particle.
            if unexplained(value, log_heights(modes, start[None])[0]):
                climb(counted, start, modes, modes[0].root)
    # No particle comes into a spike that only a scan has found.
    wide = [one for one in those_that_count(modes) if not one.scanned]
    if wide:
        for k in each_height(wide, points).argmax(axis=0):
            wide[k].particles += 1
    new = _share(modes, lambda one: id(one) not in known)
    missed = _share(modes, lambda one: not one.particles)
    return replace(
        with_modes(found, modes),
        particles=found.particles + len(points),
        settled=new < few and missed <= 1 - again,
    )


def _share(modes: Sequence[Optimum], of: Callable[[Optimum], bool]) -> float:
    """Share of some modes in the mass of all that count and that not only a scan has found."""
    wide = [one for one in those_that_count(modes) if not one.scanned]
    if not wide:
        return 0.0
    logs = np.array([one.log_mass for one in wide])
    return float(np.exp(logs - log_sum_exp(logs))[[of(one) for one in wide]].sum())


def with_modes(found: Search, modes: list[Optimum]) -> Search:
    """What a search found, with further modes."""
    fits, seen = fits_of(modes, np.random.default_rng(len(modes)))
    return replace(found, fits=fits, seen=seen, optima=tuple(modes), ends=len(modes))
