"""The groups of ArviZ's container that a run fills: what its user would expect of any fit."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import ProgramError, StanctError
from stanct.engines.embedded import CompilerMessageError, Recipe
from stanct.stan.branches import taken
from stanct.stan.pointwise import Pointwise, pointwise
from stanct.stan.program import Program
from stanct.targets.density import Density

# Generated quantities with these names are log likelihoods and predictions.
LOG_LIKELIHOOD = ("log_lik", "log_likelihood")
PREDICTION = "_rep"
WITHOUT = "no_log_likelihood"
_PREFIX = "ct_"


@dataclass(frozen=True)
class Groups:
    """ArviZ's groups by name: variable to shape (chains, draws, ...), or data of any shape.

    `attributes` say under `WITHOUT` why there are no log likelihoods, where they were asked for.
    """

    drawn: dict[str, dict[str, Array]]
    data: dict[str, dict[str, Array]]
    attributes: dict[str, str]


def groups_of(
    variables: Mapping[str, Array],
    x: Array | None,
    density: str | None,
    data: str,
    *,
    log_likelihood: bool = True,
    predictions: Sequence[str] | Mapping[str, str] | None = None,
) -> Groups:
    """Sort variables and data into ArviZ's groups, and compute what is missing.

    `variables`, each of shape (chains, draws, ...), are equally weighted draws, and x, shape
    (chains, draws, D), the same draws, unconstrained; None if they are unknown. `density` is the
    text of the density program, None without one, and `data` JSON text. With `log_likelihood`, log
    prior and log likelihoods are computed that the program does not generate. For `predictions` see
    `Run.to_arviz`.
    """
    program = None if density is None else Program.from_source(density, name="density")
    split, without = _pointwise(program, data)
    observed = [] if split is None else list(split.log_likelihood)
    predicted = _predicted(variables, predictions)
    own = [name for name in variables if _is_log_likelihood(name)]
    rest = {n: v for n, v in variables.items() if n not in predicted and n not in own}
    groups = {"posterior": rest}
    if log_likelihood and split is not None and x is not None:
        groups |= _computed(split, data, x)
    attributes = dict[str, str]()
    if log_likelihood and without and not own:
        attributes[WITHOUT] = without
        warnings.warn(f"No log likelihood of each observation: {without}.", stacklevel=4)
    if own:
        groups["log_likelihood"] = {_of_what(n, own, observed): variables[n] for n in own}
    if predicted:
        groups["posterior_predictive"] = {to: variables[n] for n, to in predicted.items()}
    to_data = _data_groups(data, program, {*observed, *predicted.values()})
    return Groups(groups, to_data, attributes)


def for_arviz(statistics: Mapping[str, Array]) -> dict[str, Array]:
    """Statistics of transitions, which have CmdStan's names, by ArviZ's."""
    named = {name.rstrip("_"): values for name, values in statistics.items()}
    named["diverging"] = named.pop("divergent").astype(bool)
    return named


def variables_at(x: Array, density: str | None, data: str) -> dict[str, Array]:
    """The program's variables at points x, shape (..., D), each of shape (..., *dims).

    Empty without a density program, or where the engine cannot compute them.
    """
    if density is None:
        return {}
    try:
        return Density(Recipe(density, data)).variables(x, seed=1)
    except (CompilerMessageError, ValueError):
        return {}


def _is_log_likelihood(name: str) -> bool:
    return name in LOG_LIKELIHOOD or name.startswith("log_lik_")


def _of_what(name: str, own: Sequence[str], observed: Sequence[str]) -> str:
    """Name of the observations of a log likelihood that the program generates."""
    if name.startswith("log_lik_"):
        return name.removeprefix("log_lik_")
    return observed[0] if len(own) == len(observed) == 1 else name


def _predicted(
    variables: Mapping[str, Array], predictions: Sequence[str] | Mapping[str, str] | None
) -> dict[str, str]:
    """Name of each prediction to that of the data that it predicts."""
    if isinstance(predictions, Mapping):
        named = dict(predictions)
    else:
        chosen = predictions
        if chosen is None:
            chosen = [name for name in variables if name.endswith(PREDICTION)]
        named = {name: name.removesuffix(PREDICTION) for name in chosen}
    for name in named:
        if name not in variables:
            raise StanctError(
                f"The run has no variable {name!r}, which predictions= names.",
                remedy=f"It has: {', '.join(variables)}.",
            )
    return named


def _pointwise(program: Program | None, data: str) -> tuple[Pointwise | None, str]:
    """The program of the log likelihoods, and why it is without those of each observation."""
    if program is None:
        return None, ""
    try:
        split = pointwise(taken(program, json.loads(data)), _PREFIX)
    except ProgramError as reason:
        return None, reason.message.rstrip(".")
    return split, "; ".join(f"`{' '.join(t.split())}`: {why}" for t, why in split.whole.items())


def _computed(split: Pointwise, data: str, x: Array) -> dict[str, dict[str, Array]]:
    """Log prior and log likelihoods at the draws; empty if the engine cannot compute them."""
    try:
        density = Density(Recipe(split.code, data))
    except (CompilerMessageError, ValueError):
        return {}
    found = density.variables(x, seed=1)
    groups = {"log_prior": {"log_prior": found[split.log_prior]}}
    if split.log_likelihood:
        own = {name: found[quantity] for name, quantity in split.log_likelihood.items()}
        groups["log_likelihood"] = own
    return groups


def _data_groups(
    data: str, program: Program | None, observed: set[str]
) -> dict[str, dict[str, Array]]:
    declared = set(program.data_names) if program is not None else set()
    groups: dict[str, dict[str, Array]] = {"observed_data": {}, "constant_data": {}}
    for name, value in json.loads(data).items():
        array = _array(value)
        if name in declared and array is not None:
            group = "observed_data" if name in observed else "constant_data"
            groups[group][name] = array
    return {name: group for name, group in groups.items() if group}


def _array(value: object) -> Array | None:
    """A value as an array; None for tuples and ragged lists, which ArviZ does not hold."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array if array.dtype.kind in "iufb" else None
