"""`PowerCopiesRun`: draws of copies that follow powers of the target, without log Z."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.estimates.copies import copy_log_weights, normalised
from stanct.path.bias import PowerBias
from stanct.runs.copies import CopyRun, largest_r_hat, mixing_checks
from stanct.runs.diagnostics import MORE, Check, interrupted_check, transition_checks
from stanct.runs.evidence_run import DrawsRun
from stanct.runs.storage import Stored
from stanct.runs.verdicts import most

# Share of the interval of β at each of its ends that counts as the bound, and the largest share of
# the time that copies may spend there.
END, MOST_AT_END = 0.05, 0.5
# Copies of an improper power drift away, and their distances never settle.
SETTLED = 1.1


@dataclass(frozen=True, kw_only=True, repr=False)
class PowerCopiesRun(DrawsRun, CopyRun):
    """Draws of copies whose instrument is a power of the target ([PE] 6, 7), N each.

    Attributes
    ----------
    log_density : shape (chains, draws, N)
        Log density −φ of every copy's unconstrained parameters, with all constants.
    bias
        log ζ, by which the target was divided, and the bounds of β.

    The other attributes are those of `CopyRun`: `beta` and `statistics`, and those of `Run`. The
    base is a choice of coordinates. There is no evidence, because the normalising constants of the
    powers are not known.
    """

    file_format: ClassVar[str] = "stanct power copies 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n k d", "beta": "c n k", "log_density": "c n k"
    }  # fmt: skip
    remedy: ClassVar[str] = (
        "Use instrument='path', the default of stanct.PseudoExtended, or another method."
    )

    log_density: Array = field(repr=False)
    bias: PowerBias = field(repr=False)

    @property
    def made_by(self) -> str:
        return f"{self.method} with instrument='target'"

    @property
    def copy_log_weights(self) -> Array:
        """Log weights of the copies at β = 1, shape (chains, draws, N), normalised in each draw.

        The weights are γ^(1 − β), those of [PE] 3 and 8. Where the β are estimated, the weights are
        averaged over the β given the copies.
        """
        return self._log_weights

    @cached_property
    def _log_weights(self) -> Array:
        fixed = self.method_settings["fixed_beta"]
        if fixed is not None:
            return copy_log_weights(-self.log_density, np.array(fixed), self.bias)
        return normalised(self.bias.log_weights_of(-self.log_density))

    def _copy_statistics(self) -> dict[str, Array]:
        return {"beta": self.beta, "log_density": self.log_density}

    def _checks(self) -> tuple[Check, ...]:
        wanted = self.settings["draws"]
        wider = "let their β be smaller (beta_bounds= or fixed_beta=)"
        return (
            interrupted_check(self.draws, wanted, self.time_limit),
            *mixing_checks(self, -self.log_density, "the log density", wider),
            *([] if self.method_settings["fixed_beta"] is not None else [_bounds_check(self)]),
            _instrument_check(self),
            *transition_checks(self.statistics, self.method_settings["max_depth"], self.method),
        )

    def _stored_arrays(self) -> dict[str, Array]:
        return super()._stored_arrays() | {
            "power": np.array([*self.bias.bounds, self.bias.log_zeta])
        }

    @classmethod
    def _restored(cls, stored: Stored) -> dict[str, Any]:
        power = stored.arrays["power"]
        if power.shape != (3,):
            raise ValueError("the array 'power' has not three numbers")
        low, high, log_zeta = map(float, power)
        return super()._restored(stored) | {"bias": PowerBias.between(log_zeta, (low, high))}


def _bounds_check(run: PowerCopiesRun) -> Check:
    """Check that the β of copies that are not the target's do not run to a bound."""
    low, high = run.bias.bounds
    others = 1 - np.exp(run.copy_log_weights)
    place = (run.beta - low) / (high - low)
    shares = [float((others * at).sum() / others.sum()) for at in (place < END, place > 1 - END)]
    upper = shares[1] > shares[0]
    direction, end, bound = ("larger", "highest", high) if upper else ("smaller", "lowest", low)
    return most(
        "beta_bounds", max(shares), MOST_AT_END,
        f"Copies that are not the target's have β in the {end} twentieth of [{low:g}, {high:g}] "
        f"for {max(shares):.0%} of the time: with g ∝ 1 their β has the density ∫γ^β dx.",
        f"Estimated β at the bound {bound:g} do little. Fix them (fixed_beta=), pass a base of "
        f"your own with a {direction} log_zeta=, or use instrument='path'.",
    )  # fmt: skip


def _instrument_check(run: PowerCopiesRun) -> Check:
    """Check that copies stay at some distance, as they do if the power is normalisable."""
    distance = np.log1p(np.square(run.z).sum(axis=3)).mean(axis=2)
    rate = largest_r_hat(distance[None])
    return most(
        "instrument", rate, SETTLED,
        f"The split R-hat of the distance of the copies from the base is {rate:.3f}.",
        f"If it stays large in longer runs, powers of this target are not normalisable. {MORE} Or "
        "use larger β (beta_bounds=, fixed_beta=), or instrument='path'.",
    )  # fmt: skip
