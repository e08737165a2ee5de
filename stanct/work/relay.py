"""Lanes that move in steps, of which each lane may begin one more before all have ended this one.

Where lanes meet after every step, workers wait for the slowest lane each time. Here a lane goes on
with the next step, and only that one, as soon as it has ended its own. What the next step does must
therefore not depend on how this one ends in other lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from stanct.common.deadline import completed, heed
from stanct.common.errors import StanctError
from stanct.work.blas import with_one_blas_thread
from stanct.work.interrupts import GRACE

T = TypeVar("T")


class Step(NamedTuple):
    """One step of all lanes, of a name that no other step has.

    `work` takes a lane's number, the place where it stands, and a function that says whether to end
    early. It must be picklable if workers are processes.
    """

    name: Any
    work: Callable[..., Any]


@dataclass
class Relay(Generic[T]):
    """Moves lanes through steps; made by `Execution.relay`.

    Attributes
    ----------
    onward
        Takes what a step has made of a lane, and returns the place where the lane stands then.
    stopped, stop
        What the work is handed to learn of an early end, and what brings that about.
    lost
        Makes an error of the failure of an executor; None where failures are those of the work.
    """

    pool: Executor
    onward: Callable[[T], Any]
    stopped: Callable[[], bool]
    stop: Callable[[], None]
    lost: Callable[[Exception], Exception] | None = None
    _begun: dict[tuple[Any, int], Future[T]] = field(default_factory=dict)

    def step(self, now: Step, places: Sequence[Any], following: Step | None = None) -> list[T]:
        """End a step of all lanes, and let lanes begin the `following` one meanwhile.

        `places` are where the lanes stand, for those that have not begun this step. Raises
        `LostExecutorError` if the executor broke.
        """
        try:
            heed()
            lanes = [self._begin(now, lane, place) for lane, place in enumerate(places)]
            waiting = set(lanes)
            while waiting:
                done = completed(waiting)
                waiting -= done
                for lane, future in enumerate(lanes):
                    if following is not None and future in done:
                        self._begin(following, lane, self.onward(future.result()))
            return [self._begun.pop((now.name, lane)).result() for lane in range(len(lanes))]
        except StanctError:
            raise
        except Exception as cause:
            if self.lost is None:
                raise
            raise self.lost(cause) from cause

    def _begin(self, step: Step, lane: int, place: Any) -> Future[T]:
        key = step.name, lane
        if key not in self._begun:
            self._begun[key] = self.pool.submit(
                with_one_blas_thread, step.work, lane, place, self.stopped
            )
        return self._begun[key]

    def end(self) -> None:
        """Stop what was begun, and wait for it as long as after an interrupt."""
        self.stop()
        wait([future for future in self._begun.values() if not future.cancel()], GRACE)
        self._begun.clear()
