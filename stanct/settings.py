"""Checks of settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from stanct.errors import SamplingError


def whole(name: str, value: Any, least: int) -> None:
    """Raise `SamplingError` unless a setting is a whole number from `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SamplingError(f"{name} must be a whole number from {least}, not {value!r}.")
