"""The only module that imports ArviZ: effective sizes, Pareto k, and inference data.

ArviZ 0.22+ (Python 3.11) and 1.x (3.12+) use different names for these functions. The import takes
half a second and issues a warning, so it happens at first use. Statistics of arrays come from
`arviz_stats`, which needs a tenth of that.
"""

from __future__ import annotations

import functools
import importlib
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import platformdirs

from stanct.common.arrays import Array
from stanct.common.errors import StanctError

# A tail is a fifth of them, and has five weights at least.
FEWEST_WEIGHTS = 25


@functools.cache
def _arviz() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("arviz")
        except OSError:
            # ArviZ 0.x notes in the user's cache when it last warned, and fails if it cannot.
            with tempfile.TemporaryDirectory() as folder:
                original = platformdirs.user_cache_dir
                platformdirs.user_cache_dir = lambda *_, **__: folder
                try:
                    return importlib.import_module("arviz")
                finally:
                    platformdirs.user_cache_dir = original


@functools.cache
def _array_stats() -> Any:
    """ArviZ's statistics of arrays, which load in a tenth of the time of all of ArviZ."""
    return importlib.import_module("arviz_stats.base").array_stats


def loading() -> Iterator[None]:
    """Load what effective sizes need, as a step to be taken beside other work."""
    _array_stats()
    yield


def effective_size(values: Array, *, method: str = "mean") -> float:
    """Effective sample size of a (chains, draws) array; the number of values for a constant.

    `method` is that of ArviZ: ``"mean"`` for the average of the values, ``"bulk"`` for the
    rank-normalised size, which shows how well the chain moves.
    """
    values = np.asarray(values, float)
    if values.size < 8 or np.ptp(values) == 0:
        return float(values.size)
    size = float(_array_stats().ess(values, chain_axis=0, draw_axis=1, method=method))
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
    return float(_array_stats().rhat(values, chain_axis=0, draw_axis=1))


def pareto_k(log_weights: Array) -> float:
    """Shape k of the generalised Pareto tail of the importance weights.

    Above 0.7, the weighted averages have no reliable error (Vehtari et al. 2024). It is infinite
    for fewer than `FEWEST_WEIGHTS` weights.
    """
    log_weights = np.asarray(log_weights, float).ravel()
    if log_weights.size < FEWEST_WEIGHTS:
        return float("inf")
    # Largest weights that are equal up to rounding have no tail, and ArviZ would raise.
    largest = np.sort(log_weights)[-max(log_weights.size // 100, 5) :]
    if np.ptp(largest) < 1e-12:
        return float("-inf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # ArviZ takes log likelihoods, whose negatives are the log weights.
        return float(_array_stats().psislw(-log_weights)[1])


def compare_by_loo(containers: Mapping[str, Any]) -> pd.DataFrame:
    """ArviZ's comparison of containers with pointwise log likelihoods, by stacking weights.

    Raises
    ------
    StanctError
        ArviZ cannot compare them, for instance because they have different numbers of observations.
    """
    function = _arviz().compare
    exactly = {"round_to": "none"} if "round_to" in signature(function).parameters else {}
    with warnings.catch_warnings():
        # Every container holds its own large Pareto k, which the caller can look up.
        warnings.simplefilter("ignore")
        try:
            return function(dict(containers), **exactly)
        except (TypeError, ValueError) as cause:
            raise StanctError(
                f"ArviZ cannot compare the models by leave-one-out: {cause}",
                remedy="Each model needs one log likelihood of the same observations, such as "
                "`log_lik` in its generated quantities.",
            ) from cause


def drawn(
    old: str,
    usual: Mapping[str, Any],
    new: str,
    draws: Mapping[str, Array],
    options: Mapping[str, Any],
) -> Any:
    """Let ArviZ draw a picture of draws, and return what it returns.

    Parameters
    ----------
    old, usual, new
        The function of ArviZ 0.x and the options that it needs, and the function of 1.x.
    draws
        Name to shape (chains, draws).
    options
        Options of the user's.
    """
    arviz = _arviz()
    is_new = int(arviz.__version__.split(".")[0]) >= 1
    function = getattr(arviz, new if is_new else old)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        container = inference_data({"posterior": draws}, {})
        return function(container, **{**({} if is_new else usual), **options})


def density(values: Array, low: float, high: float) -> tuple[Array, Array]:
    """A grid inside of an interval, and the density there of draws that may go beyond it."""
    flat = np.ravel(values)
    inside = flat[(flat > low) & (flat < high)]
    if inside.size < FEWEST_WEIGHTS or np.ptp(inside) == 0:
        return np.array([low, high]), np.zeros(2)
    grid, height, _ = _array_stats().kde(inside)
    return grid, height * inside.size / flat.size


def read_netcdf(file: os.PathLike[str]) -> Any:
    """Read ArviZ's container from a netCDF file, whole and without keeping the file open.

    Raises
    ------
    StanctError
        This is no netCDF file of draws.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _arviz().from_netcdf(os.fspath(file)).load()
    except Exception as cause:  # each backend raises errors of its own
        raise StanctError(
            f"{os.fspath(file)} cannot be read: {cause}.",
            remedy="Pass a file that ArviZ's to_netcdf wrote, and install h5netcdf.",
        ) from cause


def inference_data(
    groups: Mapping[str, Mapping[str, Array]],
    attributes: Mapping[str, Any],
    *,
    data: Mapping[str, Mapping[str, Array]] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """Build ArviZ's container: `InferenceData` in 0.x, a `DataTree` in 1.x.

    Parameters
    ----------
    groups
        Group name to variables, each of shape (chains, draws, ...).
    attributes
        Attributes attached to every group.
    data
        Group name to variables without chains and draws.
    coords, dims
        Coordinates by dimension, and dimensions by variable.
    """
    arviz, data = _arviz(), data or {}
    names = {"coords": dict(coords or {}), "dims": {n: list(d) for n, d in (dims or {}).items()}}
    if int(arviz.__version__.split(".")[0]) >= 1:
        every = {name: dict(group) for name, group in {**groups, **data}.items()}
        return arviz.from_dict(every, attrs={name: dict(attributes) for name in every}, **names)
    sets = {
        name: arviz.dict_to_dataset(dict(group), attrs=dict(attributes), **own, **names)
        for kind, own in ((groups, {}), (data, {"default_dims": []}))
        for name, group in kind.items()
    }
    with warnings.catch_warnings():
        # ArviZ 0.x warns of groups that it does not know.
        warnings.simplefilter("ignore")
        return arviz.InferenceData(**sets)
