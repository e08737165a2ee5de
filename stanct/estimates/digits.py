"""How many digits of a number are shown, by its error."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stanct.common.arrays import Array

# No more decimals than these are shown. A smaller error is that of rounding.
MOST = 6
# Errors from here on have an exponent.
LARGE = 1e6


def decimals(error: float, least: int = 4) -> int:
    """Decimals that show two digits of an error, and so many for one that is not finite."""
    if not 0 < error < np.inf:
        return least
    return int(np.clip(1 - np.floor(np.log10(error)), least, MOST))


def shown(error: float, places: int) -> str:
    """An error with so many decimals, or a bound on it where these would all be zeros."""
    if 0 < error < 0.5 * 10.0**-places:
        return f"below 1e-{places}"
    return f"{error:.{places}f}"


def log_z_in_words(log_z: float, error: float, of: str = "Z") -> str:
    """The estimate ± its standard error, with at least two digits of the error."""
    places = decimals(error)
    return f"log {of} = {log_z:.{places}f} ± {shown(error, places)}"


def with_error(value: float, error: float) -> str:
    """A value ± its error, with two digits of the error and as many decimals of the value."""
    if not (0 < error < LARGE and np.isfinite(value)):
        return f"{value:.6g} ± {error:.2g}"
    places = decimals(error, 0)
    return f"{value:.{places}f} ± {shown(error, places)}"


def percent(share: float) -> str:
    """A share in percent, with two digits where it is small: ``0.016%``, ``9.9%``, ``100%``."""
    return f"{share:.0%}" if share > 0.0995 else f"{float(f'{100 * share:.2g}'):g}%"


def bound(value: float, towards: Callable[[float], int]) -> str:
    """A positive bound with two digits, which `math.ceil` or `math.floor` keep one."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{float(f'{towards(round(value / step, 9)) * step:.2g}'):g}"


def is_below_digits(error: float) -> bool:
    """Whether an error is so small that no digits that are shown tell of it."""
    return 0 <= error < 0.5 * 10.0**-MOST


def in_line(values: Array, digits: int) -> str:
    """The first and the last of some numbers in one line."""
    form = {"float_kind": lambda value: f"{value:.{digits}g}"}
    return np.array2string(np.ravel(values), threshold=6, max_line_width=90, formatter=form)  # pyright: ignore[reportArgumentType, reportCallIssue]
