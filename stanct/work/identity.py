"""What must be equal in a run that continues a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.version import __version__
from stanct.engines import embedded
from stanct.work.checkpoint import fingerprint

PLAIN = bool | int | float | str
# Settings in which the run that goes on from a checkpoint may differ.
IRRELEVANT = ("threads", "max_seconds")
# Where program and data came from, and what the program leaves out, with the places in its files.
# Their hashes tell what they are.
_UNLIKE = ("data_origin", "from_text", "source", "prefix", "omissions")


def identity(
    origin: Mapping[str, Any],
    method: str,
    settings: Mapping[str, Any],
    seed: int | None,
    probe: Array,
) -> dict[str, Any]:
    """Return the values that must be equal in a run that continues a checkpoint.

    `probe` has log densities of this process at a few points.
    """
    return {
        "method": method,
        "seed": seed,
        **{k: v for k, v in origin.items() if k not in _UNLIKE},
        "settings": {
            name: value if value is None or isinstance(value, PLAIN) else fingerprint(value)
            for name, value in settings.items()
            if name not in IRRELEVANT
        },
        # Python functions have no text to compare, and another machine may round differently.
        "log_densities_at_probes": [value.hex() for value in probe.tolist()],
        "versions": {"stanct": __version__, "numpy": np.__version__, **embedded.versions()},
    }
