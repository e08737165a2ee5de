"""What a sampler returns: frozen, printable, and saved without pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from stanct.base import GaussianBase
from stanct.errors import StanctError
from stanct.path import Array, Bias
from stanct.runs import arviz_bridge, weighted
from stanct.runs.diagnostics import Check, check_run
from stanct.runs.estimates import (
    Curve,
    Evidence,
    Expectation,
    PathEstimator,
)
from stanct.runs.storage import TEMPERED, reading, save_run


@dataclass(frozen=True)
class TemperedRun:
    """Draws of a continuous tempering method, and the estimates that follow from them.

    The draws are spread over all β: averages over the user's density need the weights of
    `log_weights()`, which `expect`, `summary` and `evidence` apply.

    Attributes
    ----------
    method, engine
        Names of the sampler and of the engine it ran on.
    variables
        The program's own parameters, transformed parameters and generated quantities by name, each
        of shape (chains, draws, ...).
    z : shape (chains, draws, D)
        Whitened unconstrained parameters, x = m + L z.
    beta, delta : shape (chains, draws)
        Inverse temperature and δ = φ − ψ.
    base_delta : shape (base draws,)
        δ at independent draws of the base.
    base, bias
        Frozen before the first of these draws.
    statistics
        Statistics of the transitions, under CmdStan's names where it has them, each of shape
        (chains, draws).
    programs
        Kind of generated program to its text.
    data
        JSON text of the user's data.
    provenance
        Settings, seed, versions, hashes, gradients and seconds; JSON values only.
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
        """Kept draws of each chain."""
        return self.beta.shape[1]

    @property
    def gradients(self) -> int:
        """All gradients spent: pilots, rounds, warm-up and draws."""
        return int(self.provenance["gradients"])

    @cached_property
    def estimator(self) -> PathEstimator:
        """The estimator of everything along the path, base draws included."""
        return PathEstimator(self.delta, self.base_delta, self.bias)

    @cached_property
    def _bare_evidence(self) -> Evidence:
        return self.estimator.evidence(self.method)

    @cached_property
    def rao_blackwell_evidence(self) -> Evidence:
        """log Z from the tempered chains alone ([GS] 20–22), without the base draws."""
        return PathEstimator(self.delta, np.zeros(0), self.bias).evidence(self.method)

    @cached_property
    def evidence(self) -> Evidence:
        """log Z with its standard error, method, effective size and warnings."""
        return replace(self._bare_evidence, warnings=self.warnings)

    @cached_property
    def diagnostics(self) -> tuple[Check, ...]:
        """Every check with value, threshold, verdict and remedy."""
        return check_run(
            estimator=self.estimator,
            evidence=self._bare_evidence,
            rao_blackwell=self.rao_blackwell_evidence,
            z=self.z,
            beta=self.beta,
            statistics=self.statistics,
            max_depth=self.provenance["settings"].get("max_depth"),
            draws_wanted=self.provenance["settings"]["draws"],
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.diagnostics if not check.passed)

    def log_weights(self, beta: float = 1.0) -> Array:
        """Rao–Blackwell log weights at `beta`, shape (chains, draws), natural log, unnormalised."""
        return self.estimator.log_weights(_valid_beta(beta))

    def curve(self, beta: Array | None = None) -> Curve:
        """The free-energy curve log z(β) with errors, at `beta` or at 0, 0.02, …, 1."""
        return self.estimator.curve(np.linspace(0, 1, 51) if beta is None else np.asarray(beta))

    def expect(
        self,
        quantity: str | Callable[[Mapping[str, Array]], Array],
        *,
        beta: float = 1.0,
    ) -> Expectation:
        """Weighted average of a quantity with its standard error ([GS] 21, 22).

        Parameters
        ----------
        quantity
            Name of one of `variables`, or a function of the mapping `variables` that returns an
            array of shape (chains, draws, ...).
        beta
            Inverse temperature; 1 is the user's density, 0 the base.

        Raises
        ------
        StanctError
            No such variable, or a result that does not begin with (chains, draws).
        """
        return weighted.expect(self.variables, self.log_weights(beta), quantity, beta)

    def summary(self, names: list[str] | None = None, *, beta: float = 1.0) -> pd.DataFrame:
        """Weighted mean, its standard error, sd, quantiles and effective size of every scalar.

        Parameters
        ----------
        names
            Variables to show; all by default.
        beta
            Inverse temperature of the summarised density.
        """
        return weighted.summary(self.variables, self.log_weights(beta), names, beta)

    def resample(
        self, draws: int | None = None, *, beta: float = 1.0, seed: int | None = None
    ) -> dict[str, Array]:
        """Equally weighted draws, by systematic resampling within each chain.

        Parameters
        ----------
        draws
            Draws a chain; by default a quarter of the run's.
        beta
            Inverse temperature of the wanted density.
        seed
            Of the resampling; a fresh one by default.

        Returns
        -------
        dict
            Variable name to shape (chains, draws, ...). Copies of a draw are adjacent.
        """
        count = max(1, self.draws // 4) if draws is None else draws
        rng = np.random.default_rng(seed)
        picked = np.empty((self.chains, count), int)
        for chain, log_weights in enumerate(self.log_weights(beta)):
            cumulative = np.exp(log_weights - log_weights.max()).cumsum()
            comb = (np.arange(count) + rng.random()) / count * cumulative[-1]
            picked[chain] = np.minimum(np.searchsorted(cumulative, comb), self.draws - 1)
        row = np.arange(self.chains)[:, None]
        return {name: values[row, picked] for name, values in self.variables.items()}

    def to_arviz(self, *, resample: bool = False, seed: int | None = None) -> Any:
        """ArviZ's container: `InferenceData` (ArviZ 0.x) or `DataTree` (1.x).

        By default group `posterior` holds all draws, which follow the *tempered* density; their log
        weights at β = 1 are `log_weight` in `sample_stats`. With `resample=True` it holds equally
        weighted draws of the user's density, for tools that know no weights.
        """
        attributes = {
            "inference_library": "stanct",
            "log_z": self.evidence.log_z,
            "log_z_std_error": self.evidence.std_error,
            "warnings": ", ".join(self.warnings),
            "weighted": 0 if resample else 1,
        }
        if resample:
            groups = {"posterior": self.resample(seed=seed)}
            return arviz_bridge.inference_data(groups, attributes)
        statistics = {name.rstrip("_"): values for name, values in self.statistics.items()}
        statistics["diverging"] = statistics.pop("divergent").astype(bool)
        statistics |= {
            "beta": self.beta,
            "delta": self.delta,
            "log_weight": self.log_weights(1.0),
            "log_weight_base": self.log_weights(0.0),
        }
        groups = {"posterior": dict(self.variables), "sample_stats": statistics}
        return arviz_bridge.inference_data(groups, attributes)

    def __repr__(self) -> str:
        warned = f"; warnings: {', '.join(self.warnings)}" if self.warnings else ""
        return (
            f"{self.method} run of {self.provenance['program']}: {self.chains} chains of "
            f"{self.draws} draws, {self.gradients} gradients, engine {self.engine}\n"
            f"log Z = {self.evidence.log_z:.4f} ± {self.evidence.std_error:.4f}{warned}"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the run: `run.json`, `draws.npz`, `data.json` and the generated programs.

        The folder appears whole or not at all; a run that is already there is replaced.

        Raises
        ------
        SavedRunError
            The folder holds something else than a run, or cannot be written.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {"bias_beta": self.bias.beta, "bias_value": self.bias.value}
        save_run(folder, self, TEMPERED, arrays, statistics=self.statistics)


_ARRAYS = ("z", "beta", "delta", "base_delta")


def load_tempered(folder: str | os.PathLike[str]) -> TemperedRun:
    """Bring back a run saved by `TemperedRun.save`.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    with reading(folder, TEMPERED) as stored:
        return TemperedRun(
            bias=Bias(stored.arrays["bias_beta"], stored.arrays["bias_value"]),
            statistics=stored.statistics,
            **{name: stored.arrays[name] for name in _ARRAYS},
            **stored.common,
        )


def _valid_beta(beta: float) -> float:
    if not 0 <= beta <= 1:
        raise StanctError(f"β must lie between 0 and 1, not {beta!r}.")
    return float(beta)
