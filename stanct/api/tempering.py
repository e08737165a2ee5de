"""`temper`, which reads a Stan program, or two between which a path leads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from stanct.api.model import TemperedModel
from stanct.common.errors import StanctError
from stanct.common.settings import Choice, Declared, explained
from stanct.stan.between import between, recorded
from stanct.stan.hierarchies import non_centred
from stanct.stan.omissions import renormalised
from stanct.stan.program import Program
from stanct.targets.data import DataSource, StanData, read_data
from stanct.targets.program_target import ProgramTarget, check_generated, check_program

# Arguments of other tools, and what takes their place.
_ELSEWHERE = {
    **dict.fromkeys(
        ("stan_file", "model_code", "program_code", "stan_code", "file", "code", "path", "model"),
        "Pass the program first: stanct.temper(FILE), or its text.",
    ),
    "data": "Data go to the model: stanct.temper(FILE).sample(DATA).",
}


_CHOICES = {
    "half_priors": Choice("as written", "renormalise"),
    "hierarchies": Choice("auto", "as written", "non-centred"),
}


@explained(_ELSEWHERE)
def temper(
    program: str | os.PathLike[str],
    *,
    include_paths: Sequence[str | os.PathLike[str]] = (),
    prefix: str = "ct_",
    check: bool = True,
    half_priors: Literal["as written", "renormalise"] = "as written",
    hierarchies: Literal["auto", "as written", "non-centred"] = "auto",
    base: str | os.PathLike[str] | None = None,
    base_data: DataSource = None,
) -> TemperedModel:
    """Read a Stan program and prepare it for tempering; nothing is compiled to machine code.

    Parameters
    ----------
    program
        Path of a Stan file, or the text of a program: a string with a line break or a ``{``.
    include_paths
        Folders in which ``#include`` looks before the program's own folder. A text has no folder.
    prefix
        Prefix of generated names; no name in the program may begin with it.
    check
        Whether stanc checks the program at once, which takes milliseconds.
    half_priors
        Treatment of priors with mass outside their parameters' bounds, such as
        ``real<lower=0> s; s ~ normal(0, 1);``. ``"as written"`` keeps them. ``"renormalise"``
        truncates them if this changes the density only by a constant: log Z grows by that constant,
        and the posterior does not change. `TemperedModel.omissions` lists such priors.
    hierarchies
        The form of parameters such as `theta` in ``theta ~ normal(mu, tau)``, where `tau` is a
        parameter. ``"non-centred"`` samples ``(theta - mu) / tau`` in its place. This changes
        neither log Z nor the posterior, and theta stays among the run's variables. With ``"auto"``,
        short chains choose the form of each hierarchy for the data, also where the program is
        written non-centred: ``theta = mu + tau * z`` with ``z ~ std_normal()``. On a path between
        two programs, both are taken as written.
    base
        Another program with the same parameters, as path or text, from which the path leads to
        `program`. Runs then estimate the log of the ratio of the two normalising constants, that of
        `program` over that of `base`.
    base_data
        Data of `base`, as path or mapping, if they are not those of `program`. By default one file
        has the data of both.

    Raises
    ------
    StanctError
        No such choice for `half_priors` or `hierarchies`.
    ProgramError
        The file is missing, is not legal Stan, has no parameters, or uses a reserved name. The
        error has file, line and remedy.
    """
    for name, value in (("half_priors", half_priors), ("hierarchies", hierarchies)):
        Declared(_CHOICES[name], False, _CHOICES[name].names[0]).checked(name, value)
    if isinstance(include_paths, str | os.PathLike):
        include_paths = [include_paths]
    read = _read(program, include_paths)
    other = None if base is None else _read(base, include_paths)
    own_data = None if other is None or base_data is None else read_data(base_data, other)
    if other is not None:
        read = _between(read, other, check, half_priors, apart=own_data is not None)
    model = _tempered(read, prefix, check, half_priors, hierarchies)
    model = replace(model, base_data=own_data)
    found: dict[str, Any] = {} if prefix == "ct_" else {"prefix": prefix}
    if other is not None and half_priors != "as written":
        found["half_priors"] = half_priors
    if include_paths:
        found["include_paths"] = [os.fspath(folder) for folder in include_paths]
    return replace(model, made={**model.made, **found})


def recorded_target(record: Mapping[str, Any]) -> ProgramTarget:
    """The target that `ProgramTarget.record` describes."""
    made = record["made"]
    # Without the path, so that no `#include` that someone wrote there finds a file.
    if record.get("ends"):
        read = recorded(record["ends"])
    else:
        read = Program.from_source(record["program"], name=record["name"])
        read = replace(read, path=record["path"])
    half_priors, hierarchies = (
        made.get("half_priors", "as written"),
        made.get("hierarchies", "auto"),
    )
    model = _tempered(read, record["prefix"], True, half_priors, hierarchies)
    data = StanData(record["data"], record["data_origin"])
    target = replace(model.target(data.values), data=data, made=made)
    return target.in_form(record.get("turned", ()))


def _between(
    full: Program, base: Program, check: bool, half_priors: str, *, apart: bool
) -> Program:
    """The program of the path from one program to another."""
    for one in (full, base) if check else ():
        check_program(one)
    if half_priors == "renormalise":
        full, base = renormalised(full), renormalised(base)
    joined = between(full, base, apart=apart)
    if check:
        check_generated(full, joined.expanded)
    return joined


def _tempered(
    program: Program, prefix: str, check: bool, half_priors: str, hierarchies: str
) -> TemperedModel:
    model = TemperedModel(program, prefix)
    if program.ends is not None:  # both programs have been checked, and are taken as written
        check, half_priors, hierarchies = False, "as written", "as written"
    if check:
        check_program(model.program)
    if half_priors == "renormalise":
        model = replace(model, program=renormalised(model.program))
    if hierarchies == "non-centred":
        other = non_centred(model.program)
        if other is not model.program:
            if check:
                check_program(other)
            model = replace(model, program=other, written=model.program)
    model = replace(model, flexible=hierarchies == "auto")
    model.stan_code("density")
    if program.ends is not None:
        return model
    made = {} if half_priors == "as written" else {"half_priors": half_priors}
    if hierarchies != "auto":
        made["hierarchies"] = hierarchies
    return replace(model, made=made)


def _read(
    program: str | os.PathLike[str], include_paths: Sequence[str | os.PathLike[str]]
) -> Program:
    """Read a program from its text, or from a file."""
    if isinstance(program, str) and ("\n" in program or "{" in program):
        return Program.from_source(program, include_paths=include_paths)
    if not isinstance(program, str | os.PathLike):
        raise StanctError(
            f"A program is a path or a text, and not of the type {type(program).__name__!r}.",
            remedy="Pass the path of a Stan file, or the text of a program.",
        )
    return Program.from_file(program, include_paths=include_paths)
