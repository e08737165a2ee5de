"""Chooses between forms of a program that have the same posterior: short chains decide.

A method moves between a Gaussian base and the target, and log Z is the same in every form. The form
whose base is nearest is therefore the easier one. With H the entropy of the target, its distance to
the Gaussian of its own moments is KL = ½ log det Cov + ½ D log(2πe) − H. The Jacobian between two
forms gives the difference of their H, so that draws in one form tell which of both is nearer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stanct.bases.starts import approximations
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.common.seeds import stan_seed
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.stan.forms import Block, look_names, looking
from stanct.stan.program import Program
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

# The short chains, and the draws of Pathfinder at their starts.
CHAINS, WARMUP, LENGTH, PATHFINDER = 4, 150, 100, 25
# Trajectories of the short chains have 2⁷ steps at most. In the wrong form they would take a
# thousand, and tell hardly more.
DEPTH = 7
# A hierarchy is turned if its other form is nearer by so many nats.
WORTH = 1.0
# With fewer draws, nothing is turned.
FEWEST = 50


@dataclass(frozen=True)
class Look:
    """What short chains tell of the forms of a program: the user's parameters to sample in the
    other form than the one written, how many nats nearer to a Gaussian the centred form of each is,
    and the cost.
    """

    turned: tuple[str, ...]
    gains: Mapping[str, float] = field(default_factory=dict)
    gradients: int = 0
    evaluations: int = 0


def standardised(seen: Sequence[Block]) -> tuple[str, ...]:
    """What to turn for the form in which all hierarchies are non-centred."""
    return tuple(block.name for block in seen if block.centred)


def look(target: ProgramTarget, *, seed: np.random.SeedSequence, nuts: Nuts) -> Look | None:
    """Ask short chains, in the non-centred form, which form of each hierarchy is easier; None where
    the embedded engine cannot tell.
    """
    seen, first = target.blocks, standardised(target.blocks)
    try:
        turned_all = target.in_form(first)
        form = replace(turned_all, program=looking(turned_all.program, seen))
        if form.by_cmdstan:
            return None
        starts, chains, choice = seed.spawn(3)
        rng = np.random.default_rng(choice)
        with Bar(CHAINS, "form", unit="start", shown=False) as bar:
            fits = approximations(form, PATHFINDER, bar, starts, rng, starts=CHAINS)
        places = np.array([fit.points[rng.integers(len(fit.points))] for fit in fits])
        block, gradients = embedded.run_nuts(
            form.density.recipe, places, seed=stan_seed(chains), warmup=WARMUP, draws=LENGTH,
            nuts=replace(nuts, target_accept=0.8, max_depth=DEPTH),
        )  # fmt: skip
    except EngineError:
        return None
    gains = _gains(seen, turned_all.program, block.variables)
    turned = easier(seen, gains)
    return Look(turned, gains, gradients, PATHFINDER * len(fits))


def easier(seen: Sequence[Block], gains: Mapping[str, float]) -> tuple[str, ...]:
    """The parameters to turn, by the gains of their centred forms."""
    turned = []
    for one in seen:
        gain = gains.get(one.name, 0.0)
        if gain <= WORTH if one.centred else gain > WORTH:
            turned.append(one.name)
    return tuple(turned)


@dataclass(frozen=True)
class Seen:
    """Points of a program with location and scale of all elements of its hierarchies.

    The target is as the user wrote it, `blocks` are those of its hierarchies whose elements have a
    location and a scale, and `variables` the values of all variables at n points, each of shape (1,
    n, ...).
    """

    target: ProgramTarget
    blocks: tuple[Block, ...]
    variables: Mapping[str, Array] = field(repr=False)

    @classmethod
    def at(cls, target: ProgramTarget, points: Array) -> Seen:
        """What a target's program has at unconstrained points, shape (n, D)."""
        shown = replace(target, program=looking(target.program, target.blocks))
        known = tuple(one for one in target.blocks if one.parts is not None)
        # As draws of one chain.
        return cls(target, known, shown.density.variables(np.asarray(points)[None], seed=1))

    def in_form(self, form: ProgramTarget, turned: Sequence[str]) -> Array:
        """The same points in the coordinates of the target's form with these parameters `turned`,
        shape (n, D), but for those at which an element's scale is zero.
        """
        own, names = set(self.target.program.parameter_names), form.program.parameter_names
        fresh = [name for name in names if name not in own]
        values = {name: self.variables[name][0] for name in names if name in own}
        for number, block in enumerate(self.target.blocks):
            if block not in self.blocks or block.name not in turned:
                continue
            own_values = self.variables[block.values][0]
            if block.centred:
                of_elements, location, scale = _elements(
                    block, number, self.target.program, self.variables
                )
                with np.errstate(all="ignore"):
                    raw = (of_elements - location) / scale
                (name,) = [one for one in fresh if re.fullmatch(f"{block.name}_raw[0-9]*", one)]
                values[name] = raw.reshape(own_values.shape)
            else:
                values[block.values] = own_values
        points = []
        for k in range(len(next(iter(values.values())))):
            at = {name: of_all[k] for name, of_all in values.items()}
            if all(np.isfinite(value).all() for value in at.values()):
                points.append(form.density.unconstrain(at))
        return np.array(points).reshape(len(points), form.density.dimension)


