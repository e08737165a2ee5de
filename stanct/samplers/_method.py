"""What a method is: a frozen dataclass of its own settings, which runs a job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from stanct.kernels import Moves
from stanct.samplers._job import Job, Plan
from stanct.settings import Real, Whole, check_fields

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Method(ABC, Generic[Result]):
    """A way to sample; derive from it for a method of your own.

    A method's fields are its own settings. A field whose type holds a rule of `stanct.settings`, as
    ``Annotated[int, Whole(1)]``, is checked when the method is made.

    Attributes
    ----------
    name
        What runs, checkpoints and the command line call it.
    default_draws, default_warmup
        Kept and adaptation iterations of each chain where the user asks for none.
    default_base
        The fit that ``base="auto"`` stands for.
    least_draws, least_warmup
        The fewest that it can work with.
    aims
        Whether it can stop at a standard error of log Z (``target_se=``).
    by_nuts
        Whether it runs NUTS, which CmdStan can do on a generated program (``engine=``).
    distributed
        Whether an executor can do its blocks (``executor=``).
    stochastic
        Whether it can do with estimates of the log density, from batches.
    """

    name: ClassVar[str]
    default_draws: ClassVar[int]
    default_warmup: ClassVar[int]
    default_base: ClassVar[str] = "pilot"
    least_draws: ClassVar[int] = 8
    least_warmup: ClassVar[int] = 0
    aims: ClassVar[bool] = False
    by_nuts: ClassVar[bool] = False
    distributed: ClassVar[bool] = True
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def record(self) -> dict[str, Any]:
        """The settings for provenance: JSON values only."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """The settings that make two runs the same run, as `checkpoint.encode` takes them."""
        return asdict(self)

    def check(self, plan: Plan, target: Any) -> None:
        """Refuse, before any work, what contradicts the method's own settings.

        Raises
        ------
        SamplingError
            With the remedy.
        """

    @abstractmethod
    def run(self, job: Job) -> Result:
        """Do the work and return the run, as `Job.finish` makes it."""


@dataclass(frozen=True, kw_only=True)
class HmcMethod(Method[Result]):
    """A method whose moves are compiled HMC trajectories.

    Attributes
    ----------
    transitions
        HMC transitions in a move.
    path_length
        Mean length of a trajectory in whitened time; a standard normal's period is 2π.
    max_steps
        Most leapfrog steps in a trajectory.
    target_accept
        Acceptance that the step size at every β is tuned to.
    """

    least_warmup: ClassVar[int] = 32

    transitions: Annotated[int, Whole(1)] = 1
    path_length: Annotated[float, Real(0)] = 1.5
    max_steps: Annotated[int, Whole(1)] = 64
    target_accept: Annotated[float, Real(0, 1)] = 0.8

    def moves(self, *, learn: bool) -> Moves:
        """For the compiled loops."""
        return Moves(self.path_length, self.max_steps, self.target_accept, learn)
