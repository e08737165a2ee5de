"""The user's variables of kept draws, in memory, in files, or computed when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from stanct.common.arrays import MOST_AT_ONCE, Array, forget
from stanct.path.base import Base
from stanct.targets.protocols import SampledTarget
from stanct.work.interrupts import heard
from stanct.work.shelf import Filled

# Variables that take fewer bytes stay in memory.
SMALL = 2**20


class Later(Mapping[str, Array]):
    """The user's variables, computed when they are asked for, and then kept."""

    def __init__(self, compute: Callable[[], Mapping[str, Array]]) -> None:
        self._compute = compute

    @cached_property
    def _all(self) -> Mapping[str, Array]:
        return heard(self._compute)

    def __getitem__(self, name: str) -> Array:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __reduce__(self) -> tuple[type[dict[str, Array]], tuple[dict[str, Array]]]:
        """Arrive elsewhere as a dictionary of what was computed."""
        return dict, (dict(self._all),)


def variables_of(
    target: SampledTarget,
    z: Array,
    base: Base,
    seed: np.random.SeedSequence,
    keep: tuple[str, ...] | None,
    folder: Path | None,
) -> Mapping[str, Array]:
    """Compute the user's variables, of shape (chains, draws, ...), in files if there is a folder.

    The whitened draws z, shape (chains, draws, D), may be in a file. `keep` names those that are
    wanted; None for all.
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
