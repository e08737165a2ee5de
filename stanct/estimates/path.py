"""Evidence, free-energy curve and weighted moments from draws of a continuous path, with errors.

Two estimators of the curve log z(β) share one class, `PathEstimator`:

*Rao–Blackwell* ([GS] 20–22, generalised to a piecewise-linear bias) uses the draws of the tempered
chain alone: ẑ(β) e^{−b(β)} = Σ w_β / Σ w_0.

*Bridge* adds independent draws of the base, which cost one density evaluation each. It treats both
as one sample from the mixture s₀ q + s₁ q M / C (Meng & Wong 1996; Kong et al. 2003; Shirts &
Chodera 2008). C solves Σ_k s_k mean_k[1 / (s₀ + s₁ M/C)] = 1, and
ẑ(β) = Σ_k s_k mean_k[exp(−β δ) / (s₀ + s₁ M/C)]. The bridge is far better where the base reaches
into corners that the chain rarely visits, and it gives ẑ(0) = 1 exactly. Let S be the target's
support. If the target vanishes on part of the base, the bridge remains correct, while the
Rao–Blackwell ratio overstates Z by 1/q(S). Without base draws (s₁ = 1), the bridge is the
Rao–Blackwell estimator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError
from stanct.common.roots import root_between
from stanct.estimates.digits import decimals, log_z_in_words, shown
from stanct.estimates.mixing import effective_size
from stanct.estimates.tail import NO_TAIL, Tail
from stanct.estimates.tours import (
    Tours,
    batched_error,
    batches,
    effective_draws,
    effective_number,
    student_factor,
)
from stanct.path.bias import AnyBias, tempered
from stanct.path.course import Course
from stanct.work.blas import one_blas_thread

# Relative error of log densities, which are sums of many terms. A base that is the target leaves no
# other error.
ROUNDING = 1e-10


# δ this far above the median is as good as infinite: exp(−β δ) is 0 at every β of a grid but 0.
BEYOND = 1e12


@dataclass(frozen=True)
class Evidence:
    """An estimate of log Z with its error.

    Attributes
    ----------
    log_z
        Natural log of the normalising constant. This is the evidence if the program is a
        normalised joint density of data and parameters.
    std_error
        Standard error of `log_z`: the larger of the within-chain and the between-chain error of the
        tempered chains, combined in quadrature with that of the base draws. No error falls below
        that of rounding, 10⁻¹⁰ times 1 + the size of log Z. On a ladder, the within-chain error
        comes from tours, the stretches between independent draws of the base.
    method
        Sampler and estimator, e.g. ``"joint, bridge"``.
    within_error, between_error
        The within-chain and between-chain errors; `between_error` is NaN for a single chain.
    effective_size
        Effective number of draws behind `log_z`, over all chains.
    pareto_k
        Tail shape of the weights at β = 1, or of the terms that the estimate averages; NaN where
        there are none. Above 0.7 the error is unreliable, unless the weights are even; see `tail`.
    chain_log_z : shape (chains,)
        The estimate from each chain alone.
    warnings
        Names of the diagnostics that failed. `run.diagnostics` has their remedies.
    weight_share
        Effective share of the draws that these weights use, from 0 to 1; NaN where unknown.
    unknown
        Why there is no log Z, in words; then `log_z` and its errors are NaN, and
        `EvidenceRun.bare_evidence` has what the draws gave. Empty otherwise.
    within
        Where mass was looked for, in words, if the error is below all digits that are shown: such
        an error tells nothing of mass elsewhere.
    of
        What `log_z` is the log of: ``"Z"``, or the ratio of two programs' normalising constants.
    """

    log_z: float
    std_error: float
    method: str
    within_error: float
    between_error: float
    effective_size: float
    pareto_k: float
    chain_log_z: tuple[float, ...]
    warnings: tuple[str, ...] = ()
    weight_share: float = float("nan")
    unknown: str = ""
    within: str = ""
    of: str = "Z"

    part_names: ClassVar[tuple[str, str, str]] = ("within chains", "between chains", "base")
    """What `within_error`, `between_error` and `base_error` are called."""

    @classmethod
    def from_chains(
        cls, log_z: float, by_chain: Array, method: str, *, within: float, size: float,
        between: float | None = None, base: float = 0.0, tail: Tail = NO_TAIL, rounded: bool = True,
    ) -> Self:  # fmt: skip
        """The estimate with the errors of its parts, and the estimates from single chains.

        The error `between` chains is by default that of `by_chain`. The whole error is at least
        that of rounding, if it is `rounded`.
        """
        between = float(between_error(by_chain)) if between is None else between
        error = float(np.hypot(np.fmax(within, between), base))
        return cls(
            log_z=float(log_z),
            std_error=with_rounding(error, log_z) if rounded else error,
            method=method,
            within_error=float(within),
            between_error=between,
            effective_size=size,
            pareto_k=tail.shape,
            chain_log_z=tuple(float(value) for value in by_chain),
            weight_share=tail.share,
        )

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval log Z ± 1.96 standard errors."""
        return self.log_z - 1.96 * self.std_error, self.log_z + 1.96 * self.std_error

    @property
    def in_words(self) -> str:
        """log Z ± standard error, with at least two digits of the error, or why there is none."""
        where = f" {self.within}" if self.within else ""
        return self.unknown or f"{log_z_in_words(self.log_z, self.std_error, self.of)}{where}"

    @property
    def _interval_in_words(self) -> str:
        low, high = (f"{end:.{decimals(self.std_error) - 1}f}" for end in self.interval)
        return f"(95 %: {low} to {high})"

    def __repr__(self) -> str:
        doubt = f"\n  warnings: {', '.join(self.warnings)}" if self.warnings else ""
        if self.unknown:
            return f"{self.unknown}\n  {self.method}{doubt}"
        # Chains that stayed where they began look well mixed.
        stuck = "round_trips" in self.warnings
        size = "" if stuck else f"effective size {self.effective_size:.0f}"
        facts = ", ".join(fact for fact in (size, self.tail.in_words) if fact)
        parts = ", ".join(f"{name} {value}" for name, value in self._parts_in_words)
        return (
            f"{self.in_words}   {self._interval_in_words}\n"
            f"  standard error: {parts}\n"
            f"  {self.method}{'; ' if facts else ''}{facts}{doubt}"
        )

    @property
    def tail(self) -> Tail:
        """`pareto_k` and `weight_share`, with the rule that says whether they matter."""
        return Tail(self.pareto_k, self.weight_share)

    @property
    def base_error(self) -> float:
        """The part of `std_error` that is due neither to chains nor to autocorrelation."""
        if np.isinf(self.std_error):
            return float("inf")
        chains = float(np.fmax(self.within_error, self.between_error))
        # Squares of errors may be too large for a number.
        difference = max(self.std_error - chains, 0.0)
        return float(np.sqrt(difference) * np.sqrt(self.std_error + chains))

    @property
    def _parts_in_words(self) -> list[tuple[str, str]]:
        """Names and values of the parts of `std_error`; a single chain has no second part."""
        places = decimals(self.std_error)
        values = self.within_error, self.between_error, self.base_error
        return [
            (name, shown(value, places))
            for name, value in zip(self.part_names, values, strict=True)
            if not np.isnan(value)
        ]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in self._parts_in_words
        )
        doubt = f"<p>Warnings: {', '.join(self.warnings)}</p>" if self.warnings else ""
        if self.unknown:
            return f"<p><b>{self.unknown}</b>; {self.method}</p>{doubt}"
        return (
            f"<p><b>{self.in_words}</b> {self._interval_in_words}; {self.method}</p>{doubt}"
            f"<table><caption>Standard error</caption><tbody>{rows}</tbody></table>"
        )


