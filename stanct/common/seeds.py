"""Random streams of a run.

Each stream is derived from its name, so a new stage does not change the draws of other stages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """Derives the seeds of a run's streams from the seed of the run, a non-negative integer.

    The names of all streams begin with the prefix.
    """

    seed: int
    prefix: tuple[str | int, ...] = ()

    def within(self, *name: str | int) -> Seeds:
        """The streams of a part of the run, with names of their own."""
        return Seeds(self.seed, (*self.prefix, *name))

    def __call__(self, *name: str | int) -> np.random.SeedSequence:
        """Return the seed of the stream of a name, such as ``seeds("chain", 2)``.

        The entropy is the seed of the run. The spawn key is the first 128 bits of the SHA-256 hash
        of the name.
        """
        digest = hashlib.sha256(repr((*self.prefix, *name)).encode()).digest()
        key = tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
        return np.random.SeedSequence(self.seed, spawn_key=key)

    def stream(self, *name: str | int) -> np.random.Generator:
        """Return a random number generator for the stream of that name."""
        return np.random.Generator(np.random.PCG64(self(*name)))


def fresh_seed() -> int:
    """Draw a seed from the operating system, for a run without one."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def stan_seed(sequence: np.random.SeedSequence) -> int:
    """Return a seed in Stan's range, 1 to 2³¹ − 2."""
    return int(sequence.generate_state(1, np.uint32)[0] % (2**31 - 2)) + 1
