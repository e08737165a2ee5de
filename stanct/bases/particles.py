"""Mass that annealed particles find outside of all modes where ascents ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stanct.bases.ascents import Counted, Optimum, climb, each_height, log_heights
from stanct.bases.rough import those_that_count
from stanct.bases.score import unexplained
from stanct.bases.search import NOTHING, Search, fits_of
from stanct.common.arrays import Array, log_sum_exp
from stanct.path.gaussian import GaussianBase
from stanct.targets.protocols import SampledDensity

# Particles start with this many times the variance of the ends. While they are hot, modes draw them
# by the density of the start, which is then alike at all.
WIDER = 4.0


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
    found: Search, density: SampledDensity, points: Array, *, again: float, few: float, reach: float
) -> tuple[Search, Search]:
    """What a search found, joined by the modes to which points lead that it does not explain.

    Parameters
    ----------
    points : shape (n, D)
        Where annealed particles ended.
    again, few
        The search is settled if the new modes have less than the second share of the mass, and the
        first share of it is at modes where a particle of any look ended.

    Returns
    -------
    The search with its new modes, and the costs alone.
    """
    counted, modes = Counted(density, reach=reach), [*found.optima]
    ascents = {id(one): one.seen for one in modes}
    values = counted.log_densities(points)
    for start, value in zip(points, values, strict=True):
        # What one ascent finds may explain the next particle.
        if unexplained(value, log_heights(modes, start[None])[0]):
            climb(counted, start, modes, modes[0].root)
    for one in modes:  # what is counted there is ascents from anywhere
        one.seen = ascents.get(id(one), 0)
    count = those_that_count(modes)
    # No particle comes into a spike that only a scan has found.
    wide = [one for one in count if not one.scanned]
    known = {id(one) for one in found.optima}
    new = missed = 0.0
    if wide:
        logs = np.array([one.log_mass for one in wide])
        mass = np.exp(logs - log_sum_exp(logs))
        for k in each_height(wide, points).argmax(axis=0):
            wide[k].particles += 1
        new = float(mass[[id(one) not in known for one in wide]].sum())
        missed = float(mass[[not one.particles for one in wide]].sum())
    fits, seen = fits_of(modes, np.random.default_rng(len(modes)))
    joined = replace(
        found, fits=fits, seen=seen, optima=tuple(modes), ends=len(modes),
        particles=found.particles + len(points),
        settled=new < few and missed <= 1 - again,
    )  # fmt: skip
    return joined, replace(NOTHING, gradients=counted.spent, evaluations=counted.evaluated)
