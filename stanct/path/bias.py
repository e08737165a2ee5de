"""The bias b(β) of the path from base (β = 0) to target (β = 1), and exact results given x.

The joint density of every continuous tempering method is

    p(x, β) ∝ exp(−β φ(x) − (1 − β) ψ(x) − b(β)),   β ∈ [0, 1],

with φ the negative log density of the target and ψ that of the normalised base. Given x, only
δ(x) = φ(x) − ψ(x) matters. With M(x) = ∫₀¹ exp(−β δ − b(β)) dβ, the marginal of x is q(x) M(x) / C.
The Rao–Blackwell weight of a draw at any β is exp(−β δ − b(β)) / M(x) (Graham & Storkey 2017,
equations 17 and 20, for the linear bias b(β) = β log ζ; here b is piecewise linear).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError, StanctError

# Below this |r|, log((1 − e^{−r}) / r) is computed from its series, with error r⁴/2880.
_SERIES = 1e-3
# The least β that is no atom.
SMALLEST = 1e-300
ATOM = 0.05
"""Share of the draws at β = 0 in methods that have an atom there, unless the user sets another."""


@dataclass(frozen=True)
class _Table:
    """Values of a bias at knots from β = 0 to 1."""

    beta: Array
    value: Array

    def __post_init__(self) -> None:
        beta, value = _knots(self.beta, self.value)
        object.__setattr__(self, "beta", beta)
        object.__setattr__(self, "value", value)

    @property
    def log_zeta(self) -> float:
        """b(1), the guess at log Z."""
        return float(self.value[-1])

    def __call__(self, beta: Array | float) -> Array:
        """b at any β in [0, 1], linear between the knots, of the same shape as `beta`."""
        return np.asarray(np.interp(beta, self.beta, self.value))


@dataclass(frozen=True)
class Bias(_Table):
    """A piecewise-linear bias b(β) with b(0) = 0; two knots give the linear bias β log ζ.

    The best choice is b(β) = log z(β), under which β is uniform ([GS] 19, 23).

    Parameters
    ----------
    beta : shape (K,)
        Knots, increasing from 0 to 1.
    value : shape (K,)
        b at the knots, natural log.
    atom
        p₀, the weight of an atom at β = 0 against all other β. With it, dβ becomes
        p₀ δ₀(dβ) + (1 − p₀) dβ, and M(x) becomes p₀ + (1 − p₀) M(x). A chain that draws x afresh
        from the base at the atom regenerates there.
    """

    atom: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.atom < 1:
            raise StanctError(f"The weight of an atom lies in [0, 1), and {self.atom!r} does not.")

    @classmethod
    def through(cls, knots: Sequence[tuple[float, ...]]) -> Bias:
        """The bias through pairs (β, b)."""
        beta, value = np.array(knots, float).T
        return cls(beta, value)

    @classmethod
    def linear(cls, log_zeta: float) -> Bias:
        """The linear bias β log ζ, with log ζ a guess at log Z."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, log_zeta]))

    def log_mass(self, delta: Array) -> Array:
        """Log M(x) = log ∫₀¹ exp(−β δ(x) − b(β)) dβ, exact on every linear piece.

        Where the target vanishes, δ = +inf, it is −inf, or log p₀. δ has any shape.
        """
        return self._with_atom(self._log_path_mass(delta))

    def _with_atom(self, log_mass: Array) -> Array:
        if not self.atom:
            return log_mass
        return np.logaddexp(np.log(self.atom), np.log1p(-self.atom) + log_mass)

    def _log_path_mass(self, delta: Array) -> Array:
        delta = np.asarray(delta, float)
        finite = np.isfinite(delta)
        safe = np.where(finite, delta, 0.0)
        at_knots = -self.beta * safe[..., None] - self.value
        pieces = log_integrals(self.beta, at_knots)
        return np.where(finite, log_sum_exp(pieces, axis=-1), np.where(delta > 0, -np.inf, np.nan))

    def atom_shares(self, delta: Array) -> Array:
        """The probability p₀ / M(x) of the atom given x, of the shape of `delta`."""
        if not self.atom:
            return np.zeros(np.shape(delta))
        return np.exp(np.log(self.atom) - self.log_mass(delta))

    def log_weights(self, delta: Array, beta: float, log_mass: Array | None = None) -> Array:
        """Log w_β = −β δ − b(β) − log M, the Rao–Blackwell weight of each draw at `beta`.

        δ, of any shape, is finite, as for every draw of a tempered chain. `log_mass` is log M, if
        it is known.
        """
        mass = self.log_mass(delta) if log_mass is None else log_mass
        return tempered(beta, delta) - self(beta) - mass

    def sample_beta(self, delta: Array, uniforms: Array) -> Array:
        """Draw β given x exactly, by inversion ([GS] 17 for the linear bias).

        The first uniform picks the atom or a linear piece by its mass. The second picks a point
        inside the piece, where the density is a truncated exponential. `uniforms` are two, on [0,
        1), for each δ, which is +inf only with an atom.
        """
        if self.atom:
            share = self.atom_shares(delta)
            there = uniforms[0] < share
            rest = np.where(there, 0.5, (uniforms[0] - share) / np.where(there, 1, 1 - share))
            inside = np.where(np.isfinite(delta), delta, 0.0)
            plain = Bias(self.beta, self.value)
            elsewhere = plain.sample_beta(inside, np.array([rest, uniforms[1]]))
            return np.where(there, 0.0, np.maximum(elsewhere, SMALLEST))
        delta = np.asarray(delta, float)
        at_knots = -self.beta * delta[..., None] - self.value
        rise = np.diff(at_knots, axis=-1)
        pieces = log_integrals(self.beta, at_knots)
        cumulative = np.exp(pieces - pieces.max(axis=-1, keepdims=True)).cumsum(axis=-1)
        mark = uniforms[0][..., None] * cumulative[..., -1:]
        piece = (cumulative <= mark).sum(axis=-1)
        r = np.take_along_axis(rise, piece[..., None], axis=-1)[..., 0]
        low, width = self.beta[piece], np.diff(self.beta)[piece]
        return low + width * _truncated_exponential(r, uniforms[1])

    @classmethod
    def from_curve(
        cls, beta: Array, log_z: Array, *, tolerance: float = 0.3, most: int = 32
    ) -> Bias:
        """The coarsest piecewise-linear bias within `tolerance` of an estimated curve log z(β)."""
        knots, value = _coarsest(beta, log_z, tolerance=tolerance, most=most)
        return cls(knots, value)


