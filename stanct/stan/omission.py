"""What a program leaves out of its density, and what one of two programs leaves out alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = (
    Literal["half_prior", "on_surface", "flat_prior", "improper", "unused_parameter"]
    | Literal["missing_constant"]
)


@dataclass(frozen=True)
class Omission:
    """A constant or a prior that a program leaves out, or that cannot be checked.

    Attributes
    ----------
    kind
        ``"half_prior"``: a prior has mass outside of its parameter's bounds. ``"on_surface"``: a
        density of all vectors is the prior of vectors on a surface. ``"flat_prior"``: a parameter
        of bounded support has no prior, so that its density is 1. ``"improper"``: a parameter of
        unbounded support has no prior. ``"unused_parameter"``: a parameter does not enter the
        target. ``"missing_constant"``: a constant may be missing, which cannot be checked.
    parameters
        Names of the parameters concerned.
    path, line
        Position of the statement in the user's file, counted from 1.
    statement
        Text of the statement.
    sentence
        Description of what is left out.
    correction
        Stan expression to add to log Z; None if no correcting constant is known.
    value
        Value of `correction`; None if the program's text alone does not determine it.
    remedy
        Stan code that normalises the prior; None if there is no unique code.
    improper
        Whether the omission makes log Z meaningless.
    """

    kind: Kind
    parameters: tuple[str, ...]
    path: str
    line: int
    statement: str
    sentence: str
    correction: str | None = None
    value: float | None = None
    remedy: str | None = None
    improper: bool = False

    def record(self) -> dict[str, Any]:
        """Return all attributes as JSON values."""
        return {**asdict(self), "parameters": list(self.parameters)}

    def __str__(self) -> str:
        parts = [f"{self.path}:{self.line}: {self.sentence}"]
        if self.correction is not None:
            instead = f", or write `{self.remedy}`" if self.remedy else ""
            parts.append(f"Add {self.correction} to log Z{instead}.")
        elif self.remedy is not None:
            parts.append(f"Normalised it would be `{self.remedy}`.")
        return " ".join(parts)


def differences(full: Sequence[Omission], base: Sequence[Omission]) -> tuple[Omission, ...]:
    """What one end of a path leaves out, and not the other."""
    return (
        *(one for one in full if not _is_among(one, base)),
        *(_negated(one) for one in base if not _is_among(one, full)),
    )


def _is_among(one: Omission, others: Sequence[Omission]) -> bool:
    def told(omission: Omission) -> tuple[object, ...]:
        return omission.kind, omission.parameters, omission.statement, omission.value

    return any(told(one) == told(other) for other in others)


def _negated(one: Omission) -> Omission:
    """An omission of the base, by its effect on the log of the ratio."""
    return replace(
        one,
        sentence=f"{one.sentence} It is the base of the ratio.",
        correction=None if one.correction is None else f"-({one.correction})",
        value=None if one.value is None else -one.value,
    )
