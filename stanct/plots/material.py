"""Protocols of the runs that plots take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stanct.common.arrays import Array
from stanct.estimates.path import Curve, Evidence


class HasCurves(Protocol):
    """A run that estimates the free-energy curve."""

    @property
    def bare_evidence(self) -> Evidence:
        """The reported log Z."""
        ...

    def curves(self, beta: Array | None = None) -> Mapping[str, Curve]:
        """Return log z at `beta`, or at the run's β, by estimator; the reported one first."""
        ...

    def extra_estimates(self) -> Mapping[str, Evidence]:
        """Return other estimates of log Z by label."""
        ...


class HasRunningLogZ(Protocol):
    """A run in which every chain has a running estimate of log Z."""

    @property
    def chains(self) -> int:
        """Number of chains."""
        ...

    @property
    def draws(self) -> int:
        """Number of draws of each chain."""
        ...

    @property
    def bare_evidence(self) -> Evidence:
        """The reported log Z."""
        ...

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """Return log Z from the first draws of each chain alone, shape (chains, ends)."""
        ...

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]:
        """Return the cost of these draws, shape (chains, ends), and its unit."""
        ...


class HasBeta(Protocol):
    """A run in which every draw has a β."""

    @property
    def beta(self) -> Array:
        """β of the draws, shape (chains, draws) or (chains, draws, copies)."""
        ...


class HasSchedule(Protocol):
    """A run with a fixed schedule of β."""

    @property
    def betas(self) -> Array:
        """β of the schedule from 0 to 1, shape (K,)."""
        ...