@dataclass(frozen=True)
class CopyBias(_Table):
    """The bias b(β) of pseudo-extended copies and the prior g(β) of their β ([PE] 8).

    At `beta`, shape (K,), `value` and `log_prior` are b and log g, both 0 at first and linear
    between knots. Under the best bias, b(β) = log z(β), each β has density g, whether its copy is
    the target's or not.
    """

    log_prior: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "log_prior", _knots(self.beta, self.log_prior)[1])

    @classmethod
    def linear(cls, log_zeta: float) -> CopyBias:
        """The bias β log ζ and a uniform prior."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, log_zeta]), np.zeros(2))

    @classmethod
    def from_curves(cls, beta: Array, log_z: Array, log_prior: Array) -> CopyBias:
        """The coarsest bias and prior within .3 of both estimated curves."""
        return cls(*_coarsest(beta, log_z, log_prior))

    @cached_property
    def of_the_path(self) -> Bias:
        """b − log g, the bias for x and β of a copy that is not the target's."""
        return Bias(self.beta, self.value - self.log_prior)


@dataclass(frozen=True)
class PowerBias(CopyBias):
    """The bias β log ζ of copies that follow powers of the target ([PE] 6, 7).

    Copy i has the unnormalised density (γ(x) / ζ)^β_i of the target γ = e^−φ, for β_i between two
    `bounds` above 0, with a uniform g. δ is φ itself.
    """

    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.bounds
        if not 0 < low < high <= 1:
            raise StanctError(f"Bounds of β lie in (0, 1] and increase, and {self.bounds} do not.")

    @classmethod
    def between(cls, log_zeta: float, bounds: tuple[float, float]) -> PowerBias:
        """The bias β log ζ for β between the bounds."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, log_zeta]), np.zeros(2), bounds)

    def log_weights_of(self, phi: Array) -> Array:
        """Log weight at β = 1 of a copy, averaged over its β, up to a constant; shape of `phi`.

        This is −φ − log M(x) with M(x) = ∫ exp(−β (φ + log ζ)) dβ between the bounds.
        """
        low, high = self.bounds
        rate = phi + self.log_zeta
        return -phi + low * rate - Bias.linear(0.0).log_mass((high - low) * rate)


@dataclass(frozen=True)
class LadderBias(_Table):
    """A bias on a ladder of inverse temperatures, the discrete counterpart of `Bias` ([GS] 6).

    The joint density of x and the rung n is ∝ exp(−β_n φ − (1 − β_n) ψ − b_n). With M(x) = Σ_n
    exp(−β_n δ − b_n), the marginal of x, weights and estimates are as on the continuous path ([GS]
    8, 9). The best `value`, b_n = log z(β_n), makes all rungs of `beta` equally likely.
    """

    @classmethod
    def linear(cls, beta: Array, log_zeta: float) -> LadderBias:
        """The bias β_n log ζ, with log ζ a guess at log Z."""
        return cls(beta, np.asarray(beta) * log_zeta)

    def log_mass(self, delta: Array) -> Array:
        """Log M(x) for δ of any shape; at δ = +inf only the rung at β = 0 is left."""
        delta = np.asarray(delta, float)[..., None]
        return np.logaddexp(
            -self.value[0], log_sum_exp(-self.beta[1:] * delta - self.value[1:], axis=-1)
        )

    def log_weights(self, delta: Array, beta: float, log_mass: Array | None = None) -> Array:
        """As `Bias.log_weights`, also between rungs; δ may be +inf where x was drawn at β = 0."""
        mass = self.log_mass(delta) if log_mass is None else log_mass
        return tempered(beta, delta) - self(beta) - mass


AnyBias = Bias | LadderBias


def regenerates(bias: AnyBias) -> bool:
    """Whether chains under a bias visit β = 0, where x is drawn afresh from the base."""
    return isinstance(bias, LadderBias) or bias.atom > 0


def sigmoidal_ladder(temperatures: int) -> Array:
    """β_n ∝ logistic(4 (2n/N − 1)), rescaled to run from 0 to 1, shape (N + 1,) ([GS] 7.2)."""
    raw = 1 / (1 + np.exp(-4 * np.linspace(-1, 1, temperatures + 1)))
    ladder = (raw - raw[0]) / (raw[-1] - raw[0])
    ladder[-1] = 1.0
    return ladder


def ladder_of(rungs: int | Sequence[float]) -> Array:
    """The rungs themselves where they are given, or so many of the sigmoidal ladder."""
    return sigmoidal_ladder(rungs - 1) if isinstance(rungs, int) else np.array(rungs, float)


def tempered(beta: float, delta: Array) -> Array:
    """−β δ, and 0 at β = 0 even for infinite δ, because the target does not matter there."""
    return np.zeros(np.shape(delta)) if beta == 0 else -beta * np.asarray(delta, float)


def _coarsest(beta: Array, *curves: Array, tolerance: float = 0.3, most: int = 32) -> list[Array]:
    """Knots with which linear interpolation stays near all curves, and the curves at the knots.

    They are inserted where the error is largest. Raises `SamplingError` unless curves are finite.
    """
    beta, stacked = np.asarray(beta, float), np.array(curves, float)
    if not np.isfinite(stacked).all():
        raise SamplingError(
            "log z(β) is not finite along the path: the target vanishes, or is rejected, at all "
            "draws of the base or of the chains.",
            remedy="Pass a base that overlaps the target's support, and see whether the target "
            "still works.",
        )
    stacked -= stacked[:, :1]
    chosen = [0, beta.size - 1]
    while len(chosen) < most:
        straight = [np.interp(beta, beta[chosen], curve[chosen]) for curve in stacked]
        error = np.abs(straight - stacked).max(axis=0)
        worst = int(error.argmax())
        if error[worst] <= tolerance:
            break
        chosen = sorted({*chosen, worst})
    return [beta[chosen], *stacked[:, chosen]]


def _knots(beta: Array, value: Array) -> tuple[Array, Array]:
    """The knots of a bias as arrays; raise `StanctError` for invalid knots."""
    beta, value = np.asarray(beta, float), np.asarray(value, float)
    if beta.ndim != 1 or beta.size < 2 or beta.shape != value.shape:
        raise StanctError("A bias needs two or more knots and one value for each.")
    if beta[0] != 0 or beta[-1] != 1 or np.any(np.diff(beta) <= 0):
        raise StanctError("The knots of a bias must increase from 0 to 1.")
    if value[0] != 0 or not np.all(np.isfinite(value)):
        raise StanctError("The values of a bias must be finite and start with b(0) = 0.")
    return beta, value


def log_integrals(knots: Array, f: Array) -> Array:
    """Log of ∫ exp(f) between neighbouring knots, between which f, shape (..., K), is linear."""
    return (
        np.log(np.diff(knots))
        + np.maximum(f[..., 1:], f[..., :-1])
        + _log_mean_exp(np.abs(np.diff(f, axis=-1)))
    )


def _log_mean_exp(r: Array) -> Array:
    """Log of (1 − e^{−r}) / r for r ≥ 0, the mean of e^{−r t} over t in [0, 1]."""
    small = r < _SERIES
    near, far = np.where(small, r, 0.0), np.where(small, 1.0, r)
    return np.where(small, near * (near / 24 - 0.5), np.log(-np.expm1(-far)) - np.log(far))


def _truncated_exponential(r: Array, uniform: Array) -> Array:
    """Inverse distribution function of the density ∝ e^{r t} on [0, 1], for any sign of r."""
    small = np.abs(r) < 1e-12
    down = np.where(small, -1.0, -np.abs(r))
    # For r > 0, use the mirror image: t → 1 − t turns r into −r and v into 1 − v.
    v = np.where(r > 0, 1 - uniform, uniform)
    # At steep slopes, v = 1 is one rounding error from −∞. Both stand for the far end.
    t = np.log1p(np.maximum(v * np.expm1(down), -1 + 1e-16)) / down
    return np.where(small, uniform, np.clip(np.where(r > 0, 1 - t, t), 0.0, 1.0))
