"""Draws of a fit that another program made, read from whatever that program left behind."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.engines.embedded import DrawBlock
from stanct.estimates.arviz_bridge import read_netcdf
from stanct.runs.chain_files import NAMES_OF_CHAINS, read_chains, refuse_approximation
from stanct.targets.program_target import ProgramTarget

if TYPE_CHECKING:
    import pandas as pd

NETCDF = (".nc", ".nc4", ".netcdf", ".h5")
# Names under which tools keep the number of a draw's chain and Stan's own log density.
# Columns that draws of approximations have, whatever wrote them.
_OF_APPROXIMATIONS = frozenset({"lp_approx__", "log_g__", "log_q__"})
LP_NAMES = ("lp__", "lp")
DIVERGENT_NAMES = ("divergent__", "diverging")
_COLUMN = re.compile(
    r"(?P<name>[A-Za-z]\w*?)(?:\[(?P<list>\d+(?:,\s*\d+)*)\]|(?P<dots>(?:\.\d+)+))?$"
)
# Of brms: coefficients, and standard deviations and correlations of groups.
_RENAMED = re.compile(r"b_(?!Intercept$)\w+|(?:sd|cor)_\w+__\w+")
_REMEDY = (
    "Pass a CmdStanMCMC, its CSV files, ArviZ's InferenceData or DataTree or a netCDF file of one, "
    "a DataFrame, or a mapping of parameter names to arrays."
)

# Files are written with few digits. What a constraint lacks by less than this is rounding.
ROUNDING = 1e-4


class HasStanVariables(Protocol):
    """The part of CmdStanPy's ``CmdStanMCMC`` that is read."""

    def stan_variables(self) -> Any: ...

    def method_variables(self) -> Any: ...


class HasGroups(Protocol):
    """The part of ArviZ's and xarray's containers that is read."""

    def __getitem__(self, name: Any, /) -> Any: ...

    def to_netcdf(self, path: Any = ..., /) -> Any: ...


class HasColumns(Protocol):
    """The part of a pandas DataFrame that is read."""

    @property
    def columns(self) -> Any: ...

    def to_numpy(self) -> Any: ...


Fit = (
    str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Mapping[str, Any]
    | HasStanVariables
    | HasGroups
    | HasColumns
)
"""What `read_fit` accepts. The libraries whose objects these are need not be installed."""


@dataclass(frozen=True)
class ForeignFit:
    """Draws of the parameters, in the user's own space, each of shape (chains, draws, ...).

    `lp`, shape (chains, draws), is Stan's ``lp__``, which lacks constants. `divergent` is the share
    of the transitions that diverged, and `lost` that of the draws that were left out. The first two
    are None if the fit does not say. `origin` tells in words where the draws come from.
    """

    variables: Mapping[str, Array] = field(repr=False)
    lp: Array | None = field(repr=False)
    origin: str
    divergent: float | None = None
    lost: float = 0.0


def is_fit(value: Any) -> bool:
    """Whether `read_fit` would try to read an object that is no path."""
    import pandas as pd

    return (
        isinstance(value, pd.DataFrame | Mapping)
        or hasattr(type(value), "stan_variable")
        or _posterior(value) is not None
        or hasattr(type(value), "data_vars")
    )


@dataclass(frozen=True)
class Unconstrained:
    """Draws of a fit in the unconstrained space of a program, shape (chains, draws, D).

    `lp` has the rows of the draws that are left. Those are lost which the transform cannot invert,
    or which were cut from longer chains. For the rest see `ForeignFit`.
    """

    x: Array = field(repr=False)
    lp: Array | None = field(repr=False)
    lost: float
    origin: str
    divergent: float | None


def unconstrained(target: ProgramTarget, fit: Fit, rng: np.random.Generator) -> Unconstrained:
    """Read a fit of a program and transform its draws.

    Random numbers are for the lengths of unconstrained unit vectors; see
    `ProgramTarget.unconstrain`. Raises `StanctError` if the fit cannot be read, lacks a parameter,
    or has hardly a draw in the program's support.
    """
    found = read_fit(fit, target.parameter_shapes)
    types = {d.name: d.type for d in target.program.parameters}
    mended = {name: _mended(types[name], values) for name, values in found.variables.items()}
    block = DrawBlock(mended, {})
    chains, draws = next(iter(mended.values())).shape[:2]
    if chains * draws == 0:
        raise StanctError(
            f"There is no draw in {found.origin}.", remedy="Pass a fit with hundreds of draws."
        )
    parts = [target.unconstrained_rows(block, chain, rng) for chain in range(chains)]
    shortest = min(len(part) for part, _ in parts)
    if shortest < draws / 2:
        raise StanctError(
            f"Most draws of {found.origin} are outside the support of the program's parameters"
            f"{_why_outside(target, mended)}.",
            remedy="Is this a fit of this program, with these data, written with enough digits?",
        )
    x = np.array([part[:shortest] for part, _ in parts])
    lost = 1 - (1 - found.lost) * sum(len(part) for part, _ in parts) / (chains * draws)
    # A unit vector has lost its length, of which Stan's lp__ has a term.
    has_lengths = "unit_vector" in types.values()
    lp = None if has_lengths else found.lp
    if lp is not None:
        lp = np.array([own[rows[:shortest]] for own, (_, rows) in zip(lp, parts, strict=True)])
    return Unconstrained(x, lp, lost, found.origin, found.divergent)


