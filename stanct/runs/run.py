"""`Run`, the result of every sampler, and `EvidenceRun`, a result with an evidence."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from stanct.arrays import Array
from stanct.estimates import weighted
from stanct.estimates.arviz_bridge import inference_data
from stanct.estimates.path import Evidence, Expectation
from stanct.path.base import Base
from stanct.runs.diagnostics import Check
from stanct.runs.storage import Stored, reading, save_run

if TYPE_CHECKING:
    from stanct.pages.report import HtmlPage


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(ABC):
    """Draws of a sampler, and the estimates that follow from them.

    A run whose method also estimates log Z is an `EvidenceRun`.

    Attributes
    ----------
    method, engine
        Names of the sampler and of its engine.
    variables
        The program's own parameters, transformed parameters and generated quantities by name, each
        of shape (chains, draws, ...).
    z : shape (chains, draws, D)
        Whitened unconstrained parameters of the same draws, x = m + L z.
    base
        The base, frozen before the first of these draws; None in the user's own coordinates.
    programs
        Texts of the generated programs by kind.
    data
        JSON text of the user's data.
    provenance
        Settings, seed, versions, hashes, gradients and seconds; JSON values only.
    """

    file_format: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ("z",)

    method: str
    engine: str
    variables: Mapping[str, Array] = field(repr=False)
    z: Array = field(repr=False)
    base: Base | None = field(repr=False)
    programs: Mapping[str, str] = field(repr=False)
    data: str = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.z.shape[0]

    @property
    def draws(self) -> int:
        """Kept draws of each chain."""
        return self.z.shape[1]

    @property
    def gradients(self) -> int:
        """All gradients spent: base, adaptation, rounds and draws."""
        return int(self.provenance["gradients"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options of every method, such as chains and seed."""
        return self.provenance["settings"]

    @property
    def method_settings(self) -> Mapping[str, Any]:
        """The method's own settings, or all settings if a saved run does not list them apart."""
        return self.provenance.get("method_settings", self.settings)

    @property
    @abstractmethod
    def target_log_weights(self) -> Array:
        """Log weights of the draws at β = 1, shape (chains, draws), natural log, unnormalised."""

    @abstractmethod
    def _checks(self) -> tuple[Check, ...]:
        """All checks that apply to this kind of run."""

    @property
    def shows(self) -> tuple[str, ...]:
        """Names of the functions of `stanct.plots` that can draw this run.

        The report shows a panel for each.
        """
        shape = self.target_log_weights.shape
        rows = bool(self.variables) and all(v.shape[:2] == shape for v in self.variables.values())
        whitened = self.base is not None and self.z.shape[:-1] == shape
        return (*["base_against_posterior"] * whitened, *["pair"] * rows)

    def facts(self) -> dict[str, float]:
        """Single numbers that describe this run, label to value."""
        return {}

    def chain_counts(self) -> dict[str, Array]:
        """Counts in each chain after its warm-up, label to shape (chains,)."""
        return {}

    @cached_property
    def diagnostics(self) -> tuple[Check, ...]:
        """Every check with value, threshold, verdict and remedy."""
        return self._checks()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.diagnostics if not check.passed)

    @property
    def is_reliable(self) -> bool:
        """Whether every check passed."""
        return not self.warnings

    @property
    def rows(self) -> tuple[Mapping[str, Array], Array]:
        """Variables and log weights at β = 1, arranged so that rows are independent."""
        return self.variables, self.target_log_weights

    def expect(self, quantity: weighted.Quantity) -> Expectation:
        """Average of a quantity over the user's density, with its standard error ([GS] 21, 22).

        Parameters
        ----------
        quantity
            Name of one of `variables`, or a function of the mapping `variables` that returns an
            array of shape (chains, draws, ...).

        Raises
        ------
        StanctError
            The variable does not exist, or the result's shape does not begin with (chains, draws).
        """
        return weighted.expect(*self.rows, quantity)

    def summary(self, names: list[str] | None = None) -> pd.DataFrame:
        """Mean, its standard error, sd, quantiles and effective size of every scalar.

        Parameters
        ----------
        names
            Names of the variables to show; all by default.
        """
        return weighted.summary(*self.rows, names)

    def resample(self, draws: int | None = None, *, seed: int | None = None) -> dict[str, Array]:
        """Equally weighted draws of the user's density, by systematic resampling within each chain.

        Parameters
        ----------
        draws
            Draws from each chain; by default a quarter of the run's.
        seed
            Seed of the resampling; a fresh one by default.

        Returns
        -------
        dict
            Variable name to shape (chains, draws, ...). Copies of a draw are adjacent.
        """
        return weighted.resample(self.variables, self.target_log_weights, draws, seed)

    def _sample_statistics(self) -> dict[str, Array]:
        """The arrays of ArviZ's group `sample_stats`."""
        return {"log_weight": self.target_log_weights}

    def _attributes(self) -> dict[str, float]:
        """Attributes of the whole run in ArviZ's container."""
        return {}

    def to_arviz(self, *, resample: bool = False, seed: int | None = None) -> Any:
        """Convert the run to ArviZ's container: `InferenceData` (ArviZ 0.x) or `DataTree` (1.x).

        By default, the group `posterior` holds all draws. Their log weights at β = 1 are
        `log_weight` in `sample_stats`. With `resample=True`, the group holds equally weighted draws
        of the user's density, for tools that do not support weights.
        """
        equal = resample or not np.ptp(self.target_log_weights)
        attributes = {
            "inference_library": "stanct",
            **self._attributes(),
            "warnings": ", ".join(self.warnings),
            "weighted": 0 if equal else 1,
        }
        if resample:
            return inference_data({"posterior": self.resample(seed=seed)}, attributes)
        groups = {"posterior": dict(self.variables), "sample_stats": self._sample_statistics()}
        return inference_data(groups, attributes)

    @abstractmethod
    def _shape(self) -> str:
        """Description of the draws in words, e.g. "4 chains of 2500 draws"."""

    def _headline(self) -> str:
        """Beginning of the second line of the `repr`."""
        passed = len(self.diagnostics) - len(self.warnings)
        return f"{passed} of {len(self.diagnostics)} checks passed"

    def __repr__(self) -> str:
        warned = f"; warnings: {', '.join(self.warnings)}" if self.warnings else ""
        return (
            f"{self.method} run of {self.provenance['program']}: {self._shape()}, "
            f"{self.gradients} gradients, engine {self.engine}\n"
            f"{self._headline()}{warned}"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the run: `run.json`, `draws.npz`, `data.json` and the generated programs.

        The folder appears whole or not at all. A run that is already there is replaced.

        Raises
        ------
        SavedRunError
            The folder holds something other than a run, or cannot be written.
        """
        save_run(folder, self, self.file_format, self._stored_arrays(), **self._stored_values())

    def report(self, file: str | os.PathLike[str] | None = None) -> HtmlPage:
        """Return an HTML page with the result, its uncertainty and its diagnostics.

        The page is self-contained: it needs no network and follows the reader's light or dark
        setting.

        Parameters
        ----------
        file
            File to write the page to; by default none.

        Returns
        -------
        HtmlPage
            Text of the page, which a notebook renders.

        Raises
        ------
        StanctError
            The file cannot be written.
        """
        # Matplotlib is loaded only for users who want figures.
        from stanct.pages.report import report_page

        page = report_page(self)
        if file is not None:
            page.write(file)
        return page

    def _stored_arrays(self) -> dict[str, Array]:
        """Arrays that this kind of run adds to a saved run."""
        return {name: getattr(self, name) for name in self.arrays}

    def _stored_values(self) -> dict[str, Any]:
        """Other fields that this kind of run adds, in the form that `storage.save_run` accepts."""
        return {}

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        """Read this kind's own fields from a saved run; the inverse of the two methods above."""
        return {name: stored.arrays[name] for name in cls.arrays}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Load a saved run of this kind; `stanct.load` detects the kind.

        Raises
        ------
        SavedRunError
            The folder is missing, incomplete, or of another format.
        """
        with reading(folder, cls.file_format) as stored:
            return cls(**cls._restored(stored), **stored.common)


def scans(chains: int, ends: Sequence[int]) -> tuple[Array, str]:
    """The cost of the first draws of each chain if only draws were counted."""
    return np.broadcast_to(np.asarray(ends), (chains, len(ends))), "scans"


@dataclass(frozen=True, kw_only=True, repr=False)
class EvidenceRun(Run):
    """A run whose draws also give log Z. The attributes are those of `Run`."""

    @abstractmethod
    def _estimate(self) -> Evidence:
        """Estimate log Z from these draws."""

    @cached_property
    def bare_evidence(self) -> Evidence:
        """The evidence without the warnings of the diagnostics, which need it."""
        return self._estimate()

    @cached_property
    def evidence(self) -> Evidence:
        """log Z with its standard error, method, effective size and warnings."""
        return replace(self.bare_evidence, warnings=self.warnings)

    def extra_estimates(self) -> dict[str, Evidence]:
        """The run's other estimates of log Z, label to estimate."""
        return {}

    @property
    def shows(self) -> tuple[str, ...]:
        """As `Run.shows`."""
        weights = ["weight_histogram"] * bool(np.ptp(self.target_log_weights))
        return (*weights, *super().shows)

    def _attributes(self) -> dict[str, float]:
        return {"log_z": self.evidence.log_z, "log_z_std_error": self.evidence.std_error}

    def _headline(self) -> str:
        return f"log Z = {self.evidence.log_z:.4f} ± {self.evidence.std_error:.4f}"
