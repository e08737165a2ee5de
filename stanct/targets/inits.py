"""Places that a user gives by the program's own parameters, such as starts of the search."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.targets.program_target import ProgramTarget

Init = Mapping[str, Any] | str | os.PathLike[str]
Inits = Init | Sequence[Init]
INITS = "a mapping of parameter names to values, a JSON file, or a list of these"
"""What `Inits` are, in words."""
_REMEDY = "Give parameters of the program values inside their bounds."
_RANDOM = 2.0  # what an init does not name is uniform this near 0, as in Stan


def _is_one(value: Any) -> bool:
    return isinstance(value, Mapping | str | os.PathLike)


def places_of(target: Any, inits: Inits | None) -> tuple[Array, ...]:
    """The unconstrained points, each of shape (D,), of values in the program's own space.

    Parameters that an init does not name are random there, as in CmdStan. What is drawn depends on
    the init's number alone. Raises `SamplingError`, which names the init, if the target is no Stan
    program, a file cannot be read, an init names no parameter, or a value lies outside of its
    support.
    """
    if inits is None:
        return ()
    if not isinstance(target, ProgramTarget):
        raise SamplingError(
            "inits need a Stan program, which this target has not.",
            remedy="Pass base=GaussianBase(...) around the places.",
        )
    given: Any = [inits] if _is_one(inits) else inits
    if not (given and all(map(_is_one, given))):
        raise SamplingError(f"inits must be {INITS}, not {inits!r}.", remedy=_REMEDY)
    values = [one for init in given for one in _values(init)]
    return tuple(_place(target, one, number) for number, one in enumerate(values, 1))


def _values(init: Any) -> list[Mapping[str, Any]]:
    """The mapping that was given, or the one or several of a JSON file."""
    if isinstance(init, Mapping):
        return [init]
    path = Path(init)
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as cause:
        raise SamplingError(
            f"The inits of {path} are not in UTF-8.",
            remedy="Save the file as UTF-8, the encoding of JSON.",
        ) from cause
    except (OSError, ValueError, RecursionError) as cause:
        raise SamplingError(
            f"The inits of {path} cannot be read: {cause}.",
            remedy="Pass a JSON file with an object of parameter names and values, or a list.",
        ) from cause
    several = found if isinstance(found, list) else [found]
    if not several or not all(isinstance(one, dict) for one in several):
        raise SamplingError(
            f"{path} has no JSON object of parameter names and values.", remedy=_REMEDY
        )
    return several


def _place(target: ProgramTarget, values: Mapping[str, Any], number: int) -> Array:
    lacking = [name for name in target.parameter_shapes if name not in values]
    if set(lacking) & set(target.program.parameter_names) - set(_users(target)):
        raise SamplingError(
            f"The program is sampled in another form, with {', '.join(lacking)}, than inits name.",
            remedy="Pass hierarchies='as written' to stanct.temper.",
        )
    unknown = [name for name in values if name not in target.parameter_shapes]
    if lacking and (unknown or len(lacking) == len(target.parameter_shapes)):
        also = f", but one of `{'`, `'.join(unknown)}`" if unknown else ""
        raise SamplingError(
            f"Init {number} has no value of `{'`, `'.join(lacking)}`{also}.", remedy=_REMEDY
        )
    if lacking:
        x = np.random.default_rng(number).uniform(-_RANDOM, _RANDOM, target.density.dimension)
        drawn = target.density.variables(x[None], seed=number)
        values = {**{name: drawn[name][0] for name in lacking}, **values}
    for name in target.program.parameter_names:
        try:
            numbers = np.asarray(values.get(name, []), float)
        except (TypeError, ValueError, OverflowError):
            continue  # the density says what is wrong with it
        if not np.isfinite(numbers).all():
            raise SamplingError(
                f"Init {number} has a value of `{name}` that is not finite.", remedy=_REMEDY
            )
    try:
        own = {name: values.get(name, []) for name in target.program.parameter_names}
        return target.density.unconstrain(own)
    except (TypeError, ValueError, OverflowError, RecursionError) as cause:
        raise SamplingError(
            f"Init {number} is no point of the program: {str(cause).strip().rstrip('.')}.",
            remedy=_REMEDY,
        ) from cause


def _users(target: ProgramTarget) -> tuple[str, ...]:
    return (target.program if target.written is None else target.written).parameter_names
