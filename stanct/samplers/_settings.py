"""Settings that the samplers with compiled moves share, and their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from stanct.engines.embedded import Nuts
from stanct.errors import SamplingError
from stanct.kernels import Moves
from stanct.settings import whole


def check_precision(target_se: float | None, max_draws: int | None) -> None:
    """Raise `SamplingError` unless a run can aim at such an error with so many draws at most."""
    if target_se is not None and not 0 < target_se < math.inf:
        raise SamplingError(f"target_se must be positive, not {target_se!r}.")
    if max_draws is not None:
        whole("max_draws", max_draws, 8)
        if target_se is None:
            raise SamplingError(
                "max_draws limits a run that aims at target_se, and there is none.",
                remedy="Pass target_se too, or draws instead.",
            )


@dataclass(frozen=True, kw_only=True)
class MoveSettings:
    """How chains of compiled HMC moves are run; the samplers' `sample` says what each means."""

    least: ClassVar[Mapping[str, int]] = {
        "chains": 1,
        "draws": 8,
        "warmup": 32,
        "transitions": 1,
        "max_steps": 1,
    }

    chains: int
    draws: int
    warmup: int
    transitions: int
    path_length: float
    max_steps: int
    target_accept: float
    threads: int | None

    def __post_init__(self) -> None:
        for name, bound in self.least.items():
            whole(name, getattr(self, name), bound)
        if self.threads is not None:
            whole("threads", self.threads, 1)
        if not 0 < self.target_accept < 1:
            raise SamplingError(
                f"target_accept must lie between 0 and 1, not {self.target_accept!r}."
            )
        if not self.path_length > 0:
            raise SamplingError(f"path_length must be positive, not {self.path_length!r}.")

    @property
    def nuts(self) -> Nuts:
        """For the pilots that fit the base."""
        return Nuts() if self.threads is None else Nuts(threads=self.threads)

    def moves(self, *, learn: bool) -> Moves:
        """For the compiled loops."""
        return Moves(float(self.path_length), int(self.max_steps), float(self.target_accept), learn)
