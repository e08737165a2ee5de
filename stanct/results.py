"""What a sampler returns: frozen, printable, and saved without pickle."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stanct import arviz_bridge, weighted
from stanct.base import GaussianBase
from stanct.diagnostics import Check, check_run
from stanct.errors import SavedRunError, StanctError
from stanct.estimates import (
    Curve,
    Evidence,
    Expectation,
    PathEstimator,
)
from stanct.path import Array, Bias

FORMAT = "stanct run 1"

# Of every kind of run that this version can read: this module's own, and the others'.
FORMATS = (FORMAT, "stanct ladder 1", "stanct particles 1")


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
        save_folder(folder, self._write)

    def _write(self, folder: Path) -> None:
        arrays = {
            "z": self.z,
            "beta": self.beta,
            "delta": self.delta,
            "base_delta": self.base_delta,
            "base_mean": self.base.mean,
            "base_scale": self.base.scale,
            "bias_beta": self.bias.beta,
            "bias_value": self.bias.value,
        }
        arrays |= {f"variable {name}": values for name, values in self.variables.items()}
        arrays |= {f"statistic {name}": values for name, values in self.statistics.items()}
        np.savez(folder / "draws.npz", allow_pickle=False, **arrays)
        head = {
            "format": FORMAT,
            "method": self.method,
            "engine": self.engine,
            "programs": sorted(self.programs),
            "provenance": dict(self.provenance),
        }
        (folder / "run.json").write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")
        (folder / "data.json").write_text(self.data, encoding="utf-8")
        for kind, text in self.programs.items():
            (folder / f"{kind}.stan").write_text(text, encoding="utf-8")


def save_folder(folder: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder that then appears whole or not at all, replacing a saved run."""
    final = check_save_folder(folder)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
        try:
            write(draft)
            draft.chmod(0o755)
            if final.exists():
                shutil.rmtree(final)
            draft.rename(final)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as cause:
        raise SavedRunError(
            f"The run cannot be saved in {final}: {cause}.",
            remedy="Save it in a folder that you can write.",
        ) from cause


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path if a run may be saved there; raises `SavedRunError` otherwise."""
    path = Path(folder)
    if path.is_dir() and not any(path.iterdir()):
        return path
    if path.exists() and saved_head(path) is None:
        raise SavedRunError(
            f"{path} exists and is not a saved run, so it is not overwritten.",
            remedy="Choose another folder.",
        )
    return path


def load(folder: str | os.PathLike[str]) -> TemperedRun:
    """Bring back a run saved by `TemperedRun.save`.

    Raises
    ------
    SavedRunError
        The folder is missing, incomplete, or of another format.
    """
    path = Path(folder)
    head = saved_head(path)
    if head is None or head["format"] != FORMAT:
        raise SavedRunError(
            f"{path} is not a saved run: it has no run.json of format {FORMAT!r}.",
            remedy="Pass a folder written by run.save or by `stanct evidence --save`.",
        )
    try:
        with np.load(path / "draws.npz", allow_pickle=False) as arrays:
            stored = {name: arrays[name] for name in arrays.files}
        return TemperedRun(
            method=head["method"],
            engine=head["engine"],
            variables=_part(stored, "variable "),
            z=stored["z"],
            beta=stored["beta"],
            delta=stored["delta"],
            base_delta=stored["base_delta"],
            base=GaussianBase(stored["base_mean"], stored["base_scale"]),
            bias=Bias(stored["bias_beta"], stored["bias_value"]),
            statistics=_part(stored, "statistic "),
            programs={
                kind: (path / f"{kind}.stan").read_text(encoding="utf-8")
                for kind in head["programs"]
            },
            data=(path / "data.json").read_text(encoding="utf-8"),
            provenance=head["provenance"],
        )
    except (OSError, KeyError, ValueError) as cause:
        raise SavedRunError(
            f"{path} is a damaged run: {cause}.", remedy="Restore the folder or run again."
        ) from cause


def saved_head(path: Path) -> dict[str, Any] | None:
    """The `run.json` of a saved run of any kind, None where there is none."""
    try:
        head = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return head if isinstance(head, dict) and head.get("format") in FORMATS else None


def _part(stored: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {k.removeprefix(prefix): v for k, v in stored.items() if k.startswith(prefix)}


def _valid_beta(beta: float) -> float:
    if not 0 <= beta <= 1:
        raise StanctError(f"β must lie between 0 and 1, not {beta!r}.")
    return float(beta)