def sampled(target: ProgramTarget, fit: Fit, rng: np.random.Generator) -> Unconstrained:
    """The draws of `unconstrained`, of chains and parameters that vary.

    Raises `StanctError` if all draws of a parameter are the same, or those of two chains are.
    """
    found = unconstrained(target, fit, rng)
    chains, _, dimension = found.x.shape
    still = np.flatnonzero(np.ptp(found.x.reshape(-1, dimension), axis=0) == 0)
    if still.size:
        names = ", ".join(f"`{target.density.unconstrained_names[i]}`" for i in still[:5])
        raise StanctError(
            f"All draws of {names} in {found.origin} are the same.",
            remedy="A parameter varies. What was fixed in the fit must be data of the program.",
        )
    for one, other in itertools.combinations(range(chains), 2):
        if np.array_equal(found.x[one], found.x[other]):
            raise StanctError(
                f"The chains {one + 1} and {other + 1} of {found.origin} have the same draws.",
                remedy="Pass each chain once. Does the folder hold a fit twice?",
            )
    return found


def _why_outside(target: ProgramTarget, variables: Mapping[str, Array]) -> str:
    try:
        target.density.unconstrain({name: values[0, 0] for name, values in variables.items()})
    except ValueError as cause:
        return f": {str(cause).strip().rstrip('.')}"
    return ""


def _mended(kind: str, values: Array) -> Array:
    """Draws that fulfil the constraint of a type again, where only rounding broke it."""
    if kind == "simplex":
        fixed = values / values.sum(axis=-1, keepdims=True)
    elif kind in ("unit_vector", "cholesky_factor_corr"):
        fixed = values / np.linalg.norm(values, axis=-1, keepdims=True)
    elif kind == "sum_to_zero_vector":
        fixed = values - values.mean(axis=-1, keepdims=True)
    elif kind in ("corr_matrix", "cov_matrix"):
        fixed = (values + values.swapaxes(-1, -2)) / 2
        if kind == "corr_matrix":
            fixed[..., range(fixed.shape[-1]), range(fixed.shape[-1])] = 1.0
    else:
        return values
    is_near = np.isfinite(fixed).all() and np.abs(fixed - values).max(initial=0) < ROUNDING
    return fixed if is_near else values


def read_fit(fit: Fit, shapes: Mapping[str, tuple[int, ...]]) -> ForeignFit:
    """Read the draws of all parameters of a program.

    Parameters
    ----------
    fit
        A ``CmdStanMCMC``; one or several CmdStan CSV files, or a folder of them; ArviZ's
        ``InferenceData``, ``DataTree`` or ``Dataset``, or a netCDF file; a DataFrame with columns
        such as ``theta[1,2]`` or ``theta.1.2`` and, for several chains, ``chain__``; or a mapping
        of names to arrays of shape (chains, draws, ...) or (draws, ...). Warm-up draws that a CSV
        file has are left out.

    Raises
    ------
    StanctError
        The fit is of no such kind, cannot be read, or lacks a parameter of the program.
    """
    found = read_draws(fit)
    if _OF_APPROXIMATIONS & found.variables.keys():
        refuse_approximation(found.origin, "Pathfinder, Laplace or ADVI")
    variables = {name: _shaped(found, name, shape) for name, shape in shapes.items()}
    lead = {values.shape[:2] for values in variables.values()}
    if len(lead) != 1:
        raise StanctError(
            f"Parameters of the fit have different numbers of draws: {sorted(lead)}.",
            remedy="Pass the same draws of every parameter.",
        )
    lp = found.lp if found.lp is not None and found.lp.shape in lead else None
    for name, values in variables.items():
        if not np.isfinite(values).all():
            raise StanctError(
                f"Draws of `{name}` in {found.origin} are not finite, or an element has no column.",
                remedy="Pass the fit with all elements of all parameters.",
            )
    return ForeignFit(variables, lp, found.origin, found.divergent, found.lost)


