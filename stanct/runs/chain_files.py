"""Reads the files that CmdStan and RStan write, one for each chain, and tables of draws."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError

if TYPE_CHECKING:
    import pandas as pd

NAMES_OF_CHAINS = ("chain__", ".chain", "chain")
NAMES_OF_DRAWS = ("draw__", ".draw", "draw", "iter__", ".iteration", "iteration")
_SETTING = re.compile(
    r"#\s*(?P<name>method|num_warmup|warmup|save_warmup|thin)\s*=\s*(?P<value>\w+)"
)
# Methods of CmdStan whose files hold draws of an approximation.
_APPROXIMATE = ("pathfinder", "variational", "laplace")
BY_SAMPLING = "Pass draws by sampling (method = sample), or let stanct temper the program."
_AS_WRITTEN = "Pass CmdStan's own files, as they were written."


@dataclass(frozen=True)
class Chains:
    """The draws of several files, shape (chains, draws, columns), and the names of the columns.

    `left_out` tells which draws are not among them, in words after the name of the files; empty if
    none. `lost` is their share.
    """

    names: tuple[str, ...]
    draws: Array = field(repr=False)
    left_out: str
    lost: float


@dataclass(frozen=True, eq=False)
class _Chain:
    file: Path
    names: tuple[str, ...]
    rows: Array
    cut: bool


def read_chains(files: Sequence[Path]) -> Chains | pd.DataFrame:
    """The draws of files, after warm-up: chains, or one table of all draws.

    Files of profiles are passed over. The last line of a chain that was killed is left out where it
    is not whole. Where chains are of different lengths, so many of the longest are kept that most
    draws remain. Raises `StanctError` if a file cannot be read, is of an approximation, or has
    other columns than the first.
    """
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
    total = sum(len(chain.rows) for chain in chains)
    said = [
        f"without {chain.file.name}, which has {len(chain.rows)} draws" for chain in longest[count:]
    ]
    said += [f"without the last line of {c.file.name}, which is not whole" for c in kept if c.cut]
    if any(len(chain.rows) > length for chain in kept):
        said.append(f"of the first {length} draws")
    return Chains(
        chains[0].names,
        draws,
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
    try:
        packed = file.suffix == ".gz"
        with (gzip.open if packed else open)(file, "rt", encoding="utf-8") as lines:
            return lines.read().splitlines()
    except (OSError, EOFError, ValueError) as cause:
        raise StanctError(
            f"{file} cannot be read: {cause}.", remedy="Check the path of the fit."
        ) from cause


def _fields(header: str) -> tuple[str, ...]:
    """The fields of a line. R puts names in quotes, and some have commas: ``"z[1,1]"``."""
    return tuple(name.strip() for name in next(csv.reader([header], skipinitialspace=True), []))


def _is_profile(lines: Sequence[str]) -> bool:
    return bool(lines) and lines[0].startswith("name,thread_id,total_time")


def _table(file: Path, lines: Sequence[str]) -> pd.DataFrame | None:
    """A table with the names of pandas, readr or R; None for a file of one chain."""
    import pandas as pd

    names = _fields(lines[0]) if lines else ()
    if not {*names} & {*NAMES_OF_CHAINS, *NAMES_OF_DRAWS}:
        return None
    for name in names:
        if names.count(name) > 1:
            raise StanctError(
                f"Two columns of {file} are named {name!r}.", remedy="Leave one of them out."
            )
    found = pd.read_csv(file)
    return found.drop(columns=[name for name in found if str(name).startswith("Unnamed")])


def _chain(file: Path, lines: Sequence[str]) -> _Chain:
    settings = {m["name"]: m["value"] for m in map(_SETTING.match, lines) if m}
    if (method := settings.get("method")) in _APPROXIMATE:
        refuse_approximation(str(file), method)
    plain = [line for line in lines if line and not line.startswith("#")]
    if len(plain) < 2:
        raise StanctError(f"{file} has no draws.", remedy=_AS_WRITTEN)
    names = _fields(plain[0])
    cut = len(_fields(plain[-1])) < len(names)
    try:
        rows = np.loadtxt(plain[1:-1] if cut else plain[1:], delimiter=",", ndmin=2, quotechar='"')
    except ValueError as cause:
        raise StanctError(
            f"{file} is no CSV file of draws: {cause}.", remedy=_AS_WRITTEN
        ) from cause
    if settings.get("save_warmup") in ("1", "true"):
        warmup = int(settings.get("num_warmup", settings.get("warmup", 1000)))
        rows = rows[-(-warmup // int(settings.get("thin", 1))) :]
    if not len(rows):
        raise StanctError(f"{file} has no draws after its warm-up.", remedy=_AS_WRITTEN)
    return _Chain(file, names, rows, cut)
