"""`Target`, a program with exact answers, and what families draw from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from quadrature import Array
from scipy.stats import ortho_group

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Target:
    """A Stan program with its data and its exact answers.

    Attributes
    ----------
    stan, data
        Text of the program, and its data.
    log_z, mean
        The exact log Z, and the exact posterior mean of the quantity.
    quantity
        A function of a run's variables by name, each of shape (chains, draws, ...), which returns
        shape (chains, draws).
    tolerance
        How exact both answers are.
    narrowing
        How many times narrower a spike is than the mode that holds it; 1 if there is none.
    """

    stan: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    log_z: float
    quantity: Callable[[Mapping[str, Array]], Array] = field(repr=False)
    mean: float
    tolerance: float = 1e-9
    narrowing: float = 1.0


Family = Callable[[np.random.Generator], Target]
FAMILIES: dict[str, Family] = {}


def family(function: Family) -> Family:
    """Enter a function under its own name."""
    FAMILIES[function.__name__] = function
    return function


def element(name: str, index: int | None = None) -> Callable[[Mapping[str, Array]], Array]:
    """The function that takes a variable, or one element of it."""
    return lambda v: v[name] if index is None else v[name][..., index]


def rounded(values: Array, digits: int = 3) -> Array:
    return np.round(values, digits)


def rotation(rng: np.random.Generator, d: int) -> Array:
    return ortho_group.rvs(d, random_state=rng) if d > 1 else np.eye(1)
