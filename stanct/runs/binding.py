"""What holds the files of a saved run together: their digests, and the program that made them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stanct.arrays import Array
from stanct.errors import shortened
from stanct.stan.program import Program
from stanct.stan.syntax import Declare, TypeSpec
from stanct.targets.arithmetic import evaluated
from stanct.targets.data import SQUARE

LONGEST_PROGRAM = 2**24
"""Length of the longest text of a program that is read from a saved run."""

# Squares of larger numbers overflow, and no log density differs so much from a base's.
_HUGE = 1e150
# Numbers of a mapped array that are read to find one.
_MOST_READ = 2**14
# Bytes at each end of an array's own file that its digest covers. To read all of it would take the
# time that mapping saves.
_END = 2**16
_BLOCK = 2**20

Sizes = list[float | None]
_SCALARS = {"int", "real"}
# Numbers of unconstrained coordinates, from the sizes of the type.
_COORDINATES: dict[str, Callable[..., int]] = {
    "real": lambda: 1,
    **dict.fromkeys(
        ("vector", "row_vector", "ordered", "positive_ordered", "unit_vector"), lambda n: n
    ),
    **dict.fromkeys(("simplex", "sum_to_zero_vector"), lambda n: n - 1),
    "matrix": lambda rows, columns: rows * columns,
    "sum_to_zero_matrix": lambda rows, columns: (rows - 1) * (columns - 1),
    "column_stochastic_matrix": lambda rows, columns: (rows - 1) * columns,
    "row_stochastic_matrix": lambda rows, columns: rows * (columns - 1),
    **dict.fromkeys(("corr_matrix", "cholesky_factor_corr"), lambda n: n * (n - 1) // 2),
    "cov_matrix": lambda n: n * (n + 1) // 2,
    "cholesky_factor_cov": lambda rows, columns=None: (
        rows * (rows + 1) // 2
        if columns is None
        else columns * (columns + 1) // 2 + (rows - columns) * columns
    ),
}


class Stated(Protocol):
    """Draws of all variables, and what they are draws of."""

    @property
    def variables(self) -> Mapping[str, Array]: ...

    @property
    def programs(self) -> Mapping[str, str]: ...

    @property
    def data(self) -> str: ...

    @property
    def provenance(self) -> Mapping[str, Any]: ...


class Bound(Stated, Protocol):
    """The fields of a run that have to fit each other."""

    @property
    def z(self) -> Array: ...


def digest(path: Path) -> str:
    """Length of a file in bytes, and its SHA-256; of an ``.npy`` file, that of both of its ends."""
    found, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        if path.suffix == ".npy":
            found.update(file.read(_END))
            file.seek(max(_END, size - _END))
        while block := file.read(_BLOCK):
            found.update(block)
    return f"{size}:{found.hexdigest()}"


def check_digests(folder: Path, digests: Mapping[str, str], files: Sequence[str]) -> None:
    """Raise `ValueError` for a file that is not the one that was saved.

    Parameters
    ----------
    digests
        What `run.json` says, by the name of the file.
    files
        The files of the run.
    """
    if {*digests} != {*files}:
        name = min({*digests} ^ {*files})
        raise ValueError(f"run.json has not one digest for {name!r}")
    for name in files:
        # A file of another length is not read: it may be a very long one.
        length = f"{(folder / name).stat().st_size}:"
        if not digests[name].startswith(length) or digest(folder / name) != digests[name]:
            raise ValueError(f"{name} is not the file that was saved with its run.json")


def check_values(run: Bound, arrays: Mapping[str, Array]) -> None:
    """Raise `ValueError` unless the numbers of a run can be those of its settings.

    Parameters
    ----------
    arrays
        The run's own arrays, such as δ.
    """
    settings, chains = run.provenance["settings"], run.z.shape[0]
    told = settings.get("chains", chains)
    if told != chains:
        raise ValueError(f"its settings tell of {told} chains, and it has draws of {chains}")
    for name in settings.get("keep") or ():
        if name not in run.variables:
            raise ValueError(f"its settings keep {shortened(name, 60)!r}, and it has no such draws")
    for name, values in arrays.items():
        # To read all of a long mapped array would take the time that mapping saves.
        if isinstance(values, np.memmap) and values.size > _MOST_READ:
            continue
        if values.dtype.kind == "f" and np.any(np.isfinite(values) & (np.abs(values) > _HUGE)):
            raise ValueError(f"the array {name!r} has numbers beyond {_HUGE:g}")


def _all_nan(values: Array) -> bool:
    """Whether an array, perhaps in a file, holds nothing but NaN; its first number mostly tells."""
    return bool(np.isnan(values[:1, :1].ravel()[:1]).all() and np.isnan(values).all())


def _check_parameters(run: Bound, program: Program) -> None:
    """Raise `ValueError` for a parameter that is NaN in all draws, unless Stan made it so.

    Where generated quantities reject a draw, all of its variables are NaN.
    """
    parameters = [*run.provenance.get("parameters", ())]
    may_reject = {"transformed parameters", "generated quantities"} & program.blocks.keys()
    others = [values for name, values in run.variables.items() if name not in parameters]
    if may_reject and all(map(_all_nan, others)):
        return
    for name in parameters:
        values = run.variables.get(name)
        if values is not None and values.size and _all_nan(values):
            raise ValueError(f"the parameter {name!r} is NaN in all draws")


def check_program(run: Bound) -> None:
    """Raise `ValueError` unless the arrays of a run can be those of its program and data.

    Runs that an earlier version saved have no digests, but that of the data. Sizes are compared as
    far as the data give them by arithmetic.
    """
    told = run.provenance.get("data_sha256")
    if told is not None and hashlib.sha256(run.data.encode()).hexdigest() != told:
        raise ValueError("data.json has not the data of the run")
    text = run.programs.get("density")
    if text is None:
        return
    if len(text) > LONGEST_PROGRAM:
        raise ValueError(f"density.stan is longer than {LONGEST_PROGRAM >> 20} MiB")
    program = Program.from_source(text, name="density")
    given = json.loads(run.data)
    known = {name: given[name] for name in program.data_names if name in given}
    declared = dict(_declared(program))
    _check_parameters(run, program)
    for name in (*run.provenance.get("parameters", ()), *run.variables):
        # Parts of tuples and of complex numbers are variables such as t:1 and z.real.
        whole = re.split(r"[.:]", name)[0]
        if whole not in declared:
            raise ValueError(f"density.stan is of another program, which has no {name!r}")
        values = run.variables.get(name)
        if values is None or whole != name:
            continue
        sizes = _sizes(program, declared[name], known)
        if sizes is not None and not _fits(values.shape[2:], sizes):
            raise ValueError(
                f"the variable {name!r} has the shape {values.shape[2:]}, which density.stan does "
                "not declare"
            )
    counts = [_coordinates(program, spec, known) for _, _, spec in program.parameter_declarations()]
    least, width = sum(count or 0 for count in counts), run.z.shape[-1]
    if least > width or (None not in counts and least != width):
        raise ValueError(
            f"density.stan is of another program: it has {least} unconstrained parameters, and the "
            f"draws have {width}"
        )


def _declared(program: Program) -> Iterator[tuple[str, TypeSpec]]:
    """Names and types of parameters, transformed parameters and generated quantities."""
    for kind in ("parameters", "transformed parameters", "generated quantities"):
        block = program.blocks.get(kind)
        for statement in block.statements if block else ():
            if isinstance(statement, Declare):
                for name, _ in statement.names:
                    yield program.syntax.word(name), statement.type


def _sizes(program: Program, spec: TypeSpec, known: Mapping[str, Any]) -> Sizes | None:
    """Sizes of a variable of a type, of which some may be unknown; None for tuples and others."""
    array, own = (
        [evaluated(program.syntax.text(size), known) for size in sizes]
        for sizes in (spec.array, spec.dims)
    )
    if spec.base in _SCALARS:
        return array
    if spec.base not in _COORDINATES:
        return None
    if spec.base in SQUARE and len(own) == 1:
        own = [*own, *own]
    return [*array, *own]


def _fits(shape: tuple[int, ...], sizes: Sizes) -> bool:
    return len(shape) == len(sizes) and all(
        size is None or size == seen for size, seen in zip(sizes, shape, strict=True)
    )


def _coordinates(program: Program, spec: TypeSpec, known: Mapping[str, Any]) -> int | None:
    """Number of unconstrained coordinates of a parameter; None if the data do not tell."""
    array, own = (
        [evaluated(program.syntax.text(size), known) for size in sizes]
        for sizes in (spec.array, spec.dims)
    )
    count = _COORDINATES.get(spec.base)
    numbers = [int(size) for size in (*array, *own) if size is not None]
    if count is None or len(numbers) < len(array) + len(own):
        return None
    try:
        return math.prod(numbers[: len(array)]) * count(*numbers[len(array) :])
    except TypeError:  # sizes that its type does not take
        return None
