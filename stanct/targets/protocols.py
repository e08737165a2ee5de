"""Protocols of the targets and densities that samplers take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from stanct.common.arrays import Array
from stanct.kernels import CallableDensity
from stanct.work.execution import Executed, LentDensity


class SampledDensity(LentDensity, CallableDensity, Protocol):
    """The part of a density that samplers need; `Density` and `FunctionDensity` have it."""

    def log_density_gradients(self, points: Array) -> tuple[Array, Array]: ...


class SampledTarget(Executed, Protocol):
    """The part of a target that samplers need; `ProgramTarget` and `FunctionTarget` have it."""

    @property
    def prefix(self) -> str: ...

    @property
    def density(self) -> SampledDensity: ...

    @property
    def programs(self) -> dict[str, str]: ...

    @property
    def data_text(self) -> str: ...

    @property
    def origin(self) -> dict[str, Any]: ...

    def variables(self, x: Array, seed: np.random.SeedSequence) -> Mapping[str, Array]: ...

    def in_turn(self, seed: np.random.SeedSequence) -> Callable[[Array], Mapping[str, Array]]: ...

    def without_generated(self, x: Array) -> Mapping[str, Array]: ...


class BatchDensity(CallableDensity, Protocol):
    """The part of a density that a batch needs; `Density` and `FunctionDensity` have it."""

    @property
    def dimension(self) -> int: ...

    def log_density_gradient(self, x: Array) -> tuple[float, Array]: ...
