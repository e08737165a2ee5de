"""The user's variables of kept draws, in memory, or in files that are never in memory whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stanct.arrays import MOST_AT_ONCE, Array, forget
from stanct.path.base import Base
from stanct.targets.protocols import SampledTarget
from stanct.work.shelf import Filled

# Variables that take fewer bytes stay in memory.
SMALL = 2**20


def variables_of(
    target: SampledTarget,
    z: Array,
    base: Base,
    seed: np.random.SeedSequence,
    keep: tuple[str, ...] | None,
    folder: Path | None,
) -> Mapping[str, Array]:
    """Compute the user's variables, each of shape (chains, draws, ...).

    Parameters
    ----------
    z : shape (chains, draws, D)
        Whitened draws, perhaps in a file.
    seed
        For the random numbers in generated quantities.
    keep
        Names of the variables that are wanted; None for all.
    folder
        Folder of files for them; None to have them in memory.
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
