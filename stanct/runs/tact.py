"""`TactRun`: draws of noisy, thermostatted dynamics, collected where λ = 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import counted
from stanct.estimates.mixing import effective_size, r_hat
from stanct.runs.diagnostics import LOOK_FOR_REJECTIONS, MORE, Check, check, interrupted_check
from stanct.runs.evidence_run import DrawsRun
from stanct.runs.surveyed import mode_size
from stanct.runs.verdicts import least

# Columns of `TactRun.trace`.
XI, LAMBDA, THERMOSTAT, XI_THERMOSTAT, ENERGY, TEMPERATURE = range(6)
# Most coordinates, evenly spaced, whose R-hat and effective size are checked.
MOST_COORDINATES = 50
# Relative deviation of the thermostats from their means above which the step counts as too long.
MISSED = 0.15


@dataclass(frozen=True, kw_only=True, repr=False)
class TactRun(DrawsRun):
    """Draws of TACT-HMC or of a variant. They follow the user's density and need no weights.

    Attributes
    ----------
    energy : shape (chains, draws)
        −log density in whitened coordinates, up to a constant, as estimated by the last batch.
    trace : shape (chains, looks, 6)
        State of the chains at regular intervals, tempered or not: ξ, λ(ξ), mean of z_θ, z_ξ,
        energy, and |r_θ|² / (D η), whose mean is 1.
    noise : shape (points, 4)
        Variances between batches at points of the chains: of the energy, and of its gradient (mean
        over coordinates), followed by λ and λ' there. Variances are zero without noise.
    thermostat_means, thermostat_errors : shape (2,)
        Expected means of z_θ and z_ξ given `noise`, c + η V / 2 to first order ([TACT] 6), and
        their standard errors from the spread of V over the points.
    bias : shape (2, bins)
        Visits, and the learned mean energy (biasing force) or height (hills), over
        0 ≤ |ξ| ≤ W₀.
    counts : shape (chains, 3)
        Numbers of steps, of rejected points, and of resets after values that were not finite.

    The other attributes are those of `Run`. There is no evidence, because the path runs from the
    target to the target at a higher temperature, and neither end has a known normalising constant.
    Other methods, such as joint and gibbs, estimate log Z.
    """

    file_format: ClassVar[str] = "stanct tact 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "energy": "c n", "trace": "c * 6", "noise": "* 4",
        "thermostat_means": "2", "thermostat_errors": "2", "bias": "2 *",
        "counts": "c 3",
    }  # fmt: skip

    energy: Array = field(repr=False)
    trace: Array = field(repr=False)
    noise: Array = field(repr=False)
    thermostat_means: Array = field(repr=False)
    thermostat_errors: Array = field(repr=False)
    bias: Array = field(repr=False)
    counts: Array = field(repr=False)

    @property
    def target_log_weights(self) -> Array:
        """Zero: the draws were collected at λ = 1."""
        return np.zeros((self.chains, self.draws))

    @property
    def plateau_share(self) -> float:
        """Share of the looks at which λ = 1."""
        return float((self.trace[..., LAMBDA] == 1).mean())

    @cached_property
    def trips(self) -> Array:
        """Trips of each chain from λ = 1 to |ξ| > ξ₁, where T > 2, and back, shape (chains,)."""
        reach = self.method_settings["coupling"]["reach"]
        counts = np.zeros(self.chains, int)
        for c, chain in enumerate(self.trace):
            hot = np.abs(chain[:, XI]) > reach
            ends = np.where(hot, 1, np.where(chain[:, LAMBDA] == 1, -1, 0))
            ends = ends[ends != 0]
            counts[c] = np.count_nonzero(np.diff(ends) < 0)
        return counts

    def chain_counts(self) -> dict[str, Array]:
        return {"trips to high temperature": self.trips}

    @property
    def shows(self) -> tuple[str, ...]:
        chosen = self.method_settings
        path = ("temperature_trace", "control_occupancy") if chosen["tempering"] else ()
        bath = () if chosen["thermostat"] is None else ("thermostats",)
        return (*path, *bath, *super().shows)

    def _attributes(self) -> dict[str, float]:
        return {"plateau_share": self.plateau_share}

    def _sample_statistics(self) -> dict[str, Array]:
        return {"energy": self.energy}

    def _shape(self) -> str:
        return f"{counted(self.chains, 'chain')} of {self.draws} draws"

    def _headline(self) -> str:
        tempered = self.method_settings["tempering"]
        path = f", {int(self.trips.min())} trips of the slowest chain" if tempered else ""
        return f"{self.plateau_share:.0%} of the time at temperature 1{path}"

    def _checks(self) -> tuple[Check, ...]:
        settings = self.method_settings
        checks = [_length_check(self), *_mixing_checks(self)]
        if settings["tempering"]:
            checks += _tempering_checks(self)
        if settings["thermostat"] is not None:
            checks.append(_thermostat_check(self, "thermostat", THERMOSTAT))
            if settings["tempering"]:
                checks.append(_thermostat_check(self, "tempering_thermostat", XI_THERMOSTAT))
        return tuple(checks)


def _length_check(run: TactRun) -> Check:
    """Check that all requested draws have been made, and if not, say whether looks ran out."""
    wanted, patience = run.settings["draws"], run.method_settings["patience"]
    if run.ended_early or run.draws >= wanted:
        return interrupted_check(run.draws, wanted, run.time_limit)
    return check(
        "patience", run.draws, wanted, False,
        f"A chain was at temperature 1 in only {run.draws} of {patience * wanted} looks.",
        "Learn the bias for longer (warmup=), or allow more looks (patience=).",
    )  # fmt: skip


def _mixing_checks(run: TactRun) -> list[Check]:
    """Check that the chains agree and that the dynamics went well."""
    dimension = run.z.shape[-1]
    picked = np.unique(np.linspace(0, dimension - 1, MOST_COORDINATES).astype(int))
    rate = max(r_hat(run.z[..., k]) for k in picked)
    size = min(effective_size(run.z[..., k], method="bulk") for k in picked)
    size = min(size, mode_size(run.pilot_columns))
    steps, rejected, resets = run.counts.sum(axis=0)
    return [
        check("r_hat", rate, 1.05, not rate > 1.05,
              f"The largest split R-hat of a coordinate is {rate:.3f}.", MORE),
        least("effective_size", size, 100,
              f"The least effective size of a coordinate or a mode's weight is {size:.0f}.", MORE),
        check("rejections", rejected / steps, 0.1, rejected <= 0.1 * steps,
              f"Stan rejected, or gave no finite number, in {rejected / steps:.1%} of the steps.",
              LOOK_FOR_REJECTIONS),
        check("resets", resets, 0, resets == 0,
              f"{resets:.0f} times the chain left for infinity and was set back.",
              "Shorten the step (step=), or add friction."),
    ]  # fmt: skip


def _tempering_checks(run: TactRun) -> list[Check]:
    """Check that ξ travels, and evenly, as it does once the bias has converged."""
    wall = run.method_settings["coupling"]["wall"]
    slowest = int(run.trips.min())
    bins = np.histogram(np.abs(run.trace[..., XI]), 10, (0, wall))[0] / run.trace[..., 0].size
    low, high = 10 * float(bins.min()), 10 * float(bins.max())
    longer = "Learn the bias for longer (warmup=)."
    return [
        least("plateau", run.plateau_share, 0.05,
              f"{run.plateau_share:.1%} of the time was spent at temperature 1.", longer),
        least("trips", slowest, 5,
              f"The slowest chain made {slowest} trips to high temperature and back.",
              f"{longer} Or run longer chains (draws=), or a longer tempering_step."),
        least("bias", low, 0.2,
              f"Tenths of the range of |ξ| were visited between {low:.2f} and {high:.2f} times "
              "their share.", longer),
    ]  # fmt: skip


def _thermostat_check(run: TactRun, name: str, column: int) -> Check:
    """Check that a thermostat settled at the mean implied by friction and noise."""
    found = run.trace[..., column]
    expected = float(run.thermostat_means[column - THERMOSTAT])
    own = float(found.std() / np.sqrt(effective_size(found)))
    error = float(np.hypot(own, run.thermostat_errors[column - THERMOSTAT]))
    gap = abs(float(found.mean()) - expected)
    missed = gap / expected if 0 < expected < np.inf else gap
    wanted = (
        f"where {expected:.4g} was expected"
        if np.isfinite(expected)
        else "but the noise of a step is more than any friction takes up"
    )
    return check(
        name, missed, MISSED, missed <= MISSED or gap <= 3 * error,
        f"The mean thermostat is {found.mean():.4g} ± {error:.2g}, {wanted}.",
        "Shorten the step (step=, tempering_step=) or take larger batches: the step is too long "
        "for this target or this noise.",
    )  # fmt: skip
