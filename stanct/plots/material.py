"""What a picture that fits several kinds of run needs of one, a protocol each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stanct.arrays import Array
from stanct.estimates.path import Curve, Evidence


class HasCurves(Protocol):
    """A run that estimates the free-energy curve."""

    @property
    def evidence(self) -> Evidence:
        """The reported log Z."""
        ...

    def curves(self, beta: Array | None = None) -> Mapping[str, Curve]:
        """log z at `beta`, or at the run's own β, by estimator; first the one of `evidence`."""
        ...

    def extra_estimates(self) -> Mapping[str, Evidence]:
        """Other estimates of log Z, label to estimate."""
        ...


class HasRunningLogZ(Protocol):
    """A run whose chains each estimate log Z as they go on."""

    @property
    def chains(self) -> int:
        """Number of chains."""
        ...

    @property
    def draws(self) -> int:
        """Draws of each chain."""
        ...

    @property
    def evidence(self) -> Evidence:
        """The reported log Z."""
        ...

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first draws of each chain alone, shape (chains, ends)."""
        ...

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]:
        """What these draws cost, shape (chains, ends), and in which unit."""
        ...


class HasBeta(Protocol):
    """A run whose draws each have a β of their own."""

    @property
    def beta(self) -> Array:
        """Shape (chains, draws), or (chains, draws, copies)."""
        ...


class HasSchedule(Protocol):
    """A run that passes given values of β."""

    @property
    def betas(self) -> Array:
        """From 0 to 1, shape (K,)."""
        ...
