"""The variables of a run by the names that their user writes: ``mu``, ``beta``, ``beta[1,2]``."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, first_few
from stanct.common.settings import listing

Names = str | Sequence[str] | None
"""Names of variables or of scalars; None for those that a function chooses by itself."""
Place = tuple[str, tuple[int, ...]]
"""A variable, and the first of its indices, which count from 0."""

FEW = 5
"""Components of a variable that a reader looks at one by one."""
_WRITTEN = re.compile(r"\s*(.*?)\s*(?:\[([\d\s,]*)\])?\s*", re.DOTALL)
_RAW = re.compile(r"raw|tilde|std_?normal|(^|_)(z|eps|std)$|^z_", re.IGNORECASE)
_OF_DATA = re.compile(r"^log_lik|^log_likelihood$|_rep$|^y_(hat|pred|tilde)|^lp_*$")


def label(name: str, index: Sequence[int]) -> str:
    """Name of one scalar with Stan's indices, which begin at 1, such as ``b[1,2]``."""
    return f"{name}[{','.join(str(i + 1) for i in index)}]" if index else name


def place_of(variables: Mapping[str, Array], name: str) -> Place:
    """Find the variable that a name means, and the first of its indices.

    Raises `StanctError` if there is no such variable, or it has no such component.
    """
    if isinstance(name, str) and name in variables:
        return name, ()
    written = _WRITTEN.fullmatch(name) if isinstance(name, str) else None
    if written is None or written[1] not in variables:
        raise StanctError(f"The run has no variable {name!r}.", remedy=_near(variables, name))
    base, inside = written.groups()
    if inside is None:
        return base, ()
    index = tuple(int(part) - 1 for part in inside.split(",") if part.strip())
    shape = np.shape(variables[base])[2:]
    fits = 0 < len(index) <= len(shape)
    if not fits or any(not 0 <= i < n for i, n in zip(index, shape, strict=False)):
        last = label(base, [n - 1 for n in shape])
        has = f"It goes from {label(base, [0] * len(shape))} to {last}." if shape else ""
        raise StanctError(
            f"{name!r} is not a component of {base!r}.", remedy=has or f"{base!r} is one number."
        )
    return base, index


def _near(variables: Mapping[str, Array], name: object) -> str:
    lower = {known.lower(): known for known in variables}
    near = difflib.get_close_matches(re.split(r"[\[.]", str(name))[0].lower(), lower, 3, 0.6)
    if near:
        return f"Did you mean {listing(repr(lower[one]) for one in near)}?"
    return f"It has: {first_few(list(variables), 20)}."


def variable(variables: Mapping[str, Array], name: str) -> Array:
    """Return a variable of a run, or some of its components, by name, as `place_of` reads it."""
    base, index = place_of(variables, name)
    return variables[base][(..., *index)] if not index else variables[base][:, :, *index]


def listed(names: str | Sequence[str]) -> list[str]:
    """One name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def places_of(variables: Mapping[str, Array], names: str | Sequence[str]) -> list[Place]:
    """The places of all scalars that names mean, in their order and without repetition."""
    found: dict[Place, None] = {}
    for name in listed(names):
        base, index = place_of(variables, name)
        rest = np.shape(variables[base])[2 + len(index) :]
        found |= dict.fromkeys((base, (*index, *more)) for more in np.ndindex(rest))
    return list(found)


def by_interest(variables: Mapping[str, Array], parameters: Sequence[str]) -> list[str]:
    """Names of all variables, those first that a reader asks for first.

    Parameters of few components come first, then the other parameters and what is computed from
    them, then raw effects, of which the program makes others, and last what belongs to single
    observations.
    """

    def rank(name: str) -> tuple[bool, bool, bool, bool]:
        many = math.prod(np.shape(variables[name])[2:]) > FEW
        own = name in parameters
        return bool(_OF_DATA.search(name)), bool(_RAW.search(name)), many, not own

    return sorted(variables, key=rank)
