"""Looks for modes that the draws of a fit have missed."""

from __future__ import annotations

import numpy as np

from stanct.bases.local import LocalFit, distinct_modes
from stanct.bases.loop import effort_of
from stanct.bases.pilots import Piloted, bridged, short_chains
from stanct.bases.search import Search, search
from stanct.bases.starts import approximations, reach_of
from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.engines.embedded import Nuts
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

STARTS, POINTS = 12, 25
# Draws from which ascents start.
FROM_DRAWS = 4
# Modes that are followed up by pilot chains, at most, and chains for each. A chain may leave its
# mode while its step size is not yet tuned: of single ones, seven in forty left the mode of mass
# 0.4 in `examples/bimodal`. Of three at a time, one or more always stayed.
MOST_FOLLOWED, CHAINS = 4, 3
# Draws that describe the region which a fit has seen, at most.
MOST_SEEN = 1000


class Seen:
    """The region that draws, shape (n, D), have seen: all points no farther from a draw than draws
    are.

    A further draw of the same density falls outside with probability 1 / (n + 1), because it is
    exchangeable with the n draws. Mass outside is therefore mass that the draws have missed.
    """

    def __init__(self, points: Array) -> None:
        from scipy.spatial import KDTree  # a command without a fit need not wait for it

        step = max(1, -(-len(points) // MOST_SEEN))
        kept = points[::step]
        mean, covariance = gaussian_moments(points)
        self._base = GaussianBase.from_covariance(mean, covariance)
        z = self._base.whiten(kept)
        self._tree = KDTree(z)
        self._radius = float(self._tree.query(z, k=2)[0][:, 1].max())

    def outside(self, points: Array) -> Array:
        """Whether each of the points, shape (n, D), lies outside, shape (n,)."""
        return self._tree.query(self._base.whiten(points))[0] > self._radius


def unseen_modes(
    target: ProgramTarget, points: Array, seed: np.random.SeedSequence, nuts: Nuts
) -> tuple[Piloted, Search]:
    """Search from random starts for modes that the draws of a fit, shape (n, D), have missed.

    The default's own search, and Pathfinder, find places outside the region of the draws. Short
    NUTS chains start there. What drifts back, as from the neck of a funnel, is no mode. A bridge
    measures the mass of the others outside of that region. A mode to which no start leads remains
    unseen here, too. Returns the missed modes with all that was spent, and the search.
    """
    seen = Seen(points)
    ways, pilots, rest, ascents = seed.spawn(4)
    rng = np.random.default_rng(rest)
    looked = search(
        target.density, ascents, reach=reach_of(target), effort=effort_of(target),
        places=[*points[:: -(-len(points) // FROM_DRAWS)]], named=target.one_component, scan=False,
    )  # fmt: skip
    nothing = Piloted((), looked.gradients, looked.evaluations)
    try:
        with Bar(STARTS, "search", unit="start", shown=False) as bar:
            ends = approximations(target, POINTS, bar, ways, rng, starts=STARTS)
    except EngineError:  # no start of Pathfinder worked
        ends = []
    found = [fit for fit in (*looked.fits, *ends) if seen.outside(fit.points).mean() > 0.5]
    followed = [
        (found[group[k % len(group)]].points, k)
        for group in distinct_modes(found)[:MOST_FOLLOWED]
        for k in range(CHAINS)
    ]
    starts = [points[k % len(points)] for points, k in followed]
    if not starts:
        return nothing, looked
    try:
        drawn, gradients = short_chains(target, starts, pilots, rng, nuts)
    except EngineError:  # Stan rejects such places, so no mode is known there.
        return nothing, looked
    beyond = [(x[seen.outside(x)], len(x) // 10) for x in drawn]
    stayed = [LocalFit(*gaussian_moments(x), 0.0, x) for x, few in beyond if len(x) > few]
    fits, evaluations = [], 0
    for group in distinct_modes(stayed):
        points_of_mode = np.concatenate([stayed[i].points for i in group])
        fits.append(bridged(target, points_of_mode, rng, seen.outside))
        evaluations += 2 * len(points_of_mode)
    gradients += looked.gradients
    return Piloted(tuple(fits), gradients, evaluations + looked.evaluations), looked
