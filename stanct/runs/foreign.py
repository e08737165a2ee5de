"""Draws of a fit that another program made, read from whatever that program left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, counted, first_few
from stanct.estimates.arviz_bridge import read_netcdf
from stanct.estimates.naming import label
from stanct.runs.chain_files import (
    NAMES_OF_CHAINS,
    NAMES_OF_DRAWS,
    Table,
    read_chains,
    refuse_approximation,
)
from stanct.runs.columns import COLUMN, Columns, by_name, elements_of, first_index

if TYPE_CHECKING:
    import pandas as pd

NETCDF = (".nc", ".nc4", ".netcdf", ".h5")
# Files that others read, and what to pass instead.
_UNREAD = {
    ".parquet": "Pass pandas.read_parquet(file).",
    ".feather": "Pass pandas.read_feather(file).",
    ".rds": "In R, write.csv(posterior::as_draws_df(readRDS(file)), 'fit.csv'), and pass that.",
}
# Columns that draws of approximations have, whatever wrote them.
_OF_APPROXIMATIONS = frozenset({"lp_approx__", "log_g__", "log_q__"})
# Names under which tools keep Stan's own log density.
LP_NAMES = ("lp__", "lp")
DIVERGENT_NAMES = ("divergent__", "diverging")
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

    `lp`, shape (chains, draws), is Stan's ``lp__``, and `divergent` the share of such transitions;
    None if the fit does not say. `lost` is the share of the draws that were left out. `origin`
    tells where they come from, `columns` which elements have one, and `where` where a draw is.
    `numbered` is False for a table that numbers neither chains nor draws, whose rows may be in any
    order.
    """

    variables: Mapping[str, Array] = field(repr=False)
    lp: Array | None = field(repr=False)
    origin: str
    divergent: float | None = None
    lost: float = 0.0
    columns: Columns = field(default_factory=dict, repr=False)
    where: Callable[[int, int], str] | None = field(default=None, repr=False)
    numbered: bool = True

    @property
    def has(self) -> str:
        """The beginning of a sentence on what the fit has."""
        verb = "have" if self.origin.startswith("the files") else "has"
        return f"{self.origin[0].upper()}{self.origin[1:]} {verb}"

    def place(self, chain: int, draw: int) -> str:
        """Where a draw is, in words."""
        if self.where is not None:
            return self.where(chain, draw)
        return f"draw {draw + 1} of chain {chain + 1} of {self.origin}"


def is_fit(value: Any) -> bool:
    """Whether `read_fit` would try to read an object that is no path."""
    import pandas as pd

    return (
        isinstance(value, pd.DataFrame | Mapping)
        or hasattr(type(value), "stan_variable")
        or _posterior(value) is not None
        or hasattr(type(value), "data_vars")
    )


def is_path_of_fit(value: Any) -> bool:
    """Whether an object names files or folders: a path, the text of one that exists, or several."""
    if isinstance(value, str):
        return Path(value).exists()
    several = isinstance(value, list | tuple) and bool(value)
    return isinstance(value, os.PathLike) or (
        several and all(isinstance(one, str | os.PathLike) for one in value)
    )


