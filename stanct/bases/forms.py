"""Chooses between forms of a program that have the same posterior: short chains and pilots decide.

A method moves between a Gaussian base and the target, and log Z is the same in every form. The form
whose base is nearest is therefore the easier one. With H the entropy of the target, its distance to
the Gaussian of its own moments is KL = ½ log det Cov + ½ D log(2πe) − H. The Jacobian between two
forms gives the difference of their H, so that draws in one form tell which of both is nearer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stanct.arrays import Array
from stanct.bases.fits import FittedBase
from stanct.bases.modes import approximations
from stanct.bases.pilots import half_width
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.errors import EngineError
from stanct.seeds import stan_seed
from stanct.stan.forms import Block, look_names, looking
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

# Draws of each base at which δ is computed.
DRAWS = 1000
# A form with a smaller misfit is taken without a look at the next: of any form, and of one that
# short chains have chosen.
FITS, FITS_CHOSEN = 2.0, 10.0
# The short chains, and the draws of Pathfinder at their starts.
CHAINS, WARMUP, LENGTH, PATHFINDER = 4, 150, 100, 25
# A hierarchy is turned if its other form is nearer by so many nats.
WORTH = 1.0
# With fewer draws, nothing is turned.
FEWEST = 50


@dataclass(frozen=True)
class Look:
    """What short chains tell of the forms of a program.

    Attributes
    ----------
    turned
        The user's parameters to sample in the other form than the one written.
    gains
        How many nats nearer to a Gaussian the centred form of each parameter is.
    gradients, evaluations
        Gradients spent, and log densities without a gradient.
    """

    turned: tuple[str, ...]
    gains: Mapping[str, float] = field(default_factory=dict)
    gradients: int = 0
    evaluations: int = 0


def standardised(seen: Sequence[Block]) -> tuple[str, ...]:
    """What to turn for the form in which all hierarchies are non-centred."""
    return tuple(block.name for block in seen if block.centred)


def look(target: ProgramTarget, *, seed: np.random.SeedSequence, nuts: Nuts) -> Look | None:
    """Ask short chains, in the non-centred form, which form of each hierarchy is easier.

    Returns
    -------
    Look or None
        None where the embedded engine cannot tell.
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
            fits = approximations(
                form, embedded.pathfinder, PATHFINDER, bar, starts, rng, starts=CHAINS
            )
        places = np.array([fit.points[rng.integers(len(fit.points))] for fit in fits])
        block, gradients = embedded.run_nuts(
            form.density.recipe, places, seed=stan_seed(chains), warmup=WARMUP, draws=LENGTH,
            nuts=replace(nuts, target_accept=0.8),
        )  # fmt: skip
    except EngineError:
        return None
    gains = {
        one.name: centring_gain(
            *(
                _elements(block.variables[name])
                for name in (one.values, *look_names(turned_all.program, number))
            )
        )
        for number, one in enumerate(seen)
        if one.parts is not None
    }
    turned = []
    for one in seen:
        gain = gains.get(one.name, 0.0)
        if gain <= WORTH if one.centred else gain > WORTH:
            turned.append(one.name)
    return Look(tuple(turned), gains, gradients, PATHFINDER * len(fits))


def _elements(values: Array) -> Array:
    """Draws of all chains, shape (n, J), from shape (chains, draws, ...)."""
    return np.asarray(values, float).reshape(values.shape[0] * values.shape[1], -1)


def centring_gain(values: Array, location: Array, scale: Array) -> float:
    """How many nats nearer to a Gaussian a hierarchy is in its centred form than in the other.

    The sum over its elements, each with its location and the log of its scale. It is 0 where too
    few draws are finite.

    Parameters
    ----------
    values, location, scale : shape (n, J)
        Draws of the elements in the centred form, and of their location and scale.
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


def misfit(target: ProgramTarget, base: FittedBase, seed: np.random.SeedSequence) -> float:
    """Half the width of the middle two thirds of δ over draws of the base, natural log.

    It is 0 where the base is the target. Outside of the target's support δ is infinite.
    """
    z = base.base.draw(np.random.default_rng(seed), DRAWS)
    delta = base.base.delta(z, target.density.log_densities(base.base.unwhiten(z)))
    return half_width(delta)


def nearest(misfits: Sequence[float]) -> int:
    """Which form to sample; the first where none is better."""
    return int(np.argmin(misfits))
