"""Makers that find the modes of a target, and measure each.

Ascents find local modes, and find them at every scale. Curvature measures those that it explains.
Pathfinder stops on its way up where the bulk of the mass is, which ascents in funnels miss, and
pilot chains measure what curvature cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

import numpy as np

from stanct.bases.ascents import MOST_GRADIENTS
from stanct.bases.known import Modes, Sought
from stanct.bases.local import (
    LocalFit,
    best_of_each_mode,
    distinct_modes,
    encloses,
    explains,
    inside,
    is_flat,
    unit_wide,
)
from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.pilots import (
    FAINT,
    SHALLOW,
    Piloted,
    annealed,
    measured,
    most_pilots,
    needless,
    piloted,
    without_end,
)
from stanct.bases.search import FEW, UNSEEN, Search, search
from stanct.bases.starts import STARTS, approximations, attempts, fitted, laplace_fits, reach_of
from stanct.bases.variational import variational_fits
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import EngineError, StanctError, counted
from stanct.common.settings import Flag, Real, Whole
from stanct.engines import embedded
from stanct.work.interrupts import heard


@dataclass(frozen=True, kw_only=True)
class Ascents(Maker):
    """Many cheap ascents from several radii, and scans for spikes; see `stanct.bases.search`.

    Attributes
    ----------
    share, rough
        Shares of the purse that it may take, and that it may take where most modes are seen once.
    scan, outskirts
        Whether draws of the modes look for spikes, and draws far out for light modes.
    """

    name: ClassVar[str] = "ascents"
    judged: ClassVar[bool] = False

    share: Annotated[float, Real(0, 1)] = 0.01
    rough: Annotated[float, Real(0, 1)] = 0.1
    scan: Annotated[bool, Flag()] = True
    outskirts: Annotated[bool, Flag()] = True

    def applies(self, state: State) -> bool:
        return state.instead is None

    def make(self, state: State) -> Proposal:
        hints, density = state.hints, state.target.density
        look = partial(
            search,
            density,
            state.seeds.search,
            radius=hints.radius,
            reach=max(hints.radius or 0.0, reach_of(state.target)),
            places=hints.places,
            named=state.target.one_component,
            effort=state.purse.may_spend(self.share) / MOST_GRADIENTS,
            most_rough=int(state.purse.may_spend(self.rough)),
            scan=self.scan,
            outskirts=self.outskirts,
            bar=state.bar,
        )
        looked = heard(look)
        return Proposal(
            known={"search": looked},
            gradients=looked.gradients,
            evaluations=looked.evaluations,
            made=len(looked.fits),
            said=f"{looked.ascents} of {looked.ascents + looked.astray} ascents ended at "
            f"{counted(looked.ends, 'optimum', 'optima')}"
            + (f"; {looked.named} components followed" if looked.named else "")
            + "".join(_of_init(*one) for one in enumerate(looked.below, 1)),
        )


@dataclass(frozen=True, kw_only=True)
class Curvature(Maker):
    """Particles from the Gaussian of each mode's curvature tell whether it fits.

    Attributes
    ----------
    share
        Share of the purse after which no further mode is measured.
    fitting
        Modes beyond as many as get pilots are measured while this share of those before them fits.
    """

    name: ClassVar[str] = "curvature"
    judged: ClassVar[bool] = False

    share: Annotated[float, Real(0, 1)] = 0.1
    fitting: Annotated[float, Real(0, 1)] = 0.5

    def applies(self, state: State) -> bool:
        return state.instead is None

    def make(self, state: State) -> Proposal:
        target, looked = state.target, state.search
        near, others = list[LocalFit](), list[LocalFit]()
        gradients = evaluations = 0
        few = most_pilots(target.density.dimension)
        if looked.has_thousands:
            return Proposal(known={"others": looked.fits[:few]}, said="thousands of modes")
        if looked.whole:
            return Proposal(
                known={"near": looked.fits}, made=len(looked.fits),
                said="Gaussian components that the program names explain all that was seen",
            )  # fmt: skip
        most = state.purse.may_spend(self.share)
        children = state.seeds.particles.spawn(len(looked.fits))
        state.bar.phase(len(looked.fits), "mode")
        tried = 0
        for fit, child in zip(looked.fits, children, strict=True):
            if tried >= few and (len(near) < self.fitting * tried or gradients > most):
                break
            tried += 1
            found = measured(
                target, fit, child, threads=state.nuts.threads, known=looked.fits,
                one_of_many=tried > few,
            )  # fmt: skip
            gradients, evaluations = gradients + found.gradients, evaluations + found.evaluations
            if found.around is not None and found.fit is not None:
                near.append(found.around)
            if found.fit is None:
                others += [fit, *([found.strays] if found.strays else [])]
            else:
                near.append(found.fit)
            # The purse, or fits that fail, may end this before all modes are measured.
            fails = len(near) < self.fitting * tried
            paid = few if fails else int(tried * most / max(gradients, 1))
            state.bar.expect(min(len(looked.fits), max(few, tried, paid)))
            state.bar.update()
        wide = sum(fit.around for fit in near)
        return Proposal(
            known={"near": tuple(near), "others": tuple(others)},
            gradients=gradients,
            evaluations=evaluations,
            made=len(near),
            said=f"{len(near) - wide} of {tried} optima are Gaussian"
            + (f"; wide mass around {wide}" if wide else ""),
        )


@dataclass(frozen=True, kw_only=True)
class Pathfinder(Maker):
    """Pathfinder from several starts, where curvature has not measured all.

    Attributes
    ----------
    draws
        Draws of each of its approximations.
    """

    name: ClassVar[str] = "pathfinder"
    judged: ClassVar[bool] = False

    draws: Annotated[int, Whole(2)] = 25

    def applies(self, state: State) -> bool:
        wanted = state.others or state.search.astray or not state.near
        return state.instead is None and not state.target.by_cmdstan and bool(wanted)

    def make(self, state: State) -> Proposal:
        state.bar.expect(STARTS)
        seen = attempts(state.target, self.draws, state.bar, state.seeds.starts)
        try:
            found = fitted(state.target, seen, state.rng)
        except EngineError as cause:  # as for a density that is flat up to the edge of its support
            return Proposal(known={"failure": cause}, said="no start worked")
        # The engine does not report its iterations; they count as those of an ascent.
        steps = STARTS * state.search.steps
        return Proposal(
            known={"approximate": tuple(found)},
            gradients=steps,
            evaluations=_points(found) + embedded.JUDGED * steps,
            made=len(found),
            said=f"{len(found)} of {STARTS} starts led to approximations",
        )


@dataclass(frozen=True, kw_only=True)
class Pilots(Maker):
    """Short chains measure the modes that curvature cannot; particles do where no engine can.

    Attributes
    ----------
    left_out
        Where more modes than pilots were found, all count as measured if the fits of the pilots
        leave out a smaller share of the mass. With six effects that are zero or not, two fits
        enclosed twenty modes. A Gaussian around all of it had ten times the error of a mixture of
        the two.
    share
        Share of the purse that pilots of modes may take that those of the first ones left out. They
        are asked if that suffices for all of them.
    kept
        Draws that are kept of each mode's pilots, to within a factor of two.
    """

    name: ClassVar[str] = "pilots"
    judged: ClassVar[bool] = False

    left_out: Annotated[float, Real(0, 1)] = 0.02
    share: Annotated[float, Real(0, 1)] = 0.2
    kept: Annotated[int, Whole(1)] = 200

    def applies(self, state: State) -> bool:
        return state.instead is None

    def make(self, state: State) -> Proposal:
        target, near, others = state.target, [*state.near], [*state.others]
        unseen = 1.0
        if state.approximate and not state.search.ascents:
            # Without a search, the ends of Pathfinder must tell how likely further modes are.
            once = sum(len(group) == 1 for group in distinct_modes(state.approximate))
            unseen = once / len(state.approximate)
        fits, further, gradients, evaluations = near, Piloted(()), 0, 0
        if state.failure or (target.by_cmdstan and (others or not near)):
            # No Pathfinder, and no pilots, which the embedded engine runs.
            try:
                further = annealed(
                    target, near + others, state.seeds.scouts, rng=state.rng,
                    threads=state.nuts.threads,
                )  # fmt: skip
            except StanctError as cause:
                raise state.failure or cause from None
            fits = [*further.fits]
        elif wanted := _for_pilots(state):
            # Only a mode that curves in all directions is surely proper.
            if all(map(is_flat, state.search.fits)):
                lines = without_end(target, wanted)
                gradients, evaluations = lines.gradients, lines.evaluations
                depth = SHALLOW if lines.along else state.nuts.max_depth
                state = replace(state, nuts=replace(state.nuts, max_depth=depth))
            further = piloted(
                target, wanted, chains=state.chains,
                seeds=(state.seeds.pilots, state.seeds.more_pilots), rng=state.rng,
                nuts=state.nuts,
            )  # fmt: skip
            further = self.with_the_rest(state, further)
            fits = near + [one for one in further.fits if not any(explains(n, one) for n in near)]
        modes = self.that_count(
            fits, unseen, state.search, target.density.dimension, gaussian=not others
        )
        points = [one.points[:: max(len(one.points) // self.kept, 1)] for one in modes.fits]
        return Proposal(
            known={"modes": modes, "points": np.concatenate(points)},
            gradients=gradients + further.gradients,
            evaluations=evaluations + further.evaluations,
            made=len(further.fits),
            said=f"{counted(len(modes.fits), 'mode')} in all",
        )

    def with_the_rest(self, state: State, first: Piloted) -> Piloted:
        """Pilots of the modes that the first ones left out too, if the purse pays for all."""
        most = most_pilots(state.target.density.dimension)
        fits = [*state.near, *first.fits]
        known, few = _heavy(state.search.fits, fits), len(state.search.fits) <= most
        rest = [
            inside(fit, state.target.density)
            for fit in _left_out(known, fits, few=few)
            if not is_flat(fit)
        ]
        price = len(rest) * first.gradients / most
        if not rest or price > state.purse.may_spend(self.share):
            return first
        found, gradients, evaluations = [*first.fits], first.gradients, first.evaluations
        parts = [rest[begin : begin + most] for begin in range(0, len(rest), most)]
        for part, seed in zip(parts, state.seeds.more_pilots.spawn(len(parts)), strict=True):
            more = piloted(
                state.target, part, chains=len(part), seeds=(seed, seed), rng=state.rng,
                nuts=state.nuts,
            )  # fmt: skip
            found += [one for one in more.fits if not any(explains(n, one) for n in found)]
            gradients, evaluations = gradients + more.gradients, evaluations + more.evaluations
        if few:  # chains left these, whose curvature says where they are
            still = _left_out(known, [*state.near, *found], few=True)
            found += [inside(fit, state.target.density) for fit in still]
        return Piloted(tuple(found), gradients, evaluations)

    def that_count(
        self, fits: Sequence[LocalFit], unseen: float, looked: Search, dimension: int, *,
        gaussian: bool,
    ) -> Modes:  # fmt: skip
        """The measured modes that are not negligible, and what the search says of further ones."""
        floor = max((fit.log_evidence for fit in fits), default=0.0) - FAINT
        fits = sorted(
            (fit for fit in fits if fit.log_evidence > floor), key=lambda fit: -fit.log_evidence
        )
        if not fits:
            raise EngineError(
                "No start led to a mode whose mass could be measured.",
                remedy="Write parameters in units in which their scales are neither tiny nor huge.",
            )
        # Spikes that ascents found far below the mass are no modes that a start could find.
        known = [
            (fit, seen)
            for fit, seen in zip(looked.fits, looked.seen, strict=True)
            if fit.log_evidence > floor
        ]
        if looked.ascents:
            once = sum(seen == 1 for _, seen in known) / looked.ascents
            unseen = looked.unseen if looked.whole else once
        # In many dimensions a mode that was reached only once stands for many. Of Boltzmann
        # machines with 28 units, mixtures of all that were found lacked up to two thirds of the
        # mass.
        likely = unseen <= UNSEEN if dimension <= FEW else unseen == 0
        # Particles find modes by their mass. Where they find no new one, none of much mass is left.
        # Of modes between which a pilot moves they need not tell. What they doubt, a check says;
        # no wide Gaussian finds a mode that they miss, where all that are known are Gaussian.
        settled = looked.settled if len(fits) > 1 else None
        likely = likely if settled is None else settled or gaussian
        likely = likely and not looked.has_thousands
        heavy = _heavy(looked.fits, fits)
        # Of dozens, a share that ascents may have missed counts as one that no fit holds.
        few = len(heavy) <= most_pilots(dimension)
        left_out = max(_outside(heavy, fits, few=few), 0.0 if few else unseen)
        all_measured = left_out < self.left_out
        peaks = (
            fit
            for fit, _ in known
            if not (is_flat(fit) or any(np.array_equal(fit.mean, one.mean) for one in fits))
        )
        return Modes(
            tuple(fits),
            tuple(peaks),
            Sought(
                unseen=unseen, starts=looked.ascents, radius=looked.radius, finest=looked.finest,
                complete=likely and all_measured, unseen_of_any=looked.unseen, again=looked.again,
                particles=looked.particles, settled=settled, named=looked.named, whole=looked.whole,
            ),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Approximations(Maker):
    """The modes that one approximation finds from several starts, which nothing measures.

    Attributes
    ----------
    way
        ``"pathfinder"``, ``"laplace"`` or ``"advi"``.
    """

    name: ClassVar[str] = "approximations"
    judged: ClassVar[bool] = False

    way: str = "pathfinder"

    def applies(self, state: State) -> bool:
        return True

    def make(self, state: State) -> Proposal:
        target, seeds, bar = state.target, state.seeds, state.bar
        draws, cost, gradients = max(100, 4 * target.density.dimension), 0, 0
        if self.way == "laplace":
            found, gradients = heard(partial(laplace_fits, target, seeds.starts, state.rng))
        else:
            found = approximations(target, draws, bar, seeds.starts, state.rng)
            cost = _points(found)
            if self.way == "advi":
                found, gradients = variational_fits(
                    target.density, found, most_pilots(target.density.dimension), draws, state.rng
                )
                cost += draws * len(found)
        modes = Modes(best_of_each_mode(found))
        return Proposal(
            known={"modes": modes}, gradients=gradients, evaluations=cost, made=len(modes.fits)
        )


def _of_init(number: int, below: float | None) -> str:
    """What became of the start that the user gave."""
    if below is None:
        return f"; from init {number} at none"
    how = f"one with a log mass {below:.1f} below the best" if below >= 0.05 else "the best"
    return f"; from init {number} at {how}"


def _for_pilots(state: State) -> list[LocalFit]:
    """The fits at which pilots start: those of Pathfinder, and of ascents that it did not see.

    Without fits of Pathfinder there are none, because curvature has measured all modes.
    """
    target, approximate, others = state.target, [*state.approximate], [*state.others]
    # In the spike of a funnel, an ascent ends far below the mass that Pathfinder saw. Of a comb of
    # modes, most lie far below those that were measured.
    heard_of = [fit.log_evidence for fit in (*approximate, *state.near)]
    bound = max(heard_of, default=-np.inf)
    # The width of a ridge would make one mode of all modes.
    others = [unit_wide(fit) if is_flat(fit) else fit for fit in others]
    others = [inside(fit, target.density) for fit in others if fit.log_evidence > bound - FAINT]
    if not approximate:  # all is measured, or nobody asked Pathfinder
        return others
    if not state.search.ascents:  # too many dimensions for a search
        others += [_around(place, approximate) for place in state.hints.places]
    every = [*approximate, *others]
    return [fit for fit in every if not needless(target, fit, state.near, bound)]


def _heavy(known: Sequence[LocalFit], fits: Sequence[LocalFit]) -> list[LocalFit]:
    """Known modes whose mass is not negligible beside measured ones.

    Curvature alone is short of the mass of heavy tails: by 16 nats of a product of fifty t
    densities with two degrees of freedom. It is taken to be as short of modes that were not
    measured as, at least, of those that were.
    """
    short = [
        one.log_evidence - max(inner)
        for one in fits
        if (inner := [fit.log_evidence for fit in known if encloses(one, fit)])
    ]
    floor = max(fit.log_evidence for fit in fits) - FAINT - max(min(short, default=0.0), 0.0)
    return [fit for fit in known if fit.log_evidence > floor]


def _left_out(known: Sequence[LocalFit], fits: Sequence[LocalFit], *, few: bool) -> list[LocalFit]:
    """Known modes that no fit of a pilot encloses.

    Where a chain moves between modes, its fit encloses many. Of a few modes, one at the place of a
    fit is measured, also if it is wider than that, and one on a ridge is, too.
    """
    alone = [fit for fit in known if not any(encloses(one, fit) for one in fits)]
    return [fit for fit in alone if not few or _is_apart(fit, fits)]


def _is_apart(fit: LocalFit, others: Sequence[LocalFit]) -> bool:
    return not is_flat(fit) and all(len(distinct_modes([fit, one])) > 1 for one in others)


def _outside(known: Sequence[LocalFit], fits: Sequence[LocalFit], *, few: bool) -> float:
    """Share of the mass of known modes, by their curvature, that no fit of a pilot holds."""
    left_out = [fit.log_evidence for fit in _left_out(known, fits, few=few)]
    if not left_out:
        return 0.0
    whole = log_sum_exp(np.array([fit.log_evidence for fit in known]))
    return float(np.exp(log_sum_exp(np.array(left_out)) - whole))


def _around(place: Array, fits: list[LocalFit]) -> LocalFit:
    """A fit at a place of which nothing else is known, so that a pilot starts there."""
    best = max(fit.log_evidence for fit in fits)
    return LocalFit(place, np.eye(place.size), best, place[None])


def _points(fits: Sequence[LocalFit]) -> int:
    return sum(len(fit.points) for fit in fits)
