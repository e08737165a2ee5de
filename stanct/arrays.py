"""The one name for NumPy arrays in signatures, and the sum that all estimates need."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

Array = np.ndarray


def log_sum_exp(values: Array, axis: int | None = None) -> Array:
    """SciPy's logsumexp with the type that it has without its optional arguments."""
    return np.asarray(logsumexp(values, axis=axis))
