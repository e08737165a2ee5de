"""What a check is, and the two verdicts of a run: on its draws, and on log Z as the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stanct.common.errors import first_few


@dataclass(frozen=True)
class Kind:
    """What all checks of one name have in common.

    A failed check puts the ``"draws"`` in doubt, and with them log Z, or log Z alone. It may be
    mended by more ``"draws"``, by another ``"run"``, or only by ``"you"``, who wrote the program.
    """

    bound: Literal["minimum", "maximum"]
    of: Literal["draws", "evidence"] = "draws"
    mended_by: Literal["draws", "run", "you"] = "run"


_LEAST, _MOST = Kind("minimum"), Kind("maximum")
_LONGER, _SURER = Kind("minimum", mended_by="draws"), Kind("maximum", mended_by="draws")
_YOURS, _PROGRAM = Kind("maximum", mended_by="you"), Kind("maximum", "evidence", "you")

# In the order in which to remedy them: causes come before their symptoms.
KINDS: dict[str, Kind] = {
    "proper_prior": _PROGRAM,
    "normalised": _PROGRAM,
    "improper": _YOURS,
    "support": _YOURS,
    "prior_mass": Kind("maximum", "evidence"),
    "program": _MOST,
    "unseen": _MOST,
    "two_stages": _MOST,
    "lost": _MOST,
    "score": _MOST,
    "stalled": _MOST,
    "round_trips": _LONGER,
    "rejections": _MOST,
    "tempered": _LEAST,
    "overlap": _LEAST,
    "swaps": _MOST,
    "acceptance": _LEAST,
    "divergences": _MOST,
    "max_depth": _MOST,
    "tails": _MOST,
    "pareto_k_base": _MOST,
    "pareto_k": _SURER,
    "few_tours": _LEAST,
    "base": _MOST,
    "estimators": _MOST,
    "directions": _SURER,
    "target_se": Kind("maximum", "evidence", "you"),
    "interrupted": Kind("minimum", mended_by="you"),
    "max_seconds": Kind("minimum", mended_by="you"),
    "beta_bounds": _MOST,
    "bias": _LEAST,
    "mixing": _LEAST,
    "r_hat": _SURER,
    "effective_size": _LONGER,
    "energy": _MOST,
    "halves": Kind("maximum", "evidence"),
    "hand_overs": _LONGER,
    "hysteresis": _SURER,
    "instrument": _MOST,
    "kinetic": _MOST,
    "modes": _LEAST,
    "search": Kind("minimum", mended_by="you"),
    "patience": _LEAST,
    "plateau": _LEAST,
    "resets": _MOST,
    "reshuffled": Kind("maximum", "evidence"),
    "rounding": _YOURS,
    "std_error": Kind("maximum", "evidence", "draws"),
    "tempering_thermostat": _MOST,
    "thermodynamic": _SURER,
    "thermostat": _MOST,
    "trips": _LEAST,
}

# What the program's text tells, which is the same for all data.
OF_THE_PROGRAM = tuple(name for name, kind in KINDS.items() if kind is _PROGRAM)

# Those that pass if log Z, and what it rests on, is as good as its error says.
_OF_THE_NUMBER = frozenset(
    {"estimators", "few_tours", "normalised", "pareto_k", "pareto_k_base", "tails"}
    | {"thermodynamic", "two_stages"}
)


@dataclass(frozen=True)
class Check:
    """One diagnostic of a run.

    Attributes
    ----------
    name
        Short and stable, e.g. ``"pareto_k"``. `Evidence.warnings` lists the failed checks.
    value, threshold
        Observed value, and the value at which the verdict changes.
    passed
        Whether the check passed.
    message
        Meaning of the value in words.
    remedy
        First thing to try if the check fails.
    """

    name: str
    value: float
    threshold: float
    passed: bool
    message: str
    remedy: str

    @property
    def title(self) -> str:
        """The name, and of an R-hat what it is of, because it is not that of parameters."""
        of = re.match(r"(?:The )?split R-hat of (β|δ|the log likelihood)", self.message, re.I)
        return f"{self.name} of {of[1]}" if of else self.name

    @property
    def kind(self) -> Kind:
        """What all checks of this name have in common.

        The verdict of a check of a method of your own tells whether its threshold is a minimum.
        """
        least = (self.value >= self.threshold) == self.passed
        return KINDS.get(self.name, _LEAST if least else _MOST)

    @property
    def bound(self) -> str:
        """Whether the threshold is a ``"minimum"`` or a ``"maximum"``."""
        return self.kind.bound

    @property
    def of(self) -> str:
        """What it puts in doubt if it fails: the ``"draws"``, or the ``"evidence"`` alone."""
        return self.kind.of

    def __repr__(self) -> str:
        verdict = "ok  " if self.passed else "FAIL"
        text = f"{verdict} {self.title}: {self.message}"
        return text if self.passed else f"{text} {self.remedy}"


def check(
    name: str, value: float, threshold: float, passed: bool, message: str, remedy: str
) -> Check:
    """Make a `Check` of plain Python numbers."""
    return Check(name, float(value), float(threshold), bool(passed), message, remedy)


def least(name: str, value: float, threshold: float, message: str, remedy: str) -> Check:
    """The check that a value is at least so large."""
    return check(name, value, threshold, value >= threshold, message, remedy)


def most(name: str, value: float, threshold: float, message: str, remedy: str) -> Check:
    """The check that a value is at most so large."""
    return check(name, value, threshold, value <= threshold, message, remedy)


def failures(checks: Iterable[Check]) -> list[Check]:
    """The checks that failed, ordered by which to remedy first."""
    place = {name: number for number, name in enumerate(KINDS)}
    failed = [check for check in checks if not check.passed]
    return sorted(failed, key=lambda check: place.get(check.name, len(place)))


def no_log_z(checks: Iterable[Check]) -> str:
    """Why there is no log Z, in words, if checks say so; otherwise empty."""
    failed = {one.name: one for one in checks if not one.passed}
    if "improper" in failed:
        return "log Z does not exist: the integral of the density has no end"
    if "round_trips" in failed and failed["round_trips"].value == 0:
        return "log Z is not known: a chain never went from base to target and back"
    return ""


def meaningful(checks: Iterable[Check]) -> list[Check]:
    """The checks without those that mean nothing because there is no log Z, or no posterior."""
    checks = list(checks)
    if not no_log_z(checks):
        return checks
    kept = [one for one in checks if not (one.passed and one.name in _OF_THE_NUMBER)]
    if any(one.name == "improper" for one in failures(checks)):
        kept = [one for one in kept if one.kind.mended_by == "you"]
    return kept


def mendable(checks: Iterable[Check]) -> list[str]:
    """Names of the failed checks that another run may mend."""
    return [one.name for one in checks if not one.passed and one.kind.mended_by != "you"]


def are_normalised(lines: Iterable[int]) -> str:
    """The clause that lines of a program are normalised."""
    told = [str(line) for line in lines]
    return f"line{'s' * bool(told[1:])} {first_few(told)} {'are' if told[1:] else 'is'} normalised"


@dataclass(frozen=True)
class Verdict:
    """The answers to two questions: may I use the draws, and may I use log Z as the evidence?

    `draws` names the failed checks that put the draws in doubt, and log Z with them, and `evidence`
    those that put log Z alone in doubt; None for a run without one. `checks` counts all.
    `unchecked` has the lines of the program of which its text does not tell whether they are
    normalised.
    """

    draws: tuple[str, ...]
    evidence: tuple[str, ...] | None
    checks: int
    unchecked: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, checks: Iterable[Check], *, has_evidence: bool, unchecked: Iterable[int] = ()
    ) -> Verdict:
        """The verdict of a run's checks."""
        checks = list(checks)
        failed = failures(checks)
        alone = tuple(one.name for one in failed if one.of == "evidence")
        draws = tuple(one.name for one in failed if one.of == "draws" or not has_evidence)
        return cls(draws, alone if has_evidence else None, len(checks), tuple(unchecked))

    @property
    def for_draws(self) -> bool:
        """Whether the draws may be used."""
        return not self.draws

    @property
    def for_evidence(self) -> bool:
        """Whether log Z may be used as the evidence."""
        return not self.draws and self.evidence == ()

    @property
    def answers(self) -> dict[str, str]:
        """Both questions with their answers in words."""
        draws = f"no: {', '.join(self.draws)} failed" if self.draws else "yes"
        if self.evidence is None:
            return {"May I use the draws?": draws}
        failed = ", ".join((*self.evidence, *self.draws))
        return {
            "May I use the draws?": draws,
            "May I use log Z as the evidence?": f"no: {failed} failed"
            if failed
            else f"yes, if {are_normalised(self.unchecked)}, which nobody checked"
            if self.unchecked
            else "yes",
        }

    @property
    def in_words(self) -> str:
        """Both answers, and the condition of the second one."""
        if not self.unchecked or self.evidence is None or "improper" in self.draws:
            return self._counted
        condition = f"{are_normalised(self.unchecked)}, which nobody checked"
        return f"{self._counted} Log Z is the evidence only if {condition}."

    @property
    def _counted(self) -> str:
        failed = len(self.draws) + len(self.evidence or ())
        if not failed:
            return f"All {self.checks} checks passed."
        count = f"{failed} check{'s' * (failed > 1)} of {self.checks} failed"
        if "improper" in self.draws:
            return f"There is no posterior: {count}."
        if not self.draws:
            return f"The draws may be used, but not log Z as the evidence: {count}."
        lacking = {*(self.evidence or ())} & {*OF_THE_PROGRAM}
        why = ", and as the program stands, log Z is not the evidence" if lacking else ""
        return f"Not to be trusted: {count}{why}."

    def __str__(self) -> str:
        return "\n".join(f"{question} {answer}" for question, answer in self.answers.items())
