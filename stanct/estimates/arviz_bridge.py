"""The only module that imports ArviZ: inference data, and their comparison by leave-one-out.

ArviZ 0.22+ (Python 3.11) and 1.x (3.12+) use different names for these functions. The import takes
half a second and issues a warning, so it happens at first use.
"""

from __future__ import annotations

import functools
import importlib
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import platformdirs

from stanct.common.arrays import Array
from stanct.common.errors import StanctError

if TYPE_CHECKING:
    import pandas as pd

# The rule for the width of a kernel that does not grow with the distance of modes (Botev, Grotowski
# & Kroese 2010). ArviZ's own is the mean of it and one that does.
NARROW = "isj"
# Fewer values have no density that could be drawn.
FEWEST_VALUES = 25


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


def compare_by_loo(containers: Mapping[str, Any]) -> pd.DataFrame:
    """ArviZ's comparison of containers with pointwise log likelihoods, by stacking weights.

    Raises `StanctError` if ArviZ cannot compare them, as with different numbers of observations.
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
    """Let ArviZ draw a picture of draws, each of shape (chains, draws), and return what it returns.

    `old` is the function of ArviZ 0.x, which needs the options `usual`, and `new` that of 1.x.
    """
    arviz = _arviz()
    is_new = int(arviz.__version__.split(".")[0]) >= 1
    function = getattr(arviz, new if is_new else old)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        container = inference_data({"posterior": draws}, {})
        return function(container, **{**({} if is_new else usual), **options})


def density(
    values: Array, low: float = -np.inf, high: float = np.inf, width: str = NARROW
) -> tuple[Array, Array]:
    """A grid inside of an interval, and the density there of draws that may go beyond it.

    `width` is ArviZ's name of the rule for the width of the kernel.

    Where there are too few values, or all are equal, the density is 0.
    """
    flat = np.ravel(values)
    inside = flat[(flat > low) & (flat < high)]
    if inside.size < FEWEST_VALUES or np.ptp(inside) == 0:
        ends = [flat.min(), flat.max()] if np.isinf(low) else [low, high]
        return np.array(ends), np.zeros(2)
    arviz = _arviz()
    kde = getattr(arviz, "kde", None) or importlib.import_module("arviz_stats.base").array_stats.kde
    grid, height, *_ = kde(inside, bw=width)
    return grid, height * inside.size / flat.size


def read_netcdf(file: os.PathLike[str]) -> Any:
    """Read ArviZ's container from a netCDF file, whole and without keeping the file open.

    Raises `StanctError` if this is no netCDF file of draws.
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

    Variables in `groups` have shape (chains, draws, ...), and those in groups of `data` no chains
    and draws. `coords` are by dimension, and `dims` by variable.
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