def _shaped(found: ForeignFit, name: str, shape: tuple[int, ...]) -> Array:
    """Draws of a parameter, shape (chains, draws, *shape)."""
    if name not in found.variables:
        has = "have" if found.origin.startswith("the files") else "has"
        raise StanctError(
            f"{found.origin[0].upper()}{found.origin[1:]} {has} no draws of the parameter "
            f"`{name}`.",
            remedy="The bridge needs all parameters of the program. Found: "
            f"{', '.join(found.variables) or 'nothing'}.{_of_brms(found.variables)}",
        )
    values = _numbers(found.variables[name], name)
    if values.shape[1:] == shape and values.ndim == len(shape) + 1:
        values = values[None]
    if values.ndim != len(shape) + 2 or values.shape[2:] != shape:
        raise StanctError(
            f"Draws of `{name}` have shape {values.shape}; the program and the data need (chains, "
            f"draws{''.join(f', {size}' for size in shape)}).",
            remedy="Are these the data of the fit?",
        )
    return values


def _of_brms(names: Iterable[str]) -> str:
    """What to do where names are those that brms gives to the parameters of its programs."""
    if not any(map(_RENAMED.fullmatch, names)):
        return ""
    return (
        " brms renames the parameters of its programs: pass posterior::as_draws_df(fit$fit) of a "
        "fit with save_pars(all = TRUE), whose names are the program's."
    )


def _numbers(values: Any, name: str) -> Array:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError) as cause:
        raise StanctError(
            f"Draws of `{name}` are not numbers: {cause}.", remedy="Pass draws as numbers."
        ) from cause


def read_draws(fit: Any) -> ForeignFit:
    """All draws of a fit; those of CmdStan's CSV files with its statistics. See `read_fit`."""
    import pandas as pd

    if isinstance(fit, str | os.PathLike):
        return _read_path(Path(fit))
    if isinstance(fit, Sequence) and fit and all(isinstance(f, str | os.PathLike) for f in fit):
        return _read_csv([Path(f) for f in fit])
    if hasattr(fit, "stan_variable") and hasattr(fit, "method_variables"):
        return _read_cmdstanpy(fit)
    group = _posterior(fit)
    if group is not None:
        # Statistics of stanct's own runs are those of the tempered density.
        ours = getattr(group, "attrs", {}).get("inference_library") == "stanct"
        statistics = None if ours else _group(fit, "sample_stats")
        return _read_dataset(group, {} if statistics is None else statistics)
    if isinstance(fit, pd.DataFrame):
        return _read_frame(fit)
    if hasattr(fit, "data_vars"):
        return _read_dataset(fit, fit)
    if isinstance(fit, Mapping):
        return ForeignFit(dict(fit), _lp_of(fit), "the mapping of draws", _divergent_of(fit))
    raise StanctError(f"A fit of the type {type(fit).__name__!r} cannot be read.", remedy=_REMEDY)


def _lp_of(variables: Mapping[str, Any]) -> Array | None:
    for name in LP_NAMES:
        if name in variables:
            return np.atleast_2d(np.asarray(variables[name], float))
    return None


def _divergent_of(variables: Any) -> float | None:
    for name in DIVERGENT_NAMES:
        if name in variables:
            return float(np.mean(np.asarray(variables[name], float)))
    return None


def _read_path(path: Path) -> ForeignFit:
    if path.suffix.lower() in NETCDF:
        if not path.is_file():
            raise StanctError(f"There is no file {path}.", remedy="Check the path of the fit.")
        return read_draws(read_netcdf(path))
    files = sorted([*path.glob("*.csv"), *path.glob("*.csv.gz")]) if path.is_dir() else [path]
    if not files:
        raise StanctError(f"The folder {path} has no CSV files.", remedy=_REMEDY)
    return _read_csv(files)


def _read_csv(files: Sequence[Path]) -> ForeignFit:
    """The draws of the files of one fit: one for each chain, or a table of all draws."""
    import pandas as pd

    found = read_chains(files)
    if isinstance(found, pd.DataFrame):
        return replace(_read_frame(found), origin=f"the table {files[0]}")
    variables = _by_name(found.names, found.draws)
    origin = f"the file{'s' * (len(files) > 1)} {files[0]}{found.left_out}"
    lp, divergent = _lp_of(variables), _divergent_of(variables)
    return ForeignFit(variables, lp, origin, divergent, found.lost)


