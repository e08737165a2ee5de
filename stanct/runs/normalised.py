"""Checks that a program is a normalised joint density, by what its text leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stanct.common.errors import first_few
from stanct.estimates.digits import with_error
from stanct.estimates.path import Evidence
from stanct.runs.verdicts import Check, are_normalised, check

# What a run on the prior alone found, in provenance: its log Z and the error.
MASS = "prior_alone"


def program_checks(facts: Mapping[str, Any], std_error: float) -> tuple[Check, ...]:
    """Check that the program is a normalised joint density, by what its text leaves out.

    Constants of less than half of the standard error of log Z do not matter.
    """
    omissions = facts.get("omissions")
    if omissions is None:
        return ()
    improper = [one for one in omissions if one["improper"]]
    names = [f"`{name}`" for one in improper for name in one["parameters"]]
    remedy = f"Give {first_few(names) if names else 'every parameter'} a proper prior."
    told = [_told(improper), remedy] if improper else facts.get("improper_prior")
    amount, _ = missing(facts)
    size = abs(amount) if math.isfinite(amount) else math.inf
    threshold = std_error / 2 if std_error < np.inf else 0.0
    return (
        check("proper_prior", len(improper) or bool(told), 0, not told,
              *(told or ("Every parameter has a prior or a bounded support.", remedy))),
        check("normalised", size, threshold, size <= threshold,
              *_unnormalised(facts, amount, std_error)),
    )  # fmt: skip


def missing(facts: Mapping[str, Any]) -> tuple[float, float]:
    """What is to be added to log Z, with its error, also where a run on the prior found more.

    The error is 0 where the text tells, and the amount is NaN where neither does.
    """
    text = lacking(facts)
    if MASS not in facts or math.isnan(text):
        return text, 0.0
    mass, error = facts[MASS]
    return (text, 0.0) if abs(mass + text) <= 3 * error else (-mass, error)


def prior_mass_checks(facts: Mapping[str, Any]) -> Iterator[Check]:
    """Check that the mass of the prior is known, which a path from the prior leaves out."""
    if facts.get("log_prior_mass", 0.0) is None:
        yield check(
            "prior_mass", np.inf, 0, False,
            "The program does not tell the mass of its prior, a run on the prior alone did not "
            "find it, and log Z takes it for 1.",
            "Normalise the priors that `TemperedModel.omissions` names, or use the default method, "
            "whose log Z does not need it.",
        )  # fmt: skip


def with_prior_mass(evidence: Evidence, facts: Mapping[str, Any]) -> Evidence:
    """An estimate from the prior, with the prior's mass and its error; unknown counts as 1."""
    mass, error = facts.get("log_prior_mass") or 0.0, facts.get("log_prior_mass_error", 0.0)
    return replace(
        evidence,
        log_z=evidence.log_z + mass,
        std_error=float(np.hypot(evidence.std_error, error)),
        chain_log_z=tuple(value + mass for value in evidence.chain_log_z),
    )


def lacking(facts: Mapping[str, Any]) -> float:
    """What is to be added to log Z for a normalised program; NaN where the text does not tell."""
    return float(sum(math.nan if v is None else v for v in (
        one["value"] for one in facts.get("omissions", ()) if _is_known(one)
    )))  # fmt: skip


def _is_known(omission: Mapping[str, Any]) -> bool:
    """Whether a constant is known to be missing, and only the constant."""
    return omission["kind"] != "missing_constant" and not omission["improper"]


def unchecked(facts: Mapping[str, Any]) -> tuple[int, ...]:
    """Lines that may leave out a constant that the text does not tell, in the text's order."""
    found, measured = facts.get("omissions") or (), facts.get("measured", ())
    doubts = (one["line"] for one in found if one["kind"] == "missing_constant")
    return tuple(dict.fromkeys(line for line in doubts if line not in measured))


def _told(omissions: Sequence[Mapping[str, Any]]) -> str:
    """The first omission with its line, and the lines of the others."""
    if not omissions:
        return ""
    first = omissions[0]
    others = [f"`{', '.join(one['parameters'])}` in line {one['line']}" for one in omissions[1:]]
    return f"{first['path']}:{first['line']}: {first['sentence']}" + (
        f" Likewise {first_few(others)}." if others else ""
    )


def _unnormalised(facts: Mapping[str, Any], amount: float, std_error: float) -> tuple[str, str]:
    """Which constants are missing, and how to mend that."""
    omissions = facts["omissions"]
    known = [one for one in omissions if _is_known(one)]
    lines = unchecked(facts)
    doubt = f" Whether {are_normalised(lines)} cannot be checked." if lines else ""
    if MASS in facts and (not known or amount != lacking(facts)):
        mass, error = facts[MASS]
        said = f"A run on the prior alone has log Z = {with_error(mass, error)}"
        if not amount:
            return f"{said}, as a normalised one has.{doubt}", "Normalise the priors."
        side, lines = "large" if mass > 0 else "small", dict.fromkeys(facts["measured"])
        remedy = f"Add {-mass:.4f} to log Z, or see that {are_normalised(lines)}."
        return f"{said}, and not 0: the program's log Z is too {side} by that.{doubt}", remedy
    if not known:
        return f"No constant is known to be missing.{doubt}", "Normalise the priors."
    told = _told(known)
    if math.isfinite(amount) and 0 < std_error < np.inf:
        side = "small" if amount > 0 else "large"
        by = f"{abs(amount):.4f}"
        alone = "That is " if by in told else f"That is {by}, or "
        in_all = f"In all, log Z is too {side} by {by}, " if known[1:] else alone
        told += f" {in_all}{abs(amount) / std_error:.3g} standard errors."
    mended = [f"`{one['remedy']}` in line {one['line']}" for one in known if one["remedy"]]
    terms = [one["correction"] for one in known]
    parts = [f"write {first_few(mended)}"] if mended else []
    if None not in terms:
        parts.append(f"add {' + '.join(terms) if len(terms) < 4 else f'{amount:.4f}'} to log Z")
    if any(one["kind"] == "half_prior" and one["correction"] for one in known):
        parts.append("pass half_priors='renormalise'")
    remedy = ", or ".join(parts) or "normalise the priors"
    return told, f"{remedy[0].upper()}{remedy[1:]}."
