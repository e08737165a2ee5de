"""Reads the files that CmdStan and RStan write, one for each chain, and tables of draws."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, first_few

if TYPE_CHECKING:
    import pandas as pd

NAMES_OF_CHAINS = ("chain__", ".chain", "chain")
NAMES_OF_DRAWS = ("draw__", ".draw", "draw", "iter__", ".iteration", "iteration")
_SETTING = re.compile(
    r"#\s*(?P<name>method|num_samples|num_warmup|warmup|save_warmup|thin)\s*=\s*(?P<value>\w+)"
)
# Methods of CmdStan whose files hold draws of an approximation.
_APPROXIMATE = ("pathfinder", "variational", "laplace")
BY_SAMPLING = "Pass draws by sampling (method = sample), or let stanct temper the program."
_AS_WRITTEN = "Pass CmdStan's own files as they were written, or one table of all draws."
_DECIMAL_COMMA = re.compile(r"\d,\d")


@dataclass(frozen=True)
class Chains:
    """The draws of several files, shape (chains, draws, columns), and the names of the columns.

    `left_out` tells in words which draws are not among them, and `lost` is their share.
    """

    names: tuple[str, ...]
    draws: Array = field(repr=False)
    files: tuple[Path, ...]
    left_out: str
    lost: float


class Table(NamedTuple):
    """The rows of a file with all draws of a fit; `left_out` and `lost` are those of `Chains`."""

    frame: pd.DataFrame
    left_out: str
    lost: float


@dataclass(frozen=True, eq=False)
class _Chain:
    file: Path
    names: tuple[str, ...]
    rows: Array
    wanted: int
    cut: bool

    @property
    def in_words(self) -> str:
        """How many draws it has, and how many its header announces if these are more."""
        has = len(self.rows)
        return f"{self.file.name} has {has}{f' of {self.wanted}' * (self.wanted > has)} draws"


def read_chains(files: Sequence[Path]) -> Chains | Table:
    """The draws of files, after warm-up: chains, or one table of all draws.

    The last line of a chain that was killed is left out, as it may lack digits. Where chains are of
    different lengths, so many of the longest are kept that most draws remain. Raises `StanctError`
    if a file cannot be read, comes twice, is of an approximation, or has other columns than the
    first.
    """
    for file in files:
        if files.count(file) > 1:
            raise StanctError(f"{file} is given twice.", remedy="Pass each chain once.")
    texts = {file: _lines(file) for file in files}
    texts = {file: lines for file, lines in texts.items() if not _is_profile(lines)}
    if len(texts) == 1:
        ((file, lines),) = texts.items()
        if (table := _table(file, lines)) is not None:
            return table
    chains = [_chain(file, lines) for file, lines in texts.items()]
    if not chains:
        raise StanctError(f"{files[0]} has no draws.", remedy=_AS_WRITTEN)
    for chain in chains:
        if chain.names != chains[0].names:
            raise StanctError(
                f"{chain.file} and {chains[0].file} have different columns.",
                remedy="Pass the files of one fit only.",
            )
    longest = sorted(chains, key=lambda chain: -len(chain.rows))
    count = max(range(len(chains)), key=lambda k: (k + 1) * len(longest[k].rows)) + 1
    length = len(longest[count - 1].rows)
    kept = [chain for chain in chains if chain in longest[:count]]
    draws = np.stack([chain.rows[:length] for chain in kept])
    total = sum(max(chain.wanted, len(chain.rows) + chain.cut) for chain in chains)
    said = [f"without all of a chain: {chain.in_words}" for chain in longest[count:]]
    said += [_without_last(chain.file) for chain in kept if chain.cut]
    if any(len(chain.rows) > length for chain in kept):
        said.append(f"of the first {length} draws, as {longest[count - 1].file.name} has no more")
    if short := [chain.in_words for chain in kept if len(chain.rows) < chain.wanted]:
        said.append(first_few(short))
    return Chains(
        chains[0].names,
        draws,
        tuple(chain.file for chain in kept),
        f" ({'; '.join(said)})" if said else "",
        1 - draws.shape[0] * length / max(total, 1),
    )


def refuse_approximation(origin: str, method: str) -> NoReturn:
    """Refuse draws that are no sample of the posterior."""
    raise StanctError(
        f"In {origin} are draws of {method}, which are of an approximation to the posterior.",
        remedy=BY_SAMPLING,
    )


def _lines(file: Path) -> list[str]:
    """The lines of a file. The last of them is empty unless it lacks its end."""
    try:
        packed = file.suffix == ".gz"
        with (gzip.open if packed else open)(file, "rt", encoding="utf-8") as lines:
            return lines.read().split("\n")
    except (OSError, EOFError, ValueError) as cause:
        raise StanctError(
            f"{file} cannot be read: {cause}.", remedy="Check the path of the fit."
        ) from cause


def _without_last(file: Path) -> str:
    return f"without the last line of {file.name}, which is not whole"


def _separator(header: str) -> str:
    """What separates the columns: a tab or a semicolon, which no name has, or a comma."""
    return next((mark for mark in "\t;" if mark in header), ",")


def _fields(line: str, separator: str) -> tuple[str, ...]:
    """The fields of a line. R puts names in quotes, and some have commas: ``"z[1,1]"``."""
    found = csv.reader([line], delimiter=separator, skipinitialspace=separator != "\t")
    return tuple(name.strip() for name in next(found, []))


def _is_profile(lines: Sequence[str]) -> bool:
    return lines[0].startswith("name,thread_id,total_time")


def _table(file: Path, lines: Sequence[str]) -> Table | None:
    """A table by pandas, readr or R, with any separator; None for a file of one chain."""
    import pandas as pd

    if not any(lines[1:]):
        return None
    separator = _separator(lines[0])
    names = _fields(lines[0], separator)
    _refuse_summary(file, names)
    by_stan = any(line.startswith("#") for line in lines)
    if by_stan and not {*names} & {*NAMES_OF_CHAINS, *NAMES_OF_DRAWS}:
        return None
    for name in names:
        if names.count(name) > 1:
            raise StanctError(
                f"Two columns of {file} are named {name!r}.", remedy="Leave one of them out."
            )
    first = lines[1].rstrip(" ")
    decimal = "," if separator != "," and _DECIMAL_COMMA.search(first) else "."
    # Without it, pandas takes the first column for row names where lines end with a separator.
    index = False if first.endswith(separator) else None
    try:
        found = pd.read_csv(file, sep=separator, decimal=decimal, index_col=index)
    except ValueError as cause:
        _refuse(file, cause)
    found = found.drop(columns=[name for name in found if str(name).startswith("Unnamed")])
    if not lines[-1]:
        return Table(found, "", 0.0)
    return Table(found.iloc[:-1], f" ({_without_last(file)})", 1 / len(found))


def _chain(file: Path, lines: Sequence[str]) -> _Chain:
    settings = {m["name"]: m["value"] for m in map(_SETTING.match, lines) if m}
    if (method := settings.get("method")) in _APPROXIMATE:
        refuse_approximation(str(file), method)
    plain = [line for line in lines if line and not line.startswith("#")]
    if len(plain) < 2:
        raise StanctError(f"{file} has no draws.", remedy=_AS_WRITTEN)
    separator = _separator(plain[0])
    names = _fields(plain[0], separator)
    thin, before = int(settings.get("thin", 1)), 0
    if settings.get("save_warmup") in ("1", "true"):
        before = -(-int(settings.get("num_warmup", settings.get("warmup", 1000))) // thin)
    announced = -(-int(settings.get("num_samples", 0)) // thin)
    unended = lines[-1] and not lines[-1].startswith("#")
    cut = bool(unended) or len(_fields(plain[-1], separator)) < len(names)
    short = len(plain) - 1 < before + announced  # so that its last number may lack digits
    body = plain[1:-1] if cut or short else plain[1:]
    if len(body) <= before:
        raise StanctError(f"{file} has no draws after its warm-up.", remedy=_AS_WRITTEN)
    _refuse_summary(file, names)
    try:
        rows = np.loadtxt(body, delimiter=separator, ndmin=2, quotechar='"')[before:]
    except ValueError as cause:
        _refuse(file, cause)
    return _Chain(file, names, rows, max(announced, len(rows)), cut)


def _refuse_summary(file: Path, names: Sequence[str]) -> None:
    if {"Mean", "R_hat"} <= {*names}:
        raise StanctError(
            f"{file} is a summary of a fit, and has no draws.",
            remedy="Pass the CSV files of the chains, without what stansummary made of them.",
        )


def _refuse(file: Path, cause: ValueError) -> NoReturn:
    told = str(cause).strip().rstrip(".")
    raise StanctError(f"{file} is no CSV file of draws: {told}.", remedy=_AS_WRITTEN) from cause