def _read_cmdstanpy(fit: Any) -> ForeignFit:
    if not hasattr(fit, "num_draws_sampling"):
        raise StanctError(
            f"A {type(fit).__name__} has no draws of the posterior.",
            remedy="Pass the result of CmdStanModel.sample.",
        )
    chains = int(fit.chains)

    def by_chain(values: Any) -> Array:
        values = np.asarray(values, float)
        return values.reshape(chains, -1, *values.shape[1:])

    variables = {name: by_chain(values) for name, values in fit.stan_variables().items()}
    # Statistics have the draws of a warm-up too, where it was saved, and variables have not.
    kept = int(fit.num_draws_sampling)
    own = {name: np.asarray(values)[-kept:] for name, values in fit.method_variables().items()}
    return ForeignFit(variables, own["lp__"].T, "the CmdStanMCMC", _divergent_of(own))


def _group(fit: Any, name: str) -> Any:
    """A group of ArviZ's container; None if it has no such group."""
    try:
        return fit[name]
    except (KeyError, TypeError, IndexError, ValueError):
        return None


def _posterior(fit: Any) -> Any:
    """The group `posterior` of ArviZ's container; None if this is no such container."""
    group = _group(fit, "posterior") if hasattr(type(fit), "to_netcdf") else None
    return group if hasattr(group, "data_vars") else None


def _read_dataset(posterior: Any, statistics: Any) -> ForeignFit:
    variables = {
        str(name): _chains_first(posterior[name])
        for name in posterior.data_vars
        if {"chain", "draw"} <= set(posterior[name].dims)
    }
    # ArviZ's `from_cmdstanpy` puts the statistics of a saved warm-up before those of the draws.
    draws = max((values.shape[1] for values in variables.values()), default=0)
    own = {
        name: _chains_first(statistics[name])[:, -draws:]
        for name in (*LP_NAMES, *DIVERGENT_NAMES)
        if name in statistics
    }
    return ForeignFit(variables, _lp_of(own), "the group posterior of the fit", _divergent_of(own))


def _chains_first(values: Any) -> Array:
    return np.asarray(values.transpose("chain", "draw", ...).values)


def _read_frame(frame: pd.DataFrame) -> ForeignFit:
    frame = frame.rename(columns=_label)
    column = next((name for name in NAMES_OF_CHAINS if name in frame.columns), None)
    parts = [frame] if column is None else [part for _, part in frame.groupby(column, sort=True)]
    shortest = min(len(part) for part in parts)
    labels = [str(name) for name in frame.columns if _COLUMN.match(str(name))]
    for label in labels:
        if labels.count(label) > 1:
            raise StanctError(
                f"Two columns of the table are named {label!r}.", remedy="Leave one of them out."
            )
    draws = np.stack([
        np.stack([_numbers(part[label], label)[:shortest] for label in labels], axis=1)
        for part in parts
    ])  # fmt: skip
    variables = _by_name(labels, draws)
    lost = 1 - len(parts) * shortest / max(len(frame), 1)
    return ForeignFit(variables, _lp_of(variables), "the DataFrame", _divergent_of(variables), lost)


def _by_name(labels: Sequence[str], draws: Array) -> dict[str, Array]:
    """Variables of shape (chains, draws, ...) from columns, shape (chains, draws, columns).

    A variable without all of its elements is not a number. Raises `StanctError` if two columns have
    the same name.
    """
    variables: dict[str, Array] = {}
    for name, elements in _elements(labels).items():
        first = 0 if any(0 in index for index in elements) else 1  # ArviZ counts from 0
        rank = len(next(iter(elements)))
        whole = all(len(index) == rank for index in elements)
        shape = tuple(max(index) + 1 - first for index in zip(*elements, strict=False))
        if whole and math.prod(shape) == len(elements):
            # Sorted indices are in the order of the elements of an array.
            columns = [elements[index] for index in sorted(elements)]
            variables[name] = draws[:, :, columns].reshape(*draws.shape[:2], *shape)
        else:
            variables[name] = np.broadcast_to(np.nan, (*draws.shape[:2], *shape))
    return variables


def _label(name: Any) -> Any:
    """A column's name without blanks, or the variable of ArviZ's ``("posterior", "b[0]", 0)``."""
    if isinstance(name, tuple) and len(name) > 1 and name[0] in ("posterior", "sample_stats"):
        name = name[1]
    return name.strip() if isinstance(name, str) else name


def _elements(labels: Iterable[str]) -> dict[str, dict[tuple[int, ...], int]]:
    """Group column labels by variable: index to the place of its column."""
    places: dict[str, dict[tuple[int, ...], int]] = {}
    for column, label in enumerate(labels):
        match = _COLUMN.match(label.strip().strip('"'))
        if match is None:
            continue
        numbers = match["list"] or (match["dots"] or "").lstrip(".").replace(".", ",")
        index = tuple(int(part) for part in numbers.split(",")) if numbers else ()
        its = places.setdefault(match["name"], {})
        if index in its:
            raise StanctError(f"Two columns are named {label!r}.", remedy="Leave one of them out.")
        its[index] = column
    return places
