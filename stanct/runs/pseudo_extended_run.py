"""`PseudoExtendedRun`: draws of N copies each, weighted within every draw."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from stanct.base import GaussianBase
from stanct.path import Array, Bias
from stanct.runs import weighted
from stanct.runs.arviz_bridge import effective_size, inference_data, r_hat
from stanct.runs.copies import CopyEstimator, copy_log_weights
from stanct.runs.diagnostics import MORE, MOST_DIVERGENT, Check
from stanct.runs.estimates import Evidence, Expectation
from stanct.runs.storage import COPIES, reading, save_run


@dataclass(frozen=True)
class PseudoExtendedRun:
    """Draws of a pseudo-extended chain, N weighted copies each, and what follows from them.

    The weights of a draw's copies add up to one: an average over the user's density is the mean
    over draws of the weighted mean over copies ([PE] 9), which is what `expect` and `summary` do.

    Attributes
    ----------
    method, engine
        Names of the sampler and of the engine it ran on.
    variables
        The program's own variables by name, each of shape (chains, draws × N, ...): the N copies
        of a draw are adjacent, and `log_weights()` belong to them.
    z : shape (chains, draws, N, D)
        Whitened unconstrained parameters of every copy, x = m + L z.
    beta, delta : shape (chains, draws, N)
        Inverse temperature and δ = φ − ψ of every copy.
    base_delta : shape (base draws,)
        δ at independent draws of the base.
    base, bias
        Frozen before the first of these draws.
    statistics
        NUTS statistics under CmdStan's names, each of shape (chains, draws).
    programs, data, provenance
        As in `TemperedRun`.
    """

    method: str
    engine: str
    variables: Mapping[str, Array] = field(repr=False)
    z: Array = field(repr=False)
    beta: Array = field(repr=False)
    delta: Array = field(repr=False)
    base_delta: Array = field(repr=False)
    base: GaussianBase = field(repr=False)
    bias: Bias = field(repr=False)
    statistics: Mapping[str, Array] = field(repr=False)
    programs: Mapping[str, str] = field(repr=False)
    data: str = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.beta.shape[0]

    @property
    def draws(self) -> int:
        """Kept draws of each chain, N copies each."""
        return self.beta.shape[1]

    @property
    def copies(self) -> int:
        """N, copies in a draw."""
        return self.beta.shape[2]

    @property
    def gradients(self) -> int:
        """All gradients of the target spent: base, rounds, warm-up and draws, on all copies."""
        return int(self.provenance["gradients"])

    @cached_property
    def estimator(self) -> CopyEstimator:
        """The estimator of log Z from copies and base draws."""
        fixed = self.provenance["settings"]["fixed_beta"]
        beta = None if fixed is None else np.array(fixed)
        return CopyEstimator(self.delta, self.base_delta, self.bias, beta)

    @cached_property
    def _bare_evidence(self) -> Evidence:
        return self.estimator.evidence(self.method)

    @cached_property
    def evidence(self) -> Evidence:
        """log Z by a bridge over copies and base draws, with its standard error and warnings."""
        return replace(self._bare_evidence, warnings=self.warnings)

    @cached_property
    def _copy_log_weights(self) -> Array:
        return copy_log_weights(self.delta, self.beta, self.bias)

    def log_weights(self) -> Array:
        """Log weights of the copies at β = 1, shape (chains, draws × N), one draw's add to 1."""
        return self._copy_log_weights.reshape(self.chains, -1)

    @cached_property
    def diagnostics(self) -> tuple[Check, ...]:
        """Every check with value, threshold, verdict and remedy."""
        return _checks(self, self._bare_evidence)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.diagnostics if not check.passed)

    def expect(self, quantity: weighted.Quantity) -> Expectation:
        """Weighted average of a variable, or of a function of the mapping `variables`.

        The function gets arrays of shape (chains, draws × N, ...) and returns such an array. The
        error is that of the draws' weighted means, so copies of one draw count together.
        """
        return weighted.expect(self.variables, self.log_weights(), quantity, copies=self.copies)

    def summary(self, names: list[str] | None = None) -> pd.DataFrame:
        """Weighted mean, standard error, sd, quantiles and effective size of every scalar."""
        return weighted.summary(self.variables, self.log_weights(), names, copies=self.copies)

    def resample(self, *, seed: int | None = None) -> dict[str, Array]:
        """Equally weighted draws: one copy of each draw, picked by its weight.

        Parameters
        ----------
        seed
            Of the picking; a fresh one by default.

        Returns
        -------
        dict
            Variable name to shape (chains, draws, ...).
        """
        uniform = np.random.default_rng(seed).random((self.chains, self.draws, 1))
        cumulative = np.exp(self._copy_log_weights).cumsum(axis=2)
        picked = (cumulative <= uniform * cumulative[..., -1:]).sum(axis=2)
        flat = np.arange(self.draws) * self.copies + picked
        row = np.arange(self.chains)[:, None]
        return {name: values[row, flat] for name, values in self.variables.items()}

    def to_arviz(self, *, seed: int | None = None) -> Any:
        """ArviZ's container: equally weighted draws, one copy of each, picked by `resample`.

        `sample_stats` has NUTS's statistics, and `beta`, `delta` and `log_weight` of every copy,
        shape (chains, draws, N).
        """
        attributes = {
            "inference_library": "stanct",
            "log_z": self.evidence.log_z,
            "log_z_std_error": self.evidence.std_error,
            "warnings": ", ".join(self.warnings),
            "weighted": 0,
        }
        statistics = {name.rstrip("_"): values for name, values in self.statistics.items()}
        statistics["diverging"] = statistics.pop("divergent").astype(bool)
        statistics |= {
            "beta": self.beta,
            "delta": self.delta,
            "log_weight": self._copy_log_weights,
        }
        groups = {"posterior": self.resample(seed=seed), "sample_stats": statistics}
        return inference_data(groups, attributes)

    def __repr__(self) -> str:
        warned = f"; warnings: {', '.join(self.warnings)}" if self.warnings else ""
        return (
            f"{self.method} run of {self.provenance['program']}: {self.chains} chains of "
            f"{self.draws} draws of {self.copies} copies, {self.gradients} gradients, engine "
            f"{self.engine}\n"
            f"log Z = {self.evidence.log_z:.4f} ± {self.evidence.std_error:.4f}{warned}"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the run; the folder appears whole or not at all, see `TemperedRun.save`."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {"bias_beta": self.bias.beta, "bias_value": self.bias.value}
        save_run(folder, self, COPIES, arrays, statistics=self.statistics)


_ARRAYS = ("z", "beta", "delta", "base_delta")


def load_copies(folder: str | os.PathLike[str]) -> PseudoExtendedRun:
    """Bring back a run saved by `PseudoExtendedRun.save`.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    with reading(folder, COPIES) as stored:
        return PseudoExtendedRun(
            bias=Bias(stored.arrays["bias_beta"], stored.arrays["bias_value"]),
            statistics=stored.statistics,
            **{name: stored.arrays[name] for name in _ARRAYS},
            **stored.common,
        )


def hand_overs(log_weights: Array) -> Array:
    """How often another copy became the heaviest, in each chain, shape (chains,).

    Parameters
    ----------
    log_weights : shape (chains, draws, N)
    """
    heaviest = log_weights.argmax(axis=2)
    return (np.diff(heaviest, axis=1) != 0).sum(axis=1)


def _checks(run: PseudoExtendedRun, evidence: Evidence) -> tuple[Check, ...]:
    """Every check of a pseudo-extended run."""
    settings = run.provenance["settings"]
    log_weights = copy_log_weights(run.delta, run.beta, run.bias)
    weights = np.exp(log_weights)
    # δ and every coordinate at β = 1: modes may differ in any of them.
    watched = np.einsum("cdn,cdnk->kcd", weights, run.z)
    # Copies without weight may lie outside of the support, where 0·inf would be NaN.
    target_delta = (weights * np.where(weights > 0, run.delta, 0.0)).sum(axis=2)
    watched = np.concatenate([watched, target_delta[None]])
    handed = int(hand_overs(log_weights).min())
    rate = max((r_hat(values) for values in watched), key=np.nan_to_num)
    sizes = [effective_size(values) for values in watched]
    size = min(evidence.effective_size, *sizes)
    spread = float(np.ptp(run.base_delta[np.isfinite(run.base_delta)]))
    divergent = float((run.statistics["divergent__"] > 0).mean())
    deep = float((run.statistics["treedepth__"] >= settings["max_depth"]).mean())
    outside = float(np.mean(~np.isfinite(run.base_delta)))

    def check(name: str, value: float, limit: float, passed: bool, *words: str) -> Check:
        return Check(name, float(value), limit, bool(passed), *words)

    return (
        check("interrupted", run.draws, settings["draws"], run.draws >= settings["draws"],
              f"{run.draws} of {settings['draws']} draws a chain were kept.",
              "The estimates use the finished draws; run again for the rest."),
        check("hand_overs", handed, 20, handed >= 20,
              f"In the slowest chain another copy became the heaviest {handed} times.",
              f"{MORE} If that does not help, use more copies (copies=) or a wider base (base=)."),
        check("r_hat", rate, 1.05, not rate > 1.05,
              f"The largest split R-hat, of δ and of the coordinates at β = 1, is {rate:.3f}.",
              MORE),
        check("effective_size", size, 100, size >= 100,
              f"The least effective size, of log Z, δ and the coordinates at β = 1, is {size:.0f}.",
              MORE),
        check("tempered", spread, 1e-6, spread > 1e-6,
              f"δ of the base's draws spreads over {spread:.3g}.",
              "Nothing was tempered: the base is the target, or δ is constant."),
        check("support", outside, 0.5, outside <= 0.5,
              f"The target vanishes at {outside:.1%} of the base's draws.",
              "The base lies mostly outside the target's support: pass one that fits."),
        check("divergences", divergent, MOST_DIVERGENT, divergent <= MOST_DIVERGENT,
              f"{divergent:.1%} of the draws had a divergent transition.",
              "Raise target_accept to 0.95 or 0.99."),
        check("max_depth", deep, 0.05, deep <= 0.05,
              f"{deep:.1%} of the transitions reached the largest tree depth, "
              f"{settings['max_depth']}.", "Raise max_depth."),
    )  # fmt: skip
