"""Protocols of the runs that plots take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stanct.common.arrays import Array
from stanct.estimates.path import Curve, Evidence


class HasCurves(Protocol):
    """A run that estimates the free-energy curve, by several estimators, the reported one first."""

    @property
    def bare_evidence(self) -> Evidence: ...

    def curves(self, beta: Array | None = None) -> Mapping[str, Curve]: ...

    def extra_estimates(self) -> Mapping[str, Evidence]: ...


class HasRunningLogZ(Protocol):
    """A run in which every chain has a running estimate of log Z.

    From the first draws of each chain alone: log Z, and their cost with its unit, of shape (chains,
    ends).
    """

    @property
    def chains(self) -> int: ...

    @property
    def draws(self) -> int: ...

    @property
    def bare_evidence(self) -> Evidence: ...

    def running_log_z(self, ends: Sequence[int]) -> Array: ...

    def running_cost(self, ends: Sequence[int]) -> tuple[Array, str]: ...


class HasBeta(Protocol):
    """A run in which every draw has a β, shape (chains, draws) or (chains, draws, copies)."""

    @property
    def beta(self) -> Array: ...


class HasTrips(HasBeta, Protocol):
    """A run whose chains go to and fro along the path, and that counts their round trips."""

    def chain_counts(self) -> dict[str, Array]: ...


class HasSchedule(Protocol):
    """A run with a fixed schedule of β from 0 to 1, shape (K,)."""

    @property
    def betas(self) -> Array: ...
