"""A method is a frozen dataclass of its own settings, which runs a job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.settings import MOST_COUNTED, Real, Whole, check_fields, refuse_unknown
from stanct.kernels import Moves
from stanct.samplers._job import Job, Plan

Result = TypeVar("Result", covariant=True)

# Relative difference of log densities at a run's draws that another machine's rounding explains.
TOLERANCE = 1e-6


def refuse_other_densities(own: Array, stored: Array) -> None:
    """Raise `SamplingError` if a target's log densities are not those that a run has stored."""
    if not np.allclose(own, stored, rtol=TOLERANCE, atol=TOLERANCE):
        raise SamplingError(
            "The target has other log densities at the last draws than the run has stored.",
            remedy="Pass the program and the data of the run, or the same function.",
        )


@dataclass(frozen=True, kw_only=True)
class Method(ABC, Generic[Result]):
    """Base class of sampling methods; derive from it to write your own.

    The fields of a method are its own settings. A field whose type carries a rule of
    `stanct.common.settings`, such as ``Annotated[int, Whole(1)]``, is checked when the method is
    created.

    Attributes
    ----------
    name
        Name of the method in runs, checkpoints and the command line.
    default_draws, default_warmup
        Kept and adaptation iterations of each chain unless the user sets them.
    default_base
        The fit that ``base="auto"`` stands for, unless `automatic_base` names another.
    least_draws, least_warmup
        Smallest numbers of kept and adaptation iterations.
    aims
        Whether the method can stop at a standard error of log Z (``target_se=``).
    by_nuts
        Whether the method runs NUTS, which CmdStan can run on a generated program (``engine=``).
    loops
        Names of the compiled loops of `stanct.kernels` that the method calls, in the order of their
        first calls. On a first run another process compiles them while the base is being found.
    thins
        Whether the method can keep x of some draws only (``thin=``), and store it (``store=``).
    in_two_stages
        Whether the method takes a base in two stages, so that one is looked for.
    stochastic
        Whether the method can work with estimates of the log density from batches. Functions then
        need no base: without one, the plan's base is ``"auto"``.
    """

    name: ClassVar[str]
    default_draws: ClassVar[int]
    default_warmup: ClassVar[int]
    default_base: ClassVar[str] = "pilot"
    least_draws: ClassVar[int] = 8
    least_warmup: ClassVar[int] = 0
    aims: ClassVar[bool] = False
    by_nuts: ClassVar[bool] = False
    loops: ClassVar[tuple[str, ...]] = ("evaluate",)
    thins: ClassVar[bool] = False
    in_two_stages: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        # The dataclass would raise a TypeError that names no setting which there is.
        known = [f.name for f in fields(cls)]
        if values:
            raise SamplingError(
                f"The settings of stanct.{cls.__name__} go by name, not by place: {values!r}.",
                remedy=f"There are {', '.join(known)}.",
            )
        for name in settings:
            if name not in known:
                refuse_unknown(f"setting of {cls.__name__}", name, known)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_built_in(self) -> bool:
        """Whether the class of the method is stanct's own."""
        return type(self).__module__.startswith("stanct.")

    def record(self) -> dict[str, Any]:
        """The settings for provenance, JSON values only."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """The settings that identify a run, in a form that `checkpoint.encode` accepts."""
        return asdict(self)

    @property
    def from_prior(self) -> bool:
        """Whether the path begins at the prior, or at the other program where there are two."""
        return False

    def automatic_base(self) -> str:
        """Name of the fit that ``base="auto"`` stands for, `default_base` for most methods."""
        return self.default_base

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse, before any work, a plan or target that contradicts the method's own settings.

        Raises
        ------
        SamplingError
            The plan or the target contradicts the settings.
        """

    @abstractmethod
    def run(self, job: Job) -> Result:
        """Do the work, and return the run made by `Job.finish`."""

    def resume(self, job: Job, run: Any) -> Result:
        """Make further draws under the frozen settings of a finished run; see `Run.extend`.

        Parameters
        ----------
        job
            A job of the same target, whose `draws` are the further ones.
        run
            What `run` returned, perhaps loaded from a folder.

        Raises
        ------
        SamplingError
            The method cannot go on with a run.
        """
        raise SamplingError(
            f"A run of the method {self.name!r} cannot be extended.",
            remedy="Run it again with more draws (draws=).",
        )


@dataclass(frozen=True, kw_only=True)
class HmcMethod(Method[Result]):
    """A method whose moves are compiled HMC trajectories; `AIS` tells of the settings."""

    least_warmup: ClassVar[int] = 32

    transitions: Annotated[int, Whole(1, MOST_COUNTED)] = 1
    path_length: Annotated[float, Real(0)] = 1.5
    max_steps: Annotated[int, Whole(1, MOST_COUNTED)] = 64
    target_accept: Annotated[float, Real(0, 1)] = 0.8

    def moves(self, *, learn: bool) -> Moves:
        """Settings of HMC for the compiled loops."""
        return Moves(self.path_length, self.max_steps, self.target_accept, learn)
