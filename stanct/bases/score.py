"""How far a base is from its target, by draws of the base: the one rule for all that is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from stanct.common.arrays import Array, even_share, largest_of
from stanct.path.base import Base
from stanct.targets.protocols import SampledTarget

# Draws of a base that are scored.
SCORED = 1000
# Mass that is lower by so many nats is negligible.
NEGLIGIBLE = 14.0
# A density explains a point where the target, normalised, is no more than so many nats denser.
EXPLAINED = 3.0


def unexplained(log_p: Array, log_q: Array, log_z: float = 0.0) -> Array:
    """Whether points hold mass that a density q misses: the one test of all makers.

    Parameters
    ----------
    log_p, log_q : shape (n,)
        Log densities of the target and of q at the points, natural log.
    log_z
        Log Z of the target, where q is normalised and not of the target's mass.
    """
    return log_p - log_q > log_z + EXPLAINED


def half_width(values: Array) -> float:
    """Half the width of the middle two thirds of values, of which some may be +inf."""
    low, high = np.quantile(values, [0.16, 0.84], method="inverted_cdf")
    return float(high - low) / 2 if np.isfinite(high) else np.inf


@dataclass(frozen=True)
class Score:
    """How far a base is from the target, by draws of it: the share that counts, by their effective
    number; the largest weight relative to the mean; and half the width of the middle two thirds of
    δ, which a path has to cross.
    """

    even: float
    largest: float
    width: float

    @classmethod
    def of(cls, delta: Array) -> Score:
        """The score from δ at draws of a base."""
        return cls(even_share(-delta), largest_of(-delta), half_width(delta))

    @classmethod
    def by_draws(cls, base: Base, target: SampledTarget, seed: np.random.SeedSequence) -> Score:
        """The score from fresh draws of a base."""
        z = base.draw(np.random.default_rng(seed), SCORED)
        return cls.of(base.delta(z, target.density.log_densities(base.unwhiten(z))))

    def record(self) -> dict[str, float | None]:
        """The score for provenance, JSON values only."""
        return {k: v if np.isfinite(v) else None for k, v in asdict(self).items()}
