"""`calibrate`: are a program's posteriors and Bayes factors right on data that it could have made?

Data are drawn from the joint distribution of a program's prior and its likelihood, again and again.
The true parameters are then draws of the posteriors, so that the share of each posterior below its
true value is uniform (Talts et al. 2018, arXiv 1804.06788). With several models, one of them makes
each data set, and the posterior probabilities of the models must agree with how often each did
(Schad, Nicenboim, Bürkner, Betancourt & Vasishth 2022; Schad & Vasishth 2024, arXiv 2406.08022).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.api.many import Model, Simulated, check_numbers, check_truth, sample_many
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError, StanctError
from stanct.common.seeds import Seeds, fresh_seed
from stanct.runs.calibration import Calibration
from stanct.runs.many import Many
from stanct.samplers._method import Method
from stanct.work.execution import check_seed

if TYPE_CHECKING:
    import pandas as pd

PAIR = (
    "A simulator returns a pair: the data, then a mapping of true values by name of the program's "
    "variables."
)

Simulator = Callable[[np.random.Generator], Any]
"""Draws data, or a pair of data and the values by name of the variables that made them."""


def calibrate(
    models: Mapping[str, tuple[Model, Simulator]],
    *,
    repeats: int = 100,
    prior: Mapping[str, float] | None = None,
    method: Method[Any] | str = "auto",
    folder: str | os.PathLike[str] | None = None,
    executor: Executor | str | None = None,
    seed: int | None = None,
    progress: bool = True,
    **options: Any,
) -> Calibration:
    """Sample programs on data that they could have made, and test what comes out.

    Parameters
    ----------
    models
        By name, a `TemperedModel` and a function that draws data from its prior and likelihood. The
        function takes a `numpy.random.Generator` and returns the data, or a pair of the data and a
        mapping of true values of parameters or generated quantities.
    repeats
        Number of data sets.
    prior
        Prior probabilities of the models; equal by default.
    folder, executor, progress
        As in `stanct.sample_many`. Each model has a folder of its own in `folder`.
    seed
        Seed of the data and of all runs; a fresh one by default.
    method, options
        Method and options of all runs.

    Raises
    ------
    SamplingError
        Raised before any run: the prior is none, a simulator fails or returns something other than
        data and true values of variables, there is nothing to test, or options are bad.
    """
    import pandas as pd

    names, weights = _prior(models, prior)
    seed = fresh_seed() if seed is None else check_seed(seed)
    chosen, drawn = _simulated(models, names, weights, repeats, Seeds(seed))
    _check_simulated(models, names, chosen, drawn)
    runs: dict[str, Many] = {}
    for k, name in enumerate(names):
        own = {
            str(i): Simulated(data, truth if chosen[i] == k else {})
            for i, (data, truth) in enumerate(drawn)
            if all(many.complete for many in runs.values())
        }
        runs[name] = sample_many(
            models[name][0], own, method, executor=executor, progress=progress,
            folder=None if folder is None else Path(folder) / f"{k + 1}",
            seed=Seeds(seed)("runs", k).generate_state(1)[0].item(), **options,
        )  # fmt: skip
    made_by = pd.Series([names[k] for k in chosen], index=[str(i) for i in range(repeats)])
    return Calibration(
        _ranks(runs), _probabilities(runs, weights), made_by,
        dict(zip(names, weights.tolist(), strict=True)), runs,
    )  # fmt: skip


def _prior(models: Mapping[str, Any], prior: Mapping[str, float] | None) -> tuple[list[str], Array]:
    names = list(models)
    if not names:
        raise SamplingError("There is no model.", remedy="Pass {'name': (model, simulator)}.")
    weights = np.array([1.0 if prior is None else float(prior.get(name, -1)) for name in names])
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise SamplingError(
            f"prior must have a positive number for each of {', '.join(names)}, not {prior!r}."
        )
    return names, weights / weights.sum()


def _simulated(
    models: Mapping[str, tuple[Model, Simulator]],
    names: list[str],
    weights: Array,
    repeats: int,
    seeds: Seeds,
) -> tuple[list[int], list[tuple[Any, Mapping[str, Any]]]]:
    """Which model made each data set, and the data with true values."""
    if not isinstance(repeats, int) or repeats < 1:
        raise SamplingError(f"repeats must be a whole number from 1, not {repeats!r}.")
    chosen, drawn = [], []
    for i in range(repeats):
        rng = seeds.stream("data", i)
        k = int(rng.choice(len(names), p=weights))
        try:
            made = models[names[k]][1](rng)
        except Exception as cause:
            raise SamplingError(
                f"The simulator of {names[k]!r} failed on data set {i}: "
                f"{type(cause).__name__}: {cause}."
            ) from cause
        pair = made if isinstance(made, tuple) else (made, {})
        if len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise SamplingError(
                f"The simulator of {names[k]!r} must return data, or data and a mapping of true "
                f"values, not {type(made).__name__} of {len(pair)}."
            )
        chosen.append(k)
        drawn.append((pair[0], pair[1]))
    return chosen, drawn


def _check_simulated(
    models: Mapping[str, tuple[Model, Simulator]],
    names: list[str],
    chosen: list[int],
    drawn: list[tuple[Any, Mapping[str, Any]]],
) -> None:
    """Refuse simulators whose first data set does not suit the programs."""
    if len(names) == 1 and not any(truth for _, truth in drawn):
        raise SamplingError(
            f"The simulator of {names[0]!r} returns no true values, without which one model has "
            "no test.",
            remedy=PAIR,
        )
    for k, name in enumerate(names):
        first = chosen.index(k) if k in chosen else 0
        model, (data, truth) = models[name][0], drawn[first]
        made = f"the simulator of {names[chosen[first]]!r}"
        declared = {one.name for one in model.program.data}
        if declared & set(truth):
            raise SamplingError(
                f"Data set {first} of {made}: {', '.join(sorted(declared & set(truth)))} of the "
                f"data of {name!r} stand among the true values.",
                remedy=PAIR,
            )
        try:
            target = model.target(data)
            if chosen[first] == k:
                check_truth(truth, target.variable_shapes)
        except StanctError as cause:
            raise SamplingError(
                f"Data set {first} of {made} does not suit {name!r}: {cause}"
            ) from cause
    for i, (_, truth) in enumerate(drawn):
        try:
            check_numbers(truth)
        except SamplingError as cause:
            raise SamplingError(
                f"Data set {i} of the simulator of {names[chosen[i]]!r}: {cause}"
            ) from cause


def _ranks(runs: Mapping[str, Many]) -> pd.DataFrame:
    import pandas as pd

    columns = {}
    for name, many in runs.items():
        for column in many.table.columns:
            if str(column).startswith("rank_"):
                label = str(column).removeprefix("rank_")
                columns[label if len(runs) == 1 else f"{name}: {label}"] = many.table[column]
    return pd.DataFrame(columns)


def _probabilities(runs: Mapping[str, Many], weights: Array) -> pd.DataFrame:
    import pandas as pd

    log_z = pd.DataFrame({name: many.table["log_z"] for name, many in runs.items()}).astype(float)
    log_posterior = log_z.dropna() + np.log(weights)
    log_posterior = log_posterior.sub(log_posterior.max(axis=1), axis=0)
    weights_of = np.exp(log_posterior.to_numpy(float))
    shares = weights_of / weights_of.sum(axis=1, keepdims=True)
    return pd.DataFrame(shares, log_posterior.index, log_posterior.columns)
