"""Makers of a base in place of the modes: scouts, and what is simple given a few."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

import numpy as np

from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.nested import Nested, find_nested
from stanct.bases.score import unexplained
from stanct.bases.scouts import Scouts, annealed_scouts
from stanct.common.settings import Real, Whole
from stanct.path.base import Base, lent
from stanct.path.gaussian import GaussianBase, gaussian_moments, mixture_moments
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.path.nested import NestedBase
from stanct.work.interrupts import heard
from stanct.work.progress import Bar


@dataclass(frozen=True, kw_only=True)
class Given(Maker):
    """A base in two stages, where all other parameters are simple given a few.

    Attributes
    ----------
    share
        Share of the purse that it may take.
    draws, missed
        Where tails of the few are heavy, so many draws in them decide. The base may miss a smaller
        share of the mass than the second.
    """

    name: ClassVar[str] = "given"
    judged: ClassVar[bool] = False
    scored: ClassVar[bool] = True

    share: Annotated[float, Real(0, 1)] = 0.52 / 3
    draws: Annotated[int, Whole(1)] = 500
    missed: Annotated[float, Real(0, 1)] = 3e-4

    def applies(self, state: State) -> bool:
        return state.nested is None and state.points is not None

    def make(self, state: State) -> Proposal:
        assert state.points is not None
        fit = partial(
            find_nested, state.target, state.points, state.seeds.nested,
            most=state.purse.may_spend(self.share),
        )  # fmt: skip
        found: Nested = heard(fit)
        if found.base is not None and not set(state.tails).isdisjoint(found.outer):
            found = heard(partial(self.reaching, state, found, found.base))
        held = "" if found.base is None else f"all others are {found.form} given "
        return Proposal(
            known={"nested": found},
            gradients=found.gradients,
            evaluations=found.evaluations,
            made=int(found.base is not None),
            said=held + ", ".join(found.outer) if held else "",
        )

    def reaching(self, state: State, found: Nested, base: NestedBase) -> Nested:
        """What was found, without its base where draws of the parts that were laid for heavy tails
        of the few tell that these are beyond its mixture.
        """
        tails = MixtureBase.of(*zip(*state.parts, strict=True))
        x = tails.unwhiten(tails.draw(np.random.default_rng(state.seeds.nested), self.draws))
        log_p = state.target.density.log_densities(x) - found.log_z
        log_q = lent(base, state.target.density.borrow).log_density(x)
        mass = np.exp(log_p - tails.log_density(x))
        return replace(
            found,
            base=None if mass @ unexplained(log_p, log_q) > self.missed * len(x) else base,
            gradients=found.gradients + round(base.gradients * len(x)),
            evaluations=found.evaluations + len(x),
        )


@dataclass(frozen=True, kw_only=True)
class AnnealedScouts(Maker):
    """Annealed particles around and beyond the known modes, where others may be missing.

    The base takes their spread. Every mode has the same weight, because the next one to be found
    may outweigh all known ones. If scouts end farther apart than their starts, new scouts start
    from a Gaussian around and beyond them. If unseen modes are likely, the first Gaussian is wider,
    and there is a second look.

    Attributes
    ----------
    per_dimension, fewest, most
        Particles for each dimension, and their bounds.
    temperatures
        Steps of each. Only their spread counts. On five Boltzmann machines that of 100 steps was no
        better.
    few
        Scouts start with twice the variance of the modes. In up to so many dimensions, where this
        costs little, they start with four times the variance if more modes are likely. Scouts from
        too far away all end in broad modes.
    looks
        They start again while their spread grows, up to so many times.
    """

    name: ClassVar[str] = "scouts"
    judged: ClassVar[bool] = False

    per_dimension: Annotated[int, Whole(1)] = 4
    fewest: Annotated[int, Whole(8)] = 128
    most: Annotated[int, Whole(8)] = 512
    temperatures: Annotated[int, Whole(2)] = 50
    few: Annotated[int, Whole(1)] = 4
    looks: Annotated[int, Whole(1)] = 4

    def applies(self, state: State) -> bool:
        if state.modes is None or not state.several or state.in_two_stages:
            return False
        return state.recipe.shape in ("Gaussian", "low rank") or not state.measured.sought.complete

    def make(self, state: State) -> Proposal:
        scouts = self._looked(state)
        base: Base
        if state.recipe.shape == "low rank":
            base = LowRankBase.from_points(scouts.points)
        else:
            base = GaussianBase.from_covariance(*gaussian_moments(scouts.points))
        return Proposal(
            instead=(base, scouts.log_z),
            gradients=scouts.gradients,
            made=len(scouts.points),
            said="the base is as wide as annealed particles spread",
        )

    def _looked(self, state: State) -> Scouts:
        """The last scouts, with the gradients of all."""
        modes, nuts = state.measured, state.nuts
        fits = (*modes.fits, *modes.peaks)
        mean, covariance, _ = mixture_moments(
            np.zeros(len(fits)), [fit.mean for fit in fits], [fit.covariance for fit in fits]
        )
        count = int(np.clip(self.per_dimension * mean.size, self.fewest, self.most))
        # The largest of D ratios of two such variances typically errs by √(2 ln D) standard errors.
        noise = (1.5 + np.sqrt(2 * np.log(mean.size))) * np.sqrt(4 / count)
        unseen = not modes.sought.complete
        more = 1 + 2 * unseen * min(1.0, self.few / mean.size) ** 2
        looks, gradients = state.seeds.scouts.spawn(self.looks), 0
        with Bar(self.looks, "scouts", unit="look", shown=state.bar.shown) as bar:
            while True:
                before = np.diag(covariance)
                wide = GaussianBase.from_covariance(mean, covariance + more * np.diag(before))
                scouts = annealed_scouts(
                    state.target.density.borrow, wide, particles=count, seed=looks.pop(),
                    threads=nuts.threads, temperatures=self.temperatures,
                )  # fmt: skip
                bar.update()
                gradients += scouts.gradients
                mean, covariance = gaussian_moments(scouts.points)
                done = self.looks - len(looks)
                settled = done > unseen and np.all(np.diag(covariance) < (1 + noise) * before)
                if settled or not looks:
                    return Scouts(scouts.points, scouts.log_z, gradients)
