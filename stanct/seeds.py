"""Random streams of a run, each by its name: a new stage changes no other stage's draws."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """Makes the seeds of a run's streams from its own.

    Attributes
    ----------
    seed
        The run's, a whole number from 0.
    """

    seed: int

    def __call__(self, *name: str | int) -> np.random.SeedSequence:
        """The seed of one stream: the run's, and the first 128 bits of SHA-256 of the name.

        Parameters
        ----------
        name
            Words and numbers, as in ``seeds("chain", 2)``.
        """
        digest = hashlib.sha256(repr(name).encode()).digest()
        key = tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
        return np.random.SeedSequence(self.seed, spawn_key=key)

    def stream(self, *name: str | int) -> np.random.Generator:
        """A generator of random numbers with that seed."""
        return np.random.Generator(np.random.PCG64(self(*name)))


def fresh_seed() -> int:
    """A seed for a run that was given none, from the operating system."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def stan_seed(sequence: np.random.SeedSequence) -> int:
    """A seed in Stan's range, 1 to 2³¹ − 2."""
    return int(sequence.generate_state(1, np.uint32)[0] % (2**31 - 2)) + 1
