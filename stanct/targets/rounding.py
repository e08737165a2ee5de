"""How much of a posterior lies where a parameter rounds to its bound.

A probability p between 0 and 1 is 1 in double precision where its logit is above 36.7. A density
with a pole at 1 has mass there that no draw can reach. Draws just short of it tell how much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.targets.density import Density

# Errors of a coordinate that went to the parameters and back. A parameter comes 5,000 times closer
# to its bound from the first to the second, and another 5,000 times closer it is there.
_NEAR, _NEARER, _THERE = 1.5e-8, 7.5e-5, 2.0
# Numbers, and rows, that are looked at. Two transforms take some microseconds a number.
_MOST_NUMBERS, _MOST_ROWS = 100_000, 4_000


def every(count: int, dimension: int) -> int:
    """Of so many draws, every how many suffice for `rounding`."""
    most = min(_MOST_ROWS, max(1, _MOST_NUMBERS // dimension))
    return -(-count // most)


class Rounding(NamedTuple):
    """What rounding takes from a posterior.

    The mass beyond the draws, as a share of the mass that draws can reach, `inf` if it has no end,
    and the names of the unconstrained coordinates that bring draws close to a bound.
    """

    lost: float
    along: tuple[str, ...]


def rounding(density: Density, x: Array, log_weights: Array, free: Array) -> Rounding | None:
    """Estimate the mass where parameters round to their bounds; None if no draw comes near.

    Near a pole, the mass closer to the bound than a distance falls by one factor for each 5,000th
    of the distance. With shares s₁ and s₂ of the draws below the first two of three such distances,
    and the mass F below the third without draws, (s₂ + F)² = F (s₁ + F), so that F = s₂² / (s₁ − 2
    s₂).

    Unconstrained draws have shape (n, D), and their log weights (n,). Coordinates that are `free`,
    those of unit vectors, need not come back.
    """
    weighty = np.isfinite(log_weights)
    x, log_weights = x[weighty], log_weights[weighty]
    if not x.size:
        return None
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    error = np.abs(density.there_and_back(x) - x)
    error[:, free] = 0.0
    # A row without a way back is at a bound, and so is a coordinate that comes back infinite.
    largest = np.where(np.isnan(error).any(axis=1), np.inf, np.nan_to_num(error).max(axis=1))
    near, nearer, there = (
        float(weights[largest > least].sum()) for least in (_NEAR, _NEARER, _THERE)
    )
    if nearer == 0.0:
        return None
    beyond = nearer**2 / (near - 2 * nearer) if near > 2 * nearer else np.inf
    # Draws at the bound show that the density is finite there: it loses nothing.
    if there >= min(beyond, nearer) / 4:
        return None
    close = np.nan_to_num(error) > _NEARER
    blame = weights @ close
    names = np.array(density.unconstrained_names)[np.argsort(-blame, kind="stable")]
    return Rounding(beyond, tuple(names[: np.count_nonzero(blame > 0)][:3].tolist()))
