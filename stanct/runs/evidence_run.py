"""`EvidenceRun` and `DrawsRun`: runs whose draws give log Z, and runs whose draws do not."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.digits import is_below_digits
from stanct.estimates.path import Evidence
from stanct.runs.diagnostics import (
    beyond_checks,
    length_check,
    origin_checks,
    two_stages_check,
)
from stanct.runs.normalised import program_checks
from stanct.runs.run import Run
from stanct.runs.surveyed import searched_in_short
from stanct.runs.verdicts import Check, no_log_z
from stanct.work.blas import one_blas_thread


def scans(chains: int, ends: Sequence[int]) -> tuple[Array, str]:
    """The cost of the first draws of each chain if only draws were counted."""
    return np.broadcast_to(np.asarray(ends), (chains, len(ends))), "scans"


@dataclass(frozen=True, kw_only=True, repr=False)
class DrawsRun(Run):
    """A run of a method that estimates no log Z. The attributes are those of `Run`."""

    remedy: ClassVar[str] = (
        "Use a method that estimates log Z, such as joint, gibbs, parallel_tempering or ais."
    )

    if not TYPE_CHECKING:  # there is no such attribute, and this says why

        def __getattr__(self, name: str) -> Any:
            if name == "evidence":
                raise AttributeError(
                    f"The run has no evidence: {self.made_by} estimates none. {self.remedy}"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, kw_only=True, repr=False)
class EvidenceRun(Run):
    """A run whose draws also give log Z. The attributes are those of `Run`."""

    _has_evidence: ClassVar[bool] = True

    @abstractmethod
    def _estimate(self) -> Evidence:
        """Estimate log Z from these draws."""

    @cached_property
    def bare_evidence(self) -> Evidence:
        """The evidence without the warnings of the diagnostics, which need it."""
        ends = self.provenance.get("ends")
        of = f"(Z of {ends['full']['name']} / Z of {ends['base']['name']})" if ends else "Z"
        with one_blas_thread():
            return replace(self._estimate(), of=of)

    @cached_property
    def evidence(self) -> Evidence:
        """log Z with its standard error, method, effective size and warnings.

        Where checks say that it is not known or does not exist, it is NaN: see `Evidence.unknown`.
        """
        found = replace(self.bare_evidence, warnings=self.warnings)
        if unknown := no_log_z(self.diagnostics):
            none = dict.fromkeys(("log_z", "std_error", "within_error", "between_error"), math.nan)
            return replace(found, **none, chain_log_z=(), unknown=unknown)  # pyright: ignore
        if is_below_digits(found.std_error):
            return replace(found, within=searched_in_short(self.provenance))
        return found

    @property
    def _mode_evidence(self) -> Evidence | None:
        return self.bare_evidence

    def extra_estimates(self) -> dict[str, Evidence]:
        """The run's other estimates of log Z, label to estimate."""
        return {}

    def _length_check(self, evidence: Evidence) -> Check:
        """Check that the run is as long, or as precise, as was asked for."""
        return length_check(
            self.draws,
            self.settings["draws"],
            evidence,
            self.provenance.get("stopping"),
            self.method_settings,
            self.time_limit,
        )

    def _program_checks(self) -> tuple[Check, ...]:
        return program_checks(self.provenance, self.bare_evidence.std_error)

    def _beyond(self) -> tuple[Check, ...]:
        evidence = self.bare_evidence
        return (
            *origin_checks(self.provenance),
            *two_stages_check(evidence, self.provenance),
            *beyond_checks(self.provenance, evidence.std_error),
        )

    @property
    def shows(self) -> tuple[str, ...]:
        weights = ["weight_histogram"] * bool(np.ptp(self.target_log_weights))
        return (*weights, *super().shows)

    def _attributes(self) -> dict[str, float]:
        return {"log_z": self.evidence.log_z, "log_z_std_error": self.evidence.std_error}

    def _headline(self) -> str:
        return f"{self.evidence.in_words}\n"
