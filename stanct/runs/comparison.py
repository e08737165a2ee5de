"""`compare`: ranks models of the same data by their evidences, with errors."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import expit

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import StanctError
from stanct.estimates import weighted
from stanct.estimates.averages import Expectation
from stanct.estimates.digits import with_error
from stanct.runs.averaging import averaged, compared_by_loo
from stanct.runs.bayes_factor import HALF_WIDTH, STRENGTHS, BayesFactor
from stanct.runs.caveats import (
    declared_data,
    notes_of,
    notes_of_loo,
    pairs,
    refuse_other_data,
)
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.loading import load
from stanct.runs.normalised import missing
from stanct.runs.run import Run
from stanct.runs.verbs import Reported

if TYPE_CHECKING:
    import pandas as pd

_PROBABILITIES = ("probability", "probability_low", "probability_high")
# Amounts that programs lack are the same up to rounding.
SAME = 1e-9
# Columns of the table as text, so that a terminal shows it without a break.
_HEADS = {
    "std_error": "error", "log_bayes_factor": "log BF", "log_bayes_factor_error": "its error",
    "probability_low": "2.5%", "probability_high": "97.5%",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Comparison(Reported):
    """Several models of the same data; created by `compare`.

    Errors are those of independent runs. Every number assumes that each program is a normalised
    joint density of data and parameters.

    Attributes
    ----------
    names
        Distinct names of the models.
    runs
        One run for each model.
    prior : shape (models,)
        Prior probabilities of the models.
    notes
        Caveats: failed diagnostics, and data that only some programs declare.
    by_loo
        What `loo` returns, where `compare` was asked for it; None elsewhere.
    alike
        Failed checks of what all programs lack alike, so that it cancels from the Bayes factors.
    over
        The model over which the tables give the Bayes factors of the others; None for the best.
    """

    names: tuple[str, ...]
    runs: tuple[EvidenceRun, ...] = field(repr=False)
    prior: Array = field(repr=False)
    notes: tuple[str, ...] = ()
    by_loo: pd.DataFrame | None = field(default=None, repr=False)
    alike: tuple[str, ...] = ()
    over: str | None = None

    @cached_property
    def log_z(self) -> Array:
        """Log evidences, shape (models,)."""
        return np.array([run.evidence.log_z for run in self.runs])

    @cached_property
    def std_error(self) -> Array:
        """Standard errors of `log_z`, shape (models,)."""
        return np.array([run.evidence.std_error for run in self.runs])

    @property
    def order(self) -> list[int]:
        """Positions of the models from the largest evidence to the smallest."""
        return [int(i) for i in np.argsort(-self.log_z, kind="stable")]

    @property
    def reference(self) -> str:
        """The model over which the tables give the Bayes factors of the others."""
        return self.over or self.names[self.order[0]]

    @cached_property
    def probability(self) -> Array:
        """Posterior probabilities of the models, prior × Z normalised, shape (models,)."""
        weight = np.log(self.prior) + self.log_z
        return np.exp(weight - log_sum_exp(weight))

    @cached_property
    def probability_interval(self) -> Array:
        """95 % intervals of `probability`, shape (models, 2).

        To first order, the log odds of a model against all others together have the variance
        s_i² + Σ_j (p_j / (1 − p_i))² s_j². This is exact for two models. The interval is formed on
        the log-odds scale, so it stays between 0 and 1.
        """
        weight = np.log(self.prior) + self.log_z
        ends = []
        for i, own in enumerate(weight):
            others = np.delete(weight, i)
            rest = log_sum_exp(others)
            shares = np.exp(others - rest)
            error = math.hypot(self.std_error[i], *(shares * np.delete(self.std_error, i)))
            odds = own - rest
            ends.append(expit([odds - HALF_WIDTH * error, odds + HALF_WIDTH * error]))
        return np.array(ends)

    def bayes_factor(self, first: str, second: str) -> BayesFactor:
        """Bayes factor of one model over another, by name; prior probabilities play no part.

        Raises
        ------
        StanctError
            No model has that name.
        """
        i, j = self._position(first), self._position(second)
        error = 0.0 if i == j else math.hypot(self.std_error[i], self.std_error[j])
        return BayesFactor(float(self.log_z[i] - self.log_z[j]), error, (first, second))

    def without_factor(self, *names: str) -> list[str]:
        """Those of these models that have no Bayes factor, for improper priors of their own."""
        return [name for name in names if "proper_prior" in self.warnings_of(name)]

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise StanctError(
                f"The comparison has no model {name!r}.", remedy=f"It has: {', '.join(self.names)}."
            )
        return self.names.index(name)

    def average(self, quantity: weighted.Quantity) -> Expectation:
        """Average of a quantity over all models, weighted by their posterior probabilities.

        With probabilities p_i, averages f_i and their mean f, the variance is
        Σ p_i² var(f_i) + Σ p_i² (f_i − f)² var(log Z_i) to first order, for independent runs.

        Parameters
        ----------
        quantity
            Name of a variable that every model has, or a function of a run's variables that
            returns an array of shape (chains, draws, ...); see `Run.expect`.

        Raises
        ------
        StanctError
            A model has no such variable, or shapes differ between models.
        """
        return averaged(self.runs, self.probability, quantity)

    def loo(self) -> pd.DataFrame:
        """ArviZ's comparison by leave-one-out cross-validation, with stacking weights.

        One row for each model, the best first; see ``az.compare``. It asks which model predicts
        held-out observations better, and does not depend on the width of vague priors. Where models
        have several kinds of observations, each single one of any kind is left out.

        Raises
        ------
        StanctError
            A run has no pointwise log likelihoods, see `Run.to_arviz`, or those of models are of
            different observations.
        """
        return compared_by_loo(self.names, self.runs) if self.by_loo is None else self.by_loo

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each model, the largest evidence first.

        The columns are `log_z`, `std_error`, `log_bayes_factor` over `reference` with
        `log_bayes_factor_error`, `prior`, `probability` with its 95 % interval `probability_low`
        and `probability_high`, and `warnings`, the names of failed diagnostics. Where `compare` was
        asked for leave-one-out, `elpd_loo` with `elpd_loo_error` and `stacking_weight` come before
        the warnings, among which is ``"loo"`` where ArviZ warns of the model. Bayes factors and
        probabilities are NaN where an improper prior is not shared.
        """
        import pandas as pd

        rows = {}
        for i in self.order:
            name = self.names[i]
            factor = self.bayes_factor(name, self.reference)
            rows[name] = {
                "log_z": self.log_z[i],
                "std_error": self.std_error[i],
                "log_bayes_factor": factor.log,
                "log_bayes_factor_error": factor.std_error,
                "prior": self.prior[i],
                "probability": self.probability[i],
                "probability_low": self.probability_interval[i, 0],
                "probability_high": self.probability_interval[i, 1],
                **self._loo_columns(name),
                **dict.fromkeys(self._unknown(name), math.nan),
                "warnings": ", ".join(self.warnings_of(name)),
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def _unknown(self, name: str) -> list[str]:
        """Columns of a model's row that improper priors of single models leave without a number."""
        factor = name != self.reference and self.without_factor(name, self.reference)
        return [
            *(["log_bayes_factor", "log_bayes_factor_error"] if factor else []),
            *(_PROBABILITIES if self.without_factor(*self.names) else []),
        ]

    def _loo_columns(self, name: str) -> dict[str, float]:
        if self.by_loo is None:
            return {}
        row = self.by_loo.loc[name]
        elpd = row["elpd_loo"] if "elpd_loo" in row else row["elpd"]  # ArviZ 0.x and 1.x
        names = "elpd_loo", "elpd_loo_error", "stacking_weight"
        return dict(zip(names, map(float, (elpd, row["se"], row["weight"])), strict=True))

    def warnings_of(self, name: str) -> tuple[str, ...]:
        """Failed diagnostics of a model's run, and ``"loo"`` where ArviZ warns of its LOO."""
        doubtful = self.by_loo is not None and bool(self.by_loo.loc[name, "warning"])
        return (*self._failed(self.runs[self._position(name)]), *["loo"] * doubtful)

    def _failed(self, run: Run) -> list[str]:
        return [name for name in run.warnings if name not in self.alike]

    @property
    def is_reliable(self) -> bool:
        """Whether every run passed all of its checks, but for what all programs lack alike."""
        return not any(map(self._failed, self.runs))

    @property
    def verdict(self) -> str:
        """A statement on the two largest evidences in words, with their errors considered."""
        first, second = (self.names[i] for i in self.order[:2])
        factor = self.bayes_factor(first, second)
        low, high = factor.interval
        numbers = f"{factor.in_words}, log BF {with_error(factor.log, factor.std_error)}"
        if alone := self.without_factor(first, second):
            return (
                f"No Bayes factor: {' and '.join(alone)} {'have' if alone[1:] else 'has'} improper "
                "priors that the models do not share, so that log Z has an unknown constant in it."
            )
        if high < STRENGTHS[0][0]:
            words = f"The data hardly tell {first} from {second} ({numbers})."
        elif low <= 0:
            words = (
                f"The errors are too large to say whether {first} or {second} is better "
                f"({numbers}). Run longer chains."
            )
        else:
            words = (
                f"{first} is better than {second} ({numbers}): evidence {factor.strength} on Kass "
                "& Raftery's scale."
            )
        if self.is_reliable:
            return words
        return f"{words} Not to be relied on: runs of which it is made have warnings."

    def _factors(self) -> list[BayesFactor]:
        """Bayes factors of the best over all others, or of all others over `over`."""
        rest = [name for i in self.order if (name := self.names[i]) != self.reference]
        sides = [(name, self.over) if self.over else (self.reference, name) for name in rest]
        return [self.bayes_factor(*both) for both in sides if not self.without_factor(*both)]

    def __str__(self) -> str:
        table = self.table.rename(columns=_HEADS)
        table["warnings"] = [text or "-" for text in table["warnings"]]
        text = table.to_string(float_format=lambda value: f"{value:.4f}")
        factors = [f"{one.models[0]} over {self.over}: {one.in_words}" for one in self._factors()]
        parts = [self.verdict, "\n".join(factors if self.over else []), text, "\n".join(self.notes)]
        return "\n\n".join(filter(None, parts))

    def __repr__(self) -> str:
        return f"Comparison of {', '.join(self.names)}\n{self.verdict}"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def record(self) -> dict[str, Any]:
        """The whole comparison as JSON values, for `stanct compare --json`.

        The Bayes factors are those of the best model over the others, or of all others over the
        model `over`, with 95 % intervals.
        """
        return {
            "models": [
                {"name": name, **{k: v if isinstance(v, str) else float(v) for k, v in row.items()}}
                for name, row in self.table.to_dict(orient="index").items()
            ],
            "bayes_factors": [one.record() for one in self._factors()],
            "verdict": self.verdict,
            "reliable": self.is_reliable,
            "notes": list(self.notes),
        }


def compare(
    *runs: Run | str | os.PathLike[str],
    names: Sequence[str] | None = None,
    prior: Sequence[float] | None = None,
    observed: str | Sequence[str] | None = None,
    improper: Literal["refuse", "allow"] = "refuse",
    loo: bool = False,
    over: str | None = None,
) -> Comparison:
    """Compare models by the evidences of runs on the same data.

    Parameters
    ----------
    runs
        Two or more, each an `EvidenceRun` or the folder of a saved one.
    names
        Names of the models; by default the folder, or the program's file without suffix.
    prior
        Positive prior weights of the models in the same order, normalised by `compare`; equal by
        default.
    observed
        Names of the data that must agree between runs, that is, of the observations. By default,
        all data that two programs both declare must agree. The default refuses, for example,
        regressions on different columns `X`.
    improper
        Whether to compare runs of programs with improper priors. Bayes factors are then defined
        only up to an unknown constant, unless all models share the improper priors, as you say with
        ``"allow"``.
    loo
        Whether leave-one-out cross-validation and stacking weights stand beside the evidences.
    over
        The model, by name, over which Bayes factors of the others are given: ``"H0"`` gives BF10.
        By default, over the best.

    Raises
    ------
    StanctError
        There are fewer than two runs, a run has no evidence or the ratio of two, names or weights
        do not fit, no model has the name `over`, a program has improper priors, or runs are on
        different data. The message of the last names the variable and the runs.
    SavedRunError
        A folder holds no run.
    """
    if len(runs) < 2:
        raise StanctError(f"A comparison takes two runs or more, not {len(runs)}.")
    labels = _labels(runs, names)
    loaded = tuple(map(_with_evidence, labels, runs))
    observed = [observed] if isinstance(observed, str) else observed
    if improper not in ("refuse", "allow"):
        raise StanctError(f"improper must be 'refuse' or 'allow', not {improper!r}.")
    if improper == "refuse":
        for label, run in zip(labels, loaded, strict=True):
            _refuse_improper(label, run)
    data = [declared_data(run) for run in loaded]
    for i, j in pairs(len(loaded)):
        refuse_other_data(labels[i], data[i], labels[j], data[j], observed)
    weights = _prior(prior, labels)
    by_loo = compared_by_loo(labels, loaded) if loo else None
    alike = _alike(loaded)
    notes = [*notes_of(labels, loaded, data, observed, alike), *notes_of_loo(by_loo)]
    found = Comparison(labels, loaded, weights, tuple(notes), by_loo, alike, over)
    found._position(found.reference)
    return found


def _alike(runs: Sequence[Run]) -> tuple[str, ...]:
    """Failed checks of what cancels: improper priors, once they are allowed, and equal amounts."""
    amounts, errors = np.transpose([missing(run.provenance) for run in runs])
    improper = {_improper(run) for run in runs}
    same = "normalised" in runs[0].warnings and np.ptp(amounts) < SAME + 3 * np.linalg.norm(errors)
    return (*["proper_prior"] * (len(improper) == 1), *["normalised"] * bool(same))


def _improper(run: Run) -> int:
    """Number of parameters with improper priors."""
    told = run.provenance
    named = [one["parameters"] for one in told.get("omissions") or () if one["improper"]]
    return sum(map(len, named)) + ("improper_prior" in told)


def _with_evidence(label: str, run: Run | str | os.PathLike[str]) -> EvidenceRun:
    """The run, loaded if necessary; raise `StanctError` if it has no comparable log Z."""
    found = run if isinstance(run, Run) else load(run)
    if not isinstance(found, EvidenceRun):
        raise StanctError(
            f"The run {label!r} has no evidence: {found.made_by} estimates none.",
            remedy="Compare runs of a method that estimates log Z, such as joint, gibbs, "
            "parallel_tempering or ais.",
        )
    if found.provenance.get("ends"):
        raise StanctError(
            f"The log Z of {label!r} is the log of the ratio of two programs' evidences: a Bayes "
            "factor, and no evidence to compare.",
            remedy="Compare runs of the two programs by themselves, without base=.",
        )
    if not (math.isfinite(found.evidence.log_z) and math.isfinite(found.evidence.std_error)):
        raise StanctError(
            f"The run {label!r} has no finite log Z with a finite error.",
            remedy="See its diagnostics, and run it again as they advise.",
        )
    return found


def _labels(
    runs: Sequence[Run | str | os.PathLike[str]], names: Sequence[str] | None
) -> tuple[str, ...]:
    if names is not None:
        if len(names) != len(runs) or len(set(names)) < len(names):
            raise StanctError(f"names must be {len(runs)} different ones, not {list(names)}.")
        return tuple(names)
    found = [
        Path(run.provenance["program"]).stem if isinstance(run, Run) else Path(run).name
        for run in runs
    ]
    # Runs of one program are distinguished by their position in the call.
    return tuple(
        name if found.count(name) == 1 else f"{name} ({place})"
        for place, name in enumerate(found, start=1)
    )


def _prior(prior: Sequence[float] | None, labels: Sequence[str]) -> Array:
    try:
        weights = np.ones(len(labels)) if prior is None else np.asarray(prior, float)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (len(labels),) or not (np.isfinite(weights) & (weights > 0)).all():
        raise StanctError(
            f"prior must be {len(labels)} positive weights, one a model, not {prior!r}."
        )
    return weights / weights.sum()


def _refuse_improper(label: str, run: Run) -> None:
    for check in run.diagnostics:
        if check.name == "proper_prior" and not check.passed:
            raise StanctError(
                f"The program of {label!r} has no proper prior: {check.message}",
                remedy=f'{check.remedy} Or pass improper="allow" (--improper allow) if all models '
                "share the improper priors.",
            )