def nearer(target: ProgramTarget, points: Array) -> tuple[ProgramTarget, Array]:
    """The form of a target that is nearest to a Gaussian by draws of it, shape (n, D), and these in
    that form.

    Hierarchies whose elements have no location and scale of their own stay as they are.
    """
    if not target.blocks or len(points) < FEWEST:
        return target, points
    seen = Seen.at(target, points)
    turned = easier(seen.blocks, _gains(target.blocks, target.program, seen.variables))
    if not turned:
        return target, points
    form = target.in_form(turned)
    carried = seen.in_form(form, turned)
    return (form, carried) if len(carried) >= FEWEST else (target, points)


def _gains(
    blocks: Sequence[Block], program: Program, variables: Mapping[str, Array]
) -> dict[str, float]:
    """How many nats nearer to a Gaussian the centred form of each parameter is, by draws of the
    program's `looking` form, each of shape (chains, draws, ...).
    """
    return {
        one.name: centring_gain(*_elements(one, number, program, variables))
        for number, one in enumerate(blocks)
        if one.parts is not None
    }


def _elements(
    block: Block, number: int, program: Program, variables: Mapping[str, Array]
) -> tuple[Array, Array, Array]:
    """Values, locations and scales of a block's elements, each of shape (n, J)."""
    values, location, scale = (
        np.asarray(variables[name], float).reshape(np.prod(variables[name].shape[:2]), -1)
        for name in (block.values, *look_names(program, number))
    )
    return values, location, scale


def centring_gain(values: Array, location: Array, scale: Array) -> float:
    """How many nats nearer to a Gaussian a hierarchy is in its centred form than in the other.

    The sum over its J elements, by draws of each, of its location and of its scale, shape (n, J).
    It is 0 where too few draws are finite.
    """
    with np.errstate(all="ignore"):
        raw, log_scale = (values - location) / scale, np.log(scale)
    total = 0.0
    for columns in zip(values.T, raw.T, log_scale.T, location.T, strict=True):
        rows = np.array(columns)
        rows = rows[:, np.isfinite(rows).all(axis=0)]
        if rows.shape[1] < FEWEST:
            return 0.0
        centred, apart, log_s, place = rows
        moving = [row for row in (log_s, place) if np.ptp(row) > 1e-10 * np.abs(row).max()]
        if not any(row is log_s for row in moving):
            continue  # an element whose scale is known has one form only
        total += _log_volume(apart, *moving) - _log_volume(centred, *moving) + float(log_s.mean())
    return total if np.isfinite(total) else 0.0


def _log_volume(*rows: Array) -> float:
    """½ log det of the covariance of variables, each of shape (n,)."""
    return 0.5 * float(np.linalg.slogdet(np.cov(np.array(rows)))[1])
