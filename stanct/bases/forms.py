"""Chooses between forms of a program that have the same posterior: pilots decide.

A method moves between a Gaussian base and the target, and log Z is the same in every form. The form
whose base is nearest is therefore the easier one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stanct.bases.fits import FittedBase
from stanct.bases.pilots import half_width
from stanct.targets.program_target import ProgramTarget

# Draws of each base at which δ is computed.
DRAWS = 1000
# A form with a smaller misfit is taken without a look at the next.
FITS = 2.0


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
