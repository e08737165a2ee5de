"""`Run`, the result of every sampler."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stanct.common.arrays import Array, joined_rows
from stanct.estimates import weighted
from stanct.estimates.arviz_bridge import inference_data
from stanct.estimates.averages import Expectation
from stanct.estimates.naming import Names
from stanct.estimates.weighted import rows_of
from stanct.path.base import Base
from stanct.runs.diagnostics import centred_first, tails_check
from stanct.runs.drawn import Drawn
from stanct.runs.inference import Groups, groups_of
from stanct.runs.normalised import unchecked
from stanct.runs.road import Road
from stanct.runs.storage import Stored, check_save_folder, reading, save_run
from stanct.runs.surveyed import ELSEWHERE, Surveyed, survey_facts, surveyed_checks
from stanct.runs.tables import Checks, in_html
from stanct.runs.verbs import Extendable, Pictured, Prompted, Reported
from stanct.runs.verdicts import Check, Verdict, meaningful
from stanct.work.blas import one_blas_thread

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Prompted, Surveyed, Drawn, Reported, Pictured, Extendable, ABC):
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
    # The arrays of a saved run beside those of the base, and their axes: chains are c and draws n.
    arrays: ClassVar[Mapping[str, str]] = {"z": "c n d"}
    _has_evidence: ClassVar[bool] = False
    # What helps where the draws lack a mode that pilots measured.
    lost_remedy: ClassVar[str] = ELSEWHERE

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
    def made_by(self) -> str:
        """The method in words, with the setting without which it makes another kind of run."""
        return self.method

    @property
    def gradients(self) -> int:
        """All gradients spent: base, adaptation, rounds and draws."""
        return int(self.provenance["gradients"])

    @property
    def timing(self) -> pd.DataFrame:
        """Where the time went: a row for each stage, in order, with `seconds` and `share`.

        The row ``"rest"`` is what belongs to no stage. The stages of an extended run are sums.
        """
        import pandas as pd

        stages = dict(self.provenance.get("stage_seconds", {}))
        total = float(self.provenance["seconds"])
        stages["rest"] = round(max(0.0, total - sum(stages.values())), 3)
        table = pd.DataFrame({"seconds": stages})
        table["share"] = table["seconds"] / max(table["seconds"].sum(), 1e-3)
        return table

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options of every method, such as chains and seed."""
        return self.provenance["settings"]

    @property
    def ended_early(self) -> bool:
        """Whether the user or `max_seconds` ended the run before it was finished."""
        return self.provenance["interrupted"] or self.time_limit is not None

    @property
    def time_limit(self) -> float | None:
        """`max_seconds` if that time, in seconds, ended the run before it was finished."""
        late = self.provenance.get("out_of_time", False)
        return self.settings["max_seconds"] if late else None

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
        several = ["modes"] * self._several_modes
        own = ["base_against_posterior"] * whitened, ["pair"] * rows, several
        return tuple(name for names in own for name in names)

    def facts(self) -> dict[str, float]:
        """Single numbers that describe this run, label to value.

        Of the search: a mode counts with at least a thousandth of the largest mass, and a spike,
        with as much mass as its mode, is found with a probability of 95 %.
        """
        return survey_facts(self.provenance.get("survey"))

    def chain_counts(self) -> dict[str, Array]:
        """Counts in each chain after its warm-up, label to shape (chains,)."""
        return {}

    @cached_property
    def diagnostics(self) -> Checks:
        """Every check with value, threshold, verdict and remedy; ``diagnostics.table`` for all."""
        reached = self.base is not None and not self.base.is_gaussian
        with one_blas_thread():
            tails = tails_check(self.provenance.get("tails", ()), reached, self.method)
            survey = self.provenance.get("survey")
            modes = surveyed_checks(self.pilot_columns, self.lost_remedy, survey)
            checks = *self._program_checks(), *self._checks(), *modes, *tails, *self._beyond()
            return Checks(centred_first(meaningful(checks), self.data))

    @property
    def road(self) -> Road:
        """How the run came about: makers of its base, methods, and gradients by stage."""
        return Road.of(self.provenance, self.base, self.method)

    @property
    def steps(self) -> pd.DataFrame:
        """What was tried, what it cost and what it found; see `Road.table`."""
        return self.road.table()

    def _program_checks(self) -> tuple[Check, ...]:
        """The checks that a program gives an evidence, for runs that have one."""
        return ()

    def _beyond(self) -> tuple[Check, ...]:
        """The checks of what no draw reaches, for runs with an evidence."""
        return ()

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the draws may be used, and whether log Z may be used as the evidence."""
        lines = unchecked(self.provenance)
        return Verdict.of(self.diagnostics, has_evidence=self._has_evidence, unchecked=lines)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.diagnostics if not check.passed)

    @property
    def has_posterior(self) -> bool:
        """Whether the density has an integral as far as checks tell, and so means."""
        return "improper" not in self.verdict.draws

    @property
    def is_reliable(self) -> bool:
        """Whether every check passed: the draws may be used, and log Z as the evidence."""
        return not self.warnings

    @property
    def rows(self) -> tuple[Mapping[str, Array], Array]:
        """Variables and log weights at β = 1, arranged so that rows are independent."""
        return self.variables, self.target_log_weights

    @property
    def alike(self) -> dict[str, Any]:
        """How draws depend on each other, as `weighted.scalars` takes it."""
        return {}

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
        return replace(weighted.expect(*self.rows, quantity), failed=self.verdict.draws)

    def summary(
        self, names: Names = None, *, prob: float = 0.9, by: str | None = None
    ) -> pd.DataFrame:
        """Mean, its standard error, sd, quantiles, effective sizes and R-hat of every scalar.

        `ess_bulk` and `ess_tail` count the independent draws of the posterior that would tell its
        bulk and its 5 and 95 % quantiles as precisely. An `r_hat` above 1.01 says that chains
        disagree.

        Parameters
        ----------
        names
            Variables or scalars, such as ``"mu"`` or ``["tau", "beta[1,2]"]``; all by default.
        prob
            Probability of the central interval whose ends are the outer quantiles: columns ``q5``
            and ``q95``, and with 0.95 ``q2.5`` and ``q97.5``.
        by
            ``"mode"`` for a summary of each mode alone, from the draws that `mode_of_draws` gives
            it. A row is then a mode and a scalar, such as ``.loc[2, "mu"]``, and NaN where the mode
            has no draws.

        Raises
        ------
        StanctError
            There is no such variable, `prob` is no probability, or a summary by mode of a run
            that knows no modes.
        """
        return weighted.summary(*self.rows, names, prob=prob, inside=self._inside(by), **self.alike)

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
        return rows_of(self.variables, self.picked(draws, seed))

    def picked(self, draws: int | None, seed: int | None) -> Array:
        """Positions of equally weighted draws among the rows of `variables`, (chains, draws)."""
        return weighted.resampled_rows(self.target_log_weights, draws, seed)

    def _sample_statistics(self) -> dict[str, Array]:
        """The arrays of ArviZ's group `sample_stats`."""
        return {"log_weight": self.target_log_weights}

    def _attributes(self) -> dict[str, Any]:
        """Attributes of the whole run in ArviZ's container."""
        return {}

    def to_arviz(
        self,
        *,
        draws: int | None = None,
        seed: int = 0,
        log_likelihood: bool = True,
        prior: bool = False,
        predictions: Sequence[str] | Mapping[str, str] | None = None,
        coords: Mapping[str, Any] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
    ) -> Any:
        """Convert the run to ArviZ's container: `InferenceData` (ArviZ 0.x) or `DataTree` (1.x).

        The group `posterior` has equally weighted draws of the user's density, and every function
        of ArviZ takes it as it is. `sample_stats` has the statistics of the same draws, and their
        `mode` where the run knows several. Where the run's own draws have weights, all of them are
        in the group `tempered`, with weights and statistics in `tempered_stats`.

        `log_likelihood` and `log_prior` serve `az.loo`, `az.compare` and `az.psens`. They come from
        generated quantities named ``log_lik``, ``log_likelihood`` or ``log_lik_<data>``, or else
        are computed, where every likelihood term is one over observations that can be told apart;
        else a warning, and the attribute ``no_log_likelihood`` of `posterior`, name the term.
        `observed_data` and `constant_data` have the data, and `posterior_predictive` the
        predictions.

        Parameters
        ----------
        draws
            Draws of each chain in `posterior`; by default a quarter of the run's, or all of them
            if they have equal weights.
        seed
            Seed of the resampling.
        log_likelihood
            Whether to compute what the program does not generate. This needs the Stan program.
        prior
            Whether to add the group `prior`, which is sampled first; see `Run.prior`.
        predictions
            Generated quantities that are predictions, or a mapping from them to the data that they
            predict. By default, names that end in ``_rep``: ``y_rep`` predicts ``y``.
        coords, dims
            Coordinates by dimension, and dimensions by variable, as in ArviZ.

        Raises
        ------
        StanctError
            There is no variable of a name in `predictions`.
        """
        found = self._arviz_groups(draws, seed, log_likelihood, predictions)
        groups = {**found.drawn, "prior": self.prior()} if prior else found.drawn
        attributes = {"inference_library": "stanct", "warnings": ", ".join(self.warnings)}
        attributes |= self._attributes() | found.attributes
        return inference_data(groups, attributes, data=found.data, coords=coords, dims=dims)

    def _arviz_groups(
        self,
        draws: int | None,
        seed: int,
        log_likelihood: bool,
        predictions: Sequence[str] | Mapping[str, str] | None,
    ) -> Groups:
        shape = self.target_log_weights.shape
        rows = self._rows(draws, seed)
        statistics = self._sample_statistics() | self._mode_numbers("mode")
        with one_blas_thread():
            found = groups_of(
                rows_of(self.variables, rows),
                self.unconstrained(rows),
                self.programs.get("density"),
                self.data,
                log_likelihood=log_likelihood,
                predictions=predictions,
            )
        groups = dict(found.drawn)
        if all(values.shape[:2] == shape for values in statistics.values()):
            groups["sample_stats"] = rows_of(statistics, rows)
        if np.ptp(self.target_log_weights):
            groups["tempered"] = dict(self.variables)
            groups["tempered_stats"] = statistics
        return replace(found, drawn=groups)

    def unconstrained(self, rows: Array) -> Array | None:
        """Picked draws in the unconstrained space; None if the run does not have these rows."""
        shape = self.target_log_weights.shape
        if self.z.size != np.prod(shape) * self.z.shape[-1]:
            return None
        z = rows_of({"z": self.z.reshape(*shape, -1)}, rows)["z"]
        return z if self.base is None else self.base.unwhiten(z)

    @abstractmethod
    def _shape(self) -> str:
        """Description of the draws in words, e.g. "4 chains of 2500 draws"."""

    def _headline(self) -> str:
        """What the `repr` says between the draws and the verdict: lines with their ends."""
        return ""

    def __repr__(self) -> str:
        doubt = f" Warnings: {', '.join(self.warnings)}." if self.warnings else ""
        return (
            f"{self.method} run of {self.provenance['program']}: {self._shape()}, "
            f"{self.gradients} gradients, engine {self.engine}\n"
            f"{self._headline()}{self.verdict.in_words}{doubt}"
        )

    def _repr_html_(self) -> str:
        own = self.provenance.get("parameters", list(self.variables)) if self.has_posterior else []
        small = [n for n in own if n in self.variables and self.variables[n][0, 0].size <= 5]
        return in_html(repr(self), self.diagnostics, self.summary(small) if small else None)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the run: `run.json`, `draws.npz`, `data.json` and the generated programs.

        The folder appears whole or not at all. A run that is already there is replaced, and what
        else is in its folder stays. Draws that are in files are linked, not copied, where the file
        system can.

        Raises
        ------
        SavedRunError
            The folder holds something other than a run, or cannot be written.
        """
        self._save(check_save_folder(folder))

    def _save(self, folder: Path) -> None:
        save_run(self, folder, self._stored_arrays(), **self._stored_values())

    def stored(self, folder: Path) -> Self:
        """Save the run in place of the checkpoint in its folder, and return it as loaded."""
        self._save(folder)
        return self.load(folder)

    def _joined(self, more: Any) -> dict[str, Any]:
        """Fields of this run with those of `more`, where they are no arrays of draws."""
        own: Any = self
        named = "statistics" in self.__dataclass_fields__
        return {"statistics": joined_rows(own.statistics, more.statistics)} if named else {}

    def _stored_arrays(self) -> dict[str, Array]:
        """Arrays that this kind of run adds to a saved run."""
        return {name: getattr(self, name) for name in self.arrays}

    def _stored_values(self) -> dict[str, Any]:
        """Other fields that this kind of run adds, JSON values."""
        return {}

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        """Read this kind's own fields from a saved run; the inverse of the two methods above."""
        own: dict[str, Any] = {name: stored.arrays[name] for name in cls.arrays}
        if "statistics" in cls.__dataclass_fields__:
            own["statistics"] = stored.statistics
        return own

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
