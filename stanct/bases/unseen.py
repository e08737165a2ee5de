"""Looks for modes that the draws of a fit have missed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.spatial import KDTree

from stanct.bases.local import LocalFit, distinct_modes
from stanct.bases.pilots import DRAWS, WARMUP, bridged
from stanct.bases.starts import approximations
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import EngineError
from stanct.common.seeds import stan_seed
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.targets.program_target import ProgramTarget
from stanct.work.progress import Bar

STARTS, POINTS = 12, 25
# Modes that are followed up by pilot chains, at most, and chains for each. A chain may leave its
# mode while its step size is not yet tuned: of single ones, seven in forty left the mode of mass
# 0.4 in `examples/bimodal`. Of three at a time, one or more always stayed.
MOST_FOLLOWED, CHAINS = 4, 3
# Draws that describe the region which a fit has seen, at most.
MOST_SEEN = 1000


@dataclass(frozen=True)
class Unseen:
    """Modes outside the region of a fit's draws.

    Attributes
    ----------
    fits
        A Gaussian for each.
    log_mass
        Log of their mass outside that region, natural log; −inf if there is none.
    gradients, evaluations
        Gradients of the pilots, and log densities without a gradient.
    """

    fits: tuple[LocalFit, ...] = field(repr=False)
    log_mass: float
    gradients: int
    evaluations: int


class Seen:
    """The region that draws have seen: all points no farther from a draw than draws are.

    A further draw of the same density falls outside with probability 1 / (n + 1), because it is
    exchangeable with the n draws. Mass outside is therefore mass that the draws have missed.

    Parameters
    ----------
    points : shape (n, D)
        Unconstrained draws.
    """

    def __init__(self, points: Array) -> None:
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
) -> Unseen:
    """Search from random starts for modes that the draws of a fit have missed.

    Pathfinder finds places outside the region of the draws. Short NUTS chains start there. What
    drifts back, as from the neck of a funnel, is no mode. A bridge measures the mass of the others.
    A mode to which no start leads remains unseen here, too.

    Parameters
    ----------
    points : shape (n, D)
        Unconstrained draws of the fit.
    """
    seen = Seen(points)
    ways, pilots, rest = seed.spawn(3)
    rng = np.random.default_rng(rest)
    found = [fit for fit in _ends(target, ways, rng) if seen.outside(fit.points).mean() > 0.5]
    if not found:
        return Unseen((), -np.inf, 0, 0)
    starts = [
        _point(found[group[k % len(group)]], k)
        for group in distinct_modes(found)[:MOST_FOLLOWED]
        for k in range(CHAINS)
    ]
    try:
        block, gradients = embedded.run_nuts(
            target.density.recipe,
            np.array(starts),
            seed=stan_seed(pilots),
            warmup=WARMUP,
            draws=DRAWS,
            nuts=nuts,
        )
    except EngineError:  # Stan rejects such a place, so no mode is known there.
        return Unseen((), -np.inf, 0, 0)
    stayed = []
    for chain in range(len(starts)):
        x = target.unconstrain(block, chain, rng)
        outside = x[seen.outside(x)] if len(x) else x
        if len(outside) > len(x) // 10:
            stayed.append(LocalFit(*gaussian_moments(outside), 0.0, outside))
    fits, evaluations = [], 0
    for group in distinct_modes(stayed):
        points_of_mode = np.concatenate([stayed[i].points for i in group])
        fits.append(bridged(target, points_of_mode, rng, seen.outside))
        evaluations += 2 * len(fits[-1].points)
    masses = np.array([fit.log_evidence for fit in fits])
    log_mass = float(log_sum_exp(masses)) if fits else -np.inf
    return Unseen(tuple(fits), log_mass, gradients, evaluations)


def _point(fit: LocalFit, k: int) -> Array:
    return fit.points[k % len(fit.points)]


def _ends(
    target: ProgramTarget, seed: np.random.SeedSequence, rng: np.random.Generator
) -> list[LocalFit]:
    """Where Pathfinder leads from random starts; nothing where it leads nowhere."""
    with Bar(STARTS, "search", unit="start", shown=False) as bar:
        try:
            return approximations(
                target, embedded.pathfinder, POINTS, bar, seed, rng, starts=STARTS
            )
        except EngineError:
            return []
