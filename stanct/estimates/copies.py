"""The evidence from the copies of a pseudo-extended chain and independent draws of the base.

Given which copy is the target's, the others are independent draws of the tempered path ([PE] 8).
Where the β are estimated, each copy is the target's equally often. A copy picked at random then has
density π/N + (1 − 1/N) q M/C, which is a known mixture of the target and the path. Together with
draws of the base, the copies are a sample from s₀ q + s₁ (that mixture). Its unknown constants
Z and C solve

    E[(f_k / c_k) / D] = 1,   D = s₀ + s₁ Σ_k p_k f_k / c_k,

with f = exp(−δ) for the target and f = M for the path, all relative to the base (Kong et al. 2003;
Shirts & Chodera 2008). Each fixed β_i gives one state f_i = exp(−β_i δ), and copy i is then the
target's with probability ∝ exp(b(β_i)) / c_i. Neither [PE] nor its code estimates Z.

Where copies and base share no region, any c solves these equations, up to rounding. Z is then a
number without a meaning, which only `CopyEstimator.overlap` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Evidence
from stanct.estimates.tail import Tail
from stanct.path.bias import CopyBias
from stanct.path.course import Course

# Steps of the plain iteration, which cannot diverge, before Newton's method takes over.
PLAIN_STEPS = 100
# Largest excess of an equation that counts as solved.
UNSOLVED = 1e-6
# With less overlap, rounding decides which numbers solve the equations.
NO_OVERLAP = 1e-8
# Quantiles of δ along the path at which copies are compared with draws of the base.
SHARES = (0.1, 0.5, 0.75, 0.9, 0.97)


def copy_log_weights(delta: Array, beta: Array, bias: CopyBias) -> Array:
    """Log weights of the copies at β = 1, ∝ −(1 − β) δ + b(β), normalised in each draw ([PE] 3, 8).

    δ, shape (chains, draws, N), is +inf only for a copy at β = 0 where the target vanishes, whose
    weight is zero.
    """
    tempered = np.where(beta < 1, (1 - beta) * np.where(beta < 1, delta, 0.0), 0.0)
    return normalised(bias(beta) - tempered)


def normalised(log_weights: Array) -> Array:
    """Log weights of copies, shape (chains, draws, N), that add up to one in each draw."""
    return log_weights - log_sum_exp(log_weights, axis=2)[..., None]


@dataclass(frozen=True)
class CopyEstimator:
    """Estimates log Z from all copies of a frozen pseudo-extended chain and draws of the base.

    δ, shape (chains, draws, N), is +inf for a copy at fixed β = 0 where the target vanishes, and so
    is `base_delta`, shape (base draws,). `fixed_beta`, shape (N,), is None if the β were estimated.
    """

    delta: Array
    base_delta: Array
    bias: CopyBias
    fixed_beta: Array | None = None

    @property
    def copies(self) -> int:
        """N, the number of copies."""
        return self.delta.shape[2]

    def _log_states(self, delta: Array) -> Array:
        """log f_k relative to the base, shape (states, *delta.shape); the target is the first."""
        if self.fixed_beta is None:
            return np.stack([-delta, self.bias.of_the_path.log_mass(delta)])
        # At β = 0, the product −0·inf must count as 0 instead of NaN.
        path = [-beta * delta if beta > 0 else np.zeros_like(delta) for beta in self.fixed_beta]
        return np.stack([-delta, *path])

    @cached_property
    def log_weights(self) -> Array:
        """Log weights of the copies at β = 1, shape (chains, draws, N), normalised in each draw.

        The weights are those of [PE] 3 and 8. Where β was estimated, they are averaged over the
        β given all copies, ∝ −δ − log M(δ). The averages stay the same, with less noise.
        """
        if self.fixed_beta is not None:
            return copy_log_weights(self.delta, self.fixed_beta, self.bias)
        return normalised(self.bias.of_the_path.log_weights(self.delta, 1.0))

    @cached_property
    def _chain_states(self) -> Array:
        return self._log_states(self.delta)

    @cached_property
    def _base_states(self) -> Array:
        return self._log_states(self.base_delta)

    @cached_property
    def share(self) -> float:
        """s₁, the copies' share of the mixture with the base, by effective number of draws."""
        size = sum(
            effective_size(self.bias.of_the_path.log_mass(np.minimum(copy, 1e6)), method="bulk")
            for copy in np.moveaxis(self.delta, 2, 0)
        )
        return float(size / (size + self.base_delta.size))

    def _log_shares(self, log_c: Array) -> Array:
        """log p_k, each state's share among the copies, shape (states,)."""
        if self.fixed_beta is None:
            return -np.log(self.copies) + np.array([0.0, np.log(self.copies - 1)])
        log_chosen = self.bias(self.fixed_beta) - log_c[1:]
        chosen = np.exp(log_chosen - log_sum_exp(log_chosen))
        return np.log(np.append(1.0, np.maximum(1 - chosen, 1e-300))) - np.log(self.copies)

    def _log_mixture(self, states: Array, log_c: Array) -> Array:
        """log D at the draws of `states`, without their first axis."""
        scaled = np.moveaxis(states, 0, -1) - log_c + self._log_shares(log_c)
        mixed = np.log(self.share) + log_sum_exp(scaled, axis=-1)
        return np.logaddexp(np.log1p(-self.share), mixed)

    def _ratios(self, states: Array, log_c: Array) -> Array:
        """(f_k / c_k) / D at the draws of `states`, same shape."""
        log_d = self._log_mixture(states, log_c)
        return np.exp(np.moveaxis(np.moveaxis(states, 0, -1) - log_c, -1, 0) - log_d)

    def _excess(self, states: Array, log_c: Array) -> Array:
        """E[(f_k / c_k) / D] − 1, which vanishes at the estimate, shape (states,)."""
        chain = self._ratios(states, log_c).reshape(log_c.size, -1).mean(axis=1)
        base = self._ratios(self._base_states, log_c).mean(axis=1)
        return self.share * chain + (1 - self.share) * base - 1

    def _solve(self, states: Array) -> Array:
        """log c of every state; NaN if the equations have no solution."""
        beta = [1.0] if self.fixed_beta is None else [1.0, *self.fixed_beta]
        log_c = np.append(self.bias(np.array(beta)), [0.0] if self.fixed_beta is None else [])
        # Without overlap a step may leave the range of numbers, and the result is not finite.
        with np.errstate(all="ignore"):
            for _ in range(PLAIN_STEPS):
                step = np.log1p(self._excess(states, log_c))
                log_c = log_c + step
                if np.abs(step).max() < 0.01:
                    break
            from scipy.optimize import root  # takes .1 s to load

            found = root(lambda value: self._excess(states, value), log_c, tol=1e-10)
        solved = np.isfinite(found.x).all() and (
            found.success or np.abs(found.fun).max() <= UNSOLVED
        )
        return np.asarray(found.x) if solved else np.full(log_c.shape, np.nan)

    @cached_property
    def log_c(self) -> Array:
        """Log normalising constants of target and path, shape (states,). The first is log Z."""
        return self._solve(self._chain_states)

    @cached_property
    def overlap(self) -> float:
        """How well base, path and target are connected, between 0 and 1; 0 without a solution.

        This is 1 − λ₂ of the overlap matrix O_ij = s_j E[f_i f_j / (c_i c_j D²)], whose rows are
        the chances to find a draw of state i again in state j (Klimovich, Shirts & Mobley 2015).
        """
        if np.isnan(self.log_c).any():
            return 0.0
        shares = np.append(1 - self.share, self.share * np.exp(self._log_shares(self.log_c)))
        matrix = np.zeros((shares.size, shares.size))
        sides = ((self.share, self._chain_states), (1 - self.share, self._base_states))
        for side, states in sides:
            log_d = self._log_mixture(states, self.log_c)
            terms = np.concatenate([np.exp(-log_d)[None], self._ratios(states, self.log_c)])
            scaled = np.sqrt(shares)[:, None] * terms.reshape(shares.size, -1)
            matrix += side / scaled.shape[1] * scaled @ scaled.T
        return float(1 - np.linalg.eigvalsh(matrix)[-2])

    @cached_property
    def path_scores(self) -> Array:
        """How copies off the target and draws of the base differ in δ, in standard errors.

        One copy of a draw follows the target, and is i with probability w_i. The others follow the
        path's marginal q M, independently, if the chain does what it should. Draws of the base
        with weights M(δ) follow it in any case. The shares above some quantiles of δ, `SHARES`, are
        compared. Empty where copies have different fixed β.
        """
        if self.fixed_beta is not None and np.ptp(self.fixed_beta) > 0:
            return np.zeros(0)
        log_m = self._base_states[1]
        by_base = np.exp(log_m - log_m.max())
        order = np.argsort(self.base_delta)
        below = by_base[order].cumsum() / by_base.sum()
        off = 1 - np.exp(self.log_weights)
        scores = []
        for share in SHARES:
            limit = self.base_delta[order][np.searchsorted(below, share)]
            above = self.base_delta > limit
            expected = float(by_base[above].sum() / by_base.sum())
            base_error = float(
                np.sqrt(np.square(by_base * (above - expected)).sum()) / by_base.sum()
            )
            found = (off * (self.delta > limit)).sum(axis=2) / (self.copies - 1)
            error = float(found.std() / np.sqrt(max(effective_size(found), 1.0)))
            gap, error = float(found.mean()) - expected, float(np.hypot(error, base_error))
            scores.append(gap / error if error > 0 else 0.0)
        return np.array(scores)

    @property
    def connected(self) -> bool:
        """Whether copies and base overlap at all, so that log Z is more than rounding."""
        return self.overlap > NO_OVERLAP

    @cached_property
    def chain_log_z(self) -> Array:
        """log Z from each chain alone, with all base draws, shape (chains,); NaN if unsolved."""
        return np.array([self._solve(self._chain_states[:, c])[0] for c in range(len(self.delta))])

    @cached_property
    def influence(self) -> tuple[Array, Array]:
        """First-order contribution of each draw to log Ẑ, shapes (chains, draws) and (draws,).

        With J the derivative of the equations with respect to log c, the contribution is the first
        row of −J⁻¹ times the terms of the equations. The copies of a draw count together.
        """
        step = 1e-5
        columns = [
            self._excess(self._chain_states, self.log_c + e)
            - self._excess(self._chain_states, self.log_c - e)
            for e in step * np.eye(self.log_c.size)
        ]
        row = -np.linalg.inv(np.array(columns).T / (2 * step))[0]
        chain = self._ratios(self._chain_states, self.log_c).mean(axis=-1)
        base = self._ratios(self._base_states, self.log_c)
        return (
            self.share * np.einsum("k,kcd->cd", row, chain),
            (1 - self.share) * np.einsum("k,kd->d", row, base),
        )

    def course(self, beta: Array) -> Course:
        """The path at a grid of β."""
        parts = (
            (self.share, self.delta.ravel(), self._log_mixture(self._chain_states, self.log_c)),
            (1 - self.share, self.base_delta, self._log_mixture(self._base_states, self.log_c)),
        )
        delta = np.concatenate([values for _, values, _ in parts])
        log_weight = np.concatenate(
            [np.log(share / values.size) - log_d.ravel() for share, values, log_d in parts]
        )
        return Course.weighted(beta, log_weight, delta)

    def evidence(self, method: str) -> Evidence:
        """log Z with its error, labelled with the sampler's name.

        Without overlap log Z is NaN, and its error infinite.
        """
        method, by_chain = f"{method}, bridge", self.chain_log_z
        if not self.connected:
            none = {"within": np.inf, "between": np.inf, "size": 0.0, "tail": Tail(np.inf, 0.0)}
            return Evidence.from_chains(np.nan, by_chain, method, rounded=False, **none)
        chain, base = self.influence
        size = effective_size(chain)
        with np.errstate(divide="ignore"):
            tail = Tail.of(np.log(self._ratios(self._chain_states, self.log_c)[0]))
        return Evidence.from_chains(
            self.log_c[0], by_chain, method, within=float(chain.std() / np.sqrt(size)),
            between=np.inf if np.isnan(by_chain).any() else None, size=size, tail=tail,
            base=float(base.std() / np.sqrt(base.size)), rounded=False,
        )  # fmt: skip
