"""Averages over models, and the comparison by prediction beside them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates import weighted
from stanct.estimates.arviz_bridge import compare_by_loo, inference_data
from stanct.estimates.averages import Expectation
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.inference import WITHOUT

if TYPE_CHECKING:
    import pandas as pd


def averaged(
    runs: Sequence[EvidenceRun], probability: Array, quantity: weighted.Quantity
) -> Expectation:
    """Average of a quantity over models of these probabilities; see `Comparison.average`."""
    found = [run.expect(quantity) for run in runs]
    shapes = {np.shape(one.value) for one in found}
    if len(shapes) > 1:
        raise StanctError(
            f"The quantity has different shapes in the models: {sorted(shapes)}.",
            remedy="Average one that means the same in all models.",
        )
    values, errors, sizes = (
        np.array([getattr(one, name) for one in found])
        for name in ("value", "std_error", "effective_size")
    )
    share = probability.reshape(-1, *[1] * np.ndim(found[0].value))
    mean = (share * values).sum(axis=0)
    log_z_errors = np.array([run.evidence.std_error for run in runs])
    by_models = log_z_errors.reshape(share.shape) * (values - mean)
    variance = np.square(share * errors) + np.square(share * by_models)
    size = 1 / (np.square(share) / sizes).sum(axis=0)
    failed = tuple(dict.fromkeys(name for one in found for name in one.warnings))
    return Expectation(mean, np.sqrt(variance.sum(axis=0)), size, 1.0, failed=failed)


def compared_by_loo(names: Sequence[str], runs: Sequence[EvidenceRun]) -> pd.DataFrame:
    """ArviZ's comparison by leave-one-out cross-validation; see `Comparison.loo`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No log likelihood")
        containers = {name: run.to_arviz() for name, run in zip(names, runs, strict=True)}
    sizes = {}
    for name, container in containers.items():
        if "log_likelihood" not in container:
            why = container["posterior"].attrs.get(WITHOUT)
            raise StanctError(
                f"The run {name!r} has no log likelihood of each observation"
                f"{': ' * bool(why)}{why or ''}.",
                remedy="Write `log_lik` in the program's generated quantities.",
            )
        found = container["log_likelihood"].data_vars
        sizes[name] = {str(own): found[own][0, 0].size for own in found}
    if all(len(own) == 1 for own in sizes.values()):
        return compare_by_loo(containers)
    if any(own != sizes[names[0]] for own in sizes.values()):
        raise StanctError(
            f"The models have log likelihoods of different data: {sizes}.",
            remedy="Write one `log_lik` in the generated quantities of each program.",
        )
    return compare_by_loo({name: _as_one(container) for name, container in containers.items()})


def _as_one(container: Any) -> Any:
    """A container whose log likelihoods of several data are those of one, by name of the data."""
    found = container["log_likelihood"].data_vars
    parts = [np.asarray(found[name]) for name in sorted(map(str, found))]
    flat = np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)
    posterior = {str(n): np.asarray(v) for n, v in container["posterior"].data_vars.items()}
    return inference_data({"posterior": posterior, "log_likelihood": {"observations": flat}}, {})