def read_fit(fit: Fit, shapes: Mapping[str, tuple[int, ...]]) -> ForeignFit:
    """Read the draws of all parameters of a program, which have these shapes.

    The forms of a fit are those of `stanct.bridge`. Warm-up draws that a CSV file has are left out.
    Raises `StanctError` if it cannot be read, or lacks a parameter of the program.
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
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            chain, draw, *index = map(int, bad[0])
            count = len(np.unique(bad[:, :2], axis=0))
            raise StanctError(
                f"`{label(name, index)}` is not a finite number in {found.place(chain, draw)}"
                f"{f', the first of {count} such draws' * (count > 1)}.",
                remedy="Leave such draws out, or pass the fit as it was written.",
            )
    return ForeignFit(
        variables, lp, found.origin, found.divergent, found.lost, numbered=found.numbered
    )


def _shaped(found: ForeignFit, name: str, shape: tuple[int, ...]) -> Array:
    """Draws of a parameter, shape (chains, draws, *shape)."""
    if name not in found.variables:
        raise StanctError(
            f"{found.has} no draws of the parameter `{name}`.",
            remedy="The bridge needs all parameters of the program. Found: "
            f"{', '.join(found.variables) or 'nothing'}.{_of_brms(found.variables)}",
        )
    values = _numbers(found.variables[name], name)
    if values.shape[1:] == shape and values.ndim == len(shape) + 1:
        values = values[None]
    own = found.columns.get(name, {})
    first = first_index(own)
    for index in np.ndindex(shape) if own else ():
        if tuple(i + first for i in index) not in own:
            raise StanctError(
                f"{found.has} no column of `{label(name, index)}`.",
                remedy="Pass all elements of all parameters, and the data of the fit.",
            )
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
        return _read_csv([file for one in fit for file in _files(Path(one))])
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
            share = float(np.mean(np.asarray(variables[name], float)))
            return share if np.isfinite(share) else None
    return None


def _read_path(path: Path) -> ForeignFit:
    if path.suffix.lower() in _UNREAD:
        raise StanctError(f"{path} is neither CSV nor netCDF.", remedy=_UNREAD[path.suffix.lower()])
    if path.suffix.lower() in NETCDF:
        if not path.is_file():
            raise StanctError(f"There is no file {path}.", remedy="Check the path of the fit.")
        return read_draws(read_netcdf(path))
    return _read_csv(_files(path))


def _files(path: Path) -> list[Path]:
    """The CSV files of a folder, or the file itself."""
    files = sorted([*path.glob("*.csv"), *path.glob("*.csv.gz")]) if path.is_dir() else [path]
    if not files:
        raise StanctError(f"The folder {path} has no CSV files.", remedy=_REMEDY)
    return files


def _read_csv(files: Sequence[Path]) -> ForeignFit:
    """The draws of the files of one fit: one for each chain, or a table of all draws."""
    found = read_chains(files)
    if isinstance(found, Table):
        fit = _read_frame(found.frame, f"the table {files[0]}{found.left_out}")
        return replace(fit, lost=1 - (1 - fit.lost) * (1 - found.lost))
    columns = elements_of(found.names)
    variables = by_name(columns, found.draws)
    origin = f"the file{'s' * (len(files) > 1)} {files[0]}{found.left_out}"
    lp, divergent = _lp_of(variables), _divergent_of(variables)
    return ForeignFit(
        variables, lp, origin, divergent, found.lost, columns,
        lambda chain, draw: f"draw {draw + 1} of {found.files[chain]}",
    )  # fmt: skip


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


def _coerced(column: Any) -> Array:
    """A column as numbers. Words are none, which matters only in the columns of parameters."""
    import pandas as pd

    found: Any = pd.to_numeric(column, errors="coerce")
    return found.astype(float).to_numpy()


def _read_frame(frame: pd.DataFrame, origin: str = "the DataFrame") -> ForeignFit:
    frame = frame.rename(columns=_label).reset_index(drop=True)
    column = next((name for name in NAMES_OF_CHAINS if name in frame.columns), None)
    parts = {"1": frame} if column is None else dict(iter(frame.groupby(column, sort=True)))
    parts = {name: _in_order(part) for name, part in parts.items()}
    sizes = {name: len(part) for name, part in parts.items()}
    shortest = min(sizes.values(), default=0)
    if not shortest:
        raise StanctError(f"There is no draw in {origin}.", remedy=_REMEDY)
    labels = [str(name) for name in frame.columns if COLUMN.match(str(name))]
    if not {*labels} - {*NAMES_OF_CHAINS, *NAMES_OF_DRAWS, "X"}:  # of R, for numbers of rows
        raise StanctError(
            f"No column of {origin} has the name of a parameter, such as `x[1]` or `x.1`: "
            f"{first_few([*map(str, frame.columns)])}.",
            remedy="In R, write.csv(posterior::as_draws_df(fit), file) keeps the names, to which "
            "write.csv of an array adds those of the chains.",
        )
    for name in labels:
        if labels.count(name) > 1:
            raise StanctError(
                f"Two columns of the table are named {name!r}.", remedy="Leave one of them out."
            )
    draws = np.stack([
        np.stack([_coerced(part[name])[:shortest] for name in labels], axis=1)
        for part in parts.values()
    ])  # fmt: skip
    rows = [part.index for part in parts.values()]
    columns = elements_of(labels)
    variables = by_name(columns, draws)
    said = []
    if max(sizes.values()) > shortest:
        least = str(min(sizes, key=lambda name: sizes[name])).removesuffix(".0")
        said.append(f"of the first {shortest} draws, as chain {least} has no more")
    if without := len(frame) - sum(sizes.values()):
        said.append(f"without {counted(without, 'row')} of no chain")
    return ForeignFit(
        variables,
        _lp_of(variables),
        f"{origin} ({'; '.join(said)})" if said else origin,
        _divergent_of(variables),
        1 - len(parts) * shortest / len(frame),
        columns,
        lambda chain, draw: f"row {rows[chain][draw] + 1} of {origin}",
        column is not None or any(name in frame.columns for name in NAMES_OF_DRAWS),
    )


def _in_order(part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a chain as they were drawn, where a column numbers them: errors rest on that."""
    for name in NAMES_OF_DRAWS:
        if name in part.columns:
            number = _coerced(part[name])
            if np.all(number == np.round(number)) and np.unique(number).size == number.size:
                return part.iloc[np.argsort(number)]
    return part


def _label(name: Any) -> Any:
    """A column's name without blanks, or the variable of ArviZ's ``("posterior", "b[0]", 0)``.

    Of one group, ArviZ has ``("b[0]", 0)``.
    """
    if isinstance(name, tuple) and len(name) > 1:
        if name[0] in ("posterior", "sample_stats"):
            name = name[1]
        elif str(name[0]).endswith("]"):
            name = name[0]
    return name.strip() if isinstance(name, str) else name
