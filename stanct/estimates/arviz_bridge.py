"""The only module that imports ArviZ: effective sizes, Pareto k, and inference data.

ArviZ 0.22+ (Python 3.11) and 1.x (3.12+) use different names for these functions. The import takes
seconds and issues a warning, so it happens at first use.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from stanct.arrays import Array


@functools.cache
def _arviz() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("arviz")


def effective_size(values: Array, *, method: str = "mean") -> float:
    """Effective sample size of a (chains, draws) array; the number of values for a constant.

    `method` is that of ArviZ: ``"mean"`` for the average of the values, ``"bulk"`` for the
    rank-normalised size, which shows how well the chain moves.
    """
    values = np.asarray(values, float)
    if values.size < 8 or np.ptp(values) == 0:
        return float(values.size)
    size = float(np.asarray(_arviz().ess(values, method=method)))
    return size if np.isfinite(size) else float(values.size)


def r_hat(values: Array) -> float:
    """Rank-normalised split R̂ of a (chains, draws) array; NaN for a constant.

    A single chain is split in two, because ArviZ requires two chains.
    """
    values = np.asarray(values, float)
    if len(values) == 1:
        values = values[:, : values.size // 2 * 2].reshape(2, -1)
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return float("nan")
    return float(np.asarray(_arviz().rhat(values)))


def pareto_k(log_weights: Array) -> float:
    """Shape k of the generalised Pareto tail of the importance weights.

    Above 0.7, the weighted averages have no reliable error (Vehtari et al. 2024).
    """
    log_weights = np.asarray(log_weights, float).ravel()
    # Largest weights that are equal up to rounding have no tail, and ArviZ 1.x would raise.
    largest = np.sort(log_weights)[-max(log_weights.size // 100, 5) :]
    if np.ptp(largest) < 1e-12:
        return float("-inf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(_arviz(), "psislw"):
            return float(_arviz().psislw(log_weights.copy())[1])
        array_stats = importlib.import_module("arviz_stats.base").array_stats
        # ArviZ 1.x takes log likelihoods, whose negatives are the log weights.
        return float(array_stats.psislw(-log_weights)[1])


def inference_data(groups: dict[str, dict[str, Array]], attributes: dict[str, Any]) -> Any:
    """Build ArviZ's container: `InferenceData` in 0.x, a `DataTree` in 1.x.

    Parameters
    ----------
    groups
        Group name to variables, each of shape (chains, draws, ...).
    attributes
        Attributes attached to every group.
    """
    arviz = _arviz()
    if int(arviz.__version__.split(".")[0]) >= 1:
        attrs = {group: attributes for group in groups}
        return arviz.from_dict(groups, attrs=attrs)
    return arviz.from_dict(**groups, **{f"{group}_attrs": attributes for group in groups})
