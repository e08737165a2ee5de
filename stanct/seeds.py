"""Random streams of a run, by name."""

from __future__ import annotations

import numpy as np


def stan_seed(sequence: np.random.SeedSequence) -> int:
    """A seed in Stan's range, 1 to 2³¹ − 2."""
    return int(sequence.generate_state(1, np.uint32)[0] % (2**31 - 2)) + 1
