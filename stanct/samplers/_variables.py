"""The user's variables of kept draws, in memory, in files, or computed when they are asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from stanct.common.arrays import MOST_AT_ONCE, Array, forget
from stanct.common.deadline import deadline
from stanct.path.base import Base
from stanct.targets.protocols import SampledTarget
from stanct.work.interrupts import heard
from stanct.work.shelf import Filled

# Variables that take fewer bytes stay in memory.
SMALL = 2**20

# Time in seconds that generated quantities have at least after a run that its deadline ended.
PATIENCE = 10.0


class Later(Mapping[str, Array]):
    """The user's variables, computed when they are asked for, and then kept.

    `sooner` computes those without generated quantities, which may never return. Who asks for all
    waits for `patience` seconds, or until Ctrl-C, and then has them without, with a warning.
    """

    def __init__(
        self,
        compute: Callable[[], Mapping[str, Array]],
        sooner: Callable[[], Mapping[str, Array]],
        patience: float | None,
    ) -> None:
        self._compute, self._compute_sooner, self._patience = compute, sooner, patience
        self._all: Mapping[str, Array] | None = None
        self._without = False

    @cached_property
    def _sooner(self) -> Mapping[str, Array]:
        return heard(self._compute_sooner)

    def _found(self) -> Mapping[str, Array]:
        if self._all is None:
            self._all = heard(self._compute)
        return self._all

    def _listed(self) -> Mapping[str, Array]:
        """All variables, or those without generated quantities once the wait was ended."""
        if self._without:
            return self._all or self._sooner
        try:
            with deadline(self._patience):
                return self._found()
        except KeyboardInterrupt:
            self._without = True
            warnings.warn(
                "Generated quantities were not done, and this run goes on without them. Ask for "
                "one by its name, as in run.variables['y'], to wait for all.",
                RuntimeWarning,
                stacklevel=3,
            )
            return self._sooner

    def __getitem__(self, name: str) -> Array:
        if self._all is None and name in self._sooner:
            return self._sooner[name]
        return self._found()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sooner or name in self._listed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed())

    def __len__(self) -> int:
        return len(self._listed())

    def __reduce__(self) -> tuple[type[dict[str, Array]], tuple[dict[str, Array]]]:
        """Arrive elsewhere as a dictionary of what was computed."""
        return dict, (dict(self._listed()),)


def variables_of(
    target: SampledTarget,
    z: Array,
    base: Base,
    seed: np.random.SeedSequence,
    keep: tuple[str, ...] | None,
    folder: Path | None,
) -> Mapping[str, Array]:
    """The user's variables, of shape (chains, draws, ...), in files if there is a folder.

    z, shape (chains, draws, D), may be in a file. `keep` names those that are wanted; None for all.
    """
    if keep is None and folder is None:
        return target.variables(base.unwhiten(z), seed)
    chains, draws, dimension = z.shape
    rooms: dict[str, Array | Filled] = {}
    compute = target.in_turn(seed)
    # A draw may have more numbers of variables than coordinates.
    width = max(dimension, getattr(target.density, "numbers", 0))
    step = max(1, MOST_AT_ONCE // (8 * width))
    for chain in range(chains):
        for first in range(0, draws, step):
            found = compute(base.unwhiten(np.array(z[chain, first : first + step])))
            forget(z)
            for number, name in enumerate(found if keep is None else keep):
                values = found[name]
                if name not in rooms:
                    shape = (chains, draws, *values.shape[1:])
                    small = folder is None or 8 * np.prod(shape) < SMALL
                    path = None if small or folder is None else folder / f"variable-{number}.npy"
                    rooms[name] = np.empty(shape) if path is None else Filled(path, shape)
                room = rooms[name]
                if isinstance(room, Filled):
                    room.add(values)
                else:
                    room[chain, first : first + step] = values
    return {n: room.array() if isinstance(room, Filled) else room for n, room in rooms.items()}
