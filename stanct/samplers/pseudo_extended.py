"""Pseudo-extended MCMC: NUTS on N copies that hand the target over to each other ([PE] 8).

Each copy has its own inverse temperature, which is either estimated with it or fixed. At any time,
one copy follows the target. The others roam the tempered path between base and target, and one
that reaches another mode can take over. The stages are those of joint tempering: fit a base, refit
base and log ζ in rounds, freeze everything, and make the kept draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, overload

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.settings import Choice, Numbers, Whole
from stanct.runs.power_copies import PowerCopiesRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.samplers._chains import NutsMethod, Result
from stanct.samplers._copies import BOUNDS, Copies, PathCopies, PowerCopies, check_instrument
from stanct.samplers._job import Job, Plan
from stanct.samplers._nuts import generated

INSTRUMENTS = ("path", "target")


@dataclass(frozen=True, kw_only=True)
class PseudoExtended(NutsMethod[Result]):
    """Pseudo-extended MCMC by NUTS, with compiled kernels or with CmdStan.

    Attributes
    ----------
    copies
        Number of copies N, at least 2. Every gradient costs N gradients of the target.
    fixed_beta : shape (N,)
        Inverse temperatures of the copies in [0, 1], not all 1; estimated by default.
    instrument
        What the copies follow. ``"path"``: the tempered path from the base to the target, which
        gives log Z. ``"target"``: powers γ^β of the target γ, with g ∝ 1, as in [PE] 6 and 7. The
        run then has no log Z, and the base is a choice of coordinates.
    beta_bounds : shape (2,)
        Least and largest estimated β with ``instrument="target"``, .1 and 1 by default. The least
        one is above 0, where γ^β is not normalisable.
    bootstrap
        Rounds that refit base and log ζ before the final chains. With 0, the first base is final.
    target_accept
        Target acceptance statistic for tuning the step size; by default .9.
    max_depth
        Largest depth of a NUTS tree.
    """

    name: ClassVar[str] = "pseudo_extended"
    aims: ClassVar[bool] = True

    # A single copy would be NUTS on the target itself.
    copies: Annotated[int, Whole(2)] = 5
    fixed_beta: Annotated[tuple[float, ...] | None, Numbers(0, 1)] = None
    instrument: Annotated[str, Choice(*INSTRUMENTS)] = "path"
    beta_bounds: Annotated[tuple[float, ...] | None, Numbers(0, 1, 2)] = None

    if TYPE_CHECKING:  # the kind of run depends on a setting

        @overload
        def __init__(
            self: PseudoExtended[PseudoExtendedRun],
            *,
            copies: int = ...,
            fixed_beta: Sequence[float] | None = ...,
            instrument: Literal["path"] = ...,
            beta_bounds: None = ...,
            bootstrap: int = ...,
            target_accept: float = ...,
            max_depth: int = ...,
        ) -> None: ...

        @overload
        def __init__(
            self: PseudoExtended[PowerCopiesRun],
            *,
            copies: int = ...,
            fixed_beta: Sequence[float] | None = ...,
            instrument: Literal["target"],
            beta_bounds: Sequence[float] | None = ...,
            bootstrap: int = ...,
            target_accept: float = ...,
            max_depth: int = ...,
        ) -> None: ...

        def __init__(self, **settings: Any) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        check_instrument(self.instrument, self.fixed_beta, self.beta_bounds)
        if self.fixed_beta is None:
            return
        if len(self.fixed_beta) != self.copies:
            raise SamplingError(
                f"fixed_beta must be {self.copies} numbers, one for each copy, not "
                f"{list(self.fixed_beta)}.",
                remedy=f"Did you mean copies={len(self.fixed_beta)}?"
                if len(self.fixed_beta) > 1
                else f"Did you mean fixed_beta={[0.1] * (self.copies - 1) + [1.0]}?",
            )
        if all(beta == 1 for beta in self.fixed_beta):
            raise SamplingError(
                "With fixed_beta all 1 nothing is tempered.", remedy="Give some copies a smaller β."
            )

    @property
    def betas(self) -> Array | None:
        """The fixed β as an array of shape (N,)."""
        return None if self.fixed_beta is None else np.array(self.fixed_beta)

    def record(self) -> dict[str, Any]:
        """The settings, JSON values only."""
        rows = {"fixed_beta": self.fixed_beta, "beta_bounds": self.beta_bounds}
        lists = {name: None if row is None else list(row) for name, row in rows.items()}
        return {**super().record(), **lists}

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse a program without a pseudo-extended form, and an aim without an estimate."""
        if self.instrument == "target" and plan.target_se is not None:
            raise SamplingError(
                "With instrument='target' there is no log Z, so the run cannot stop at target_se.",
                remedy="Pass draws= instead, or leave out instrument=.",
            )
        generated(target, "pseudo_extended")

    def run(self, job: Job) -> Any:
        """Fit a base, refit base and log ζ in rounds, freeze both, and draw."""
        return self._copies(job).run()

    def resume(self, job: Job, run: Any) -> Any:
        """Move the chains on from their last draws, after a warm-up of step size and metric."""
        return self._copies(job).resume(run)

    def _copies(self, job: Job) -> Copies:
        parts = job, self.nuts(job), self.copies, self.betas, self.bootstrap
        if self.instrument == "path":
            return PathCopies(*parts)
        low, high = self.beta_bounds or BOUNDS
        return PowerCopies(*parts, (low, high))
