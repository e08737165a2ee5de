"""The five published systems of Graham & Storkey (2017), section 7.2, with exact answers.

`published.npz` holds weights and biases from the authors' repository (MIT licence, see
LICENSE.published). It also holds the exact log Z, E[s] and Cov[s] of each machine, which
`BoltzmannMachine.exact` found in a minute, and some of the authors' own numbers for the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from boltzmann_machine import BoltzmannMachine, Moments

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parents[1] / "stan_models" / "boltzmann" / "boltzmann.stan"
COUNT = 5


@dataclass(frozen=True)
class System:
    """A machine with the exact moments of its relaxation."""

    name: str
    machine: BoltzmannMachine
    truth: Moments


def published(number: int) -> System:
    """A published system, numbered from 0 to 4."""
    with np.load(HERE / "published.npz") as arrays:
        machine = BoltzmannMachine(arrays["weights"][number], arrays["biases"][number])
        signs = Moments(*(arrays[name][number] for name in ("log_z", "mean", "covariance")))
    return System(f"published {number}", machine, machine.relaxed(signs))


def generated(units: int, seed: int) -> System:
    """A random system, small enough for quick exact moments."""
    machine = BoltzmannMachine.random(units, np.random.default_rng(seed))
    return System(f"generated {units}", machine, machine.relaxed(machine.exact()))
