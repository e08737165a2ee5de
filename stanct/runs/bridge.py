"""`BridgeRun`: the draws of a fit made elsewhere, with the evidence by bridge sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import counted
from stanct.estimates.bridge import Bridge, by_importance, follow_parameters, swapped_evidence
from stanct.estimates.mixing import effective_size, r_hat
from stanct.estimates.path import Evidence
from stanct.estimates.tail import Tail
from stanct.path.base import Base
from stanct.runs.diagnostics import MOST_LOST, WHOLE, Check, agreement, check, weights_check
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.verdicts import least, most

ESCALATE = "Pass escalate=True (--escalate), which tempers from this fit."
MORE_DRAWS = "Fit again with more draws."
FIRST = "First see to the check `program`."
# An unseen share of the mass moves log Z by as much.
MOST_UNSEEN = 0.01
# The spread over reshuffled halves is part of the error bar. Where it is more than this many times
# the error of the delta method, that formula has failed.
MOST_SPREAD = 3
# NUTS at β = 1 should not diverge at all. A few in a thousand draws may be chance.
MOST_DIVERGENT = 0.002
# Written with six digits, draws give log densities back with errors well below this.
LP_TOLERANCE = 0.1
# lp__ itself is written with six digits.
LP_ROUNDING = 5e-6
PLAIN = "plain bridge"


@dataclass(frozen=True, kw_only=True, repr=False)
class BridgeRun(EvidenceRun):
    """Draws of the user's density from a fit made elsewhere, and log Z by bridge sampling.

    `evidence` is Warp-III (Meng & Schilling 2002): half of the draws fit a normal, the other half
    estimate, the halves swap roles, and the two estimates are averaged. All draws have the same
    weight. No gradient was taken, except by the search for modes that the fit has missed, for
    directions in which the density does not fall off, and at draws, to tell them from those of
    another density.

    Attributes
    ----------
    plain_ratio, warp_ratio : shape (2, chains, half the draws)
        log p − log q at the draws that estimate, for both roles of the halves: for the plain
        bridge, and for Warp-III in its mirrored coordinates. Natural log.
    plain_base_ratio, warp_base_ratio : shape (2, base draws)
        The same at draws of the normal; −inf where the target vanishes.
    reshuffled : shape (reshuffles,)
        log Z by Warp-III from halves made of random blocks of the same draws.
    log_density : shape (chains, draws)
        −φ at the draws, with all constants.
    lp : shape (chains, draws)
        The fit's own ``lp__``, which may differ from it by a constant, and is not finite where the
        fit does not tell; empty if the fit has none.

    The other attributes are those of `Run`.
    """

    file_format: ClassVar[str] = "stanct bridge 1"
    arrays: ClassVar[Mapping[str, str]] = {
        "z": "c n d", "plain_ratio": "2 c h", "plain_base_ratio": "2 b", "warp_ratio": "2 c h",
        "warp_base_ratio": "2 b", "reshuffled": "*", "log_density": "c n", "lp": "* *",
    }  # fmt: skip

    base: Base = field(repr=False)
    plain_ratio: Array = field(repr=False)
    plain_base_ratio: Array = field(repr=False)
    warp_ratio: Array = field(repr=False)
    warp_base_ratio: Array = field(repr=False)
    reshuffled: Array = field(repr=False)
    log_density: Array = field(repr=False)
    lp: Array = field(repr=False)

    @property
    def target_log_weights(self) -> Array:
        """Zeros, because all draws have the same weight."""
        return np.zeros((self.chains, self.draws))

    @cached_property
    def _warp(self) -> list[Bridge]:
        return [Bridge(*one) for one in zip(self.warp_ratio, self.warp_base_ratio, strict=True)]

    @cached_property
    def _plain(self) -> list[Bridge]:
        return [Bridge(*one) for one in zip(self.plain_ratio, self.plain_base_ratio, strict=True)]

    @property
    def reshuffled_spread(self) -> float:
        """Standard deviation of log Z over reshuffled halves; 0 without any."""
        return float(self.reshuffled.std(ddof=1)) if self.reshuffled.size > 1 else 0.0

    def _estimate(self) -> Evidence:
        return swapped_evidence(self._warp, f"{self.method}, Warp-III", self.reshuffled_spread)

    @cached_property
    def plain_evidence(self) -> Evidence:
        """log Z by the plain bridge between the draws and the normal (Meng & Wong 1996)."""
        return swapped_evidence(self._plain, f"{self.method}, {PLAIN}")

    def extra_estimates(self) -> dict[str, Evidence]:
        return {PLAIN: self.plain_evidence}

    def facts(self) -> dict[str, float]:
        return {
            "Pareto k of the draws": max(one.pareto_k[0] for one in self._warp),
            "Pareto k of the normal": max(one.pareto_k[1] for one in self._warp),
            "Spread over reshuffled halves": self.reshuffled_spread,
        }

    def _checks(self) -> tuple[Check, ...]:
        evidence, plain = self.bare_evidence, self.plain_evidence
        other = by_importance(self._warp) or (plain.log_z, plain.std_error)
        its = (
            "the plain bridge" if other[0] == plain.log_z else "importance sampling from its normal"
        )
        allowed = MOST_SPREAD * evidence.within_error + 0.01
        checks = (
            *self._fit_checks(),
            *self._unseen_checks(),
            _side_check("pareto_k", self._warp, 0, "draws", f"{MORE_DRAWS} {ESCALATE}"),
            _side_check("pareto_k_base", self._warp, 1, "draws of the normal", ESCALATE),
            least("effective_size", evidence.effective_size, 100,
                  f"log Z rests on {evidence.effective_size:.0f} effective draws.", MORE_DRAWS),
            most("std_error", evidence.std_error, 0.5,
                 f"The standard error of log Z is {evidence.std_error:.2g}; above 0.5 the normal "
                 "and the posterior hardly overlap, and the error itself is unknown.", ESCALATE),
            _gap_check("halves", [one.log_z for one in self._warp],
                       [float(np.hypot(*one.errors[:2])) for one in self._warp],
                       "Estimates with swapped halves", MORE_DRAWS),
            most("reshuffled", self.reshuffled_spread, allowed,
                 f"log Z varies by {self.reshuffled_spread:.2g} with which draws fit the normal.",
                 ESCALATE),
            _gap_check("estimators", [evidence.log_z, other[0]], [evidence.std_error, other[1]],
                       f"Warp-III and {its}",
                       f"These are draws of an approximation, or have not converged. {ESCALATE}"),
        )  # fmt: skip
        if all(one.passed for one in checks if one.name == "program"):
            return checks
        # Nothing else can be mended first, and to temper would hide that the data are others.
        return tuple(one if one.name == "program" else replace(one, remedy=FIRST) for one in checks)

    def _fit_checks(self) -> tuple[Check, ...]:
        """Check that the draws belong to the program, and that their chains agree."""
        lost = self.provenance["lost"]
        origin = f"the draws of {self.provenance['fit']}" if lost else "the fit's draws"
        without, remedy = "were left out", f"{WHOLE} Then bridge from all."
        if lost > self.provenance.get("lost_in_files", 0):
            without = "have no finite unconstrained value or density, or were left out"
            remedy = (
                "See that these are the fit's data, or write it with more digits (sig_figs=18)."
            )
        rate = max(map(r_hat, (self.log_density, *np.moveaxis(self.z, -1, 0))))
        alone = " within the only chain" * (self.chains == 1)
        moving = effective_size(self.log_density, method="bulk")
        checks = [
            most("lost", lost, MOST_LOST,
                 f"{lost:.1%} of {origin} {without}.", remedy),
            check("r_hat", rate, 1.05, not rate > 1.05,
                  f"Split R-hat of log density and parameters is up to {rate:.3f}{alone}.",
                  f"The chains of the fit have not converged. {MORE_DRAWS} {ESCALATE}"),
            least("mixing", moving, 100,
                  f"The fit's log densities are worth {moving:.0f} draws.",
                  f"Its chains move slowly. {MORE_DRAWS} {ESCALATE}"),
        ]  # fmt: skip
        score = self.provenance.get("score")
        # Where the density ends at an edge, draws of it miss −1 by what it is there.
        if score is not None and np.isfinite(self.plain_base_ratio).all():
            worst, limit = score["worst"], score["limit"]
            are = "are not" if worst > limit else "are, up to chance,"
            checks.append(
                most("score", worst, limit,
                     f"Gradients at the draws {are} those of a posterior, E[z ∂ log p] = −1 and "
                     f"the like: they are off by up to {worst:.1f} standard errors (limit "
                     f"{limit:.1f}).",
                     "These are draws of an approximation or of other data, or their chains have "
                     f"not converged. {ESCALATE}")
            )  # fmt: skip
        divergent = self.provenance["divergent"]
        if divergent is not None:
            checks.append(
                most("divergences", divergent, MOST_DIVERGENT,
                     f"{divergent:.2%} of the fit's transitions diverged.",
                     "A divergence says that chains turn back from a part of the posterior. Fit "
                     f"with adapt_delta=0.99 or in another form. {ESCALATE}")
            )  # fmt: skip
        told = np.isfinite(self.lp)
        if told.any():
            gaps = (self.log_density - self.lp)[told]
            gap = float(np.median(np.abs(gaps - np.median(gaps))))
            follows = follow_parameters(gaps, self.z[told])
            allowed = LP_ROUNDING * float(np.median(np.abs(self.lp[told])))
            rest = ", as the parameters do" * (follows and gap > allowed)
            checks.append(
                most("program", gap, allowed + (0.0 if follows else LP_TOLERANCE),
                     "The fit's lp__ less the program's log density should be constant, and varies "
                     f"by {gap:.2g}{rest}.",
                     "The fit is of another program or of other data: pass those of the fit.")
            )  # fmt: skip
        return tuple(checks)

    def _unseen_checks(self) -> tuple[Check, ...]:
        """Check whether a search found mass where the fit has no draws."""
        searched = self.provenance["search"]
        if searched is None:
            return ()
        gap = searched["log_mass"]
        share = 0.0 if gap is None else float(1 / (1 + np.exp(self.bare_evidence.log_z - gap)))
        return (
            most("unseen", share, MOST_UNSEEN,
                 f"{searched['ascents']} ascents from up to {searched['radius']:g} around the "
                 f"origin, and Pathfinder, found {share:.1%} of the mass where the fit has no "
                 "draws.",
                 f"The fit has missed a mode, so log Z is too low. {ESCALATE}"),
        )  # fmt: skip

    def _shape(self) -> str:
        return f"{counted(self.chains, 'chain')} of {self.draws} draws of {self.provenance['fit']}"


def _side_check(name: str, pair: list[Bridge], side: int, words: str, remedy: str) -> Check:
    """Check the tails of the terms on one side of the bridge."""
    tail = Tail(max(one.pareto_k[side] for one in pair), min(one.even_share for one in pair))
    terms = f"The bridge's terms at the {words}"
    return weights_check(name, tail, terms, f"A few of them dominate. {remedy}")


def _gap_check(
    name: str, log_z: list[float], errors: list[float], words: str, remedy: str
) -> Check:
    gap = abs(log_z[0] - log_z[1])
    verdict = agreement(gap if np.isfinite(gap) else np.inf, math.hypot(*errors))
    return check(name, *verdict, f"{words} differ by {gap:.3g}.", remedy)