@dataclass(frozen=True)
class Curve:
    """The free-energy curve log z(β).

    Attributes
    ----------
    beta, log_z, std_error : shape (points,)
        log z(0) = 0 and log z(1) = log Z.
    """

    beta: Array
    log_z: Array
    std_error: Array

    def __repr__(self) -> str:
        slope = float(np.diff(self.log_z)[0] / np.diff(self.beta)[0])
        return (
            f"Curve of {self.beta.size} points: log z(1) = {self.log_z[-1]:.4f} ± "
            f"{self.std_error[-1]:.4f}, deepest slope {slope:.3g} at β = 0"
        )


@dataclass(frozen=True)
class PathEstimator:
    """Estimates everything along the path from draws of one frozen tempered chain.

    δ = φ − ψ of the draws, shape (chains, draws), is +inf only at β = 0. That of independent draws
    of the base, shape (base draws,), is +inf where the target vanishes, and empty for the
    Rao–Blackwell estimator; so many of them in a row are balanced (`MixtureBase.draw`), a `batch`.
    If the chain regenerates, its error is at least that of the totals of its `tours`, and wider
    where few of them make it up. Errors of balanced draws are those of the totals of batches.
    """

    delta: Array
    base_delta: Array
    bias: AnyBias
    tours: Tours | None = None
    batch: int = 1

    @cached_property
    def log_mass(self) -> Array:
        """Log M of every draw, shape (chains, draws)."""
        return self.bias.log_mass(self.delta)

    @cached_property
    def _base_log_mass(self) -> Array:
        return self.bias.log_mass(self.base_delta)

    @cached_property
    def share(self) -> float:
        """s₁, the tempered chain's share of the mixture, by effective number of draws."""
        size = effective_size(self.log_mass, method="bulk")
        return size / (size + self.base_delta.size)

    @cached_property
    def log_c(self) -> float:
        """Log C = log ∫ z(β) exp(−b(β)) dβ, the normaliser of the joint density."""
        return self._solve_log_c(self.log_mass)

    def _solve_log_c(self, log_mass: Array, near: float | None = None) -> float:
        if self.base_delta.size == 0:
            return float(np.log(log_mass.size) - log_sum_exp(-log_mass))

        def excess(log_c: float) -> float:
            chain = np.exp(self._log_g(log_mass, log_c)).mean()
            base = np.exp(self._log_g(self._base_log_mass, log_c)).mean()
            return self.share * chain + (1 - self.share) * base - 1

        finite = self._base_log_mass[np.isfinite(self._base_log_mass)]
        everything = np.concatenate([log_mass.ravel(), finite])
        if near is not None and excess(near - 1) * excess(near + 1) < 0:
            return root_between(excess, near - 1, near + 1, tolerance=1e-6)
        return root_between(excess, everything.min() - 60, everything.max() + 60, tolerance=1e-12)

    def _log_g(self, log_mass: Array, log_c: float) -> Array:
        """Log of 1 / (s₀ + s₁ M/C), one over the mixture's density relative to the base."""
        if self.base_delta.size == 0:
            return log_c - log_mass
        return -np.logaddexp(np.log1p(-self.share), np.log(self.share) + log_mass - log_c)

    def log_z(self, beta: float) -> float:
        """The estimate of log z(β) from all draws."""
        return self._log_z(beta, self.delta, self.log_mass, self.log_c)

    def _log_z(self, beta: float, delta: Array, log_mass: Array, log_c: float) -> float:
        log_h = tempered(beta, delta) + self._log_g(log_mass, log_c)
        chain = log_sum_exp(log_h) - np.log(delta.size)
        if self.base_delta.size == 0:
            return float(chain)
        base = log_sum_exp(self._base_log_h(beta, log_c)) - np.log(self.base_delta.size)
        return float(np.logaddexp(np.log(self.share) + chain, np.log1p(-self.share) + base))

    def _base_log_h(self, beta: float, log_c: float) -> Array:
        return tempered(beta, self.base_delta) + self._log_g(self._base_log_mass, log_c)

    def chain_log_z(self, beta: float = 1.0) -> Array:
        """log z(β) from each chain alone, with all base draws, shape (chains,)."""
        parts = zip(self.delta, self.log_mass, self._chain_log_c, strict=True)
        return np.array([self._log_z(beta, *part) for part in parts])

    @cached_property
    def _chain_log_c(self) -> list[float]:
        return [self._solve_log_c(log_mass) for log_mass in self.log_mass]

    def running_log_z(self, ends: Sequence[int]) -> Array:
        """log Z from the first draws of each chain alone, shape (chains, ends)."""
        return np.array([
            [self._log_z(1.0, d[:n], m[:n], self._solve_log_c(m[:n], self.log_c)) for n in ends]
            for d, m in zip(self.delta, self.log_mass, strict=True)
        ])  # fmt: skip

    def influence(self, beta: float) -> tuple[Array, Array]:
        """First-order contribution to log ẑ(β), shapes (chains, draws) and (base draws,).

        With h = exp(−β δ) g, g = 1 / (s₀ + s₁ M/C), A = E_mix[g² s₁ M/C] and B = E_mix[h g s₁ M/C]
        / ẑ, the contribution of a draw of sample k is s_k (h/ẑ − (B/A) g). For the Rao–Blackwell
        estimator, this is w_β/mean(w_β) − w_0/mean(w_0). The variances of the means of both add up
        to that of log ẑ(β).
        """
        log_zeta, log_share = self.log_z(beta), np.log(self.share)
        log_g = self._log_g(self.log_mass, self.log_c)
        h = np.exp(tempered(beta, self.delta) + log_g - log_zeta)
        mixed = np.exp(log_g + log_share + self.log_mass - self.log_c)  # g s₁ M/C, in [0, 1]
        g = np.exp(log_g)
        a, b = self.share * (g * mixed).mean(), self.share * (h * mixed).mean()
        if self.base_delta.size == 0:
            return h - (b / a) * g, np.zeros(0)
        base_log_g = self._log_g(self._base_log_mass, self.log_c)
        base_h = np.exp(self._base_log_h(beta, self.log_c) - log_zeta)
        base_g = np.exp(base_log_g)
        base_mixed = np.exp(base_log_g + log_share + self._base_log_mass - self.log_c)
        rest = 1 - self.share
        a += rest * (base_g * base_mixed).mean()
        b += rest * (base_h * base_mixed).mean()
        return self.share * (h - (b / a) * g), rest * (base_h - (b / a) * base_g)

    def error(self, beta: float) -> tuple[float, float, float]:
        """Standard errors of log ẑ(β): of the tempered chains within, and of the base draws.

        The third number is the effective number of draws behind the first error. They are ∞, ∞ and
        0 if chains and base do not overlap.
        """
        with np.errstate(all="ignore"):
            chain, base = self.influence(beta)
        # Without overlap of chains and base, the ratio of their normalisers is unknown.
        if not (np.isfinite(chain).all() and np.isfinite(base).all()):
            return np.inf, np.inf, 0.0
        size, base_error = effective_draws(chain, self.tours), 0.0
        with np.errstate(over="ignore"):  # influences of runs that must fail may be that large
            if base.size:
                base_error = base.std() / np.sqrt(base.size)
                base_error *= student_factor(effective_number(np.square(base)))
                own = None if self.batch == 1 else batches(base.size, self.batch)
                base_error = min(base_error, batched_error(base[None], own))
            chain_error = chain.std() / np.sqrt(size)
        if self.tours is not None:
            chain_error = self.tours.widened(chain, float(chain_error))
        return float(chain_error), float(base_error), size

    @cached_property
    def effective_tours(self) -> float | None:
        """Effective number of tours behind the chains' error of log Z; None without tours."""
        with np.errstate(all="ignore"):
            chain = self.influence(1.0)[0]
        if self.tours is None or not np.isfinite(chain).all():
            return None
        return self.tours.effective(chain)

    def _weighted_deltas(self) -> tuple[Array, Array]:
        """Log weights that turn all draws into draws of the base, and their δ."""
        share = self.share if self.base_delta.size else 1.0
        log_g = self._log_g(self.log_mass, self.log_c).ravel()
        delta, log_g = self.delta.ravel(), log_g + np.log(share / log_g.size)
        if self.base_delta.size:
            base = self._log_g(self._base_log_mass, self.log_c)
            log_g = np.append(log_g, base + np.log((1 - share) / base.size))
            delta = np.append(delta, self.base_delta)
        return log_g, delta

    def course(self, beta: Array) -> Course:
        """The path at a grid of β; z(0) = 1 even if the target vanishes somewhere."""
        found = Course.weighted(beta, *self._weighted_deltas())
        return replace(found, log_z=np.array([self.log_z(b) for b in beta]))

    @one_blas_thread()
    def delta_moments(self, beta: Array) -> tuple[Array, Array]:
        """Mean and variance of δ at each value of `beta`, on the target's support.

        Draws whose δ is farther than `BEYOND` from the median count as outside. They have no weight
        where β is not 0, and at β = 0 one of them would decide both moments alone. The mean is −d
        log z/dβ. The square root of the variance is the speed of the path, whose integral over β is
        the thermodynamic length. Raises `SamplingError` if the target vanishes at all draws.
        """
        log_g, delta = self._weighted_deltas()
        finite = delta[np.isfinite(delta)]
        inside = np.abs(delta - (np.median(finite) if finite.size else 0.0)) < BEYOND
        delta, log_g = delta[inside], log_g[inside]
        if not delta.size:
            raise SamplingError("The target vanishes, or is rejected, at all draws of the path.")
        moments = np.empty((2, len(beta)))
        for k, b in enumerate(beta):
            log_weights = log_g - b * delta
            weights = np.exp(log_weights - log_weights.max())
            weights /= weights.sum()
            mean = weights @ delta
            moments[:, k] = mean, weights @ np.square(delta - mean)
        return moments[0], moments[1]

    def evidence(self, method: str) -> Evidence:
        """log Z = log z(1) with its error, labelled with the sampler's name."""
        within, base, size = self.error(1.0)
        estimator = "bridge" if self.base_delta.size else "Rao–Blackwell"
        return Evidence.from_chains(
            self.log_z(1.0), self.chain_log_z(), f"{method}, {estimator}",
            within=within, base=base, size=size, tail=Tail.of(self.log_weights(1.0)),
        )  # fmt: skip

    def curve(self, beta: Array) -> Curve:
        """log z at each value of `beta`, shape (points,), with errors as in `evidence`."""
        beta = np.asarray(beta, float)
        log_z, errors = np.array([self.log_z(b) for b in beta]), []
        for b, value in zip(beta, log_z, strict=True):
            within, base, _ = self.error(b)
            between = between_error(self.chain_log_z(b))
            errors.append(with_rounding(float(np.hypot(np.fmax(within, between), base)), value))
        return Curve(beta, log_z, np.array(errors))

    def log_weights(self, beta: float) -> Array:
        """Rao–Blackwell log weights of the draws at `beta`, shape (chains, draws), unnormalised."""
        return self.bias.log_weights(self.delta, beta, self.log_mass)


def with_rounding(error: float, log_z: float) -> float:
    """The error of log Z, together with that of rounding.

    Nothing is lost by rounding where base and target are one at β = 0.
    """
    return float(np.hypot(error, ROUNDING * (1 + abs(log_z)) if log_z else 0.0))


def between_error(by_chain: Array) -> Array:
    """Standard error of the mean of chains' estimates, shape (chains, ...); NaN for one chain."""
    count = by_chain.shape[0]
    if count < 2:
        return np.full(by_chain.shape[1:], np.nan)[()]
    with np.errstate(invalid="ignore"):  # of a chain that never met the target
        return by_chain.std(axis=0, ddof=1) / np.sqrt(count)
